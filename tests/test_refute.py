"""Refutation: every operator that cannot be fused gets a witness that can be checked again, and no other one does."""
from __future__ import annotations

import functools
import itertools
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from surface_forms import FUSABLE

import redfuser_algebra as ra
from redfuser_algebra.catalogue import operators
from redfuser_algebra.discover.discovery import discover
from redfuser_algebra.discover.refusal import Refusal, refused_pairs
from redfuser_algebra.language.cascade import cascades, paired, primary
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.prove.fooling import FoolingSet
from redfuser_algebra.prove.passes import passes
from redfuser_algebra.prove.refutation import patterns
from redfuser_algebra.prove.refutation.bounded import of_finite_rank
from redfuser_algebra.prove.refutation.evaluation import Effort, Spent
from redfuser_algebra.prove.refutation.numbers import RATIONAL
from redfuser_algebra.prove.refutation.patterns import seen_by_order
from redfuser_algebra.prove.refutation.problem import posed
from redfuser_algebra.prove.refutation.rank import determinants
from redfuser_algebra.prove.refute import refute
from redfuser_algebra.prove.witness import Crossings, Independence

REFUSED = [name for name in operators if operators.entry(name).verdict == "not fusable"]
ACCEPTED = [name for name in operators if operators.entry(name).verdict != "not fusable"]
PASSES = {
    "hoover_index": "s | s2", "softmax_of_layernorm": "s s2 m | s3 s4", "tv_softmax": "m s m2 s2 | s3",
    "entropy_minmax": "n m s | s2", "focal_soft_frac": "m s | s2", "kb_bn_tanh_gn": "s s2 | s3 s4",
    "twn_ternary_alpha": "s | s2 s3", "cauchy_irls_step": "s s2 | s3 s4", "weibull_newton_step": "s s2 | s3 s4",
    "kmeans_second_step": "s s2 s3 s4 | s5 s6 s7 s8", "farthest_from_centroid_2d": "s | m", "quant_gemm": "m2 | s",
}


@functools.cache
def witness(name):
    operator = operators[name]
    cascade = primary(cascades(operator))
    pair = paired(operator, cascade.axis)
    refusal = refused_pairs(cascade, *pair) if pair else discover(cascade, operator.assume).refusal
    return refute(cascade, operator.assume, refusal, params=operator.params, again=operator.again)


def witnesses(operator, asked=lambda reduction, axis: True):
    """What `refute` answers when forced on each reduction of an operator that is asked about, refused or not."""
    for cascade in cascades(operator):
        for reduction in cascade.reductions:
            if asked(reduction, cascade.axis):
                yield refute(cascade, operator.assume, refusal_of(cascade, reduction), params=operator.params, again=operator.again)


def refusal_of(cascade, reduction):
    return Refusal(cascade.axis, reduction, "", None, {}, exhausted=False, rounding=False)


def is_doubtful(reduction, axis):
    """Whether a reduction sees a pivot and is of no rank that is known to be finite."""
    parts = [part for part in (reduction.body, reduction.mask) if part is not None]
    return any(term.op == "symbol" for term in subterms(*parts)) and not of_finite_rank(reduction, axis)


# every no has a witness

@pytest.mark.parametrize("name", REFUSED)
def test_what_the_catalogue_refuses_has_a_witness(name):
    found = witness(name)
    assert found.reason == operators.entry(name).reason
    assert found.order >= 24
    assert isinstance(found, FoolingSet) or {1, 2, 3, 4, 5, 6, 7, 8, 12, 24} <= set(found.determinants)
    assert found.recheck()


@pytest.mark.parametrize("name", REFUSED)
def test_a_witness_is_told_in_text_and_in_json(name):
    found, text = witness(name), str(witness(name))
    fooling = isinstance(found, FoolingSet)
    assert found.reason in text and ("told apart" if fooling else "determinant") in text and f"at least {found.order} numbers" in text
    facts = json.loads(found.to_json())
    assert facts["prefix"] == [[str(value) for value in row] for row in found.prefix]
    assert len(facts["suffixes"]) == found.order if fooling else facts["determinants"]["8"] == found.determinants[8]


@pytest.mark.parametrize("name", ["mean_absolute_deviation", "tv_softmax", "count_above_mean", "kb_gn_affine_min", "mode_unbounded"])
def test_a_witness_is_found_the_same_twice(name):
    again = witness.__wrapped__(name)
    assert again.to_json() == witness(name).to_json()
    assert str(again) == str(witness(name))


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "kb_softmax_sub_swish_max"])
def test_prefixes_are_readable(name):
    found = witness(name)
    assert all(value.denominator <= 2**14 and abs(value.numerator) <= 2**24 for value in found.prefix.flat)


