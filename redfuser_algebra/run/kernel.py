"""A kernel as users hold it: source to read, a schedule, and a call that takes arrays as the operator does."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.html import folded, highlighted, joined, table, titled
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.kinds import DTYPES, TYPES, natural_kinds, param_types
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import TileProgram
from redfuser_algebra.run.choices import check_choices
from redfuser_algebra.run.cpu import chosen_schedule
from redfuser_algebra.run.kernels import Compiled, kernel_for
from redfuser_algebra.run.repeated_calls import Calls

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

NARROW = ("float8_e4m3", "float8_e5m2", "bfloat16", "float16")
GIVEN = dict.fromkeys(NARROW, "f4") | TYPES
"""dtype → the type of a kernel's arrays; narrow floats, as NumPy or ml_dtypes has them, are widened on their way in."""


@dataclass(frozen=True)
class Kernel:
    """An operator's compiled kernel.  Call it with arrays by position or name, scalars by name, and `out`.

    `compiled` holds the tile program, the printed source and its module; `signature` the type of every array.
    """

    operator: Operator
    form: FusedForm
    signature: Signature
    schedule: Schedule | None
    compiled: Compiled

    @cached_property
    def _calls(self) -> Calls:
        return Calls(self.operator, self.form, self.schedule, self.signature)

    @property
    def source(self) -> str:
        """The module that runs, as text: it needs NumPy and Numba."""
        return self.compiled.source.text

    @property
    def program(self) -> TileProgram:
        """The loops that the source is printed from."""
        return self.compiled.program

    def __str__(self) -> str:
        arrays = ", ".join(f"{name} {DTYPES[type_]}" for name, type_ in self.signature.arrays.items())
        return f"CPU kernel of {self.operator.name} for {arrays}: {self.schedule or 'the schedule is chosen by the sizes of each call'}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(name, DTYPES[type_], "[" + ", ".join(self.operator.inputs[name]) + "]") for name, type_ in self.signature.arrays.items()]
        about = self.schedule._repr_html_() if self.schedule else "The schedule is chosen by the sizes of each call."
        return joined(titled(f"CPU kernel of {self.operator.name}", table(("array", "dtype", "axes"), rows), about),
                      folded("Loops", self.program._repr_html_()), folded("Source", highlighted(self.source)))

    def schedule_for(self, batch: int = 1, **sizes: int) -> Schedule:
        """The schedule of a call with these axis lengths."""
        return self.schedule or chosen_schedule(self.compiled, sizes, batch)

    def __call__(self, /, *arrays: object, out: object = None, **named: object) -> object:
        """The outputs.  Raises OperatorError for arrays that do not fit, for whole numbers that it would confuse, and where it cannot run."""
        operator = self.operator
        into = operator.narrowed(() if out is None else out if isinstance(out, tuple) else (out,))
        if "i8" in self.signature.arrays.values():
            check_choices(operator.name, self.form, operator.bind(*arrays, **named).arrays)
        if (result := self._calls.again(arrays, named, into)) is not None:
            return operator.widened(result)
        binding = self.operator.bind(*arrays, **named)
        result = self._calls.first(binding, arrays, named, into)
        if result is None:
            raise OperatorError(f"the kernel of {self.operator.name} on shapes {[a.shape for a in binding.arrays.values()]}",
                                "it cannot run here: an axis is empty, a topk asks for too many, or Numba failed",
                                "call the fused operator, which falls back to NumPy")
        return operator.widened(result)


def made_kernel(operator: Operator, form: FusedForm, dtype: str | Mapping[str, str], schedule: Schedule | None) -> Kernel:
    """The kernel of a form.  Raises OperatorError for a dtype or a form without kernels."""
    natural = natural_kinds(operator)
    unknown = [name for name in dtype if name not in operator.inputs] if isinstance(dtype, Mapping) else []
    if unknown:
        raise OperatorError(f"a kernel of {operator.name} with a dtype for {unknown[0]}", "it has no such input",
                            f"use one of: {', '.join(operator.inputs)}")
    if not isinstance(schedule, Schedule | None):
        raise OperatorError(f"a kernel of {operator.name} with schedule={schedule!r:.40}", "that is no schedule",
                            "leave it out, or give one of fused.tune(…)")
    wanted = {name: dtype.get(name, "float32") if isinstance(dtype, Mapping) else natural.get(name, dtype) for name in operator.inputs}
    strange = [each for each in wanted.values() if each not in GIVEN]
    if strange:
        raise OperatorError(f"a kernel of {operator.name} for {strange[0]!r}", "kernels have no such numbers",
                            f"choose one of {', '.join(GIVEN)}")
    arrays = {name: GIVEN[each] for name, each in wanted.items()}
    if "f8" in arrays.values():
        arrays = {name: "f8" if type_ == "f4" else type_ for name, type_ in arrays.items()}
    signature = Signature(arrays, param_types(operator))
    compiled = kernel_for(operator, form, signature)
    if compiled is None:
        raise OperatorError(f"a kernel of {operator.name}", "its form has parts that no loop is printed for", "call the fused operator: NumPy runs it")
    return Kernel(operator, form, signature, schedule, compiled)
