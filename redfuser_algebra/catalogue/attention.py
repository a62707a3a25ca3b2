"""Attention over keys l: Q, K, V in, one value vector per query out; m queries, d or k features, j or v values."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.catalogue.idioms import attend
from redfuser_algebra.language import functions as ra


@entry(source="Vaswani et al. 2017, eq. 1; RedFuser §2, FlashAttention", reason="rank-1", words=3,
       inputs={"scale": 0.5}, reference=lambda Q, K, V, scale: plain.attention(Q @ K.T * scale, V))
def attention(Q: "m k", K: "l k", V: "l j", scale: float = 1.0):
    """O = softmax(Q Kᵀ·scale) V."""
    S = ra.sum(Q * K, "k") * scale
    P = ra.exp(S - ra.max(S, "l"))
    return ra.sum(P * V, "l") / ra.sum(P, "l")


def _mla(qC, qR, C, R, scale):
    scores = (np.einsum("mhc,lc->mhl", qC, C) + np.einsum("mhr,lr->mhl", qR, R)) * scale
    return plain.softmax(scores) @ C


@entry(source="DeepSeek-V2, arXiv 2405.04434, absorbed form; FlashMLA; RedFuser §6", reason="rank-1", words=3,
       inputs={"scale": 0.5}, reference=_mla)
def mla(qC: "m h c", qR: "m h r", C: "l c", R: "l r", scale: float = 1.0):
    """O = softmax((q_C Cᵀ + q_R Rᵀ)·scale) C: the latent cache C is key and value, R its rotary part (512 + 64)."""
    S = (ra.sum(qC * C, "c") + ra.sum(qR * R, "r")) * scale
    P = ra.exp(S - ra.max(S, "l"))
    return ra.sum(P * C, "l") / ra.sum(P, "l")


def _causal(Q, K, V, scale, offset):
    visible = np.arange(len(K)) <= np.arange(len(Q))[:, None] + offset
    return plain.attention(Q @ K.T * scale, V, visible)


@entry(source="torch scaled_dot_product_attention(is_causal=True)", reason="rank-1", words=3,
       inputs={"scale": 0.5, "offset": 2}, reference=_causal)
def causal_attention(Q: "m k", K: "l k", V: "l j", scale: float = 1.0, offset: int = 0):
    """Attention where query m sees the keys l ≤ m + offset."""
    return attend(ra.sum(Q * K, "k") * scale, V, where=ra.index("l") <= ra.index("m") + offset)


def _windowed(Q, K, V, scale, window):
    gap = np.arange(len(Q))[:, None] - np.arange(len(K))
    return plain.attention(Q @ K.T * scale, V, np.abs(gap) <= window)


@entry(source="Longformer, arXiv 2004.05150; Mistral 7B; FlexAttention sliding_window", reason="rank-1", words=3,
       inputs={"scale": 0.5, "window": 2}, reference=_windowed)
def sliding_window_attention(Q: "m k", K: "l k", V: "l j", scale: float = 1.0, window: int = 128):
    """Attention where query m sees the keys with |l − m| ≤ window."""
    return attend(ra.sum(Q * K, "k") * scale, V, where=ra.abs(ra.index("l") - ra.index("m")) <= window)


def _alibi(Q, K, V, slope, scale):
    distance = np.arange(len(K)) - np.arange(Q.shape[1])[:, None]
    scores = np.einsum("hmk,lk->hml", Q, K) * scale + slope[:, None, None] * distance
    return plain.softmax(scores) @ V


@entry(source="ALiBi, arXiv 2108.12409", reason="rank-1", words=3, inputs={"scale": 0.5}, reference=_alibi)
def alibi_attention(Q: "h m k", K: "l k", V: "l j", slope: "h", scale: float = 1.0):
    """Attention with the bias slope_h (l − m) added to the scores."""
    return attend(ra.sum(Q * K, "k") * scale + slope * (ra.index("l") - ra.index("m")), V)


def _grouped(Q, K, V, scale):
    return plain.softmax(np.einsum("grmk,glk->grml", Q, K) * scale) @ V[:, None]


@entry(source="GQA, arXiv 2305.13245", reason="rank-1", words=3, inputs={"scale": 0.5}, reference=_grouped)
def grouped_query_attention(Q: "g r m k", K: "g l k", V: "g l j", scale: float = 1.0):
    """Attention where the r query heads of group g share one key and value head."""
    return attend(ra.sum(Q * K, "k") * scale, V)


@entry(source="Gemma 2, arXiv 2408.00118; FlexAttention tanh_softcap", reason="rank-1", words=3,
       inputs={"scale": 0.5, "cap": 2.0},
       reference=lambda Q, K, V, scale, cap: plain.attention(cap * np.tanh(Q @ K.T * scale / cap), V))
def softcap_attention(Q: "m k", K: "l k", V: "l j", scale: float = 1.0, cap: float = 50.0):
    """O = softmax(c·tanh(Q Kᵀ·scale / c)) V: scores stay inside ±c."""
    return attend(cap * ra.tanh(ra.sum(Q * K, "k") * scale / cap), V)


def _varlen(Q, K, V, lengths, scale):
    visible = np.arange(K.shape[1]) < lengths[:, None]
    return np.stack([plain.attention(q @ k.T * scale, v, see)
                     for q, k, v, see in zip(Q, K, V, visible, strict=True)])


@entry(source="padded batches: flash_attn_varlen, attn_mask of padding tokens", reason="rank-1", words=3,
       inputs=lambda rng, L: {"scale": 0.5, "lengths": rng.integers(1, L + 1, 5)}, reference=_varlen)
def padded_attention(Q: "n m k", K: "n l k", V: "n l j", lengths: "n", scale: float = 1.0):
    """Attention of sequence n over its first lengths_n keys; what lies behind them is never read."""
    return attend(ra.sum(Q * K, "k") * scale, V, where=ra.index("l") < lengths)


def _turned(x):
    angle = np.arange(x.shape[0])[:, None] * 10.0 ** -np.arange(x.shape[1])
    a, b = np.moveaxis(x, -1, 0)
    return np.stack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


@entry(source="RoFormer, arXiv 2104.09864; rotary embedding inside FlashAttention", reason="rank-1", words=3,
       inputs={"scale": 0.5},
       reference=lambda Q, K, V, scale: plain.attention(np.einsum("mkp,lkp->ml", _turned(Q), _turned(K)) * scale, V))
def rope_attention(Q: "m k plane", K: "l k plane", V: "l j", scale: float = 1.0):
    """Attention of queries and keys whose pairs are turned by the angle position·10^{−k} before the product."""
    def turned(x, axis):
        angle, a, b = ra.index(axis) * 10.0 ** -ra.index("k"), *(ra.take(x, place, "plane") for place in (0, 1))
        return a * ra.cos(angle) - b * ra.sin(angle), a * ra.sin(angle) + b * ra.cos(angle)

    (q1, q2), (k1, k2) = turned(Q, "m"), turned(K, "l")
    return attend(ra.sum(q1 * k1 + q2 * k2, "k") * scale, V)


def _block_sparse(Q, K, V, keep, scale):
    m, l = np.arange(len(Q)) // 2, np.arange(len(K)) // 16
    visible = (l < keep.shape[1]) & (keep[m[:, None], np.minimum(l, keep.shape[1] - 1)] > 0)
    return plain.attention(Q @ K.T * scale, V, visible)


@entry(source="FlexAttention block masks; BigBird, arXiv 2007.14062", reason="rank-1", words=3,
       inputs={"scale": 0.5, "keep": lambda rng, shape: np.eye(*shape) + np.eye(*shape, k=1) + np.eye(shape[0], shape[1], k=-1)},
       reference=_block_sparse)
def block_sparse_attention(Q: "m k", K: "l k", V: "l j", keep: "r b", scale: float = 1.0):
    """Attention where a block of 2 queries sees those blocks of 16 keys for which keep is 1, written as a gather."""
    row, column = ra.index("m") // 2 == ra.index("r"), ra.index("l") // 16 == ra.index("b")
    see = ra.sum(ra.sum(ra.where(row & column, keep, 0), "r"), "b") > 0
    return attend(ra.sum(Q * K, "k") * scale, V, where=see)


@entry(source="Wortsman et al. 2023, arXiv 2309.08586", reason="no-pivot", words=1, inputs={"scale": 0.5},
       reference=lambda Q, K, V, scale: np.maximum(Q @ K.T * scale, 0) @ V / len(K))
def relu_attention(Q: "m k", K: "l k", V: "l j", scale: float = 1.0):
    """O = Σ relu(Q Kᵀ·scale)_l V_l / N."""
    return ra.mean(ra.relu(ra.sum(Q * K, "k") * scale) * V, "l")
