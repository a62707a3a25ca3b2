"""Saturating sums: a state that every element moves and keeps within bounds merges, in order."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import redfuser_algebra as ra
from redfuser_algebra.prove.certificate import certify
from redfuser_algebra.run.reference import reference

STEPS = {
    "clipped": lambda h, x, y: ra.clip(h + x, -1, 1.5),
    "the upper bound first": lambda h, x, y: ra.maximum(ra.minimum(h - x, 1), ra.minimum(y, 0)),
    "up and down": lambda h, x, y: ra.where(y > 0, ra.minimum(h + x, 1), ra.maximum(h - 0.5, -1)),
    "set, and clipped twice": lambda h, x, y: ra.where(y > 1, x, ra.clip(ra.clip(h + x, -1, 1) - y, -2, 2)),
}


def stepped(step, every=""):
    @ra.operator
    def saturating(x: "b l", y: "l"):
        return ra.scan(lambda h: step(h, x, y), "l", 0.25, every=every)
    return saturating


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("every", ["", "after"])
def test_states_that_are_kept_within_bounds_merge(name, every, rng):
    operator = stepped(STEPS[name], every)
    verdict, x, y = ra.decide(operator), rng.standard_normal((2, 61)), rng.standard_normal(61)
    assert (verdict.status, verdict.reason) == ("fusable", "scan") and len(verdict.fused.form.state) == 3
    whole = reference(operator, operator.bind(x, y))
    np.testing.assert_allclose(verdict.fused(x, y, backend="numpy"), whole, 1e-13)
    if not every:
        parts = [verdict.fused.stream().update(x[:, a:b], y[a:b]) for a, b in ((0, 20), (20, 20), (20, 61))]
        np.testing.assert_allclose(parts[0].merge(parts[1].merge(parts[2])).result(), whole, 1e-13)


def test_a_kernel_goes_from_state_to_state(rng):
    operator, x, y = stepped(STEPS["up and down"]), rng.standard_normal((2, 5000)), rng.standard_normal(5000)
    np.testing.assert_allclose(ra.fuse(operator)(x, y, backend="cpu"), reference(operator, operator.bind(x, y)), 1e-12)


@pytest.mark.parametrize("name", STEPS)
def test_that_parts_compose_is_proved(name):
    certificate = ra.fuse(stepped(STEPS[name])).certify(examples=5)
    assert certificate.status == "proved and tested"
    assert {"recurrence:h", "monoid:compose", "readout:h"} <= certificate.proved


SPOILT = {
    "the bound of the later part is forgotten": lambda c: replace(c, joined=c.joined.args[0]),
    "bounds are not moved": lambda c: replace(c, joined=c.joined.args[1]),
}


@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.parametrize("place", [1, 2])
def test_parts_that_compose_wrongly_are_not_proved(name, place):
    fused = ra.fuse(stepped(STEPS["clipped"]))
    state = list(fused.form.state)
    state[place] = SPOILT[name](state[place])
    broken = certify(fused.operator, fused.decision.main.cascade, replace(fused.form, state=tuple(state)), examples=30)
    assert broken.row("recurrence:h").verdict == "cannot decide" and broken.status == "refuted"


def test_no_file_says_what_is_proved_by_multiplying_out():
    with pytest.raises(ra.RedfuserError, match="kept within bounds"):
        ra.decide(stepped(STEPS["clipped"])).proof_text()


def test_two_states_that_see_each_other_stay_online():
    @ra.operator
    def both(x: "l"):
        return ra.scan(lambda g, h: (ra.clip(g + h, -1, 1), ra.clip(h + x, -1, 1)), "l", (0.0, 0.0), place=0)
    assert ra.decide(both).reason in ("online", "online-only")
