"""An operator evaluated on numbers that cannot lie, for many continuations of one prefix at once.

In: a setting (axis lengths, positions, arrays) and terms.  Out: for each term its value and which entries are *fixed*,
that is, do not change when the moving inputs change a little.  The first dimension of every array is the
continuation; then come the axes.  A continuation at which some choice is a tie (so that the operator may jump or
have a kink there) is marked in `spoiled`.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce

import numpy as np

from redfuser_algebra.algebra.functions import TOTAL_TWINS
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.prove.refutation.numbers import OPEN, Field, entrywise, fraction


class Unsupported(Exception):
    """A term that has no value among these numbers."""


class Spent(Exception):
    """No effort is left."""


class Effort:
    """How much may still be computed, in entries of arrays: the same question gets the same answer on any machine."""

    def __init__(self, entries: float) -> None:
        self.left = entries

    def spend(self, entries: int) -> None:
        """Take note of what is about to be computed.  Raises Spent where it is more than is left."""
        self.left -= entries
        if self.left < 0:
            raise Spent


UNLIMITED = Effort(math.inf)
_CHEAP = 640
"""Bits of balls up to which an entry counts once."""
_LEAST = 32
"""What a term counts, however few its entries: so many take the time that an operation takes to begin."""


@dataclass(frozen=True)
class Setting:
    """What the terms are evaluated with.

    `arrays` and `moving` hold, per input, the laid-out numbers and which of them move; `starts` is the position of
    the first element of an axis.  Whatever is computed in the setting is spent of its `effort`.
    """

    field: Field
    axes: tuple[str, ...]
    sizes: Mapping[str, int]
    arrays: Mapping[str, np.ndarray]
    moving: Mapping[str, np.ndarray]
    params: Mapping[str, Fraction]
    continuations: int
    starts: Mapping[str, int] = field(default_factory=dict)
    effort: Effort = UNLIMITED

    @property
    def ndim(self) -> int:
        """The number of dimensions of every array."""
        return 1 + len(self.axes)

    def dim(self, axis: str) -> int:
        """The dimension of an axis."""
        return 1 + self.axes.index(axis)

    def spend(self, term: Expr) -> None:
        """Take note that a term, or its derivatives, are about to be computed in every continuation.  Raises Spent."""
        entries = self.continuations * max(math.prod(self.sizes[axis] for axis in part.axes) for part in (term, *term.args))
        self.effort.spend(max(entries, _LEAST) * (1 + self.field.bits // _CHEAP))


@dataclass(frozen=True)
class Node:
    """A value and which of its entries are fixed.  Truth values are bool, and fixed: choices are strict."""

    value: np.ndarray
    fixed: np.ndarray

    def stretched(self, dim: int, length: int) -> Node:
        """The node with `length` entries along a dimension.  Raises Unsupported where it has another number of them."""
        shape = list(self.value.shape)
        if shape[dim] not in (1, length):
            raise Unsupported(f"an axis of {shape[dim]} elements where another part has {length}")
        if shape[dim] == length and self.fixed.shape == self.value.shape:
            return self
        shape[dim] = length
        return Node(np.broadcast_to(self.value, shape), np.broadcast_to(self.fixed, shape))


@dataclass(frozen=True)
class Choice:
    """A choice that was open at some entries: it turns where Σ seed · term is 0, summed over each entry's seeds.

    Two choices with the same `compared` compare the same numbers, if they are open at the same entry.
    """

    compared: Hashable
    open: np.ndarray
    seeds: tuple[tuple[Expr, np.ndarray], ...]


class Evaluation:
    """The nodes of the terms asked for so far; `rules` say how each operation is evaluated.

    `picked` keeps what each choosing term chose, `passed` the evaluations of a scan's steps.  With `side` given (−1 or 1),
    open choices are answered with it and listed in `choices` instead of spoiling their continuation.
    """

    def __init__(self, setting: Setting, rules: Mapping[str, Callable[[Evaluation, Expr], Node]],
                 side: int | None = None, vanishes: Callable[[Evaluation, tuple], np.ndarray] | None = None) -> None:
        self.setting, self.field, self.side, self._rules, self._vanishes = setting, setting.field, side, rules, vanishes
        self.nodes: dict[Expr, Node] = {}
        self.picked: dict[Expr, np.ndarray] = {}
        self.passed: dict[Expr, tuple[Evaluation, ...]] = {}
        self.spoiled = np.zeros(setting.continuations, bool)
        self.choices: list[Choice] = []
        self.zero, self.one = (self.field.number(Fraction(value)) for value in (0, 1))

    def node(self, term: Expr) -> Node:
        """The value of a term.  Raises Unsupported and Spent."""
        if term not in self.nodes:
            self.setting.spend(term)
            self.nodes[term] = self._rules.get(term.op, Evaluation._function)(self, term)
        return self.nodes[term]

    def beside(self, nodes: Mapping[Expr, Node]) -> Evaluation:
        """An evaluation of its own in the same setting, in which some terms have these nodes."""
        made = Evaluation(self.setting, self._rules, self.side, self._vanishes)
        made.nodes.update(nodes)
        return made

    def number(self, term: Expr) -> Node:
        """The value of a term as numbers: truth counts as 1 and 0."""
        node = self.node(term)
        return node if node.value.dtype != bool else replace(node, value=np.where(node.value, self.one, self.zero))

    def truth(self, term: Expr) -> np.ndarray:
        """Whether a term is true; of a number, whether it is not 0."""
        node = self.node(term)
        if node.value.dtype == bool:
            return node.value
        return self.order(term, node, self.constant(0), (term,)) != 0

    def constant(self, value: object) -> Node:
        """A number that is the same everywhere."""
        filled = np.empty((1,) * self.setting.ndim, object)
        filled[...] = self._number_of(value)
        return Node(filled, np.ones(filled.shape, bool))

    def _number_of(self, value: object) -> object:
        if isinstance(value, float) and not abs(value) < np.inf:
            if value != value or not self.field.bits:
                raise Unsupported(f"{value} among {self.field.name} numbers")
            return self.field.number(value)
        return self.field.number(fraction(value))

    def _function(self, term: Expr) -> Node:
        name = TOTAL_TWINS.get(term.op, term.op)
        if name not in self.field.functions:
            raise Unsupported(f"{name} of {self.field.name} numbers")
        return self.applied(self.field.functions[name], [self.number(arg) for arg in term.args])

    def applied(self, function: Callable, nodes: list[Node]) -> Node:
        """A function of numbers, entry by entry.  Raises Unsupported where it has no value."""
        try:
            value = entrywise(function, len(nodes))(*(node.value for node in nodes))
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise Unsupported(str(error)) from error
        return Node(np.asarray(value, object), reduce(np.logical_and, (node.fixed for node in nodes)))

    def order(self, term: Expr, a: Node, b: Node, sides: tuple[Expr, ...]) -> np.ndarray:
        """−1, 0 or 1 for each pair; a pair that is not certainly one of them is open.

        Equal numbers are certainly equal if they are fixed, or one and the same number.
        """
        found = self.field.orders(a.value, b.value)
        undecided = (found == OPEN) | ((found == 0) & ~(a.fixed & b.fixed) & ~same(a.value, b.value))
        undecided &= ~self._always(undecided & (found == 0), sides)
        if undecided.any():
            seeds = self._seeds(undecided, sides)
            self.open(Choice(frozenset(sides) if len(sides) == 2 else term, undecided, seeds))
            found = np.where(undecided, self.side or 0, found)
        return found

    def _seeds(self, places: np.ndarray, sides: tuple[Expr, ...]) -> tuple[tuple[Expr, np.ndarray], ...]:
        return tuple((side, np.where(places, sign * self.one, self.zero)) for side, sign in zip(sides, (1, -1), strict=False))

    def _always(self, equal: np.ndarray, sides: tuple[Expr, ...]) -> np.ndarray:
        """Where equal rationals are equal for all numbers nearby; looked at if a continuation has one such pair at most."""
        here = equal.reshape(len(equal), -1)
        if self.field.bits or self._vanishes is None or not equal.any() or (here.sum(axis=1) > 1).any() or len(equal) < self.setting.continuations:
            return np.zeros(equal.shape, bool)
        return equal & self._vanishes(self, self._seeds(equal, sides)).reshape(-1, *[1] * (equal.ndim - 1))

    def open(self, choice: Choice) -> None:
        """Take note of a choice that cannot be made."""
        if self.side is None:
            self.spoiled |= choice.open.reshape(choice.open.shape[0], -1).any(axis=1)
        else:
            self.choices.append(choice)


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays hold one and the same number."""
    return np.asarray(entrywise(operator.is_, 2)(a, b)).astype(bool)
