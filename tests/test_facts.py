"""Facts about terms are true: whatever Facts claims is compared with values, for terms drawn at random and by hand.

A false fact becomes a false yes, so the random terms are biased towards those that facts are about: elements that
meet the results of reductions over themselves, under masks that do and do not let the same elements through.
"""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import redfuser_algebra.language.functions as ra
from hypothesis import given
from hypothesis import strategies as st
from redfuser_algebra.discover.facts import NEGATIVE, NONNEGATIVE, NONPOSITIVE, POSITIVE, UNKNOWN, Facts
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr, call, const, lift, subterms, symbol
from redfuser_algebra.run.environment import Environment
from redfuser_algebra.run.evaluate import Evaluation, evaluate

x, y, w, v = (Expr("input", (), (name, ("l",))) for name in "xywv")
a = Expr("input", (), ("a", ()))
c, d = (Expr("param", (), (name,)) for name in "cd")
l, n = ra.index("l"), ra.size("l")
W, V = w > 0, v > 0
ASSUME = (c > 0, v >= 0)
HOLDS = {
    POSITIVE: lambda value: value > 0, NONNEGATIVE: lambda value: value >= 0,
    NEGATIVE: lambda value: value < 0, NONPOSITIVE: lambda value: value <= 0,
}


# a cascade and its values


@dataclass
class Given:
    """Reductions over l in order, values named as pivots, and arrays; every part of l gives them values of its own."""

    results: tuple[Reduction, ...] = ()
    pivots: dict[str, Expr] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def facts(self):
        return Facts("l", self.results, ASSUME, self.pivots)

    @property
    def symbols(self):
        return [result.symbol for result in self.results] + [symbol(name) for name in self.pivots]

    def environment(self, part):
        """The environment of a part of l, with results and pivots as this part sees them; NaN where they have no value."""
        arrays = {name: np.asarray(array, float).reshape(-1, 1) for name, array in self.arrays.items()}
        values = {name: array[part] if len(array) > 1 or name in "xywv" else array for name, array in arrays.items()}
        length = len(values["x"])
        environment = Environment(("l", "top"), {"l": length}, values, {}, starts={"l": part.start})
        for name, term in [*((result.name, result.source) for result in self.results), *self.pivots.items()]:
            value, defined = values_where_defined(term, environment)
            environment.symbols[name] = value[:1] if defined.all() else np.full((1, 1), np.nan)
        return environment


def reduction(name, monoid, body, mask=None, count=None):
    operands = tuple(operand for operand in (body, mask, count) if operand is not None)
    source = Expr("reduce", operands, (monoid, "l", "top" if "top" in monoid else ""))
    return Reduction(name, monoid, body, mask, count, source)


def values_where_defined(term, environment):
    """The values of a term, and where it has one: where no part of it is infinite, NaN, or underflows to 0."""
    evaluation = Evaluation(environment)
    value = np.asarray(evaluation.of(term), float)
    defined = np.array(True)
    for part in subterms(term):
        known = np.asarray(evaluation.of(part), float)
        defined = defined & np.isfinite(known) & ~((known == 0) & (part.op in ("exp", "exp2")))
    return np.broadcast_arrays(value, defined)


def taking_part(mask, environment):
    return np.array(True) if mask is None else evaluate(mask, environment).astype(bool)


# drawing

BODIES = [x, y, abs(x), x * c, x * d, x - y, x + d, ra.exp(x), ra.maximum(x, 0), ra.minimum(x, y), ra.ceil(x),
          ra.floor(y), x * x, -x, lift(1) * abs(y), l * 1.0, v, v * c, ra.sqrt(v), ra.where(V, x, 0)]
MASKS = [None, None, W, V, W & V]
MONOIDS = ["max", "max", "min", "min", "sum", "prod", "argmax", "argmin", "any", "all"]


