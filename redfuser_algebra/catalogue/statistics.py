"""Moments, means and dispersion of a sample over l."""
from __future__ import annotations

import math

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import positive, spread, whole
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra


@entry(source="Welford 1962; Chan, Golub & LeVeque 1979; RedFuser §6", reason="rank-R", words=3,
       inputs={"x": spread(5, 1)}, reference=lambda x: np.var(x))
def variance(x: "l"):
    """σ² = Σ (x_l − μ)²/N."""
    mean = ra.sum(x, "l") / ra.size("l")
    return ra.sum((x - mean) ** 2, "l") / ra.size("l")


@entry(source="river Var; OnlineStats Variance; DataFusion var_samp", reason="rank-R", words=3, shortest=2,
       inputs={"x": spread(5, 1)}, reference=lambda x: plain.variance(x, 1))
def variance_two_pass(x: "l"):
    """s² = Σ (x_l − μ)²/(N − 1)."""
    return ra.var(x, "l", ddof=1)


def _sem(x):
    return (np.sqrt(plain.variance(x, 1) / x.size), plain.variance(x) / x.mean(), np.sqrt(plain.variance(x)) / x.mean())


@entry(source="scipy.stats.sem, variation; river SEM", reason="rank-R", words=3, shortest=2, inputs={"x": positive},
       reference=_sem)
def sem_cv(x: "l"):
    """Standard error √(s²/N), index of dispersion σ²/μ, coefficient of variation σ/μ."""
    mean = ra.mean(x, "l")
    return (ra.sqrt(ra.var(x, "l", ddof=1) / ra.size("l")), ra.var(x, "l") / mean, ra.std(x, "l") / mean)


def _standard_moment(x, order):
    return (((x - x.mean()) / x.std()) ** order).mean()


@entry(source="scipy.stats.skew; river Skew; ClickHouse skewPop", reason="rank-R", words=4, shortest=2,
       inputs={"x": spread(1, 1)}, reference=lambda x: _standard_moment(x, 3))
def skewness(x: "l"):
    """g = mean ((x_l − μ)/σ)³."""
    d = x - ra.mean(x, "l")
    return ra.mean((d / ra.sqrt(ra.mean(d ** 2, "l"))) ** 3, "l")


@entry(source="scipy.stats.kurtosis; river Kurtosis; DataFusion kurtosis_pop", reason="rank-R", words=5, shortest=2,
       reference=lambda x: _standard_moment(x, 4) - 3)
def kurtosis(x: "l"):
    """k = mean (x_l − μ)⁴/σ⁴ − 3."""
    d = x - ra.mean(x, "l")
    return ra.mean(d ** 4, "l") / ra.mean(d ** 2, "l") ** 2 - 3.0


def _describe(x):
    g, k = _standard_moment(x, 3), _standard_moment(x, 4) - 3
    return x.size, x.min(), x.max(), x.mean(), plain.variance(x, 1), g, k, x.size / 6 * (g * g + k * k / 4)


@entry(source="scipy.stats.describe, jarque_bera", reason="rank-R", words=7, shortest=2, reference=_describe)
def describe_jarque_bera(x: "l"):
    """N, min, max, mean, s², skewness g, excess kurtosis k, and N/6 (g² + k²/4)."""
    n, d = ra.size("l"), x - ra.mean(x, "l")
    v = ra.mean(d ** 2, "l")
    g, k = ra.mean(d ** 3, "l") / v ** 1.5, ra.mean(d ** 4, "l") / v ** 2 - 3.0
    jb = n / 6.0 * (g ** 2 + k ** 2 / 4.0)
    return n, ra.min(x, "l"), ra.max(x, "l"), ra.mean(x, "l"), v * n / (n - 1), g, k, jb


@entry(source="DataFusion covar_samp; river Cov", reason="rank-R", words=4, shortest=2,
       reference=lambda x, y: np.cov(x, y)[0, 1])
def covariance(x: "l", y: "l"):
    """c = Σ (x_l − μ)(y_l − ν)/(N − 1)."""
    return ra.sum((x - ra.mean(x, "l")) * (y - ra.mean(y, "l")), "l") / (ra.size("l") - 1)


@entry(source="Pearson 1895; numpy.corrcoef", reason="rank-R", words=6, shortest=2,
       reference=lambda x, y: np.corrcoef(x, y)[0, 1])