def test_sums_come_with_numbers_to_check_by_hand():
    found = witness("mean_absolute_deviation")
    elements = [found.prefix[at, 0] for at in found.table.elements]
    pivots = [(sum(found.prefix[:, 0]) + found.suffixes[at][0, 0]) / 27 for at in found.table.suffixes]
    matrix = [RATIONAL.array([abs(x - p) for x in elements]) for p in pivots]
    expected = {order: str(Fraction(int(value.p), int(value.q))) for order, value in determinants(matrix).items()}
    assert found.table.determinants == expected and set(expected) == {1, 2, 3, 4, 5, 6, 7, 8, 12}


@pytest.mark.parametrize("name", ["semi_hard_negative", "farthest_from_centroid_2d", "kb_gn_affine_min"])
def test_for_a_maximum_the_order_of_two_elements_flips(name):
    (ap, bp), (aq, bq) = ([float(value.strip("[]").split(" ")[0]) for value in row] for row in witness(name).table.values)
    assert (ap < bp) != (aq < bq)


# fooling sets

def test_a_fooling_set_tells_any_two_of_its_prefixes_apart():
    """Of random prefixes in the same order, each two differ in the result after one of the suffixes made for them."""
    found, rng = witness("n_unique"), np.random.default_rng(0)
    prefixes = [[float(value) + rng.uniform(-0.4, 0.4) for value in found.prefix[:, 0]] for _ in range(8)]
    prefixes += [[*prefixes[0][:5], prefixes[0][5] + 1e-9, *prefixes[0][6:]]]
    for one, other in itertools.combinations(prefixes, 2):
        assert any(len({*one, x}) - len({*other, x}) for x in one)


@pytest.mark.parametrize("name", ["kendall_inversions", "max_intersections", "lis_length"])
def test_a_fooling_set_that_was_tampered_with_does_not_hold(name):
    found = witness(name)
    same = replace(found.steerings[3], suffixes=(found.steerings[3].suffixes[0],) * 3)
    assert not replace(found, steerings=(*found.steerings[:3], same, *found.steerings[4:])).recheck()


def test_results_that_are_no_matter_of_order_are_not_argued_by_order():
    for body in (lambda x, y: ra.sum(ra.sum(ra.where(x > y, x, 0), "k"), "l"), lambda x, y: ra.sum(ra.count(x + y > 0, "k"), "l")):
        operator = over_pairs(body)
        assert not seen_by_order(posed(primary(cascades(operator)), (), again=operator.again))


def over_pairs(body):
    def formula(x: "l", y: "k" = "x"):
        return body(x, y)
    return ra.operator(formula)


PAIRS_OF_FINITE_RANK = {
    "all products": lambda x, y: ra.sum(ra.sum(x * y, "k"), "l"),
    "squares of differences": lambda x, y: ra.sum(ra.sum((x - y) ** 2, "k"), "l"),
    "products of those before": lambda x, y: ra.sum(ra.sum(x * y, "k", where=ra.index("k") < ra.index("l")), "l"),
    "largest difference": lambda x, y: ra.max(ra.max(x - y, "k"), "l"),
    "is there a pair": lambda x, y: ra.any(ra.any(x > y, "k"), "l"),
    "cosines of differences": lambda x, y: ra.sum(ra.sum(ra.cos(x - y), "k"), "l"),
    "pairs that are both positive": lambda x, y: ra.sum(ra.count((x > 0) & (y > 0), "k"), "l"),
    "equal signs": lambda x, y: ra.sum(ra.count(ra.sign(x) == ra.sign(y), "k"), "l"),
    "above all others": lambda x, y: ra.count(ra.all(x >= y, "k"), "l"),
    "different elements, up to 30": lambda x, y: ra.minimum(ra.count(ra.all((ra.index("k") >= ra.index("l")) | (x != y), "k"), "l"), 30),
    "falls among the last 30": lambda x, y: ra.count(
        (2 * ra.count((ra.index("k") > ra.index("l")) & (y <= ra.max(x, "l")), "k") < 60) & ra.any((ra.index("k") > ra.index("l")) & (x > y), "k"), "l"),
    "different ones of the 40 largest": lambda x, y: ra.count(
        (ra.count(y > x, "k") < 40) & ra.all((ra.index("k") >= ra.index("l")) | (x != y), "k"), "l"),
}


