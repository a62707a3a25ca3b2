"""Saved streams: what was saved goes on and merges as if it had never left; nothing else is taken for one."""

import functools
import io
import itertools
import json
import pickle

import numpy as np
import pytest
import redfuser_algebra as ra
from lowered import verdict

RNG = np.random.default_rng(11)
X = RNG.standard_normal((3, 24))


def fused(name):
    return verdict(name).fused


def sent(stream, by):
    """The stream after a trip through a file."""
    file = io.BytesIO()
    stream.save(file)
    file.seek(0)
    return by.load_stream(file)


@pytest.mark.parametrize("name", ["logsumexp", "variance", "softmax", "value_at_argmax", "topk_mean_fixed"])
def test_a_stream_goes_on_and_merges_after_a_trip(name):
    f = fused(name)
    given = {key: RNG.standard_normal((3, 24)) for key in f.operator.inputs}
    def cut(start, stop):
        return {key: value[..., start:stop] for key, value in given.items()}

    first = sent(f.stream().update(**cut(0, 7)), f).update(**cut(7, 15))
    second = sent(f.stream().update(**cut(15, 24)), f)
    stayed = f.stream().update(**cut(0, 7)).update(**cut(7, 15)).merge(f.stream().update(**cut(15, 24)))
    for got, want in zip(np.atleast_1d(first.merge(second).result()), np.atleast_1d(stayed.result()), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_stays_the_same_and_where_it_starts_are_saved():
    f = fused("attention")
    Q, K, V = RNG.standard_normal((2, 4)), RNG.standard_normal((9, 4)), RNG.standard_normal((9, 3))
    late = sent(f.stream(start=5, Q=Q, scale=0.5).update(K[5:], V[5:]), f)
    early = sent(f.stream(Q=Q, scale=0.5), f)
    assert early.length == 0 and late.length == 4
    np.testing.assert_allclose(early.update(K[:5], V[:5]).merge(late).result(), f(Q, K, V, scale=0.5), 1e-12)
    with pytest.raises(ra.OperatorError, match="already seen"):
        early.merge(late)


def test_results_keep_the_dtype_of_what_was_seen(tmp_path):
    f = fused("logsumexp")
    path = tmp_path / "as.named"
    f.stream().update(X.astype(np.float32)).save(path)
    assert f.load_stream(path).result().dtype == np.float32 and [*tmp_path.iterdir()] == [path]


def test_formats_that_numpy_lacks_are_saved_and_follow_others():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    f = fused("attention")
    Q, K, V = (RNG.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((2, 4), (9, 4), (9, 3)))
    later = sent(f.stream(Q=Q).update(K[:2], V[:2]), f).update(K[2:5].astype(ml_dtypes.float8_e5m2), V[2:5]).update(K[5:].astype(np.int8), V[5:])
    whole = np.concatenate([K[:2].astype(float), K[2:5].astype(ml_dtypes.float8_e5m2).astype(float), np.trunc(K[5:].astype(float))])
    np.testing.assert_allclose(later.result(), f(Q, whole, V.astype(float)), 1e-6)
    assert later.result().dtype == np.float32


def archive(**header):
    file = io.BytesIO()
    np.savez(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    return file.getvalue()


@pytest.mark.parametrize("content, told", [
    (b"", "not readable"), (b"PK\x03\x04nonsense", "not readable"), (pickle.dumps({"header": 1}), "not readable"),
    (archive(format="other"), "no stream of version"), (archive(format="redfuser stream", version=99), "it says 99"),
    (archive(format="redfuser stream", version=1, form="0"), "another operator or form")])
def test_anything_else_is_refused(content, told, tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ra.OperatorError, match=told):
        fused("logsumexp").load_stream(path)


def places(header, before=()):
    """The places of everything in a header."""
    for key, value in header.items() if isinstance(header, dict) else enumerate(header) if isinstance(header, list) else ():
        yield (*before, key)
        yield from places(value, (*before, key))


def without(header, place, *instead):
    """A header without what is at a place, or with something else there."""
    header = json.loads(json.dumps(header))
    *way, last = place
    within = functools.reduce(lambda part, key: part[key], way, header)
    del within[last]
    if instead:
        within.update({last: instead[0]}) if isinstance(within, dict) else within.insert(last, instead[0])
    return header


@pytest.mark.parametrize("name", ["softmax", "topk_mean_fixed"])
def test_a_damaged_file_is_refused_or_means_the_same(name):
    """Whatever is changed in the header or in an array, there is one clear error, now or at the next step."""
    f, file = fused(name), io.BytesIO()
    given = dict.fromkeys(f.operator.inputs, X)
    f.stream(start=3).update(**given).save(file)
    file.seek(0)
    with np.load(file) as opened:
        arrays = dict(opened)
    header, want, refused = json.loads(arrays.pop("header").tobytes()), f(**{key: np.concatenate([X, X], -1) for key in given}), 0
    others = itertools.cycle(((), (None,), (-1,), ("x",), ([],), ({},), ({"a": 1},)))
    changed = [(without(header, place, *next(others)), arrays) for place in places(header)]
    changed += [(header, {**arrays, key: instead}) for key in arrays for instead in (np.array("x"), np.zeros(0), np.zeros((7, 7)), np.ones((1,) * arrays[key].ndim, complex))]
    for written, kept in [*changed, *((header, {name: kept for name, kept in arrays.items() if name != key}) for key in arrays)]:
        file = io.BytesIO()
        np.savez(file, header=np.frombuffer(json.dumps(written).encode(), np.uint8), **kept)
        file.seek(0)
        try:
            got = f.load_stream(file).merge(f.stream(start=27).update(**given)).result()
        except ra.OperatorError:
            refused += 1
        else:
            np.testing.assert_allclose(got, want, 1e-12, err_msg=str(written))
    assert refused > 0.8 * len(changed)


def test_a_pickle_inside_is_never_opened(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, header=np.array([object()], dtype=object))
    with pytest.raises(ra.OperatorError, match="not readable"):
        fused("logsumexp").load_stream(path)


def test_a_missing_file_and_a_stream_of_another_operator(tmp_path):
    with pytest.raises(ra.OperatorError, match="no such file"):
        fused("logsumexp").load_stream(tmp_path / "none.npz")
    fused("logsumexp").stream().update(X).save(tmp_path / "a.npz")
    with pytest.raises(ra.OperatorError, match="another operator"):
        fused("softmax").load_stream(tmp_path / "a.npz")
