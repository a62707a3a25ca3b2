"""Plain NumPy functions as operators: the operator means what the function computes, and what it cannot mean is refused."""

import math
import operator
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import redfuser_algebra as ra
from hypothesis import given, settings
from hypothesis import strategies as st
from redfuser_algebra.run.reference import reference

RNG = np.random.default_rng(7)
SIZES = {"b": 4, "l": 9, "m": 5, "k": 3, "j": 2, "h": 2, "n": 6}


def arrays_for(axes):
    return {name: RNG.normal(size=[SIZES[axis] for axis in own.split()]) for name, own in axes.items()}


def flat(result):
    return list(result.values()) if isinstance(result, dict) else list(result) if isinstance(result, tuple) else [result]


def assert_same(got, want):
    assert type(got) is type(want) if isinstance(want, tuple | dict) else not isinstance(got, tuple | dict)
    for value, right in zip(flat(got), flat(want), strict=True):
        assert np.shape(value) == np.shape(right)
        np.testing.assert_allclose(np.asarray(value, float), np.asarray(right, float), 1e-12, 1e-12)


def softmax(x):
    x = np.asarray(x, dtype=float)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(Q, K, V):
    return softmax(Q @ K.T / math.sqrt(Q.shape[-1])) @ V


def causal(Q, K, V):
    S = np.einsum("mk,lk->ml", Q, K) * Q.shape[1] ** -0.5
    return np.einsum("ml,lj->mj", softmax(np.where(np.tril(np.ones(S.shape, bool)), S, -np.inf)), V)


def causal_in_place(Q, K, V):
    S = Q @ K.T
    S[np.arange(len(Q))[:, None] < np.arange(len(K))] = -np.inf
    return softmax(S) @ V


def attention_with_itself(x):
    S = np.where(np.tril(np.ones((len(x), len(x)), bool)), x @ x.T, -np.inf)
    return softmax(S) @ x


def route(x):
    i = np.argsort(-x, axis=-1)[..., :3]
    w = softmax(np.take_along_axis(x, i, -1))
    return w, i


def layernorm(x, g):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-5) * g


def in_place(x):
    y = x.copy()
    y -= y.mean()
    y *= 2
    return y.max()


def kurtosis(x):
    d = x - x.mean()
    return {"variance": x.var(ddof=1), "kurtosis": (d**4).mean() / (d**2).mean() ** 2 - 3}


def smoothed(x, t):
    q = 0.9 * t + 0.1 / x.size
    return -(q * (x - np.logaddexp.reduce(x))).sum()


def dixon(x):
    s = np.sort(x)
    return (s[1] - s[0]) / (s[-1] - s[0]), s[-2]


def gains(x):
    return (np.sort(x)[::-1][:4] / np.log2(np.arange(2, 6))).sum()


def rotated(x, w):
    h = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] * 10.0 ** (-np.arange(h) / h)
    a, b = x[:, :h], x[:, h:]
    turned = np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], axis=-1)
    swapped = np.concatenate([-b, a], 1)
    return turned @ w, np.exp(swapped).sum(0)


