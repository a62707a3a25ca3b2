"""One row of the catalogue: an operator in the front-door language with what is known about it.

Comes in: a function over named axes under `@entry(...)`.  Goes out: the traced Operator, and its Entry in ENTRIES.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from redfuser_algebra.catalogue.draws import Draw, alone, drawn
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.operator import operator as traced

REASONS = {
    "fusable": ("rank-1", "rank-R", "tropical-R", "monotone", "reset", "topk-payload", "no-pivot", "scan"),
    "partly": ("rounding", "conditional", "online-only", "approx-merge"),
    "not fusable": ("rounding", "unbounded-rank", "threshold", "envelope", "order-statistic", "pairwise",
                    "unbounded-state"),
}
"""Each verdict and the reasons there are for it."""

Inputs = Callable[[np.random.Generator, int], dict[str, np.ndarray | float]]
Result = np.ndarray | float | tuple


@dataclass(frozen=True)
class Entry:
    """An operator, where it comes from, its NumPy reference, how to draw inputs, and the verdict expected of it.

    `reference(**inputs(rng, L))` is the value for a reduced axis of length L in float64, written without this
    package; `draws` are those of its arrays that are drawn each by itself, at any shape.  `words` is the most state that
    one row may need, a GEMM accumulator or a vector counted as one; None where nobody has said.  `shortest` is the least L
    for which the operator is defined and well conditioned.
    """

    operator: Operator
    group: str
    source: str
    reference: Callable[..., Result]
    inputs: Inputs
    verdict: str
    reason: str
    words: int | None = None
    shortest: int = 1
    draws: Mapping[str, Draw] = field(default_factory=dict)


ENTRIES: dict[str, Entry] = {}
"""Every entry by the operator's name, in the order in which the modules of the catalogue state them."""


def entry(*, source: str, reference: Callable[..., Result], reason: str, verdict: str = "fusable",
          inputs: Mapping[str, Draw | float] | Inputs | None = None, words: int | None = None, shortest: int = 1,
          assume: str = "") -> Callable[[Callable], Operator]:
    """Trace the function below as an operator and enter it; its module names the group.

    `inputs` says how to draw the arrays that are not standard normal: {name: a Draw or a number}, or a function
    (rng, L) → {name: array} where arrays depend on one another.
    """
    assert reason in REASONS[verdict], (verdict, reason)

    def enter(function: Callable) -> Operator:
        operator = traced(function, assume=assume)
        assert operator.name not in ENTRIES, operator.name
        group = function.__module__.rpartition(".")[2]
        ENTRIES[operator.name] = Entry(
            operator, group, source, reference, drawn(operator, inputs or {}), verdict, reason, words, shortest,
            alone(operator, inputs or {}))
        return operator

    return enter
