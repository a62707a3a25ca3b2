"""Certificates: what they say, that they say it again, and that they come back from JSON as they were."""

import json
from dataclasses import replace

import mutants
import pytest
from lowered import verdict

import redfuser_algebra as ra
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.prove.certificate import Certificate, certify
from redfuser_algebra.prove.claims import unread
from redfuser_algebra.prove.evidence import Evidence, Row
from redfuser_algebra.prove.obligations import KINDS, obligations


@pytest.fixture(scope="module")
def attention():
    return ra.fuse(ra.operators["attention"]).certificate


@pytest.fixture(scope="module")
def variance():
    return ra.fuse(ra.operators["variance"]).certificate


def test_attention_is_proved_where_it_can_be_and_tested_everywhere(attention):
    assert attention.status == "proved and tested"
    for name in ("s", "s2"):
        row = attention.row(f"rebase:{name}")
        assert {e.checker: e.verdict for e in row.evidence} == {"e-graph": "proved", "SymPy": "proved", "Hypothesis": "tested"}
    assert attention.row("result").verdict == "tested" and "result" in attention.proved
    assert "exp_of_sum" in attention.laws and "recentre_difference" in attention.laws


def test_every_obligation_is_a_statement_in_words_and_in_latex_with_evidence(attention, variance):
    for certificate in (attention, variance):
        for row in certificate.obligations:
            assert row.statement and row.latex and row.evidence and row.kind in (*KINDS, "floats")
            assert row.latex.count("{") == row.latex.count("}")
        premises = {id for row in certificate.rows for id in row.follows_from}
        assert premises <= {row.id for row in certificate.rows}


def test_tested_says_how_often_with_which_seed_and_how_exactly(attention):
    for row in attention.rows:
        for evidence in row.by("tested"):
            assert evidence.detail["seed"] == 0
            assert evidence.checker == "floats" or evidence.detail["examples"] > 0
            assert evidence.checker == "floats" or evidence.detail["arithmetic"] in ("rational", "balls")
            assert evidence.detail.get("arithmetic") != "balls" or float(evidence.detail["radius"]) < 1e-9


def test_variance_says_what_floats_lose_far_from_0(variance):
    figures = variance.row("floats:far").evidence[0].measured
    assert float(figures["float32 inputs, everything else exact"]) > 0.9
    assert float(figures["float64, centred form"]) < 1e-6 < 1 < float(figures["float64, raw form"])
    assert "Rounding the inputs to float32 alone makes a relative error of 1 (no correct digit)" in variance.to_markdown()


def test_forms_without_means_lose_nothing_special(attention):
    assert "floats:far" not in {row.id for row in attention.rows}


def test_json_comes_back_as_it_was(attention, variance):
    for certificate in (attention, variance):
        again = Certificate.from_json(certificate.to_json())
        assert again == certificate and again.hash == certificate.hash and again.status == certificate.status


@pytest.mark.parametrize("spoilt", [
    lambda text: text.replace('"verdict": "tested"', '"verdict": "proved"', 1), lambda text: text.replace("attention", "retention"),
    lambda text: text[:200], lambda text: "[]", lambda text: text.replace('"verdict": "tested"', '"verdict": "sure"'),
    lambda text: text.replace('"rows"', '"lines"'),
], ids=["verdict", "operator", "cut", "list", "unknown verdict", "no rows"])
def test_json_that_was_changed_is_refused(attention, spoilt):
    with pytest.raises(OperatorError, match="reading a certificate"):
        Certificate.from_json(spoilt(attention.to_json()))


def test_the_hash_is_that_of_the_content_and_the_same_every_time(variance):
    fused = ra.fuse(ra.operators["variance"])
    assert fused.certify().hash == variance.hash
    assert fused.certify(seed=1).hash != variance.hash
    assert replace(variance, versions={"numpy": "0"}).hash == variance.hash
    assert json.loads(variance.to_json())["hash"] == variance.hash


def test_progress_is_told_from_start_to_end():
    told = []
    ra.fuse(ra.operators["count_max"]).certify(examples=5, progress=lambda done, whole: told.append((done, whole)))
    shares = [done / whole for done, whole in told]
    assert shares == sorted(shares) and shares[-1] == 1 and len(set(shares)) > 10


