"""Derivatives: rows of the table, what vanishes, and vector–Jacobian products against finite differences."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

import redfuser_algebra as ra
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.catalogue.entry import ENTRIES
from redfuser_algebra.gradient import Gradient
from redfuser_algebra.language.differentiation import differentiated
from redfuser_algebra.language.formula import parse
from redfuser_algebra.language.polynomial import Polynomials
from redfuser_algebra.prove.trials.exact_functions import FUNCTION_OF, TRUTH_OF
from redfuser_algebra.prove.trials.extended import exact, exactly, is_special
from redfuser_algebra.run.reference import reference

STEP = Fraction(1, 2**40)
NUMBERS = [Fraction(*number) for number in ((-5, 2), (-3, 7), (1, 3), (7, 4))]
EXACT = FUNCTION_OF | TRUTH_OF | {"where": lambda condition, a, b: a if condition else b}


def value(term, known):
    """A formula of exact numbers."""
    if term.op == "param":
        return known[term.name]
    return exact(term.value) if term.op == "const" else EXACT[term.op](*(value(arg, known) for arg in term.args))


def nearest(number):
    """An exact number as a float."""
    return float(number.mid()) if hasattr(number, "mid") else float(number.p) / float(number.q)


@pytest.mark.parametrize("name", [row.name for row in FUNCTIONS.values() if row.derivative])
def test_a_derivative_is_the_slope(name):
    row, compared = FUNCTIONS[name], 0
    for numbers in permutations(NUMBERS, row.arity):
        for place, formula in list(enumerate(row.derivative))[name == "where":]:
            with exactly():
                known = list(map(exact, numbers))
                known[0] = numbers[0] > 0 if name == "where" else known[0]
                moved = [[*known[:place], known[place] + exact(step), *known[place + 1:]] for step in (STEP, -STEP)]
                ahead, behind = (EXACT[name](*operands) for operands in moved)
                slope = value(parse(formula), dict(zip("abc", known, strict=False)))
                if not any(map(is_special, (ahead, behind, slope))):
                    compared += 1
                    error = nearest((ahead - behind) / exact(2 * STEP) - slope)
                    assert abs(error) <= 1e-15 * (1 + abs(nearest(slope))), (numbers, place)
    assert compared >= 2 * row.arity - (name == "where")


# what vanishes over the reals

VANISH = ("sum(x[l] - sum(x[l], l) / size(l), l)", "sum(exp(x[l] - c) / sum(exp(x[l] - c), l), l) - 1",
          "sum(sum(a[l, j] * b[l], j), l) - sum(b[l] * sum(a[l, j], j), l)", "sum(x[l] * c, l, where=y[l] > 0) - c * sum(where(y[l] > 0, x[l], 0), l)",
          "sum(sum(x[l] * y[j], l), j) - sum(x[l], l) * sum(y[j], j)", "(c + x[l]) ** 2 - c * c - x[l] * (x[l] + 2 * c)")
REMAIN = ("sum(x[l] * y[l], l) - sum(x[l], l) * sum(y[l], l)", "sum(x[l], l) - x[l]", "sum(x[l] ** 2, l) - sum(x[l], l) ** 2",
          "sum(sum(a[l, j] * sum(a[l, j], l), j), l) - sum(sum(a[l, j] ** 2, j), l)", "max(x[l], l) - min(x[l], l)", "sum(where(c[l], x[l], 0) - c[l] * x[l], l)",
          "sum(x[l], l, where=c[l]) - sum(c[l] * x[l], l)", "sum(sum(a[l, j], j) * sum(b[l, j], j), l) - sum(sum(a[l, j] * b[l, j], j), l)",
          "sum(x[l] * sum(x[l] * y[j], j), l) - sum(x[l], l) * sum(y[j], j)")


def test_what_vanishes_is_told_from_what_does_not():
    assert [text for text in VANISH if not Polynomials().vanishes(ra.parse(text))] == []
    assert [text for text in REMAIN if Polynomials().vanishes(ra.parse(text))] == []


# gradients

SOFTMAX = ra.parse_operator("softmax(x[l]): e = exp(x - max(x, l)); e / sum(e, l)")


def listed(operator, result):
    return [result] if operator.structure == "single" else list(result.values()) if isinstance(result, dict) else list(result)


def check(operator, arrays, params, rng, gradient=None):
    """Each derivative along a random direction, next to the central difference of the operator as written."""
    gradient = gradient or ra.fuse(operator).gradient()

    def outputs(**moved):
        return listed(operator, reference(operator, operator.bind(**(arrays | moved), **params)))

    cotangents = {name: rng.standard_normal(np.shape(output)) for name, output in cotangents_of(gradient, outputs()).items()}
    found, step = gradient(**arrays, **params, **cotangents), 1e-6
    for name, derivative in found.items():
        assert np.shape(derivative) == np.shape(arrays[name])
        if np.asarray(arrays[name]).dtype.kind == "f":
            direction = rng.standard_normal(np.shape(arrays[name]))
            ahead, behind = (cotangents_of(gradient, outputs(**{name: arrays[name] + sign * step * direction})) for sign in (1, -1))
            expected = sum(np.sum(cotangents[key] * (ahead[key] - behind[key])) for key in cotangents) / (2 * step)
            assert abs(np.sum(derivative * direction) - expected) <= 1e-5 * (1e-3 + np.abs(derivative * direction).sum()), name


def cotangents_of(gradient, outputs):
    """The outputs that have a derivative, by the names of the derivatives by them."""
    operator = gradient.operator
    names = ["dy"] if operator.structure == "single" else [f"dy_{key}" for key in operator.structure] if isinstance(
        operator.structure, tuple) else [f"dy{place + 1}" for place in range(len(outputs))]
    return {name: output for name, output in zip(names, outputs, strict=True) if name in gradient.cotangents}


QUICK = ("softmax_temperature", "logsumexp", "variance", "layernorm", "causal_attention", "absmax_scaled_sum", "topk_mean_fixed",
         "value_at_argmax", "geometric_mean", "cross_entropy", "attn_gated_linear", "max_drawdown", "cum_scans", "abs_change_trapz",
         "kalman_scalar", "kpss_statistic", "rwkv_wkv")


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ra.operators if name != "count_max"])
def test_the_catalogue_next_to_finite_differences(name, rng):
    entry = ENTRIES[name]
    try:
        gradient = ra.fuse(entry.operator).gradient()
    except ra.NotFusable:
        pytest.skip("not fusable")
    except ra.OperatorError as error:
        assert error.asked == f"the gradient of {name}"
        assert any(why in error.failed for why in ("round", "cast", "smoothly", "equal has no derivative"))
        return
    given = entry.inputs(rng, 9) if name != "second_distinct" else {"x": rng.permutation(9) / 3}  # a tie is a kink
    params = {key: given[key] for key in entry.operator.params if key in given}
    check(entry.operator, {key: np.asarray(given[key]) for key in entry.operator.inputs}, params, rng, gradient)


def test_textbook_forms():
    softmax = ra.fuse(SOFTMAX).gradient()
    assert str(softmax.operators["x"]) == ("softmax_dx(x[l], lse[], dy[l]):\n    t1 = exp(x - lse)\n"
                                           "    return (dy - sum(dy * t1, l)) * t1")
    attention = ra.fuse(ra.operators["attention"]).gradient()
    assert attention.saved.structure == ("y", "lse")
    assert attention.operators["K"] is attention.operators["V"] is not attention.operators["Q"]
    assert str(attention.operators["Q"]).splitlines()[1] == (
        "    return scale * sum(K * (sum(dy * V, j) - sum(dy * y, j)) * exp(sum(Q * K, k) * scale - lse), l)")
    assert {verdict.status for verdict in attention.verdicts.values()} == {"fusable"}
    assert "attention_dK_dV: fusable" in str(attention) and "attention_dK_dV: fusable" in attention._repr_html_()
    assert attention._repr_latex_().count("aligned") == 6


# recurrences

@ra.operator
def averaged(x: "l", g: "l", first: "", a: float = 0.3):
    """An average that forgets by g from `first` on, a running log Σ e^x, and the largest that the average has been."""
    every = ra.scan(lambda h: g * h + a * x, "l", first, every="after")
    return every, ra.log(ra.cumulative(ra.sum, ra.exp(x), "l")), ra.scan(lambda h: g * h + a * x, "l", first)


@ra.operator
def decayed(Q: "l d", K: "l d", V: "l v", g: "l d"):
    """Linear attention with decay at every position."""
    return ra.sum(Q * ra.scan(lambda S: g * S + K * V, "l", every="after"), "d")


@ra.operator
def gated(x: "l", u: ""):
    """A step that depends on conditions, and a running maximum."""
    return ra.scan(lambda h: ra.where(x > 0, h, 0.5 * h) + u * x, "l", 0.1), ra.cumulative(ra.max, x, "l") * x


@ra.operator
def paths(x: "l", y: "l", begin: ""):
    """log Σ of all ways through two states, of weights that see e^x and e^y; the first element is where they begin."""
    first = ra.index("l") == 0
    one, other = ra.scan(lambda a, b: (ra.exp(x) * ra.where(first, ra.exp(begin), a + 0.5 * b), ra.exp(y) * ra.where(first, 1.0, 0.25 * a + b)), "l")
    return ra.log(one + other)


@pytest.mark.parametrize("op", [averaged, decayed, gated, paths], ids=lambda op: op.name)
def test_derivatives_of_scans_next_to_finite_differences(op, rng):
    arrays = {name: rng.standard_normal([{"d": 2, "v": 3}.get(axis, 7) for axis in axes]) for name, axes in op.inputs.items()}
    check(op, arrays, {}, rng)


def test_the_derivative_of_a_scan_runs_from_the_last_element_to_the_first(rng):
    gradient = ra.fuse(ra.parse_operator("ewma(x[l]; a=0.1): scan(lambda h: (1 - a) * h + a * x, l, 0.0)")).gradient()
    assert str(gradient.operators["x"]) == "ewma_dx_reversed(x[l], dy[]; a=0.1):\n    return a * scan(lambda a1: a1 * (1 - a), l, dy, before)"
    assert "ewma_dx_reversed: fusable (scan), from the last element along l to the first" in str(gradient) and gradient.saved is None
    np.testing.assert_allclose(gradient(rng.standard_normal(5), 1.0)["x"], 0.1 * 0.9 ** np.arange(5)[::-1])
    largest = ra.fuse(ra.parse_operator("running(x[l]): scan(lambda m: maximum(m, x), l, -inf, after)")).gradient()
    assert list(largest([1.0, 3.0, 3.0, 2.0], np.ones(4))["x"]) == [1, 3, 0, 0], "of equals the first wins"
    assert all(verdict.status == "fusable" for verdict in largest.verdicts.values())


def test_states_of_which_no_derivative_sees_the_size_are_saved_without_it(rng):
    """The derivatives are how likely each state is at each element, and those are 1 together, also where their weights leave float64."""
    gradient = ra.fuse(paths).gradient()
    x, y = rng.standard_normal((2, 2, 400)) + [[3.0], [-3.0]]
    found = gradient(x, y, 0.5, np.ones(2), backend="numpy")
    np.testing.assert_allclose(found["x"] + found["y"], 1, rtol=1e-9)
    np.testing.assert_allclose(found["begin"], found["x"][:, 0].sum())
    assert {verdict.status for verdict in gradient.verdicts.values()} == {"fusable"}
    signed = ra.parse_operator("f(x[l]): log(scan(lambda h: x * h, l, 1.0))")
    assert "/" not in str(differentiated(signed, "l").saved), "x has any sign"


def test_the_largest_of_running_values_is_itself_a_scan(rng):
    """So that what is saved needs no position among them, which no state of parts follows."""
    gradient = ra.fuse(ra.operators["max_subarray"]).gradient()
    assert {verdict.status for verdict in gradient.verdicts.values()} == {"fusable"}
    masked = ra.parse_operator("f(x[l], keep[l]): prod(scan(lambda h: h + x, l, 1.0, after), l, where=keep > 0) + max(scan(lambda h: h * x, l, 1.0, after), l, where=keep > 0)")
    check(masked, {"x": rng.uniform(0.5, 1.5, 6), "keep": np.array([1, 0, 1, 1, 0, 1])}, {}, rng, Gradient(masked, differentiated(masked, "l"), {}))


def test_long_batches_of_scans_run_in_kernels_and_chunks(rng):
    x, g = rng.standard_normal((2, 3, 9000)), rng.uniform(0.5, 1, 9000)
    dy = [rng.standard_normal((2, 3, 9000)), np.zeros((2, 3, 9000)), np.ones((2, 3))]
    gradient = ra.fuse(averaged).gradient()
    slow, fast = (gradient(x, g, 0.5, *dy, backend=backend) for backend in ("numpy", "auto"))
    assert slow["x"].shape == x.shape and slow["g"].shape == g.shape and slow["first"].shape == ()
    back, want = dy[2] * 1.0, np.empty_like(x)
    for at in reversed(range(9000)):
        back = back + dy[0][..., at]
        want[..., at], back = 0.3 * back, back * g[at]
    np.testing.assert_allclose(slow["x"], want, rtol=1e-9, atol=1e-12)
    for name in slow:
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-9, atol=1e-9)


def test_a_scan_along_another_axis_and_a_rounding_in_a_step_are_refused():
    for text, word in (("f(x[l, m]): sum(scan(lambda h: h + x, m, 0.0), l)", "scan"), ("f(x[l]): scan(lambda h: 0.5 * h + round(x), l, 0.0)", "round")):
        with pytest.raises(ra.OperatorError, match=word):
            ra.fuse(ra.parse_operator(text), axis="l").gradient()


def test_the_first_of_equals_wins():
    largest = ra.fuse(ra.parse_operator("largest(x[l]): max(x, l)")).gradient()
    assert list(largest([1.0, 3.0, 3.0], 2.0)["x"]) == [0, 2, 0]
    two = ra.fuse(ra.parse_operator("two(x[l]): topk(x, l, 2)")).gradient()
    assert list(two([3.0, 1.0, 3.0, 3.0], [5.0, 7.0])["x"]) == [5, 0, 7, 0]


def test_a_product_with_zeros():
    product = ra.fuse(ra.parse_operator("product(x[l]): prod(x, l)")).gradient()
    assert list(product([2.0, 0.0, 3.0], 1.0)["x"]) == [0, 6, 0]
    assert list(product([0.0, 0.0, 3.0], 1.0)["x"]) == [0, 0, 0]
    assert list(product([2.0, 4.0, 3.0], 1.0)["x"]) == [12, 6, 8]


def test_what_is_masked_out_takes_no_part(rng):
    gradient = ra.fuse(ra.parse_operator(
        "masked(x[l], v[l], w[l]): m = w > 0; e = exp(x - max(x, l, where=m)); sum(e * v, l, where=m) / sum(e, l, where=m)")).gradient()
    x, v, w = rng.standard_normal(6), rng.standard_normal(6), np.array([1, 0, 1, 1, 0, 1])
    clean = gradient(x, v, w, 1.0)
    x[1], v[4] = 1e300, np.nan
    dirty = gradient(x, v, w, 1.0)
    for name in "xv":
        assert np.array_equal(clean[name], dirty[name]) and not dirty[name][w == 0].any()


def test_batch_that_an_input_lacks_is_added_up(rng):
    gradient = ra.fuse(ra.operators["attention"]).gradient()
    Q, K, V, dy = (rng.standard_normal(shape) for shape in ((3, 4, 5), (6, 5), (1, 6, 2), (3, 4, 2)))
    found = gradient(Q, K, V, dy)
    each = [gradient(Q[h], K, V[0], dy[h]) for h in range(3)]
    assert np.allclose(found["Q"], [one["Q"] for one in each])
    assert np.allclose(found["K"], sum(one["K"] for one in each))
    assert np.allclose(found["V"], [sum(one["V"] for one in each)])
    state = ra.fuse(gradient.saved)(Q, K, V)
    assert np.allclose(gradient(Q, K, V, dy, saved=state)["K"], found["K"])


def test_operators_of_a_gradient_are_certified():
    gradient = ra.fuse(SOFTMAX).gradient()
    certificate = gradient.verdicts["softmax_dx"].fused.certify(examples=5)
    assert certificate.status == "proved", certificate


def test_a_declared_function_has_the_derivative_that_was_tested():
    with ra.declarations():
        with pytest.raises(ra.FalseDeclaration, match="is false for a ="):
            ra.function("softplus", lambda a: np.log1p(np.exp(a)), derivative="exp(-softplus(a))")
        ra.function("softplus", lambda a: np.log1p(np.exp(a)), monotone="s", derivative="1 - exp(-softplus(a))")
        gradient = ra.fuse(ra.parse_operator("f(x[l]): sum(softplus(x), l)")).gradient()
        assert np.allclose(gradient([1.0, -2.0], 3.0)["x"], 3 / (1 + np.exp([-1.0, 2.0])))


def test_refusals_name_the_term():
    def told(text):
        with pytest.raises(ra.OperatorError) as raised:
            ra.fuse(ra.parse_operator(text)).gradient()
        return raised.value

    assert "round has no derivative, in round(x[l])" in told("f(x[l]): sum(round(x), l)").failed
    assert "smoothly" in told("f(x[l]): argmax(x, l)").failed
    with ra.declarations():
        ra.function("halved", lambda a: a / 2, monotone="s")
        assert "halved has no derivative" in told("f(x[l]): max(halved(x), l)").failed
