"""Training losses and evaluation scores over l: classes, samples or pixels."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import between, bits, identity, one_hot, positive, signs, simplex
from redfuser_algebra.catalogue.draws import spread, unit
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.catalogue.idioms import log_sum_exp
from redfuser_algebra.language import functions as ra


@entry(source="torch.nn.functional.cross_entropy", reason="rank-1", words=3,
       inputs=lambda rng, L: {"label": rng.integers(0, L, 3)},
       reference=lambda x, label: plain.logsumexp(x) - x[np.arange(3), label.astype(int)])
def cross_entropy(x: "m l", label: "m"):
    """y_m = log Σ_l e^{x_ml} − x_{m, label_m}, shifted by the row's maximum."""
    return log_sum_exp(x) - ra.take(x, label, "l")


@entry(source="KernelBench level1/95_CrossEntropyLoss", reason="rank-1", words=3,
       inputs={"x": spread(0, 2), "t": one_hot}, reference=lambda x, t: plain.logsumexp(x) - x[t == 1][0])
def cross_entropy_hard(x: "l", t: "l"):
    """y = log Σ e^{x_l} − Σ t_l x_l for a one-hot t."""
    return log_sum_exp(x) - ra.sum(t * x, "l")


def _smoothed(x, t):
    q = 0.9 * t + 0.1 / x.size
    return q @ (plain.logsumexp(x) - x)


@entry(source="torch.nn.CrossEntropyLoss(label_smoothing=0.1)", reason="rank-R", words=6,
       inputs={"x": spread(0, 2), "t": one_hot}, reference=_smoothed)
def ce_label_smoothing(x: "l", t: "l"):
    """y = −Σ ((1 − ε) t_l + ε/N) log softmax(x)_l with ε = 0.1."""
    q = 0.9 * t + 0.1 / ra.size("l")
    return -ra.sum(q * (x - log_sum_exp(x)), "l")


def _focal(x, t, gamma):
    p = plain.softmax(x)
    return -(t * (1 - p) ** gamma * np.log(p)).sum()


@entry(source="focal loss with soft labels", reason="rank-R", words=8, inputs={"t": simplex},
       reference=lambda x, t: _focal(x, t, 2))
def focal_soft_gamma2(x: "l", t: "l"):
    """y = −Σ t_l (1 − p_l)² log p_l with p = softmax(x)."""
    log_p = x - log_sum_exp(x)
    return -ra.sum(t * (1.0 - ra.exp(log_p)) ** 2 * log_p, "l")


@entry(source="focal loss with soft labels", verdict="not fusable", reason="unbounded-rank", inputs={"t": simplex},
       shortest=2, reference=lambda x, t: _focal(x, t, 1.5))
def focal_soft_frac(x: "l", t: "l"):
    """y = −Σ t_l (1 − p_l)^{3/2} log p_l with p = softmax(x): no finite expansion in powers of p."""
    log_p = x - log_sum_exp(x)
    return -ra.sum(t * (1.0 - ra.exp(log_p)) ** 1.5 * log_p, "l")


def _poly1(x, t):
    p = plain.softmax(x)
    return t @ (1.5 * (1 - p) - np.log(p))


@entry(source="PolyLoss, arXiv 2204.12511", reason="rank-R", words=5, inputs={"t": simplex}, reference=_poly1)
def poly1_ce_soft(x: "l", t: "l"):
    """y = Σ t_l (−log p_l + 1.5 (1 − p_l)) with p = softmax(x)."""
    log_p = x - log_sum_exp(x)
    return ra.sum(t * (-log_p + 1.5 * (1.0 - ra.exp(log_p))), "l")


@entry(source="CPC, arXiv 1807.03748; SimCLR NT-Xent", reason="rank-1", words=3,
       inputs={"s": between(-1, 1), "t": one_hot},
       reference=lambda s, t: plain.logsumexp(s / 0.07) - s[t == 1][0] / 0.07)
