"""Attention of one query q over keys l, as in decoding, with the score and mask variants in use."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import bits, whole
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.catalogue.idioms import attend, dot, gelu, log_sum_exp, softmax_weights
from redfuser_algebra.language import functions as ra


def _masked(q, K, V, visible):
    scores = np.where(visible, plain.dot(q, K), -np.inf)
    return plain.attention(scores, V), plain.logsumexp(scores)


def _natten2d(q, K, V, qx, qy):
    row, column = np.divmod(np.arange(len(K)), 8)
    return _masked(q, K, V, (np.abs(row - qx) <= 1) & (np.abs(column - qy) <= 2))


@entry(source="attention-gym masks/natten (also sta, svg)", reason="rank-1", words=3, shortest=2,
       inputs={"qx": 1.0, "qy": 3.0}, reference=_natten2d)
def attn_natten2d(q: "d", K: "l d", V: "l v", qx: "", qy: ""):
    """Keys on a canvas of width 8: visible where |⌊l/8⌋ − q_x| ≤ 1 and |l mod 8 − q_y| ≤ 2; also the log-sum-exp."""
    at = ra.index("l")
    see = (ra.abs(at // 8 - qx) <= 1) & (ra.abs(at % 8 - qy) <= 2)
    s = dot(q, K, "d")
    m = ra.max(s, "l", where=see)
    return attend(s, V, see), m + ra.log(ra.sum(ra.exp(s - m), "l", where=see))


@entry(source="attention-gym masks/jetspec, masks/block_diffusion", reason="rank-1", words=3, inputs={"anc": bits},
       reference=lambda q, K, V, anc: _masked(q, K, V, (anc > 0) | (np.arange(len(K)) < 4)))
def attn_tree_mask(q: "d", K: "l d", V: "l v", anc: "l"):
    """Speculative decoding: a key is visible in the prefix l < 4 or where it is an ancestor; also the log-sum-exp."""
    see = (anc > 0) | (ra.index("l") < 4)
    s = dot(q, K, "d")
    m = ra.max(s, "l", where=see)
    return attend(s, V, see), m + ra.log(ra.sum(ra.exp(s - m), "l", where=see))


def _graphormer(q, K, V, dist, table):
    scores = plain.dot(q, K) + table[dist.astype(int)]
    return plain.attention(scores, V), plain.logsumexp(scores)


@entry(source="attention-gym mods/graphormer, mods/sandwich; T5 relative bias", reason="rank-1", words=3,
       inputs={"dist": whole(5)}, reference=_graphormer)
def attn_graphormer(q: "d", K: "l d", V: "l v", dist: "l", table: "b"):
    """s_l = q·K_l/√d + table[dist_l], the gather written as Σ_b table_b [dist_l = b]; also the log-sum-exp."""
    s = dot(q, K, "d") + ra.sum(table * (dist == ra.index("b")), "b")
    return attend(s, V), log_sum_exp(s)


def _sink(q, K, V, sink):
    weights = plain.softmax(np.append(plain.dot(q, K), sink))
    return weights[:-1] @ V


@entry(source="gpt-oss attention sinks; StreamingLLM; softmax-off-by-one", reason="rank-1", words=3,
       inputs={"sink": 0.5}, reference=_sink)
def attn_sink(q: "d", K: "l d", V: "l v", sink: ""):
    """m = max(sink, max s_l); o = Σ e^{s_l−m} V_l / (e^{sink−m} + Σ e^{s_l−m}): a learned key without a value."""
    s = dot(q, K, "d")
    m = ra.maximum(ra.max(s, "l"), sink)
    e = ra.exp(s - m)
    return ra.sum(e * V, "l") / (ra.sum(e, "l") + ra.exp(sink - m))


def _rope(q, q2, K, K2, V, g):
    turned = (K + 1j * K2) * np.exp(1j * np.arange(len(K))[:, None] * 10.0 ** -np.arange(K.shape[1]))
    lengths = np.sqrt((np.abs(turned) ** 2).sum(1)) * np.sqrt(q @ q + q2 @ q2)
    scores = g * (turned @ (q - 1j * q2)).real / lengths
    return plain.attention(scores, V), plain.logsumexp(scores)


@entry(source="QK-norm, arXiv 2010.04245, ViT-22B; RoFormer", reason="rank-1", words=3, inputs={"g": 4.0},
       reference=_rope)
def attn_qknorm_rope(q: "h", q2: "h", K: "l h", K2: "l h", V: "l v", g: ""):
    """s_l = g·q̂·R(l)K̂_l with both halves of each vector apart, angle l·10^{−h}; also the log-sum-exp."""
    angle = ra.index("l") * ra.power(10.0, -ra.index("h"))
    turned = K * ra.cos(angle) - K2 * ra.sin(angle)
    turned2 = K * ra.sin(angle) + K2 * ra.cos(angle)
    norms = ra.sqrt(ra.sum(K * K + K2 * K2, "h")) * ra.sqrt(ra.sum(q * q + q2 * q2, "h"))
    s = g * ra.sum(turned * q + turned2 * q2, "h") / norms
    return attend(s, V), log_sum_exp(s)


def _differential(q1, q2, K1, K2, V, lam):
    o = plain.attention(plain.dot(q1, K1), V) - lam * plain.attention(plain.dot(q2, K2), V)
    return o / np.sqrt(np.mean(o ** 2) + 1e-6)


@entry(source="Differential Transformer, arXiv 2410.05258", reason="rank-1", words=6, inputs={"lam": 0.4},
       reference=_differential)
def attn_differential(q1: "d", q2: "d", K1: "l d", K2: "l d", V: "l v", lam: ""):
    """o = softmax(s¹)V − λ softmax(s²)V, then RMSNorm over the value axis."""
    o = attend(dot(q1, K1, "d"), V) - lam * attend(dot(q2, K2, "d"), V)
    return o / ra.sqrt(ra.mean(o * o, "v") + 1e-6)


@entry(source="torch scaled_dot_product_attention(attn_mask=float, dropout_p)", reason="rank-1", words=3,
       inputs={"keep": bits},
       reference=lambda q, K, V, b, keep: (plain.softmax(plain.dot(q, K) + b) * keep / 0.9) @ V)
def attn_dropout_bias(q: "d", K: "l d", V: "l v", b: "l", keep: "l"):
    """o = Σ keep_l/(1−p) softmax(s + b)_l V_l with drop rate p = 0.1."""
    return ra.sum(softmax_weights(dot(q, K, "d") + b) * keep / 0.9 * V, "l")


@entry(source="sigmoid self-attention, arXiv 2409.04431", reason="no-pivot", words=1,
       reference=lambda q, K, V: plain.sigmoid(plain.dot(q, K) - 3) @ V)
def attn_sigmoid(q: "d", K: "l d", V: "l v"):
    """o = Σ σ(s_l − 3) V_l."""
    return ra.sum(ra.sigmoid(dot(q, K, "d") - 3.0) * V, "l")


@entry(source="attention-gym mods/activation (undo_softmax)", reason="rank-1", words=4,
       reference=lambda q, K, V: plain.gelu(plain.dot(q, K)) @ V)
def attn_activation_unsoftmax(q: "d", K: "l d", V: "l v"):
    """GELU attention through softmax and back: s′ = log(gelu(s)+1), Σ softmax(s′)_l V_l · e^{lse s′} − Σ V_l."""
    s = ra.log(gelu(dot(q, K, "d")) + 1.0)
    return attend(s, V) * ra.exp(log_sum_exp(s)) - ra.sum(V, "l")


def _linear(q, K, V):
    features = [np.where(x > 0, x + 1, np.exp(x)) for x in (q, K)]
    weights = features[1] @ features[0]
    return weights @ V / weights.sum()


@entry(source="Transformers are RNNs, arXiv 2006.16236", reason="no-pivot", words=2, reference=_linear)
def attn_linear(q: "d", K: "l d", V: "l v"):
    """o = φ(q)·Σ φ(K_l)V_lᵀ / φ(q)·Σ φ(K_l) with φ = elu + 1."""
    a, b = (ra.where(x > 0, x + 1, ra.exp(ra.minimum(x, 0))) for x in (q, K))
    return ra.sum(a * ra.sum(b * V, "l"), "d") / ra.sum(a * ra.sum(b, "l"), "d")


def _vsa(q, Kt, Vt):
    coarse = plain.dot(q, Kt.mean(1))
    tiles = plain.largest(coarse, 2)
    keys, values = Kt[tiles].reshape(-1, Kt.shape[2]), Vt[tiles].reshape(-1, Vt.shape[2])
    return plain.attention(plain.dot(q, keys), values), plain.attention(coarse, Vt.mean(1))


@entry(source="attention-gym masks/vsa", reason="topk-payload", words=6, shortest=2, reference=_vsa)
def attn_vsa_two_stage(q: "d", Kt: "l b d", Vt: "l b v"):
    """Coarse scores q·mean_b K_l pick 2 tiles; attention over the keys of those, and over the tile means."""
    c = dot(q, ra.mean(Kt, "b"), "d")
    tiles = ra.argtopk(c, "l", 2, name="t")
    K, V = ra.take(Kt, tiles, "l"), ra.take(Vt, tiles, "l")
    s = dot(q, K, "d")
    e = ra.exp(s - ra.max(s, "t b"))
    return ra.sum(e * V, "t b") / ra.sum(e, "t b"), attend(c, ra.mean(Vt, "b"))


def _backward(q, K, V, dO):
    p, dp = plain.softmax(plain.dot(q, K)), V @ dO
    return (p * (dp - p @ dp)) @ K / np.sqrt(q.size)


@entry(source="FlashAttention-2 backward, dQ", reason="rank-R", words=5, reference=_backward)
def attn_bwd_dq(q: "d", K: "l d", V: "l v", dO: "v"):
    """dq = Σ p_l (V_l·dO − D) K_l/√d with D = Σ p_l (V_l·dO) not given beforehand."""
    p, dp = softmax_weights(dot(q, K, "d")), ra.sum(V * dO, "v")
    return ra.sum(p * (dp - ra.sum(p * dp, "l")) * K, "l") / ra.sqrt(ra.size("d"))


@entry(source="Nadaraya–Watson regression at a query point; d2l ch. 11", reason="rank-1", words=3,
       reference=lambda q, K, V: plain.attention(-np.square(K - q).sum(1) / 2, V))
def attn_gaussian_kernel(q: "d", K: "l d", V: "l v"):
    """s_l = −‖q − K_l‖²/2; o = softmax(s) V."""
    return attend(-0.5 * ra.sum((K - q) ** 2, "d"), V)
