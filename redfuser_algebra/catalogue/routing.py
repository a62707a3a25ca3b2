"""Routing and selection over l: experts, top-k, extremes, the values that ride with them, latest values."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import between, positive, spread, whole
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.catalogue.idioms import log_sum_exp, softmax_weights, standardised
from redfuser_algebra.language import functions as ra


def _routing(X, W, k):
    p = plain.softmax(X @ W)
    experts = np.argsort(-p, axis=-1, kind="stable")[:, :k]
    return np.take_along_axis(p, experts, -1), experts


@entry(source="Mixtral and Qwen routers; RedFuser §6, MoE routing", reason="topk-payload", words=3, shortest=2,
       inputs={"k": 2}, reference=_routing)
def moe_routing(X: "m d", W: "d l", k: int = 2):
    """p = softmax over experts l of X W; the k largest p and their experts."""
    return tuple(ra.topk(softmax_weights(ra.sum(X * W, "d")), "l", k))


def _biased_routing(x, b):
    s = plain.sigmoid(x)
    experts = plain.largest(s + b, 4)
    return 2.5 * s[experts] / s[experts].sum(), experts


@entry(source="DeepSeek-V3 gate (noaux_tc); vLLM grouped_topk", reason="topk-payload", words=2, shortest=4,
       inputs={"b": spread(0, 0.1)}, reference=_biased_routing)
def moe_sigmoid_bias_topk(x: "l", b: "l"):
    """s = σ(x); I = top 4 of s + b; w_i = 2.5 s_i/Σ_I s; the weights and I."""
    s = ra.sigmoid(x)
    chosen = ra.argtopk(s + b, "l", 4, name="t")
    kept = ra.take(s, chosen, "l")
    return 2.5 * kept / (ra.sum(kept, "t") + 1e-20), chosen


def _limited(X):
    s = plain.sigmoid(X)
    groups = np.argsort(-np.sort(s, 1)[:, -2:].sum(1), kind="stable")[:2]
    at = (groups[:, None] * X.shape[1] + np.arange(X.shape[1])).ravel()
    at = at[np.argsort(-s.ravel()[at], kind="stable")[:4]]
    return *s.ravel()[at] / s.ravel()[at].sum(), *at


@entry(source="DeepSeek-V2 and V3 gates (group_limited_greedy, noaux_tc)", reason="topk-payload", words=12, shortest=2,
       inputs=lambda rng, length: {"X": rng.standard_normal((length, 4))}, reference=_limited)
def moe_group_limited(X: "l e"):
    """s = σ(X); the 2 groups l whose two best experts e sum highest; of the 4 best experts in them s/Σ s, then l·E + e."""
    s = ra.sigmoid(X)
    second = ra.max(ra.where(ra.index("e") == ra.argmax(X, "e"), 0, s), "e")
    kept = ra.argtopk(ra.max(s, "e") + second, "l", 2, name="b")
    own, free, best, found = ra.take(X, kept, "l"), ra.index("e") >= 0, [], []
    for _ in range(4):
        left = ra.where(free, own, -np.inf)
        in_group, highest = ra.argmax(left, "e"), ra.max(left, "e")
        group = ra.argmax(highest, "b")
        best.append(ra.sigmoid(ra.max(highest, "b")))
        found.append(ra.take(kept * ra.size("e") + in_group, group, "b"))
        free = free & ((ra.index("b") != group) | (ra.index("e") != in_group))
    return *(w / sum(best) for w in best), *found


def _switch(X):
    p = plain.softmax(X)
    chosen = np.eye(X.shape[1])[X.argmax(1)]
    return X.shape[1] * chosen.mean(0) @ p.mean(0), np.mean(plain.logsumexp(X) ** 2)


@entry(source="Switch Transformer, arXiv 2101.03961; ST-MoE z-loss", reason="no-pivot", words=4, reference=_switch)
def moe_switch_aux(X: "l e"):
    """Over tokens l: E Σ_e f_e P_e with f = share routed to e and P = mean softmax; and mean (lse_e X)²."""
    routed = ra.index("e") == ra.argmax(X, "e")
    balance = ra.sum(ra.mean(ra.where(routed, 1.0, 0.0), "l") * ra.mean(softmax_weights(X, "e"), "l"), "e")
    return ra.size("e") * balance, ra.mean(log_sum_exp(X, "e") ** 2, "l")


@entry(source="numpy.argmax, argmin; KernelBench level1/51, 52", reason="no-pivot", words=4,
       reference=lambda x: (x.argmax(), x.argmin()))
def argmax_argmin(x: "l"):
    """The first positions of the largest and of the smallest element."""
    return ra.argmax(x, "l"), ra.argmin(x, "l")


@entry(source="ties at the maximum", reason="reset", words=2, inputs={"x": whole(4)},
       reference=lambda x: (x.max(), (x == x.max()).sum()))
def count_max(x: "l"):
    """m = max x and the number of elements equal to it."""
    m = ra.max(x, "l")
    return m, ra.sum(ra.where(x == m, 1, 0), "l")


def _at_extremes(x, v):
    top, bottom = v[x.argmax()], v[x.argmin()]
    return top, bottom, (top - bottom) / np.ptp(x)


@entry(source="ClickHouse argMax, boundingRatio; Spark max_by; Nexmark q7, q9", reason="reset", words=6,
       reference=_at_extremes)
def value_at_argmax(x: "l", v: "l"):
    """v at the first maximum of x, v at the first minimum, and their difference over max x − min x."""
    top, bottom = ra.take(v, ra.argmax(x, "l"), "l"), ra.take(v, ra.argmin(x, "l"), "l")
    return top, bottom, (top - bottom) / (ra.max(x, "l") - ra.min(x, "l"))


@entry(source="tie-breaking by a second score; SQL max(y) keep (dense_rank last order by x)", reason="reset", words=2, inputs={"x": whole(4)},
       reference=lambda x, y: y[x == x.max()].max())
def best_of_the_best(x: "l", y: "l"):
    """The largest y among the elements with the largest x."""
    return ra.max(y, "l", where=x == ra.max(x, "l"))


@entry(source="bandit regret; max-shifted scores", reason="rank-R", words=3,
       reference=lambda x: x.max() - x.mean())
def mean_gap_to_max(x: "l"):
    """y = mean |x_l − m| with m = max x: since x ≤ m, this is m − mean x."""
    return ra.mean(ra.abs(x - ra.max(x, "l")), "l")


def _topk_means(x, v):
    chosen = plain.largest(x, 4)
    return x[chosen].mean(), v[chosen].mean()


@entry(source="OHEM with fixed k; ClickHouse groupArraySorted(k)", reason="topk-payload", words=2, shortest=4,
       reference=_topk_means)
def topk_mean_fixed(x: "l", v: "l"):
    """The mean of the 4 largest x and of the v at their positions."""
    top = ra.topk(x, "l", 4, name="t")
    return ra.mean(top.values, "t"), ra.mean(ra.take(v, top.indices, "l"), "t")


def _ndcg(s, rel):
    discount = 1 / np.log2(np.arange(2, 6))
    return rel[plain.largest(s, 4)] @ discount / (rel[plain.largest(rel, 4)] @ discount)


@entry(source="sklearn.metrics.ndcg_score(k=4)", reason="topk-payload", words=3, shortest=4,
       inputs={"rel": positive}, reference=_ndcg)
def ndcg_at_k(s: "l", rel: "l"):
    """Σ_{i<4} rel at rank i of s / log₂(i + 2), over the same sum for rel in its own order."""
    discount = 1.0 / ra.log2(ra.index("t") + 2)
    found = ra.take(rel, ra.argtopk(s, "l", 4, name="t"), "l")
    ideal = ra.topk(rel, "l", 4, name="t").values
    return ra.sum(found * discount, "t") / ra.sum(ideal * discount, "t")


def _dixon(x):
    s = np.sort(x)
    return (s[-1] - s[-2]) / (s[-1] - s[0]), (s[1] - s[0]) / (s[-1] - s[0])


@entry(source="Dixon Q test", reason="no-pivot", words=2, shortest=2, reference=_dixon)
def dixon_q(x: "l"):
    """(x₍ₙ₎ − x₍ₙ₋₁₎)/(x₍ₙ₎ − x₍₁₎) and (x₍₂₎ − x₍₁₎)/(x₍ₙ₎ − x₍₁₎) from the two largest and two smallest."""
    high, low = ra.topk(x, "l", 2, name="t").values, -ra.topk(-x, "l", 2, name="t").values
    span = ra.max(high, "t") - ra.min(low, "t")
    return (ra.max(high, "t") - ra.min(high, "t")) / span, (ra.max(low, "t") - ra.min(low, "t")) / span


@entry(source="scipy.stats.zscore, then top-k", reason="monotone", words=4, shortest=4,
       reference=lambda x: np.sort(plain.standardised(x, 0))[:-5:-1])
def topk_zscores(x: "l"):
    """The 4 largest (x_l − μ)/σ."""
    return ra.topk(standardised(x, 0), "l", 4, name="t").values


def _latest(v, k, t):
    rows = [np.flatnonzero(k == key) for key in range(3)]
    return *(v[own[t[own].argmax()]] if own.size else 0 for own in rows), v[-1], v[0]


@entry(source="Nexmark q18; DataFusion last_value; SQL deduplicate", reason="reset", words=12,
       inputs={"k": whole(3), "t": between(0, 9)}, reference=_latest)
def last_value_dedup(v: "l", k: "l", t: "l"):
    """For each of three keys the v with the latest t (0 if the key never occurs); the last and the first v."""
    latest = [ra.take(v, ra.argmax(t, "l", where=k == key), "l") for key in range(3)]
    return *latest, ra.take(v, ra.max(ra.index("l"), "l"), "l"), ra.take(v, 0, "l")