@pytest.mark.parametrize("name", PAIRS_OF_FINITE_RANK)
def test_pairs_that_a_few_numbers_tell_are_not_refuted(name):
    assert set(witnesses(over_pairs(PAIRS_OF_FINITE_RANK[name]))) <= {None}


def test_a_quadratic_form_says_nothing_of_its_matrix():
    @ra.operator
    def form(x: "l", W: "l k", y: "k" = "x"):
        return ra.sum(ra.sum(x * W * y, "k"), "l") / ra.sum(ra.abs(x - ra.mean(x, "l")), "l")
    assert set(witnesses(form)) <= {None}


# no false no

TWINS = {
    "gap to the maximum": lambda x, y: ra.sum(ra.abs(x - ra.max(x, "l")), "l"),
    "gap to the maximum, as a root": lambda x, y: ra.sum(ra.sqrt((x - ra.max(x, "l")) ** 2), "l"),
    "maximum with the maximum": lambda x, y: ra.sum(ra.maximum(x, ra.max(x, "l")), "l"),
    "all below the maximum": lambda x, y: ra.sum(ra.where(x <= ra.max(x, "l"), y, 0), "l"),
    "count of the maximum": lambda x, y: ra.sum(ra.where(x == ra.max(x, "l"), y, 0), "l"),
    "seventh moment": lambda x, y: ra.sum((x - ra.mean(x, "l")) ** 7, "l"),
    "thirtieth moment": lambda x, y: ra.sum((x - ra.mean(x, "l")) ** 30, "l"),
    "thirtieth moment of sizes": lambda x, y: ra.sum(ra.abs(x - ra.mean(x, "l")) ** 30, "l"),
    "a product of high moments": lambda x, y: ra.sum((x - ra.mean(x, "l")) ** 12 * (y - ra.mean(y, "l")) ** 12, "l"),
    "a wave about the mean": lambda x, y: ra.sum(ra.cos(x - ra.mean(x, "l")) * (x - ra.mean(x, "l")) ** 3, "l"),
    "farthest from the mean": lambda x, y: ra.max(ra.abs(x - ra.mean(x, "l")), "l"),
    "is any above the mean": lambda x, y: ra.any(x > ra.mean(x, "l"), "l"),
    "the mean scales a maximum": lambda x, y: ra.max(x * ra.mean(y, "l"), "l"),
    "two halves that cancel": lambda x, y: ra.sum(ra.abs(x - ra.mean(x, "l")), "l")
    - 2 * ra.sum(ra.relu(x - ra.mean(x, "l")), "l"),
    "nothing is seen": lambda x, y: 0 * ra.sum(ra.abs(x - ra.mean(x, "l")), "l"),
    "a window": lambda x, y: ra.sum(ra.where(ra.index("l") < 40, ra.abs(x - ra.mean(x, "l")), 0), "l"),
    "payload of the largest": lambda x, y: ra.sum(ra.where(ra.index("l") == ra.argmax(x, "l"), y, 0), "l"),
    "above the second largest": lambda x, y: ra.sum(ra.relu(x - ra.topk(x, "l", 2).values), "l"),
    "sigmoid of a distance to the maximum, by maximum": lambda x, y: ra.max(ra.tanh(x - ra.max(y, "l")), "l"),
    "a rounding that may be regrouped": lambda x, y: ra.sum(
        ra.round(x / ra.max(ra.abs(x), "l"), reassociate=True) * y, "l"),
    "none above the maximum": lambda x, y: ra.count(x > ra.max(x, "l"), "l"),
    "the second largest of those that differ": lambda x, y: ra.max(ra.where(x < ra.max(x, "l"), x, -np.inf), "l"),
    "labels": lambda x, y: ra.sum(ra.where(x > 0, 1, 0) * ra.mean(y, "l"), "l"),
}


def over_l(body):
    def formula(x: "l", y: "l"):
        return body(x, y)
    return ra.operator(formula)


@pytest.mark.parametrize("name", TWINS)
def test_a_near_twin_that_fuses_is_not_refuted(name):
    assert set(witnesses(over_l(TWINS[name]))) == {None}


