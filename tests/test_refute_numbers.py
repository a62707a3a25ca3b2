"""The numbers refutation rests on: exact values against NumPy, exact derivatives, ties, ranks and determinants."""
from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given
from hypothesis import strategies as st

import redfuser_algebra as ra
from redfuser_algebra.algebra.floats import FLOAT_FORMATS
from redfuser_algebra.catalogue import operators
from redfuser_algebra.language.binding import number_at
from redfuser_algebra.language.cascade import cascades, primary
from redfuser_algebra.language.expr import Expr, call, subterms
from redfuser_algebra.prove.refutation.bounded import of_finite_rank, windowed
from redfuser_algebra.prove.refutation.elements import (
    between, finer, geometric, geometric_negative, geometric_unit, negative, negative_unit, positive, real, shifted,
    skewed, strides, unit)
from redfuser_algebra.prove.refutation.evaluation import Effort, Setting, Spent, Unsupported
from redfuser_algebra.prove.refutation.gradient import evaluated
from redfuser_algebra.prove.refutation.numbers import (
    OPEN, RATIONAL, balls, between_ends, exact_bounds, fraction, size, wholes, working, written)
from redfuser_algebra.prove.refutation.problem import posed
from redfuser_algebra.prove.refutation.rank import Basis, determinants
from redfuser_algebra.run.rounding import rounded

BALLS = balls(256)
FRACTIONS = st.fractions(-100, 100, max_denominator=64)


# values: the same input gives the same answer as the operator's own reference

def setting_of(operator, inputs, field):
    inputs = operator.signature.completed(inputs)
    terms = subterms(*operator.outputs)
    axes = tuple(dict.fromkeys(axis for term in terms for axis in (
        *term.axes, *((term.axis,) if term.op in ("reduce", "index", "size") else ()))))
    sizes = {axis: 2 for axis in axes}
    for name, own in operator.inputs.items():
        sizes.update(zip(own, np.shape(inputs[name]), strict=True))
    for term in terms:
        if term.op == "reduce" and term.attrs[2]:
            sizes[term.attrs[2]] = int(number_at(term.count, sizes, operator.params))
    arrays = {name: placed(field.array(inputs[name]), own, axes) for name, own in operator.inputs.items()}
    moving = {name: np.zeros(array.shape, bool) for name, array in arrays.items()}
    params = {name: fraction(inputs.get(name, default)) for name, default in operator.params.items()}
    return Setting(field, axes, sizes, arrays, moving, params, 1)


def placed(array, own, axes):
    order = sorted(range(len(own)), key=lambda at: axes.index(own[at]))
    lengths = dict(zip(own, array.shape, strict=True))
    return np.transpose(array, order).reshape(1, *(lengths.get(axis, 1) for axis in axes))


def taken(value, output, own, axes, sizes):
    floats = np.asarray(np.frompyfunc(float, 1, 1)(value)).astype(float) if value.dtype == object else value
    full = np.broadcast_to(floats, (1, *(sizes[axis] if axis in output.axes else 1 for axis in axes)))
    kept = [axis for axis in axes if axis in output.axes]
    return np.transpose(full.reshape([sizes[axis] for axis in kept]), [kept.index(axis) for axis in own])


@pytest.mark.parametrize("name", operators)
def test_values_are_those_of_the_reference(name, rng):
    entry = operators.entry(name)
    operator, inputs = entry.operator, entry.inputs(rng, max(7, entry.shortest))
    with working(BALLS):
        setting = setting_of(operator, operator.signature.completed(inputs), BALLS)
        evaluation = evaluated(setting)
        values = [evaluation.node(output).value for output in operator.outputs]
    expected = entry.reference(**inputs)
    for value, output, own, want in zip(values, operator.outputs, operator.output_axes,
                                        expected if isinstance(expected, tuple) else (expected,), strict=True):
        got = taken(value, output, own, setting.axes, setting.sizes)
        np.testing.assert_allclose(got, np.asarray(want, float), rtol=1e-8, atol=1e-10)


# derivatives against differences of values at a distance of 2⁻¹²⁰

