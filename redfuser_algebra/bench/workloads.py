"""What is measured: one row of data per workload.  Nothing here is timed or printed.

A row names an operator, shapes, how arrays are drawn, the same computation in each peer's own words, and what the
kernel has to reach.  The functions of `numpy`, on float64 arrays, say what is right.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

import redfuser_algebra as ra

COMPILERS, ROW_SUM, COPY = ("torch.compile", "JAX jit"), ("row sum", "row sum, torch"), ("copy", "copy, torch")
Shape = tuple[int, ...]
Draw = Callable[[np.random.Generator, Shape], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Target:
    """The kernel's time is to be at most `most` times that of the fastest of `of`."""

    of: tuple[str, ...]
    most: float

    def __str__(self) -> str:
        names = self.of[0] if len(self.of) == 1 or self.of in (ROW_SUM, COPY) else f"the best of {', '.join(self.of)}"
        return f"≤ {self.most:g} × {names}" if self.most >= 1 else f"≥ {1 / self.most:g} × faster than {names}"


@dataclass(frozen=True)
class Workload:
    """A row.  `peers` maps keys of PEERS to functions (library, **arrays); those of NumPy take arrays alone."""

    name: str
    operator: Callable[[], ra.Operator]
    shape: Shape
    draw: Draw
    peers: Mapping[str, Callable]
    targets: tuple[Target, ...]
    scalars: Mapping[str, float] = field(default_factory=dict)
    quick: Shape = (256, 2048)


def _catalogue(name: str) -> Callable[[], ra.Operator]:
    return lambda: ra.operators[name]


def normal(names: str, axes: str = "rl") -> Draw:
    """Arrays named in a text, each with its dimensions in words of one letter: "x:rl g:l", sizes in the order of `axes`."""
    wanted = [word.split(":") for word in names.split()]

    def draw(rng: np.random.Generator, shape: Shape) -> dict[str, np.ndarray]:
        sizes = dict(zip(axes, shape, strict=True))
        return {name: rng.standard_normal([sizes[axis] for axis in own], np.float32) for name, own in wanted}

    return draw


# --- over rows ---------------------------------------------------------------------------------------------------


def _mean_std() -> ra.Operator:
    @ra.operator
    def mean_std(x: "l"):
        return ra.mean(x, "l"), ra.std(x, "l")

    return mean_std


def _layernorm_statistics() -> ra.Operator:
    @ra.operator
    def layernorm_statistics(x: "l"):
        return ra.mean(x, "l"), 1.0 / ra.sqrt(ra.var(x, "l") + 1e-5)

    return layernorm_statistics


def _softmax_statistics() -> ra.Operator:
    @ra.operator
    def softmax_statistics(x: "l"):
        m = ra.max(x, "l")
        return m, ra.sum(ra.exp(x - m), "l")

    return softmax_statistics


def _routing() -> ra.Operator:
    @ra.operator
    def routing(x: "l"):
        e = ra.exp(x - ra.max(x, "l"))
        return tuple(ra.topk(e / ra.sum(e, "l"), "l", 6))

    return routing


def _floors(copies: bool = False) -> dict[str, Callable]:
    """Reading all of x, and copying it, as fast as NumPy and torch can."""
    found = {"row_sum": lambda x, **_: x.sum(-1), "torch_row_sum": lambda torch, x, **_: x.sum(-1)}
    return found | ({"copy": lambda x, **_: x.copy(), "torch_copy": lambda torch, x, **_: x.clone()} if copies else {})


@ra.operator
def total(x: "l"):
    """What takes as long as reading x does."""
    return ra.sum(x, "l")


def _sums(**arrays: np.ndarray) -> list[np.ndarray]:
    fused = ra.fuse(total)
    return [fused(array.ravel(), backend="cpu") for array in arrays.values()]


READS = {"reading": _sums, "torch_reading": lambda torch, **arrays: [array.sum() for array in arrays.values()]}
"""Reading all inputs, of whatever workload, as fast as a kernel and torch can: as little as there is to do with them is done."""


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _lse(x: np.ndarray) -> np.ndarray:
    m = x.max(-1)
    return m + np.log(np.exp(x - m[..., None]).sum(-1))


def _entropy(x: np.ndarray) -> np.ndarray:
    z = x - x.max(-1, keepdims=True)
    e = np.exp(z)
    s = e.sum(-1)
    return np.log(s) - (z * e).sum(-1) / s


