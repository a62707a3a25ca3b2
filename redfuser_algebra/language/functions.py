"""The words of the front door: reductions over named axes and elementwise functions, written as in NumPy.

In: expressions and numbers.  Out: expressions.  Nothing is simplified here, so a formula means what it says.
Names of this module shadow Python's `sum`, `max`, `min`, `any`, `all`, `abs` and `round` on purpose.
"""
from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from numbers import Number
from typing import NamedTuple

import numpy as np

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.errors import OperatorError, undeclared
from redfuser_algebra.language.expr import Expr, call, lift, subterms
from redfuser_algebra.language.names import unused

__all__ = """sum prod max min any all argmax argmin topk argtopk sort argsort quantile median count mean var std softmax logsumexp take
    index size exp exp2 expm1 log log2 log1p sqrt abs sign sin cos tanh arctan arctan2 erf floor ceil isnan reciprocal maximum minimum
    logadd power where square sigmoid relu clip divide round cast reduce""".split()

Operand = Expr | Number
Axes = str | tuple[str, ...]

CASTS = ("float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "int16", "int32", "int64",
         "uint8", "uint16", "uint32", "uint64", "bool")
"""The number formats a value can be rounded to."""


class TopK(NamedTuple):
    """The k largest values along an axis, largest first, and their positions."""

    values: Expr
    indices: Expr


def axis_names(axis: Axes) -> tuple[str, ...]:
    """`"h w"` or `("h", "w")` as a tuple of names.  Raises OperatorError for anything else, and for repeats."""
    names = tuple(axis.split()) if isinstance(axis, str) else tuple(axis) if isinstance(axis, tuple | list) else ()
    if not names or not _all_strings(names) or len(set(names)) < len(names):
        raise OperatorError(f"an axis {axis!r:.60}", "it does not name one or several different axes",
                            'give the name of an axis, such as "l", or several, such as "h w"')
    return names


def _all_strings(names: tuple) -> bool:
    return [name for name in names if not isinstance(name, str)] == []


def _reduced(monoid: str, expr: Operand, axis: Axes, where: Operand | None) -> Expr:
    """⊕ over each axis in turn, the last one innermost."""
    result, mask = lift(expr), () if where is None else (lift(where),)
    for name in reversed(axis_names(axis)):
        _check_axis(monoid, (result, *mask), name)
        result, mask = Expr("reduce", (result, *mask), (monoid, name, "")), ()
    return result


def _check_axis(monoid: str, operands: tuple[Expr, ...], axis: str) -> None:
    axes = dict.fromkeys(name for operand in operands for name in operand.axes)
    if axis not in axes:
        has = f"has the axes {', '.join(axes)}" if axes else "has no axes"
        raise OperatorError(
            f'{monoid} over axis "{axis}"', f'the expression {has}, and is the same for every element of "{axis}"',
            f'reduce over an axis that it has, or multiply by ra.size("{axis}") if a sum of equal terms is meant')


def _one_axis(monoid: str, axis: Axes) -> str:
    names = axis_names(axis)
    if len(names) > 1:
        raise OperatorError(f"{monoid} over the axes {', '.join(names)}", "a position is a number along one axis",
                            f"reduce over one axis at a time; ra.{'max' if 'min' not in monoid else 'min'} takes several")
    return names[0]


