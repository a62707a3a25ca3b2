"""Recurrences along l: decays, filters, queues, drawdowns, neighbours, automata.  The order of elements counts."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from redfuser_algebra.catalogue import plain
from redfuser_algebra.catalogue.draws import between, bits, spread, whole
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.recurrence import cumulative, previous, scan


def _decayed(q, K, V, g):
    S = np.zeros((K.shape[1], V.shape[1]))
    for k, v, a in zip(K, V, g, strict=True):
        S = a[:, None] * S + np.outer(k, v)
    return q @ S


@entry(source="GLA, arXiv 2312.06635; RetNet; flash-linear-attention", reason="scan", words=2, inputs={"g": between(0.7, 1)},
       reference=_decayed)
def attn_gated_linear(q: "d", K: "l d", V: "l v", g: "l d"):
    """S_l = diag(g_l) S_{l−1} + K_l V_lᵀ, and q S_L."""
    return ra.sum(q * scan(lambda S: g * S + K * V, "l"), "d")


def _wkv(k, v, w, u):
    y = np.nan
    for at in range(k.size):
        weights = np.exp(np.append(k[:at] - w * (at - 1 - np.arange(at)), u + k[at]))
        y = weights @ v[:at + 1] / weights.sum()
    return y


@entry(source="RWKV-4, arXiv 2305.13048", reason="scan", words=7, inputs={"w": 0.2, "u": 0.3}, reference=_wkv)
def rwkv_wkv(k: "l", v: "l", w: "", u: ""):
    """(Σ_{l<L} e^{k_l − (L−1−l) w} v_l + e^{u+k_L} v_L) / (the same without v)."""
    new, bonus, decay = ra.exp(k), ra.exp(u + k), ra.exp(-w)
    above, _ = scan(lambda y, a: (a + bonus * v, decay * a + new * v), "l")
    below, _ = scan(lambda z, b: (b + bonus, decay * b + new), "l")
    return above / below


def _forgetting(q, K, V, f):
    after = np.log(f).sum() - np.cumsum(np.log(f))
    scores = plain.dot(q, K) + after
    return plain.attention(scores, V), plain.logsumexp(scores)


@entry(source="Forgetting Transformer, arXiv 2503.02130", reason="scan", words=3, inputs={"f": between(0.6, 1)},
       reference=_forgetting)
def attn_forgetting(q: "d", K: "l d", V: "l v", f: "l"):
    """Attention in which every step forgets: the weight of l is e^{q·K_l/√d} Π_{t>l} f_t."""
    weight = ra.exp(ra.sum(q * K, "d") / ra.sqrt(ra.size("d")))
    total = scan(lambda Z: f * Z + weight, "l")
    return scan(lambda O: f * O + weight * V, "l") / total, ra.log(total)


def _walk(rng, length):
    return {"x": 10 + 0.2 * np.cumsum(rng.standard_normal(length))}


def _drawdown(x):
    peak = np.maximum.accumulate(x)
    return (peak - x).max(), (1 - x / peak).max(), (x - np.minimum.accumulate(x)).max()


@entry(source="empyrical.max_drawdown; quantstats", reason="scan", words=7, inputs=_walk, assume="x > 0", reference=_drawdown)
def max_drawdown(x: "l"):
    """The largest fall from a peak, as a difference and as a share, and the largest rise from a trough."""
    share = ra.max(cumulative(ra.max, ra.log(x), "l") - ra.log(x), "l")
    return (ra.max(cumulative(ra.max, x, "l") - x, "l"), 1 - ra.exp(-share), ra.max(x - cumulative(ra.min, x, "l"), "l"))


def _largest_stretch(x):
    sums = np.concatenate([[0.0], np.cumsum(x)])
    return max(sums[j] - sums[i] for j in range(1, sums.size) for i in range(j))


@entry(source="Bentley 1984 (Kadane); local alignment", reason="scan", words=4, reference=_largest_stretch)
def max_subarray(x: "l"):
    """The largest sum of neighbouring elements."""
    ending = scan(lambda c: ra.maximum(x, c + x), "l", -np.inf, every="after")
    return ra.max(ending, "l")


def _ew(x, a=0.2):
    weights = a * (1 - a) ** np.arange(x.size)[::-1]
    weights[0] /= a
    mean = weights @ x
    return mean, weights @ x ** 2 - mean ** 2


@entry(source="river EWMean, EWVar; ClickHouse exponentialMovingAverage; pandas ewm(adjust=False)", reason="scan", words=3,
       reference=_ew)
def ewma_ewvar(x: "l", a: float = 0.2):
    """m_l = a x_l + (1 − a) m_{l−1} from x_1, likewise s of x²; the mean m and the variance s − m²."""
    keep, take = (ra.where(ra.index("l") == 0, *pair) for pair in ((0, 1 - a), (1, a)))
    mean, square = scan(lambda m, s: (keep * m + take * x, keep * s + take * x ** 2), "l")
    return mean, square - mean ** 2


def _changes(x, t):
    d = np.diff(x)
    return np.abs(d).sum(), np.sqrt((d ** 2).sum()), ((x[1:] + x[:-1]) / 2 * np.diff(t)).sum(), np.maximum(d, 0).sum()


@entry(source="tsfresh absolute_sum_of_changes, cid_ce; numpy.trapezoid; ClickHouse deltaSum", reason="scan", words=10,
       reference=_changes)
def abs_change_trapz(x: "l", t: "l"):
    """Σ |x_l − x_{l−1}|, √Σ (x_l − x_{l−1})², Σ ½ (x_l + x_{l−1})(t_l − t_{l−1}), Σ max(x_l − x_{l−1}, 0)."""
    before, inside = previous(x, "l"), ra.index("l") > 0
    d, area = x - before, 0.5 * (x + before) * (t - previous(t, "l"))
    return (ra.sum(ra.abs(d), "l", where=inside), ra.sqrt(ra.sum(d ** 2, "l", where=inside)), ra.sum(area, "l", where=inside),
            ra.sum(ra.maximum(d, 0), "l", where=inside))


def _runs(x, level=0.3):
    above = x > level
    lengths = np.diff(np.flatnonzero(np.concatenate([[True], ~above, [True]]))) - 1
    return lengths.max(), 1 + np.count_nonzero(above[1:] != above[:-1])


@entry(source="gaps and islands (SQL); tsfresh number_crossing_m", reason="scan", words=8, reference=_runs)
def runs_and_streaks(x: "l", level: float = 0.3):
    """The longest run of elements above a level, and the number of runs."""
    above = ra.where(x > level, 1, 0)
    streak = scan(lambda c: ra.where(x > level, c + 1, 0), "l", every="after")
    changed = ra.abs(above - previous(above, "l"))
    return ra.max(streak, "l"), 1 + ra.sum(changed, "l", where=ra.index("l") > 0)


def _turns(x):
    direction = np.sign(np.diff(x))
    return np.count_nonzero(direction[1:] != direction[:-1])


@entry(source="tsfresh number_peaks; turning-point test", reason="scan", words=14, reference=_turns)
def turning_points(x: "l"):
    """How often the sign of x_l − x_{l−1} changes."""
    before, counts = previous(x, "l"), ra.index("l") > 1
    up, flat, down = (ra.where(condition, 1, 0) for condition in (x > before, x == before, x < before))

    def step(turns, rising, level, falling):
        same = up * rising + flat * level + down * falling
        return ra.where(counts, turns + 1 - same, turns), up, flat, down

    return scan(step, "l")[0]


def _prefixes(x, k):
    sums = np.cumsum(x)
    return sums, np.cumprod(1 + 0.1 * x), sums - x, np.cumsum(x[::-1])[::-1], np.cumsum(x * k)


@entry(source="KernelBench level1/89-93", reason="scan", words=3, inputs={"k": bits}, reference=_prefixes)
def cum_scans(x: "l", k: "l"):
    """Σ_{t≤l} x_t, Π_{t≤l} (1 + x_t/10), Σ_{t<l} x_t, Σ_{t≥l} x_t, Σ_{t≤l} k_t x_t."""
    before = cumulative(ra.sum, x, "l", exclusive=True)
    return (cumulative(ra.sum, x, "l"), cumulative(ra.prod, 1 + 0.1 * x, "l"), before, ra.sum(x, "l") - before,
            cumulative(ra.sum, k * x, "l"))


def _filtered(x):
    y = np.zeros(x.size + 2)
    padded = np.concatenate([[0.0, 0.0], x])
    for at in range(2, y.size):
        y[at] = padded[at - 2:at + 1] @ (0.1, 0.2, 0.3) + y[at - 2:at] @ (-0.2, 0.5)
    return y[-1], y[-2]


@entry(source="scipy.signal.lfilter; torchaudio biquad", reason="scan", words=13, reference=_filtered)
def iir_biquad(x: "l"):
    """y_l = 0.3 x_l + 0.2 x_{l−1} + 0.1 x_{l−2} + 0.5 y_{l−1} − 0.2 y_{l−2}: the last two."""
    return scan(lambda y, y1, s, s1: (s + 0.3 * x + 0.5 * y - 0.2 * y1, y, s1 + 0.2 * x, 0.1 * x), "l")[:2]


def _forward(E, A, pi):
    a = np.exp(pi + E[0])
    for e in E[1:]:
        a = (a @ np.exp(A)) * np.exp(e)
    return np.log(a.sum())


_TRANSITIONS = np.log(np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]]))


@entry(source="hmmlearn _forward_log; linear-chain CRF partition (torchcrf)", reason="scan", words=13, reference=_forward,
       inputs={"A": lambda rng, shape: _TRANSITIONS, "pi": lambda rng, shape: np.log(np.full(shape, 1 / shape[-1]))})
def hmm_forward(E: "l s", A: "s t", pi: "s"):
    """α_l(j) = Σ_i α_{l−1}(i) e^{A_ij + E_l(j)} over three states, from e^{π + E_1}: log Σ α_L."""
    seen = [ra.exp(ra.take(E, j, "s")) for j in range(3)]
    begins = [ra.exp(ra.take(pi, j, "s")) for j in range(3)]
    moves = [[ra.exp(ra.take(ra.take(A, i, "s"), j, "t")) for j in range(3)] for i in range(3)]
    first = ra.index("l") == 0

    def step(a, b, c):
        arrive = [a * moves[0][j] + b * moves[1][j] + c * moves[2][j] for j in range(3)]
        return tuple(seen[j] * ra.where(first, begins[j], arrive[j]) for j in range(3))

    a, b, c = scan(step, "l")
    return ra.log(a + b + c)


def _forward_of_logs(E, A, pi):
    a = pi + E[0]
    for e in E[1:]:
        a = np.logaddexp.reduce(a[:, None] + A, axis=0) + e
    return np.logaddexp.reduce(a)


@entry(source="torchcrf normaliser; hmmlearn _forward_log, written with logaddexp", reason="scan", words=7, reference=_forward_of_logs,
       inputs=lambda rng, length: {"E": rng.standard_normal((length, 2)), "A": _TRANSITIONS[:2, :2], "pi": np.log([0.3, 0.7])})
def crf_log_partition(E: "l s", A: "s t", pi: "s"):
    """α_l(j) = E_l(j) + log Σ_i e^{α_{l−1}(i) + A_ij} over two labels, from π + E_1: log Σ e^{α_L}, all in logarithms."""
    seen, begins = ([ra.take(each, j, "s") for j in range(2)] for each in (E, pi))
    moves = [[ra.take(ra.take(A, i, "s"), j, "t") for j in range(2)] for i in range(2)]
    first = ra.index("l") == 0

    def step(a, b):
        arrive = [ra.logadd(a + moves[0][j], b + moves[1][j]) for j in range(2)]
        return tuple(seen[j] + ra.where(first, begins[j], arrive[j]) for j in range(2))

    return ra.logadd(*scan(step, "l"))


@entry(source="torch.logcumsumexp", reason="scan", words=1, reference=lambda x: np.logaddexp.accumulate(x))
def log_cumulative_sum_exp(x: "l"):
    """y_l = log Σ_{t≤l} e^{x_t}."""
    return cumulative(ra.logadd, x, "l")


def _aligned(lp, y):
    labels = [0, int(y[0]), 0, int(y[1]), 0]
    moves = np.eye(5) + np.eye(5, k=1)
    moves[1, 3] = labels[1] != labels[3]
    start = np.array([1.0, 1, 0, 0, 0])
    for at, row in enumerate(np.exp(lp)[:, labels]):
        start = (start @ moves if at else start) * row
    return -np.log(start[3] + start[4])


def _log_probabilities(rng, length):
    scores = rng.standard_normal((length, 3))
    return {"lp": scores - plain.logsumexp(scores)[:, None], "y": np.array([1.0, 2.0])}


@entry(source="torch.nn.functional.ctc_loss; Graves et al. 2006", reason="scan", words=20, shortest=2, inputs=_log_probabilities,
       reference=_aligned)
def ctc_forward(lp: "l c", y: "u"):
    """−log of the probability of two labels: α_l over blank, y_1, blank, y_2, blank, each stayed at, entered or skipped to."""
    first, skips = ra.index("l") == 0, ra.take(y, 0, "u") != ra.take(y, 1, "u")
    blank, one, two = (ra.exp(ra.take(lp, label, "c")) for label in (0, ra.take(y, 0, "u"), ra.take(y, 1, "u")))

    def step(a, b, c, d, e):
        entered = (ra.where(first, 1, a), ra.where(first, 1, a + b), b + c, c + d + ra.where(skips, b, 0), d + e)
        return tuple(chance * state for chance, state in zip((blank, one, blank, two, blank), entered, strict=True))

    _, _, _, label, last = scan(step, "l")
    return -ra.log(label + last)


def _kalman(y, drift=0.2, noise=0.5):
    mean, precision = 0.0, 1.0
    for seen in y:
        mean, precision = 0.9 * mean, 1 / (0.81 / precision + drift)
        mean, precision = (precision * mean + seen / noise) / (precision + 1 / noise), precision + 1 / noise
    return mean, 1 / precision


@entry(source="filterpy; Särkkä & García-Fernández 2021", reason="scan", words=7, reference=_kalman)
def kalman_scalar(y: "l", drift: float = 0.2, noise: float = 0.5):
    """m and p of a state that decays by 0.9 and drifts, seen with noise: predicted, then weighed against y_l."""
    def step(m, p):
        before = 0.81 * p + drift
        return (noise * (0.9 * m) + before * y) / (before + noise), noise * before / (before + noise)

    return scan(step, "l", (0.0, 1.0))


def _waits(x):
    sums = np.concatenate([[0.0], np.cumsum(x)])
    waits = sums - np.minimum.accumulate(sums)
    return waits[-1], waits.max()


@entry(source="Lindley 1952; CUSUM control chart; river drift detectors", reason="scan", words=5, inputs={"x": spread(-0.2, 1)},
       reference=_waits)
def lindley_wait(x: "l"):
    """w_l = max(0, w_{l−1} + x_l) from 0: the last and the largest."""
    step = lambda w: ra.maximum(0, w + x)  # noqa: E731  (a step has one name for two scans)
    return scan(step, "l"), ra.max(scan(step, "l", every="after"), "l")


def _brackets(x):
    depth = np.cumsum((x == 1) * 1.0 - (x == 2))
    return depth.min() >= 0 and depth[-1] == 0, max(depth.max(), 0)


@entry(source="simdjson-style structural scan", reason="scan", words=3, inputs={"x": whole(3)}, reference=_brackets)
def bracket_balance(x: "l"):
    """Whether opened (1) and closed (2) brackets match, and how deep they are nested."""
    change = ra.where(x == 1, 1, ra.where(x == 2, -1, 0))
    depth = cumulative(ra.sum, change, "l")
    return (ra.min(depth, "l") >= 0) & (ra.sum(change, "l") == 0), ra.maximum(ra.max(depth, "l"), 0)


_MOVES = ((1, 0, 2), (1, 3, 0), (0, 2, 3), (3, 1, 2))
"""The next state of an automaton, by state and symbol."""


def _accepted(x):
    state, visits = 0, 0
    for symbol in x.astype(int):
        state = _MOVES[state][symbol]
        visits += state == 3
    return state, visits


def _reaching(state: int, x) -> Iterator:
    """For each state, whether the symbol leads from it to `state`."""
    for row in _MOVES:
        yield sum(ra.where(x == symbol, 1, 0) for symbol, target in enumerate(row) if target == state)


@entry(source="ClickHouse sequenceMatch, sequenceCount; regular expressions", reason="scan", words=20, inputs={"x": whole(3)},
       reference=_accepted)
def dfa_transition(x: "l"):
    """An automaton of four states, one of which is 1 and the others 0: the last state, and how often it was 3."""
    reaching = [list(_reaching(state, x)) for state in range(4)]

    def step(visits, p0, p1, p2, p3):
        after = [sum(into * here for into, here in zip(row, (p0, p1, p2, p3), strict=True)) for row in reaching]
        return visits + after[3], *after

    visits, _, p1, p2, p3 = scan(step, "l", (0, 1, 0, 0, 0))
    return p1 + 2 * p2 + 3 * p3, visits


def _kpss(x):
    d = x - x.mean()
    return (np.cumsum(d) ** 2).sum() / x.size / (d ** 2).sum()


@entry(source="statsmodels kpss(nlags=0)", reason="scan", words=8, shortest=2, reference=_kpss)
def kpss_statistic(x: "l"):
    """Σ_l (Σ_{t≤l} (x_t − μ))² / (N² σ²)."""
    d = x - ra.mean(x, "l")
    return ra.sum(cumulative(ra.sum, d, "l") ** 2, "l") / ra.size("l") ** 2 / ra.mean(d ** 2, "l")


def _autocorrelation(x):
    d = x - x.mean()
    return (d[1:] * d[:-1]).sum() / (d * d).sum()


@entry(source="river AutoCorr(lag=1); OnlineStats AutoCov; statsmodels acf", reason="scan", words=10, shortest=2,
       reference=_autocorrelation)
def autocorr_lag1(x: "l"):
    """Σ_{l>1} (x_l − μ)(x_{l−1} − μ) / Σ (x_l − μ)²."""
    d = x - ra.mean(x, "l")
    return ra.sum(d * previous(d, "l"), "l") / ra.sum(d ** 2, "l")
