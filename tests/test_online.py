"""Steps that no matrix follows: they are online, and where no state of parts merges, that is proved."""

from fractions import Fraction

import numpy as np
import pytest

import redfuser_algebra.language.functions as ra
from redfuser_algebra.discover.refusal import Refusal
from redfuser_algebra.fused import decide
from redfuser_algebra.language.cascade import cascades, primary
from redfuser_algebra.language.definitions import parse_operator
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.operator import operator
from redfuser_algebra.language.recurrence import cumulative, previous, scan
from redfuser_algebra.prove.refutation.numbers import balls, working
from redfuser_algebra.prove.refutation.problem import posed
from redfuser_algebra.prove.refute import refute_merge
from redfuser_algebra.run.reference import reference

X = parse_operator("sum(x[l], l)").outputs[0].body


@pytest.mark.parametrize("step, proved, words", [
    (lambda h: ra.tanh(h + X), True, "linear in any finite set"),
    (lambda h: X * h * (1 - h), True, "every further element needs another function"),
    (lambda h: ra.where(h > X, h, X + 1), False, "linear in any finite set"),
    (lambda h: X / (1 + h * h), True, "divides by a state"),
    (lambda h: ra.log(1 + ra.exp(h + X)), False, "linear in any finite set"),
    (lambda h, lost: (h + (X - lost), ((h + (X - lost)) - h) - (X - lost)), False, "for what rounding loses"),
    (lambda h, lost: (h + X, lost + ((h - (h + X)) + X)), False, "for what rounding loses"),
], ids=["tanh", "logistic map", "choice by the state", "divided by a square", "softplus", "Kahan", "Knuth"])
def test_a_step_that_no_matrix_follows_is_online(step, proved, words, rng):
    """That no state of parts merges is claimed only with a witness: here for steps that bend ever more."""
    verdict = decide(_stepped(step))
    assert verdict.status == ("partly" if proved else "undecided") and isinstance(verdict.refusal, Refusal)
    assert words in verdict.refusal.obligation
    assert verdict.refusal.witness.recheck() and verdict.reason == "online-only" if proved else verdict.refusal.witness is None
    fused, x = verdict.fused, rng.uniform(0.1, 0.9, 13)
    want = reference(fused.operator, fused.operator.bind(x))
    stream = fused.stream().update(x[:5])
    assert stream.update(x[5:]).result() == fused(x, backend="numpy") == want
    np.testing.assert_allclose(fused(x, backend="cpu"), want, 1e-14)
    with pytest.raises(OperatorError, match="is online"):
        fused.stream().update(x).merge(fused.stream().update(x))


@pytest.mark.parametrize("holds", [lambda x, top: x == top, lambda x, top: x < top], ids=["records", "below the top"])
def test_what_is_counted_at_a_running_maximum_does_not_merge(holds):
    """A part has to be kept record by record: any number of them may turn out to be below what came before."""
    verdict = decide(_counted(holds))
    assert (verdict.status, verdict.reason) == ("partly", "online-only") and verdict.refusal.witness.recheck()
    assert verdict.refusal.witness.order >= 24


def test_a_maximum_that_is_chosen_step_by_step_is_no_staircase():
    found = primary(cascades(_stepped(lambda h: ra.where(h < X, X, h), -np.inf)))
    refusal = Refusal("l", found.reductions[0], "", None, {}, exhausted=False, rounding=False)
    assert refute_merge(found, (), refusal) is None


def _counted(holds):
    @operator
    def counted(x: "l"):
        return ra.count(holds(x, cumulative(ra.max, x, "l")), "l")

    return counted


def _stepped(step, start=0.5):
    @operator
    def stepped(x: "l"):
        """A step."""
        return scan(step, "l", start)

    return stepped


@pytest.mark.parametrize("behind", [False, True])
def test_derivatives_go_back_through_steps(behind, rng):
    """What a witness counts on, next to finite differences: of states after, before and beside each other, and of where they start."""
    @operator
    def op(x: "l", y: "l"):
        """A gate, a queue and neighbours, in one number."""
        h = scan(lambda h, g: (ra.tanh(h * y + g), g * x + h), "l", initial=(0.25, 0.5), every="after")[0]
        waits = scan(lambda w: ra.maximum(0, w + x), "l", every="before")
        return ra.sum(h * waits + x * previous(y, "l") ** 2, "l")

    cascade = primary(cascades(op))
    prefix, suffix = ([[Fraction(int(64 * v), 64) for v in row] for row in rng.uniform(-1, 1, (n, 2))] for n in (5, 2))
    prefix, suffix = np.array(prefix, object), np.array(suffix, object)
    problem, field = posed(cascade, (), behind=behind), balls(256)
    with working(field):
        evaluation = problem.evaluation(field, prefix, [suffix])
        (seen,) = problem.observations(2, cascade.reductions[-1].source)[:1]
        slopes = problem.slopes(evaluation, seen)[0, problem.part(5, 7)]
    arrays = np.concatenate([suffix, prefix] if behind else [prefix, suffix]).astype(float)
    for at in range(5):
        for column in range(2):
            moved = [arrays.copy() for _ in range(2)]
            for array, step in zip(moved, (1e-6, -1e-6), strict=True):
                array[at + 2 * behind, column] += step
            up, down = (reference(op, op.bind(**{name: array[:, k] for k, (name, _) in enumerate(problem.coordinates)})) for array in moved)
            assert float(slopes[at, column]) == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-7)