FORMULAS = {
    "add": lambda x, y: x + y * x, "subtract": lambda x, y: x - y * x, "divide": lambda x, y: x / y,
    "negative": lambda x, y: -x * y, "reciprocal": lambda x, y: ra.reciprocal(x) * y,
    "power": lambda x, y: x**3 * y, "power of powers": lambda x, y: x**y, "exp": lambda x, y: ra.exp(x * y),
    "exp2": lambda x, y: ra.exp2(x - y), "expm1": lambda x, y: ra.expm1(x * y), "log": lambda x, y: ra.log(x) * y,
    "log2": lambda x, y: ra.log2(x) * y, "log1p": lambda x, y: ra.log1p(x * y), "sqrt": lambda x, y: ra.sqrt(x * y),
    "abs": lambda x, y: ra.abs(x - 2 * y), "sign": lambda x, y: ra.sign(x - y) * x,
    "sin": lambda x, y: ra.sin(x * y), "cos": lambda x, y: ra.cos(x * y), "tanh": lambda x, y: ra.tanh(x - y), "erf": lambda x, y: ra.erf(x - y),
    "arctan": lambda x, y: ra.arctan(x * y), "arctan2": lambda x, y: ra.arctan2(x, y),
    "logadd": lambda x, y: ra.logadd(x * y, y),
    "maximum": lambda x, y: ra.maximum(x, y) * x, "minimum": lambda x, y: ra.minimum(x, y) * x,
    "where": lambda x, y: ra.where(x < y, x * x, y * y), "logic": lambda x, y: ra.where(~(x < y) & (x > 0.5) | (y > 2), x, y),
    "mod": lambda x, y: x % y, "floor_divide": lambda x, y: (x // y) * x, "floor": lambda x, y: ra.floor(3 * x) * x,
    "ceil": lambda x, y: ra.ceil(3 * x) * y, "round": lambda x, y: ra.round(3 * x) * y,
    "cast": lambda x, y: ra.cast(x, "bfloat16") * x, "cast to float64": lambda x, y: ra.cast(x, "float64") * x,
    "clip": lambda x, y: ra.clip(x * y, 0.3, 2.2), "sigmoid": lambda x, y: ra.sigmoid(x * y),
    "prod of two": lambda x, y: x * y,
}
FOLDS = {
    "sum": lambda t: ra.sum(t, "l"), "prod": lambda t: ra.prod(t, "l"), "max": lambda t: ra.max(t, "l"),
    "min": lambda t: ra.min(t, "l"), "top": lambda t: ra.sum(ra.topk(t, "l", 2, name="t").values, "t"),
    "mean": lambda t: ra.mean(t, "l"), "std": lambda t: ra.std(t, "l"),
    "masked": lambda t: ra.sum(t, "l", where=t > 0.1), "masked max": lambda t: ra.max(t, "l", where=t < 1000),
    "at the largest": lambda t: ra.sum(ra.where(ra.index("l") == ra.argmax(t, "l"), t, 0), "l"),
    "softmax": lambda t: ra.sum(ra.exp(t - ra.max(t, "l")) * t, "l") / ra.sum(ra.exp(t - ra.max(t, "l")), "l"),
}


def problem_of(formula, assume=""):
    def operator(x: "l", y: "l"):
        return formula(x, y)
    made = ra.operator(operator, assume=assume)
    return posed(primary(cascades(made)), made.assume)


def elements(problem, x, y):
    """Elements with these numbers, one column per coordinate that the problem has."""
    columns = {"x": x, "y": y}
    return np.array([[Fraction(value) for value in columns[name]] for name, _ in problem.coordinates], object).T


@pytest.mark.parametrize("name, fold", [*((name, "sum") for name in FORMULAS), *(("prod of two", fold) for fold in FOLDS)])
def test_derivatives_are_differences(name, fold):
    problem = problem_of(lambda x, y: FOLDS[fold](FORMULAS[name](x, y)))
    prefix = elements(problem, ("3/4", "5/4", "12/5"), ("5/3", "2/7", "9/4"))
    suffix = elements(problem, ("13/11",), ("17/13",))
    step = Fraction(1, 2**120)
    with working(BALLS):
        (seen,) = problem.observations(1, problem.outputs[0])
        evaluation = problem.evaluation(BALLS, prefix, [suffix])
        slopes = problem.slopes(evaluation, seen)[0]
        assert problem.holds(evaluation).all()
        for at in np.ndindex(prefix.shape):
            moved = [prefix.copy(), prefix.copy()]
            moved[0][at] -= step
            moved[1][at] += step
            low, high = (problem.observed(problem.evaluation(BALLS, each, [suffix]), seen)[0] for each in moved)
            assert abs((high - low) / (2 * BALLS.number(step)) - slopes[at]) < 1e-25


def test_what_holds_still_has_no_derivative():
    problem = problem_of(lambda x, y: ra.sum(x * y, "l"))
    with working(BALLS):
        evaluation = problem.evaluation(BALLS, elements(problem, (2, 2, 2), (3, 3, 3)), [elements(problem, (5,), (5,))],
                                        moving=[("x", ())])
        slopes = problem.slopes(evaluation, problem.observations(1, problem.outputs[0])[0])[0, :3]
    assert [[float(value) for value in row] for row in slopes] == [[3, 0], [3, 0], [3, 0]]


# ties: a choice that is not certain, or would not stay as it is, may not be used

SPOILT = {
    "a kink": lambda x, y: ra.sum(ra.abs(x - 1), "l"),
    "a tie of two elements": lambda x, y: ra.max(y, "l"),
    "a step": lambda x, y: ra.sum(ra.floor(x), "l"),
    "a comparison": lambda x, y: ra.sum(ra.where(x > 2, x, 0), "l"),
    "the better of two": lambda x, y: ra.sum(ra.maximum(x, 2), "l"),
    "a number as a condition": lambda x, y: ra.sum(ra.where(x - 1, y, 0), "l"),
    "a half to round": lambda x, y: ra.sum(ra.round(x / 2), "l"),
    "a whole quotient": lambda x, y: ra.sum(x % 2, "l"),
    "rivals for the second place": lambda x, y: ra.sum(ra.topk(y, "l", 2, name="t").values, "t"),
}
CERTAIN = {
    "an element and itself": lambda x, y: ra.sum(ra.where(x - ra.max(x, "l") >= 0, y, 0), "l"),
    "the maximum equals itself": lambda x, y: ra.sum(ra.where(x == ra.max(x, "l"), y, 0), "l"),
    "its own share": lambda x, y: ra.sum(ra.where(x / ra.max(x, "l") == 1, y, 0), "l"),
    "nothing times something": lambda x, y: ra.sum(ra.where((x - ra.max(x, "l")) * y == 0, 1, 0), "l"),
    "constants": lambda x, y: ra.sum(ra.where(ra.index("l") >= 1, x, 0), "l"),
}


@pytest.mark.parametrize("body, entries", [
    (lambda x, y: ra.sum(ra.sum(x * y, "k"), "l"), 40 * 40),
    (lambda x, y: ra.scan(lambda s: ra.tanh(s) + x, "l", 0), 40 * 2),
], ids=["pairs", "steps"])
def test_what_is_computed_is_paid_for_before(body, entries):
    """Pairs by their number, and every step of a scan; nothing is begun that is more than what is left."""
    @ra.operator
    def formula(x: "l", y: "k" = "x"):
        return body(x, y)
    problem, effort = posed(primary(cascades(formula)), (), again=formula.again), Effort(10 ** 9)
    about = BALLS, np.full((39, 1), Fraction(1)), [np.full((1, 1), Fraction(2))] * 3
    problem.within(effort).evaluation(*about).node(problem.outputs[0])
    assert 10 ** 9 - effort.left >= 3 * entries
    short = problem.within(Effort(3 * entries - 1)).evaluation(*about)
    with pytest.raises(Spent):
        short.node(problem.outputs[0])
    assert all(node.value.size < 3 * entries for node in short.nodes.values())


@pytest.mark.parametrize("field", [RATIONAL, BALLS], ids=["rational", "ball"])
@pytest.mark.parametrize("name", [*SPOILT, *CERTAIN])
def test_ties_are_not_passed_over(name, field):
    problem = problem_of((SPOILT | CERTAIN)[name])
    prefix, suffix = elements(problem, (1, 2, 3), (1, 1, 1)), elements(problem, ("1/4",), ("1/3",))
    with working(BALLS):
        evaluation = problem.evaluation(field, prefix, [suffix])
        evaluation.node(problem.outputs[0])
    assert evaluation.spoiled.any() == (name in SPOILT)


def test_a_ball_that_is_too_wide_decides_nothing():
    with working(BALLS):
        wide = between_ends(Fraction(0), Fraction(1))
        assert BALLS.order(wide, arb(2)) == -1 and BALLS.order(wide, arb(-1)) == 1
        assert BALLS.order(wide, arb(0.5)) == OPEN and BALLS.order(wide, wide) == 0
        assert size(wide) is None and size(arb(5)) == 2
        low, high = exact_bounds(wide)
        assert low <= 0 and high >= 1


@given(FRACTIONS, st.booleans())
def test_wholes_hold_every_floor_nearby(value, fixed):
    for number in (fmpq(value.numerator, value.denominator), BALLS.number(value)):
        low, high = wholes(number, fixed)
        nearby = Fraction(0) if fixed else Fraction(1, 10**9)
        assert {(value - nearby).__floor__(), value.__floor__()} <= {low, high}
        assert high - low <= 1


@given(st.sampled_from([*FLOAT_FORMATS]), st.fractions(-700, 700, max_denominator=2**12))
def test_casts_round_as_numpy_does(dtype, value):
    expr = Expr("cast", (Expr("input", (), ("x", ())),), (dtype, False))
    setting = Setting(RATIONAL, (), {}, {"x": RATIONAL.array([value])}, {"x": np.zeros(1, bool)}, {}, 1)
    got = evaluated(setting).node(expr).value[0]
    assert float(got.p) / float(got.q) == rounded(np.array([float(value)]), dtype)[0]


@given(FRACTIONS)
def test_rounding_is_to_even_as_numpy_does(value):
    expr = call("round", Expr("input", (), ("x", ())))
    for field in (RATIONAL, BALLS):
        setting = Setting(field, (), {}, {"x": field.array([value])}, {"x": np.zeros(1, bool)}, {}, 1)
        with working(BALLS):
            assert float(exact_bounds(evaluated(setting).node(expr).value[0])[0]) == np.round(float(value))


def test_what_has_no_value_is_said():
    with pytest.raises(Unsupported):
        evaluated(Setting(RATIONAL, (), {}, {}, {}, {}, 1)).node(call("exp", 1))
    with pytest.raises(Unsupported):
        evaluated(Setting(RATIONAL, (), {}, {}, {}, {}, 1)).node(call("divide", 1, 0))
    with pytest.raises(Unsupported):
        evaluated(Setting(RATIONAL, (), {}, {}, {}, {}, 1)).node(call("add", 1, float("inf")))


def test_numbers_are_written_to_be_read():
    assert written(fmpq(-3, 4)) == "-3/4" and written(fmpq(5)) == "5" and written(arb(1) / 4) == "1/4"
    with working(BALLS):
        assert written(arb(1) / 3).startswith("[0.3333333333 +/-")
    assert "a rational of" in written(fmpq(1, 3**400))


# ranks and determinants

def leibniz(matrix):
    total = Fraction(0)
    for order in itertools.permutations(range(len(matrix))):
        sign = (-1) ** sum(a > b for a, b in itertools.combinations(order, 2))
        product = Fraction(sign)
        for row, column in enumerate(order):
            product *= matrix[row][column]
        total += product
    return total


@given(st.lists(st.lists(st.fractions(-3, 3, max_denominator=4), min_size=4, max_size=4), min_size=4, max_size=4))
def test_determinants_are_leading_minors(matrix):
    found = determinants([list(RATIONAL.array(row)) for row in matrix])
    assert {order: Fraction(int(value.p), int(value.q)) for order, value in found.items()} == {
        order: leibniz([row[:order] for row in matrix[:order]]) for order in (1, 2, 3, 4)}


@given(st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_basis_never_has_more_rows_than_the_rank(rank, random):
    factors = [[[Fraction(random.randint(-3, 3)) for _ in range(columns)] for _ in range(rows)]
               for rows, columns in ((9, rank), (rank, 7))]
    product = np.array(factors[0], object) @ np.array(factors[1], object)
    for field in (RATIONAL, BALLS):
        with working(BALLS):
            rows, basis = field.array(product), Basis(field)
            basis.extend(rows[:4], range(4), 9)
            basis.extend(rows[4:], range(4, 9), 9)
            assert len(basis) == np.linalg.matrix_rank(product.astype(float)) <= rank
            chosen = [[rows[row][column] for _, column in basis.pivots] for row, _ in basis.pivots]
            assert not chosen or all(value != 0 for value in determinants(chosen).values())


def test_smooth_kernels_that_floats_call_singular_are_not():
    points = [Fraction(k) for k in range(1, 25)]
    kernel = np.array([[1 / (x + p) for x in points] for p in points], object)
    assert np.linalg.matrix_rank(kernel.astype(float)) < 15
    with working(balls(640)):
        basis = Basis(balls(640))
        basis.extend(balls(640).array(kernel), range(24), 24)
    assert len(basis) == 24


# what formulas say by themselves

FINITE = {
    "a power": lambda x, y: ra.sum((x - ra.mean(x, "l")) ** 9, "l"),
    "an even power of a size": lambda x, y: ra.sum(ra.abs(x - ra.mean(x, "l")) ** 4, "l"),
    "an exponential of a sum": lambda x, y: ra.sum(ra.exp(x - 3 * ra.mean(y, "l")) * x, "l"),
    "a wave of a sum": lambda x, y: ra.sum(ra.sin(x + ra.mean(y, "l")), "l"),
    "a logarithm of a product": lambda x, y: ra.sum(ra.log(x * ra.mean(y, "l")), "l"),
    "a choice by elements": lambda x, y: ra.sum(ra.where(x > 0, x - ra.mean(y, "l"), y), "l"),
    "a size of a product": lambda x, y: ra.sum(ra.abs(x * ra.mean(y, "l")), "l"),
}
UNKNOWN = {
    "a size of a difference": lambda x, y: ra.sum(ra.abs(x - ra.mean(x, "l")), "l"),
    "an exponential of a product": lambda x, y: ra.sum(ra.exp(x * ra.mean(x, "l")), "l"),
    "a choice by pivots": lambda x, y: ra.sum(ra.where(x > ra.mean(x, "l"), 1, 0), "l"),
    "a quotient": lambda x, y: ra.sum(1 / (x - ra.mean(x, "l")), "l"),
    "a maximum": lambda x, y: ra.max(x - ra.mean(x, "l"), "l"),
    "a moving mask": lambda x, y: ra.sum(x, "l", where=x > ra.mean(x, "l")),
    "an odd power of a size": lambda x, y: ra.sum(ra.abs(x - ra.mean(x, "l")) ** 3, "l"),
}


@pytest.mark.parametrize("name", [*FINITE, *UNKNOWN])
def test_finite_rank_by_formula(name):
    def formula(x: "l", y: "l"):
        return (FINITE | UNKNOWN)[name](x, y)
    cascade = primary(cascades(ra.operator(formula)))
    assert of_finite_rank(cascade.reductions[-1], "l") == (name in FINITE)


@pytest.mark.parametrize("condition, bounded", [
    (lambda: ra.index("l") < 40, True), (lambda: ra.index("l") + 1 == ra.size("l"), True),
    (lambda: ra.index("l") == ra.size("l") - 1, False), (lambda: ra.index("l") >= ra.size("l") - 40, True), (lambda: ra.index("l") > ra.size("l"), False),
    (lambda: ra.index("m") - ra.index("l") < 5, True), (lambda: ra.index("l") <= ra.index("m"), False)])
def test_windows(condition, bounded):
    assert windowed([condition()], "l") == bounded
    assert not windowed([condition()], "k")


# elements

@pytest.mark.parametrize("domain, low, high", [
    (real, None, None), (shifted, None, None), (skewed, None, None), (finer(real), None, None), (positive, 0, None),
    (negative, None, 0), (unit, 0, 1), (negative_unit, -1, 0), (geometric, 0, None), (geometric_negative, None, 0),
    (geometric_unit, 0, 1)])
def test_domains_are_increasing(domain, low, high):
    values = [domain(Fraction(k, 4)) for k in range(-300, 300)]
    assert all(a < b for a, b in itertools.pairwise(values))
    assert (low is None or values[0] > low) and (high is None or values[-1] < high)


@given(st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=2, max_size=6, unique=True))
def test_between_is_between(limits):
    limits = sorted(limits)
    if min(b - a for a, b in itertools.pairwise(limits)) > 1e-9:
        found = between(limits)
        assert all(a < value <= b for (a, b), value in zip(itertools.pairwise(limits), found, strict=True))


@given(st.integers(1, 60))
def test_strides_are_a_permutation(count):
    assert sorted(strides(list(range(count)))) == list(range(count))