def correlation(x: "l", y: "l"):
    """r = Σ ab/√(Σ a² Σ b²) with a = x − μ, b = y − ν."""
    a, b = x - ra.mean(x, "l"), y - ra.mean(y, "l")
    return ra.sum(a * b, "l") / ra.sqrt(ra.sum(a * a, "l") * ra.sum(b * b, "l"))


@entry(source="torchmetrics ConcordanceCorrCoef", reason="rank-R", words=6, shortest=2,
       reference=lambda x, y: 2 * np.cov(x, y, ddof=0)[0, 1] / (x.var() + y.var() + (x.mean() - y.mean()) ** 2))
def concordance_ccc(x: "l", y: "l"):
    """y = 2 σ_xy/(σ_x² + σ_y² + (μ − ν)²)."""
    mean_x, mean_y = ra.mean(x, "l"), ra.mean(y, "l")
    both = ra.mean((x - mean_x) * (y - mean_y), "l")
    return 2.0 * both / (ra.var(x, "l") + ra.var(y, "l") + (mean_x - mean_y) ** 2)


@entry(source="torch.nn.functional.cosine_similarity", reason="no-pivot", words=3,
       reference=lambda x, y: x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))
def cosine_similarity(x: "l", y: "l"):
    """c = Σ x y/√(Σ x² Σ y²)."""
    return ra.sum(x * y, "l") / ra.sqrt(ra.sum(x * x, "l") * ra.sum(y * y, "l"))


@entry(source="numpy.average(weights=)", reason="no-pivot", words=2, inputs={"w": positive},
       reference=lambda x, w: np.average(x, weights=w))
def weighted_mean(x: "l", w: "l"):
    """μ = Σ w x/Σ w."""
    return ra.sum(w * x, "l") / ra.sum(w, "l")


@entry(source="West 1979", reason="rank-R", words=3, inputs={"w": positive},
       reference=lambda x, w: np.average((x - np.average(x, weights=w)) ** 2, weights=w))
def weighted_variance(x: "l", w: "l"):
    """σ² = Σ w (x − μ)²/Σ w with μ = Σ w x/Σ w."""
    total = ra.sum(w, "l")
    mean = ra.sum(w * x, "l") / total
    return ra.sum(w * (x - mean) ** 2, "l") / total


@entry(source="numpy.cov(aweights=); West 1979", reason="rank-R", words=4, shortest=2, inputs={"w": positive},
       reference=lambda x, w: (np.average(x, weights=w), np.cov(x, aweights=w)))
def weighted_mean_var(x: "l", w: "l"):
    """μ = Σ w x/W and Σ w (x − μ)²/(W − Σ w²/W) with W = Σ w."""
    total = ra.sum(w, "l")
    mean = ra.sum(w * x, "l") / total
    return mean, ra.sum(w * (x - mean) ** 2, "l") / (total - ra.sum(w * w, "l") / total)


@entry(source="finance; ClickHouse avgWeighted", reason="no-pivot", words=4, inputs={"p": positive, "v": positive},
       reference=lambda p, v: (p @ v / v.sum(), p.mean()))
def vwap_twap(p: "l", v: "l"):
    """Prices averaged by volume Σ p v/Σ v and by time Σ p/N."""
    return ra.sum(p * v, "l") / ra.sum(v, "l"), ra.mean(p, "l")


@entry(source="VWAP bands", reason="rank-R", words=3, inputs={"p": positive, "v": positive},
       reference=lambda p, v: (p @ v / v.sum(), np.sqrt(v @ (p - p @ v / v.sum()) ** 2 / v.sum())))
def vwap_dispersion(p: "l", v: "l"):
    """w = Σ p v/Σ v and √(Σ v (p − w)²/Σ v)."""
    total = ra.sum(v, "l")
    mean = ra.sum(p * v, "l") / total
    return mean, ra.sqrt(ra.sum(v * (p - mean) ** 2, "l") / total)


def _sharpe(r):
    gain = r - 0.01
    downside = np.sqrt((gain[gain < 0] ** 2).sum() / r.size)
    return r.mean() / r.std(ddof=1), gain.mean() / downside, gain[gain > 0].sum() / np.abs(gain[gain < 0]).sum()


