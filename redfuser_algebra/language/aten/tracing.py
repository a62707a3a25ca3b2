"""A set of nodes of a graph as one operator.

In: nodes, in order, and those whose values are asked for.  Out: the operator, and which nodes' values its inputs,
parameters and outputs are.  Axes are told apart by what meets what: each use of a value from outside gets axes of its own,
and axes that meet are one in the next round.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np

from redfuser_algebra.language.aten.capture import Captured
from redfuser_algebra.language.aten.constants import constants_of
from redfuser_algebra.language.aten.meaning import Shapes, meaning, shape_of
from redfuser_algebra.language.cascade import MAIN, cascades, primary
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.numpy_trace import ROUNDS, joined
from redfuser_algebra.language.operator import Operator, define, is_name
from redfuser_algebra.language.tracing.alignment import with_copies
from redfuser_algebra.language.tracing.array import Traced
from redfuser_algebra.language.tracing.constants import read
from redfuser_algebra.language.tracing.lengths import Dim, current
from redfuser_algebra.language.tracing.place import refused

AXIS_NAMES = "bmndkjiefghopqrstuvwxyz"


@dataclass(frozen=True)
class Section:
    """Nodes as an operator; `inputs`, `params` and `outputs` say which nodes' values its own are, `dims` their dimensions."""

    operator: Operator
    inputs: dict[str, object]
    params: dict[str, object]
    outputs: tuple
    dims: dict[object, tuple[Dim, ...]]


class Walk:
    """One round: every node's value, with the axes that met so far."""

    def __init__(self, graph: Captured, nodes: Sequence, same: dict[str, str]) -> None:
        self.graph, self.axes = graph, Shapes({}, inferred=True, same=same)
        self.inside, self.values = set(nodes), {}
        self.outside: dict[object, Traced] = {}
        self.inputs: dict[str, tuple[object, tuple[str, ...]]] = {}
        self.params: dict[str, object] = {}
        self.constants: dict[object, object] = {}

    def run(self, nodes: Sequence) -> None:
        """Trace nodes in their order; `values` holds what they are."""
        token = current.set(self.axes)
        try:
            with np.errstate(all="ignore"):
                for node in nodes:
                    self.values[node] = meaning(node, self._given(node.args), self._given(node.kwargs))
        finally:
            current.reset(token)

    def exprs(self, nodes: Iterable | None = None) -> list[Expr]:
        """The expressions of some nodes' values, or of all."""
        return [value.expr for node in (self.values if nodes is None else nodes) for value in parts_of(self.values[node])]

    def _given(self, value: object) -> object:
        if isinstance(value, dict):
            return {key: self._given(each) for key, each in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(map(self._given, value)) if type(value) in (tuple, list) else [self._given(each) for each in value]
        return self._operand(value) if hasattr(value, "op") and hasattr(value, "users") else value

    def _operand(self, node: object) -> object:
        if node in self.inside:
            return self.values[node]
        value = node.meta.get("val")
        if not hasattr(value, "shape"):
            if isinstance(value, tuple | list) or value is None:
                raise refused("several values from outside of a part", "only arrays go in", "torch runs it")
            return self._parameter(node)
        if node not in self.outside:
            found = self._constant(node)
            self.outside[node] = self._input(node) if found is None else found
        return self.outside[node]

    def _parameter(self, node: object) -> Traced:
        name = next(name for name in self._names(node) if self.params.get(name, node) is node and name not in self.inputs)
        self.params[name] = node
        return Traced(Expr("param", (), (name,)))

    def _names(self, node: object) -> Iterator[str]:
        """What the value of a node may be called; the first that is free is taken."""
        label = self.graph.label(node)
        return chain((label,), (f"{label}_{number}" for number in count(2)))

    def _constant(self, node: object) -> Traced | None:
        """What is made of lengths alone, as an expression of positions that holds for other lengths, too."""
        arrays = constants_of(self.graph, node)
        found = []
        for array in arrays:
            first = self.axes.made
            try:
                found.append(read(array))
            except OperatorError:
                found.append(None)
            if len(found) < len(arrays):
                self.axes.made = first
        return Traced(*found[0]) if found and all(each is not None and each[0] is found[0][0] for each in found) else None

    def _input(self, node: object) -> Traced:
        dims = self.axes.dims_of(shape_of(node), "")
        axes = tuple(axis for dim in dims for axis in dim)
        name = next(name for name in self._names(node) if name not in self.inputs and name not in self.params)
        self.inputs[name] = node, axes
        array = Traced(Expr("input", (), (name, axes)), dims)
        dtype = str(node.meta["val"].dtype).removeprefix("torch.")
        array.dtype = np.dtype(dtype if dtype in ("bool", "int64", "int32") else "float64")
        return array


def walked(graph: Captured, nodes: Sequence) -> Walk:
    """The values of some nodes.  Raises OperatorError where they have none over named axes."""
    same: dict[str, str] = {}
    for _ in range(ROUNDS):
        walk = Walk(graph, nodes, same)
        walk.run(nodes)
        if not walk.axes.unions:
            return walk
        same = joined([f"a{n}" for n in range(walk.axes.made)], walk.axes.unions, same)
    raise refused("a part of a graph", f"axes still meet after {ROUNDS} rounds", "torch runs it")


def section(walk: Walk, outputs: Sequence, name: str) -> Section:
    """The operator of nodes that were walked.  Raises OperatorError for outputs that no operator has."""
    arrays = [walk.values[node] for node in outputs]
    order = ", ".join(" ".join(axis for dim in array.dims for axis in dim) for array in arrays)
    known = {name: axes for name, (_, axes) in walk.inputs.items()}
    exprs, declared, again = with_copies([array.expr for array in arrays], known)
    used = {term.name for term in subterms(*exprs) if term.op in ("input", "param")}
    inputs = {key: axes for key, axes in declared.items() if key in used}
    params = {key: node for key, node in walk.params.items() if key in used}
    operator = define(name, inputs, dict.fromkeys(params), tuple(exprs) if len(exprs) > 1 else exprs[0], order=order)
    return Section(with_letters(operator), {key: walk.inputs[again.get(key, key)][0] for key in inputs}, params,
                   tuple(outputs), {node: walk.values[node].dims for node in outputs})


def parts_of(value: object) -> Iterator[Traced]:
    """The arrays of a node's value: itself, or those of a tuple."""
    return (each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, Traced))


def is_result(value: object) -> bool:
    """Whether an operator can return a value: one array, which differs along each of its axes."""
    return isinstance(value, Traced) and all(len(dim) == 1 and dim[0] in value.expr.axes for dim in value.dims if dim)


def with_letters(operator: Operator) -> Operator:
    """The operator with one letter for each axis, `l` for the one that is swept."""
    taken = {*operator.inputs, *operator.params}
    free = (letter for letter in (*AXIS_NAMES, *(f"x{n}" for n in range(99))) if letter not in taken)
    found = cascades(operator)
    main = primary(found).axis if found and MAIN not in taken else None
    return operator.renamed(**{axis: MAIN if axis == main else next(free) for axis in operator.axes if is_name(axis)})