class Drawing:
    """Cascades and terms, from one source of random numbers."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.choice = self.random.choice

    def given(self):
        results = []
        for number in range(self.random.randint(1, 4)):
            results.append(self.result(f"r{number}", [result.symbol for result in results]))
        pivots, symbols = {}, [result.symbol for result in results]
        for number in range(self.random.randint(0, 3)):
            pivots[f"p{number}"] = self.invariant([*symbols, *map(symbol, pivots)])
        return Given(tuple(results), pivots, self.arrays(self.random.randint(2, 5)))

    def result(self, name, symbols):
        body, mask = self.choice(BODIES), self.choice(MASKS)
        if symbols and self.random.random() < 0.3:
            body = self.choice([body - self.choice(symbols), body * self.choice(symbols), ra.maximum(body, self.choice(symbols))])
        if symbols and self.random.random() < 0.15:
            mask = x < self.choice(symbols)
        return reduction(name, self.choice(MONOIDS), body, mask)

    def invariant(self, symbols):
        p = self.choice(symbols)
        return self.choice([
            p * 0.5, p * c, p / c, p * d, -p, p + d, ra.maximum(p, 0), ra.maximum(p, self.choice(symbols)),
            ra.minimum(p, self.choice(symbols)), p / n, abs(p), ra.exp(p), p * -1.0, p - self.choice(symbols), p * a])

    def arrays(self, length):
        grid = [value / 2 for value in range(-6, 7)]
        arrays = {name: [self.choice(grid) for _ in range(length)] for name in "xyw"}
        arrays["v"] = [abs(self.choice(grid)) for _ in range(length)]
        return arrays | {"a": [self.choice(grid)], "c": [self.choice([0.5, 1.0, 3.0])], "d": [self.choice(grid)]}

    def leaf(self, symbols):
        return self.choice([*BODIES, *symbols, *symbols, c, d, a, n, const(self.choice([-2, -1.0, 0, 0.5, 2]))])

    def term(self, symbols, depth):
        if depth == 0:
            return self.leaf(symbols)
        if symbols and self.random.random() < 0.3:
            return self.meeting(symbols)
        name = self.choice(["add", "subtract", "multiply", "divide", "power", "negative", "reciprocal", "exp", "log",
                            "sqrt", "abs", "maximum", "minimum", "where", "sign", "tanh", "shift", "ratio", "scaled",
                            "scale", "less", "equal", "square"])
        first, second = (self.term(symbols, depth - 1) for _ in range(2))
        if name == "square":
            return self.choice([first * first, first ** 2])
        if name == "where":
            return ra.where(first > 0, first, second)
        if name == "power":
            return first ** self.choice([2, 3, -1, -2, 0, 0.5, second])
        if name in ("less", "equal"):
            return call(name, first, second) * 1
        unary = ("negative", "reciprocal", "exp", "log", "sqrt", "abs", "sign", "tanh")
        return call(name, first) if name in unary else call(name, first, second)

    def meeting(self, symbols):
        """An element and a result, perhaps scaled or shifted alike, put together."""
        first, second = self.choice([*BODIES, *symbols]), self.choice(symbols)
        factor = self.choice([c, d, n, const(2), const(-1), *symbols])
        first, second = self.choice([(first, second), (first * factor, second * factor), (first + factor, second + factor),
                                     (factor * first, second * factor), (first / factor, second / factor),
                                     (first, ra.maximum(second, factor)), (first, ra.minimum(second, factor))])
        return call(self.choice(["subtract", "subtract", "shift", "divide", "scaled", "ratio"]),
                    *self.choice([(first, second), (second, first)]))


seeds = st.integers(0, 2**32)


@given(seeds)
def test_a_term_has_the_sign_that_is_claimed(seed):
    drawing = Drawing(seed)
    world = drawing.given()
    environment = world.environment(slice(0, None))
    for mask in (None, drawing.choice(MASKS)):
        facts, among = world.facts.under(mask), taking_part(mask, environment)
        for _ in range(20):
            term = drawing.term(world.symbols, drawing.choice([1, 1, 2, 3]))
            claimed = facts.sign(term)
            if claimed:
                value, defined = values_where_defined(term, environment)
                wrong = among & defined & ~HOLDS[claimed](value)
                assert not wrong.any(), (claimed, term, mask, world)


@given(seeds)
def test_an_order_that_is_claimed_holds(seed):
    drawing = Drawing(seed)
    world = drawing.given()
    environment = world.environment(slice(0, None))
    for mask in (None, drawing.choice(MASKS)):
        facts, among = world.facts.under(mask), taking_part(mask, environment)
        for _ in range(30):
            meeting = drawing.meeting(world.symbols)
            first, second = meeting.args
            (value, here), (bound, there) = (values_where_defined(term, environment) for term in (first, second))
            counts = among & here & there
            assert not facts.below(first, second) or (counts <= (value <= bound)).all(), (first, second, mask, world)
            assert not facts.above(first, second) or (counts <= (value >= bound)).all(), (first, second, mask, world)
            if facts.bounded(first, second):
                assert (counts <= ((bound >= 0) & (abs(value) <= 1e3 * bound))).all(), (first, second, mask, world)


@given(seeds)
def test_a_motion_that_is_claimed_happens(seed):
    drawing = Drawing(seed)
    world = drawing.given()
    length = len(world.arrays["x"])
    start = drawing.random.randint(0, length - 1)
    part = world.environment(slice(start, drawing.random.randint(start + 1, length)))
    whole = world.environment(slice(0, length))
    facts = world.facts
    for term in [*world.symbols, *(drawing.invariant(world.symbols) for _ in range(10))]:
        (before, here), (after, there) = (values_where_defined(term, each) for each in (part, whole))
        motion = facts.motion(term)
        moved = {POSITIVE: before <= after, NEGATIVE: before >= after}.get(motion, True)
        assert np.all((here & there) <= moved), (motion, term, world)
        for element in (x, y, l, ra.maximum(x, 0), x * c):
            if facts.settled(element, term):
                value = np.asarray(evaluate(element, part), float)
                meets = (value == after) & here & there
                assert (meets <= ((value == before) & (before == after))).all(), (element, term, world)


def test_the_random_terms_are_of_the_kind_that_facts_are_about():
    said = dict.fromkeys(("sign", "below", "above", "bounded", "settled", "grows", "shrinks"), 0)
    for seed in range(60):
        drawing = Drawing(seed)
        world = drawing.given()
        facts = world.facts
        for _ in range(30):
            first, second = drawing.meeting(world.symbols).args
            moves = facts.motion(second)
            found = {"sign": facts.sign(drawing.term(world.symbols, 2)), "below": facts.below(first, second),
                     "above": facts.above(first, second), "bounded": facts.bounded(first, second),
                     "settled": facts.settled(first, second), "grows": moves == POSITIVE, "shrinks": moves == NEGATIVE}
            for kind, claim in found.items():
                said[kind] += bool(claim)
    assert min(said.values()) >= 10, said


# by hand

m, low, high_w = symbol("m"), symbol("low"), symbol("high_w")
size_of, size_w, total, total_w = symbol("size_of"), symbol("size_w"), symbol("total"), symbol("total_w")
place, place_w, place_s, place_m, mean = (symbol(name) for name in ("place", "place_w", "place_s", "place_m", "mean"))
top = symbol("top", ("top",))
positions = symbol("positions", ("top",))
shifted, chosen, gap, above_0 = symbol("shifted"), symbol("chosen"), symbol("gap"), symbol("above_0")
WORLD = Given((
    reduction("m", "max", x), reduction("low", "min", x), reduction("high_w", "max", x, W),
    reduction("size_of", "max", abs(x)), reduction("size_w", "max", abs(x), W),
    reduction("total", "sum", ra.exp(x)), reduction("total_w", "sum", ra.exp(x), W),
    reduction("place", "argmax", x), reduction("place_w", "argmax", x, W),
    reduction("place_s", "argmax", x * symbol("total") - y), reduction("place_m", "argmax", x, x < symbol("mean_of")),
    reduction("top", "topk", x, None, const(2)), reduction("positions", "argtopk", x, None, const(2)),
    reduction("shifted", "max", x - symbol("m")), reduction("chosen", "max", x, x < -symbol("m")),
    reduction("gap", "sum", x - symbol("high_w")), reduction("above_0", "any", x > 0),
), {"mean": total / n, "mean_of": total / n, "clipped": ra.maximum(m, 0)})
FACTS = WORLD.facts
clipped = symbol("clipped")


@pytest.mark.parametrize("element, bound, under", [
    (x, m, None), (x, m, W), (x, high_w, W), (x, high_w, W & V), (x, high_w, V & W), (x, clipped, None),
    (x * c, m * c, None), (x / c, m / c, None), (c * x, m * c, None), (x + d, m + d, None), (x - d, m - d, None),
    (x, size_of, None), (abs(x), size_of, None), (x, ra.maximum(d, m), None), (m, clipped, None),
    (x - m, shifted, None), (x * total, m * total, None),
])
def test_an_element_is_below(element, bound, under):
    assert FACTS.under(under).below(element, bound)
    assert FACTS.under(under).sign(element - bound) in (NONPOSITIVE, NEGATIVE)


@pytest.mark.parametrize("element, bound, under", [
    (x, high_w, None), (x, high_w, V), (x, high_w, W | V), (y, m, None), (x, low, None), (m, x, None),
    (x * d, m * d, None), (x * -1, m * -1, None), (x / d, m / d, None), (d - x, d - m, None), (x * x, m * m, None),
    (x, ra.minimum(m, d), None), (x, total, None), (-x, size_of, None), (x, place, None), (x + d, m - d, None),
    (x * high_w, m * high_w, None), (abs(x), m, None), (x, m + d, None), (x, shifted, None), (x, symbol("nobody"), None),
])
def test_an_element_is_not_claimed_to_be_below(element, bound, under):
    assert not FACTS.under(under).below(element, bound)


def test_above_is_below_with_min():
    assert FACTS.above(x, low) and FACTS.above(x * c, low * c) and FACTS.above(x, ra.minimum(low, d))
    assert FACTS.sign(x - low) == NONNEGATIVE and FACTS.sign(x - m) == NONPOSITIVE
    assert FACTS.under(W).sign(x - high_w) == NONPOSITIVE and FACTS.under(V).sign(x - high_w) == UNKNOWN
    assert not FACTS.above(x, m) and not FACTS.above(x * d, low * d) and not FACTS.above(x, ra.maximum(low, d))


@pytest.mark.parametrize("bound, yes", [
    (size_of, True), (size_of * 0.5, True), (size_of / c, True), (c * size_of, True), (ra.maximum(size_of, 1e-6), True),
    (m, False), (size_of * d, False), (size_of / d, False), (size_w, False), (total, False), (size_of - 1, False),
    (ra.minimum(size_of, 1), False), (size_of * -1, False),
    (ra.exp2(ra.floor(ra.log2(size_of)) - 8), True), (2.0 ** ra.ceil(ra.log2(size_of)), True), (ra.exp2(ra.floor(ra.log2(m))), False),
    (ra.exp2(ra.floor(size_of)), False), (3.0 ** ra.floor(ra.log2(size_of)), False), (ra.exp2(ra.floor(ra.log2(size_of)) * 0.5), False),
])
def test_an_element_is_bounded_by_its_largest_size(bound, yes):
    assert FACTS.bounded(x, bound) == yes
    assert FACTS.under(W).bounded(x, size_w) and FACTS.bounded(v * c, symbol("m") * 0 + size_of) is False


@pytest.mark.parametrize("element, pivot, under, yes", [
    (x, m, None, True), (x, low, None, True), (x * c, m * c, None, True), (x, clipped, None, True),
    (x, high_w, W, True), (x, high_w, None, False), (l, place, None, True), (l, place_w, None, True),
    # A winner whose elements or whose mask move may come back to an element it has left behind.
    (l, place_s, None, False), (l, place_m, None, False),
    (x - m, shifted, None, False), (x, chosen, None, False), (y, m, None, False), (x * d, m * d, None, False),
    (x, mean, None, False), (y, place, None, False), (x, total, None, False),
])
def test_an_element_is_settled(element, pivot, under, yes):
    assert FACTS.under(under).settled(element, pivot) == yes


def test_positions_of_a_top_k_are_followed_by_the_position_alone():
    assert FACTS.follows(l, positions)
    assert not FACTS.follows(x, positions) and not FACTS.follows(l, place) and not FACTS.follows(l, top)


@pytest.mark.parametrize("term, motion", [
    (m, POSITIVE), (low, NEGATIVE), (high_w, POSITIVE), (total, POSITIVE), (total_w, POSITIVE), (n, POSITIVE),
    (top, POSITIVE), (above_0, POSITIVE), (-m, NEGATIVE), (m + d, POSITIVE), (d - m, NEGATIVE), (m - low, POSITIVE),
    (m + low, UNKNOWN), (m * c, POSITIVE), (m * -2, NEGATIVE), (m * d, UNKNOWN), (m / c, POSITIVE), (c / m, UNKNOWN),
    (ra.exp(m), POSITIVE), (ra.exp(-low), POSITIVE), (abs(m), UNKNOWN), (m * m, UNKNOWN), (clipped, POSITIVE),
    (ra.maximum(m, low), UNKNOWN), (ra.minimum(low, -m), NEGATIVE), (mean, UNKNOWN), (place, UNKNOWN), (gap, UNKNOWN),
    (shifted, UNKNOWN), (chosen, UNKNOWN), (a, POSITIVE), (c * 2, POSITIVE), (ra.where(above_0, m, 0), UNKNOWN),
    (symbol("nobody"), UNKNOWN),
])
def test_how_a_pivot_moves(term, motion):
    assert FACTS.motion(term) == motion


@pytest.mark.parametrize("term, under, sign", [
    (ra.exp(x), None, POSITIVE), (x * x, None, NONNEGATIVE), (-abs(x), None, NONPOSITIVE), (x, None, UNKNOWN),
    (c, None, POSITIVE), (v, None, NONNEGATIVE), (c * v, None, NONNEGATIVE), (v / c, None, NONNEGATIVE),
    (c + v, None, POSITIVE), (c - v, None, UNKNOWN), (1 / (v + 1), None, POSITIVE), (x ** -2, None, NONNEGATIVE),
    (x ** 3, None, UNKNOWN), (x ** 0.5, None, UNKNOWN), (c ** d, None, POSITIVE), (x ** float("inf"), None, UNKNOWN),
    (x ** float("nan"), None, UNKNOWN), (const(float("nan")), None, UNKNOWN), (const(-0.0), None, NONNEGATIVE),
    (ra.maximum(x, 1), None, POSITIVE), (ra.minimum(x, -1), None, NEGATIVE), (ra.maximum(-v, -c), None, NONPOSITIVE),
    (ra.where(V, v, c), None, NONNEGATIVE), (ra.where(V, x, c), None, UNKNOWN), (n, None, POSITIVE),
    (total, None, POSITIVE), (size_of, None, NONNEGATIVE), (place, None, NONNEGATIVE), (ra.exp(x) / total, None, POSITIVE),
    # Under a mask there may be nothing: a sum is 0 then, a max −inf, and a position −1.
    (total_w, None, NONNEGATIVE), (size_w, None, UNKNOWN), (place_w, None, UNKNOWN), (ra.count(W, "l"), None, NONNEGATIVE),
    (ra.max(ra.exp(x), "l", where=W), None, UNKNOWN), (ra.min(ra.exp(x), "l", where=W), None, POSITIVE),
    (x - high_w, W, NONPOSITIVE), (x - high_w, None, UNKNOWN), (x - high_w, V, UNKNOWN),
    # The sum of x − max over more elements than the max saw, whatever is asked about the elements under the mask.
    (gap, W, UNKNOWN), (gap, None, UNKNOWN),
    (call("scaled", c, v), None, NONNEGATIVE), (call("ratio", v, -v), None, UNKNOWN), (call("ratio", c, v), None, POSITIVE),
    (call("shift", x, m), None, NONPOSITIVE), (symbol("nobody"), None, UNKNOWN),
])
def test_the_sign_of_a_term(term, under, sign):
    assert FACTS.under(under).sign(term) == sign


@pytest.mark.parametrize("declared, sign", [
    ((x > 0,), POSITIVE), ((x >= 0,), NONNEGATIVE), ((x < 0,), NEGATIVE), ((x <= 0,), NONPOSITIVE),
    (((y > 0) & ((x > 0) & (c > 0)),), POSITIVE), ((x > 1,), UNKNOWN), ((x != 0,), UNKNOWN), ((x > y,), UNKNOWN),
    ((abs(x) > 0,), UNKNOWN), (((x > 0) | (x < 0),), UNKNOWN),
])
def test_a_declared_sign_is_taken_over(declared, sign):
    assert Facts("l", (), declared).sign(x) == sign
