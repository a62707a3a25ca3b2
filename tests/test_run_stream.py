"""Streams: updates and merges in any shape give the reference; positions follow, or are asked for."""

import gc
import weakref

import numpy as np
import pytest
import redfuser_algebra.language.functions as ra
from hand_forms import CASES, by_hand, component
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from redfuser_algebra.discover.form import Pivot
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, symbol
from redfuser_algebra.language.operator import operator
from redfuser_algebra.run.positions import joined_spans, moves_freely
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.stream import Stream
from test_run_form import calls, same


def stream(name, **given):
    return Stream(CASES[name].operator, CASES[name].form, **given)


def part_of(case, binding, start, stop):
    """The arrays of a call, cut along l."""
    def cut(name, array):
        axes = case.operator.inputs[name]
        if "l" not in axes:
            return array
        return np.take(array, range(start, stop), axis=axes.index("l") - len(axes))

    return {name: cut(name, array) for name, array in binding.arrays.items()}


@given(calls(), st.data())
def test_streams_merged_in_any_order_agree_with_the_reference(call, data):
    case, binding, sizes = call
    stops = np.cumsum([0, *sizes]).tolist()
    streams = []
    for start, stop in zip(stops, stops[1:], strict=False):
        if streams and streams[-1]._next == start and data.draw(st.booleans()):
            streams[-1].update(**part_of(case, binding, start, stop))
        else:
            placed = Stream(case.operator, case.form, start=start)
            streams.append(placed.update(**part_of(case, binding, start, stop)))
    first, *others = data.draw(st.permutations(streams))
    for other in others:
        assert first.merge(other) is first
    assert first.length == stops[-1]
    assert same(first.result(), reference(case.operator, binding))


@given(calls(names=[name for name in CASES if name not in ("attention", "plain")]))
def test_streams_that_do_not_say_where_they_start_follow(call):
    case, binding, sizes = call
    stops = np.cumsum([0, *sizes]).tolist()
    whole = Stream(case.operator, case.form)
    whole.update(**part_of(case, binding, 0, stops[1]))
    for start, stop in zip(stops[1:], stops[2:], strict=False):
        whole.merge(Stream(case.operator, case.form).update(**part_of(case, binding, start, stop)))
    assert same(whole.result(), reference(case.operator, binding))


def test_the_other_stream_stays_as_it_is():
    first, second = (stream("softmax").update(np.array(x)) for x in ([1.0, 2.0], [3.0]))
    before = second.result()
    first.merge(second)
    assert same(second.result(), before) and second.length == 1 and first.length == 3
    assert repr(first) == "Stream(softmax, length=3)"


@pytest.mark.parametrize("name, free", [
    ("softmax", True), ("value_at_argmax", True), ("largest_three", True), ("attention", False), ("plain", False)])
def test_which_forms_move_freely(name, free):
    assert moves_freely(CASES[name].form) is free


def test_a_position_renamed_by_a_pivot_is_still_a_position():
    x, p, p1 = Expr("input", (), ("x", ("l",))), symbol("p"), symbol("p'")

    @operator
    def after(x: "l"):
        return ra.sum(x, "l", where=ra.index("l") > ra.argmax(x, "l"))

    state = [component("i", "argmax", x),
             component("s", "sum", x, lambda s: ra.where(p == p1, s, 0), mask=ra.index("l") > p)]
    outputs = [symbol("s")]
    assert moves_freely(by_hand(after, state, outputs, pivots=[Pivot("p", symbol("i"), ())]).form)
    assert not moves_freely(by_hand(after, state, outputs, pivots=[Pivot("p", symbol("i") * 2, ())]).form)
    rebased = [state[0], component("s", "sum", x, lambda s: ra.where(p > 3, s, 0), mask=ra.index("l") > p)]
    assert not moves_freely(by_hand(after, rebased, outputs, pivots=[Pivot("p", symbol("i"), ())]).form)


def test_positions_that_nothing_holds_stay_that_way():
    masked = [stream("largest_three").update(np.ones(3)) for _ in range(2)]
    masked[0].merge(masked[1])
    assert masked[0].result()[0].tolist() == [-1, -1, -1]


def test_an_unplaced_stream_is_refused_where_positions_matter():
    first = stream("plain").update(np.ones(3))
    with pytest.raises(OperatorError) as caught:
        first.merge(stream("plain").update(np.ones(2)))
    assert "depends on positions" in caught.value.failed and "stream(start=3)" in caught.value.remedy
    assert first.merge(stream("plain")).merge(stream("plain", start=3).update(np.ones(2))).result()[4] == 10.0


def test_a_position_is_seen_once():
    first = stream("value_at_argmax", start=0).update(np.zeros(4), np.zeros(4))
    with pytest.raises(OperatorError, match="already seen"):
        first.merge(stream("value_at_argmax", start=3).update(np.ones(1), np.ones(1)))
    with pytest.raises(OperatorError, match="already seen"):
        first.merge(first)
    assert first.length == 4


def test_positions_that_were_said_stay_said_through_merges():
    x = np.array([1.0, 2.0])
    collected = stream("value_at_argmax").merge(stream("value_at_argmax", start=8).update(x, x))
    whole = stream("value_at_argmax").update(x - 5, x).merge(collected)
    assert whole.result()[0] == 9 and whole.length == 4
    assert whole.update(x + 1, x).result()[0] == 11


