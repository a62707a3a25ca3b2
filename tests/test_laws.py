"""Every row of the law table on values: a row that is added is a test before anybody names it here.

Over the reals, exactly; on floats, as its tag says; and as a row, by the words it uses.  What the e-graph makes of a
row is in test_law_rules.
"""

from dataclasses import replace

import law_arithmetic
import law_values
import numpy as np
import pytest
from law_arithmetic import EXACT, FLOATS, Grid, Undefined
from law_terms import CONTRACTIONS, conditions, heads, read, variables
from law_values import drawn
from redfuser_algebra.algebra import laws
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.laws import LAWS, SIGNS, Law, SignRule
from redfuser_algebra.algebra.monoids import MONOIDS

ENABLED = [law for law in LAWS.values() if law.role != "disabled"]
DISABLED = [law for law in LAWS.values() if law.role == "disabled"]
TAGS = {"exact", "ieee", "rounding"}
ROLES = {"always", "centred", "raw", "ordered", "normal form", "alternative", "disabled"}

each_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
each_enabled = pytest.mark.parametrize("law", ENABLED, ids=lambda law: law.name)
each_sign = pytest.mark.parametrize("rule", SIGNS, ids=lambda rule: rule.name)


# over the reals and on floats


def lengths(*sides):
    """Lengths of l to try: 0, too, where nothing but sums, products, any and all is reduced."""
    chosen = heads(*sides) & set(MONOIDS)
    return range(0 if chosen and chosen <= {"sum", "prod", "any", "all"} else 1, 5)


def grids(rng, draws, *sides):
    width = 3 if heads(*sides) & set(CONTRACTIONS) else 1
    while True:
        yield Grid(int(rng.choice(lengths(*sides))), width, draws)


def refuted_over_the_reals(law, rng, wanted=25, patience=600):
    """Values that meet the conditions of a row and make its sides differ, or None after `wanted` agreements.

    The left side must have a value; then the right side must have the same one.
    """
    left, right = read(law.lhs), read(law.rhs)
    for _, grid in zip(range(patience), grids(rng, 1, left, right), strict=False):
        values = settled_rounding(law, drawn((left, right), law.requires, grid, rng, law_values.RATIONALS))
        try:
            expected, _ = law_arithmetic.evaluated(left, EXACT, grid, values)
        except Undefined:
            continue
        try:
            got, _ = law_arithmetic.evaluated(right, EXACT, grid, values)
        except Undefined:
            return values
        if not all(map(law_arithmetic.same_real, *(side.flat for side in np.broadcast_arrays(got, expected)))):
            return values
        wanted -= 1
        if not wanted:
            return None
    raise AssertionError(f"{law}: only a few draws gave its left side a value; {wanted} are missing")


def settled_rounding(law, values):
    """A rounding may move only where nothing moves: the law is exact at ratio 1, and stated for no other."""
    return values | {"q": values["p"]} if law.tag == "rounding" else values


def refuted_on_floats(law, rng):
    """Floats that make the sides of a row differ by more than its tag allows, or None."""
    left, right = read(law.lhs), read(law.rhs)
    pools = law_values.ADVERSARIAL if law.tag == "ieee" else law_values.BENIGN
    compared = 0
    for _, grid in zip(range(8), grids(rng, 300, left, right), strict=False):
        values = settled_rounding(law, drawn((left, right), law.requires, grid, rng, pools))
        expected, known = law_arithmetic.evaluated(left, FLOATS, grid, values)
        got, more = law_arithmetic.evaluated(right, FLOATS, grid, values)
        got, expected = (np.broadcast_to(side, np.broadcast_shapes(got.shape, expected.shape)).astype(float)
                         for side in (got, expected))
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        defined = np.isfinite([largest(part, grid) for part in known.values()]).all(axis=0)
        if law.tag == "exact":
            scale = np.max([largest(part, grid) for part in (*known.values(), *more.values())], axis=0, initial=1)
            near = np.isfinite(scale) & (np.abs(got - expected) <= 1e-12 * scale)
            same |= near | ~defined
        if not same.all():
            return values
        compared += defined.sum()
    assert compared >= 100, f"{law}: hardly any draw gave its left side a value"
    return None


