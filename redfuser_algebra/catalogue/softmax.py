"""Softmax over l and what is computed from it: weights, log-sum-exp, expectations and samples."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import between, spread, unit
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.catalogue.idioms import gelu, log_sum_exp, softmax_weights, standardised
from redfuser_algebra.language import functions as ra


@entry(source="torch.softmax; Milakov & Gimelshein 2018, alg. 3", reason="rank-1", words=2,
       inputs={"x": spread(0, 3)}, reference=plain.softmax)
def softmax(x: "l"):
    """y_l = e^{x_l − m} / t with m = max x and t = Σ e^{x_l − m}."""
    m = ra.max(x, "l")
    t = ra.sum(ra.exp(x - m), "l")
    return ra.exp(x - m) / t


@entry(source="torch.log_softmax; KernelBench level1/24", reason="rank-1", words=2, inputs={"x": spread(0, 3)},
       reference=lambda x: x - plain.logsumexp(x))
def log_softmax(x: "l"):
    """y_l = x_l − m − log Σ e^{x_l − m}."""
    m = ra.max(x, "l")
    return x - m - ra.log(ra.sum(ra.exp(x - m), "l"))


@entry(source="scipy.special.logsumexp", reason="rank-1", words=2, inputs={"x": spread(0, 3)},
       reference=plain.logsumexp)
def logsumexp(x: "l"):
    """y = m + log Σ e^{x_l − m} with m = max x."""
    m = ra.max(x, "l")
    return m + ra.log(ra.sum(ra.exp(x - m), "l"))


def _signed(x, b):
    s = (b * np.exp(x - x.max())).sum()
    return x.max() + np.log(np.abs(s)), np.sign(s)


@entry(source="scipy.special.logsumexp(b=, return_sign=True)", reason="rank-1", words=2,
       inputs={"x": spread(0, 3)}, reference=_signed)
def logsumexp_signed(x: "l", b: "l"):
    """S = Σ b_l e^{x_l − m}; y = m + log|S| and the sign of S."""
    m = ra.max(x, "l")
    s = ra.sum(b * ra.exp(x - m), "l")
    return m + ra.log(ra.abs(s)), ra.sign(s)


@entry(source="Softermax, arXiv 2103.09301", reason="rank-1", words=2, inputs={"x": spread(0, 3)},
       reference=lambda x: np.exp2(x) / np.exp2(x).sum())
def softermax(x: "l"):
    """y_l = 2^{x_l − m} / Σ 2^{x_l − m} with the whole number m = max ⌈x_l⌉, so that rescaling is a shift."""
    e = ra.exp2(x - ra.max(ra.ceil(x), "l"))
    return e / ra.sum(e, "l")


@entry(source="distillation, Hinton 2015; torch gumbel_softmax(tau)", reason="rank-1", words=2, inputs={"t": 0.7},
       reference=lambda x, t: plain.softmax(x / t))
def softmax_temperature(x: "l", t: ""):
    """y = softmax(x / t) at a given temperature t."""
    return softmax_weights(x / t)


@entry(source="soft-argmax pose regression; kornia spatial_expectation", reason="rank-1", words=3,
       reference=lambda x: plain.softmax(10 * x) @ np.arange(x.size))
def soft_argmax(x: "l"):
    """y = Σ l·softmax(10 x)_l, the expected position."""
    return ra.sum(softmax_weights(10.0 * x) * ra.index("l"), "l")


@entry(source="smooth maximum S_α; Boltzmann operator in reinforcement learning", reason="rank-1", words=3,
       reference=lambda x: plain.softmax(1.5 * x) @ x)
def boltzmann_mean(x: "l"):
    """y = Σ x_l e^{αx_l − m} / Σ e^{αx_l − m} with α = 1.5."""
    e = ra.exp(1.5 * x - ra.max(1.5 * x, "l"))
    return ra.sum(x * e, "l") / ra.sum(e, "l")


@entry(source="torch.nn.functional.gumbel_softmax", reason="rank-1", words=2, inputs={"u": unit},
       reference=lambda x, u: plain.softmax((x - np.log(-np.log(u))) / 0.7))
def gumbel_softmax(x: "l", u: "l"):
    """y = softmax((x − log(−log u)) / 0.7) for uniform noise u in (0, 1)."""
    return softmax_weights((x - ra.log(-ra.log(u))) / 0.7)


def _softpick(x, v):
    r = np.exp(x) - 1
    return np.maximum(r, 0) @ v / (np.abs(r).sum() + 1e-8)


@entry(source="Softpick, arXiv 2504.20966", reason="rank-1", words=3, reference=_softpick)
def softpick(x: "l", v: "l"):
    """y = Σ relu(r_l) v_l / (Σ |r_l| + ε e^{−m}) with r_l = e^{x_l − m} − e^{−m}."""
    m = ra.max(x, "l")
    r = ra.exp(x - m) - ra.exp(-m)
    return ra.sum(ra.relu(r) * v, "l") / (ra.sum(ra.abs(r), "l") + 1e-8 * ra.exp(-m))


@entry(source="maximum-softmax-probability score, Hendrycks & Gimpel 2017", reason="monotone", words=2,
       inputs={"x": spread(0, 2)}, reference=lambda x: plain.softmax(x).max())
def max_softmax_prob(x: "l"):
    """y = max_l softmax(x)_l, which is 1/Z."""
    return ra.max(softmax_weights(x), "l")


@entry(source="KernelBench level2/99_Matmul_GELU_Softmax", reason="rank-1", words=2,
       reference=lambda W, x, b: plain.softmax(plain.gelu(W @ x + b)))
def kb_gemv_gelu_softmax(W: "l k", x: "k", b: "l"):
    """y = softmax over l of gelu(Σ_k W_lk x_k + b_l)."""
    return softmax_weights(gelu(ra.sum(W * x, "k") + b))


@entry(source="KernelBench level2/91, level2/49", reason="rank-1", words=2,
       reference=lambda x, b: plain.sigmoid(2 * (plain.softmax(x) + b)))
def kb_softmax_bias_sigmoid(x: "l", b: "l"):
    """y_l = σ(2 (softmax(x)_l + b_l))."""
    return ra.sigmoid((softmax_weights(x) + b) * 2.0)


def _normalised_probabilities(x):
    p = plain.softmax(x)
    return (p - p.mean()) / np.sqrt(p.var() + 1e-12)


@entry(source="norm after softmax; KernelBench level1/23 then level1/40", reason="rank-R", words=4,
       reference=_normalised_probabilities)
def softmax_then_layernorm(x: "l"):
    """p = softmax(x); y_l = (p_l − mean p) / √(var p + 1e-12)."""
    return standardised(softmax_weights(x), 1e-12)


def _decayed(v, t):
    w = np.exp((t - t.max()) / 3)
    return v @ w, v @ w / w.sum(), (np.abs(v) * w).max()


@entry(source="ClickHouse exponentialTimeDecayedSum, …Avg, …Max", reason="rank-1", words=4, inputs={"t": between(0, 9)},
       reference=_decayed)
def time_decayed_sum(v: "l", t: "l"):
    """w_l = e^{(t_l − max t)/3}: Σ w v, Σ w v / Σ w, max w |v|."""
    w = ra.exp((t - ra.max(t, "l")) / 3.0)
    total = ra.sum(v * w, "l")
    return total, total / ra.sum(w, "l"), ra.max(ra.abs(v) * w, "l")


@entry(source="arviz.waic", reason="rank-R", words=5,
       reference=lambda x: -2 * (plain.logsumexp(x) - np.log(x.size) - plain.variance(x, 1)))
def waic_column(x: "l"):
    """y = −2 (log mean e^x − var x) over posterior draws of one log-likelihood, the variance with N − 1."""
    return -2.0 * (log_sum_exp(x) - ra.log(ra.size("l")) - ra.var(x, "l", ddof=1))


@entry(source="near twin of softmax", verdict="not fusable", reason="unbounded-rank",
       reference=lambda x: plain.softmax(np.abs(x - x.mean())))
def softmax_of_deviation(x: "l"):
    """y = softmax of |x_l − μ|: the absolute value of a moving difference sits in the exponent."""
    return softmax_weights(ra.abs(x - ra.mean(x, "l")))


@entry(source="z-normalised attention; KernelBench level1/40 then level1/23", verdict="not fusable",
       reason="unbounded-rank", reference=lambda x, v: plain.softmax(plain.standardised(x)) @ v)
def softmax_of_layernorm(x: "l", v: "l"):
    """y = Σ softmax((x − μ)/σ)_l v_l: the pivot 1/σ multiplies x in the exponent."""
    return ra.sum(softmax_weights(standardised(x)) * v, "l")
