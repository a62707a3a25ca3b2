"""Certificates: proved and tested are kept apart, the content survives JSON, and a broken form is refuted."""
from __future__ import annotations

from dataclasses import replace

import pytest

import redfuser_algebra as ra
from redfuser_algebra.language.expr import call
from redfuser_algebra.prove.certificate import Certificate, certify
from redfuser_algebra.run.reference import fused_by_chunks


@pytest.fixture(scope="module")
def softmax():
    return ra.fuse(ra.operators["softmax"])


def certified(fused: ra.Fused, form: ra.FusedForm) -> Certificate:
    return certify(fused.operator, fused.decision.main.cascade, form, examples=15, seed=0, interpreter=fused_by_chunks)


def test_a_certificate_proves_and_tests_and_survives_json(softmax):
    certificate = certified(softmax, softmax.form)
    assert certificate.status == "proved and tested"
    assert "recentre_difference" in certificate.laws
    again = Certificate.from_json(certificate.to_json())
    assert again.hash == certificate.hash
    assert certified(softmax, softmax.form).hash == certificate.hash
    assert "proved" in certificate.to_markdown()


def test_a_form_that_forgets_to_rebase_is_refuted(softmax):
    state = tuple(replace(c, rebase=c.symbol) if not c.fixed else c for c in softmax.form.state)
    assert certified(softmax, replace(softmax.form, state=state)).status == "refuted"


def test_a_form_that_rebases_the_wrong_way_is_refuted(softmax):
    state = tuple(replace(c, rebase=call("divide", c.symbol, c.rebase) * c.symbol) if not c.fixed else c
                  for c in softmax.form.state)
    assert certified(softmax, replace(softmax.form, state=state)).status == "refuted"
