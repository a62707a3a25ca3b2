"""The front door: names that users rely on, and an import that brings in nothing heavy."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import redfuser_algebra as ra

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


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'softmaxx'"):
        ra.softmaxx
    with pytest.raises(AttributeError):
        ra._reduced


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


@pytest.mark.parametrize("use", [
    lambda: ra.fuse(attention, axis="z"), lambda: ra.fuse(attention, prefer="fast"),
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
