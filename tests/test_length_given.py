"""The length of the reduced axis inside a mask or an element: known before the sweep, and the form says so."""

import numpy as np
import pytest
import redfuser_algebra as ra
from redfuser_algebra.run.reference import fused_by_tree


@ra.operator
def causal(q: "m d", k: "l d", v: "l j"):
    s = ra.sum(q * k, "d")
    see = ra.index("l") <= ra.index("m") + ra.size("l") - ra.size("m")
    p = ra.exp(s - ra.max(s, "l", where=see))
    return ra.divide(ra.sum(p * v, "l", where=see), ra.sum(p, "l", where=see), where_zero=0)


@ra.operator
def mean_gap_of_the_second_half(x: "l"):
    late = ra.index("l") >= ra.size("l") / 2
    return ra.sum(x - ra.mean(x, "l"), "l", where=late)


@ra.operator
def variance(x: "l"):
    return ra.var(x, "l")


@pytest.fixture(scope="module")
def fused():
    return ra.fuse(causal)


def arrays(queries, keys):
    rng = np.random.default_rng(queries + keys)
    return {"q": rng.standard_normal((queries, 4)), "k": rng.standard_normal((keys, 4)), "v": rng.standard_normal((keys, 3))}


@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 5), (3, 3), (4, 1)])
def test_every_split_and_backend_sees_the_final_length(fused, queries, keys):
    given = arrays(queries, keys)
    want = fused(**given, backend="reference")
    for sizes in ((keys,), (1,) * keys, (0, keys // 2, keys - keys // 2)):
        np.testing.assert_allclose(fused_by_tree(causal, fused.form, causal.bind(**given), sizes, 1), want, atol=1e-12)
    np.testing.assert_allclose(fused(**given, backend="cpu"), want, atol=1e-12)


def test_the_form_says_so_and_only_where_it_is_so(fused):
    assert (ra.decide(causal).status, fused.form.length_given) == ("fusable", True)
    assert [guard.operation for guard in fused.form.guards if "length of l is known" in str(guard)] == ["size"]
    assert not ra.fuse(variance).form.length_given


def test_what_else_the_length_is_in_still_grows():
    form = ra.fuse(mean_gap_of_the_second_half).form
    x = np.arange(7.0) ** 2
    got = fused_by_tree(mean_gap_of_the_second_half, form, mean_gap_of_the_second_half.bind(x), (2, 3, 2), 0)
    np.testing.assert_allclose(got, (x - x.mean())[4:].sum())


def test_a_stream_is_told_the_length(fused):
    given = arrays(5, 7)
    want = fused(**given, backend="reference")
    with pytest.raises(ra.OperatorError, match="see the length.*stream\\(length=…\\)"):
        fused.stream(q=given["q"])
    first = fused.stream(q=given["q"], length=7).update(k=given["k"][:3], v=given["v"][:3])
    with pytest.raises(ra.OperatorError, match="were to be 7"):
        first.result()
    second = fused.stream(q=given["q"], length=7, start=3).update(k=given["k"][3:], v=given["v"][3:])
    np.testing.assert_allclose(first.merge(second).result(), want, atol=1e-12)


def test_streams_of_different_lengths_do_not_merge(fused):
    given = arrays(5, 7)
    first, second = (fused.stream(q=given["q"], length=length, start=start).update(k=given["k"][:2], v=given["v"][:2])
                     for length, start in ((7, 0), (8, 2)))
    with pytest.raises(ra.OperatorError, match="length of axis"):
        first.merge(second)


def test_the_certificate_holds(fused):
    assert "refuted" not in {found.verdict for row in fused.certify(examples=10).rows for found in row.evidence}


def test_what_is_stuck_is_told_apart_from_what_waits_for_the_length():
    @ra.operator
    def last_among_deviations(x: "l"):
        last, mean = ra.sum(ra.where(ra.index("l") == ra.size("l") - 1, x, 0), "l"), ra.mean(x, "l")
        return (last - mean) / ra.mean(ra.abs(x - mean), "l")

    verdict = ra.decide(last_among_deviations)
    assert (verdict.status, verdict.reason) == ("not fusable", "unbounded-rank") and verdict.refusal.witness.recheck()
    assert "abs(" in str(verdict.refusal.residual) and verdict.refusal.witness.reduction.name == verdict.refusal.reduction.name