def infonce(s: "l", t: "l"):
    """y = log Σ e^{s_l/τ} − Σ t_l s_l/τ with τ = 0.07."""
    return log_sum_exp(s / 0.07) - ra.sum(t * s, "l") / 0.07


def _circle(sp, sn):
    a = -8 * np.maximum(1.25 - sp, 0) * (sp - 0.75)
    b = 8 * np.maximum(sn + 0.25, 0) * (sn - 0.25)
    return np.logaddexp(0, plain.logsumexp(a) + plain.logsumexp(b))


@entry(source="Circle loss, arXiv 2002.10857", reason="rank-1", words=4,
       inputs={"sp": between(-1, 1), "sn": between(-1, 1)}, reference=_circle)
def circle_loss(sp: "l", sn: "l"):
    """y = softplus(lse a + lse b), a = −8 relu(1.25 − s_p)(s_p − 0.75), b = 8 relu(s_n + 0.25)(s_n − 0.25)."""
    z = (log_sum_exp(-8.0 * ra.relu(1.25 - sp) * (sp - 0.75))
         + log_sum_exp(8.0 * ra.relu(sn + 0.25) * (sn - 0.25)))
    return ra.relu(z) + ra.log1p(ra.exp(-ra.abs(z)))


def _hinge(a, p, n_, t):
    gap = np.abs(a - p) - np.abs(a - n_)
    kl = np.abs(p) * (np.log(np.abs(p)) - np.log(np.abs(a)))
    return np.maximum(1 - a * t, 0).mean(), np.maximum(gap + 1, 0).mean(), kl.sum()


@entry(source="KernelBench level1/98, 99, 100", reason="no-pivot", words=4, inputs={"t": signs}, reference=_hinge)
def hinge_kl_triplet(a: "l", p: "l", n_: "l", t: "l"):
    """mean relu(1 − a t); mean relu(|a − p| − |a − n| + 1); Σ |p| log(|p|/|a|)."""
    triplet = ra.relu(ra.abs(a - p) - ra.abs(a - n_) + 1.0)
    divergence = ra.abs(p) * ra.log(ra.abs(p) / ra.abs(a))
    return ra.mean(ra.relu(1.0 - a * t), "l"), ra.mean(triplet, "l"), ra.sum(divergence, "l")


def _tversky(p, t):
    hit, extra, missed = p @ t, p @ (1 - t), (1 - p) @ t
    return 1 - (2 * hit + 1) / (p.sum() + t.sum() + 1), 1 - hit / (hit + 0.3 * extra + 0.7 * missed)


@entry(source="MONAI DiceLoss, TverskyLoss", reason="no-pivot", words=3, inputs={"p": unit, "t": bits},
       reference=_tversky)
def tversky_dice(p: "l", t: "l"):
    """Soft counts TP = Σ pt, FP = Σ p(1−t), FN = Σ (1−p)t; Dice 1 − (2TP+1)/(2TP+FP+FN+1) and Tversky(0.3, 0.7)."""
    tp, fp, fn = ra.sum(p * t, "l"), ra.sum(p * (1.0 - t), "l"), ra.sum((1.0 - p) * t, "l")
    return 1.0 - (2.0 * tp + 1.0) / (2.0 * tp + fp + fn + 1.0), 1.0 - tp / (tp + 0.3 * fp + 0.7 * fn)


def _calibration(c, y):
    at = np.minimum(np.floor(5 * c), 4).astype(int)
    return np.abs(np.bincount(at, c - y, minlength=5)).sum() / c.size


@entry(source="torchmetrics CalibrationError(n_bins=5)", reason="no-pivot", words=11, inputs={"c": unit, "y": bits},
       reference=_calibration)
def ece_fixed_bins(c: "l", y: "l"):
    """ECE = Σ_b |Σ_{l in b} c_l − Σ_{l in b} y_l|/N over five bins of equal width."""
    at = ra.minimum(ra.floor(5.0 * c), 4)
    gaps = [ra.abs(ra.sum(c, "l", where=at == b) - ra.sum(y, "l", where=at == b)) for b in range(5)]
    return sum(gaps) / ra.size("l")


