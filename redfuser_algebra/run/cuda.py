"""A CUDA kernel as users hold it: source to read, a call that needs a GPU, and an audit that needs none."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.html import element, folded, highlighted, joined
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.arithmetic_cuda import BYTES, CudaSource
from redfuser_algebra.lower.float8 import FORMATS, Float8
from redfuser_algebra.lower.kinds import DTYPES, TYPES, natural_kinds, param_types
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.lower.numba_cuda import print_cuda
from redfuser_algebra.lower.operands_cuda import matrices
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16, to_bfloat16
from redfuser_algebra.lower.standalone.float8 import to_float8
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import TileProgram
from redfuser_algebra.ptx.compile import ARCHITECTURES, gpu_missing
from redfuser_algebra.ptx.execute import KernelFile
from redfuser_algebra.run.audit import CARD, QUICK, Audit, Draw, Size, audited
from redfuser_algebra.run.choices import check_choices
from redfuser_algebra.run.dtypes import real_dtype

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

NATIVE = 8, 9
"""The compute capability from which on there are products of floats of eight bits."""


@dataclass(frozen=True)
class CudaKernel:
    """The kernel of a form for real numbers of a dtype, on an architecture.

    `source` is a module that needs NumPy and numba-cuda: its `launch` takes arrays, its `plan` needs no GPU.
    """

    operator: Operator
    form: FusedForm
    program: TileProgram
    signature: Signature
    dtype: str
    architecture: str
    printed: CudaSource

    def __str__(self) -> str:
        eight = "".join(f", {name} in {own}" for name, own in self.printed.float8.formats.items())
        return f"CUDA kernel of {self.operator.name} for {self.dtype}{eight} on {self.architecture}"

    def format(self, name: str) -> str:
        """What an input holds in memory."""
        own = self.signature.arrays[name]
        return self.printed.float8.formats.get(name) or (self.dtype if own in ("f4", "f8") else DTYPES[own])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return joined(element("b", self), folded("Loops", self.program._repr_html_()), folded("Source", highlighted(self.source)))

    @property
    def source(self) -> str:
        """The module as text."""
        return self.printed.text

    @cached_property
    def file(self) -> KernelFile:
        """The source made ready to be compiled and executed without a GPU."""
        return KernelFile(self.source)

    def audit(self, *, card: str = CARD, sizes: str | Sequence[Size] = QUICK, seed: int = 0,
              progress: Callable[[int, int], None] | None = None, drawn_by: Mapping[str, Draw] | None = None) -> Audit:
        """Compile, execute on the CPU against the operator in float64, count and estimate; see `audited`.

        `sizes` are "quick", "full", or lengths of the reduced axis; for kernels of tiles also pairs of rows and length.
        `drawn_by` says how inputs are drawn: {name: function of (a NumPy generator, a shape)}; of others the audit finds a range.
        """
        return audited(self, sizes, card, seed, progress, drawn_by)

    def __call__(self, /, *arrays: object, **named: object) -> object:
        """Run on the GPU with arrays in NumPy's memory.  Raises OperatorError where there is no GPU, and for whole numbers that it would confuse."""
        return self.launched(self.operator.bind(*arrays, **named))

    def launched(self, binding: Binding) -> object:
        """The outputs on the GPU, float16 as it is, bfloat16 as float32.  Raises OperatorError where it cannot run."""
        check_choices(self.operator.name, self.form, binding.arrays)
        asked, missing = f"running {self.operator.name} on a GPU", gpu_missing()
        if missing:
            raise OperatorError(asked, missing, "pip install 'redfuser-algebra[cuda]'" if missing.endswith("not installed") else
                                "audit the kernel, which needs no GPU, or take backend=\"cpu\"")
        try:
            results = self.file.names["launch"](*self.given(binding))
        except ValueError as error:
            raise OperatorError(asked, str(error), "take backend=\"cpu\", which has no such limits") from error
        return self.operator.packed(tuple(self.delivered(results if isinstance(results, tuple) else (results,))))

    def given(self, binding: Binding) -> list[object]:
        """Arrays in the kernel's dtypes and order of axes, then scalars: what `plan` and `launch` take."""
        arrays = []
        for name, own in self.program.inputs.items():
            array, axes = np.asarray(binding.arrays[name]), self.operator.inputs[name]
            leading = array.ndim - len(axes)
            array = np.broadcast_to(array, (*binding.batch, *array.shape[leading:])) if leading else array
            leading = array.ndim - len(axes)
            moved = array.transpose(*range(leading), *(leading + axes.index(axis) for axis in own))
            arrays.append(stored(moved, self.format(name)))
        return [*arrays, *(binding.params[name] for name in self.program.params)]

    def delivered(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs as the kernel writes them, as float32 if they are bfloat16, with the operator's order of axes."""
        results = []
        for output, axes in zip(outputs, self.program.output_axes, strict=True):
            value = from_bfloat16(output) if self.dtype == "bfloat16" and output.dtype == np.uint16 else output
            written = self.program.stored(axes)
            leading = value.ndim - len(axes)
            results.append(value.transpose(*range(leading), *(leading + written.index(axis) for axis in axes)))
        return results


def format_of(arrays: Iterable[np.dtype]) -> str:
    """The numbers that a kernel for such arrays reads: float16 if all real ones are, else the dtype of real results."""
    real = {dtype for dtype in arrays if dtype.kind not in "bui"}
    return "float16" if real == {np.dtype(np.float16)} else real_dtype(real).name


def factors_of(arrays: Mapping[str, np.dtype]) -> dict[str, str]:
    """The inputs whose arrays are floats of eight bits, as ml_dtypes has them, and their formats."""
    named = {name: dtype.name.removesuffix("fn") for name, dtype in arrays.items()}
    return {name: own for name, own in named.items() if own in FORMATS}


def stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """An array as a kernel reads it: contiguous, bfloat16 and floats of eight bits as their bits."""
    if dtype in FORMATS:
        return np.array(to_float8(array, dtype), order="C")
    if dtype == "bfloat16":
        return np.array(to_bfloat16(array.astype(np.float32)), order="C")
    return np.array(array, np.dtype(dtype), order="C")


def made_cuda(operator: Operator, form: FusedForm, dtype: str | Mapping[str, str] = "float32", architecture: str = "sm_90a",
              schedule: Schedule | None = None, factors: str | Mapping[str, str] | None = None) -> CudaKernel:
    """The kernel of a form; of a schedule it heeds whether it says `wgmma`, the rest its own plan chooses.

    `factors` says which inputs are floats of eight bits, float8_e4m3 or float8_e5m2: a format for all that matrix products
    take as they lie in memory, or one by name, also as "K=float8_e4m3,V=float8_e5m2".  From sm_89 on tensor cores take
    them as they are where both factors of a product are such (weights are if a cast has rounded them so); otherwise they
    are widened.  Raises OperatorError for an unknown dtype or architecture, LoweringError for a form without kernels.
    """
    if not isinstance(dtype, str) or dtype not in BYTES:
        raise OperatorError(f"a CUDA kernel of {operator.name} for {dtype!r}", "kernels have no such numbers", f"choose one of {', '.join(BYTES)}")
    if architecture not in ARCHITECTURES:
        raise OperatorError(f"a CUDA kernel of {operator.name} for {architecture!r}", "there is no such architecture here",
                            f"choose one of {', '.join(ARCHITECTURES)}")
    wgmma = schedule is not None and schedule.wgmma
    if wgmma and architecture != "sm_90a":
        raise OperatorError(f"a CUDA kernel of {operator.name} by wgmma for {architecture}", "only sm_90a has that instruction",
                            "choose sm_90a, or leave wgmma out")
    natural, real = natural_kinds(operator), "f8" if dtype == "float64" else "f4"
    arrays = {name: TYPES[natural[name]] if name in natural else real for name in operator.inputs}
    program, signature = lower(operator, form), Signature(arrays, param_types(operator), products=False)
    formats = _formats(operator, program, signature, factors)
    float8 = Float8(formats, bool(formats) and ARCHITECTURES[architecture] >= NATIVE)
    return CudaKernel(operator, form, program, signature, dtype, architecture, print_cuda(program, signature, dtype, wgmma, float8))


def _formats(operator: Operator, program: TileProgram, signature: Signature, factors: str | Mapping[str, str] | None) -> dict[str, str]:
    """The formats of inputs of floats of eight bits."""
    if factors is None:
        return {}
    asked = f"a CUDA kernel of {operator.name} with factors {factors!r}"
    named = dict(part.partition("=")[::2] for part in factors.split(",")) if isinstance(factors, str) and "=" in factors else factors
    found = dict.fromkeys(matrices(program, signature), named) if isinstance(named, str) else dict(named)
    if not found:
        raise OperatorError(asked, "it multiplies no input as it lies in memory", "name the inputs, as in factors={'K': 'float8_e4m3'}, or leave factors out")
    for name, own in found.items():
        if own not in FORMATS:
            raise OperatorError(asked, f"{own!r} is no format of floats of eight bits", f"choose one of {', '.join(FORMATS)}")
        if signature.arrays.get(name) not in ("f4", "f8"):
            raise OperatorError(asked, f"it has no input {name} of real numbers", f"name some of {', '.join(operator.inputs)}")
    return found


