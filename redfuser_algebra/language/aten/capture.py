"""torch.export captures a function or module as a graph of ATen operators.

In: a function of tensors or a module, and examples of its arguments.  Out: a `Captured` graph, in which lengths are
symbols wherever the examples allow it.  Torch is imported when this is used.
"""
from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import ModuleType

from redfuser_algebra.language.aten.heads import grouped
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.numpy_trace import excerpt_of
from redfuser_algebra.language.tracing.place import line_of

FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Captured:
    """An exported program: its graph, and what its nodes are called and where they come from."""

    torch: ModuleType
    program: object
    name: str

    @cached_property
    def nodes(self) -> tuple:
        """The nodes of the graph, operands before the nodes that use them."""
        return tuple(self.program.graph.nodes)

    @cached_property
    def paths(self) -> dict[str, str]:
        """By the name of its node, where in the module a parameter or buffer is."""
        return {spec.arg.name: spec.target for spec in self.program.graph_signature.input_specs if spec.target}

    def label(self, node: object) -> str:
        """What the value of a node is called: a parameter by the end of its path, a result by the operator that it is of."""
        path = self.paths.get(node.name)
        if path:
            return "_".join(part for part in path.split(".")[-2:] if part.isidentifier())
        return node.name if node.op == "placeholder" else named(node)

    def line(self, node: object) -> str:
        """The user's line that a node comes from; in modules of torch's own, where in the module it is; "" if neither is known."""
        frames = FRAME.findall(node.meta.get("stack_trace") or "")
        inside = [path for path, *_ in (node.meta.get("nn_module_stack") or {}).values() if path]
        return next(filter(None, (line_of(name, int(number)) for name, number in reversed(frames))), inside[-1] if inside else "")


def named(node: object) -> str:
    """The name of the operator that a node calls, without its overload: softmax for aten._softmax.default."""
    parts = str(node.target).split(".")
    return parts[1].strip("_") if len(parts) > 1 and parts[0] == "aten" else getattr(node.target, "__name__", str(node.target))


def hint(number: object) -> int | float:
    """A number, or the number that a symbol has in the example."""
    return number.node.hint if hasattr(number, "node") else number


def is_open(number: object) -> bool:
    """Whether a graph leaves a length open; some of its symbols stand for one number."""
    return hasattr(number, "node") and not str(number).isdigit()


def captured(function: Callable, examples: tuple, named: Mapping[str, object]) -> Captured:
    """The graph of a function or module for examples of its arguments.

    Every length is a symbol where torch.export can keep it one, and the example's number elsewhere.  Raises OperatorError,
    with the line named, for code that cannot be exported.
    """
    torch = import_module("torch")
    module, name = _as_module(torch, function)
    kept = _exported(torch, module, examples, named, dynamic=True)
    if isinstance(kept, Exception):
        kept = _exported(torch, module, examples, named, dynamic=False)
    if isinstance(kept, Exception):
        raise OperatorError(f"a graph of {name}", f"torch.export refuses it: {kept}".partition("\n")[0],
                            "see the line; branches on elements and data-dependent shapes cannot be exported", excerpt_of(kept)) from kept
    return Captured(torch, grouped(torch, kept), name)


def _as_module(torch: ModuleType, function: Callable) -> tuple[object, str]:
    if isinstance(function, torch.nn.Module):
        return function, type(function).__name__.lower()
    module = torch.nn.Module()
    module.forward = function
    name = getattr(function, "__name__", "")
    return module, name if name.isidentifier() else "graph"


def _exported(torch: ModuleType, module: object, examples: tuple, named: Mapping[str, object], dynamic: bool) -> object:
    """The exported program, or the error that export ended with."""
    shapes = None
    if dynamic:
        names = [*inspect.signature(module.forward).parameters][:len(examples)]
        auto = torch.export.Dim.AUTO
        free = lambda value: {at: auto for at, length in enumerate(value.shape) if length != 1} if isinstance(value, torch.Tensor) else None
        shapes = {key: free(value) for key, value in (dict(zip(names, examples, strict=False)) | dict(named)).items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(module, tuple(examples), dict(named), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        return error
