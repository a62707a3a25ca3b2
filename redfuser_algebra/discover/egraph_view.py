"""An e-graph to look at: the terms in it, named as people write them, for egglog's own visualiser.

In: an e-graph as egglog serialises it, and the names of its leaves.  Out: the same as JSON, without what the rules only
use for bookkeeping; a product is one node above its factors.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_NUMBER = re.compile(r"(-?\d+), denom: (\d+)")
_LITERALS = ("String-", "Rational-", "i64-")
_TERMS = ("T-", "Factor-")

Nodes = dict[str, dict[str, Any]]


def seen(serialized: str, names: Mapping[str, str]) -> str:
    """The terms of a serialised e-graph as JSON; `names` says what each leaf stands for."""
    nodes: Nodes = json.loads(serialized)["nodes"]
    terms = {key: node for key, node in nodes.items() if node["eclass"].startswith(_TERMS) and node["op"] != "Of"}
    parts = {key: list(_parts(node, nodes)) for key, node in terms.items()}
    labels = {key: _label(node, nodes, names) for key, node in terms.items()}
    classes = {key: node["eclass"] for key, node in terms.items()}
    for key in [key for key in terms if labels[key] == "×" and len(parts[key]) == 1]:  # a product of one factor is that factor
        (factor,) = parts.pop(key)
        if terms[factor]["op"] == "Leaf":
            classes[factor] = classes[key]
    kept = dict.fromkeys((classes[key], labels[key], *(classes[part] for part in found)) for key, found in parts.items())
    first: dict[str, str] = {}
    for number, (eclass, *_) in enumerate(kept):
        first.setdefault(eclass, str(number))
    shown = {str(number): {"op": label, "eclass": eclass, "children": [first[part] for part in found], "cost": 1.0, "subsumed": False}
             for number, (eclass, label, *found) in enumerate(kept)}
    return json.dumps({"nodes": shown, "root_eclasses": [], "class_data": {}})


def viewer(graph: str) -> Any:
    """egglog's widget, which shows one e-graph; setting its `egraphs` to [another] shows that."""
    from egglog.visualizer_widget import VisualizerWidget

    return VisualizerWidget(egraphs=[graph])


def _parts(node: Mapping[str, Any], nodes: Nodes) -> Iterator[str]:
    """What a node is made of: bags are replaced by the factors in them, wrapped terms by themselves."""
    for child in node["children"]:
        part = nodes[child]
        if part["eclass"].startswith("Bag-") or part["op"] == "Of":
            yield from _parts(part, nodes)
        elif part["eclass"].startswith(_TERMS):
            yield child


def _label(node: Mapping[str, Any], nodes: Nodes, names: Mapping[str, str]) -> str:
    """A node in letters: its operation, its number, the name of its leaf, or the reduction it is."""
    words = [nodes[child]["op"].strip('"') for child in node["children"] if nodes[child]["eclass"].startswith(_LITERALS)]
    match node["op"], words:
        case "Leaf", [leaf]:
            return names.get(leaf, leaf)
        case "Num" | "Term", [number]:
            above, below = _NUMBER.search(number).groups()
            value = above if below == "1" else f"{above}/{below}"
            return value if not any(_parts(node, nodes)) else "×" if value == "1" else f"{value} ×"
        case "Red" | "Kept", [monoid, *_]:
            return f"{monoid} {'that sees p′' if node['op'] == 'Red' else 'kept at p'}"
        case "Add" | "Mul", _:
            return {"Add": "+", "Mul": "×"}[node["op"]]
    return words[0] if words else node["op"]
