"""Attention whose heads share keys, as attention with a dimension for the heads of each group.

In: an exported program.  Out: the same program, in which `enable_gqa` no longer occurs: the axis of the heads is cut in two, by
views of torch, so that what is left is attention over named axes.
"""
from __future__ import annotations

from types import ModuleType

HEADS = -3
"""Where the heads are: (…, heads, positions, features)."""


def grouped(torch: ModuleType, program: object) -> object:
    """The program with a dimension for the heads of each group."""
    for node in list(program.graph.nodes):
        if node.target is torch.ops.aten.scaled_dot_product_attention.default and node.kwargs.get("enable_gqa"):
            with program.graph.inserting_before(node):
                _rewrite(torch.ops.aten, program.graph, node)
    program.graph.lint()
    return program


def _rewrite(aten: object, graph: object, node: object) -> None:
    query, key, value, *rest = node.args
    groups = int(key.meta["val"].shape[HEADS])
    within = int(query.meta["val"].shape[HEADS]) // groups

    def called(target: object, *args: object, **options: object) -> object:
        made = graph.call_function(target, args, options)
        made.meta = dict(node.meta)
        if not options:
            made.meta["val"] = target(*(each.meta["val"] if hasattr(each, "meta") else each for each in args))
        return made

    def spread(array: object) -> object:
        """A dimension for the heads of a group: cut from that of all heads, or of length one."""
        shape = array.meta["val"].shape
        if len(shape) < -HEADS:
            return array
        return called(aten.unflatten.int, array, HEADS, [groups, within]) if shape[HEADS] == groups * within else called(aten.unsqueeze.default, array, HEADS)

    options = {name: spread(each) if name == "attn_mask" and each is not None else each for name, each in node.kwargs.items() if name != "enable_gqa"}
    mask = [spread(each) if hasattr(each, "meta") else each for each in rest]
    arrays = called(aten.unflatten.int, query, HEADS, [groups, within]), *(called(aten.unsqueeze.default, each, HEADS) for each in (key, value))
    result = called(aten.scaled_dot_product_attention.default, *arrays, *mask, **({"scale": None} | options))
    result.meta["val"] = aten.unflatten.int(node.meta["val"], HEADS, [groups, within])
    node.replace_all_uses_with(called(aten.flatten.using_ints, result, HEADS - 1, HEADS))
    graph.erase_node(node)