def _confusion(p, t):
    k = p > 0.5
    tp, tn, fp, fn = (np.sum(a * b) for a, b in ((k, t), (~k, 1 - t), (k, 1 - t), (~k, t)))
    return ((tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)), 2 * tp / (2 * tp + fp + fn))


@entry(source="sklearn.metrics.matthews_corrcoef, f1_score", reason="no-pivot", words=4,
       inputs={"p": unit, "t": bits}, reference=_confusion)
def confusion_mcc(p: "l", t: "l"):
    """Counts at the threshold ½, then Matthews correlation and F1."""
    k = ra.where(p > 0.5, 1.0, 0.0)
    tp, tn = ra.sum(k * t, "l"), ra.sum((1.0 - k) * (1.0 - t), "l")
    fp, fn = ra.sum(k * (1.0 - t), "l"), ra.sum((1.0 - k) * t, "l")
    mcc = (tp * tn - fp * fn) / ra.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return mcc, 2.0 * tp / (2.0 * tp + fp + fn)


@entry(source="Eigen 2014; KITTI SILog", reason="rank-R", words=3, assume="a > 0, b > 0",
       inputs={"a": positive, "b": positive},
       reference=lambda a, b: plain.variance(np.log(a / b)) + np.log(a / b).mean() ** 2 / 2)
def silog(a: "l", b: "l"):
    """d = log a − log b; y = mean (d − mean d)² + ½ (mean d)²."""
    d = ra.log(a) - ra.log(b)
    return ra.var(d, "l") + 0.5 * ra.mean(d, "l") ** 2


def _si_sdr(s, e):
    s, e = s - s.mean(), e - e.mean()
    target = (s @ e) / (s @ s) * s
    return 10 * np.log10(target @ target / ((e - target) @ (e - target)))


@entry(source="torchmetrics ScaleInvariantSignalDistortionRatio(zero_mean=True)", reason="rank-R", words=6, shortest=3,
       inputs=lambda rng, L: (lambda s: {"s": s, "e": s + 0.3 * rng.standard_normal(L)})(rng.standard_normal(L)),
       reference=_si_sdr)
def si_sdr(s: "l", e: "l"):
    """α = Σ s e/Σ s² of the centred signals; y = 10 log₁₀(Σ (αs)² / Σ (e − αs)²)."""
    s, e = s - ra.mean(s, "l"), e - ra.mean(e, "l")
    target = ra.sum(s * e, "l") / ra.sum(s * s, "l") * s
    noise = ra.sum((e - target) ** 2, "l")
    return 10.0 * ra.log(ra.sum(target ** 2, "l") / noise) / ra.log(10.0)


def _barlow(A, C):
    a, c = (A - A.mean(0)) / A.std(0), (C - C.mean(0)) / C.std(0)
    X = a.T @ c / len(A)
    return (np.diag(X) - 1) @ (np.diag(X) - 1) + 0.005 * ((X * X).sum() - np.diag(X) @ np.diag(X))


@entry(source="Barlow Twins, arXiv 2103.03230", reason="rank-R", words=6, shortest=2, reference=_barlow)
def barlow_twins(A: "l i", C: "l j"):
    """X_ij = mean â_li ĉ_lj of standardised views; y = Σ_i (X_ii − 1)² + 0.005 Σ_{i≠j} X_ij²."""
    a, c = (V - ra.mean(V, "l") for V in (A, C))
    X = ra.mean(a / ra.std(A, "l") * (c / ra.std(C, "l")), "l")
    return ra.sum(ra.where(ra.index("i") == ra.index("j"), (X - 1.0) ** 2, 0.005 * X ** 2), "i j")


def _vicreg(A, eye):
    S = np.atleast_2d(np.cov(A.T))
    off = (S ** 2).sum() - (np.diag(S) ** 2).sum()
    return np.maximum(1 - np.sqrt(np.diag(S) + 1e-4), 0).mean() + off / A.shape[1]


