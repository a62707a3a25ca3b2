"""The one rule for the dtypes of results, whoever computes them: NumPy, a stream or a kernel.

Real results are float64 if any array is, or if none is real; otherwise float32, for float16 and narrower formats, too.
Whole numbers do not widen them: labels, lengths and positions are no data.  Whole results are what NumPy makes of
whole arrays: a choice among elements keeps their dtype, arithmetic is in int64.  Truth values are bool.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from redfuser_algebra.language.expr import Expr, check_declared
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.kinds import CHOOSE, kinds

WHOLE = np.dtype(np.int64)


def real_dtype(dtypes: Iterable[np.dtype]) -> np.dtype:
    """The dtype of real results for arrays of these dtypes."""
    real = [dtype for dtype in dtypes if dtype.kind not in "bui"]
    return np.dtype(np.float32 if real and all(dtype.itemsize <= 4 for dtype in real) else np.float64)


def as_numpy(dtype: np.dtype) -> np.dtype:
    """The dtype itself, and for a format of fewer bits that NumPy lacks (bfloat16, …) float32, which holds its values."""
    return np.dtype(np.float32) if dtype.kind == "V" else dtype


def wider(one: np.dtype, other: np.dtype) -> np.dtype:
    """The dtype of elements of which some have one dtype and some the other."""
    return one if one == other else np.promote_types(as_numpy(one), as_numpy(other))


def result_dtypes(operator: Operator, arrays: Mapping[str, np.dtype], params: Mapping[str, object]) -> tuple[np.dtype, ...]:
    """The dtype of each output for inputs and scalars such as these.

    Raises OperatorError if a function or monoid of the operator is no longer declared.
    """
    check_declared(*operator.outputs)
    real = real_dtype(arrays.values())

    def leaf(term: Expr) -> str:
        dtype = arrays[term.name] if term.op == "input" else np.asarray(params[term.name]).dtype
        return {"b": "b", "u": "i", "i": "i"}.get(dtype.kind, "f")

    def of(output: Expr) -> np.dtype:
        known = kinds(output, leaf)
        if known[output] == "b" or _is_choice(output) and known[output.body] == "b":
            return np.dtype(np.bool_)
        return real if known[output] == "f" else _whole(output, arrays)

    return tuple(map(of, operator.outputs))


def _is_choice(term: Expr) -> bool:
    """Whether a term chooses among all elements of an axis, and so gives one of them."""
    return term.op == "reduce" and term.monoid in ("max", "min") and term.mask is None


def _whole(term: Expr, arrays: Mapping[str, np.dtype]) -> np.dtype:
    """The dtype of a whole result."""
    if term.op == "input":
        return arrays[term.name]
    if term.op == "cast":
        return np.dtype(term.attrs[0])
    if _is_choice(term):
        return _whole(term.body, arrays)
    if term.op == "reduce" and term.monoid in ("sum", "prod"):
        return np.sum(np.zeros(1, _whole(term.body, arrays))).dtype
    if term.op == "where" or term.op in CHOOSE:
        chosen = [_whole(arg, arrays) for arg in (term.args[1:] if term.op == "where" else term.args)]
        return np.result_type(*chosen)
    return WHOLE


def in_dtypes(operator: Operator, result: object, dtypes: tuple[np.dtype, ...]) -> object:
    """A result with each output in its dtype; what is too large for it becomes infinite, without a warning."""
    parts = result if isinstance(result, tuple) else tuple(result.values()) if isinstance(result, dict) else (result,)
    with np.errstate(over="ignore", under="ignore"):
        return operator.packed(tuple(part.astype(dtype, copy=False) for part, dtype in zip(parts, dtypes, strict=True)))
