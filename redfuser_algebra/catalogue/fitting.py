"""Least squares, spectra and directions fitted to samples over l."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue.draws import between
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra


@entry(source="KernelBench level1/1–18, 50, 54–87; numpy.dot", reason="no-pivot", words=1,
       reference=lambda w, x: w @ x)
def gemv_dot(w: "l", x: "l"):
    """y = Σ w_l x_l."""
    return ra.sum(w * x, "l")


@entry(source="ordinary least squares; scipy.stats.linregress", reason="rank-R", words=5, shortest=2,
       reference=lambda x, y: tuple(np.linalg.lstsq(np.stack([x, np.ones_like(x)], 1), y)[0]))
def linear_regression(x: "l", y: "l"):
    """Slope b = Σ (x − μ)(y − ν)/Σ (x − μ)² and intercept ν − b μ."""
    mean_x, mean_y = ra.mean(x, "l"), ra.mean(y, "l")
    slope = ra.sum((x - mean_x) * (y - mean_y), "l") / ra.sum((x - mean_x) ** 2, "l")
    return slope, mean_y - slope * mean_x


def _residuals(x, y):
    fit = np.linalg.lstsq(np.stack([x, np.ones_like(x)], 1), y)[0]
    return y - fit[0] * x - fit[1]


@entry(source="residual diagnostics (statsmodels OLS)", reason="rank-R", words=10, shortest=3,
       reference=lambda x, y: ((_residuals(x, y) ** 2).sum(), (_residuals(x, y) ** 3).mean()))
def linreg_residual_ss(x: "l", y: "l"):
    """Residuals e = y − a − b x of the fitted line: Σ e² and mean e³."""
    mean_x, mean_y = ra.mean(x, "l"), ra.mean(y, "l")
    slope = ra.sum((x - mean_x) * (y - mean_y), "l") / ra.sum((x - mean_x) ** 2, "l")
    e = y - (mean_y - slope * mean_x) - slope * x
    return ra.sum(e ** 2, "l"), ra.mean(e ** 3, "l")


@entry(source="sklearn.metrics.r2_score, explained_variance_score", reason="rank-R", words=6, shortest=2,
       reference=lambda y, p: (1 - ((y - p) ** 2).mean() / y.var(), 1 - (y - p).var() / y.var()))
def r2_explained_variance(y: "l", p: "l"):
    """e = y − p: 1 − Σ e²/Σ (y − ȳ)² and 1 − Σ (e − ē)²/Σ (y − ȳ)²."""
    e, total = y - p, ra.sum((y - ra.mean(y, "l")) ** 2, "l")
    return 1.0 - ra.sum(e * e, "l") / total, 1.0 - ra.sum((e - ra.mean(e, "l")) ** 2, "l") / total


def _trend(x):
    fit = np.polyfit(np.arange(x.size), x, 1)
    return fit[0], ((x - np.polyval(fit, np.arange(x.size))) ** 2).sum()


@entry(source="scipy.signal.detrend; tsfresh linear_trend", reason="rank-R", words=4, shortest=3, reference=_trend)
def trend_slope(x: "l"):
    """t = l − (N − 1)/2; slope b = Σ t x/Σ t² and Σ (x − μ − b t)²."""
    t = ra.index("l") - (ra.size("l") - 1) / 2
    slope = ra.sum(t * x, "l") / ra.sum(t * t, "l")
    return slope, ra.sum((x - ra.mean(x, "l") - slope * t) ** 2, "l")


@entry(source="Goertzel; numpy.fft after detrend('constant')", reason="rank-R", words=6,
       reference=lambda x: np.abs((x - x.mean()) @ np.exp(-0.4j * np.arange(x.size))) ** 2)
def goertzel_dc(x: "l"):
    """y = |Σ (x_l − μ) e^{−iωl}|² with ω = 0.4."""
    d, angle = x - ra.mean(x, "l"), 0.4 * ra.index("l")
    return ra.sum(d * ra.cos(angle), "l") ** 2 + ra.sum(d * ra.sin(angle), "l") ** 2


def _lomb(t, y):
    tau = np.angle(np.exp(3.4j * t).sum()) / 3.4
    wave = np.exp(1.7j * (t - tau))
    d = y - y.mean()
    return ((d @ wave.real) ** 2 / (wave.real @ wave.real) + (d @ wave.imag) ** 2 / (wave.imag @ wave.imag)) / 2


@entry(source="scipy.signal.lombscargle; astropy LombScargle", reason="rank-R", words=8, shortest=3,
       inputs={"t": between(0, 9)}, reference=_lomb)
def lomb_scargle(t: "l", y: "l"):
    """Power at ω = 1.7 with τ = atan2(Σ sin 2ωt, Σ cos 2ωt)/2ω: ½ Σ over cos, sin of (Σ (y − ȳ) c)²/Σ c²."""
    tau = ra.arctan2(ra.sum(ra.sin(3.4 * t), "l"), ra.sum(ra.cos(3.4 * t), "l")) / 3.4
    d, c, s = y - ra.mean(y, "l"), ra.cos(1.7 * (t - tau)), ra.sin(1.7 * (t - tau))
    return 0.5 * (ra.sum(d * c, "l") ** 2 / ra.sum(c * c, "l") + ra.sum(d * s, "l") ** 2 / ra.sum(s * s, "l"))


def _power_iteration(X):
    v = np.ones(X.shape[1])
    for _ in range(3):
        v = X.T @ X @ v
        v = v / np.linalg.norm(v)
    return v, v @ X.T @ X @ v


@entry(source="torch.nn.utils.spectral_norm; PowerSGD", reason="rank-R", words=6, reference=_power_iteration)
def gram_power_iteration(X: "l c"):
    """v ← Σ (X_l·v) X_l, normalised, three times from v = 1; then v and Σ (X_l·v)²."""
    v = 1.0
    for _ in range(3):
        v = ra.sum(ra.sum(X * v, "c") * X, "l")
        v = v / ra.sqrt(ra.sum(v * v, "c"))
    return v, ra.sum(ra.sum(X * v, "c") ** 2, "l")


def _mardia(X):
    c = X - X.mean(0)
    G = c @ np.linalg.inv(c.T @ c / len(X)) @ c.T
    return (G ** 3).mean(), (np.diag(G) ** 2).mean()


@entry(source="Mardia 1970; R package MVN", reason="rank-R", words=15, shortest=3, reference=_mardia)
def mardia(X: "l plane"):
    """Skewness Σ_ij ((x_i − μ)ᵀS⁻¹(x_j − μ))³/N² and kurtosis mean ((x − μ)ᵀS⁻¹(x − μ))² of points of the plane.

    With whitened coordinates a and b the first is (mean a³)² + 3 (mean a²b)² + 3 (mean ab²)² + (mean b³)².
    """
    x, y = ra.take(X, 0, "plane"), ra.take(X, 1, "plane")
    x, y = x - ra.mean(x, "l"), y - ra.mean(y, "l")
    xx, xy, yy = ra.mean(x * x, "l"), ra.mean(x * y, "l"), ra.mean(y * y, "l")
    a, b = x / ra.sqrt(xx), (y - x * xy / xx) / ra.sqrt(yy - xy * xy / xx)
    skew = (ra.mean(a ** 3, "l") ** 2 + 3.0 * ra.mean(a ** 2 * b, "l") ** 2
            + 3.0 * ra.mean(a * b ** 2, "l") ** 2 + ra.mean(b ** 3, "l") ** 2)
    return skew, ra.mean((a * a + b * b) ** 2, "l")
