"""An operator made ready for experiments: small axes, named coordinates of an element, and what is observed.

In: a cascade and what is assumed.  Out: a Problem, which turns lists of elements (prefix and suffixes, one number per
coordinate) into evaluations, and evaluations into observations and their exact derivatives.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from types import MappingProxyType

import numpy as np

from redfuser_algebra.algebra.functions import TOTAL_TWINS
from redfuser_algebra.discover.search import keeps_ever_more
from redfuser_algebra.language.binding import number_at
from redfuser_algebra.language.cascade import Cascade, Reduction
from redfuser_algebra.language.expr import Expr, const, rewritten, substitute, subterms
from redfuser_algebra.prove.refutation.evaluation import UNLIMITED, Effort, Evaluation, Setting
from redfuser_algebra.prove.refutation.gradient import evaluated, gradient
from redfuser_algebra.prove.refutation.numbers import RATIONAL, Field

ONE = const(1)
"""The factor that is none."""

Coordinate = tuple[str, tuple[int, ...]]
"""One number of an element: the input, and the place on its other axes."""

Elements = np.ndarray
"""Fractions, one row per element and one column per coordinate."""

_SMALL = 16
"""What is the same for all elements is taken so much smaller where steps follow one another: large weights make gates of them."""
_ORDER, _PER_ENTRY, _PER_REDUCTION = 24, 8, 3

_RATIONAL_OPS = {*RATIONAL.functions, "subtract", "multiply", "divide", "less", "less_equal", "greater", "greater_equal",
                 "equal", "not_equal", "logical_and", "logical_or", "logical_not", "where", "maximum", "minimum", "sign",
                 "abs", "floor", "ceil", "round", "cast", "floor_divide", "mod", "isnan", "reduce", "input", "param",
                 "const", "index", "size"}


@dataclass(frozen=True)
class Observation:
    """One number that the operator gives: an entry of an output; of a map, at an element of the suffix."""

    output: int
    place: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A cascade with the sizes of its other axes, the values of what does not vary along l, and its parameters.

    `behind`: the prefix comes last, after the elements that steer, as a part that is to be merged with what precedes it.
    `copies` are the inputs that hold the elements once more, each with the input that it copies and its own axis for them.
    Evaluations spend of the `effort`.
    """

    cascade: Cascade
    assume: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    sizes: dict[str, int]
    coordinates: tuple[Coordinate, ...]
    others: dict[str, tuple[tuple[str, ...], np.ndarray]]
    params: dict[str, Fraction]
    behind: bool = False
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)
    effort: Effort = UNLIMITED

    @cached_property
    def order(self) -> int:
        """How many independent observations are asked for.

        More than the 16 components that a fused form may have for a reduction, and more than what other axes and
        other reductions may add.
        """
        counted = self._of_states if self.behind else self.sizes.keys() - self.growing.keys()
        entries = int(np.prod([size for axis, size in self.sizes.items() if axis in counted], dtype=int))
        return max(_ORDER, _PER_ENTRY * entries,
                   _PER_REDUCTION * len(self.cascade.reductions))

    @cached_property
    def _of_states(self) -> set[str]:
        """The axes that states and results have."""
        scans = [term for term in subterms(*self.outputs) if term.op in ("scan", "state")]
        return {axis for term in (*scans, *(reduction.source for reduction in self.cascade.reductions)) for axis in term.axes}

    def within(self, effort: Effort) -> Problem:
        """The same problem, of which no more is computed than this."""
        return replace(self, effort=effort)

    def own(self, reduction: Reduction) -> Reduction:
        """The reduction of that name as this problem states it."""
        return {each.name: each for each in self.cascade.reductions}[reduction.name]

    @cached_property
    def entangled(self) -> bool:
        """Whether an array of its own has the axis of a copy, such as the matrix of a quadratic form: it grows with the elements, too."""
        own = {axis for _, axis in self.copies.values()}
        terms = subterms(*self.outputs, *self.assume)
        return any(term.op == "input" and term.name not in self.copies and own & {*term.axes} for term in terms)

    @property
    def axis(self) -> str:
        """The reduced axis."""
        return self.cascade.axis

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Every axis that a term has or removes."""
        return _axes_of((*self.outputs, *self.assume))

    @cached_property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """The inputs that vary along l, with their axes."""
        terms = subterms(*self.outputs, *self.assume)
        return {term.name: term.axes for term in terms if term.op == "input" and self.axis in term.axes}

    @cached_property
    def growing(self) -> dict[str, Expr]:
        """The axes that are longer the more elements there are, with their lengths: those of copies, and of top-k, inner ones first."""
        found = {own: Expr("size", (), (self.axis,)) for _, own in self.copies.values()}
        for term in subterms(*self.outputs):
            if term.count is not None and any(keeps_ever_more(term.count, axis) for axis in (self.axis, *found)):
                found[term.attrs[2]] = term.count
        return found

    @property
    def ranked(self) -> list[str]:
        """The axes of elements in order."""
        return [axis for axis in self.growing if axis not in dict(self.copies.values()).values()]

    @cached_property
    def rational(self) -> bool:
        """Whether every operation takes rationals to rationals."""
        return all(map(_is_rational, subterms(*self.outputs, *self.assume)))

    def evaluation(self, field: Field, prefix: Elements, suffixes: Sequence[Elements], side: int | None = None,
                   moving: Sequence[Coordinate] = (), moving_suffix: bool = False) -> Evaluation:
        """The operator after the prefix and each suffix (all of one length): one continuation each.

        The coordinates `moving` of the prefix move (all, if none is named).
        """
        length = len(prefix) + len(suffixes[0])
        arrays = {name: self._laid_out(field, name, prefix, suffixes) for name in self.inputs}
        moves = {name: np.zeros((1,) + arrays[name].shape[1:], bool) for name in self.inputs}
        along = slice(0, length) if moving_suffix else self.part(len(prefix), length)
        for name, place in moving or self.coordinates:
            moves[name][self._place(name, place, along)] = True
        for name, (axes, values) in self.others.items():
            arrays[name] = self._placed(axes, field.array(values))
            moves[name] = np.zeros(arrays[name].shape, bool)
        for name, (source, own) in self.copies.items():
            arrays[name], moves[name] = (self._turned(each[source], own) for each in (arrays, moves))
        starts = {axis: length - 1 for axis in self.axes if self.sizes.get(axis) == 1 and axis not in (self.axis, *self.growing)}
        sizes = {**self.sizes, self.axis: length}
        for axis, count in self.growing.items():
            sizes[axis] = int(number_at(count, sizes, self.params))
        setting = Setting(field, self.axes, sizes, arrays, moves, self.params, len(suffixes), starts, self.effort)
        return evaluated(setting, side)

    def _turned(self, array: np.ndarray, own: str) -> np.ndarray:
        """A laid-out array with its elements along the axis of a copy, or the other way round."""
        return np.swapaxes(array, 1 + self.axes.index(self.axis), 1 + self.axes.index(own))

    def part(self, count: int, length: int) -> slice:
        """Where the prefix is among all elements."""
        return slice(length - count, length) if self.behind else slice(0, count)

    def _place(self, name: str, place: tuple[int, ...], along: slice) -> tuple[slice | int, ...]:
        """Where a coordinate of some elements is in the laid-out array of its input."""
        own = [axis for axis in self.inputs[name] if axis != self.axis]
        where = dict(zip(own, place, strict=True))
        return (slice(None), *(along if axis == self.axis else where.get(axis, 0) for axis in self.axes))

    def _laid_out(self, field: Field, name: str, prefix: Elements, suffixes: Sequence[Elements]) -> np.ndarray:
        axes = self.inputs[name]
        own = tuple(axis for axis in axes if axis != self.axis)
        columns = [at for at, (owner, _) in enumerate(self.coordinates) if owner == name]
        shape = tuple(self.sizes[axis] for axis in own)
        after = field.array(np.stack([suffix[:, columns] for suffix in suffixes]))
        before = np.broadcast_to(field.array(prefix[:, columns]), (len(suffixes), *prefix[:, columns].shape))
        elements = np.concatenate([after, before] if self.behind else [before, after], axis=1).reshape(len(suffixes), -1, *shape)
        return self._placed((self.axis, *own), elements, batch=True)

    def _placed(self, axes: tuple[str, ...], values: np.ndarray, batch: bool = False) -> np.ndarray:
        values = values if batch else values[None]
        order = sorted(range(len(axes)), key=lambda at: self.axes.index(axes[at]))
        moved = np.transpose(values, (0, *(1 + at for at in order)))
        lengths = dict(zip(axes, values.shape[1:], strict=True))
        return moved.reshape(values.shape[0], *(lengths.get(axis, 1) for axis in self.axes))

    def holds(self, evaluation: Evaluation) -> np.ndarray:
        """For each continuation, whether every assumption holds for every element and no choice is a tie."""
        holds = np.ones(evaluation.setting.continuations, bool)
        for condition in self.assume:
            truth = evaluation.truth(condition)
            holds &= truth.reshape(truth.shape[0], -1).all(axis=1)
        return holds & ~evaluation.spoiled

    def observations(self, suffix_length: int, of: Expr) -> list[Observation]:
        """The entries of outputs that depend on the term `of`."""
        seen = []
        for at, output in enumerate(self.outputs):
            if of in dict.fromkeys(subterms(output)):
                own = [axis for axis in self.axes if axis in output.axes]
                spans = [range(-suffix_length, 0) if axis == self.axis else
                         [self.order] if axis in self.growing else range(self.sizes[axis]) for axis in own]
                seen += [Observation(at, place) for place in product(*spans)]
        return seen

    def entry(self, evaluation: Evaluation, seen: Observation) -> tuple[slice | int, ...]:
        """Where an observation is in the laid-out array of its output."""
        output = self.outputs[seen.output]
        places = dict(zip([axis for axis in self.axes if axis in output.axes], seen.place, strict=True))
        shape = evaluation.number(output).value.shape
        return (slice(None), *(places.get(axis, 0) % n for axis, n in zip(self.axes, shape[1:], strict=True)))

    def observed(self, evaluation: Evaluation, seen: Observation) -> np.ndarray:
        """The observation in every continuation."""
        value = evaluation.number(self.outputs[seen.output]).value[self.entry(evaluation, seen)]
        return np.broadcast_to(value, (evaluation.setting.continuations,))

    def slopes(self, evaluation: Evaluation, seen: Observation) -> np.ndarray:
        """∂ observation / ∂ each coordinate of each element: continuations × elements × coordinates."""
        output = self.outputs[seen.output]
        node = evaluation.number(output)
        seed = np.full((evaluation.setting.continuations, *node.value.shape[1:]), evaluation.zero, object)
        seed[self.entry(evaluation, seen)] = evaluation.one
        return self.by_coordinate(evaluation, gradient(evaluation, [(output, seed)]))

    def by_coordinate(self, evaluation: Evaluation, found: dict[str, np.ndarray]) -> np.ndarray:
        """Derivatives by input as one array: continuations × elements × coordinates."""
        setting = evaluation.setting
        result = np.full((setting.continuations, setting.sizes[self.axis], len(self.coordinates)), evaluation.zero, object)
        for copy, (source, own) in self.copies.items():
            if copy in found:
                turned = self._turned(found[copy], own)
                found = found | {source: found[source] + turned if source in found else turned}
        for at, (name, place) in enumerate(self.coordinates):
            if name in found:
                result[:, :, at] = found[name][self._place(name, place, slice(None))]
        return result


def posed(cascade: Cascade, assume: tuple[Expr, ...], given: Mapping[str, Fraction] | None = None, behind: bool = False,
          again: Mapping[str, str] = MappingProxyType({})) -> Problem:
    """The problem of a cascade, with axes as short as its formulas allow.

    `given` are values of parameters; others are 1/2, or 2 if they count.  A rounding that may be regrouped
    (`reassociate=True`) is left out: what it would refuse, the user has allowed.  Where parts are to merge (`behind`), a map
    stands for the states that it goes on from.  `again` says which inputs are another one once more.
    """
    reductions = [_regrouped(reduction) for reduction in cascade.reductions]
    results = {reduction.symbol: _factored(reduction.source, cascade.axis) for reduction in reductions}
    cascade = replace(cascade, reductions=tuple(_without_factors(reduction, cascade.axis) for reduction in reductions))
    seen = tuple(reduction.symbol for reduction in cascade.reductions) if behind and cascade.maps else cascade.outputs
    outputs = tuple(substitute(_unrounded(output), results) for output in seen)
    terms = subterms(*outputs, *assume)
    sizes = {axis: _length(axis, cascade, terms) for axis in _axes_of((*outputs, *assume)) if axis != cascade.axis}
    inputs = {term.name: term.axes for term in terms if term.op == "input"}
    copies = copies_of(inputs, again, cascade)
    coordinates, others = [], {}
    for name, axes in inputs.items():
        if name in copies:
            continue
        shape = [sizes[axis] for axis in axes if axis != cascade.axis]
        if cascade.axis in axes:
            coordinates += [(name, place) for place in np.ndindex(*shape)]
        else:
            others[name] = axes, _spread(shape) / (_SMALL if behind else 1)
    params = {term.name: (given or {}).get(term.name, Fraction(2) if _counts(term, terms) else Fraction(1, 2))
              for term in terms if term.op == "param"}
    return Problem(cascade, assume, outputs, sizes, tuple(coordinates), others, params, behind, copies)


def copies_of(inputs: Mapping[str, tuple[str, ...]], again: Mapping[str, str], cascade: Cascade) -> dict[str, tuple[str, str]]:
    """The inputs that hold the elements of another one once more along an axis that no output keeps: that one, and the axis."""
    first = {again.get(name, name): name for name, axes in inputs.items() if cascade.axis in axes}
    found = {}
    for name, axes in inputs.items():
        source = first.get(again.get(name, name), name)
        own = [axis for axis in axes if axis not in inputs[source]]
        if len(own) == 1 and cascade.axis not in axes and not any(own[0] in output.axes for output in cascade.outputs):
            found[name] = source, own[0]
    return found


def _regrouped(reduction: Reduction) -> Reduction:
    body, mask, count = (None if part is None else _unrounded(part)
                         for part in (reduction.body, reduction.mask, reduction.count))
    return Reduction(reduction.name, reduction.monoid, body, mask, count, _unrounded(reduction.source))


def _factored(expr: Expr, axis: str) -> Expr:
    """An expression in which every sum over the axis has the factors before it that all its terms share."""
    def outside(term: Expr) -> Expr:
        if term.op != "reduce" or (term.monoid, term.axis) != ("sum", axis):
            return term
        varying, shared = _split(term.body, axis)
        return Expr("reduce", (varying, *term.args[1:]), term.attrs) * shared if shared is not ONE else term

    return rewritten(expr, outside)


def _without_factors(reduction: Reduction, axis: str) -> Reduction:
    """The sum that is left of a reduction; others are as they were, with such sums inside."""
    source = _factored(reduction.source, axis)
    if reduction.monoid != "sum":
        return replace(reduction, source=source)
    kept = next(term for term in (source, *source.args) if term.op == "reduce")
    return replace(reduction, body=_split(reduction.body, axis)[0], source=kept)


def _split(term: Expr, axis: str) -> tuple[Expr, Expr]:
    """The factor of a term that varies along the axis, and the one that does not."""
    if axis not in term.axes:
        return ONE, term
    if term.op == "negative":
        varying, shared = _split(term.args[0], axis)
        return -varying, shared
    if term.op not in ("multiply", "divide"):
        return term, ONE
    (first, before), (second, after) = (_split(arg, axis) for arg in term.args)
    joined = [a if b is ONE else b if a is ONE and term.op == "multiply" else Expr(term.op, (a, b)) for a, b in ((first, second), (before, after))]
    return joined[0], joined[1]


def _unrounded(expr: Expr) -> Expr:
    """An expression without the roundings that may be regrouped."""
    return rewritten(expr, lambda term: term.args[0] if term.op in ("round", "cast") and term.attrs[-1] else term)


def _spread(shape: list[int]) -> np.ndarray:
    """1, 3/2, 2, … for what does not vary along l."""
    values = [Fraction(2 + at, 2) for at in range(int(np.prod(shape, dtype=int)))]
    return np.array(values, object).reshape(shape)


def _counts(param: Expr, terms: list[Expr]) -> bool:
    return any(term.count is param for term in terms)


def _axes_of(terms: Sequence[Expr]) -> tuple[str, ...]:
    axes = {}
    for term in subterms(*terms):
        axes.update(dict.fromkeys(term.axes))
        if term.op in ("reduce", "index", "size"):
            axes[term.axis] = None
    return tuple(axes)


def _length(axis: str, cascade: Cascade, terms: list[Expr]) -> int:
    """1 for an axis of the outputs, 2 for one that is reduced; more where an index or a top-k asks for it."""
    wanted = [1 if any(axis in output.axes for output in cascade.outputs) else 2]
    for term in terms:
        if term.op in ("equal", "less", "greater", "less_equal", "greater_equal") and term.args[0].op == "index":
            index, bound = term.args
            if index.axis == axis and bound.op == "const":
                wanted.append(int(bound.value) + 1)
        if term.count is not None and axis in (term.axis, term.attrs[2]):
            wanted.append(int(term.count.value) if term.count.op == "const" else 2 if term.count.op == "param" else 1)
    return max(wanted)


def _is_rational(term: Expr) -> bool:
    if term.op == "const":
        return isinstance(term.value, bool) or abs(term.value) < float("inf")
    if term.op == "power":
        exponent = term.args[1]
        return exponent.op == "const" and exponent.value == int(exponent.value)
    if term.op == "reduce" and term.mask is not None and term.monoid not in ("sum", "prod", "any", "all"):
        return False
    return TOTAL_TWINS.get(term.op, term.op) in _RATIONAL_OPS

