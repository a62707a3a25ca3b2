"""What is done with the elements in order: thresholds that the elements themselves decide, so that later ones move them."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue.draws import positive
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.catalogue.idioms import softmax_weights
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.recurrence import cumulative


def _descending(x: Expr) -> Expr:
    """All elements of x over l, largest first, along t."""
    return ra.topk(x, "l", ra.size("l"), name="t").values


def _sparse(x):
    s = -np.sort(-x)
    taken = np.flatnonzero(1 + np.arange(1, x.size + 1) * s > np.cumsum(s))[-1]
    threshold = (s[:taken + 1].sum() - 1) / (taken + 1)
    return np.maximum(x - threshold, 0), threshold


@entry(source="Martins & Astudillo 2016; entmax package", verdict="not fusable", reason="order-statistic", reference=_sparse)
def sparsemax(x: "l"):
    """y_l = (x_l − τ)⁺ with Σ (x_l − τ)⁺ = 1: how many elements τ rests on is for all of them to say."""
    s = _descending(x)
    sums = cumulative(ra.sum, s, "t")
    taken = ra.count(1 + (ra.index("t") + 1) * s > sums, "t")
    threshold = (ra.take(sums, taken - 1, "t") - 1) / taken
    return ra.maximum(x - threshold, 0), threshold


def _entmax(x):
    s, k = -np.sort(-x / 2), np.arange(1, x.size + 1)
    mean, squares = np.cumsum(s) / k, np.cumsum(s * s) / k
    levels = mean - np.sqrt(np.maximum((1 - k * (squares - mean ** 2)) / k, 0))
    threshold = levels[np.count_nonzero(levels <= s) - 1]
    return np.maximum(x / 2 - threshold, 0) ** 2, threshold


@entry(source="Peters et al. 2019; entmax package", verdict="not fusable", reason="order-statistic", reference=_entmax)
def entmax15(x: "l"):
    """y_l = ((x_l/2 − τ)⁺)² with Σ y = 1."""
    s, k = _descending(x / 2), ra.index("t") + 1
    mean, squares = cumulative(ra.sum, s, "t") / k, cumulative(ra.sum, s * s, "t") / k
    levels = mean - ra.sqrt(ra.maximum((1 - k * (squares - mean ** 2)) / k, 0))
    threshold = ra.take(levels, ra.count(levels <= s, "t") - 1, "t")
    return ra.maximum(x / 2 - threshold, 0) ** 2, threshold


def _nucleus(x, mass=0.9):
    s = -np.sort(-x)
    p = np.exp(s - s[0]) / np.exp(s - s[0]).sum()
    kept = np.count_nonzero(np.cumsum(p) - p < mass)
    return s[0] + np.log(np.exp(s[:kept] - s[0]).sum()), kept


@entry(source="nucleus sampling, Holtzman et al. 2020; vLLM", verdict="not fusable", reason="order-statistic", reference=_nucleus)
def top_p_nucleus(x: "l", mass: float = 0.9):
    """The log-sum-exp of the largest logits that hold 9/10 of the probability, and how many they are."""
    top = ra.max(x, "l")
    e = ra.exp(_descending(x) - top)
    kept = ra.count(cumulative(ra.sum, e, "t", exclusive=True) < mass * ra.sum(ra.exp(x - top), "l"), "t")
    return top + ra.log(ra.sum(e, "t", where=ra.index("t") < kept)), kept


def _expectile(x, tau=0.8):
    s = np.sort(x)
    above, below = (np.array([np.maximum(sign * (s - e), 0).sum() for e in s]) for sign in (1, -1))
    low = s[:np.flatnonzero(tau * above - (1 - tau) * below >= 0)[-1] + 1]
    weights = np.where(np.arange(s.size) < low.size, 1 - tau, tau)
    return weights @ s / weights.sum()


@entry(source="scipy.stats.expectile; Newey & Powell 1987", verdict="not fusable", reason="order-statistic", reference=_expectile)
def expectile(x: "l", tau: float = 0.8):
    """e with τ Σ (x_l − e)⁺ = (1 − τ) Σ (e − x_l)⁺: the mean with other weights on either side of itself."""
    s, n, k, total = ra.sort(x, "l", "t"), ra.size("l"), ra.index("t") + 1, ra.sum(x, "l")
    sums = cumulative(ra.sum, s, "t")
    low = ra.count(tau * (total - sums - (n - k) * s) >= (1 - tau) * (k * s - sums), "t")
    below = ra.take(sums, low - 1, "t")
    return (tau * (total - below) + (1 - tau) * below) / (tau * (n - low) + (1 - tau) * low)


def _both(rng, length):
    return {"s": rng.standard_normal(length), "y": np.arange(length) % 3 % 2.0}


def _auc(s, y):
    return (s[y == 1][:, None] > s[y == 0]).mean()


@entry(source="sklearn.metrics.roc_auc_score; Mann & Whitney 1947", verdict="not fusable", reason="order-statistic", inputs=_both,
       shortest=2, reference=_auc)
def roc_auc(s: "l", y: "l"):
    """The share of pairs of a positive and a negative in which the positive has the larger score: (Σ ranks − n₊(n₊ + 1)/2)/(n₊n₋)."""
    positives = ra.sum(y, "l")
    ranks = ra.sum((ra.index("t") + 1) * ra.take(y, ra.argsort(s, "l", "t"), "l"), "t")
    return (ranks - positives * (positives + 1) / 2) / (positives * (ra.size("l") - positives))


def _rolled_off(S):
    return np.count_nonzero(np.cumsum(S) < 0.85 * S.sum())


@entry(source="librosa.feature.spectral_rolloff", verdict="not fusable", reason="threshold", inputs={"S": positive}, reference=_rolled_off)
def spectral_rolloff(S: "l"):
    """The first l with Σ_{t≤l} S_t ≥ 0.85 Σ S: the inverse of a running sum, at a value that every element moves."""
    return ra.count(cumulative(ra.sum, S, "l") < 0.85 * ra.sum(S, "l"), "l")


def _min_p(x, share=0.1):
    p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    return p[p >= share * p.max()].sum()


@entry(source="min-p sampling, arXiv 2407.01082; vLLM", verdict="not fusable", reason="threshold", reference=_min_p)
def min_p_mass(x: "l", share: float = 0.1):
    """p = softmax x; the mass of the elements with p_l ≥ max p/10: in a second sweep, with max x known, it is one sum."""
    p = softmax_weights(x)
    return ra.sum(p, "l", where=p >= share * ra.max(p, "l"))


@entry(source="top-nσ sampling, arXiv 2411.07641", verdict="not fusable", reason="threshold", shortest=2,
       reference=lambda x: (np.exp(x - x.max()) * (x >= x.max() - x.std())).sum())
def top_n_sigma_mass(x: "l"):
    """Σ e^{x_l − m} over x_l ≥ m − σ, with m = max x."""
    m = ra.max(x, "l")
    return ra.sum(ra.exp(x - m), "l", where=x >= m - ra.std(x, "l"))


@entry(source="scipy.stats.sigmaclip, one round; astropy sigma_clip", verdict="not fusable", reason="threshold", shortest=3,
       reference=lambda x: x[np.abs(x - x.mean()) < 2 * x.std()].mean())
def sigma_clipped_mean(x: "l"):
    """The mean of the elements within 2σ of the mean."""
    return ra.mean(x, "l", where=ra.abs(x - ra.mean(x, "l")) < 2 * ra.std(x, "l"))
