"""The front door: names that users rely on, and an import that brings in nothing heavy."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import redfuser_algebra as ra
from redfuser_algebra.cli import status_of

ROOT = Path(ra.__file__).parent.parent
HEAVY = ("egglog", "numba", "sympy", "hypothesis", "ipywidgets", "flint", "matplotlib", "dask", "typer", "rich", "numpy")
FUNCTIONS = """sum prod max min argmax argmin topk any all mean var exp log sqrt abs maximum minimum where sign tanh sin cos
    power reciprocal clip round cast index size divide""".split()
DOOR = """operator Operator fuse decide Fused Verdict NotFusable Refusal FusedForm Limits operators cascades parse
    parse_operator OperatorError RedfuserError LAWS MONOIDS""".split()


def loaded_by(code):
    """The heavy packages that running some code brings in, in a Python of its own."""
    ending = f"\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code + ending], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()


def test_importing_the_package_brings_in_nothing():
    assert loaded_by("import redfuser_algebra") == []


def test_writing_an_operator_needs_numpy_alone():
    code = """import redfuser_algebra as ra
@ra.operator
def f(x: "l"):
    return ra.sum(ra.exp(x - ra.max(x, "l")), "l")
str(f), f._repr_latex_(), ra.cascades(f), ra.operators["softmax"], ra.LAWS"""
    assert loaded_by(code) == ["numpy"]


def test_fusing_needs_the_e_graph_and_exact_numbers_and_no_sympy_or_compiler():
    loaded = set(loaded_by("import redfuser_algebra as ra; ra.fuse(ra.operators['softmax'])"))
    assert {"egglog", "numpy"} <= loaded <= {"egglog", "numpy", "flint"}


def test_the_command_starts_without_the_e_graph():
    assert set(loaded_by("import redfuser_algebra.cli")) <= {"numpy", "typer", "rich"}


@pytest.mark.parametrize("name", [*DOOR, *FUNCTIONS])
def test_a_promised_name_is_there(name):
    assert getattr(ra, name) is not None and name in dir(ra)


def test_every_listed_name_is_there():
    assert [name for name in dir(ra) if not hasattr(ra, name)] == []


@pytest.mark.parametrize("name, hint", [
    ("rmsnorm", 'ra.operators["rmsnorm"]'), ("cumsum", "ra.cumulative(ra.sum"), ("maxx", "did you mean ra.max"), ("zzzz", "no attribute 'zzzz'"),
    ("_reduced", "no attribute"), ("nowhere", "no attribute"),
])
def test_other_names_are_not_and_the_error_says_where_to_look(name, hint):
    with pytest.raises(AttributeError, match=re.escape(hint)):
        getattr(ra, name)


@ra.operator
def attention(Q: "m k", K: "l k", V: "l j", scale: float = 1.0):
    S = ra.sum(Q * K, "k") * scale
    P = ra.exp(S - ra.max(S, "l"))
    return ra.sum(P * V, "l") / ra.sum(P, "l")


def plain_attention(Q, K, V, scale):
    S = Q @ np.swapaxes(K, -1, -2) * scale
    P = np.exp(S - S.max(-1, keepdims=True))
    return P @ V / P.sum(-1, keepdims=True)


def test_a_fused_operator_is_called_streamed_and_looked_at(rng):
    fused = ra.fuse(attention)
    Q, K, V = rng.standard_normal((2, 3, 4)), rng.standard_normal((10, 4)), rng.standard_normal((10, 5))
    expected = plain_attention(Q, K, V, 0.5)
    assert np.allclose(fused(Q, K, V, scale=0.5), expected)
    assert np.allclose(fused(V=V, K=K, Q=Q, scale=0.5, backend="reference"), expected)
    first, second = fused.stream(Q=Q, scale=0.5).update(K[:3], V[:3]), fused.stream(Q=Q, scale=0.5).update(K[3:], V[3:])
    assert np.allclose(first.merge(second).result(), expected)
    assert fused.form.axis == "l" and fused.form.words == 3 and {c.monoid for c in fused.form.state} == {"max", "sum"}
    assert [bool(part) for part in (fused.form.guards, fused.form.facts, fused.form.laws, fused.form.ranks)] == [True] * 4


def test_a_verdict_says_what_and_why():
    verdict = ra.decide(attention)
    assert (verdict.status, verdict.reason, verdict.fusable, verdict.refusal) == ("fusable", "rank-1", True, None)
    refused = ra.decide(ra.operators["quant_gemm"])
    assert (refused.status, refused.reason, refused.fusable, refused.fused) == ("not fusable", "rounding", False, None)
    with pytest.raises(ra.NotFusable) as raised:
        ra.fuse(ra.operators["quant_gemm"])
    assert str(raised.value.refusal) == str(refused.refusal) and "round" in str(raised.value)


@pytest.mark.parametrize("name, cut", [
    ("quant_gemm", [["m2"], ["s"]]), ("tv_softmax", None), ("kb_bn_tanh_gn", None), ("median", [["top"]]), ("softmax", [["m", "s"]]),
])
def test_what_is_refused_runs_in_as_few_passes_as_can_be(name, cut, rng):
    """Each pass is fused by itself, if it is no sort, and together they are the operator, batch and dtypes included."""
    entry, verdict = ra.operators.entry(name), ra.decide(ra.operators[name])
    passes, given = verdict.in_passes(), entry.inputs(rng, 37)
    expected = entry.reference(**given)
    assert all(part.fusable for part in passes.verdicts) == (name != "median") and len(passes.verdicts) == len(verdict.refusal.passes if verdict.refusal else cut)
    for backend in ("numpy", "cpu"):
        np.testing.assert_allclose(passes(**given, backend=backend), expected, rtol=1e-9)
    [first, *rest] = given
    stacked = given | {first: np.stack([given[first], 2 * given[first]]).astype(np.float32)} | {key: np.float32(given[key]) for key in rest}
    assert passes(**stacked).dtype == np.float32 and passes(**stacked).shape == (2, *np.shape(expected))
    assert all(operator.name in str(passes) for operator in passes.operators if len(passes.operators) > 1)


@ra.operator
def focal(z: "b l", t: "b l", gamma: float = 2.0):
    p = ra.exp(z - ra.max(z, "l"))
    p = p / ra.sum(p, "l")
    return ra.sum(t * (1 - p) ** gamma * p, "l")


@ra.operator
def zero_point(x: "l", w: "l"):
    low = ra.min(x, "l")
    scale = (ra.max(x, "l") - low) / 255
    return ra.sum(ra.clip(ra.round((x - low) / scale), 0, 255) * w, "l") * scale


@pytest.mark.parametrize("operator, changes", [
    (ra.operators["quant_gemm"], {"with reassociate=True on its roundings": "partly", "without its roundings": "fusable"}),
    (focal, {"with 2 in place of gamma": "fusable"}), (zero_point, {"without its roundings and without bounds that move": "fusable"}),
    (ra.operators["semivariance"], {"without bounds that move": "fusable"}), (ra.operators["mean_absolute_deviation"], {}), (attention, {}),
])
def test_the_nearest_variants_that_fuse_are_found(operator, changes):
    assert {variant.change: variant.verdict.status for variant in ra.decide(operator).nearest()} == changes


def test_a_variant_is_the_operator_that_one_would_write():
    variant = ra.decide(ra.operators["quant_gemm"]).nearest()[0]
    assert variant.operator.outputs == ra.operators["quant_gemm_reassociate"].outputs
    assert "gamma" not in ra.decide(focal).nearest()[0].operator.params


@pytest.mark.parametrize("target, code, said", [
    ("quant_gemm", 1, ["in 2 passes: m2 | s, over l", "with reassociate=True on its roundings: partly (rounding)"]),
    ("median(x, l)", 1, ["formula: not fusable (order-statistic)", "as written: what is kept of l grows with it"]),
    ("sum(softmax(x, l) * y, l)", 0, ["formula: fusable (rank-1)"]),
])
def test_the_command_names_passes_and_the_nearest_variants(target, code, said, capsys):
    assert status_of(["fuse", target]) == code
    printed = capsys.readouterr().out
    assert all(line in printed for line in said)


def test_a_refusal_says_what_to_try_and_explains_its_names():
    with pytest.raises(ra.NotFusable) as raised:
        ra.fuse(ra.operators["mean_absolute_deviation"])
    assert "in 2 passes (in_passes() of its verdict" in raised.value.remedy and "nearest()" in raised.value.remedy
    assert "s2 = sum(abs(x[l] - s / size(l)), l)" in raised.value.failed and "with s = sum(x[l], l)" in raised.value.failed


def test_a_refusal_names_the_axis_over_which_the_operator_fuses():
    @ra.operator
    def spread_of_logsumexp(x: "b l"):
        totals = ra.logsumexp(x, "b")
        return ra.sum(ra.abs(totals - ra.mean(totals, "l")), "l")

    with pytest.raises(ra.NotFusable) as raised:
        ra.fuse(spread_of_logsumexp)
    assert 'fuse it over b (axis="b")' in raised.value.remedy and ra.decide(spread_of_logsumexp, axis="b").fusable


@pytest.mark.parametrize("use", [
    lambda: ra.fuse(attention, axis="z"), lambda: ra.decide("softmax"), lambda: ra.topk(ra.parse("x", {"x": ("l",)}), 3, "l"), lambda: ra.fuse(attention, prefer="fast"),
    lambda: ra.fuse(attention)(1, 2), lambda: ra.fuse(attention)(np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2)), backend="tpu"),
    lambda: ra.operators["atention"], lambda: ra.parse_operator("sum(exq(x), l)"), lambda: ra.fuse(3), lambda: ra.decide(None),
    lambda: ra.fuse(attention, limits=5), lambda: ra.fuse(attention).stream().merge(3), lambda: ra.fuse(attention).stream(start=-1),
    lambda: ra.fuse(attention).stream(length=2.5), lambda: ra.fuse(attention).kernel(dtype={"Z": "float32"}),
    lambda: ra.fuse(attention).kernel(schedule=4), lambda: ra.fuse(attention).export("/proc/attention.py", certificate="none"),
    lambda: ra.fuse(attention).stream().save("/nowhere/at/all"), lambda: ra.fuse(attention).stream().save("/proc/stream"),
])
def test_a_mistake_is_told_in_three_parts(use):
    with pytest.raises(ra.OperatorError) as raised:
        use()
    assert raised.value.asked and raised.value.failed and raised.value.remedy
