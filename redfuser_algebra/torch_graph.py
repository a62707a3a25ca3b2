"""`ra.from_torch`: what is written with torch as an operator, or as a graph whose parts are fused one by one.

In: a function of tensors or a module, and examples of its arguments.  Out: an `Operator` if it is one, else a `TorchGraph`,
which shows its parts, runs with them in place, and compares each with torch.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module

import numpy as np

from redfuser_algebra.console import table_of
from redfuser_algebra.discover.show import columns
from redfuser_algebra.fused import Fused, Verdict, decide
from redfuser_algebra.language.aten.capture import Captured, captured, is_open, named
from redfuser_algebra.language.aten.meaning import shape_of
from redfuser_algebra.language.aten.parts import ALONE, ELEMENTWISE, Cut, cut
from redfuser_algebra.language.aten.tracing import Section
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.html import Fragment, folded, joined, table, titled
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.torch_trace import operator_from_torch

HEAD = ("part", "nodes", "axes", "verdict", "state", "where")
LEFT = ("left to torch", "nodes", "where")

decided = cache(decide)
"""The verdict on an operator; layers that repeat are decided once."""


@dataclass(frozen=True)
class Part:
    """Nodes of a graph that are one operator.  `verdict` and `fused` are found out when first asked for."""

    name: str
    inside: tuple
    section: Section
    line: str

    @property
    def nodes(self) -> tuple[str, ...]:
        """The operators of the graph that it covers."""
        return tuple(dict.fromkeys(map(named, self.inside)))

    @property
    def operator(self) -> Operator:
        """What the nodes compute, over named axes."""
        return self.section.operator

    @property
    def verdict(self) -> Verdict:
        """Whether one pass is enough."""
        return decided(self.operator)

    @property
    def fused(self) -> Fused | None:
        """The operator in one pass; None where it is refused, and torch runs the nodes."""
        return self.verdict.fused

    @property
    def row(self) -> tuple[str, ...]:
        """What a table says of it, under HEAD."""
        form = self.fused and self.fused.form
        said = f"{self.verdict.status} ({self.verdict.reason})" + (f": {self.verdict.refusal}".partition("\n")[0] if self.verdict.refusal else "")
        rows = [axis for axis in self.operator.axes if form is None or axis != form.axis]
        axes = f"{form.axis} for each {' '.join(rows)}" if form else " ".join(rows)
        return self.name, " ".join(self.nodes), axes, said, ", ".join(word.name for word in form.state) if form else "", self.line

    def __call__(self, values: dict) -> dict:
        """The tensors of its output nodes, computed by the fused form from those of its input nodes."""
        torch, section = import_module("torch"), self.section
        arrays = {name: _array(torch, values[node], node) for name, node in section.inputs.items()}
        params = {name: float(values[node]) for name, node in section.params.items()}
        results = self.fused(**arrays, **params)
        results = results if isinstance(results, tuple) else (results,)
        return {node: _tensor(torch, result, node, section.dims[node]) for node, result in zip(section.outputs, results, strict=True)}

    def __str__(self) -> str:
        return f"{self.operator}\n{self.row[3]}"

    __repr__ = __str__


def _array(torch: object, tensor: object, node: object) -> np.ndarray:
    """A tensor as NumPy sees it, without copying where it can; dimensions of length one have no axis."""
    tensor = tensor.detach().cpu()
    array = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return array[tuple(0 if length == 1 else slice(None) for length in shape_of(node))]


def _tensor(torch: object, result: object, node: object, dims: tuple) -> object:
    """A result as the tensor that the node would have had."""
    lengths = iter(np.shape(result))
    array = np.asarray(result).reshape([next(lengths) if dim else 1 for dim in dims])
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype=node.meta["val"].dtype, device=node.meta["val"].device)


class Differences(dict):
    """By part, and for the `whole`: the largest difference from torch, and the same next to torch's largest value."""

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """What a table says, a line each."""
        return [(name, f"{absolute:.1e}", f"{relative:.1e}") for name, (absolute, relative) in self.items()]

    def __str__(self) -> str:
        return "\n".join(columns([("part", "largest difference", "relative"), *self.rows]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table(("part", "largest difference", "relative"), self.rows)


@dataclass(frozen=True, eq=False)
class TorchGraph:
    """A graph of torch's in parts, each an operator with several reductions; everything else torch runs.

    `parts` are in running order.  It shows itself as a table: what fuses, over which axis, in which state, and why the
    rest is left to torch.
    """

    graph: Captured
    cut: Cut
    order: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the function or module."""
        return self.graph.name

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The operators found in the graph."""
        return tuple(self._part_of.values())

    @cached_property
    def _part_of(self) -> dict[frozenset, Part]:
        found: dict[frozenset, Part] = {}
        for step in self.cut.steps:
            if isinstance(step, frozenset):
                section = self.cut.sections[step]
                before = sum(part.operator.name == section.operator.name for part in found.values())
                inside = tuple(node for node in self.graph.nodes if node in step)
                lines = dict.fromkeys(filter(None, map(self.graph.line, inside)))
                found[step] = Part(section.operator.name + (f"_{before + 1}" if before else ""), inside, section,
                                   next(iter(lines), ""))
        return found

    @property
    def rest(self) -> list[tuple[str, str, str]]:
        """Why nodes are in no part, which, and a line of each; those that only move or join dimensions at the end."""
        grouped: dict[tuple[str, str], list] = {}
        for node in self.graph.nodes:
            if node in self.cut.reasons:
                why = self.cut.reasons[node][0]
                grouped.setdefault((why, "" if why in (ALONE, ELEMENTWISE) else self.graph.line(node)), []).append(node)
        return [(why, " ".join(dict.fromkeys(map(named, nodes))), line) for (why, line), nodes in grouped.items()]

    def run(self, *inputs: object, **given: object) -> object:
        """What the function returns, with every part that has a fused form computed by it.

        Tensors on the CPU are read where they are.  Raises OperatorError for inputs of other lengths than the graph holds for.
        """
        values = self._inputs(inputs, given)
        for step in self.cut.steps:
            self._compute(step, values, fused=True)
            for node in self._last_read.get(step, ()):
                values.pop(node, None)
        return self._result(values)

    def compare(self, *inputs: object, **given: object) -> Differences:
        """How far each fused part, given what torch computes before it, and the whole are from torch."""
        values = self._inputs(inputs, given)
        for step in self.cut.steps:
            self._compute(step, values, fused=False)
        flat = import_module("torch.utils._pytree").tree_leaves
        found = {part.name: [(tensor, values[node]) for node, tensor in part(values).items()] for part in self.parts if part.fused}
        found["whole"] = list(zip(*(filter(_is_tensor, flat(result)) for result in (self.run(*inputs, **given), self._result(values))), strict=True))
        return Differences({name: _difference(pairs) for name, pairs in found.items()})

    def _inputs(self, inputs: tuple, given: dict) -> dict:
        """The values of the nodes that stand for arguments, parameters and buffers."""
        program = self.graph.program
        named = {name: given[name] for name in self.order if name in given} | given
        flat, form = import_module("torch.utils._pytree").tree_flatten((inputs, named))
        if form != program.call_spec.in_spec:
            raise OperatorError(f"a run of {self.name}", "the inputs are not arranged as its examples were", "give them as from_torch got them")
        user, stored = iter(flat), {**program.constants, **program.state_dict}
        nodes = [node for node in self.graph.nodes if node.op == "placeholder"]
        values = {node: stored[spec.target] if spec.target else next(user)
                  for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True)}
        for node, value in values.items():
            _check_lengths(self.name, node, value)
        return values

    def _compute(self, step: object, values: dict, fused: bool) -> None:
        """The values of a node, or of the nodes of a part."""
        part = self._part_of[step] if isinstance(step, frozenset) else None
        if fused and part is not None and part.fused:
            values |= part(values)
            return
        with import_module("torch").no_grad():
            for node in (step,) if part is None else part.inside:
                self._run_node(node, values)

    def _run_node(self, node: object, values: dict) -> None:
        """The value of a node, as torch computes it."""
        args, kwargs = import_module("torch.fx").node.map_arg((node.args, node.kwargs), values.get)
        if node.op == "call_function":
            values[node] = node.target(*args, **kwargs)
        elif node.op == "get_attr":
            values[node] = getattr(self.graph.program.graph_module, node.target)
        elif node.op == "output":
            values[node] = args[0]

    @cached_property
    def _last_read(self) -> dict[object, list]:
        """By step, the nodes that no later step reads."""
        last: dict[object, object] = {}
        for step in self.cut.steps:
            nodes = step if isinstance(step, frozenset) else (step,)
            last |= {operand: step for node in nodes for operand in node.all_input_nodes}
        found: dict[object, list] = {}
        for node, step in last.items():
            found.setdefault(step, []).append(node)
        return found

    def _result(self, values: dict) -> object:
        """What the function returned, in its structure."""
        program = self.graph.program
        returned = zip(values[self.graph.nodes[-1]], program.graph_signature.output_specs, strict=True)
        flat = [value for value, spec in returned if spec.kind.name == "USER_OUTPUT"]
        return import_module("torch.utils._pytree").tree_unflatten(flat, program.call_spec.out_spec)

    def __str__(self) -> str:
        tables = [columns([HEAD, *(part.row for part in self.parts)]), columns([LEFT, *self.rest])]
        return "\n\n".join([self.name, *map("\n".join, tables)])

    __repr__ = __str__

    def __rich_console__(self, console: object, options: object) -> Iterator[object]:
        yield self.name
        yield table_of(HEAD, [part.row for part in self.parts])
        yield table_of(LEFT, self.rest)

    def _repr_html_(self) -> Fragment:
        return joined(titled(self.name, table(HEAD, [part.row for part in self.parts])), folded("Left to torch", table(LEFT, self.rest)))


def _is_tensor(value: object) -> bool:
    return hasattr(value, "shape")


def _check_lengths(name: str, node: object, value: object) -> None:
    """Raises OperatorError where export has fixed a length and the value has another."""
    known, given = (tuple(getattr(each, "shape", ())) for each in (node.meta["val"], value))
    if len(known) != len(given) or any(not is_open(a) and a != b for a, b in zip(known, given, strict=True)):
        raise OperatorError(f"a run of {name} with {node.name} of shape {given}", f"the graph holds for {known}",
                            "give from_torch an example of these lengths")


def _difference(pairs: list[tuple]) -> tuple[float, float]:
    """The largest difference of pairs of tensors, and the same next to the largest value; the same infinities and NaN are equal."""
    absolute = relative = 0.0
    for got, want in pairs:
        got, want = (np.asarray(tensor.detach().cpu().double().numpy()) for tensor in (got, want))
        with np.errstate(invalid="ignore"):
            gap = np.where((got == want) | np.isnan(got) & np.isnan(want), 0.0, np.abs(got - want))
        gap = float(np.max(np.where(np.isnan(gap), np.inf, gap), initial=0.0))
        scale = float(np.max(np.abs(want), where=np.isfinite(want), initial=0.0))
        absolute, relative = max(absolute, gap), max(relative, gap / scale if scale else gap)
    return absolute, relative


def from_torch(function: Callable, /, *examples: object, name: str | None = None, assume: str = "", parts: bool | None = None,
               **given: object) -> Operator | TorchGraph:
    """The operator that a function written with torch, or a module, computes; or its graph in parts, if it is none.

    Arguments are examples (tensors or arrays, by position or name), the names of axes (`Q="m k"`), `float` for a parameter,
    or its default.  What a module reads of its own becomes inputs named by their paths, `norm.weight` as norm_weight.  What
    is no single operator is captured by torch.export, for which all examples must be tensors: see `TorchGraph`.
    `parts=True` asks for that in any case, `parts=False` for an operator or the reason why there is none.

    Raises OperatorError, with the line named, where there is neither, and where torch is not installed.
    """
    if parts:
        return _in_parts(function, examples, given)
    try:
        return operator_from_torch(function, *examples, name=name, assume=assume, **given)
    except OperatorError as error:
        shown = [hasattr(each, "__torch_function__") for each in (*examples, *given.values())]
        if parts is False or not shown or not all(shown):
            raise
        with suppress(OperatorError):
            found = _in_parts(function, examples, given)
            if found.parts:
                return found
        raise error


def _in_parts(function: Callable, examples: tuple, given: dict[str, object]) -> TorchGraph:
    graph = captured(function, examples, given)
    return TorchGraph(graph, cut(graph), tuple(given))
