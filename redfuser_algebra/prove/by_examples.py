"""The checker that tries: Hypothesis draws small experiments, exact arithmetic carries them out.

In: a space of trials and obligations.  Out: for each obligation how many examples bear it out, or the simplest one
that does not.  Nothing is printed and nothing is stored; the same seed draws the same examples.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np

from redfuser_algebra.prove.evidence import CANNOT, REFUTED, TESTED, Evidence
from redfuser_algebra.prove.obligations import Obligation
from redfuser_algebra.prove.trials import extended
from redfuser_algebra.prove.trials.arithmetic import Unsupported
from redfuser_algebra.prove.trials.checks import Comparison, comparisons
from redfuser_algebra.prove.trials.parts import Incomplete
from redfuser_algebra.prove.trials.sampling import Space
from redfuser_algebra.prove.trials.trial import Trial

CHECKER = "Hypothesis"


class Failed(Exception):
    """An example that refutes an obligation; `detail` describes it."""

    def __init__(self, detail: dict[str, object]) -> None:
        super().__init__(str(detail))
        self.detail = detail


@dataclass
class Tally:
    """What happened to one obligation: how many examples bear it out, and how many are undecided; whether one refutes it."""

    held: int = 0
    undecided: int = 0
    radius: float = 0.0
    failed: bool = False


def tested(space: Space, obligations: Sequence[Obligation], examples: int, seed: int,
           told: Callable[[int, int], None] = lambda done, whole: None) -> Iterator[tuple[str, Evidence]]:
    """The id of each obligation with the evidence; stopped by Ctrl-C, with that of the examples made until then."""
    groups = [[o for o in obligations if (o.kind == "infinities") == infinite] for infinite in (False, True)]
    done = 0
    for group, infinite in zip(groups, (False, True), strict=True):
        tallies = {o.id: Tally() for o in group}

        def visit(trial: Trial) -> None:
            nonlocal done
            done += 1
            told(min(done, 2 * examples), 2 * examples)
            for obligation in group:
                _counted(trial, obligation, tallies[obligation.id])

        stopped = False
        try:
            if group:
                _swept(space, infinite, examples, seed, visit)
        except KeyboardInterrupt:
            stopped = True
        for o in group:
            if not stopped or tallies[o.id].held:
                yield o.id, _evidence(space, o, tallies[o.id], examples, seed)
        if stopped:
            raise KeyboardInterrupt


def _swept(space: Space, infinite: bool, examples: int, seed: int, visit: Callable[[Trial], None], shrink: bool = False) -> None:
    import hypothesis
    from hypothesis import HealthCheck, Phase, Verbosity, settings

    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    quiet = settings(max_examples=examples, database=None, deadline=None, verbosity=Verbosity.quiet, phases=phases,
                     derandomize=False, report_multiple_bugs=False, print_blob=False, suppress_health_check=list(HealthCheck))

    def example(trial: Trial) -> None:
        with extended.exactly():
            hypothesis.assume(space.admits(trial))
            visit(trial)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet(hypothesis.seed(seed)(hypothesis.given(space.trials(infinite))(example)))()


def _counted(trial: Trial, obligation: Obligation, tally: Tally) -> None:
    if tally.failed:
        return
    try:
        radius = checked(trial, obligation)
    except Failed:
        tally.failed = True
    except (extended.Undecided, Unsupported):
        tally.undecided += 1
    else:
        tally.held += radius is not None
        tally.radius = max(tally.radius, radius or tally.radius)


def checked(trial: Trial, obligation: Obligation) -> float | None:
    """The largest radius of a ball that was compared, or None if there was nothing to compare.

    Raises Failed if some comparison does not hold, Undecided if a ball is too wide to tell.
    """
    radius, undecided = None, None
    try:
        for comparison in comparisons(trial, obligation):
            try:
                width = _compared(trial, comparison)
            except extended.Undecided as error:
                undecided = error
            else:
                radius = width if radius is None else max(radius, width or 0)
    except Incomplete as error:
        raise Failed({"where": str(error), **trial.described()}) from error
    if undecided:
        raise undecided
    return radius


def _compared(trial: Trial, comparison: Comparison) -> float | None:
    where = np.array(True) if comparison.where is None else comparison.where
    got, expected, where = np.broadcast_arrays(comparison.got, comparison.expected, where)
    widest = None
    for a, b, counts in zip(got.reshape(-1), expected.reshape(-1), where.reshape(-1), strict=True):
        if counts:
            a, b = (bool(x) if isinstance(x, np.bool_) else x for x in (a, b))
            if not _RELATIONS[comparison.relation](a, b):
                raise Failed({"where": comparison.what, "got": extended.shown(a), "expected": _expected(comparison, b),
                              **trial.described()})
            widest = max(widest or 0.0, extended.radius(a), extended.radius(b))
    return widest


def _expected(comparison: Comparison, value: object) -> str:
    relation = "" if comparison.relation in "=≐" else f"{comparison.relation} "
    return relation + extended.shown(value)


_RELATIONS: dict[str, Callable[[object, object], bool]] = {
    "=": extended.agree,
    "≐": lambda a, b: extended.is_special(a) and extended.is_special(b) or extended.agree(a, b),
    "≤": lambda a, b: extended.order(a, b) in (-1, 0, None),
    "≥": lambda a, b: extended.order(a, b) in (0, 1, None),
    ">": lambda a, b: extended.order(a, b) in (1, None),
    "bounded": lambda a, b: extended.order(b, extended.ZERO) != 0 or extended.order(a, extended.ZERO) == 0,
}
"""When a relation holds; of a NaN nothing is claimed but equality."""


def _evidence(space: Space, obligation: Obligation, tally: Tally, examples: int, seed: int) -> Evidence:
    said = {"seed": seed, "examples": tally.held, "arithmetic": "rational" if not tally.radius else "balls"}
    if tally.radius:
        said["radius"] = _power_of_ten(tally.radius)
    if tally.undecided:
        said["undecided"] = tally.undecided
    if tally.failed:
        return Evidence(CHECKER, REFUTED, {"seed": seed, "counterexample": counterexample(space, obligation, examples, seed)})
    if not tally.held:
        why = "balls were too wide" if tally.undecided else "no example had anything to compare"
        return Evidence(CHECKER, CANNOT, {"seed": seed, "reason": why})
    return Evidence(CHECKER, TESTED, said)


def refutation(space: Space, obligations: Sequence[Obligation], examples: int, seed: int) -> dict[str, object] | None:
    """The simplest example that refutes any of these obligations, or None if none was found."""
    for infinite in (False, True):
        group = [o for o in obligations if (o.kind == "infinities") == infinite and not o.limit]

        def visit(trial: Trial) -> None:
            for obligation in group:
                try:
                    checked(trial, obligation)
                except (extended.Undecided, Unsupported):
                    continue
                except Failed as failed:
                    raise Failed({"obligation": obligation.id, **failed.detail}) from None

        try:
            _swept(space, infinite, examples, seed, visit, shrink=True)
        except Failed as failed:
            return failed.detail
    return None


def _power_of_ten(radius: float) -> str:
    """The least power of ten that is larger than a radius."""
    return f"1e{floor(log10(radius)) + 1}"


def counterexample(space: Space, obligation: Obligation, examples: int, seed: int) -> dict[str, object]:
    """The simplest example that refutes an obligation, found by shrinking one that does."""
    def visit(trial: Trial) -> None:
        try:
            checked(trial, obligation)
        except (extended.Undecided, Unsupported):
            return

    try:
        _swept(space, obligation.kind == "infinities", examples, seed, visit, shrink=True)
    except Failed as failed:
        return failed.detail
    return {"where": "not found again with the same seed"}