def largest(part, grid):
    """How large a part of a term is in each draw; what a value is made of is what its roundings are relative to."""
    return np.broadcast_to(np.max(np.abs(part.astype(float)), axis=(0, 1), initial=0), grid.draws)


@each_enabled
def test_law_holds_over_the_reals(law, rng):
    assert refuted_over_the_reals(law, rng) is None


@each_enabled
def test_law_holds_on_floats(law, rng):
    assert refuted_on_floats(law, rng) is None


@pytest.mark.parametrize("law", DISABLED, ids=lambda law: law.name)
def test_disabled_law_is_still_refuted(law):
    values = {name: np.reshape(value, (-1, 1, 1)) for name, value in law.counterexample.items()}
    left, right = read(law.lhs), read(law.rhs)
    assert set(values) == set(variables(left, right))
    assert [name for name, (name_of,) in conditions(law.requires) if len(values[name_of]) > 1] == []
    grid = Grid(max(map(len, values.values())))
    got, expected = (law_arithmetic.evaluated(side, FLOATS, grid, values)[0].astype(float) for side in (right, left))
    assert not ((got == expected) | (np.isnan(got) & np.isnan(expected))).all()


def sign_refuted(rule, rng, draws=100):
    term = read(rule.term)
    holds = {"positive": lambda value: value > 0, "nonnegative": lambda value: value >= 0}[rule.sign]
    for _ in range(draws):
        values = drawn((term,), rule.requires, Grid(1), rng, law_values.RATIONALS)
        try:
            result, _ = law_arithmetic.evaluated(term, EXACT, Grid(1), values)
        except Undefined:
            continue
        if not holds(result.item()):
            return values
    return None


@each_sign
def test_sign_holds_over_the_reals(rule, rng):
    assert sign_refuted(rule, rng) is None


# the checkers can fail

MUTANTS = [
    ("max_scales_by_nonnegative", {"requires": "invariant(c)"}),
    ("max_scales_by_nonnegative", {"requires": "nonnegative(c)"}),
    ("max_shifts", {"requires": ""}),
    ("max_of_maximum", {"rhs": "minimum(max(a), max(b))"}),
    ("max_of_reciprocal", {"requires": ""}),
    ("min_of_exp", {"rhs": "exp(max(a))"}),
    ("max_enters_largest", {"rhs": "smallest(max(a))"}),
    ("maximum_scales", {"requires": "moving(c)"}),
    ("sum_pulls_invariant", {"requires": ""}),
    ("sum_of_invariant", {"rhs": "c"}),
    ("contract_adds", {"rhs": "contract(a) + b"}),
    ("recentre_difference", {"rhs": "shift(a, p) - shift(p, q)"}),
    ("recentre_ratio", {"rhs": "scaled(a, p) * ratio(q, p)"}),
    ("recentre_ratio", {"requires": "pivot(p, q), element(a)"}),
    ("reset", {"requires": "pivot(p, q), element(a)"}),
    ("reset_among", {"requires": ""}),
    ("log_of_product", {"requires": ""}),
    ("exp_of_log", {"lhs": "log(exp(a))", "rhs": "exp(a)"}),
    ("sin_of_sum", {"rhs": "sin(a) * cos(b) - cos(a) * sin(b)"}),
    ("sqrt_of_product", {"requires": ""}),
    ("power_of_product", {"requires": "invariant(r)"}),
    ("abs_of_nonpositive", {"rhs": "a"}),
    ("sign_of_positive", {"requires": "nonnegative(a)"}),
    ("argmax_ignores_positive_scale", {"requires": "invariant(c), nonnegative(c)"}),
    ("argmax_of_maximum", {"rhs": "where(max(a) >= max(b), argmax(a), argmax(b))"}),
    ("topk_shifts", {"rhs": "topk(a)"}),
    ("any_above", {"rhs": "fmin(a) > c"}),
    ("all_reaching", {"rhs": "min(a) > c"}),
    ("any_not", {"rhs": "~any(a)"}),
    ("prod_of_invariant", {"rhs": "c"}),
    ("rounding_moves_ratio", {"tag": "exact"}),
]


