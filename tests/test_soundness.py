"""No false yes: what is called fusable computes the operator, also where a fact or a law is easily a little too strong.

The operators written out each got a form at some time that computed something else, or would if a side condition
were dropped.  The random ones are cascades of results that meet elements in every way the facts are about.
"""

import random

import numpy as np
import pytest
import redfuser_algebra as ra
from lowered import interpreted
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.operator import define
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.run.laid_out import environment_of
from redfuser_algebra.run.evaluate import Evaluation
from redfuser_algebra.run.reference import fused_by_tree, reference

GRID = [value / 2 for value in range(-6, 7)]
LIMITS = ra.Limits(nodes=5000, iterations=20)
x, y, w, v = (Expr("input", (), (name, ("l",))) for name in "xywv")
z = Expr("input", (), ("z", ("l", "k")))
c, d = (Expr("param", (), (name,)) for name in "cd")
l, n = ra.index("l"), ra.size("l")
W = w > 0


def operator_of(output):
    inputs = {"x": ("l",), "y": ("l",), "w": ("l",), "v": ("l",), "z": ("l", "k")}
    used = {term.name for term in subterms(output) if term.op in ("input", "param")}
    return define("f", {name: axes for name, axes in inputs.items() if name in used},
                  {name: None for name in "cd" if name in used}, output)


def arrays(choose, operator, length, nothing=False):
    """Values on a coarse grid, so that ties are common; unless `nothing`, the masks let some element through."""
    shapes = {name: [length if axis == "l" else 3 for axis in axes] for name, axes in operator.inputs.items()}
    drawn = {name: np.reshape([choose.choice(GRID) for _ in range(np.prod(shape))], shape)
             for name, shape in shapes.items()}
    if "v" in drawn:
        drawn["v"] = np.abs(drawn["v"])
        drawn["v"][choose.randrange(length)] = 1.0
    if "w" in drawn:
        drawn["w"][choose.randrange(length)] = 1.0
        drawn["w"] = -np.abs(drawn["w"]) if nothing else drawn["w"]
    return drawn | {name: choose.choice([0.5, -1.0, 1.0, 2.0]) for name in operator.params}


def has_a_value(operator, binding):
    evaluation = Evaluation(environment_of(operator, binding))
    return all(np.isfinite(np.asarray(evaluation.of(part), float)).all() for part in subterms(*operator.outputs))


def disagreement(operator, form, choose, trials=30, nothing=False):
    """Arguments and cuts at which the form gives something else than the operator, or None."""
    for trial in range(trials):
        length = choose.randint(1, 5)
        given = arrays(choose, operator, length, nothing)
        binding, sizes = operator.bind(**given), []
        while sum(sizes) < length:
            sizes.append(choose.randint(0, length - sum(sizes)))
        if nothing or has_a_value(operator, binding):
            want, got = reference(operator, binding), fused_by_tree(operator, form, binding, sizes, trial)
            want, got = np.asarray(want, float), np.asarray(got, float)
            if not np.allclose(got, want, rtol=1e-7, atol=1e-7 * (1 + np.nan_to_num(abs(want), posinf=0).max())):
                return given, sizes, want, got
    return None


def assert_no_false_yes(operator, **more):
    verdict = ra.decide(operator, limits=LIMITS)
    if verdict.fused and not verdict.fused.form.assumptions:
        assert disagreement(operator, verdict.fused.form, random.Random(0), **more) is None, str(operator)
    return verdict


def squared_distance(centre):
    return ra.sum(ra.square(z - centre), "k")


TAKEN_OVER = {
    "the winner of moving elements": ra.take(v, ra.argmax(ra.maximum(x, y + ra.max(w, "l")), "l"), "l"),
    "the winner under a moving mask": ra.take(v, ra.argmax(x, "l", where=x < ra.mean(y, "l")), "l"),
    "a max under a moving mask": ra.sum(ra.where(x == ra.max(x, "l", where=x < -ra.max(x, "l")), y, 0), "l"),
    "the largest of fewer elements": ra.sum(ra.where(x == ra.max(x, "l", where=W), y, 0), "l"),
    "a scale of unknown sign": ra.max(x * ra.sum(y, "l"), "l"),
    "the order of scaled elements": ra.argmax(x * ra.sum(y, "l"), "l"),
    "a gap of unknown sign": ra.sum(abs(x - ra.max(x, "l", where=W)), "l"),
    "a square of a contraction": ra.sum(ra.square(squared_distance(ra.max(z, "l"))), "l"),
    "a product of contractions": ra.sum(squared_distance(ra.mean(z, "l")) * ra.sum(z - ra.mean(z, "l"), "k"), "l"),
    "a scaled logarithm": ra.sum(ra.log(v * ra.max(v, "l")), "l"),
    "a power of a scale": ra.prod(v * ra.max(v, "l"), "l"),
}