def _top(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = numpy_softmax(x)
    at = np.argsort(-p, -1, kind="stable")[..., :6]
    return np.take_along_axis(p, at, -1), at


def _layernorm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + x.dtype.type(1e-5)) * g + b


def _rms(x: np.ndarray) -> np.ndarray:
    return np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-5))


def _kl(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (numpy_softmax(x) * ((x - _lse(x)[..., None]) - (y - _lse(y)[..., None]))).sum(-1)


def _with_labels(rng: np.random.Generator, shape: Shape) -> dict[str, np.ndarray]:
    return normal("x:rl")(rng, shape) | {"label": rng.integers(0, shape[1], shape[0])}


def _torch_kl(torch, x, y):
    return (torch.softmax(x, -1) * (torch.log_softmax(x, -1) - torch.log_softmax(y, -1))).sum(-1)


def _jax_kl(jax, x, y):
    return (jax.nn.softmax(x, -1) * (jax.nn.log_softmax(x, -1) - jax.nn.log_softmax(y, -1))).sum(-1)


def _torch_entropy(torch, x):
    return -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1)


def _jax_layernorm(jax, x, g, b):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


_ROWS = (4096, 8192)
_STATISTIC = (Target(ROW_SUM, 1.15), Target(COMPILERS, 1 / 1.8))
_EXPONENTIAL = (Target(ROW_SUM, 1.6), Target(COMPILERS, 1 / 2.5))
_WRITES = (Target(COMPILERS, 1.0), Target(COPY, 1.3))
_TWICE, _THRICE = (Target(COMPILERS, 1 / 2),), (Target(COMPILERS, 1 / 3),)

ROWS = (
    Workload("variance", _catalogue("variance"), _ROWS, normal("x:rl"), _floors() | {
        "numpy": lambda x: x.var(-1), "torch": lambda torch, x: x.var(-1, correction=0), "jax": lambda jax, x: x.var(-1)}, _STATISTIC),
    Workload("mean-std", _mean_std, _ROWS, normal("x:rl"), _floors() | {
        "numpy": lambda x: (x.mean(-1), x.std(-1)), "torch": lambda torch, x: torch.std_mean(x, -1, correction=0)[::-1],
        "jax": lambda jax, x: (x.mean(-1), x.std(-1))}, _STATISTIC),
    Workload("layernorm-statistics", _layernorm_statistics, _ROWS, normal("x:rl"), _floors() | {
        "numpy": lambda x: (x.mean(-1), 1 / np.sqrt(x.var(-1) + 1e-5)),
        "torch": lambda torch, x: (x.mean(-1), torch.rsqrt(x.var(-1, correction=0) + 1e-5)),
        "jax": lambda jax, x: (x.mean(-1), jax.lax.rsqrt(x.var(-1) + 1e-5))}, _STATISTIC),
    Workload("logsumexp", _catalogue("logsumexp"), _ROWS, normal("x:rl"), _floors() | {
        "numpy": _lse, "scipy": lambda scipy, x: scipy.special.logsumexp(x, -1), "torch": lambda torch, x: torch.logsumexp(x, -1),
        "jax": lambda jax, x: jax.nn.logsumexp(x, -1)}, _EXPONENTIAL),
    Workload("softmax-statistics", _softmax_statistics, _ROWS, normal("x:rl"), _floors() | {
        "numpy": lambda x: (x.max(-1), np.exp(x - x.max(-1, keepdims=True)).sum(-1)),
        "torch": lambda torch, x: (x.amax(-1), torch.exp(x - x.amax(-1, keepdim=True)).sum(-1)),
        "jax": lambda jax, x: (x.max(-1), jax.numpy.exp(x - x.max(-1, keepdims=True)).sum(-1))}, _EXPONENTIAL),
    Workload("softmax", _catalogue("softmax"), _ROWS, normal("x:rl"), _floors(True) | {
        "numpy": numpy_softmax, "scipy": lambda scipy, x: scipy.special.softmax(x, -1), "torch": lambda torch, x: torch.softmax(x, -1),
        "jax": lambda jax, x: jax.nn.softmax(x, -1)}, _WRITES),
    Workload("layernorm", _catalogue("layernorm"), _ROWS, normal("x:rl g:l b:l"), _floors(True) | {
        "numpy": _layernorm, "torch": lambda torch, x, g, b: torch.nn.functional.layer_norm(x, x.shape[-1:], g, b, 1e-5),
        "jax": _jax_layernorm}, _WRITES),
    Workload("rmsnorm", _catalogue("rmsnorm"), _ROWS, normal("x:rl g:l"), _floors(True) | {
        "numpy": lambda x, g: x / _rms(x) * g, "torch": lambda torch, x, g: torch.nn.functional.rms_norm(x, x.shape[-1:], g, 1e-5),
        "jax": lambda jax, x, g: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g}, _WRITES),
    Workload("softmax-entropy", _catalogue("softmax_entropy"), _ROWS, normal("x:rl"), _floors() | {
        "numpy": _entropy, "scipy": lambda scipy, x: scipy.stats.entropy(scipy.special.softmax(x, -1), axis=-1), "torch": _torch_entropy,
        "jax": lambda jax, x: -(jax.nn.softmax(x, -1) * jax.nn.log_softmax(x, -1)).sum(-1)}, _TWICE),
    Workload("kl", _catalogue("kl_softmax"), _ROWS, normal("x:rl y:rl"), _floors() | {
        "numpy": _kl, "torch": _torch_kl, "jax": _jax_kl}, _TWICE),
    Workload("cross-entropy", _catalogue("cross_entropy"), _ROWS, _with_labels, _floors() | {
        "numpy": lambda x, label: _lse(x) - np.take_along_axis(x, label[..., None], -1)[..., 0],
        "torch": lambda torch, x, label: torch.nn.functional.cross_entropy(x, label, reduction="none"),
        "jax": lambda jax, x, label: jax.nn.logsumexp(x, -1) - jax.numpy.take_along_axis(x, label[:, None], -1)[:, 0]}, _TWICE),
    *(Workload(f"moe-top6-{name}", _routing, shape, normal("x:rl"), _floors() | {
        "numpy": _top, "torch": lambda torch, x: tuple(torch.topk(torch.softmax(x, -1), 6, -1)),
        "jax": lambda jax, x: jax.lax.top_k(jax.nn.softmax(x, -1), 6)}, _THRICE, quick=(512, shape[1]))
      for name, shape in (("64", (8192, 64)), ("4096", (4096, 4096)))),
)


