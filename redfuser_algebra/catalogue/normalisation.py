"""Normalisations over l, alone (the outputs keep l), before a matrix product, or before another reduction."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import positive, spread
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.catalogue.idioms import gelu, log_sum_exp, softmax_weights, standardised
from redfuser_algebra.language import functions as ra


@entry(source="Ba et al. 2016; torch layer_norm; KernelBench level1/40, 34, 35", reason="rank-R", words=3,
       inputs={"x": spread(2, 1), "g": positive}, reference=lambda x, g, b: plain.standardised(x) * g + b)
def layernorm(x: "l", g: "l", b: "l"):
    """y_l = (x_l − μ)/√(σ² + ε)·γ_l + β_l with ε = 1e-5."""
    return standardised(x) * g + b


@entry(source="Zhang & Sennrich 2019; torch rms_norm; KernelBench level1/36", reason="no-pivot", words=2,
       inputs={"g": positive}, reference=lambda x, g: x * g / np.sqrt(np.mean(x * x) + 1e-5))
def rmsnorm(x: "l", g: "l"):
    """y_l = x_l γ_l / √(Σ x²/N + ε) with ε = 1e-5."""
    return x / ra.sqrt(ra.mean(x * x, "l") + 1e-5) * g


@entry(source="RMSNorm before a projection; FlashNorm, arXiv 2407.09577", reason="no-pivot", words=3,
       reference=lambda X, W: X / np.sqrt(np.mean(X * X, -1, keepdims=True) + 1e-5) @ W)
def rmsnorm_gemm(X: "m l", W: "l n"):
    """Y_mn = Σ_l X_ml W_ln / √(Σ_l X_ml²/N + ε): the pivot leaves the sum."""
    scale = ra.sqrt(ra.mean(X * X, "l") + 1e-5)
    return ra.sum(X / scale * W, "l")


@entry(source="fused LayerNorm and linear of transformer blocks", reason="rank-R", words=6,
       inputs={"g": positive}, reference=lambda X, g, b, W: (plain.standardised(X) * g + b) @ W)
def layernorm_gemm(X: "m l", g: "l", b: "l", W: "l n"):
    """Y_mn = Σ_l ((X_ml − μ_m)/σ_m·γ_l + β_l) W_ln."""
    return ra.sum((standardised(X) * g + b) * W, "l")


@entry(source="fused LayerNorm and linear, one token", reason="rank-R", words=6,
       inputs={"g": positive}, reference=lambda x, g, b, W: (plain.standardised(x) * g + b) @ W)
def layernorm_gemv(x: "l", g: "l", b: "l", W: "l o"):
    """y_o = Σ ((x_l − μ)/σ·γ_l + β_l) W_lo."""
    return ra.sum((standardised(x) * g + b) * W, "l")


def _batchnorm(x, rm, rv):
    return plain.standardised(x), 0.9 * rm + 0.1 * x.mean(), 0.9 * rv + 0.1 * plain.variance(x, 1)


@entry(source="KernelBench level1/33, level2/33, 39, 41, 52, 73", reason="rank-R", words=3, shortest=2,
       inputs={"rm": 0.1, "rv": 1.2}, reference=_batchnorm)
def batchnorm_train(x: "l", rm: "", rv: ""):
    """Training mode: y_l = (x_l − μ)/√(σ² + ε), and running mean and unbiased variance moved by a tenth."""
    return standardised(x), 0.9 * rm + 0.1 * ra.mean(x, "l"), 0.9 * rv + 0.1 * ra.var(x, "l", ddof=1)


@entry(source="KernelBench level1/38_L1Norm", reason="no-pivot", words=2, reference=lambda x: x / np.abs(x).mean())
def l1_mean_norm(x: "l"):
    """y_l = x_l / mean |x|."""
    return x / ra.mean(ra.abs(x), "l")


@entry(source="torch F.normalize; KernelBench level1/37, 39", reason="no-pivot", words=1,
       reference=lambda x: x / np.sqrt(x @ x))
def l2_norm(x: "l"):
    """y_l = x_l / √Σ x²."""
    return x / ra.sqrt(ra.sum(x * x, "l"))


@entry(source="BLAS nrm2; LAPACK lassq", reason="rank-1", words=2, reference=np.linalg.norm)
def l2_norm_safe(x: "l"):
    """y = m √Σ (x_l/m)² with m = max |x|: no square overflows."""
    m = ra.max(ra.abs(x), "l")
    return m * ra.sqrt(ra.sum((x / m) ** 2, "l"))


@entry(source="min–max scaling before a weighted sum", reason="rank-R", words=4, shortest=2,
       reference=lambda x, w: (x - x.min()) @ w / np.ptp(x))
def minmax_normalised_sum(x: "l", w: "l"):
    """y = Σ (x_l − min x)/(max x − min x)·w_l."""
    low, high = ra.min(x, "l"), ra.max(x, "l")
    return ra.sum((x - low) / (high - low) * w, "l")


@entry(source="absmax scaling before a weighted sum", reason="rank-1", words=2,
       reference=lambda x, w: x @ w / np.abs(x).max())
def absmax_scaled_sum(x: "l", w: "l"):
    """y = Σ x_l/max|x|·w_l."""
    return ra.sum(x / ra.max(ra.abs(x), "l") * w, "l")


@entry(source="sandwich normalisation", reason="rank-R", words=12, shortest=2, inputs={"g": positive},
       reference=lambda x, g, b: plain.standardised(plain.standardised(x) * g + b))
def double_layernorm(x: "l", g: "l", b: "l"):
    """LayerNorm without affine part of the LayerNorm with γ and β: the second sees ten moments of (γx, γ, β, 1)."""
    return standardised(standardised(x) * g + b)


def _quantised_rms(x, g):
    y = x * g / np.sqrt(np.mean(x * x) + 1e-5)
    a = np.abs(y).max() / 127
    return np.round(y / a), a


@entry(source="vLLM rms_norm_dynamic_per_token_quant", reason="rank-1", words=3, inputs={"g": positive},
       reference=_quantised_rms)
def rmsnorm_dynamic_quant(x: "l", g: "l"):
    """y = RMSNorm(x) γ; s = max |y|/127; q_l = round(y_l/s), kept inside ±127; both q and s."""
    y = x / ra.sqrt(ra.mean(x * x, "l") + 1e-5) * g
    s = ra.max(ra.abs(y), "l") / 127.0
    return ra.clip(ra.round(y / s), -127, 127), s


@entry(source="KernelBench level2/77, 72, 15", reason="rank-R", words=7, shortest=2,
       inputs=lambda rng, L: {"c": np.append([0, 1], rng.integers(0, 2, L - 2))},
       reference=lambda x, c: tuple(plain.standardised(0.5 * x)[c == k].mean() for k in range(2)))
def kb_bn_scale_gap(x: "l", c: "l"):
    """BatchNorm of x/2 over the whole batch, then its mean over the members c_l = k of each of two samples k."""
    y = standardised(0.5 * x)
    return ra.mean(y, "l", where=c == 0), ra.mean(y, "l", where=c == 1)


@entry(source="KernelBench level2/75_Gemm_GroupNorm_Min_BiasAdd, initial weights", reason="monotone", words=4,
       inputs={"b": 0.3}, reference=lambda x, b: plain.standardised(x).min() + b)
def kb_gn_plain_min(x: "l", b: ""):
    """y = min (x_l − μ)/σ + b: the map increases for every pivot, so the minimum commutes."""
    return ra.min(standardised(x), "l") + b


@entry(source="KernelBench level2/75_Gemm_GroupNorm_Min_BiasAdd, trained γ and β", verdict="not fusable",
       reason="envelope", inputs={"g": positive}, reference=lambda x, g, b: (plain.standardised(x) * g + b).min())
def kb_gn_affine_min(x: "l", g: "l", b: "l"):
    """y = min ((x_l − μ)/σ·γ_l + β_l): a lower envelope of lines with different slopes."""
    return ra.min(standardised(x) * g + b, "l")


@entry(source="KernelBench level2/79_Conv3d_Multiply_InstanceNorm_Clamp_Multiply_Max", reason="monotone", words=4,
       inputs={"x": lambda rng, shape: -rng.exponential(size=shape) ** 2},
       reference=lambda x: 0.7 * np.clip(plain.standardised(x), -1, 1).max())
def kb_in_clamp_max(x: "l"):
    """y = max 0.7·clip((x_l − μ)/σ, −1, 1)."""
    return ra.max(0.7 * ra.clip(standardised(x), -1, 1), "l")


def _swish_max(x, s):
    z = plain.softmax(x) - s
    return (z * plain.sigmoid(z)).max()


@entry(source="KernelBench level2/89_ConvTranspose3d_MaxPool_Softmax_Subtract_Swish_Max", verdict="not fusable",
       reason="envelope", inputs={"s": spread(0, 0.3)}, reference=_swish_max)
def kb_softmax_sub_swish_max(x: "l", s: "l"):
    """z = softmax(x) − s; y = max z_l σ(z_l)."""
    z = softmax_weights(x) - s
    return ra.max(z * ra.sigmoid(z), "l")


def _hardswish_lse(x):
    t = np.tanh(plain.standardised(x))
    return plain.logsumexp(x + t * np.clip(t + 3, 0, 6) / 6)


@entry(source="KernelBench level2/92_Conv2d_GroupNorm_Tanh_HardSwish_ResidualAdd_LogSumExp", verdict="not fusable",
       reason="unbounded-rank", reference=_hardswish_lse)
def kb_gn_tanh_hswish_lse(x: "l"):
    """t = tanh((x − μ)/σ); y = log Σ e^{x_l + hardswish(t_l)}."""
    t = ra.tanh(standardised(x))
    return log_sum_exp(x + t * ra.clip(t + 3.0, 0, 6) / 6.0)


@entry(source="KernelBench level2/11_ConvTranspose2d_BatchNorm_Tanh_MaxPool_GroupNorm", verdict="not fusable",
       reason="unbounded-rank", reference=lambda x: plain.standardised(np.tanh(plain.standardised(x))))
def kb_bn_tanh_gn(x: "l"):
    """y = standardised(tanh(standardised(x)))."""
    return standardised(ra.tanh(standardised(x)))


@entry(source="LAMB, arXiv 1904.00962", reason="no-pivot", words=2,
       reference=lambda w, u: w - 0.01 * np.linalg.norm(w) / np.linalg.norm(u) * u)
def lamb_trust_ratio(w: "l", u: "l"):
    """y_l = w_l − 0.01 ‖w‖/‖u‖ u_l."""
    return w - 0.01 * ra.sqrt(ra.sum(w * w, "l")) / ra.sqrt(ra.sum(u * u, "l")) * u


@entry(source="torch.nn.utils.clip_grad_norm_", reason="no-pivot", words=1,
       reference=lambda x: x * min(1.0, 1 / (np.linalg.norm(x) + 1e-6)))
def grad_clip_global(x: "l"):
    """y_l = x_l min(1, 1/(‖x‖ + 1e-6))."""
    return x * ra.minimum(1.0, 1.0 / (ra.sqrt(ra.sum(x * x, "l")) + 1e-6))


def _lse_gelu(X, W):
    y = plain.logsumexp(X @ W)
    return plain.gelu(plain.gelu(np.where(y > 0, y, 1e-4 * y)))


@entry(source="KernelBench level2/64_Gemm_LogSumExp_LeakyReLU_LeakyReLU_GELU_GELU", reason="rank-1", words=2, reference=_lse_gelu)
def kb_gemm_lse_gelu(X: "m k", W: "k l"):
    """gelu gelu leaky leaky log Σ_l e^{(X W)_ml}, with slope 0.01 below 0."""
    y = log_sum_exp(ra.sum(X * W, "k"))
    return gelu(gelu(ra.where(y > 0, y, 1e-4 * y)))


@entry(source="KernelBench level2/80_Gemm_Max_Subtract_GELU", reason="no-pivot", words=1,
       reference=lambda X, W, c: plain.gelu((X @ W).max(-1) - c), inputs={"c": 0.5})
def kb_gemm_max_gelu(X: "m k", W: "k l", c: ""):
    """gelu(max_l (X W)_ml − c)."""
    return gelu(ra.max(ra.sum(X * W, "k"), "l") - c)


@entry(source="KernelBench level2/28_BMM_InstanceNorm_Sum_ResidualAdd_Multiply, 37, 62, 88", reason="rank-R", words=3, shortest=2,
       reference=lambda X, W, y: (plain.standardised(X @ W) + y) * y)
def kb_bmm_instancenorm_residual(X: "m k", W: "k l", y: "m l"):
    """((X W − μ)/σ + y) y, the norm over the features l of each row."""
    return (standardised(ra.sum(X * W, "k")) + y) * y