def test_an_empty_stream_learns_what_does_not_vary_from_the_one_it_takes_in(rng):
    Q, K, V = rng.standard_normal((4, 2)), rng.standard_normal((6, 2)), rng.standard_normal((6, 3))
    case = CASES["attention"]
    collected = stream("attention").merge(stream("attention").update(Q, K[:4], V[:4], size=2.0)).update(K[4:], V[4:])
    assert same(collected.result(), reference(case.operator, case.operator.bind(Q, K, V, size=2.0)))


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12))), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12))))
def test_spans_are_sets_of_positions(a, b):
    def covered(spans):
        return [p for start, stop in spans for p in range(start, stop)]

    joined = joined_spans(tuple(a), tuple(b))
    points = covered([*a, *b])
    assert (joined is None) == (len(points) > len(set(points)))
    if joined is not None:
        assert covered(joined) == sorted(points)
        assert all(left[1] < right[0] for left, right in zip(joined, joined[1:], strict=False))


def test_maps_come_in_the_order_of_positions_and_one_chunk_at_a_time():
    x = np.array([[1.0, 4.0, 2.0, 0.5], [0.0, 1.0, -1.0, 2.0]])
    expected = reference(CASES["softmax"].operator, CASES["softmax"].operator.bind(x))
    late = stream("softmax", start=2).update(x[:, 2:])
    late.merge(stream("softmax", start=0).update(x[:, :1]).update(x[:, 1:2]))
    assert same(late.result(), expected, scale=1.0)
    mapped, = late.map(x[:, 1:3])
    assert same(mapped, expected[0][:, 1:3], scale=1.0)


def test_a_map_that_speaks_of_positions_asks_for_them():
    @operator
    def away(x: "l"):
        return ra.index("l") - ra.argmax(x, "l")

    i = symbol("i")
    case = by_hand(away, [component("i", "argmax", Expr("input", (), ("x", ("l",))))], [ra.index("l") - i])
    one = Stream(case.operator, case.form).update(np.array([1.0, 5.0])).update(np.array([2.0]))
    assert one.result().tolist() == [-1, 0, 1]
    with pytest.raises(OperatorError, match="depends on positions"):
        one.map(np.zeros(2))
    assert one.map(np.zeros(2), start=3).tolist() == [2, 3]


def test_only_operators_with_maps_keep_their_chunks_alive():
    for name, kept in [("softmax", True), ("variance", False)]:
        chunk = np.arange(3.0)
        gone, running = weakref.ref(chunk), stream(name).update(chunk)
        del chunk
        gc.collect()
        assert (gone() is not None) == kept and running.length == 3


def test_what_does_not_vary_is_given_once_and_stays(rng):
    Q, K, V = rng.standard_normal((4, 2)), rng.standard_normal((6, 2)), rng.standard_normal((6, 3))
    case = CASES["attention"]
    expected = reference(case.operator, case.operator.bind(Q, K, V, size=2.0))
    assert same(stream("attention", Q=Q, size=2.0).update(K[:4], V[:4]).update(K[4:], V=V[4:]).result(), expected)
    assert same(stream("attention").update(Q, K[:4], V[:4], size=2.0).update(K[4:], V[4:]).result(), expected)
    half = stream("attention", start=4, size=2.0).update(Q, K[4:], V[4:])
    assert same(stream("attention", Q=Q, size=2.0).update(K[:4], V[:4]).merge(half).result(), expected)


REFUSED = {
    "a query that changes": (lambda s, Q, K, V: s.update(Q + 1, K, V), "Q differs"),
    "a scalar that changes": (lambda s, Q, K, V: s.update(K, V, size=3.0), "size differs"),
    "a width that changes": (lambda s, Q, K, V: s.update(K, V[:, :1]), "the length of axis j differs"),
    "a batch that changes": (lambda s, Q, K, V: s.update(K[None], V), "the batch shape differs"),
    "an array given twice": (lambda s, Q, K, V: s.update(K, V, V=V), "also given by position"),
    "too many arrays": (lambda s, Q, K, V: s.update(Q, K, V, V), "4 arrays by position"),
    "an array too few": (lambda s, Q, K, V: s.update(K), "missing"),
    "two lengths": (lambda s, Q, K, V: s.update(K, V[1:]), "length"),
    "another operator": (lambda s, Q, K, V: s.merge(stream("softmax")), "different fused forms"),
    "other queries": (lambda s, Q, K, V: s.merge(stream("attention", start=9).update(Q + 1, K, V)), "Q differs"),
    "no maps": (lambda s, Q, K, V: s.map(K, V), "keeps the axis"),
    "no such input": (lambda s, Q, K, V: stream("attention", q=Q), "no such input"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_and_changes_nothing(name, rng):
    act, message = REFUSED[name]
    Q, K, V = rng.standard_normal((4, 2)), rng.standard_normal((6, 2)), rng.standard_normal((6, 3))
    running = stream("attention").update(Q, K, V)
    before = running.result()
    with pytest.raises(OperatorError, match=message) as caught:
        act(running, Q, K, V)
    assert caught.value.remedy
    assert running.length == 6 and same(running.result(), before)
    assert running.update(K, V).length == 12


def test_nothing_seen_yet():
    for ask in (Stream.result, lambda s: s.map(np.zeros(1))):
        with pytest.raises(OperatorError, match="no chunk"):
            ask(stream("softmax"))
    with pytest.raises(OperatorError, match="axis is empty"):
        stream("softmax").update(np.zeros(0)).result()
    assert stream("masked_softmax").update(np.zeros(0), np.zeros(0)).result() == (-np.inf, 0.0)


@given(arrays.arrays(float, st.integers(1, 40), elements=st.floats(-1, 1)))
def test_a_long_stream_of_offset_numbers_keeps_its_digits(x):
    running = stream("variance")
    for value in x + 1e8:
        running.update(np.array([value]))
    mean, variance = running.result()
    assert abs(mean - 1e8 - np.mean(x)) < 1e-6 and abs(variance - np.var((x + 1e8) - 1e8)) < 1e-6