# --- with matrix products ----------------------------------------------------------------------------------------


def _scores(Q, K, scale):
    return Q @ K.swapaxes(-1, -2) * scale


def _seen(Q, K):
    return np.arange(K.shape[-2]) <= np.arange(Q.shape[-2])[:, None]


def _numpy_attention(causal: bool, Q, K, V):
    s = _scores(Q, K, Q.dtype.type(Q.shape[-1] ** -0.5))
    return numpy_softmax(np.where(_seen(Q, K), s, -np.inf).astype(s.dtype) if causal else s) @ V


def _torch_attention(causal: bool, torch, Q, K, V):
    s = _scores(Q, K, Q.shape[-1] ** -0.5)
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(), float("-inf"))
    return torch.softmax(s, -1) @ V


def _sdpa(causal: bool, torch, Q, K, V):
    return torch.nn.functional.scaled_dot_product_attention(Q[None], K[None], V[None], is_causal=causal)[0]


def _jax_attention(causal: bool, jax, Q, K, V):
    s = _scores(Q, K, Q.shape[-1] ** -0.5)
    if causal:
        s = jax.numpy.where(jax.numpy.tri(*s.shape[-2:], dtype=bool), s, -jax.numpy.inf)
    return jax.nn.softmax(s, -1) @ V


def _attention_peers(causal: bool) -> dict[str, Callable]:
    functions = {"numpy": _numpy_attention, "torch": _torch_attention, "sdpa": _sdpa, "jax": _jax_attention}
    return {key: partial(function, causal) for key, function in functions.items()}


def _absmax_gemm() -> ra.Operator:
    @ra.operator
    def absmax_gemm(X: "m l", W: "l n"):
        return ra.sum(X / ra.max(ra.abs(X), "l") * W, "l")

    return absmax_gemm


_QKV, _XW = normal("Q:hmd K:hld V:hld", "hmld"), normal("X:ml W:ln", "mln")
_HEADS = (Target(("torch SDPA",), 1.1), Target(("torch eager", "JAX jit"), 1 / 2.5))
_GEMM = (Target(("bare GEMM",), 1.1),)

