"""Entropies, divergences and indices of distributions over l, given as logits x or as weights."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import positive, spread
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.catalogue.idioms import log_sum_exp, softmax_weights
from redfuser_algebra.language import functions as ra


def _entropy(x):
    p = plain.softmax(x)
    return -(p * np.log(p)).sum()


@entry(source="torch.distributions.Categorical(logits).entropy()", reason="rank-R", words=3,
       inputs={"x": spread(0, 2)}, reference=_entropy)
def softmax_entropy(x: "l"):
    """H = log Z − Σ (x_l − m) e^{x_l − m} / Z."""
    d = x - ra.max(x, "l")
    Z = ra.sum(ra.exp(d), "l")
    return ra.log(Z) - ra.sum(d * ra.exp(d), "l") / Z


@entry(source="entropy bonus of policy-gradient methods", reason="rank-R", words=3, inputs={"x": spread(0, 2)},
       reference=_entropy)
def softmax_entropy_plogp(x: "l"):
    """H = −Σ p_l log p_l with p = softmax(x) inside the sum."""
    p = softmax_weights(x)
    return -ra.sum(p * ra.log(p), "l")


def _varentropy(x):
    p = plain.softmax(x)
    return p @ (np.log(p) + _entropy(x)) ** 2


@entry(source="entropix samplers", reason="rank-R", words=4, inputs={"x": spread(0, 2)}, reference=_varentropy)
def softmax_varentropy(x: "l"):
    """V = Σ p_l (log p_l + H)² with p = softmax(x) and H its entropy."""
    p = softmax_weights(x)
    H = -ra.sum(p * ra.log(p), "l")
    return ra.sum(p * (ra.log(p) + H) ** 2, "l")


@entry(source="Tsallis actor-critic", reason="rank-1", words=3, inputs={"x": spread(0, 2)},
       reference=lambda x: 2 * (1 - (plain.softmax(x) ** 1.5).sum()))
def tsallis_softmax(x: "l"):
    """S = (1 − Σ p_l^{3/2}) / ½ with p = softmax(x)."""
    return (1.0 - ra.sum(softmax_weights(x) ** 1.5, "l")) / 0.5


def _kl(x, y):
    p, q = plain.softmax(x), plain.softmax(y)
    return (p * np.log(p / q)).sum()


@entry(source="Kullback & Leibler 1951", reason="rank-R", words=6, inputs={"x": spread(0, 2), "y": spread(0, 2)},
       reference=_kl)
def kl_divergence(x: "l", y: "l"):
    """KL(p ‖ q) = Σ p_l log(p_l / q_l) with p = softmax(x), q = softmax(y)."""
    p, q = softmax_weights(x), softmax_weights(y)
    return ra.sum(p * ra.log(p / q), "l")


@entry(source="torch kl_div on log_softmax (distillation)", reason="rank-R", words=6,
       inputs={"x": spread(0, 2), "y": spread(0, 2)}, reference=_kl)
def kl_softmax(x: "l", y: "l"):
    """KL = Σ softmax(x)_l ((x_l − lse x) − (y_l − lse y))."""
    return ra.sum(softmax_weights(x) * ((x - log_sum_exp(x)) - (y - log_sum_exp(y))), "l")


@entry(source="torch.nn.functional.kl_div(log_softmax(y), softmax(x)); scipy.special.rel_entr", reason="rank-R", words=6,
       inputs={"x": spread(0, 2), "y": spread(0, 2)}, reference=_kl)
def kl_div_of_softmax(x: "l", y: "l"):
    """KL = Σ p_l (log p_l − log_softmax(y)_l) with p = softmax(x), over the l that have a weight: 0 log 0 is 0."""
    p = softmax_weights(x)
    return ra.sum(ra.where(p == 0, 0, p * (ra.log(p) - (y - log_sum_exp(y)))), "l")


@entry(source="Bhattacharyya coefficient", reason="rank-1", words=5, shortest=2,
       inputs={"x": spread(0, 2), "y": spread(0, 2)},
       reference=lambda x, y: np.sqrt(1 - np.exp(plain.logsumexp((x + y) / 2)
                                                 - (plain.logsumexp(x) + plain.logsumexp(y)) / 2)))
def hellinger_softmax(x: "l", y: "l"):
    """h = √(1 − Σ √(p_l q_l)) with p = softmax(x), q = softmax(y)."""
    overlap = ra.sum(ra.sqrt(softmax_weights(x) * softmax_weights(y)), "l")
    return ra.sqrt(ra.maximum(1.0 - overlap, 0.0))


def _snis(x, h):
    w = plain.softmax(x)
    return w @ h, np.square(w * (h - w @ h)).sum()


@entry(source="Owen, Monte Carlo theory, ch. 9", reason="rank-R", words=6, reference=_snis)
def snis_variance(x: "l", h: "l"):
    """Self-normalised importance sampling: μ = Σ w h and Σ w² (h − μ)² with w = softmax(x)."""
    w = softmax_weights(x)
    mean = ra.sum(w * h, "l")
    return mean, ra.sum(w ** 2 * (h - mean) ** 2, "l")


@entry(source="acceptance rate of speculative decoding (1 − TV)", verdict="not fusable", reason="unbounded-rank",
       reference=lambda x, y: np.abs(plain.softmax(x) - plain.softmax(y)).sum() / 2)
def tv_softmax(x: "l", y: "l"):
    """TV = ½ Σ |softmax(x)_l − softmax(y)_l|: the knot of the absolute value moves with both normalisers."""
    return 0.5 * ra.sum(ra.abs(softmax_weights(x) - softmax_weights(y)), "l")


def _shannon(x):
    p = x / x.sum()
    H = -p @ np.log(p)
    return H, H / np.log(x.size)


@entry(source="scipy.stats.entropy; river Entropy; Pielou evenness", reason="rank-R", words=3, assume="x > 0",
       shortest=2, inputs={"x": positive}, reference=_shannon)
def shannon_entropy_counts(x: "l"):
    """H = −Σ (x_l/S) log(x_l/S) with S = Σ x; and H / log N."""
    p = x / ra.sum(x, "l")
    H = -ra.sum(p * ra.log(p), "l")
    return H, H / ra.log(ra.size("l"))


def _theil(x):
    r = x / x.mean()
    return ((r * np.log(r)).mean(), -np.log(r).mean(), 1 - np.sqrt(r).mean() ** 2, (np.mean(r * r) - 1) / 2)


@entry(source="inequality indices (Cowell; R IC2)", reason="rank-R", words=6, assume="x > 0",
       inputs={"x": positive}, reference=_theil)
def theil_atkinson(x: "l"):
    """With r = x/μ: Theil T = mean r log r, L = −mean log r, Atkinson 1 − (mean √r)², GE(2) = (mean r² − 1)/2."""
    r = x / ra.mean(x, "l")
    return (ra.mean(r * ra.log(r), "l"), -ra.mean(ra.log(r), "l"),
            1.0 - ra.mean(ra.sqrt(r), "l") ** 2, (ra.mean(r * r, "l") - 1.0) / 2.0)


def _herfindahl(x):
    p = x / x.sum()
    return p @ p, 1 / (p @ p), (p ** 1.5).sum() ** -2.0


@entry(source="HHI; scikit-bio diversity simpson, hill", reason="rank-1", words=3, assume="x > 0",
       inputs={"x": positive}, reference=_herfindahl)
def herfindahl_simpson(x: "l"):
    """With p = x/Σx: Σ p², its inverse, and the Hill number (Σ p^{3/2})^{−2}."""
    p = x / ra.sum(x, "l")
    h = ra.sum(p * p, "l")
    return h, 1.0 / h, ra.sum(p ** 1.5, "l") ** -2.0


@entry(source="Hoover (Robin Hood) index", verdict="not fusable", reason="unbounded-rank", inputs={"x": positive},
       reference=lambda x: np.abs(x - x.mean()).sum() / (2 * x.sum()))
def hoover_index(x: "l"):
    """y = Σ |x_l − μ| / (2 Σ x_l)."""
    return ra.sum(ra.abs(x - ra.mean(x, "l")), "l") / (2.0 * ra.sum(x, "l"))


def _entropy_minmax(x):
    u = (x - x.min()) / (x.max() - x.min())
    p = u[u > 0] / u.sum()
    return -p @ np.log(p) / np.log(x.size)


@entry(source="entropy weight method with min–max scaling", verdict="not fusable", reason="unbounded-rank", shortest=3,
       reference=_entropy_minmax)
def entropy_minmax(x: "l"):
    """u = (x − min)/(max − min), p = u/Σu; y = −Σ p log p / log N with 0 log 0 = 0."""
    low = ra.min(x, "l")
    u = (x - low) / (ra.max(x, "l") - low)
    p = u / ra.sum(u, "l")
    q = ra.where(p > 0, p, 1.0)
    return -ra.sum(q * ra.log(q), "l") / ra.log(ra.size("l"))