@pytest.mark.parametrize("output", TAKEN_OVER.values(), ids=TAKEN_OVER)
def test_what_is_called_fusable_computes_the_operator(output):
    assert_no_false_yes(operator_of(output), trials=150)


NOTHING = {
    "the order of elements times an empty sum": ra.argmax(x * ra.sum(ra.exp(y), "l", where=W), "l"),
    "elements times the position of nothing": ra.max(x * ra.argmax(y, "l", where=W), "l"),
    "exponentials above the largest of nothing": ra.sum(ra.exp(x - ra.max(y, "l", where=W)), "l"),
    "exponentials below the largest of nothing": ra.sum(ra.exp(ra.max(y, "l", where=W) - x), "l"),
    "gaps to the least of nothing": ra.sum(x - ra.min(y, "l", where=W), "l"),
}
AFTER_NOTHING = {
    "the largest exponential": ra.max(ra.exp(x - ra.max(y, "l")), "l", where=W),
    "a floor under the largest": ra.max(ra.maximum(x - ra.max(y, "l"), 0), "l", where=W),
    "the largest product": ra.max(x * ra.max(y, "l"), "l", where=W),
    "any exponential above": ra.any(ra.exp(x - ra.max(y, "l")) > c, "l", where=W),
    "a sum scaled by the largest": ra.sum(y * ra.max(x, "l", where=W), "l", where=W),
    "parts of a sum that may be 0": ra.sum(y / ra.sum(x, "l"), "l", where=W),
    "parts of a sum of other elements": ra.sum(y / ra.sum(x, "l", where=v > 0.5), "l", where=W),
}


@pytest.mark.parametrize("output", NOTHING.values(), ids=NOTHING)
def test_a_pivot_may_be_of_nothing(output):
    operator = operator_of(output)
    verdict = assert_no_false_yes(operator, nothing=True)
    if verdict.fused:
        given = arrays(random.Random(0), operator, 5, nothing=True)
        np.testing.assert_allclose(verdict.fused(**given, backend="cpu"), reference(operator, operator.bind(**given)))


@pytest.mark.parametrize("output", AFTER_NOTHING.values(), ids=AFTER_NOTHING)
def test_a_reduction_of_nothing_is_the_identity(output):
    """Of the form, of its proof, and of the loops, whatever its pivots are: here 0."""
    operator = operator_of(output)
    verdict = assert_no_false_yes(operator, nothing=True)
    if verdict.fused:
        assert verdict.fused.certify(examples=8).status != "refuted"
        binding = operator.bind(**{name: -np.ones(3) if name == "w" else np.zeros(3) for name in operator.inputs}, **dict.fromkeys(operator.params, 1.0))
        result, = interpreted(lower(operator, verdict.fused.form), operator, binding, 2)
        np.testing.assert_array_equal(result, reference(operator, binding))


class Drawing:
    """Random cascades: reductions whose elements meet earlier results.

    No exponentials of results, which saturate or underflow to ties that the reals do not have.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.choice = self.random.choice

    def leaf(self):
        return self.choice([x, y, x, abs(x), x * c, v, x - y, x * x, ra.maximum(x, 0), ra.minimum(x, y), l * 1.0, -x,
                            ra.ceil(x), ra.exp(x)])

    def pivot(self, results):
        p = self.choice(results)
        return self.choice([p, p * c, p + d, -p, ra.maximum(p, 0), p / n, abs(p), p * 0.5, p - self.choice(results),
                            ra.maximum(p, self.choice(results))])

    def body(self, results):
        body = self.leaf()
        for _ in range(self.random.randint(1, 2) if results else 0):
            q, other = self.pivot(results), self.leaf()
            body = self.choice([
                body - q, body * q, body / q, q - body, abs(body - q), ra.square(body - q), other * (body - q),
                ra.maximum(body, q), ra.minimum(body, q), ra.maximum(body - q, other), ra.maximum(body * q, other * q),
                ra.where(body == q, other, 0), ra.where(l == q, other, 0), ra.where(body > q, other, 0),
                ra.where(body <= q, other, 0), ra.where(W, body - q, 0), ra.sqrt(v * q), ra.sign(body * q),
                body * q + other, ra.floor(body - q)])
        return body

    def operator(self):
        results = []
        for _ in range(self.random.randint(2, 3)):
            monoid = self.choice(["max", "max", "min", "sum", "sum", "sum", "prod", "argmax", "argmin", "any", "all"])
            body, mask = self.body(results), self.choice([(), (), (), (W,), (W,), (v > 0.5,)])
            if monoid in ("any", "all"):
                body = body > self.choice([0, c, *results])
            reduced = Expr("reduce", (body, *mask), (monoid, "l", ""))
            results.append(reduced * 1 if monoid in ("any", "all") else reduced)
        return operator_of(results[-1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_random_cascades_are_computed_or_refused(seed):
    assert_no_false_yes(Drawing(seed).operator())
