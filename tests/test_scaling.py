"""Products of many matrices: their state is moved by powers of two, which no output sees, so that long rows stay in range."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cuda_kernels import needs_toolchain, run
from hypothesis import given
from hypothesis import strategies as st
from lowered import plain_module

import redfuser_algebra as ra
from redfuser_algebra.discover.linear import nullspace
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.prove.certificate import certify
from redfuser_algebra.run import kernels
from redfuser_algebra.run.cpu import run_cpu
from redfuser_algebra.run.cuda import made_cuda
from redfuser_algebra.run.reference import fused_by_chunks, fused_by_tree

KALMAN, HMM = (ra.operators[name] for name in ("kalman_scalar", "hmm_forward"))


def filtered(y, drift, noise):
    """The filter in gains, which stay within range."""
    mean, variance = type(drift)(0), type(drift)(1)
    decay, square = (Fraction(9, 10), Fraction(81, 100)) if isinstance(drift, Fraction) else (0.9, 0.81)
    for each in y:
        before = square * variance + drift
        gain = before / (before + noise)
        mean, variance = decay * mean + gain * (each - decay * mean), gain * noise
    return mean, variance


def log_forward(E, A, pi):
    after = pi + E[0]
    for row in E[1:]:
        after = np.logaddexp.reduce(after[:, None] + A, 0) + row
    return np.logaddexp.reduce(after)


@ra.operator
def likelihood(x: "l"):
    """The logarithm of a product of 2 × 2 matrices, read from both states, and a share of them."""
    u, v = ra.scan(lambda u, v: (x * u + v, u + v), "l", (1.0, 1.0))
    return 2 * ra.log(u + v) - 1, u / (u + v)


def in_logarithms(x):
    u, v, size = 1.0, 1.0, 0.0
    for each in x:
        u, v = each * u + v, u + v
        size, u, v = size + np.log(u + v), u / (u + v), v / (u + v)
    return 2 * size - 1, u


@ra.operator
def products(x: "l"):
    """A mean, a logarithm, a root of a quotient under a mask, and a product about a pivot, of products that no float holds."""
    n, m, whole = ra.size("l"), ra.max(ra.abs(x), "l"), ra.prod(x, "l")
    beside = ra.prod(ra.where(ra.index("l") == 1, 3, 1) * x, "l", where=ra.index("l") < n - 1)
    return ra.abs(whole) ** (1 / n), ra.log(ra.abs(whole)), ra.sqrt(beside / whole), ra.abs(ra.prod(x / m, "l")) ** 0.01, 1 / ra.abs(ra.prod(x / m, "l")) ** (1 / n)


def of_logarithms(x):
    logs = np.log(np.abs(x))
    m = logs.max()
    return np.exp(logs.mean()), logs.sum(), np.sqrt(3 / x[-1]), np.exp((logs - m).sum() / 100), np.exp(m - logs.mean())


def test_which_forms_scale_is_found_out():
    def scalings(op):
        return [(sorted(dict(s.weights).items()), s.exponent) for s in ra.fuse(op).form.scalings]

    entries = sorted(c.name for c in ra.fuse(KALMAN).form.state)
    assert scalings(KALMAN) == [([(name, 1) for name in entries], "")]
    assert [exponent for _, exponent in scalings(HMM)] == ["e"] and len(scalings(likelihood)) == 1
    for name in ("attn_gated_linear", "ewma_ewvar", "rwkv_wkv", "iir_biquad", "dfa_transition", "max_drawdown", "turning_points", "softmax"):
        assert not scalings(ra.operators[name]), name


def test_a_state_that_an_output_shows_the_size_of_is_left_alone():
    @ra.operator
    def shown(x: "l"):
        u, v = ra.scan(lambda u, v: (x * u + v, u + v), "l", (1.0, 1.0))
        return u / v, u

    @ra.operator
    def bent(x: "l"):
        u, v = ra.scan(lambda u, v: (x * u + v, u + v), "l", (1.0, 1.0))
        return ra.log(1 + u / v), ra.exp(u - v)

    assert not ra.fuse(shown).form.scalings and not ra.fuse(bent).form.scalings


@given(st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), max_size=4))
def test_a_nullspace_holds_what_makes_equations_0_and_all_of_it(rows):
    equations = [{k: Fraction(v) for k, v in enumerate(row) if v} for row in rows]
    found = nullspace(equations, range(4))
    assert all(not sum(e.get(k, 0) * v for k, v in vector.items()) for e in equations for vector in found)
    assert len(found) == 4 - (np.linalg.matrix_rank(np.array(rows)) if rows else 0)


@pytest.mark.parametrize("length", [3, 4_999, 100_000])
def test_long_rows_are_those_of_a_loop_that_stays_in_range(length, rng):
    y, fused = rng.standard_normal(length), ra.fuse(KALMAN)
    np.testing.assert_allclose(fused(y, backend="numpy"), filtered(y, 0.2, 0.5), rtol=1e-12)
    chain = {"E": rng.standard_normal((min(length, 9_000), 3)), "A": np.log(np.full((3, 3), 0.1)), "pi": np.log(np.ones(3) / 3)}
    np.testing.assert_allclose(ra.fuse(HMM)(**chain, backend="numpy"), log_forward(**chain), rtol=1e-10)


STEEP = {"drift": 1e-40, "noise": 1e-90}
"""Each element multiplies the matrix by about 1e-40, so that three rows of floats would be needed for 20 elements."""


def test_short_rows_of_steep_steps_are_exact_fractions(rng):
    y = rng.integers(-9, 9, 30).astype(float)
    want = filtered(map(Fraction, y.tolist()), Fraction(STEEP["drift"]), Fraction(STEEP["noise"]))
    got = fused_by_chunks(KALMAN, ra.fuse(KALMAN).form, KALMAN.bind(y=y, **STEEP), [30])
    np.testing.assert_allclose(got, list(map(float, want)), rtol=1e-13)


def cases(rng):
    x = 10.0 ** rng.uniform(-90, 90, 40)
    y = rng.standard_normal(40)
    either = np.where(np.arange(40) < 39, rng.choice([-1, 1], 40), 1) * x
    return [(KALMAN, KALMAN.bind(y=y, **STEEP), filtered(y, **STEEP)), (likelihood, likelihood.bind(x=x), in_logarithms(x)),
            (products, products.bind(x=either), of_logarithms(either))]


@pytest.mark.parametrize("value", [1e300, -1e200, 5e-324])
def test_products_of_numbers_at_the_ends_of_the_range(value):
    op = ra.operators["prod_scaled"]
    for length in (1, 2, 7, 40):
        binding, logarithm = op.bind(x=np.full(length, value)), length * np.log(abs(value))
        for sizes in ([length], [1] * length):
            got = fused_by_chunks(op, ra.fuse(op).form, binding, sizes)
            np.testing.assert_allclose(got, ((-1.0 if value < 0 and length % 2 else 1.0), logarithm), rtol=1e-10)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_infinite_products_are_as_written(backend):
    fused = ra.fuse(ra.parse_operator("op(x[l]): sqrt(abs(prod(x, l))), prod(x, l)"))
    for x in ([np.inf] * 3, [-np.inf] * 41, [2.0, np.inf, 1e300, 3.0], [0.0] * 40):
        np.testing.assert_array_equal(fused(np.array(x), backend=backend), fused(np.array(x), backend="reference"))


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_gradients_of_long_products_stay_in_range(backend, rng, monkeypatch):
    """Of the product without each element, which is another product, only its share of the whole is seen."""
    monkeypatch.setattr(kernels, "load", plain_module)
    monkeypatch.setattr(kernels, "_kernels", {})
    x = rng.uniform(1, 9, 500) * 1e3
    for text, want in (("log(prod(x, l))", 1 / x), ("prod(x, l) ** (1 / size(l))", np.exp(np.log(x).mean()) / x / x.size)):
        gradient = ra.fuse(ra.parse_operator(f"f(x[l]): {text}")).gradient()
        np.testing.assert_allclose(gradient(x, 1.0, backend=backend)["x"], want, rtol=1e-12)


def test_splits_and_trees_give_the_same(rng):
    for op, binding, want in cases(rng):
        form = ra.fuse(op).form
        for sizes in ([40], [1] * 40, [13, 0, 27]):
            np.testing.assert_allclose(fused_by_chunks(op, form, binding, sizes), want, rtol=1e-12)
        for seed in range(3):
            np.testing.assert_allclose(fused_by_tree(op, form, binding, [11, 1, 0, 9, 17, 2], seed), want, rtol=1e-12)


def test_kernels_do_it_too_and_an_infinity_hides_no_others(rng, monkeypatch):
    monkeypatch.setattr(kernels, "load", plain_module)
    monkeypatch.setattr(kernels, "_kernels", {})
    for op, binding, want in cases(rng):
        for schedule in (Schedule(16), Schedule(3, 1, 2, 2), Schedule(2, 1, 1, 5)):
            np.testing.assert_allclose(run_cpu(op, ra.fuse(op).form, binding, schedule), want, rtol=1e-12)
    form, y = ra.fuse(KALMAN).form, np.ones(40)
    for y[5] in (np.inf, np.nan):
        binding, variance = KALMAN.bind(y=y, **STEEP), filtered(y, **STEEP)[1]
        with np.errstate(invalid="ignore"):
            got = [run_cpu(KALMAN, form, binding, Schedule(16))[1], fused_by_chunks(KALMAN, form, binding, [13, 27])[1]]
        np.testing.assert_allclose(got, variance, rtol=1e-12)


@needs_toolchain
@pytest.mark.slow
def test_cuda_kernels_do_it_too(rng):
    """A thread takes about ten elements, and warps merge what their threads have come to."""
    y = rng.standard_normal(300).astype("f4").astype("f8")
    x = np.where(y < 0, -1, 1) * 10 ** (4 * np.abs(y)).astype("f4").astype("f8")
    for op, binding, want in ((KALMAN, KALMAN.bind(y=y, **STEEP), filtered(y, **STEEP)), (products, products.bind(x=abs(x)), of_logarithms(abs(x)))):
        ran, _ = run(made_cuda(op, ra.fuse(op).form), binding)
        np.testing.assert_allclose([float(each) for each in ran.outputs], np.float32(want), rtol=1e-6)


@pytest.mark.parametrize("op", [KALMAN, likelihood], ids=lambda op: op.name)
def test_streams_merge_and_a_wrong_scaling_is_found_out(op, rng):
    binding, want = next((b, w) for o, b, w in cases(rng) if o is op)
    form = ra.fuse(op).form
    [scaling] = form.scalings
    without = replace(form, scalings=())
    with np.errstate(all="ignore"):
        assert not np.allclose(fused_by_chunks(op, without, binding, [40]), want, rtol=1e-6), "floats alone do not do"
        for wrong in (scaling.weights[:-1], (*scaling.weights[:-1], (scaling.weights[-1][0], 2))):
            broken = replace(form, scalings=(replace(scaling, weights=wrong),))
            assert not np.allclose(fused_by_chunks(op, broken, binding, [40]), want, rtol=1e-6)
            if op is likelihood:
                assert certify(op, ra.fuse(op).decision.main.cascade, broken, examples=1).row("scaling:1").verdict == "cannot decide"
    assert ra.fuse(op).certify(examples=1).row("scaling:1").verdict == "proved"


def test_states_with_columns_scale_in_numpy_and_have_no_kernel(rng):
    @ra.operator
    def spread(x: "l", w: "c"):
        u, v = ra.scan(lambda u, v: (x * u + w * v, w * u + v), "l", (1.0, 1.0))
        return ra.sum(u, "c") / ra.sum(u + v, "c")

    x, w = 10.0 ** rng.uniform(60, 90, 40), rng.uniform(1, 2, 3)
    form = ra.fuse(spread).form
    assert [s.spread for s in form.scalings] == [("c",)] and np.isclose(ra.fuse(spread)(x, w), 1.0)
    with pytest.raises((LoweringError, OperatorError), match="multiplied together"):
        lower(spread, form)


def test_a_recurrence_of_positive_summands_may_have_any_sign():
    @ra.operator
    def forgotten(x: "l", f: "l"):
        return 1 / ra.scan(lambda Z: f * Z + ra.exp(x), "l", initial=0.0)

    facts = [str(fact) for fact in ra.fuse(forgotten).form.facts]
    assert not [fact for fact in facts if "safe divisor" in fact] and [fact for fact in facts if "divides and may be 0" in fact]