def test_markdown_and_html_show_the_statements(attention):
    text, page = attention.to_markdown(), attention._repr_html_()
    for heading in ("# Certificate: attention", "## Obligations", "## Laws", "## Guards", "## Errors with floats"):
        assert heading in text
    assert r"$\sum_{l} V_{l,j}" in page and "<script" not in page and page.count("<tr>") == len(attention.rows) + 1


def test_a_wrong_form_is_refuted_with_its_counterexample():
    mutant = next(m for m in mutants.ALL if m.of == "softmax" and m.fault == "the sum is not moved")
    fused = mutants.fused("softmax")
    certificate = certify(fused.operator, fused.decision.main.cascade, mutant.spoilt(fused.form), examples=30)
    assert certificate.status == "refuted"
    assert {"rebase:s", "result"} <= {row.id for row in certificate.refuted}
    example = certificate.row("rebase:s").by("refuted")[0].detail["counterexample"]
    assert example["got"] != example["expected"] and len(example["inputs"]["x"]) == 2
    assert "## Refuted" in certificate.to_markdown() and Certificate.from_json(certificate.to_json()) == certificate


def row(id, *verdicts, **fields):
    return Row(id, "result", "a", "a", evidence=tuple(Evidence("checker", verdict) for verdict in verdicts), **fields)


@pytest.mark.parametrize("status, rows", [
    ("proved", [row("a", "proved", "tested"), row("b", "cannot decide", "proved")]),
    ("tested", [row("a", "tested"), row("b", "tested", "cannot decide")]),
    ("proved and tested", [row("a", "proved"), row("b", "tested")]),
    ("incomplete", [row("a", "proved"), row("b", "cannot decide")]),
    ("incomplete", [row("a", "proved"), row("b")]),
    ("refuted", [row("a", "proved"), row("b", "proved", "refuted")]),
    ("proved", [row("a", "proved"), row("b", "tested", follows_from=("a",))]),
    ("proved", [row("a", "proved"), row("b", "tested", follows_from=("c",)), row("c", follows_from=("a",))]),
    ("proved and tested", [row("a", "tested"), row("b", "tested", follows_from=("c",)), row("c", "proved")][::-1]),
    ("proved", [row("a", "proved"), row("b", "refuted", limit=True), row("c", "cannot decide", limit=True)]),
])
def test_the_status_claims_no_more_than_the_evidence(variance, status, rows):
    assert replace(variance, rows=tuple(rows)).status == status


@pytest.mark.slow
@pytest.mark.parametrize("name", ra.operators)
def test_every_form_of_the_catalogue_has_a_certificate(name):
    fused = verdict(name).fused
    if fused is None:
        return
    certificate = fused.certify(examples=8)
    assert certificate.status in ("proved", "proved and tested", "tested"), certificate.to_markdown()
    assert unread(fused.form) == ()
    asked = obligations(fused.operator, fused.decision.main.cascade, fused.form)
    assert len({o.id for o in asked}) == len(asked)


def test_a_pivot_of_nothing_is_judged_by_what_the_operator_gives():
    @ra.operator
    def above_the_largest_of_some(x: "l", y: "l", M: "l"):
        return ra.sum(ra.exp(x - ra.max(y, "l", where=M)), "l")

    assert ra.fuse(above_the_largest_of_some).certify(examples=20).status == "proved and tested"


def test_a_sum_dropped_about_a_mean_whose_weights_see_another_pivot():
    @ra.operator
    def spread_under_softmax(x: "l", v: "l"):
        w = ra.exp(x - ra.max(x, "l"))
        mean = ra.sum(w * v, "l") / ra.sum(w, "l")
        return ra.sum(w * (v - mean) ** 2, "l") / ra.sum(w, "l")

    certificate = ra.fuse(spread_under_softmax).certify(examples=20)
    assert certificate.status == "proved and tested" and any(row.kind == "dropped" for row in certificate.rows)


def test_a_fresh_e_graph_holds_the_laws_that_it_is_given_and_keeps_none():
    asked = [question for question in ra.fuse(ra.operators["variance"]).form.trace if question.answer.finite and question.answer.fired.keys() & set(question.laws)]
    assert asked
    for question in asked:
        before, without, after = (question.recheck(laws) for laws in (question.laws, (), question.laws))
        assert before == after == question.answer and without.cost > before.cost and not without.fired.keys() & set(question.laws)
