"""redfuser_algebra: write a cascaded reduction as mathematics; learn whether it runs in one pass, and run it so.

>>> import redfuser_algebra as ra
>>> @ra.operator
... def logsumexp(x: "l"):
...     m = ra.max(x, "l")
...     return m + ra.log(ra.sum(ra.exp(x - m), "l"))
>>> float(ra.fuse(logsumexp)([0.0, 0.0]))  # log 2
0.6931471805599453
"""
from __future__ import annotations

import difflib
from importlib import import_module
from importlib.util import find_spec

_HOME = {
    "operator": "language.operator", "Operator": "language.operator",
    "OperatorError": "language.errors", "RedfuserError": "language.errors",
    "trace": "language.numpy_trace", "from_torch": "torch_graph", "TorchGraph": "torch_graph",
    "parse": "language.formula", "parse_operator": "language.definitions",
    "scan": "language.recurrence", "cumulative": "language.recurrence", "previous": "language.recurrence",
    "cascades": "language.cascade",
    "fuse": "fused", "decide": "fused", "Fused": "fused", "Verdict": "fused", "NotFusable": "fused",
    "Limits": "discover.egraph", "FusedForm": "discover.form", "Refusal": "discover.refusal",
    "operators": "catalogue", "explore": "explorer.app",
    "Monoid": "prove.declarations", "function": "prove.declarations", "forget": "prove.declarations",
    "FalseDeclaration": "prove.declaring.testing", "declarations": "algebra.registry",
    "LAWS": "algebra.laws", "MONOIDS": "algebra.monoids", "FUNCTIONS": "algebra.functions",
}

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    module = import_module(f"{__name__}.{_HOME.get(name, 'language.functions')}")
    if name not in _HOME and name not in module.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def _hint(name: str) -> str:
    """Where to look for a name that is neither here nor a module: the catalogue, `cumulative`, or a similar name."""
    if name.startswith("_") or find_spec(f"{__name__}.{name}"):
        return ""
    if name.removeprefix("cum") in ("sum", "prod", "max", "min"):
        return f'; write ra.cumulative(ra.{name.removeprefix("cum")}, x, "l")'
    if name in import_module(f"{__name__}.catalogue").operators:
        return f'; the catalogue has it: ra.operators["{name}"], which other operators may call'
    near = difflib.get_close_matches(name, __dir__(), 1)
    return f"; did you mean ra.{near[0]}?" if near else ""


def __dir__() -> list[str]:
    functions = import_module(f"{__name__}.language.functions")
    return sorted({*_HOME, *functions.__all__})