@pytest.mark.parametrize("name, change", MUTANTS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_false_row_is_refuted(name, change, rng):
    assert refuted_over_the_reals(replace(LAWS[name], **change), rng, wanted=3000, patience=30_000) is not None


@pytest.mark.parametrize("name, change", [
    ("max_shifts", {"tag": "ieee"}), ("max_scales_by_nonnegative", {"tag": "ieee"}), ("max_of_log", {"tag": "ieee"}),
    ("fmax_of_maximum", {"tag": "ieee"}), ("distribute", {"tag": "ieee"}), ("sign_of_positive", {"tag": "ieee"}),
    ("any_above", {"rhs": "max(a) > c"}), ("all_above", {"rhs": "fmin(a) > c"}),
    ("sum_adds", {"rhs": "sum(a) + sum(b) * 1.0001"}), ("exp_of_sum", {"rhs": "exp(a) * exp(b) + 0.001"}),
    ("rounding_moves_ratio", {"tag": "exact"}),
], ids=lambda part: part if isinstance(part, str) else "")
def test_a_row_with_the_wrong_tag_is_refuted(name, change, rng):
    assert refuted_on_floats(replace(LAWS[name], **change), rng) is not None


@pytest.mark.parametrize("rule", [
    SignRule("", "abs(a)", "positive"), SignRule("", "a * b", "nonnegative", "nonnegative(a)"),
    SignRule("", "reciprocal(a)", "positive"), SignRule("", "a + b", "positive", "nonnegative(a), nonnegative(b)"),
], ids=lambda rule: rule.term)
def test_a_false_sign_is_refuted(rule, rng):
    assert sign_refuted(rule, rng, draws=5000) is not None


def test_a_row_that_never_has_a_value_is_not_taken_for_a_true_one(rng):
    never = Law("never", "log(a) + log((-1) * a)", "a")
    for check in (refuted_over_the_reals, refuted_on_floats):
        with pytest.raises(AssertionError, match="never"):
            check(never, rng)


# as rows


def test_names_are_unique():
    rows = [law for group in vars(laws).values() if isinstance(group, tuple) for law in group if isinstance(law, Law)]
    assert len(rows) == len(LAWS) and [law.name for law in rows] == list(LAWS)
    assert len({rule.name for rule in SIGNS} | set(LAWS)) == len(SIGNS) + len(LAWS)


@each_law
def test_row_uses_known_words(law):
    left, right = read(law.lhs), read(law.rhs)
    assert heads(left, right) <= {*FUNCTIONS, *MONOIDS, *CONTRACTIONS, "rounded"}
    assert law.tag in TAGS and law.role in ROLES and law.name.isidentifier()
    assert (law.role == "disabled") == bool(law.counterexample)
    required = {each for _, inside in conditions(law.requires) for each in inside}
    assert set(variables(right)) <= {*variables(left), *required}
    assert_known(law.requires)
    assert str(law).startswith(f"{law.name}: {law.lhs} = {law.rhs}") and law.requires in str(law)


@each_sign
def test_sign_uses_known_words(rule):
    assert heads(read(rule.term)) <= set(FUNCTIONS) and rule.sign in law_values.SIGNS
    assert_known(rule.requires)
    assert rule.term in str(rule)


def assert_known(requires):
    for name, inside in conditions(requires):
        assert len(inside) == law_values.CONDITIONS[name]
        assert f"{name}(" in laws.__doc__
    assert requires == ", ".join(f"{name}({', '.join(inside)})" for name, inside in conditions(requires))


def test_the_docstring_names_every_tag_and_condition_and_no_other():
    table = [line for line in laws.__doc__.splitlines() if line.startswith("|")][2:]
    assert {name for line in table for name, _ in conditions(line.split("|")[1])} == set(law_values.CONDITIONS)
    assert [tag for tag in TAGS if f"`{tag}`" not in laws.__doc__] == []
