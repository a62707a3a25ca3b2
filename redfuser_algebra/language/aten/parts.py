"""A graph is cut into cascades: sets of nodes that reduce over one axis, and wait for each other.

In: a captured graph.  Out: its parts in the order they can run in, and why every other node is in none.  A node joins the
parts that its operands come from if together they are one operator with a single cascade; an elementwise node joins
wherever the language can hold it.  What is tried is traced, so the rules below are about expressions, never about names.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import getitem

from redfuser_algebra.language.aten.capture import Captured, named
from redfuser_algebra.language.aten.constants import from_lengths
from redfuser_algebra.language.aten.tracing import Section, Walk, is_result, section, walked
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.tracing.array import Traced

ALONE = "one reduction, which waits for no other"
ELEMENTWISE = "no reduction is next to it that it could run with"


@dataclass(eq=False)
class Group:
    """Nodes that have come together, with their values; `inner` holds the groups that became elements of this one."""

    nodes: frozenset
    walk: Walk
    inner: list[Group] = field(default_factory=list)

    @property
    def reductions(self) -> list[Expr]:
        """Every reduction once."""
        return _reductions(self.walk.exprs())


class Cutting:
    """The state of cutting a graph: which group each node is in, and why others are in none."""

    def __init__(self, graph: Captured) -> None:
        self.graph = graph
        self.place = {node: at for at, node in enumerate(graph.nodes)}
        self.group_of: dict[object, Group] = {}
        self.loose: set = set()
        self.reasons: dict[object, tuple[str, str]] = {}

    def run(self) -> None:
        """Put every node that computes into a group, or find out why it is in none."""
        for node in self.graph.nodes:
            if node.op == "call_function" and not from_lengths(self.graph, node) and _is_computed(node) and node not in self.group_of:
                self._placed(node)
        for group in self.groups():
            self._released(group)

    def groups(self) -> list[Group]:
        """Every group once, in the order of their first nodes."""
        return list(dict.fromkeys(self.group_of[node] for node in self.graph.nodes if node in self.group_of))

    def outputs(self, nodes: frozenset, walk: Walk) -> list:
        """The nodes that others read."""
        return [node for node in self._ordered(nodes)
                if isinstance(walk.values[node], Traced) and (not set(node.users) <= nodes or not node.users)]

    def _ordered(self, nodes: Iterable) -> list:
        return sorted(nodes, key=self.place.get)

    def _placed(self, node: object) -> None:
        unit = frozenset((node, *(user for user in node.users if user.target is getitem)))
        own = self._tried(unit, node)
        if own is None:
            return
        near = sorted({self.group_of[each] for each in node.all_input_nodes if each in self.group_of},
                      key=lambda group: max(map(self.place.get, group.nodes)), reverse=True)
        choices = [near] * (len(near) > 1) + [[group] for group in near]
        if not _reductions(own.exprs()):
            if not any(self._joined(unit, groups, elementwise=True) for groups in choices):
                self.loose |= unit
                self.reasons |= dict.fromkeys(unit, (ELEMENTWISE, ""))
            return
        unit |= self._before(unit)
        if not any(self._joined(unit, groups, elementwise=False) for groups in choices):
            self._grouped(unit, self._tried(unit), []) or self._grouped(frozenset(own.values), own, [])

    def _tried(self, nodes: Iterable, told: object = None) -> Walk | None:
        """The nodes traced together; None, with the reason kept for the node that was asked about."""
        try:
            return walked(self.graph, self._ordered(nodes))
        except OperatorError as error:
            if told is not None:
                self.reasons[told] = error.failed, error.asked
            return None

    def _before(self, unit: frozenset) -> frozenset:
        """The elementwise nodes that nothing but these nodes reads, directly or through one another."""
        found = set(unit)
        for node in reversed(self.graph.nodes[:max(map(self.place.get, unit))]):
            if node in self.loose and node not in found and set(node.users) <= found:
                found.add(node)
        return frozenset(found)

    def _joined(self, unit: frozenset, groups: list[Group], elementwise: bool) -> bool:
        nodes = unit.union(*(group.nodes for group in groups))
        together = None if self._circular(nodes) else self._tried(nodes)
        if together is None:
            return False
        inside = [each for group in groups for each in group.inner]
        if elementwise:
            fits = len(groups) == 1 or len({term.axis for term in _reductions(together.exprs())}) == 1
            return fits and self._grouped(nodes, together, inside)
        axis = _swept(unit, together)
        elements = [group for group in groups if axis not in {term.axis for term in _reductions(together.exprs(group.nodes))}]
        return axis is not None and self._grouped(nodes, together, elements + inside)

    def _grouped(self, nodes: frozenset, walk: Walk | None, inner: list[Group]) -> bool:
        if walk is not None:
            self.group_of |= dict.fromkeys(nodes, Group(nodes, walk, inner))
            self.loose -= nodes
            for node in nodes:
                self.reasons.pop(node, None)
        return walk is not None

    def _circular(self, nodes: frozenset) -> bool:
        """Whether something outside depends on these nodes, and they on it."""
        last = max(map(self.place.get, nodes))
        todo = [user for node in nodes for user in node.users if user not in nodes]
        seen = set()
        while todo:
            node = todo.pop()
            if node in nodes:
                return True
            group = self.group_of.get(node)
            whole = {node} if group is None or group.nodes & nodes else group.nodes
            if node in seen or group is None and self.place[node] > last:
                continue
            seen |= whole
            todo += [user for each in whole for user in each.users if user not in seen]
        return False

    def _released(self, group: Group) -> None:
        """Elements that are results as well were no elements: they are computed before, as groups of their own."""
        for inner in group.inner:
            terms = set(_reductions(group.walk.exprs(inner.nodes)))
            if _seen_outside(terms, group.walk.exprs(self.outputs(group.nodes, group.walk))):
                rest = self._with_tails(group.nodes - inner.nodes, inner)
                walk, own = self._tried(rest), self._tried(inner.nodes - rest)
                if walk is not None and own is not None:
                    self._grouped(inner.nodes - rest, own, [])
                    self._grouped(rest, walk, [])
                    group = self.group_of[next(iter(rest))]

    def _with_tails(self, nodes: frozenset, before: Group) -> frozenset:
        """These nodes, and those at the end of an earlier group that only they read and that read only what they read."""
        found = set(nodes)
        for node in reversed(self._ordered(before.nodes)):
            read = {operand for each in found for operand in each.all_input_nodes}
            if set(node.users) <= found and set(node.all_input_nodes) <= read and not self.reduces(node, before):
                found.add(node)
        return frozenset(found)

    def reduces(self, node: object, group: Group) -> bool:
        """Whether a node of a group has a reduction of its own."""
        operands = [each for each in node.all_input_nodes if each in group.nodes]
        return not set(_reductions(group.walk.exprs([node]))) <= set(_reductions(group.walk.exprs(operands)))

    def section(self, group: Group, name: str) -> tuple[frozenset, Section]:
        """A group as an operator, without the nodes at its end that no operator can return."""
        nodes, walk = group.nodes, group.walk
        while barred := [node for node in self.outputs(nodes, walk) if not is_result(walk.values[node])]:
            nodes = nodes.difference(barred)
            walk = walked(self.graph, self._ordered(nodes))
        return nodes, section(walk, self.outputs(nodes, walk), name)


def _is_computed(node: object) -> bool:
    value = node.meta.get("val")
    return hasattr(value, "shape") or isinstance(value, tuple | list)


def _reductions(values: Iterable[Expr]) -> list[Expr]:
    return [term for term in subterms(*values) if term.op in ("reduce", "scan")]


def _swept(unit: frozenset, walk: Walk) -> str | None:
    """The axis over which the reductions of these nodes make one cascade with the others; None if there is none."""
    terms = _reductions(walk.exprs())
    own = set(terms).difference(_reductions(walk.exprs(walk.values.keys() - unit)))
    for axis in dict.fromkeys(term.axis for term in terms if term in own):
        main = {term for term in terms if term.axis == axis}
        inside = set(subterms(*(part for term in main for part in term.args)))
        if all(_is_element(term, axis, inside) or term in own and _comes_after(term, main, inside) for term in terms if term.axis != axis):
            return axis
    return None


def _is_element(term: Expr, axis: str, inside: set[Expr]) -> bool:
    """Whether a reduction over another axis waits for none, and is part of the elements."""
    return term in inside and axis in term.axes and not _reductions(term.args)


def _comes_after(term: Expr, main: set[Expr], inside: set[Expr]) -> bool:
    return term not in inside and not main.isdisjoint(subterms(*term.args))


def _seen_outside(terms: set[Expr], outputs: Iterable[Expr]) -> bool:
    """Whether one of these reductions reaches an output other than through a reduction."""
    todo = list(outputs)
    while todo:
        term = todo.pop()
        if term in terms:
            return True
        todo += () if term.op in ("reduce", "scan") else term.args
    return False


@dataclass(frozen=True)
class Cut:
    """A graph in parts: `sections` by their nodes, why each other node that computes is in none, and the running order."""

    sections: dict[frozenset, Section]
    reasons: dict[object, tuple[str, str]]
    steps: tuple


def cut(graph: Captured) -> Cut:
    """The sets of nodes that hold several reductions, as operators."""
    cutting = Cutting(graph)
    cutting.run()
    sections: dict[frozenset, Section] = {}
    for group in cutting.groups():
        if _number(group.reductions) > 1:
            nodes, found = cutting.section(group, _name_of(group))
            sections[nodes] = found
        else:
            cutting.reasons |= {node: (ALONE if cutting.reduces(node, group) else ELEMENTWISE, "") for node in group.nodes}
    return Cut(sections, cutting.reasons, tuple(_in_order(graph, sections)))


def _number(reductions: list[Expr]) -> int:
    """How many reductions there are; one over several axes counts once."""
    inner = {term.args[0] for term in reductions if term.op == "reduce" and term.args[0].op == "reduce" and term.args[0].monoid == term.monoid}
    return len(set(reductions) - inner)


def _name_of(group: Group) -> str:
    """The operators of the graph that reduce, each once: layer_norm_linear."""
    seen: set[Expr] = set()
    names: dict[str, None] = {}
    for node in group.walk.values:
        fresh = set(_reductions(group.walk.exprs([node]))) - seen
        names |= dict.fromkeys([named(node)] if fresh and node.target is not getitem else [])
        seen |= fresh
    return "_".join(names)


def _in_order(graph: Captured, sets: Iterable[frozenset]) -> Iterator[object]:
    """The nodes that are in none of the sets, and the sets, each after those that its operands come from."""
    set_of = {node: nodes for nodes in sets for node in nodes}
    place = {node: at for at, node in enumerate(graph.nodes)}
    done: set = set()
    todo = list(reversed(graph.nodes))
    while todo:
        node = todo[-1]
        step = set_of.get(node, node)
        nodes = step if isinstance(step, frozenset) else (step,)
        waits = [operand for each in nodes for operand in each.all_input_nodes if operand not in nodes and set_of.get(operand, operand) not in done]
        if step in done or not waits:
            todo.pop()
            if step not in done:
                done.add(step)
                yield step
        else:
            todo += sorted(waits, key=place.get, reverse=True)
