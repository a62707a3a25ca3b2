"""Expressions over named axes: immutable, interned, so that equal terms are the same object.

An expression is an operation on expressions.  `axes` are the named dimensions of its value, in order of first
appearance.  Comparison operators build expressions, as in NumPy; identity (`is`) is equality of terms.
"""
from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from numbers import Number

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.errors import OperatorError, undeclared

DEEPEST = 200
"""How deep expressions may be nested; every walk over one is recursive."""

LEAVES = ("input", "param", "const", "index", "size", "symbol", "state")

_interned: weakref.WeakValueDictionary[tuple, Expr] = weakref.WeakValueDictionary()


class Expr:
    """A term: `op` applied to `args`, with static attributes `attrs`.

    | op | attrs | args | value |
    |---|---|---|---|
    | input | (name, axes) | | an array, dimensions in the order of `axes` |
    | param | (name,) | | a scalar given at the call |
    | const | (value,) | | a Python bool, int or float |
    | index | (axis,) | | the positions 0, 1, … along `axis` |
    | size | (axis,) | | the length of `axis` |
    | symbol | (name, axes) | | a value bound later: a result, a pivot, a state component |
    | state | (name, axes) | | what a recurrence has come to, inside its step |
    | a name in FUNCTIONS | () | operands | elementwise |
    | cast | (dtype, reassociate) | (a,) | a rounded to `dtype` |
    | round | (reassociate,) | (a,) | a rounded to the nearest integer |
    | reduce | (monoid, axis, out) | (body,), (body, mask) | ⊕ over `axis`; `out` names the axis topk makes |
    | scan | (axis, names, place, every) | (*initial, *next) | the state called `names[place]` after the last element |

    A scan has one initial value and one next value per state; the latter is over elements and `state` leaves.  Where
    `every` is "after" or "before" it keeps the axis: the state after or before every element.  For topk and argtopk the
    number k is the last operand: (body, k) or (body, mask, k); see `mask` and `count`.
    """

    __slots__ = ("op", "attrs", "args", "axes", "depth", "_states", "_text", "__weakref__")
    op: str
    attrs: tuple
    args: tuple[Expr, ...]
    axes: tuple[str, ...]
    depth: int
    _states: frozenset[Expr]
    _text: str
    __array_ufunc__ = None

    def __new__(cls, op: str, args: tuple[Expr, ...] = (), attrs: tuple = ()) -> Expr:
        key = (op, args, tuple(map(_exact, attrs)))
        found = _interned.get(key)
        if found is None:
            found = object.__new__(cls)
            axes = _axes_of(op, args, attrs)
            depth = 1 + max((arg.depth for arg in args), default=0)
            if depth > DEEPEST:
                raise OperatorError(f"an expression of more than {DEEPEST} operations inside one another",
                                    "it is too deep to be searched", "reduce over an axis instead of looping in Python")
            for slot, value in zip(cls.__slots__, (op, attrs, args, axes, depth, _states_of(op, args, attrs), ""), strict=False):
                object.__setattr__(found, slot, value)
            _interned[key] = found
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("expressions are immutable")

    def __reduce__(self) -> tuple:
        return Expr, (self.op, self.args, self.attrs)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise OperatorError(
            "a truth value of an expression",
            "its elements are known only when the operator is called, so Python's `if`, `and`, `or` cannot see them",
            "use ra.where(condition, a, b), & and |, or a `where=` mask",
        )

    def __iter__(self) -> Iterator:
        raise OperatorError(
            "iteration over an expression", "its axes are named, not indexed", "reduce over an axis by its name")

    def __add__(self, other): return call("add", self, other)
    def __radd__(self, other): return call("add", other, self)
    def __sub__(self, other): return call("subtract", self, other)
    def __rsub__(self, other): return call("subtract", other, self)
    def __mul__(self, other): return call("multiply", self, other)
    def __rmul__(self, other): return call("multiply", other, self)
    def __truediv__(self, other): return call("divide", self, other)
    def __rtruediv__(self, other): return call("divide", other, self)
    def __pow__(self, other): return call("power", self, other)
    def __rpow__(self, other): return call("power", other, self)
    def __mod__(self, other): return call("mod", self, other)
    def __rmod__(self, other): return call("mod", other, self)
    def __floordiv__(self, other): return call("floor_divide", self, other)
    def __rfloordiv__(self, other): return call("floor_divide", other, self)
    def __neg__(self): return call("negative", self)
    def __pos__(self): return self
    def __abs__(self): return call("abs", self)
    def __eq__(self, other): return call("equal", self, other)
    def __ne__(self, other): return call("not_equal", self, other)
    def __lt__(self, other): return call("less", self, other)
    def __le__(self, other): return call("less_equal", self, other)
    def __gt__(self, other): return call("greater", self, other)
    def __ge__(self, other): return call("greater_equal", self, other)
    def __and__(self, other): return call("logical_and", self, other)
    def __rand__(self, other): return call("logical_and", other, self)
    def __or__(self, other): return call("logical_or", self, other)
    def __ror__(self, other): return call("logical_or", other, self)
    def __invert__(self): return call("logical_not", self)

    @property
    def name(self) -> str:
        """The name of an input, parameter or symbol."""
        return self.attrs[0]

    @property
    def value(self) -> bool | int | float:
        """The number of a constant."""
        return self.attrs[0]

    @property
    def monoid(self) -> str:
        """The monoid of a reduction; that of a scan is the composition of its steps."""
        return "compose" if self.op == "scan" else self.attrs[0]

    @property
    def axis(self) -> str:
        """The axis that a reduction removes, or that an index or size speaks of."""
        return self.attrs[1] if self.op == "reduce" else self.attrs[0]

    @property
    def body(self) -> Expr:
        """What a reduction combines; of a scan, itself."""
        return self if self.op == "scan" else self.args[0]

    @property
    def count(self) -> Expr | None:
        """The k of a topk or argtopk reduction."""
        return self.args[-1] if self.op == "reduce" and self.attrs[2] else None

    @property
    def mask(self) -> Expr | None:
        """Which elements of a reduction take part (None: all)."""
        operands = () if self.op == "scan" else self.args[1:-1] if self.count is not None else self.args[1:]
        return operands[0] if operands else None

    def __repr__(self) -> str:
        if not self._text:
            printed = printer[0](self) if printer else f"Expr({self.op!r}, {self.args!r}, {self.attrs!r})"
            object.__setattr__(self, "_text", printed)
        return self._text


