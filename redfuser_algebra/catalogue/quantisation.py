"""Quantisation over l: scales found from the data, and products of what was rounded with them."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import normal, positive
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra


def _quantised_product(X, W):
    s = np.abs(X).max(-1, keepdims=True) / 127
    return np.round(X / s) @ W * s


@entry(source="RedFuser §6, quant + GEMM; W8A8 products", verdict="not fusable", reason="rounding",
       reference=_quantised_product)
def quant_gemm(X: "m l", W: "l n"):
    """s_m = max_l |X_ml|/127; Y_mn = s_m Σ_l round(X_ml/s_m) W_ln: a rounding sits under the sum."""
    s = ra.max(ra.abs(X), "l") / 127.0
    return ra.sum(ra.round(X / s) * W, "l") * s


@entry(source="RedFuser §6, quant + GEMM, as RedFuser rescales it", verdict="partly", reason="rounding", words=2,
       reference=_quantised_product)
def quant_gemm_reassociate(X: "m l", W: "l n"):
    """quant_gemm where fusion may round at the scale known so far."""
    s = ra.max(ra.abs(X), "l") / 127.0
    return ra.sum(ra.round(X / s, reassociate=True) * W, "l") * s


def _absmax(x):
    s = np.abs(x).max() / 127
    return np.round(x / s), s


@entry(source="torchao int8 dynamic quantisation; LLM.int8 vector-wise", reason="no-pivot", words=1,
       reference=_absmax)
def int8_absmax_quant(x: "l"):
    """s = max |x|/127; q_l = round(x_l/s), kept inside ±127; both q and s."""
    s = ra.max(ra.abs(x), "l") / 127.0
    return ra.clip(ra.round(x / s), -127, 127), s


def _zero_point(x):
    low, high = min(x.min(), 0), max(x.max(), 0)
    s = (high - low) / 255
    z = np.round(-low / s)
    return np.clip(np.round(x / s) + z, 0, 255), s, z


@entry(source="ONNX DynamicQuantizeLinear", reason="no-pivot", words=2, reference=_zero_point)
def uint8_zero_point_quant(x: "l"):
    """s = (hi − lo)/255 with 0 inside [lo, hi]; z = round(−lo/s); q_l = clip(round(x_l/s) + z, 0, 255); q, s, z."""
    low, high = ra.minimum(ra.min(x, "l"), 0.0), ra.maximum(ra.max(x, "l"), 0.0)
    s = (high - low) / 255.0
    z = ra.round(-low / s)
    return ra.clip(ra.round(x / s) + z, 0, 255), s, z


@entry(source="XNOR-Net, arXiv 1603.05279", reason="rank-1", words=3,
       reference=lambda w, x: np.abs(w).mean() * (np.sign(w) @ x))
def xnor_binary_gemv(w: "l", x: "l"):
    """y = Σ sign(w_l) α x_l with α = mean |w|."""
    return ra.sum(ra.sign(w) * ra.mean(ra.abs(w), "l") * x, "l")


@entry(source="BitNet b1.58 activations; W8A8 products", verdict="partly", reason="rounding", words=2,
       reference=lambda x, w: _quantised_product(x, w)[0])
def int8_absmax_gemv(x: "l", w: "l"):
    """s = max |x|/127; y = s Σ round(x_l/s) w_l; fusion may round at the scale known so far."""
    s = ra.max(ra.abs(x), "l") / 127.0
    return ra.sum(ra.round(x / s, reassociate=True) * w, "l") * s


def _fp8_product(x, W):
    s = np.abs(x).max() / 448
    return plain.e4m3(x / s) @ W * s


@entry(source="RedFuser example tir_ptpc_gemm (fp8 quant + GEMM)", verdict="partly", reason="rounding", words=2,
       reference=_fp8_product)
def fp8_ptpc_quant_gemm(x: "l", W: "l o"):
    """s = max |x|/448; y_o = s Σ e4m3(x_l/s) W_lo; fusion may round at the scale known so far."""
    s = ra.max(ra.abs(x), "l") / 448.0
    return ra.sum(ra.cast(x / s, "float8_e4m3", reassociate=True) * W, "l") * s


def _mx_product(x, w):
    s = 2.0 ** (np.floor(np.log2(np.abs(x).max())) - 8)
    return plain.e4m3(x / s) @ w * s


@entry(source="OCP Microscaling (MX) v1.0", verdict="partly", reason="rounding", words=2,
       inputs={"x": lambda rng, shape: np.sign(normal(rng, shape)) * positive(rng, shape)}, reference=_mx_product)
def mxfp8_gemv(x: "l", w: "l"):
    """s = 2^{⌊log₂ max|x|⌋ − 8}; y = s Σ e4m3(x_l/s) w_l; fusion may round at the scale known so far, which is
    exact while no x_l/s is subnormal or saturates."""
    s = ra.exp2(ra.floor(ra.log2(ra.max(ra.abs(x), "l"))) - 8)
    return ra.sum(ra.cast(x / s, "float8_e4m3", reassociate=True) * w, "l") * s


def _ternary(w):
    kept = np.abs(w) > 0.7 * np.abs(w).mean()
    return np.abs(w)[kept].mean()


@entry(source="TWN, arXiv 1605.04711", verdict="not fusable", reason="threshold", reference=_ternary)
def twn_ternary_alpha(w: "l"):
    """α = mean of the |w_l| above Δ = 0.7·mean |w|."""
    a = ra.abs(w)
    return ra.mean(a, "l", where=a > 0.7 * ra.mean(a, "l"))


@entry(source="IR-Net, arXiv 1909.10788", verdict="not fusable", reason="threshold", shortest=3,
       reference=lambda w, x: np.sign(w - w.mean()) @ x)
def irnet_sign_gemv(w: "l", x: "l"):
    """y = Σ sign(w_l − mean w) x_l."""
    return ra.sum(ra.sign(w - ra.mean(w, "l")) * x, "l")