@pytest.mark.parametrize("operator", FUSABLE, ids=lambda operator: operator.name)
def test_what_people_write_and_what_fuses_is_not_refuted(operator):
    assert set(witnesses(operator, is_doubtful)) <= {None}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_catalogue_fuses_is_not_refuted(name):
    assert set(witnesses(operators[name], is_doubtful)) <= {None}


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCEPTED)
def test_no_other_reduction_of_what_the_catalogue_fuses_is_refuted(name):
    assert set(witnesses(operators[name], lambda *asked: not is_doubtful(*asked))) <= {None}


def test_nothing_is_claimed_without_effort():
    operator = operators["mean_absolute_deviation"]
    cascade = primary(cascades(operator))
    assert refute(cascade, (), refusal_of(cascade, cascade.reductions[-1]), budget=0) is None


def test_patterns_of_many_coordinates_are_not_tried_without_end(monkeypatch):
    tried, suffixes = [], patterns._suffixes
    monkeypatch.setattr(patterns, "_suffixes", lambda *about: tried.append(about) or suffixes(*about))
    @ra.operator
    def chosen(x: "l", y: "l", z: "l"):
        return ra.scan(lambda s: ra.where(s < x, y, z), "l", 0)
    problem = posed(primary(cascades(chosen)), (), behind=True).within(Effort(40_000))
    with pytest.raises(Spent):
        patterns.told_apart(problem, problem.cascade.reductions[0])
    assert 0 < len(tried) <= 10


def test_rank_alone_would_refute_what_fuses():
    """|x − p| has full rank for free p; but x ≤ max x, and of the pivots that suffixes can reach, rank 2 is left."""
    points, pivots = range(8), [Fraction(2 * k + 1, 2) for k in range(8)]
    minors = determinants([RATIONAL.array([abs(x - p) for x in points]) for p in pivots])
    assert all(value != 0 for value in minors.values())
    assert set(witnesses(operators["mean_gap_to_max"])) == {None}


# operators outside the catalogue

def nearest_e4m3(value):
    """An 8-bit float with 4 exponent and 3 mantissa bits, written with floor and log2."""
    step = ra.exp2(ra.clip(ra.floor(ra.log2(ra.maximum(ra.abs(value), 2.0 ** -20))), -6, 8) - 3)
    return ra.sign(value) * ra.minimum(ra.round(ra.abs(value) / step) * step, 448.0)


REFUTED = {
    "exp(-|x - mean|)": ("unbounded-rank", lambda x, y: ra.sum(ra.exp(-ra.abs(x - ra.mean(x, "l"))), "l")),
    "nearest to the mean": ("envelope", lambda x, y: ra.min(ra.abs(x - ra.mean(x, "l")), "l")),
    "position nearest to the mean": ("envelope", lambda x, y: ra.argmin(ra.abs(x - ra.mean(x, "l")), "l")),
    "softplus of the gap": ("unbounded-rank", lambda x, y: ra.sum(ra.log(1 + ra.exp(x - ra.max(x, "l"))), "l")),
    "mean above the mean": ("threshold", lambda x, y: ra.mean(x, "l", where=x > ra.mean(x, "l"))),
    "share above the mean": ("threshold", lambda x, y: ra.count(x > ra.mean(x, "l"), "l") / ra.size("l")),
    "signs about the mean": ("threshold", lambda x, y: ra.sum(ra.sign(x - ra.mean(x, "l")), "l")),
    "above half of the largest": ("threshold", lambda x, y: ra.sum(x, "l", where=x > 0.5 * ra.max(x, "l"))),
    "how many are in the lower half": ("threshold", lambda x, y: ra.count(x < (ra.min(x, "l") + ra.max(x, "l")) / 2, "l")),
    "payload at the mean": ("threshold", lambda x, y: ra.sum(ra.where(x == ra.mean(x, "l"), y, 0), "l")),
    "highest line": ("envelope", lambda x, y: ra.max(x - y * ra.mean(x, "l"), "l")),
    "the better of the worse": ("envelope", lambda x, y: ra.max(ra.minimum(x - ra.mean(x, "l"), y), "l")),
    "product of deviations": ("unbounded-rank", lambda x, y: ra.prod(x - ra.mean(x, "l"), "l")),
    "power of the mean": ("unbounded-rank", lambda x, y: ra.sum(ra.exp(x * ra.mean(y, "l")), "l")),
    "clipped at the mean size": ("unbounded-rank", lambda x, y: ra.sum(
        ra.clip(x, -ra.mean(ra.abs(x), "l"), ra.mean(ra.abs(x), "l")), "l")),
    "softmax weights in bfloat16": ("rounding", lambda x, y: ra.sum(
        ra.cast(ra.exp(x - ra.max(x, "l")), "bfloat16") * y, "l")),
    "an 8-bit float written out": ("rounding", lambda x, y: ra.sum(nearest_e4m3(x / (ra.max(ra.abs(x), "l") / 448.0)) * y, "l")),
    "winsorised at two deviations": ("unbounded-rank", lambda x, y: ra.sum(
        ra.clip(x, ra.mean(x, "l") - 2 * ra.std(x, "l"), ra.mean(x, "l") + 2 * ra.std(x, "l")), "l")),
    "rounded, clipped and scaled back": ("rounding", lambda x, y: ra.sum(
        ra.clip(ra.round(x / (ra.max(ra.abs(x), "l") / 127)), -128, 127) * (ra.max(ra.abs(x), "l") / 127), "l")),
    "a quantile near the end": ("order-statistic", lambda x, y: ra.quantile(x, "l", 0.95)),
    "runs about the mean": ("threshold", lambda x, y: ra.count(
        (x > ra.mean(x, "l")) != ra.previous(x > ra.mean(x, "l"), "l"), "l")),
    "points in an ellipse of their own": ("threshold", lambda x, y: ra.count(
        (x - ra.mean(x, "l")) ** 2 / ra.var(x, "l") + (y - ra.mean(y, "l")) ** 2 / ra.var(y, "l") < 2, "l")),
    "behind an epilogue": ("unbounded-rank", lambda x, y: 0.5 * ra.exp(ra.sum(ra.abs(x - ra.mean(x, "l")), "l"))),
}


