"""The passes, in order.  Each takes what the one before it made; every stage can be printed.

trace → pairs → cascades → discover → refute → verdict → run
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from redfuser_algebra.discover.asking import Settings
from redfuser_algebra.discover.discovery import Discovery, discover
from redfuser_algebra.discover.pairs import alone
from redfuser_algebra.discover.refusal import refused_pairs
from redfuser_algebra.discover.verdict import status_and_reason
from redfuser_algebra.language.cascade import Cascade, cascade_over, cascades, paired, primary
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import check_declared
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.operator import operator as trace
from redfuser_algebra.prove.passes import passes
from redfuser_algebra.prove.refute import refute, refute_merge


@dataclass(frozen=True)
class Decision:
    """An operator after all passes: what was found for each of its cascades, and the verdict on the main one.

    Cascades over other axes run before it (inside its elements) or after it (on its results); each has its own
    discovery, and none changes whether the main axis can be swept once.  Sums over pairs of elements of one array are taken
    apart in `operator`, where they are of finite rank.
    """

    operator: Operator
    discoveries: tuple[Discovery, ...]
    main: Discovery
    status: str
    reason: str
    settings: Settings


def decide(operator: Operator | Callable, axis: str | None, settings: Settings) -> Decision:
    """Run every pass on an operator (or on a function that `operator` can trace).

    `axis` chooses which cascade the fused form is about; by default the deepest one.  Raises OperatorError for an
    operator without reductions, without reductions over `axis`, or with a word that is no longer declared.
    """
    if not callable(operator):
        raise OperatorError(f"fusing {operator!r:.60}", "it is no operator, nor a function that describes one",
                            f"read it with ra.parse_operator({operator!r:.40}), or take ra.operators[name]" if isinstance(operator, str)
                            else "write one with @ra.operator, or take one of the catalogue: ra.operators[\"softmax\"]")
    written = operator if isinstance(operator, Operator) else trace(operator)
    check_declared(*written.outputs, *written.assume)
    operator = written if axis and _meets_itself(written, axis) else alone(written) or written
    found = _cascades(operator, axis)
    discoveries = tuple(refuted(operator, _discovered(operator, cascade, settings), settings) for cascade in found)
    chosen = next(c for c in found if c.axis == axis) if axis else primary(found)
    main = next(discovery for discovery in discoveries if discovery.cascade is chosen)
    return Decision(operator, discoveries, main, *status_and_reason(main), settings)


def fuses(operator: Operator, axis: str, settings: Settings) -> bool:
    """Whether the search finds a form over an axis whose parts merge; what has none is not refuted."""
    cascade = cascade_over(axis, operator)
    form = _discovered(operator, cascade, settings).form if cascade.reductions else None
    return form is not None and form.merges


def _discovered(operator: Operator, cascade: Cascade, settings: Settings) -> Discovery:
    """What the search finds; over pairs of elements of one array it would find a form that holds for two."""
    found, pair = discover(cascade, operator.assume, settings), paired(operator, cascade.axis)
    return replace(found, form=None, refusal=refused_pairs(cascade, *pair)) if pair and found.form else found


def refuted(operator: Operator, found: Discovery, settings: Settings) -> Discovery:
    """A refusal with its witness, if there is one, and the passes that the operator needs; a form as it is.

    Where a form is online, what is refused is a merge.
    """
    refusal = found.refusal
    if refusal is None or refusal.exhausted:
        return found
    refuting = refute_merge if found.form else refute
    witness = refuting(found.cascade, operator.assume, refusal, params=operator.params, again=operator.again)
    needed = passes(found.cascade, operator.assume, settings)
    return replace(found, refusal=replace(refusal, witness=witness, passes=needed))


def _meets_itself(operator: Operator, axis: str) -> bool:
    """Whether an axis is that of elements once more, which all meet those of the axis that they are given on."""
    pair = paired(operator, axis)
    return pair is not None and axis not in operator.inputs[pair[0]]


def _cascades(operator: Operator, axis: str | None) -> tuple[Cascade, ...]:
    found = tuple(cascade for cascade in cascades(operator) if cascade.axis == axis or not _meets_itself(operator, cascade.axis))
    if axis is not None and axis not in {cascade.axis for cascade in found}:
        extra = cascade_over(axis, operator)
        if not extra.reductions:
            reduced = ", ".join(cascade.axis for cascade in found) or "none"
            raise OperatorError(f"fusing {operator.name} over axis {axis!r}", "it has no reduction over that axis",
                                f"choose one of the axes it reduces: {reduced}")
        found = (*found, extra)
    if not found:
        raise OperatorError(f"fusing {operator.name}", "it has no reduction, so there is nothing to fuse",
                            "write a sum, max or other reduction over a named axis")
    return found
