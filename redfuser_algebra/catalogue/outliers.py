"""Deviations from a centre found in the same pass: extremes, outlier tests, one-sided sums, reweighting steps."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue.draws import positive, spread, whole
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra


@entry(source="Grubbs 1969 (NIST e-Handbook 1.3.5.17); studentised range", reason="tropical-R", words=5, shortest=2,
       reference=lambda x: (np.abs(x - x.mean()).max() / x.std(ddof=1), np.ptp(x) / x.std(ddof=1)))
def grubbs(x: "l"):
    """G = max |x_l − μ|/s and (max x − min x)/s."""
    s = ra.std(x, "l", ddof=1)
    return ra.max(ra.abs(x - ra.mean(x, "l")), "l") / s, (ra.max(x, "l") - ra.min(x, "l")) / s


@entry(source="control charts, Western Electric rule 1", reason="tropical-R", words=5,
       reference=lambda x: (np.abs(x - x.mean()).max() > 2.5 * x.std(), (x - x.mean()).max() < 2.2 * x.std()))
def any_outlier_sigma(x: "l"):
    """Whether some |x_l − μ| > 2.5 σ, and whether all x_l − μ < 2.2 σ."""
    d, s = x - ra.mean(x, "l"), ra.std(x, "l")
    return ra.any(ra.abs(d) > 2.5 * s, "l"), ra.all(d < 2.2 * s, "l")


def _farthest(x):
    at = np.abs(x - x.mean()).argmax()
    return at, x[at]


@entry(source="iterative outlier removal", reason="tropical-R", words=6, shortest=3, reference=_farthest)
def farthest_index_1d(x: "l"):
    """i = argmax |x_l − μ| and x_i."""
    at = ra.argmax(ra.abs(x - ra.mean(x, "l")), "l")
    return at, ra.take(x, at, "l")


def _rosner(x):
    result = []
    for _ in range(3):
        d = np.abs(x - x.mean())
        result.append(d.max() / x.std(ddof=1))
        x = np.delete(x, d.argmax())
    return tuple(result)


@entry(source="Rosner 1983 (NIST e-Handbook 1.3.5.17.3)", reason="tropical-R", words=9, shortest=7, reference=_rosner)
def rosner_esd(x: "l"):
    """R_i = max |x_l − μ|/s over what is left after taking away the i − 1 farthest points, i = 1, 2, 3."""
    left, result = ra.index("l") >= 0, []
    for _ in range(3):
        d = ra.abs(x - ra.mean(x, "l", where=left))
        result.append(ra.max(d, "l", where=left) / ra.std(x, "l", where=left, ddof=1))
        left = left & (ra.index("l") != ra.argmax(d, "l", where=left))
    return tuple(result)


@entry(source="DataFusion bool_and, bool_or; SQL EVERY; numpy count_nonzero", reason="no-pivot", words=5,
       inputs={"x": whole(3)},
       reference=lambda x: ((x > -3).all(), (x > 3).any(), (x == x[0]).all(), np.count_nonzero(x)))
def all_any_constant(x: "l"):
    """Are all x > −3; is any x > 3; are all equal (min = max); how many are not 0."""
    constant = ra.min(x, "l") == ra.max(x, "l")
    return ra.all(x > -3, "l"), ra.any(x > 3, "l"), constant, ra.sum(ra.where(x != 0, 1, 0), "l")


@entry(source="near twin of mean_gap_to_max", verdict="not fusable", reason="unbounded-rank",
       reference=lambda x: np.abs(x - x.mean()).mean())
def mean_absolute_deviation(x: "l"):
    """y = mean |x_l − μ|: the knot of the absolute value moves with μ."""
    return ra.mean(ra.abs(x - ra.mean(x, "l")), "l")


@entry(source="one-sided deviation", verdict="not fusable", reason="unbounded-rank",
       reference=lambda x: (x - x.mean())[x > x.mean()].sum())
def relu_about_mean(x: "l"):
    """y = Σ max(x_l − μ, 0)."""
    return ra.sum(ra.relu(x - ra.mean(x, "l")), "l")


@entry(source="near twin of structure_factor_com", verdict="not fusable", reason="unbounded-rank",
       reference=lambda x: np.sin(x * x.mean()).sum())
def sin_of_scaled_mean(x: "l"):
    """y = Σ sin(x_l μ): the pivot multiplies x, so no finite sum of products will do."""
    return ra.sum(ra.sin(x * ra.mean(x, "l")), "l")


@entry(source="Markowitz; empyrical with MAR = mean", verdict="not fusable", reason="unbounded-rank",
       reference=lambda x: (np.minimum(x - x.mean(), 0) ** 2).mean())
def semivariance(x: "l"):
    """y = mean min(x_l − μ, 0)²."""
    return ra.mean(ra.minimum(x - ra.mean(x, "l"), 0.0) ** 2, "l")


@entry(source="tsfresh count_above_mean, count_below_mean", verdict="not fusable", reason="threshold",
       shortest=3, reference=lambda x: (x > x.mean()).sum())
def count_above_mean(x: "l"):
    """y = Σ [x_l > μ]."""
    return ra.sum(ra.where(x > ra.mean(x, "l"), 1, 0), "l")


@entry(source="log(x − min + 1) transform before averaging", verdict="not fusable", reason="unbounded-rank",
       reference=lambda x: np.exp(np.log1p(x - x.min()).mean()) - 1 + x.min())
def shifted_geometric_mean(x: "l"):
    """y = e^{mean log(x_l − a + 1)} − 1 + a with a = min x."""
    low = ra.min(x, "l")
    return ra.exp(ra.mean(ra.log(x - low + 1.0), "l")) - 1.0 + low


def _mean_shift(x):
    w = np.exp(-(x - x.mean()) ** 2 / 2)
    return w @ x / w.sum(), w.mean()


@entry(source="sklearn MeanShift; scipy gaussian_kde at the mean", verdict="not fusable", reason="unbounded-rank",
       reference=_mean_shift)
def mean_shift_step(x: "l"):
    """w_l = e^{−(x_l − μ)²/2}; Σ w x/Σ w and mean w."""
    w = ra.exp(-0.5 * (x - ra.mean(x, "l")) ** 2)
    return ra.sum(w * x, "l") / ra.sum(w, "l"), ra.mean(w, "l")


@entry(source="robust regression, scipy least_squares(loss='cauchy')", verdict="not fusable", reason="unbounded-rank",
       shortest=2, reference=lambda x: np.average(x, weights=1 / (1 + (x - x.mean()) ** 2 / x.var())))
def cauchy_irls_step(x: "l"):
    """w_l = 1/(1 + (x_l − μ)²/σ²); y = Σ w x/Σ w."""
    w = 1.0 / (1.0 + (x - ra.mean(x, "l")) ** 2 / ra.var(x, "l"))
    return ra.sum(w * x, "l") / ra.sum(w, "l")


def _lloyd(x, centres):
    for _ in range(2):
        near = np.abs(x - centres[0]) < np.abs(x - centres[1])
        centres = [x[side].sum() / max(side.sum(), 1) for side in (near, ~near)]
    return np.array(centres)


@entry(source="sklearn KMeans", verdict="not fusable", reason="threshold", inputs={"x": spread(0, 2)},
       reference=lambda x: tuple(_lloyd(x, [-1.0, 1.0])))
def kmeans_second_step(x: "l"):
    """Two Lloyd steps of 2-means from (−1, 1): the first fuses, the second assigns at a moving threshold."""
    a, b = -1.0, 1.0
    for _ in range(2):
        near = ra.where(ra.abs(x - a) < ra.abs(x - b), 1.0, 0.0)
        a, b = (ra.sum(x * side, "l") / ra.maximum(ra.sum(side, "l"), 1.0) for side in (near, 1.0 - near))
    return a, b


def _weibull(x):
    k = 1.28 / np.log(x).std()
    return (x ** k) @ np.log(x) / (x ** k).sum() - 1 / k - np.log(x).mean()


@entry(source="scipy.stats.weibull_min.fit, inner equation", verdict="not fusable", reason="unbounded-rank",
       shortest=7, assume="x > 0", inputs={"x": positive}, reference=_weibull)
def weibull_newton_step(x: "l"):
    """k = 1.28/σ(log x); y = Σ x^k log x/Σ x^k − 1/k − mean log x: the pivot is an exponent."""
    logs = ra.log(x)
    k = 1.28 / ra.std(logs, "l")
    powers = x ** k
    return ra.sum(powers * logs, "l") / ra.sum(powers, "l") - 1.0 / k - ra.mean(logs, "l")