@pytest.mark.parametrize("name", REFUTED)
def test_other_operators_that_cannot_fuse(name):
    reason, body = REFUTED[name]
    operator = over_l(body)
    cascade = primary(cascades(operator))
    found = refute(cascade, (), refusal_of(cascade, cascade.reductions[-1]))
    assert found.reason == reason and found.recheck()


def test_declared_conditions_hold_for_every_element():
    def score(x: "l", w: "l"):
        return ra.sum(w * ra.abs(x - ra.mean(x, "l")), "l")
    operator = ra.operator(score, assume="x > 0, x < 1, w <= 0")
    cascade = primary(cascades(operator))
    found = refute(cascade, operator.assume, refusal_of(cascade, cascade.reductions[-1]))
    at = [name for name, _ in found.problem.coordinates].index("x")
    for elements in (found.prefix, *found.suffixes):
        assert all(0 < element[at] < 1 and element[1 - at] <= 0 for element in elements)
    assert found.recheck()


@pytest.mark.parametrize("assume, reason", [
    ("x > 0", "unbounded-rank"), ("x > 0, x < 1", "unbounded-rank"), ("abs(x) <= 1", "unbounded-rank"),
    ("x < 0", "unbounded-rank")])
def test_bounded_elements_are_steered_by_many(assume, reason):
    def deviation(x: "l"):
        return ra.sum(ra.abs(x - ra.mean(x, "l")), "l")
    operator = ra.operator(deviation, assume=assume)
    found = [each for each in witnesses(operator) if each]
    assert [each.reason for each in found] == [reason] and found[0].recheck()


def test_positive_elements_are_tried_on_a_scale_of_powers():
    def spread(x: "l", w: "l"):
        return ra.sum(w * ra.abs(ra.log(x) - ra.mean(ra.log(x), "l")), "l")
    found = [each for each in witnesses(ra.operator(spread, assume="x > 0")) if each]
    assert [each.reason for each in found] == ["unbounded-rank"]


def test_conditions_that_leave_no_room_prove_nothing():
    def deviation(x: "l"):
        return ra.sum(ra.abs(x - ra.mean(x, "l")), "l")
    operator = ra.operator(deviation, assume="(x == 0) | (x == 1)")
    assert set(witnesses(operator)) == {None}


def test_parameters_take_their_defaults_first():
    def focal(x: "l", gamma: float = 1.5):
        return ra.sum(ra.abs(x - ra.mean(x, "l")) ** gamma, "l")
    operator = ra.operator(focal)
    found = [each for each in witnesses(operator) if each]
    assert [each.problem.params["gamma"] for each in found] == [Fraction(3, 2)]


# a checker that has never caught anything is not trusted

def fractions(text):
    return {order: f"{value}1" for order, value in text.items()}


def doubled(elements):
    """The second element made equal to the first."""
    copy = elements.copy()
    copy[1] = copy[0]
    return copy


