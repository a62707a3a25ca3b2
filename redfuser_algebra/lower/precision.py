"""Which sums over a tile may be made in float32: where they err by a few roundings of what is summed, be its mean far off.

In: a tile program and which of its leaves are float32 numbers as stored.  Out: an answer per update.  A kernel adds
the sum of a tile to what it holds in float64, and makes it again in float64 where numbers left float32's range.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import stem, symbol_names
from redfuser_algebra.lower.tile import TileProgram, Update

_FACTORS = frozenset(("multiply", "divide", "negative", "abs", "sqrt", "reciprocal", "identity"))
"""Of operands that are off by a few roundings these make results that are."""
_LOGIC = frozenset(("logical_and", "logical_or", "logical_not", "isnan"))


@dataclass(frozen=True)
class Precision:
    """Answers about a program; `stored` says whether a leaf is a float32 number as it lies in memory, `moving` names
    what pivots are made of."""

    program: TileProgram
    stored: Callable[[Expr], bool]
    moving: set[str]

    def of_elements(self, update: Update) -> bool:
        """Whether a sum is of elements as they are stored: about a number near them it errs by roundings of their spread."""
        return update.monoid == "sum" and update.mask is None and self._exact(update.lift) and not self.program.columns(update.lift.axes)

    def in_single(self, update: Update) -> bool:
        """Whether float32 will do for an update of one number per row."""
        if self.program.columns(update.axes) or update.mask is not None and not self._decided(update.mask):
            return False
        if update.monoid in ("max", "min", "fmax", "fmin"):
            return self._exact(update.lift)
        if update.monoid in ("any", "all") or update.monoid == "sum" and update.lift.op in COMPARISONS | _LOGIC:
            return self._decided(update.lift)
        if self.of_elements(update):
            return update.name not in self.moving or update.name not in self._divisors
        return update.monoid == "sum" and update.name not in self.moving and self._close(_summed(update.lift)) and (
            self._is_centred(update.lift) or update.name not in self._cancelled)

    def _close(self, term: Expr) -> bool:
        """Whether a term is off by a few roundings of itself: it subtracts nothing that is rounded."""
        if not self._varies(term) or self._exact(term):
            return True
        if is_difference(term):
            return all(self._exact(arg) or not self._varies(arg) for arg in term.args)
        if term.op == "add":
            return all(map(self._exact, term.args)) or all(self._close(arg) and self._is_positive(arg) for arg in term.args)
        if term.op == "where":
            return self._decided(term.args[0]) and all(map(self._close, term.args[1:]))
        if term.op == "power":
            return self._close(term.args[0]) and term.args[1].op == "const" and term.args[1].value in (1, 2, 3, 4)
        return term.op in _FACTORS and all(map(self._close, term.args))

    def _decided(self, term: Expr) -> bool:
        """Whether a condition comes out as in float64: it compares numbers as they are stored."""
        if not self._varies(term):
            return True
        if term.op in _LOGIC:
            return all(self._decided(arg) or self._exact(arg) for arg in term.args)
        return term.op in COMPARISONS and all(self._exact(arg) or self._is_position(arg) or not self._varies(arg) for arg in term.args)

    def _is_position(self, term: Expr) -> bool:
        return term.op == "index"

    def _exact(self, term: Expr) -> bool:
        return term.op in ("input", "symbol") and self._varies(term) and self.stored(term)

    def _varies(self, term: Expr) -> bool:
        return self.program.axis in term.axes

    def _is_positive(self, term: Expr) -> bool:
        """Whether a term is never negative, from how it is written."""
        if term.op == "const":
            return term.value >= 0
        if term.op == "power":
            return term.args[1].op == "const" and term.args[1].value in (2, 4)
        if term.op == "symbol":
            return any(u.name == term.name and u.monoid == "sum" and self._is_positive(u.lift) for u in self.program.updates)
        return term.op in ("abs", "sqrt", "size") or term.op == "multiply" and term.args[0] is term.args[1] or (
            term.op in ("add", "multiply", "divide") and all(map(self._is_positive, term.args)))

    def _is_centred(self, lift: Expr) -> bool:
        """Whether a lift is about a pivot, so that its sum is of the size of the spread."""
        return any(is_difference(term) and self._varies(term) and symbol_names(term) for term in subterms(lift))

    @cached_property
    def _formulas(self) -> list[Expr]:
        return list(subterms(*self.program.outputs, *(value.value for value in self.program.values)))

    @cached_property
    def _divisors(self) -> set[str]:
        """Sums that others are divided by: their error is a share of the quotient, however large that is."""
        return self._behind(term.args[-1] for term in self._formulas if term.op in ("divide", "reciprocal"))

    @cached_property
    def _cancelled(self) -> set[str]:
        """Sums of which a formula makes a difference: what is left may be small next to them."""
        return self._behind(term for term in self._formulas if term.op in ("add", "subtract", "shift") and not self._is_positive(term))

    def _behind(self, terms: Iterable[Expr]) -> set[str]:
        """What terms are made of, through values."""
        formulas = {value.name: value.value for value in self.program.values}
        found, todo = set(), [stem(name) for name in symbol_names(*terms)]
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += [stem(each) for each in symbol_names(formulas.get(name))]
        return found


def is_difference(term: Expr) -> bool:
    """Whether a term is a − b and nothing else: a shift to an anchor, which is finite, is."""
    return term.op == "subtract" or term.op == "shift" and term.args[1].op == "anchor"


def _summed(lift: Expr) -> Expr:
    """What is summed in the end, where an element is itself a sum over columns."""
    return _summed(lift.body) if lift.op == "reduce" and lift.monoid == "sum" and lift.mask is None else lift
