"""Values that a graph makes from lengths alone: ranges, masks, zeros.

In: a node.  Out: its value for the example's lengths, and for others, as arrays.
"""
from __future__ import annotations

from functools import cache
from operator import getitem

import numpy as np

from redfuser_algebra.language.aten.capture import Captured, hint, is_open

ROOM = 1 << 24
"""Larger arrays are not made to be looked at."""


@cache
def from_lengths(graph: Captured, node: object) -> bool:
    """Whether a value depends on lengths alone."""
    if node.op != "call_function":
        return False
    return _asks_length(node) or all(from_lengths(graph, each) for each in node.all_input_nodes)


def _asks_length(node: object) -> bool:
    return str(node.target) in ("aten.sym_size.int", "aten.sym_size.default")


def constants_of(graph: Captured, node: object) -> list[np.ndarray]:
    """The value for other lengths if it depends on symbols, last for the example's; none for what is no constant."""
    if not from_lengths(graph, node) or np.prod([float(length) for length in map(hint, node.meta["val"].shape)]) > ROOM:
        return []
    depends = any(is_open(length) for each in (node, *_made_of(node)) for length in _lengths(each))
    return [_evaluated(node, more).detach().numpy() for more in ((3, 0) if depends else (0,))]


def _lengths(node: object) -> tuple:
    value = node.meta.get("val")
    return tuple(value.shape) if hasattr(value, "shape") else (value,)


def _made_of(node: object) -> set:
    return {each for operand in node.all_input_nodes for each in (operand, *(() if _asks_length(operand) else _made_of(operand)))}


def _evaluated(node: object, more: int) -> object:
    """A node's value where every symbol is longer by `more`."""
    if _asks_length(node):
        return hint(node.meta["val"]) + (more if is_open(node.meta["val"]) else 0)
    given = lambda value: _evaluated(value, more) if hasattr(value, "all_input_nodes") else value
    args = [[*map(given, each)] if isinstance(each, list | tuple) else given(each) for each in node.args]
    kwargs = {key: given(each) for key, each in node.kwargs.items()}
    return args[0][args[1]] if node.target is getitem else node.target(*args, **kwargs)
