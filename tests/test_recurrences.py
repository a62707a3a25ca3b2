"""Recurrences: what scans mean, which of them can be cut into parts, and that parts keep their order.

Every operator is compared with a loop in NumPy, as written and in every split; steps that no finite set of functions of
the state follows run in order.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lowered import interpreted

import redfuser_algebra.language.functions as ra
from redfuser_algebra.catalogue import operators
from redfuser_algebra.fused import decide, fuse
from redfuser_algebra.language.cascade import cascades, primary
from redfuser_algebra.language.definitions import parse_operator
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import substitute, symbol
from redfuser_algebra.language.operator import operator
from redfuser_algebra.language.recurrence import cumulative, previous, scan
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.lower.numba_cpu import print_cpu
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.prove.by_distribution import equal
from redfuser_algebra.prove.certificate import certify
from redfuser_algebra.run.cpu import run_cpu
from redfuser_algebra.run.reference import fused_by_chunks, fused_by_tree, reference

X = parse_operator("sum(x[l], l)").outputs[0].body


def loop(step, start, *arrays):
    """The states after every element."""
    states = [start]
    for elements in zip(*arrays, strict=True):
        states.append(step(states[-1], *elements))
    return states[1:]


@operator
def affine(a: "l", b: "l"):
    """h ← a·h + b."""
    return scan(lambda h: a * h + b, "l", 1.0)


@operator
def gated(q: "d", K: "l d", V: "l v", g: "l d"):
    """S ← g·S + K Vᵀ, read by q."""
    return ra.sum(q * scan(lambda S: g * S + K * V, "l"), "d")


@operator
def drawdown(x: "l"):
    """max (max so far − x), and max (x − min so far)."""
    return ra.max(cumulative(ra.max, x, "l") - x, "l"), ra.max(x - cumulative(ra.min, x, "l"), "l")


@operator
def queue(x: "l"):
    """w ← max(0, w + x): the last and the largest."""
    return scan(lambda w, most: (ra.maximum(0, w + x), ra.maximum(most, ra.maximum(0, w + x))), "l")


@operator
def changes(x: "l"):
    """Σ |x − the one before|."""
    return ra.sum(ra.abs(x - previous(x, "l")), "l", where=ra.index("l") > 0)


@operator
def quadratic(x: "l"):
    """Σ of the squares of what x − mean has added up to."""
    return ra.sum(cumulative(ra.sum, x - ra.mean(x, "l"), "l") ** 2, "l")


@operator
def running(x: "l"):
    """The sum and the largest up to each element, and up to the one before it."""
    return cumulative(ra.sum, x, "l"), cumulative(ra.max, x, "l"), cumulative(ra.sum, x, "l", exclusive=True)


@operator(assume="x > 0")
def continued(x: "l"):
    """The continued fraction 1/(x_L + 1/(x_(L−1) + …)): a Möbius map per element."""
    return scan(lambda h: 1 / (x + h), "l", 1.0)


@operator
def blended(x: "l", y: "l"):
    """Two states that every element mixes and divides by their sum, on which nothing depends; and the last element."""
    one, other = scan(lambda a, b: ((x * a + y * b) / ((x * a + y * b) + (y * a - x * b)), (y * a - x * b) / ((x * a + y * b) + (y * a - x * b))), "l", (1.0, 3.0))
    return one, other, scan(lambda h: x, "l", 5.0)


@operator
def decayed(x: "l", w: "l"):
    """Weights that decay by w² at each element, and the mean under them: a sum of e^(c_N − c_l), kept at the c of now."""
    decays = ra.exp(scan(lambda h: h + ra.log(w**2), "l") - cumulative(ra.sum, ra.log(w**2), "l"))
    return ra.sum(decays * x, "l"), ra.sum(decays * x, "l") / ra.sum(decays, "l")


@operator
def broken(z: "l", V: "l v"):
    """A stick of which each element takes a share, and what its first pieces are worth: exponentials of sums, and 1/products."""
    rest = cumulative(ra.sum, ra.log(1 - ra.sigmoid(z)), "l")
    return ra.sum(ra.sigmoid(z) * ra.exp(rest - ra.log(1 - ra.sigmoid(z))) * V, "l"), ra.sum(z / cumulative(ra.prod, 1 + z**2, "l"), "l")


def blended_by_hand(x, y):
    mixed = loop(lambda h, a, b: (m := np.array([[a, b], [b, -a]]) @ h) / m.sum(), np.array([1.0, 3.0]), x, y)[-1]
    return *mixed, x[-1]


def decayed_by_hand(x, w):
    total = loop(lambda h, e, d: d * d * h + e, 0.0, x, w)[-1]
    return total, total / loop(lambda h, d: d * d * h + 1, 0.0, w)[-1]


def broken_by_hand(z, V):
    share = 1 / (1 + np.exp(-z))
    left = np.concatenate([[1], np.cumprod(1 - share)[:-1]])
    return (share * left) @ V, (z / np.cumprod(1 + z**2)).sum()


def queued(x):
    w = loop(lambda w, e: max(0.0, w + e), 0.0, x)
    return w[-1], max(w)


def gated_by_hand(q, K, V, g):
    return q @ loop(lambda S, k, v, a: a[:, None] * S + np.outer(k, v), np.zeros((2, 3)), K, V, g)[-1]


REFERENCES = {
    affine: lambda a, b: loop(lambda h, u, v: u * h + v, 1.0, a, b)[-1],
    gated: gated_by_hand,
    drawdown: lambda x: ((np.maximum.accumulate(x) - x).max(), (x - np.minimum.accumulate(x)).max()),
    queue: queued,
    changes: lambda x: np.abs(np.diff(x)).sum(),
    quadratic: lambda x: (np.cumsum(x - x.mean()) ** 2).sum(),
    continued: lambda x: loop(lambda h, e: 1 / (e + h), 1.0, x)[-1],
    blended: blended_by_hand, decayed: decayed_by_hand, broken: broken_by_hand,
    running: lambda x: (np.cumsum(x), np.maximum.accumulate(x), np.cumsum(x) - x),
}
SIZES = {"d": 2, "v": 3}
each = pytest.mark.parametrize("op", REFERENCES, ids=lambda op: op.name)


AFFINE = fuse(affine)


def drawn(op, length, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal([SIZES.get(axis, length) for axis in axes]) for name, axes in op.inputs.items()}


def same(got, want):
    for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@each
@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_scan_is_a_loop(op, length):
    inputs = drawn(op, length)
    same(reference(op, op.bind(**inputs)), REFERENCES[op](**inputs))


@each
def test_every_split_gives_what_the_loop_gives(op):
    fused, inputs = fuse(op), drawn(op, 12)
    binding, want = op.bind(**inputs), REFERENCES[op](**inputs)
    assert decide(op).reason == "scan"
    for sizes in ([12], [1] * 12, [5, 0, 7], [0, 1, 11]):
        same(fused_by_chunks(op, fused.form, binding, sizes), want)
    for seed in range(3):
        same(fused_by_tree(op, fused.form, binding, [3, 1, 0, 4, 2, 2], seed), want)


@each
def test_it_reads_back_from_its_text(op):
    assert parse_operator(str(op)) == op


def test_of_no_elements_it_is_where_it_starts():
    assert AFFINE(np.zeros(0), np.zeros(0)) == fuse(continued)(np.zeros(0)) == 1.0
    assert fuse(queue)(np.zeros(0)) == (0.0, 0.0)
    assert fuse(blended)(np.zeros(0), np.zeros(0)) == (1.0, 3.0, 5.0)


def test_a_batch_is_row_by_row(rng):
    x = rng.standard_normal((3, 8))
    same(fuse(queue)(x), tuple(map(np.array, zip(*map(queued, x), strict=True))))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.integers(0, 8))
def test_parts_are_kept_in_order(elements, cut):
    x = np.array(elements, float)
    left, right = (AFFINE.stream(start=start) for start in (0, min(cut, len(x))))
    left.update(x[:cut], x[:cut] - 1)
    right.update(x[cut:], x[cut:] - 1)
    same(right.merge(left).result(), REFERENCES[affine](x, x - 1))


def test_parts_that_interleave_are_refused(rng):
    x = rng.standard_normal(6)
    fused = fuse(queue)
    outer = fused.stream(start=0).update(x[:2]).merge(fused.stream(start=4).update(x[4:]))
    with pytest.raises(OperatorError, match="does not commute"):
        outer.merge(fused.stream(start=2).update(x[2:4]))


def test_a_step_that_sees_positions_asks_where_a_part_starts(rng):
    fused, x = fuse(changes), rng.standard_normal(6)
    with pytest.raises(OperatorError, match="where the second stream starts"):
        fused.stream().update(x[:3]).merge(fused.stream().update(x[3:]))


def test_a_plain_running_sum_at_the_end_is_a_sum():
    @operator
    def total(x: "l"):
        """Σ x, element by element."""
        return scan(lambda h: h + x, "l")

    form = fuse(total).form
    assert [(c.monoid, str(c.lift), c.joined) for c in form.state] == [("sum", "x[l]", None)] and form.order == "commutative"


def test_a_pivot_that_elements_before_a_part_can_lower_does_not_only_grow():
    @operator
    def ties(x: "l"):
        """How many are the largest of elements and running sums: elements before a part lower its running sums."""
        largest = ra.max(ra.maximum(x, cumulative(ra.sum, x, "l")), "l")
        return ra.sum(ra.where(x == largest, 1, 0), "l")

    assert not decide(ties).fusable


@pytest.mark.parametrize("wrong", [lambda joined, h: substitute(joined, _swapped(joined)), lambda joined, h: h],
                         ids=["the later part first", "only the earlier part"])
def test_a_wrong_join_is_found_out(wrong):
    form, inputs = fuse(affine).form, drawn(affine, 7)
    broken = replace(form, state=tuple(c if c.joined is None else replace(c, joined=wrong(c.joined, c.symbol)) for c in form.state))
    with pytest.raises(AssertionError):
        same(fused_by_chunks(affine, broken, affine.bind(**inputs), [3, 4]), REFERENCES[affine](**inputs))


def _swapped(joined):
    names = ("h", "q1")
    return {symbol(n, ()): symbol(n + "'", ()) for n in names} | {symbol(n + "'", ()): symbol(n, ()) for n in names}


SCHEDULES = (Schedule(16), Schedule(4), Schedule(3, 1, 2, 2), Schedule(2, 1, 1, 5))


@each
def test_a_kernel_goes_from_state_to_state_in_parts_and_tiles(op, plain_kernels):
    fused, inputs = fuse(op), drawn(op, 12)
    for schedule in SCHEDULES:
        same(run_cpu(op, fused.form, op.bind(**inputs), schedule), REFERENCES[op](**inputs))


@pytest.mark.parametrize("op", [queue, running], ids=lambda op: op.name)
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_a_kernel_knows_special_values(op, special, plain_kernels):
    x = np.linspace(-2, 3, 12)
    for places in ([0], [5, 6], [11]):
        x[places], whole = special, op.bind(x=np.where(np.isin(np.arange(12), places), special, x))
        with np.errstate(all="ignore"):
            want = reference(op, whole)
            for schedule in SCHEDULES:
                same(run_cpu(op, fuse(op).form, whole, schedule), want)


@operator
def squared_changes(x: "l"):
    """Σ (x − the one before)², Σ max(x − the one before, 0)."""
    change, inside = x - previous(x, "l"), ra.index("l") > 0
    return ra.sum(change ** 2, "l", where=inside), ra.sum(ra.maximum(change, 0), "l", where=inside)


def test_a_step_between_two_elements_is_kept_as_it_is_written():
    """Squares written out would lose the change next to 1e9, and give inf − inf next to an infinity; the ends are kept once for both."""
    form = fuse(squared_changes).form
    x = 1e9 + np.linspace(0, 1, 12) ** 2
    for special in (None, np.inf, -np.inf):
        x[4] = x[4] if special is None else special
        want = (np.diff(x) ** 2).sum(), np.maximum(np.diff(x), 0).sum()
        for sizes in ([12], [1] * 12, [5, 7]):
            same(fused_by_chunks(squared_changes, form, squared_changes.bind(x=x), sizes), want)
    assert len(form.state) == 5 and not [fact for fact in form.facts if fact.kind == "domain"]


def test_where_elements_are_infinite_finite_results_are_those_of_the_loop_and_the_form_says_so(rng):
    for op in (drawdown, queue, affine):
        form = fuse(op).form
        assert [fact for fact in form.facts if fact.kind == "domain"]
        for _ in range(20):
            inputs = drawn(op, 6)
            for array in inputs.values():
                array[rng.integers(6)] = rng.choice([np.inf, -np.inf, 0])
            with np.errstate(all="ignore"):
                binding, want = op.bind(**inputs), np.ravel(reference(op, op.bind(**inputs)))
                for sizes in ([6], [1] * 6, [2, 4]):
                    got = np.ravel(fused_by_chunks(op, form, binding, sizes))
                    np.testing.assert_allclose(got[np.isfinite(want)], want[np.isfinite(want)])


def test_of_an_infinite_peak_nothing_is_known():
    assert np.isnan(fuse(drawdown)(np.array([1.0, np.inf, 2.0]))).all() and np.isnan(REFERENCES[drawdown](np.array([1.0, np.inf, 2.0]))[0])


def test_a_row_that_starts_from_nothing_takes_its_first_element_like_any_other(plain_kernels):
    """∞·0 and NaN·0 are NaN in the loop, and so they are in parts and kernels: nothing is left out at the first element."""
    form, inputs = fuse(gated).form, drawn(gated, 12)
    for inputs["g"][0] in (np.inf, np.nan):
        binding = gated.bind(**inputs)
        got = [run_cpu(gated, form, binding, schedule) for schedule in SCHEDULES]
        got += [fused_by_chunks(gated, form, binding, sizes) for sizes in ([12], [1] * 12, [5, 7])] + [fused_by_tree(gated, form, binding, [3, 1, 8], 0)]
        assert np.isnan(got).all() and np.isnan(gated_by_hand(**inputs)).all()


@operator
def shares(x: "l", w: "l v"):
    """Running weighted means, and what the running sum is of the sum."""
    total = scan(lambda Z: 0.9 * Z + ra.exp(x), "l", every="after")
    mean = scan(lambda O: 0.9 * O + ra.exp(x) * w, "l", every="after") / total
    return mean, cumulative(ra.sum, x, "l") / ra.sum(x, "l")


@operator
def nested(x: "l"):
    """Sums of running sums up to each element."""
    return cumulative(ra.sum, cumulative(ra.sum, x, "l"), "l")


@pytest.mark.parametrize("op", [shares, nested], ids=lambda op: op.name)
def test_maps_go_on_from_part_to_part(op, plain_kernels):
    fused, binding = fuse(op), op.bind(**drawn(op, 12))
    want = reference(op, binding)
    same(fused_by_chunks(op, fused.form, binding, [5, 3, 4]), want)
    for schedule in SCHEDULES:
        same(run_cpu(op, fused.form, binding, schedule), want)
    same(tuple(interpreted(lower(op, fused.form), op, binding, 5)), want if isinstance(want, tuple) else (want,))


@operator
def about_the_mean(x: "l"):
    """What x − mean has added up to: the mean is known only at the end.  And the element before, 7 before the first."""
    return cumulative(ra.sum, x - ra.mean(x, "l"), "l"), previous(x, "l", 7.0)


def test_maps_go_on_by_what_is_known_only_at_the_end(plain_kernels, rng):
    x = rng.standard_normal(12)
    fused, want = fuse(about_the_mean), (np.cumsum(x - x.mean()), np.concatenate([[7.0], x[:-1]]))
    for sizes in ([12], [5, 3, 4], [0, 12]):
        same(fused_by_chunks(about_the_mean, fused.form, about_the_mean.bind(x=x), sizes), want)
    for schedule in SCHEDULES[:2]:
        same(run_cpu(about_the_mean, fused.form, about_the_mean.bind(x=x), schedule), want)
    with pytest.raises(LoweringError, match="choose parts=1"):
        run_cpu(about_the_mean, fused.form, about_the_mean.bind(x=x), SCHEDULES[2])


def test_a_map_that_sees_only_what_came_before_reads_its_elements_once():
    program = lower(running, fuse(running).form)
    text = print_cpu(program, Signature({"x": "f4"}, {})).text
    sweep = text[text.index("def sweep"):text.index("def kernel")]
    assert not program.folds and sweep.count("for t0 in") == 1 and lower(shares, fuse(shares).form).folds


@pytest.mark.parametrize("wrong, words", [
    (lambda: scan(lambda: 1, "l"), "no parameters"),
    (lambda: scan(lambda a, b: a, "l"), "returns 1 states"),
    (lambda: scan(lambda a, b: (a + X, b), "l", (0,)), "1 initial values"),
    (lambda: scan(lambda h: h + 1, "l", X), "an initial value varies"),
    (lambda: scan(lambda x: x + X, "l"), "means something else"),
    (lambda: scan(lambda h: h + scan(lambda h: h + X, "l", every="after"), "l"), "means something else"),
    (lambda: scan(lambda h: h + X, "l", every="around"), "neither after nor before"),
    (lambda: scan(lambda h: h + X, "l m"), "one order"),
    (lambda: cumulative(ra.argmax, X, "l"), "no such running reduction"),
], ids=range(9))
def test_a_scan_that_makes_no_sense_is_refused(wrong, words):
    with pytest.raises(OperatorError, match=words):
        wrong()


def test_a_state_cannot_leave_its_scan():
    escaped = []
    with pytest.raises(OperatorError, match="outside of its scan"):
        @operator
        def leaking(x: "l"):
            scan(lambda h: escaped.append(h) or h + x, "l")
            return ra.sum(x * escaped[0], "l")


def test_what_is_kept_for_several_results_is_kept_once():
    @operator
    def both(x: "l"):
        """Two states of one recurrence."""
        return scan(lambda u, v: (0.5 * u + v, u + x), "l")

    assert len(fuse(both).form.state) == 6, "a matrix of four entries and two offsets"
    assert primary(cascades(both)).reductions[1].monoid == "compose"


@pytest.mark.parametrize("op", [queue, changes, quadratic, blended, broken, operators["crf_log_partition"]], ids=lambda op: op.name)
def test_a_certificate_proves_the_matrices_and_claims_no_commutativity(op):
    certificate = fuse(op).certify(examples=5)
    proved = {row.id for row in certificate.rows if row.verdict == "proved"}
    assert certificate.status in ("proved", "proved and tested")
    assert {"monoid:compose", *(row.id for row in certificate.rows if row.kind == "recurrence")} <= proved
    assert not [row for row in certificate.rows if row.id == "merge:commutative"]
    assert {row.id for row in certificate.rows if row.kind == "readout"} <= certificate.proved


A, B, C = (symbol(name) for name in "abc")


@pytest.mark.parametrize("left, right, same", [
    (ra.logadd(A + C, B + C), ra.logadd(A, B) + C, True),
    (ra.logadd(A, B) + ra.logadd(A, B), ra.logadd(ra.logadd(A + A, A + B), ra.logadd(B + A, B + B)), True),
    (ra.logadd(A, -np.inf), A, True), (ra.logadd(A + 1, B) - 1, ra.logadd(A, B - 1), True), (A * (B + C), A * C + B * A, True),
    (ra.logadd(A, A), A, False), (ra.logadd(A, B), ra.maximum(A, B), False), (ra.logadd(A + 1, B), ra.logadd(A, B + 1), False),
    (ra.logadd(A, B) + C, ra.logadd(A + C, B), False)], ids=str)
def test_logarithms_of_sums_multiply_out(left, right, same):
    assert equal("log-plus", left, right) is same


@pytest.mark.parametrize("wrong", [lambda joined, h: substitute(joined, _swapped(joined)), lambda joined, h: h],
                         ids=["the later part first", "only the earlier part"])
def test_a_certificate_of_a_wrong_join_is_refuted(wrong):
    fused = fuse(affine)
    state = tuple(c if c.joined is None else replace(c, joined=wrong(c.joined, c.symbol)) for c in fused.form.state)
    broken = certify(affine, fused.decision.main.cascade, replace(fused.form, state=state), examples=10)
    assert broken.status == "refuted" and broken.row("recurrence:h").verdict == "cannot decide"