def reduce(monoid: object, expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
    """⊕ over `axis` of the elements where the mask holds; the monoid is one that was declared, or a name.

    Raises OperatorError for an unknown name, and for topk and argtopk, which need a k.
    """
    name = getattr(monoid, "name", monoid)
    row = MONOIDS.get(name) if isinstance(name, str) else None
    if row is None:
        raise undeclared("monoid", name)
    if row.counted:
        raise OperatorError(f"a reduction by {name}", "it makes an axis of k elements", f'write ra.{name}(x, "l", k)')
    return _reduced(name, expr, _one_axis(name, axis) if row.indexed else axis, where)


def sum(expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
    """Σ over `axis` of the elements where the mask holds; 0 if there are none."""
    return _reduced("sum", expr, axis, where)


def prod(expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
    """Π over `axis` of the elements where the mask holds; 1 if there are none."""
    return _reduced("prod", expr, axis, where)


def max(expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
    """The largest element along `axis` where the mask holds; −inf if a mask leaves none."""
    return _reduced("max", expr, axis, where)


def min(expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
    """The smallest element along `axis` where the mask holds; +inf if a mask leaves none."""
    return _reduced("min", expr, axis, where)


def any(expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
    """Whether some element along `axis` where the mask holds is true."""
    return _reduced("any", expr, axis, where)


def all(expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
    """Whether every element along `axis` where the mask holds is true."""
    return _reduced("all", expr, axis, where)


def argmax(expr: Operand, axis: str, where: Operand | None = None) -> Expr:
    """The position of the largest element along one axis, the lowest of equals; −1 if a mask leaves none."""
    return _reduced("argmax", expr, _one_axis("argmax", axis), where)


def argmin(expr: Operand, axis: str, where: Operand | None = None) -> Expr:
    """The position of the smallest element along one axis, the lowest of equals; −1 if a mask leaves none."""
    return _reduced("argmin", expr, _one_axis("argmin", axis), where)


def topk(expr: Operand, axis: str, k: int | Expr, where: Operand | None = None, name: str | None = None) -> TopK:
    """The k largest values along `axis`, largest first, and their positions, on a new axis called `name`.

    k is a number of at least 1, an integer parameter, or computed from such and lengths of axes: with k = size(axis)
    all are kept, in order.  Without a `name` the axis is called "top", or "top2" and
    so on where the expression already knows that name.  Of equal values the one at the lower position comes first.
    """
    out = name or fresh_axis("top", lift(expr), lift(True if where is None else where))
    return TopK(_top("topk", expr, axis, k, where, out), _top("argtopk", expr, axis, k, where, out))


def argtopk(expr: Operand, axis: str, k: int | Expr, where: Operand | None = None, name: str | None = None) -> Expr:
    """The positions of the k largest values along `axis`: the second half of `topk`."""
    return topk(expr, axis, k, where, name).indices


def _top(monoid: str, expr: Operand, axis: str, k: int | Expr, where: Operand | None, out: str) -> Expr:
    if isinstance(k, str):
        raise OperatorError(f"{monoid} with the axis {axis!r} and k = {k!r}", "the axis comes first", f'write ra.{monoid}(x, "{k}", {axis})')
    axis, operands = _one_axis(monoid, axis), (lift(expr),) if where is None else (lift(expr), lift(where))
    _check_axis(monoid, operands, axis)
    if out in operands[0].axes or out in operands[-1].axes:
        raise OperatorError(f'topk with name="{out}"', f'the expression already has an axis "{out}"',
                            "give the new axis a name of its own")
    return Expr("reduce", (*operands, _count_operand(k)), (monoid, axis, out))


def _count_operand(k: int | Expr) -> Expr:
    k = lift(k)
    whole = k.op == "const" and isinstance(k.value, int) and not isinstance(k.value, bool) and k.value >= 1
    ops = {term.op for term in subterms(k)}
    computed = "size" in ops and ops <= {"size", "const", "param", *FUNCTIONS}
    if not whole and not computed and k.op != "param":
        raise OperatorError(f"the {k!r} largest elements", "k is neither a whole number of at least 1, nor a parameter, nor a length",
                            "pass an int, declare k as a parameter of the operator: `k: int = 6`, or compute it from ra.size")
    return k


def sort(expr: Operand, axis: str, name: str | None = None) -> Expr:
    """All elements along `axis`, smallest first, on a new axis `name` of the same length."""
    out = name or _sorted_axis("sort", expr, axis)
    return -_top("topk", -lift(expr), axis, size(axis), None, out)


def argsort(expr: Operand, axis: str, name: str | None = None) -> Expr:
    """The positions of all elements along `axis`, that of the smallest first, of equals the lowest, on a new axis."""
    out = name or _sorted_axis("argsort", expr, axis)
    return _top("argtopk", -lift(expr), axis, size(axis), None, out)


def quantile(expr: Operand, axis: str, q: Operand) -> Expr:
    """What a share q of the elements along `axis` stays below, between neighbours linearly: numpy.quantile's default."""
    out = _sorted_axis("quantile", expr, axis)
    place, ordered = lift(q) * (size(axis) - 1), sort(expr, axis, out)
    low = floor(place)
    below, above = take(ordered, low, out), take(ordered, minimum(low + 1, size(axis) - 1), out)
    return below + (place - low) * (above - below)


def median(expr: Operand, axis: str) -> Expr:
    """The middle element along `axis`, or the mean of the two in the middle."""
    out = _sorted_axis("median", expr, axis)
    ordered = sort(expr, axis, out)
    return 0.5 * (take(ordered, (size(axis) - 1) // 2, out) + take(ordered, size(axis) // 2, out))


def _sorted_axis(called: str, expr: Operand, axis: str) -> str:
    """The name of the axis of all elements in order."""
    return fresh_axis(f"sorted_{_one_axis(called, axis)}", lift(expr))


def fresh_axis(stem: str, *exprs: Expr) -> str:
    """`stem`, or `stem2`, `stem3`, … if the expressions speak of an axis with that name."""
    taken = {axis for term in subterms(*exprs) for axis in term.axes}
    return unused(stem, taken)


def count(mask: Operand, axis: Axes) -> Expr:
    """How many elements along `axis` satisfy the mask."""
    return sum(1, axis, where=mask)


def taking_part(axis: Axes, where: Operand | None) -> Expr:
    """The number of elements that a mean over `axis` divides by."""
    if where is not None:
        names = axis_names(axis)
        inside = [name for name in names if name in lift(where).axes]
        rest = [size(name) for name in names if name not in inside]
        return _product([count(where, tuple(inside)) if inside else call("where", where, 1, 0), *rest])
    return _product([size(name) for name in axis_names(axis)])


def _product(factors: list[Expr]) -> Expr:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def mean(expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
    """Σ x / N over the elements where the mask holds; N is the length of `axis` or the count of the mask."""
    return sum(expr, axis, where) / taking_part(axis, where)


def var(expr: Operand, axis: Axes, where: Operand | None = None, ddof: Operand = 0) -> Expr:
    """Σ (x − mean)² / (N − ddof) over the elements where the mask holds."""
    squares = sum(square(lift(expr) - mean(expr, axis, where)), axis, where)
    number = taking_part(axis, where)
    return squares / (number if _is_zero(ddof) else number - ddof)


def _is_zero(ddof: Operand) -> bool:
    return not isinstance(ddof, Expr) and ddof == 0


def std(expr: Operand, axis: Axes, where: Operand | None = None, ddof: Operand = 0) -> Expr:
    """√var."""
    return sqrt(var(expr, axis, where, ddof))


def softmax(expr: Operand, axis: Axes) -> Expr:
    """e^(x − max x) / Σ e^(x − max x): weights along `axis` that add up to 1."""
    weights = exp(lift(expr) - max(expr, axis))
    return weights / sum(weights, axis)


def logsumexp(expr: Operand, axis: Axes) -> Expr:
    """log Σ eˣ, about the largest element."""
    largest = max(expr, axis)
    return largest + log(sum(exp(lift(expr) - largest), axis))


def take(expr: Operand, position: Operand, axis: str) -> Expr:
    """The value of `expr` at a position along `axis`; 0 where the position is outside."""
    axis = _one_axis("take", axis)
    _check_axis("take", (lift(expr),), axis)
    return sum(where(index(axis) == position, expr, 0), axis)


def index(axis: str) -> Expr:
    """The positions 0, 1, … along `axis`."""
    return Expr("index", (), (_one_axis("index", axis),))


def size(axis: Axes) -> Expr:
    """The length of `axis`; of several, the number of elements."""
    return _product([Expr("size", (), (name,)) for name in axis_names(axis)])


def _elementwise(name: str, doc: str, parameters: str = "a") -> Callable[..., Expr]:
    """The function of FUNCTIONS called `name`, with the signature and docstring a reader expects."""
    names = parameters.split()

    def function(*operands: Operand) -> Expr:
        if len(operands) != len(names):
            raise OperatorError(f"{name} of {len(operands)} operands", f"it takes {len(names)}",
                                f"write ra.{name}({', '.join(names)})")
        return call(name, *operands)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name}({', '.join(names)}): {doc}"
    function.__signature__ = Signature([Parameter(each, Parameter.POSITIONAL_ONLY) for each in names])
    return function


exp = _elementwise("exp", "eᵃ.")
exp2 = _elementwise("exp2", "2ᵃ.")
expm1 = _elementwise("expm1", "eᵃ − 1, exact near 0.")
log = _elementwise("log", "the natural logarithm.")
log2 = _elementwise("log2", "the logarithm to base 2.")
log1p = _elementwise("log1p", "log(1 + a), exact near 0.")
sqrt = _elementwise("sqrt", "√a.")
abs = _elementwise("abs", "|a|.")
sign = _elementwise("sign", "−1, 0 or 1.")
sin = _elementwise("sin", "the sine of a, in radians.")
cos = _elementwise("cos", "the cosine of a, in radians.")
tanh = _elementwise("tanh", "the hyperbolic tangent.")
arctan = _elementwise("arctan", "the angle whose tangent is a, in radians.")
arctan2 = _elementwise("arctan2", "the angle of the point (b, a), in radians.", "a b")
erf = _elementwise("erf", "the error function, 2/√π ∫₀ᵃ e^(−t²) dt.")
floor = _elementwise("floor", "the largest integer ≤ a.")
ceil = _elementwise("ceil", "the smallest integer ≥ a.")
isnan = _elementwise("isnan", "whether a is NaN.")
reciprocal = _elementwise("reciprocal", "1 / a.")
maximum = _elementwise("maximum", "the larger of a and b; NaN if either is.", "a b")
minimum = _elementwise("minimum", "the smaller of a and b; NaN if either is.", "a b")
logadd = _elementwise("logadd", "log(eᵃ + eᵇ), NumPy's logaddexp.", "a b")
power = _elementwise("power", "aᵇ.", "a b")
where = _elementwise("where", "a where the condition holds, otherwise b.", "condition a b")


def square(a: Operand) -> Expr:
    """a²."""
    return call("power", a, 2)


def sigmoid(a: Operand) -> Expr:
    """1 / (1 + e⁻ᵃ), written with tanh so that no exponential can overflow."""
    return 0.5 * tanh(0.5 * lift(a)) + 0.5


def relu(a: Operand) -> Expr:
    """max(a, 0)."""
    return maximum(a, 0)


def clip(a: Operand, low: Operand | None = None, high: Operand | None = None) -> Expr:
    """a, but at least `low` and at most `high`; None means no bound."""
    raised = lift(a) if low is None else maximum(a, low)
    return raised if high is None else minimum(raised, high)


def divide(a: Operand, b: Operand, where_zero: Operand | None = None) -> Expr:
    """a / b, and `where_zero` where b = 0 if that is given: the total division."""
    quotient = call("divide", a, b)
    return quotient if where_zero is None else where(lift(b) == 0, where_zero, quotient)


def round(a: Operand, reassociate: bool = False) -> Expr:
    """The nearest integer, ties to even.  `reassociate` permits fusion to round at another pivot (`partly: rounding`)."""
    return Expr("round", (lift(a),), (bool(reassociate),))


def cast(a: Operand, dtype: object, reassociate: bool = False) -> Expr:
    """a rounded to a number format.  `reassociate` permits fusion to round at another pivot (`partly: rounding`)."""
    try:
        name = dtype if isinstance(dtype, str) and dtype in CASTS else np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in CASTS:
        raise OperatorError(f"a cast to {dtype!r:.40}", "there is no such number format", f"use one of: {', '.join(CASTS)}")
    return Expr("cast", (lift(a),), (name, bool(reassociate)))