@entry(source="empyrical; quantstats", reason="rank-R", words=6, shortest=2, inputs={"r": spread(0, 0.1)},
       reference=_sharpe)
def sharpe_sortino_omega(r: "l"):
    """Sharpe μ/s; Sortino (μ − τ)/√mean min(r − τ, 0)²; Omega Σ (r − τ)⁺/Σ (τ − r)⁺, with τ = 0.01."""
    mean, gain = ra.mean(r, "l"), r - 0.01
    downside = ra.sqrt(ra.mean(ra.minimum(gain, 0.0) ** 2, "l"))
    omega = ra.sum(ra.relu(gain), "l") / ra.sum(ra.relu(-gain), "l")
    return mean / ra.std(r, "l", ddof=1), (mean - 0.01) / downside, omega


@entry(source="scipy.stats.gmean", reason="no-pivot", words=2, assume="x > 0", inputs={"x": positive},
       reference=lambda x: np.exp(np.log(x).mean()))
def geometric_mean(x: "l"):
    """y = (Π x_l)^{1/N}, written e^{mean log x}."""
    return ra.exp(ra.mean(ra.log(x), "l"))


@entry(source="scipy.stats.gmean, hmean, pmean", reason="no-pivot", words=4, assume="x > 0", inputs={"x": positive},
       reference=lambda x: (np.exp(np.log(x).mean()), 1 / (1 / x).mean(), np.cbrt((x ** 3).mean())))
def power_means(x: "l"):
    """Geometric e^{mean log x}, harmonic N/Σ(1/x), cubic (mean x³)^{1/3}."""
    n = ra.size("l")
    return ra.exp(ra.mean(ra.log(x), "l")), n / ra.sum(1.0 / x, "l"), ra.mean(x ** 3, "l") ** (1 / 3)


def _kstat(x):
    n, v = x.size, plain.variance(x, 1)
    m2, m4 = (((x - x.mean()) ** order).mean() for order in (2, 4))
    k4 = n ** 2 * ((n + 1) * m4 - 3 * (n - 1) * m2 ** 2) / ((n - 1) * (n - 2) * (n - 3))
    return k4, (2 * n * v ** 2 + (n - 1) * k4) / (n * (n + 1))


@entry(source="scipy.stats.kstat, kstatvar", reason="no-pivot", words=5, shortest=4, reference=_kstat)
def kstat4(x: "l"):
    """Fourth k-statistic and the variance of the second, from the power sums Σ x … Σ x⁴."""
    n = ra.size("l")
    s1, s2, s3, s4 = (ra.sum(x ** order, "l") for order in (1, 2, 3, 4))
    inner = (-6 * s1 ** 4 + 12 * n * s1 ** 2 * s2 - 3 * n * (n - 1) * s2 ** 2
             - 4 * n * (n + 1) * s1 * s3 + n ** 2 * (n + 1) * s4)
    k4 = inner / (n * (n - 1) * (n - 2) * (n - 3))
    k2 = (n * s2 - s1 ** 2) / (n * (n - 1))
    return k4, (2 * n * k2 ** 2 + (n - 1) * k4) / (n * (n + 1))


@entry(source="scipy.stats.tsem(limits)", reason="rank-R", words=3, shortest=7, inputs={"hi": 1.0},
       reference=lambda x, hi: x[x <= hi].std(ddof=1) / np.sqrt((x <= hi).sum()))
def trimmed_sem_limits(x: "l", hi: ""):
    """Standard error √(s²/n) of the n elements x_l ≤ hi."""
    kept = x <= hi
    return ra.std(x, "l", where=kept, ddof=1) / ra.sqrt(ra.count(kept, "l"))


def _log_product(x):
    scaled = np.prod(x / np.abs(x).max())
    return scaled, np.log(np.abs(x)).sum()


@entry(source="overflow-safe product; LAPACK slogdet-style scaling", reason="rank-1", words=4,
       inputs={"x": lambda rng, shape: np.where(rng.uniform(size=shape) < 0.4, -1, 1) * rng.uniform(0.8, 1.2, shape)},
       reference=_log_product)
def prod_scaled(x: "l"):
    """P = Π x_l/m with m = max |x|, and log|P| + N log m = log |Π x|."""
    m = ra.max(ra.abs(x), "l")
    scaled = ra.prod(x / m, "l")
    return scaled, ra.log(ra.abs(scaled)) + ra.size("l") * ra.log(m)