ROW, TABLE = {"x": "l"}, {"x": "b l"}
FUNCTIONS = [
    (softmax, TABLE), (attention, {"Q": "m k", "K": "l k", "V": "l j"}), (layernorm, {"x": "b l", "g": "l"}),
    (causal, {"Q": "m k", "K": "l k", "V": "l j"}), (causal_in_place, {"Q": "m k", "K": "l k", "V": "l j"}),
    (route, TABLE), (in_place, ROW), (kurtosis, ROW), (smoothed, {"x": "l", "t": "l"}), (dixon, ROW), (gains, ROW),
    (lambda x: np.maximum.reduce(x) - np.add.reduce(np.exp(x)), ROW),
    (lambda x: (x.reshape(-1).mean(), np.ravel(x).max(), x.sum(axis=(0, 1))), TABLE),
    (lambda x, v: v[np.argmax(x)], {"x": "l", "v": "l"}), (lambda x, v: v[x.argmin()], {"x": "l", "v": "l j"}),
    (lambda x, i: x[np.arange(len(x)), x.argmax(1)], {"x": "b l", "i": "b"}),
    (lambda x: np.linalg.norm(x) + np.linalg.norm(x, 1) + np.linalg.norm(x, np.inf) + np.linalg.norm(x, 3), ROW),
    (lambda x: np.linalg.norm(x, axis=1), TABLE),
    (lambda x, y: (np.corrcoef(x, y)[0, 1], np.cov(x, y)[1, 0], np.cov(x, y, bias=True)[0, 0]), {"x": "l", "y": "l"}),
    (lambda x, y: (np.dot(x, y), x @ y, np.inner(x, y), np.vdot(x, y), np.tensordot(x, y, 1)), {"x": "l", "y": "l"}),
    (lambda x, y: np.outer(x, y).sum(0), {"x": "l", "y": "m"}),
    (lambda x, y: np.tensordot(x, y, axes=([1], [0])), {"x": "b l", "y": "l k"}),
    (lambda x, y: np.einsum("...l,...l->...", x, y), {"x": "b l", "y": "b l"}),
    (lambda x, y: np.einsum("bl,l", x, y), {"x": "b l", "y": "l"}),
    (lambda x: x.T.sum(0) - np.swapaxes(x, 0, 1).max(axis=0) + np.moveaxis(x, 0, -1).min(axis=0), TABLE),
    (lambda x: np.expand_dims(x, 1).sum((1, 2)) + x[:, None, :].squeeze(1).prod(-1), TABLE),
    (lambda x: x.reshape(x.shape[0] * x.shape[1]).reshape(x.shape).max(1), TABLE),
    (lambda x: np.sum(x, where=x > 0, axis=1) + np.max(x, axis=1, initial=0.3) + x.mean(1, where=x < 1), TABLE),
    (lambda x: np.nansum(x) + np.nanmax(x) + np.nanmean(x) + np.nanstd(x), ROW),
    (lambda x, w: np.average(x, weights=w * w), {"x": "l", "w": "l"}),
    (lambda x, w: np.average(x, axis=1, weights=w * w), {"x": "b l", "w": "l"}),
    (lambda x: (np.any(x > 1), np.all(x < 5), np.count_nonzero(x > 0), np.ptp(x)), ROW),
    (lambda x: (np.ones_like(x) * 2).sum() + np.full_like(x, 3.0).prod() + np.ones(x.size).sum(), ROW),
    (lambda x: np.hypot(x, 2).sum() + np.square(x).mean() + np.clip(x, -1, 1).sum() + np.trunc(x).sum() + np.cbrt(x).max(), ROW),
    (lambda x: np.logaddexp(x, 0).sum() + np.tan(x / 9).sum() + np.sinh(x).sum() + np.log10(1 + x * x).sum(), ROW),
    (lambda x: (x.astype(int).sum(), (x > 0).astype(float).sum(), x.astype(bool).sum(), np.fix(x).sum()), ROW),
    (lambda x: (x * np.arange(x.size)).sum() + (x * np.arange(1, x.size + 1)).sum() + (x * np.linspace(0, 0, x.size)).sum(), ROW),
    (lambda x: x[0] + x[-1] + x[x.size - 2], ROW), (lambda x: x[..., 0] + x[:, -1] + x[1].sum(), TABLE),
    (lambda x: np.partition(x, 2)[..., :2].sum(-1) + np.partition(x, -3, axis=-1)[..., -3:].sum(-1), TABLE),
    (lambda x: -np.sort(-x)[..., :2], TABLE), (lambda x: np.argsort(x)[..., ::-1][..., :2], TABLE),
    (lambda x: np.tril(x).sum(1) + np.triu(x, 1).max(1), TABLE),
    (lambda x: (np.median(x, axis=1), np.quantile(x, 0.3, axis=0), np.percentile(x, 75, 1) - x.min(1)), TABLE),
    (lambda x: x.__array_namespace__().sum(x, axis=-1), TABLE),
    (lambda x: np.float64(2) * x.sum() + np.array(3.0) * x.max() + sum([x.min(), 1]), ROW),
    (lambda x: np.nan_to_num(x).sum() + np.heaviside(x, 0.5).sum() + np.isfinite(x).sum() + np.fmax(x, 0).sum(), ROW),
    (lambda x: np.cumsum(x, 1).max(1) - np.cumprod(x, axis=-1).sum(1) + np.maximum.accumulate(x, 1).sum(1)
     + np.logaddexp.accumulate(x, 1).sum(1), TABLE),
    (lambda x, y: sum(each.sum() for each in np.broadcast_arrays(x, y)), {"x": "b l", "y": "l"}),
    (lambda x: (x.sum(1, keepdims=True), x.max(0, keepdims=True), x.mean(1)[:, None], x.sum(keepdims=True)), TABLE),
    (attention_with_itself, TABLE), (lambda x: x.T @ x, TABLE), (lambda x: ((x.T @ x) ** 2).sum(), {"x": "l k"}), (lambda x: np.abs(x[:, None] - x[None, :]).max(1), ROW),
    (lambda x, w: (x + x @ w - (x @ w @ w) * x).sum(1), {"x": "b l", "w": "l l"}), (lambda x: ((x[:, None] - x[None]) ** 2).sum(-1).min(1), TABLE),
    (lambda x: (np.cov(x), np.corrcoef(x), np.cov(x, rowvar=False, bias=True)), TABLE), (lambda x: (x.argmax(), np.argmin(x), np.nanargmax(x, 1)), TABLE),
    (lambda x: np.arcsin(x / 9).sum(1) + np.arccos(x / 9).max(1) + np.arcsinh(x).sum(1) + np.arctanh(x / 9).sum(1) + np.arccosh(1 + x * x).sum(1), TABLE),
    (lambda x: np.select([x > 1, x < -1], [x, -x], 0).sum(1) + np.fmod(x, 0.7).sum(1) + np.sinc(x).sum(1) + np.divmod(x, 2)[0].sum(1), TABLE),
    (lambda x: max(x.max(), 0.5, x[0]) - min(1, x.min()), ROW), (lambda x: np.abs(np.diff(x)).sum() + np.diff(x, 2).max(), ROW),
    (lambda x: (x[2:] * x[:-2]).sum() / (x[1:] - x.mean()).var() + x[1:].argmax() + x[:-3].size, ROW),
    (lambda x: np.cumsum(x[1:]).max() - np.cumsum(x)[1:].min() + (np.arange(len(x) - 1) * x[1:]).sum(), ROW),
    (lambda x, t: np.trapezoid(x, t) + np.trapezoid(x * x), {"x": "l", "t": "l"}), (lambda x: np.diff(x, axis=0).sum(1).max(), TABLE),
    (lambda x: np.trapezoid(x, dx=0.5, axis=0), TABLE), (lambda x: np.einsum("i,i->", x[1:], x[:-1]) + x[:-1] @ x[1:], ROW),
    (lambda x: x[x > 0].sum() / x[x > 0].size + (x[x > 0] ** 2).max() + x[x > 0] @ np.exp(x[x > 0]), ROW),
    (lambda x: (x[x[:, 0] > 0].mean(0), np.sqrt((x[x[:, 0] > 0] ** 2).sum(1)).max(), x[x > 0].std()), TABLE),
    (lambda x: np.count_nonzero(x[x > 0] > 1) + np.linalg.norm(x[x < 1]) + x[x > 0].astype(int).sum(), ROW),
    (lambda x: ((np.diag(x.T @ x) ** 2).sum(), np.trace(x @ x.T), np.diag(x[0]) @ x[1]), TABLE), (lambda x: np.eye(3) @ x + np.cross(x, x[::1] + 1).sum(0), {"x": "k k"}),
    (lambda x: np.bincount(x.argmax(1), minlength=x.shape[1]) / len(x), TABLE), (lambda x: x * np.array([0.1, 0.2, 0.4]), {"x": "b k"}),
    (lambda x: np.sort(x)[-4:] * np.argsort(x)[-4:] - np.subtract(*np.percentile(x, [75, 25])) + np.quantile(x, [0.1, 0.9])[1], ROW),
    (lambda x: np.max(np.where(np.floor(x)[:, None] == np.arange(-2, 3), x[:, None], 0), 0) / (len(x) - 2), ROW),
    (lambda x: (np.exp(-np.subtract.outer(range(3), range(3)) ** 2) * (np.floor(x) == np.arange(3)[:, None, None]).mean((1, 2))).sum(), TABLE),
    (lambda x: ((np.floor(x)[:, None, None] == np.arange(3)[:, None]) & (x[:, None, None] > np.arange(3))).sum(0), ROW),
    (lambda x: x.sum(1) / np.log(float(x.shape[0])) + x.max(1) / (float(x.shape[1]) ** 0.5) - 1.0 / int(x.shape[1] + 1) * math.log2(len(x)), TABLE),
    (lambda x: np.digitize(x, [-1.0, 0.0, 0.5]).mean() + np.digitize(x, [1, 0, -1], right=True).max() + np.searchsorted([-1, 1], x, "right").sum(), ROW),
    (lambda x: np.interp(x, [-1.0, 0.0, 0.5], [3, -1, 4]) + np.interp(x, [0, 0.2], [1, 2], left=-7, right=9) * np.interp(x, [0], [2]), TABLE),
    (lambda x: (np.histogram(x, [-9, -0.5, 0.5, 9])[0], np.histogram(x, 4, range=(-1, 1), weights=x)[0], np.histogram(x, 3)[0]), ROW),
    (lambda x: np.histogram(x, bins=[-9, 0, 1], density=True)[0] * np.histogram(x, bins=[-9, 0, 1])[1][:-1], ROW),
    (lambda x: np.where(x > 0)[0][0] - np.flatnonzero(x < 0)[-1] + np.nonzero(x > 0)[0].size / len(x[x > 0.1]), ROW),
    (lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=1).std(-1).max(1), TABLE), (lambda x: np.ediff1d(x).max(), ROW),
    (lambda x: np.convolve(x, [1, 2, 3], "valid").sum() + np.convolve([0.5, -1], x, "valid").max() - np.correlate(x, [1, 2]).min(), ROW),
    (lambda x: np.polyval([2, -1, 0.5], x).sum() + np.copysign(2, x).sum() + np.signbit(x).sum(), ROW),
    (lambda x: x.sum() * (2.0 * len(x) + 1.5) / (x.size % 7.0 + 1) + (0.5 - len(x)) * (len(x) // 2.0), ROW),
    (lambda x: (float(x.max()) - float((x > 0).all()), int(np.argmax(x)), int(10 * x.sum()), bool(np.any(x > 1)), int("3") * x.sum(dtype=float)), ROW),
    (lambda x: x.sum() * isinstance(1.5, float) + isinstance(1, float | None) + np.zeros(2, float).sum() + (float == type(x.ndim)) + float.fromhex("0x1p1"), ROW),
    (lambda x: (np.array([[x.min(), 1], [2, x.max()]]) @ np.stack([x[0], x.sum()]), np.stack([x, -x]).max(0), np.column_stack([x, x]).sum(0), np.vstack((x,))), ROW),
    (lambda x: (np.cumsum(x[::-1])[::-1], np.flip(x).max(), np.exp(x[::-1] - x.max()).sum(), (np.arange(len(x))[::-1] * x[::-1]).sum(), np.flip(np.cumsum(x)).min()), ROW),
    (lambda x: np.fliplr(x).sum(1) + np.flipud(x.T)[0] + np.cumsum(np.ones_like(x)[:, ::-1], 1)[:, ::-1].max(1) + x[:, ::-1][:, -1], TABLE),
    (lambda x: (0.9 ** np.arange(len(x))[::-1] @ x, (0.9 ** np.arange(x.size - 1, -1, -1) * x).max(), (x[::-1] * 0.9 ** np.arange(x.size)).sum()), ROW),
    (lambda x, y: (x[::-1] @ y[::-1], np.maximum(x[::-1], y[::-1]).max()), {"x": "l", "y": "l"}),
    (lambda x: np.linalg.vecdot(x, x) + np.linalg.vector_norm(x, axis=1), TABLE), (lambda x: np.isinf(x).any() ^ (x > 0).all(), ROW),
    # halves of an axis
    (rotated, {"x": "l n", "w": "n"}), (lambda x: x[:len(x) // 2].mean() - x[:x.size // 2].argmax() * x[:len(x) // 2].size, {"x": "l"}),
    (lambda x: (lambda a, b: (a / (1 + np.exp(-b))).max(1) + (a.argmax(1) * (a + b).sum(1)))(*np.split(x, 2, axis=1)), {"x": "b n"}),
    (lambda x: (np.hstack([np.arange(x.size // 2), x[:x.size // 2]]) * x).sum() + x[x.size // 2:] @ x[:x.size // 2], {"x": "n"}),
    # complex numbers
    (lambda x: np.abs(((x - x.mean()) * np.exp(-0.4j * np.arange(x.size))).sum()) ** 2 + np.angle(np.exp(1j * x).mean()), ROW),
    (lambda x: (np.vdot(x + 1j * x**2, 1j * x).imag, (x.astype(complex) / (2 - 1j)).sum().real, x.imag.sum(), np.angle(-x).sum(), x.conj().max()), ROW),
    (lambda x: np.abs(np.einsum("bl,l->b", x, np.exp(-2j * np.pi * np.arange(x.shape[1]) / x.shape[1]))) + np.abs(x @ np.exp(3j * np.arange(x.shape[1]))), TABLE),
    (lambda x, y: (lambda z: (np.var(z, axis=0), np.std(z), z.T[1:].sum(0).real, np.linalg.norm(z, axis=1), (z**3).mean().imag))(x + 1j * y), {"x": "b l", "y": "l"}),
    (lambda x: (np.log((1 / (x + 2j)).sum()).imag, np.where(x > 0, x * 1j, 2).sum().real, np.isnan(x - 1j).sum(), (x * 1j == 1j * x).all()), ROW),
    (lambda x: (np.exp(x * (0.1 + 2j)).sum().imag, (len(x) * 1j * np.sqrt(x * x) / (1j * len(x))).sum().real, np.square(x - 2j).sum().imag), ROW),
]


@pytest.mark.parametrize("function, axes", FUNCTIONS, ids=lambda value: getattr(value, "__name__", None))
def test_the_operator_means_what_the_function_computes(function, axes):
    op = ra.trace(function, **axes)
    given = arrays_for(axes)
    assert_same(op.widened(reference(op, op.bind(**given))), function(**given))


@pytest.mark.parametrize("function, axes", FUNCTIONS[:9], ids=lambda value: getattr(value, "__name__", None))
def test_traced_operators_fuse(function, axes):
    given = arrays_for(axes)
    got = ra.fuse(ra.trace(function, **axes))(**given)
    for value, right in zip(flat(got), flat(function(**given)), strict=True):
        np.testing.assert_allclose(value, right, 1e-10, 1e-12)


ELEMENTWISE = st.sampled_from([
    np.exp, np.tanh, np.abs, np.square, np.sign, np.floor, np.negative, lambda a: np.log(1 + a * a), lambda a: np.where(a > 0, a, -1)])
JOINED = st.sampled_from([np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.arctan2, np.less])
REDUCED = st.sampled_from([np.sum, np.max, np.min, np.mean, np.var, np.any])
AXES = st.sampled_from([None, 0, 1, -1, (0, 1)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ELEMENTWISE, JOINED, REDUCED, AXES), min_size=1, max_size=3))
def test_compositions_mean_what_they_compute(steps):
    def function(x, y):
        total = 0.0
        for elementwise, joined, reduce, axis in steps:
            x = joined(np.tanh(x), reduce(elementwise(x), axis=axis, keepdims=True)) + y
            total = total + reduce(x, axis=None)
        return total

    given = {"x": RNG.normal(size=(3, 4)), "y": RNG.normal(size=4)}
    op = ra.trace(function, x="b l", y="l")
    assert_same(reference(op, op.bind(**given)), function(**given))


def test_axes_are_named_by_what_meets_what():
    op = ra.trace(attention, Q=np.zeros((3, 5)), K=np.zeros((7, 5)), V=np.zeros((7, 2)))
    (m, k), (line, also_k), (also_line, j) = op.inputs.values()
    assert k == also_k and line == also_line and len({m, k, line, j}) == 4
    assert op.output_axes == ((m, j),)


def test_what_each_argument_is():
    def f(x, w, eps=1e-3, axis=-1, n=2.0, flag=True):
        return (x * w).sum(axis) * n + eps

    op = ra.trace(f, x="l", w=float, n=int, assume="w > 0", name="g")
    assert op.name == "g" and op.inputs == {"x": ("l",)}
    assert op.params == {"w": None, "eps": 1e-3, "n": None}
    assert [str(each) for each in op.assume] == ["w > 0"]

    def annotated(x: "b l", s: float = 2.0):  # noqa: F722
        return x.sum(-1) * s

    assert ra.trace(annotated).inputs == {"x": ("b", "l")}


def branching(x):
    if x.max() > 0:
        return x.sum()
    return x.min()


REFUSED = [
    (branching, ROW, "a branch on the elements", "if x.max() > 0"),
    (lambda x: complex(x.sum()), ROW, "an element as a Python number", "complex(x.sum())"),
    (lambda x: x[len(x) // 2:], ROW, "a part of axis", ""), (lambda x: (x[:len(x) // 2, None] * x).sum(), ROW, "meet all those of the axis", ""),
    (lambda x: x[len(x) // 2:].mean(), ROW, "the upper half", ""), (lambda x: x[:len(x) // 2].sum() + x[:(len(x) + 1) // 2].sum(), ROW, "more than a few", "+ 1"),
    (lambda x: np.concatenate([x, x]).sum(), ROW, "joined end to end", "np.concatenate"), (lambda x: np.cumsum(x[:len(x) // 2]).max(), ROW, "running", ""),
    (lambda x: x * 1j, ROW, "arrays hold real numbers", ""), (lambda x: np.prod(x * 1j), ROW, "np.prod of complex numbers", "np.prod"),
    (lambda x: np.max(x * 1j), ROW, "np.max of complex", "np.max"), (lambda x: np.abs((x * 1j) ** 0.5), ROW, "whole powers", "0.5"),
    (lambda x: abs(operator.imul(x * 1j, x)), ROW, "a complex array written in place", "imul"), (lambda x: float((x * 1j).sum()), ROW, "as a real one", "float"),
    (lambda x: float(x), ROW, "an element as a Python number", "float(x)"), (lambda x: x.sum() if float(x.max()) > 1 else 0, ROW, "a branch on the elements", "if float"),
    (lambda x: (x * x[::-1]).sum(), ROW, "the other end", "x[::-1]"), (lambda x: (x[:, None] * x[::-1]).sum(), ROW, "from its start and from its end", ""),
    (lambda x, y: (x[::-1] * y).sum(), {"x": np.zeros(9), "y": np.zeros(9)}, "the other end", "x[::-1]"), (lambda x: x[1:][::-1].sum(), ROW, "no whole axis", "x[1:]"),
    (lambda x: x[::-1], ROW, "from its end", ""), (lambda x: x[::-1].argmax(), ROW, "a position in a reversed array", ""),
    (lambda x: np.maximum.accumulate(x[::-1]).sum(), ROW, "a running max from the end", "np.maximum.accumulate"),
    (lambda x: np.stack([x] * 20).sum(), ROW, "20 arrays side by side", "np.stack"), (lambda x: np.vstack([x, x]).sum(), TABLE, "joined end to end", "np.vstack"),
    (lambda x: max(x, key=abs), ROW, "a Python loop", ""), (lambda x: min(x, 0), ROW, "a branch on the elements", ""),
    (lambda x: sum(v for v in x), ROW, 'a Python loop over axis "l"', "for v in x"),
    (lambda x: range(x.argmax()), ROW, "an element as a position or length", ""),
    (lambda x: np.diff(x), ROW, 'a part of axis "l"', ""), (lambda x: np.diff(x, prepend=0).sum(), ROW, "joined end to end", "np.diff"),
    (lambda x: (x[1:, None] - x).sum(), ROW, "meet all those of the axis", ""), (lambda x: (x[1:] - x[2:]).sum(), ROW, "different axes", "x[1:]"),
    (lambda x: (x[1:, None] * x[:-1]).max(), ROW, "another slice of it", ""), (lambda x: np.convolve(x, x), ROW, "neighbours", "np.convolve"),
    (lambda x: np.diag(x, 1).sum(), ROW, "the main diagonal", "np.diag"), (lambda x: np.diag(x).sum(), TABLE, "not one axis twice", "np.diag"),
    (lambda x: np.bincount(x), ROW, "depends on the values", "np.bincount"), (lambda x: np.cumsum(x).max(), TABLE, "flattened", "np.cumsum"),
    (lambda x: np.median(x), TABLE, "an order statistic of a flattened array", "np.median"),
    (lambda x: np.nanmedian(x), ROW, "an order statistic", "np.nanmedian"),
    (lambda x: np.quantile(x, 0.1, method="lower"), ROW, "the linear method", "np.quantile"),
    (lambda x: np.maximum(x, [x, 1]), ROW, "neither an array nor a number", "np.maximum"),
    (lambda x: np.sort(x)[x.size // 2], ROW, "inside a sorted array", ""),
    (lambda x: np.sort(x).sum(), ROW, "a sorted array as a whole", ""), (lambda x: 2 * np.sort(x), ROW, "a sorted array as a whole", ""),
    (lambda x: (x * np.sort(x)).sum(), ROW, "a sorted array as a whole", "np.sort(x)"),
    (lambda x: np.einsum("ii", x @ x.T), TABLE, "each letter stands for one", "np.einsum"),
    (lambda x, y: x + y, {"x": "l", "y": "k"}, 'axis "l" meets axis "k"', "x + y"),
    (lambda x: x[len(x) // 3:].sum(), ROW, "more than a few elements away", "x[len(x) // 3:]"),
    (lambda x: x[x > 0], ROW, "elements selected by a mask", ""), (lambda x: x[x > 0] * x[x < 0], ROW, "the same mask", "x[x > 0]"),
    (lambda x: x[x > 0][0], ROW, "an index, a length", "x[x > 0]"), (lambda x: np.median(x[x > 0]), ROW, "depends on the values", "np.median"),
    (lambda x: np.where(x > 0)[0], ROW, "depends on the values", ""), (lambda x: np.nonzero(x)[0][1], ROW, "an index into the positions", ""),
    (lambda x: np.argwhere(x > 0), ROW, "np.argwhere", ""), (lambda x: np.nonzero(x), TABLE, "several dimensions", "np.nonzero"),
    (lambda x: np.searchsorted(x, [1.0]), ROW, "not written in the code", "np.searchsorted"),
    (lambda x: np.digitize(x, [1, 0, 1]), ROW, "neither increasing nor decreasing", "np.digitize"),
    (lambda x: np.interp(x, [0, 0], [1, 2]), ROW, "xp must increase", "np.interp"), (lambda x: np.interp(x, [0], [1], period=2), ROW, "period=", ""),
    (lambda x: np.histogram(x, "auto"), ROW, "depends on the values", ""), (lambda x: np.histogram(x, 99), ROW, "99 bins", ""),
    (lambda x: np.convolve(x, [1, 2]).sum(), ROW, "meets zeros", "np.convolve"), (lambda x: np.exp(1j * x).sum(), ROW, "arrays hold real numbers", ""),
    (lambda x: np.lib.stride_tricks.sliding_window_view(x, 99).max(), ROW, "its windows go along one axis", ""),
    (lambda x: x[len(x) // 2:].mean(), ROW, "the upper half", ""), (lambda x: x[:len(x) // 2].sum() + x[:(len(x) + 1) // 2].sum(), ROW, "more than a few", "+ 1"),
    (lambda x: np.concatenate([x, x]).sum(), ROW, "joined end to end", ""),
    (lambda x: x.reshape(3, -1).sum(), ROW, "cuts an axis", ""),
    (lambda x: x * np.sqrt(np.arange(20)), ROW, "no axis of the inputs has that length", ""),
    (lambda x: x * np.array([0.1, 0.2]) + (x * np.ones(3)).sum(), ROW, "cannot be told apart", ""),
    (lambda x: (x * np.sqrt(np.ones(x.size) * np.arange(1.0, 1 + len(x)) ** 2 % 7)).sum(), ROW, "no simple function", ""),
    (lambda x: x.sum() * math.lgamma(len(x)), ROW, "depends on the length of an axis", ""),
    (lambda x: np.mean(x, axis=2), TABLE, "the array has 2 dimensions", ""),
    (lambda x: x.sum(dtype=np.float32), ROW, "float32", ""),
    (lambda x: np.fft.fft(x), ROW, "np.fft in traced code", ""),
    (lambda x: x.nothing(), ROW, "AttributeError", ""),
    (lambda x: "text", ROW, "neither an array nor a number", ""),
    (lambda x: np.cov(x, x), TABLE, "joined end to end", ""),
    (lambda x: np.linalg.norm(x, 2, axis=(0, 1)), TABLE, "a matrix norm", ""),
    (lambda x: __import__("sympy").flatten(x), ROW, "a Python loop", "sympy"),
]


@pytest.mark.parametrize("function, axes, told, line", REFUSED)
def test_what_has_no_meaning_is_refused_with_the_line(function, axes, told, line):
    with pytest.raises(ra.OperatorError) as caught:
        ra.trace(function, **axes)
    assert told in f"{caught.value.asked}: {caught.value.failed}" and caught.value.remedy
    assert line in caught.value.excerpt and (not line or "test_numpy_trace.py, line" in caught.value.excerpt)


@pytest.mark.parametrize("given, told", [
    ({}, "nothing says what x is"), ({"x": "l", "y": "l"}, "no such argument"), ({"x": "3l"}, "does not name axes"),
    ({"x": None}, "neither axes, an example array, nor a number")])
def test_arguments_that_make_no_sense(given, told):
    with pytest.raises(ra.OperatorError, match=told):
        ra.trace(lambda x: x.sum(), **given)


def test_a_write_that_others_would_see_is_refused():
    def aliased(x):
        view = x.T
        x -= x.mean()
        return view.sum()

    with pytest.raises(ra.OperatorError, match="other arrays are views of it"):
        ra.trace(aliased, x="b l")


def test_numpy_is_as_it_was_after_a_trace_that_fails_and_in_other_threads():
    before = np.asarray, np.arange, math.sqrt, max, float
    inside, done = threading.Event(), threading.Event()

    def slow(x):
        inside.set()
        assert done.wait(10)
        return x.nothing()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ra.trace, slow, x="l")
        assert inside.wait(10)
        np.testing.assert_array_equal(np.asarray([1, 2], dtype=np.float32), [1, 2])
        assert np.asarray([1], np.float32).dtype == np.float32 and math.sqrt(4.0) == 2.0
        np.testing.assert_array_equal(np.arange(311), range(311))
        done.set()
        with pytest.raises(ra.OperatorError):
            running.result()
    assert (np.asarray, np.arange, math.sqrt, max, float) == before


@pytest.mark.parametrize("function, axes, fusable", [
    (lambda x: np.abs(x[:, None] - x[None, :]).mean(), "l", False), (lambda x: (softmax(x @ x.T) @ x).sum(), "l k", False),
    (lambda x: ((x.T @ x) ** 2).sum(), "l k", True), (lambda x: softmax(x @ x.T) @ x, "b l", True)])
def test_all_pairs_of_elements_of_one_array_are_no_sweep(function, axes, fusable):
    verdict = ra.decide(ra.trace(function, x=axes))
    assert (verdict.status == "fusable") is fusable
    assert fusable or "every element of x with every other" in str(verdict.refusal)


@pytest.mark.parametrize("function, row", [
    (lambda x: np.logaddexp.reduce(x), [1.0, math.inf]), (lambda x: np.logaddexp.reduce(x), [-math.inf, -math.inf]),
    (lambda x: np.logaddexp(x, 0).sum(), [1.0, math.inf]), (lambda x: np.var(x, where=x > 2, ddof=1), [1.0, 0.5]),
    (lambda x: np.signbit(x).sum(), [0.0, -0.0]), (lambda x: np.histogram(x, 2)[0], [3.0, 3.0]), (lambda x: np.histogram(x, [0, 1, 2])[0], [2.0, 1.0]),
    (lambda x: np.digitize(x, [0, 1]).sum(), [math.nan, -math.inf]), (lambda x: np.interp(x, [0, 1], [2, 3]), [math.nan, math.inf])])
def test_infinities_empty_masks_and_ties_are_as_in_numpy(function, row):
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        np.testing.assert_equal(ra.fuse(ra.trace(function, x="l"))(row) if function(np.array(row)).ndim == 0
                                else reference(op := ra.trace(function, x="l"), op.bind(row)), function(np.array(row)))


def test_an_array_that_is_read_twice_is_given_once_or_twice(rng):
    x, other, c = rng.standard_normal((3, 6, 5))
    fused = ra.fuse(ra.trace(lambda x: softmax(x @ x.T) @ x, x="b l"))
    np.testing.assert_allclose(fused(x), softmax(x @ x.T) @ x, 1e-12)
    np.testing.assert_allclose(fused(x, x_2=other), softmax(x @ other.T) @ other, 1e-12)
    squares = ra.fuse(ra.trace(lambda x: x.T @ x, x="b l"))
    np.testing.assert_allclose(squares.gradient()(x, c[:5])["x"], x @ (c[:5] + c[:5].T), 1e-12)
    np.testing.assert_allclose(squares.stream().update(x[:2]).update(x[2:]).result(), x.T @ x, 1e-12)


def test_results_keep_dimensions_of_length_one(rng):
    x = rng.standard_normal((6, 5)).astype(np.float32)
    fused = ra.fuse(ra.trace(lambda x: (x.sum(1, keepdims=True), x.max(1)), x="b l"))
    out = np.empty((6, 1), np.float32), np.empty(6, np.float32)
    for total, _ in (fused(x), fused.stream().update(x).result(), fused(x, out=out), out):
        np.testing.assert_allclose(total, x.sum(1, keepdims=True), 1e-5)
    with pytest.raises(ra.OperatorError, match="length one"):
        fused(x, out=out[::-1])
    assert ra.parse_operator(str(fused.operator)) == fused.operator


def test_an_axis_that_meets_a_list_has_its_length(rng):
    r = rng.standard_normal((6, 3))
    spread = ra.trace(lambda r: ((r * r).sum(1)[:, None, None] * np.eye(3) - r[:, :, None] * r[:, None]).sum(0), r="l c")
    np.testing.assert_allclose(ra.fuse(spread)(r), (r * r).sum() * np.eye(3) - r.T @ r, 1e-12)
    listed = ra.trace(lambda r: (r * np.array([1, 2, 5])).sum(), r="l c")
    assert ra.parse_operator(str(listed)) == listed and spread.lengths == listed.lengths == {"c": 3}
    with pytest.raises(ra.OperatorError, match="it is written for 3"):
        ra.fuse(spread)(r[:, :2])


def test_roundings_may_be_regrouped_where_that_is_said():
    scaled = lambda x, w: np.round(x / (np.abs(x).max() / 127)) @ w
    assert ra.decide(ra.trace(scaled, x="l", w="l")).status == "not fusable"
    assert ra.decide(ra.trace(scaled, x="l", w="l", reassociate=True)).reason == "rounding"


def test_a_number_that_only_looks_like_a_length():
    op = ra.trace(lambda x: x.sum() / 311, x="l")
    assert float(reference(op, op.bind(x=np.full(9, 311.0)))) == 9.0