@entry(source="VICReg, arXiv 2105.04906", reason="rank-R", words=4, shortest=2, inputs={"eye": identity},
       reference=_vicreg)
def vicreg_reg(A: "l i", eye: "i j"):
    """S_ij = Σ (a_li − μ_i)(a_lj − μ_j)/(N − 1); y = (Σ_i relu(1 − √(S_ii + 1e-4)) + Σ_{i≠j} S_ij²)/d, eye = 1."""
    a = A - ra.mean(A, "l")
    S = ra.sum(a * ra.sum(a * eye, "i"), "l") / (ra.size("l") - 1)
    spread_terms = ra.relu(1.0 - ra.sqrt(ra.sum(S * eye, "j") + 1e-4))
    return ra.mean(spread_terms, "i") + ra.sum(S ** 2 * (1.0 - eye), "i j") / ra.size("i")


def _d2(y, p):
    def poisson(a, b):
        return (a * np.log(a / b) - a + b).sum()

    def gamma(a, b):
        return (np.log(b / a) + a / b - 1).sum()

    return 1 - poisson(y, p) / poisson(y, y.mean()), 1 - gamma(y, p) / gamma(y, y.mean())


@entry(source="sklearn.metrics.d2_tweedie_score(power=1, 2)", reason="rank-R", words=6, shortest=3,
       assume="y > 0, p > 0", inputs={"y": positive, "p": positive}, reference=_d2)
def d2_tweedie(y: "l", p: "l"):
    """1 − D(y, p)/D(y, ȳ) for the deviances D = Σ (y log(y/p) − y + p) and D = Σ (log(p/y) + y/p − 1)."""
    mean = ra.mean(y, "l")
    poisson = ra.sum(y * ra.log(y / mean) - y + mean, "l")
    gamma = ra.sum(ra.log(mean / y) + y / mean - 1.0, "l")
    return (1.0 - ra.sum(y * ra.log(y / p) - y + p, "l") / poisson,
            1.0 - ra.sum(ra.log(p / y) + y / p - 1.0, "l") / gamma)


def _berhu(p, t):
    d = np.abs(p - t)
    c = d.max() / 5
    return np.where(d <= c, d, (d * d + c * c) / (2 * c)).mean()


@entry(source="Laina 2016, depth estimation", verdict="not fusable", reason="threshold", reference=_berhu)
def berhu(p: "l", t: "l"):
    """d = |p − t|, c = max d/5; y = mean of d where d ≤ c and (d² + c²)/2c elsewhere."""
    d = ra.abs(p - t)
    c = 0.2 * ra.max(d, "l")
    return ra.mean(ra.where(d <= c, d, (d * d + c * c) / (2.0 * c)), "l")


def _semi_hard(dp, dn):
    harder = dn[dn > dp.max()]
    return harder.min() if harder.size else dn.max()


@entry(source="FaceNet; pytorch-metric-learning semi-hard mining", verdict="not fusable", reason="envelope",
       inputs={"dp": positive, "dn": between(1, 2.5)}, reference=_semi_hard)
def semi_hard_negative(dp: "l", dn: "l"):
    """p = max d⁺; y = min of the d⁻ above p, or max d⁻ if there is none: a successor query at a pivot."""
    harder = dn > ra.max(dp, "l")
    return ra.where(ra.any(harder, "l"), ra.min(dn, "l", where=harder), ra.max(dn, "l"))


def _huber(p, t):
    d = np.abs(p - t)
    return (d * d).mean(), np.where(d < 1, 0.5 * d * d, d - 0.5).mean()


@entry(source="KernelBench level1/94_MSELoss, 96_HuberLoss; torch smooth_l1_loss", reason="no-pivot", words=2, reference=_huber)
def mse_huber(p: "l", t: "l"):
    """mean d² and the mean of ½ d² where d < 1 and d − ½ elsewhere, with d = |p − t|."""
    d = ra.abs(p - t)
    return ra.mean(d * d, "l"), ra.mean(ra.where(d < 1, 0.5 * d * d, d - 0.5), "l")