def _summary(x):
    return x.sum(), x.prod(), np.sqrt((x * x).mean()), np.ptp(x), (x.max() + x.min()) / 2


@entry(source="numpy.sum, prod, ptp; root mean square; midrange", reason="no-pivot", words=5, inputs={"x": positive},
       reference=_summary)
def sample_summary(x: "l"):
    """Σ x, Π x, √mean x², max x − min x, ½ (max x + min x)."""
    low, high = ra.min(x, "l"), ra.max(x, "l")
    return ra.sum(x, "l"), ra.prod(x, "l"), ra.sqrt(ra.mean(x * x, "l")), high - low, (high + low) / 2


@entry(source="Student 1908; scipy.stats.ttest_1samp; z-test with σ = 1", reason="rank-R", words=3, shortest=2,
       inputs={"x": spread(1, 1)},
       reference=lambda x: (x.mean() / np.sqrt(x.var(ddof=1) / x.size), x.mean() * np.sqrt(x.size)))
def t_and_z(x: "l"):
    """t = μ/√(s²/N) and z = μ √N against the mean 0."""
    n, mean = ra.size("l"), ra.mean(x, "l")
    return mean / ra.sqrt(ra.var(x, "l", ddof=1) / n), mean * ra.sqrt(n)


@entry(source="Welch 1947; scipy.stats.ttest_ind(equal_var=False)", reason="rank-R", words=5, shortest=2,
       reference=lambda x, y: (x.mean() - y.mean()) / np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / x.size))
def welch_t(x: "l", y: "l"):
    """t = (μ − ν)/√((s² + u²)/N) of two samples of N."""
    spread_of_means = (ra.var(x, "l", ddof=1) + ra.var(y, "l", ddof=1)) / ra.size("l")
    return (ra.mean(x, "l") - ra.mean(y, "l")) / ra.sqrt(spread_of_means)


def _anova(x, g):
    groups = [x[g == k] for k in range(2)]
    between = sum(own.size * (own.mean() - x.mean()) ** 2 for own in groups)
    return between / (sum(own.size * own.var() for own in groups) / (x.size - 2))


@entry(source="Fisher 1925; scipy.stats.f_oneway", reason="rank-R", words=7, shortest=5,
       inputs=lambda rng, L: {"g": np.arange(L) % 2}, reference=_anova)
def anova_f(x: "l", g: "l"):
    """F = Σ_k n_k (μ_k − μ)² / (Σ (x − μ_g)²/(N − 2)) of the groups g = 0 and g = 1."""
    mean, groups = ra.mean(x, "l"), [g == k for k in range(2)]
    means = [ra.mean(x, "l", where=own) for own in groups]
    between = sum(ra.count(own, "l") * (m - mean) ** 2 for own, m in zip(groups, means, strict=True))
    within = sum(ra.sum((x - m) ** 2, "l", where=own) for own, m in zip(groups, means, strict=True))
    return between / (within / (ra.size("l") - 2))


def _likelihoods(x):
    normal = -0.5 * x.size * (np.log(2 * np.pi * x.var()) + 1)
    return normal, -x.size * (np.log(x.mean()) + 1)


@entry(source="maximum likelihood; scipy.stats.norm.fit, expon.fit", reason="rank-R", words=3, shortest=2, inputs={"x": positive},
       reference=_likelihoods)
def log_likelihoods(x: "l"):
    """Σ log p(x_l) at its maximum: of a normal law with μ and σ², and of an exponential law with mean μ."""
    n, mean = ra.size("l"), ra.mean(x, "l")
    v = ra.var(x, "l")
    normal = -0.5 * (n * ra.log(2 * math.pi * v) + ra.sum((x - mean) ** 2, "l") / v)
    return normal, -(n * ra.log(mean) + ra.sum(x, "l") / mean)


def _runner_up(x):
    return max(x[x < x.max()], default=-np.inf)


@entry(source="SQL: the second highest salary (DENSE_RANK() = 2)", reason="reset", words=2, inputs={"x": whole(4)}, reference=_runner_up)
def second_distinct(x: "l"):
    """The largest of the x_l < max x, −∞ if there is none: where a new maximum comes, the old one takes this place."""
    return ra.max(x, "l", where=x < ra.max(x, "l"))
