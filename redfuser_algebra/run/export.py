"""Kernels as files: everything that `redfuser export` decides before the text is written.

In: an operator, its form, the hash of its certificate, a dtype.  Out: the text of a file that needs NumPy and Numba, or numba-cuda.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import LEAVES, Expr, subterms
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.cost import default_schedule
from redfuser_algebra.lower.kinds import TYPES, kinds, natural_kinds, param_types
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.lower.numba_cpu import print_cpu
from redfuser_algebra.lower.schedule import Machine, Schedule
from redfuser_algebra.lower.standalone.file_cpu import LIMITS, Export, file_text
from redfuser_algebra.lower.standalone.file_cuda import CudaExport, cuda_text
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import TileProgram
from redfuser_algebra.run.evaluate import evaluate
from redfuser_algebra.run.laid_out import environment_of

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm
    from redfuser_algebra.run.cuda import CudaKernel

REAL = ("float32", "float64")
USUAL_LENGTH, USUAL_COLUMNS, USUAL_ROWS = 8192, 64, 1024
"""The lengths that an exported schedule is made for: of the reduced axis, of columns, and of rows."""

STORED_ROUNDING = {"float16": 2.0**-9, "bfloat16": 2.0**-6, "float32": 0.0, "float64": 0.0}
"""What storing a result in a dtype may cost besides, in units of the largest value."""

KINDS = ("normal", "positive", "unit")
ROUNDINGS = {"round", "cast", "floor", "ceil", "sign", "mod", "floor_divide"}
LENGTH, NUDGE = 40, 2.0**-24


def exported_cpu(operator: Operator, form: FusedForm, certificate: str, dtype: str = "float32", schedule: Schedule | None = None) -> str:
    """The file's text; the same arguments give the same text.

    `certificate` is the hash that the header names.  Raises OperatorError for a dtype there are no kernels for, and
    LoweringError for a form that no loops can be printed of.
    """
    if dtype not in REAL:
        raise OperatorError(f"a kernel file of {operator.name} for {dtype}", "there are no CPU kernels of that dtype",
                            f"choose one of {', '.join(REAL)}")
    program, natural = lower(operator, form), natural_kinds(operator)
    signature = Signature({name: TYPES[natural.get(name, dtype)] for name in operator.inputs}, param_types(operator))
    schedule = schedule or _usual_schedule(program, 4 if dtype == "float32" else 8)
    return file_text(Export(operator, form, program, signature, print_cpu(program, signature), schedule, certificate,
                            draws(operator), error_limit(operator, TYPES[dtype])))


def exported_cuda(kernel: CudaKernel, certificate: str) -> str:
    """The text of a file with a CUDA kernel, which needs NumPy and numba-cuda, and a GPU only to run."""
    limit = error_limit(kernel.operator, kernel.signature.real) + STORED_ROUNDING[kernel.dtype]
    return cuda_text(CudaExport(kernel.operator, kernel.form, kernel.program, kernel.printed, certificate,
                                kernel.signature.arrays, draws(kernel.operator), limit))


def error_limit(operator: Operator, type_: str) -> float:
    """How far a kernel whose real numbers are of a type may be from the definition, in units of the largest value."""
    return LIMITS[_exactness(operator)][type_]


def _exactness(operator: Operator) -> str:
    """Which of LIMITS holds for an operator."""
    terms, natural = subterms(*operator.outputs), natural_kinds(operator) | {name: "int64" for name, type_ in param_types(operator).items() if type_ == "i8"}
    if any(term.op in ("round", "cast") and term.attrs[-1] for term in terms):
        return "moved"
    return "steps" if any(_is_step(term, natural) for term in terms) else "exact"


def _is_step(term: Expr, natural: Mapping[str, str]) -> bool:
    """Whether rounded operands may fall to the other side; whole numbers, and numbers as they were given, cannot."""
    def leaf(part: Expr) -> str:
        return {"int64": "i", "bool": "b"}.get(natural.get(part.name, ""), "f")

    return term.op in ROUNDINGS or term.op in COMPARISONS and any(arg.op not in LEAVES and kinds(arg, leaf)[arg] == "f" for arg in term.args)


def _usual_schedule(program: TileProgram, width: int) -> Schedule:
    """For arrays of a usual size on a usual machine: a file must not depend on where it was written."""
    axes = {axis for own in (*program.inputs.values(), *program.holds.values(), *program.output_axes) for axis in own}
    sizes = {axis: USUAL_ROWS if axis in program.rows else USUAL_COLUMNS for axis in axes} | {program.axis: USUAL_LENGTH}
    return default_schedule(program, sizes, 1, width, Machine())


def draws(operator: Operator) -> dict[str, str]:
    """What kind of numbers each input is to be drawn from, so that the operator has stable, finite results.

    Masks and classes are bits, positions are whole numbers; the others are normal, positive or in 0 … 1: the first choice whose
    results are finite and move by little where the inputs do.  Where no choice is, the one with most finite results.
    """
    natural = natural_kinds(operator)
    known = {name: "whole" if natural[name] == "int64" else "bits" for name in operator.inputs if name in natural}
    known |= dict.fromkeys(_classes(operator), "bits")
    free = [name for name in operator.inputs if name not in known]
    choices = sorted(product(KINDS, repeat=len(free)), key=lambda kinds: (len(set(kinds)), sum(map(KINDS.index, kinds))))
    steadiest: tuple[float, dict[str, str]] = -1.0, {}
    for kinds in choices:
        choice = {name: (known | dict(zip(free, kinds, strict=True)))[name] for name in operator.inputs}
        steadiest = max(steadiest, (_steadiness(operator, choice), choice), key=lambda found: found[0])
        if steadiest[0] == 1:
            break
    return steadiest[1]


def _classes(operator: Operator) -> Iterator[str]:
    """The inputs that are compared with numbers for equality."""
    for term in subterms(*operator.outputs):
        if term.op in ("equal", "not_equal") and {arg.op for arg in term.args} == {"input", "const"}:
            yield from (arg.name for arg in term.args if arg.op == "input")


def _steadiness(operator: Operator, kinds: Mapping[str, str]) -> float:
    """How much of the results is finite, and stays where it is when the inputs move by a rounding; 1 is all."""
    rng = np.random.default_rng(0)
    arrays = {name: drawn(np.random.default_rng(place), kinds[name], tuple(LENGTH if axis == operator.axes[-1] else 9 for axis in axes))
              for place, (name, axes) in enumerate(operator.inputs.items())}
    moved = {name: array * (1 + NUDGE * rng.choice((-1, 1), array.shape)) if kinds[name] in KINDS else array for name, array in arrays.items()}
    first, second = (_outputs(operator, each) for each in (arrays, moved))
    met = [np.mean(value != 0) for value in _assumed(operator, arrays)]
    return round(float(min([*map(_steady, first, second), *met])), 6)


def _steady(first: np.ndarray, second: np.ndarray) -> float:
    """The part of the values that is finite, and nearly the same in both."""
    finite = np.isfinite(first) & np.isfinite(second)
    near = np.abs(first[finite] - second[finite]) <= 1e4 * NUDGE * np.abs(first[finite]).max(initial=0.0)
    return float(near.sum() / max(first.size, 1))


def drawn(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers of one of the kinds that `draws` names."""
    ranges = {"positive": (0.5, 2.0), "unit": (0.01, 0.99)}
    if kind in ("whole", "bits"):
        return rng.integers(0, 9 if kind == "whole" else 2, shape).astype(float)
    return rng.standard_normal(shape) if kind == "normal" else rng.uniform(*ranges[kind], shape)


def _outputs(operator: Operator, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return _evaluated(operator, operator.outputs, arrays)


def _assumed(operator: Operator, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return _evaluated(operator, operator.assume, arrays)


def _evaluated(operator: Operator, exprs: tuple[Expr, ...], arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    types = param_types(operator)
    scalars = {name: (3 if types[name] == "i8" else 1.0) if default is None else default for name, default in operator.params.items()}
    environment = environment_of(operator, operator.bind(**arrays, **scalars))
    with np.errstate(all="ignore"):
        return [np.asarray(value, np.float64) for value in evaluate(exprs, environment)] if exprs else []