MUTANTS = {
    "two elements alike": lambda w: replace(w, prefix=doubled(w.prefix)),
    "a number changed": lambda w: replace(w, prefix=w.prefix + np.eye(*w.prefix.shape, dtype=int) * Fraction(1, 3)),
    "a shorter prefix": lambda w: replace(w, prefix=w.prefix[:-1]),
    "a column twice": lambda w: replace(w, columns=(w.columns[0], *w.columns[:-1])),
    "columns in another order": lambda w: replace(w, columns=w.columns[::-1]),
    "other determinants": lambda w: replace(w, determinants=fractions(w.determinants)),
    "a determinant left out": lambda w: replace(w, determinants=dict(list(w.determinants.items())[1:])),
    "a determinant of 0": lambda w: replace(w, determinants={**w.determinants, 1: "0"}),
}
OF_RESULTS = {
    "a suffix twice": lambda w: replace(w, suffixes=(w.suffixes[0], *w.suffixes[:-1])),
    "a suffix changed": lambda w: replace(w, suffixes=(w.suffixes[0] + 1, *w.suffixes[1:])),
    "another table": lambda w: replace(w, table=replace(w.table, values=(("1", "1"), ("1", "1")))),
    "another element in the table": lambda w: replace(w, table=replace(w.table, elements=w.table.elements[::-1])),
}
OF_JUMPS = {
    "a jump twice": lambda w: replace(w, jumps=(w.jumps[0], *w.jumps[:-1])),
    "nothing jumps there": lambda w: replace(
        w, jumps=(replace(w.jumps[0], low=w.jumps[0].low + 1, high=w.jumps[0].high + 1), *w.jumps[1:])),
    "an interval with two jumps": lambda w: replace(
        w, jumps=(replace(w.jumps[0], high=w.jumps[0].high + 60), *w.jumps[1:])),
    "an interval without the turn": lambda w: replace(
        w, jumps=(replace(w.jumps[0], high=w.jumps[0].low), *w.jumps[1:])),
}
IN_BALLS = {"too little precision": lambda w: replace(w, bits=20)}
CHECKED = [(name, {**MUTANTS, **OF_RESULTS}) for name in (
    "mean_absolute_deviation", "semi_hard_negative", "quant_gemm")]
CHECKED += [("softmax_of_deviation", {**MUTANTS, **OF_RESULTS, **IN_BALLS})]
CHECKED += [("count_above_mean", {**MUTANTS, **OF_JUMPS})]


@pytest.mark.parametrize("name, mutant", [(name, mutant) for name, mutants in CHECKED for mutant in mutants])
def test_a_witness_that_was_tampered_with_does_not_pass(name, mutant):
    found = witness(name)
    assert isinstance(found, Crossings if name == "count_above_mean" else Independence)
    assert not dict(CHECKED)[name][mutant](found).recheck()


def test_a_jump_of_a_position_is_one_turn_and_no_more():
    cascade = primary(cascades(over_l(REFUTED["position nearest to the mean"][1])))
    found = refute(cascade, (), refusal_of(cascade, cascade.reductions[-1]))
    wider = [replace(jump, low=jump.low - 40, high=jump.high + 40) for jump in found.jumps]
    assert found.recheck() and not replace(found, jumps=(wider[0], *found.jumps[1:])).recheck()


@pytest.mark.parametrize("name", ["hoover_index", "semivariance", "count_above_mean"])
def test_a_witness_of_another_operator_does_not_pass(name):
    found = witness(name)
    other = primary(cascades(operators["count_max" if name == "count_above_mean" else "variance"]))
    problem = replace(found.problem, cascade=other, outputs=tuple(
        reduction.source for reduction in other.reductions[-1:]))
    reduction = other.reductions[-1]
    tables = {"table": None} if isinstance(found, Independence) else {}
    assert not replace(found, problem=problem, reduction=reduction, **tables).recheck()


# the best alternative

@pytest.mark.parametrize("name", PASSES)
def test_passes(name):
    operator = operators[name]
    found = passes(primary(cascades(operator)), operator.assume)
    assert " | ".join(" ".join(each) for each in found) == PASSES[name]


@pytest.mark.parametrize("name", ["softmax", "variance", "attention"])
def test_what_fuses_needs_one_pass(name):
    cascade = primary(cascades(operators[name]))
    assert passes(cascade) == (tuple(reduction.name for reduction in cascade.reductions),)
