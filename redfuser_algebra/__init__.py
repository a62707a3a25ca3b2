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

from importlib import import_module

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
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    functions = import_module(f"{__name__}.language.functions")
    return sorted({*_HOME, *functions.__all__})