PRODUCTS = (
    Workload("attention", _catalogue("attention"), (8, 1024, 1024, 64), _QKV, _attention_peers(False), _HEADS, {"scale": 0.125}, (2, 128, 128, 64)),
    Workload("attention-causal", _catalogue("causal_attention"), (8, 1024, 1024, 64), _QKV, _attention_peers(True), _HEADS, {"scale": 0.125},
             (2, 128, 128, 64)),
    Workload("attention-decode", _catalogue("attention"), (8, 1, 32768, 64), _QKV, _attention_peers(False), _HEADS, {"scale": 0.125}, (2, 1, 2048, 64)),
    Workload("rmsnorm-gemm", _catalogue("rmsnorm_gemm"), (1024, 4096, 1024), _XW, {
        "gemm": lambda X, W: X @ W, "numpy": lambda X, W: X / _rms(X) @ W,
        "torch": lambda torch, X, W: torch.nn.functional.rms_norm(X, X.shape[-1:], None, 1e-5) @ W,
        "jax": lambda jax, X, W: X * jax.lax.rsqrt((X * X).mean(-1, keepdims=True) + 1e-5) @ W}, _GEMM, quick=(64, 512, 64)),
    Workload("absmax-gemm", _absmax_gemm, (1024, 4096, 1024), _XW, {
        "gemm": lambda X, W: X @ W, "numpy": lambda X, W: X / np.abs(X).max(-1, keepdims=True) @ W,
        "torch": lambda torch, X, W: X / X.abs().amax(-1, keepdim=True) @ W,
        "jax": lambda jax, X, W: X / abs(X).max(-1, keepdims=True) @ W}, _GEMM, quick=(64, 512, 64)),
)


# --- over one long axis ------------------------------------------------------------------------------------------


def _centred(x):
    return x - x.mean(-1)


def _kurtosis(_, x):
    d = _centred(x)
    return (d**4).mean() / (d**2).mean() ** 2 - 3


def _covariance(_, x, y):
    return (_centred(x) * _centred(y)).sum() / (x.shape[0] - 1)


def _correlation(library, x, y):
    a, b = _centred(x), _centred(y)
    return (a * b).sum() / ((a * a).sum() * (b * b).sum()) ** 0.5


def _inertia(_, m, r):
    d = r - (m[:, None] * r).sum(0) / m.sum()
    return (m * (d * d).sum(1)).sum()


def _same_words(function: Callable, **others: Callable) -> dict[str, Callable]:
    """A function whose words mean the same in NumPy, torch and JAX."""
    return {"numpy": partial(function, np), "torch": function, "jax": function, **others}


def _skewed(rng: np.random.Generator, shape: Shape) -> dict[str, np.ndarray]:
    """Far from normal, whose excess kurtosis is 0 and would leave errors without a size to compare with."""
    return {"x": rng.standard_exponential(shape, np.float32)}


def _pair(rng: np.random.Generator, shape: Shape) -> dict[str, np.ndarray]:
    x, y = rng.standard_normal((2, *shape), np.float32)
    return {"x": x, "y": x / 2 + y}


def _masses(rng: np.random.Generator, shape: Shape) -> dict[str, np.ndarray]:
    return {"m": rng.uniform(1, 2, shape).astype(np.float32), "r": rng.standard_normal((*shape, 3), np.float32) + np.float32(1)}


_LONG, _SHORT = (10_000_000,), (20_000,)
_BEST = (Target(("NumPy", "SciPy", "torch.compile", "JAX jit"), 1 / 3),)

LONG = (
    Workload("kurtosis", _catalogue("kurtosis"), _LONG, _skewed,
             _same_words(_kurtosis, scipy=lambda scipy, x: scipy.stats.kurtosis(x)), _BEST, quick=_SHORT),
    Workload("covariance", _catalogue("covariance"), _LONG, _pair, _same_words(_covariance), _BEST, quick=_SHORT),
    Workload("correlation", _catalogue("correlation"), _LONG, _pair,
             _same_words(_correlation, scipy=lambda scipy, x, y: scipy.stats.pearsonr(x, y)[0]), _BEST, quick=_SHORT),
    Workload("inertia", _catalogue("moment_of_inertia"), _LONG, _masses, _same_words(_inertia), _BEST, quick=_SHORT),
)

WORKLOADS = {workload.name: workload for workload in (*ROWS, *PRODUCTS, *LONG)}
"""Every workload by name, in the order in which they are shown."""
