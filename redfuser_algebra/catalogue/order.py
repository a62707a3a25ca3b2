"""Order statistics over l: what needs all elements in order cannot be carried in bounded state, however it is written."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue.draws import positive
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr


def _descending(x: Expr, name: str) -> Expr:
    """All elements of x over l, largest first."""
    return ra.topk(x, "l", ra.size("l"), name=name).values


@entry(source="numpy.median; DataFusion median; ClickHouse quantileExact; Munro & Paterson 1980", verdict="not fusable",
       reason="order-statistic", reference=lambda x: np.median(x))
def median(x: "l"):
    """y = the middle element, or the mean of the two in the middle: later elements can make any element the middle one."""
    return ra.median(x, "l")


@entry(source="scipy.stats.median_abs_deviation; river MAD", verdict="not fusable", reason="order-statistic",
       reference=lambda x: np.median(np.abs(x - np.median(x))))
def median_abs_deviation(x: "l"):
    """y = median |x_l − median x|."""
    return ra.median(ra.abs(x - ra.median(x, "l")), "l")


@entry(source="scipy.stats.iqr; river IQR", verdict="not fusable", reason="order-statistic",
       reference=lambda x: np.subtract(*np.quantile(x, [0.75, 0.25])))
def iqr(x: "l"):
    """y = q₀.₇₅ − q₀.₂₅."""
    return ra.quantile(x, "l", 0.75) - ra.quantile(x, "l", 0.25)


def _trimmed(x):
    cut = x.size // 5
    return np.sort(x)[cut:x.size - cut].mean()


@entry(source="scipy.stats.trim_mean(0.2)", verdict="not fusable", reason="order-statistic", reference=_trimmed)
def trim_mean_proportion(x: "l"):
    """y = the mean of what is left without the smallest and the largest fifth."""
    at, cut = ra.index("t"), ra.size("l") // 5
    return ra.mean(ra.sort(x, "l", "t"), "t", where=(at >= cut) & (at < ra.size("l") - cut))


@entry(source="ClickHouse gini; scipy.stats.lmoment (L-scale)", verdict="not fusable", reason="order-statistic",
       inputs={"x": positive}, assume="x > 0",
       reference=lambda x: np.abs(x - x[:, None]).sum() / (2 * x.size ** 2 * x.mean()))
def gini(x: "l"):
    """y = Σ_ij |x_i − x_j|/(2 N² μ) = Σ_t (2t − N + 1) x₍ₜ₎/(N Σ x): the coefficients are ranks."""
    n = ra.size("l")
    return ra.sum((2 * ra.index("t") - n + 1) * ra.sort(x, "l", "t"), "t") / (n * ra.sum(x, "l"))


def _discounted(gains):
    return gains @ (1 / np.log2(np.arange(2, gains.size + 2)))


@entry(source="sklearn.metrics.ndcg_score(k=None)", verdict="not fusable", reason="order-statistic", inputs={"rel": positive},
       reference=lambda s, rel: _discounted(rel[np.argsort(-s)]) / _discounted(-np.sort(-rel)))
def ndcg_full(s: "l", rel: "l"):
    """Σ rel_l/log₂(1 + rank of s_l), over the same sum in the order of rel."""
    discount = 1 / ra.log2(ra.index("t") + 2)
    ranked = ra.take(rel, ra.topk(s, "l", ra.size("l"), name="t").indices, "l")
    return ra.sum(ranked * discount, "t") / ra.sum(_descending(rel, "t") * discount, "t")


def _spearman(x, y):
    ranks = [np.argsort(np.argsort(v)) - (v.size - 1) / 2 for v in (x, y)]
    with np.errstate(invalid="ignore"):
        return ranks[0] @ ranks[1] / (ranks[0] @ ranks[0])


@entry(source="scipy.stats.spearmanr; ClickHouse rankCorr", verdict="not fusable", reason="order-statistic", shortest=2,
       reference=_spearman)
def spearman(x: "l", y: "l"):
    """The correlation of the ranks of x and y."""
    centre = (ra.size("l") - 1) / 2
    a, b = (ra.argsort(ra.argsort(v, "l", "t"), "t", "r") - centre for v in (x, y))
    return ra.sum(a * b, "r") / ra.sum(a * a, "r")