printer: list[Callable[[Expr], str]] = []
"""Filled by language.text, which prints expressions; kept here as one slot so that imports go one way."""


def _exact(value: object) -> tuple:
    """Tell 1, 1.0 and True, 0.0 and −0.0 apart: they are different terms.  All NaNs are one term."""
    if isinstance(value, float):
        return ("float", value.hex() if math.isfinite(value) else repr(value))
    return (type(value).__name__, value)


def _axes_of(op: str, args: tuple[Expr, ...], attrs: tuple) -> tuple[str, ...]:
    if op in ("input", "symbol", "state"):
        return attrs[1]
    if op == "scan":
        return _axes_of_scan(args, *attrs)
    if op == "index":
        return (attrs[0],)
    axes = dict.fromkeys(axis for arg in args for axis in arg.axes)
    if op == "reduce":
        monoid, axis, out = attrs
        axes.pop(axis, None)
        if out:
            axes[out] = None
    return tuple(axes)


def _axes_of_scan(args: tuple[Expr, ...], axis: str, names: tuple[str, ...], place: int, every: str) -> tuple[str, ...]:
    own = (args[place], args[len(names) + place])
    axes = dict.fromkeys(name for arg in own for name in arg.axes if name != axis)
    return (*axes, axis) if every else tuple(axes)


def const(value: Number) -> Expr:
    """A constant; NumPy scalars become the Python number they hold."""
    return Expr("const", (), (value.item() if hasattr(value, "item") else value,))


def lift(value: Expr | Number) -> Expr:
    """An expression as it is; a number as a constant.  Raises OperatorError for anything else."""
    if isinstance(value, Expr):
        return value
    number = value.item() if getattr(value, "shape", None) == () else value
    if isinstance(number, bool | int | float):
        return const(number)
    raise OperatorError(
        f"an expression built with {type(value).__name__}",
        f"{value!r:.60} is not an expression or a real number",
        "pass arrays as inputs of the operator and name their axes")


def call(name: str, *args: Expr | Number) -> Expr:
    """The elementwise function `name` of FUNCTIONS applied to `args`."""
    if name not in FUNCTIONS:
        raise undeclared("function", name)
    assert len(args) == FUNCTIONS[name].arity, (name, args)
    return Expr(name, tuple(map(lift, args)), (False,) if name == "round" else ())


def check_declared(*roots: Expr) -> None:
    """Raises OperatorError if a function or monoid in these terms is in no table, as when its declaration has ended."""
    for term in subterms(*roots):
        if term.op == "reduce" and term.monoid not in MONOIDS:
            raise undeclared("monoid", term.monoid)
        if term.op not in FUNCTIONS and term.op not in LEAVES and term.op not in ("reduce", "cast", "scan"):
            raise undeclared("function", term.op)


def symbol(name: str, axes: tuple[str, ...] = ()) -> Expr:
    """A named value that is bound when the expression is evaluated."""
    return Expr("symbol", (), (name, tuple(axes)))


def children_replaced(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    """`expr` with other operands."""
    return expr if args == () else Expr(expr.op, args, expr.attrs)


def substitute(expr: Expr, mapping: dict[Expr, Expr]) -> Expr:
    """`expr` with every occurrence of a key replaced by its value (outermost first, not repeated)."""
    return replaced(expr, mapping.get)


def replaced(expr: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """`expr` with its outermost parts of which `rule` makes something replaced by that; None leaves a part to its operands."""
    done: dict[Expr, Expr] = {}

    def walk(term: Expr) -> Expr:
        if term not in done:
            made = rule(term)
            done[term] = children_replaced(term, tuple(map(walk, term.args))) if made is None else made
        return done[term]

    return walk(expr)


def rewritten(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` with every term changed, operands before the terms that use them."""
    done: dict[Expr, Expr] = {}
    for term in subterms(expr):
        done[term] = change(children_replaced(term, tuple(done[arg] for arg in term.args)))
    return done[expr]


def subterms(*roots: Expr) -> list[Expr]:
    """Every distinct subterm of the roots once, operands before the terms that use them."""
    order: dict[Expr, None] = {}

    def walk(term: Expr) -> None:
        if term not in order:
            for arg in term.args:
                walk(arg)
            order[term] = None

    for root in roots:
        walk(root)
    return list(order)


def unbound_states(*roots: Expr) -> set[Expr]:
    """The states in these terms that belong to no scan among them."""
    return set().union(*map(_unbound, roots))


def _unbound(term: Expr) -> frozenset[Expr]:
    return frozenset((term,)) if term.op == "state" else term._states


def _states_of(op: str, args: tuple[Expr, ...], attrs: tuple) -> frozenset[Expr]:
    """The states in the operands of a term that belong to no scan, of which the term may be one."""
    number = len(attrs[1]) if op == "scan" else len(args)
    stepped = [state for arg in args[number:] for state in _unbound(arg) if state.name not in attrs[1]]
    return frozenset(stepped).union(*map(_unbound, args[:number]))
