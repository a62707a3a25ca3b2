"""Online states, which do not merge: what a part makes of the state that comes to it takes ever more numbers to say."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue.draws import bits, spread, whole
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.recurrence import cumulative, scan


def _waits(x):
    wait = total = 0.0
    for step in x:
        wait = max(0.0, wait + step)
        total += wait
    return total


@entry(source="Lindley 1952, the mean wait of a queue", verdict="partly", reason="online-only", words=2, inputs={"x": spread(-0.2, 1)},
       reference=_waits)
def lindley_total_wait(x: "l"):
    """Σ w_l with w_l = max(0, w_{l−1} + x_l): as a function of the wait before, a part's sum bends at every element."""
    return ra.sum(scan(lambda w: ra.maximum(0, w + x), "l", every="after"), "l")


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _gated(x, W):
    h = np.zeros(2)
    for t in x:
        z = _sigmoid(W[0, 0] * t + W[1] @ h)
        h = (1 - z) * np.tanh(W[2, 0] * t + W[3] @ (z * h)) + z * h
    return h[0], h[1]


@entry(source="torch.nn.GRU; Cho et al. 2014", verdict="partly", reason="online-only", words=2, reference=_gated,
       inputs=lambda rng, length: {"x": rng.standard_normal(length), "W": rng.standard_normal((4, 2, 2))})
def gru_final_state(x: "l", W: "g i j"):
    """h_l = (1 − z)·tanh(W₂x + W₃(z·h)) + z·h with the gate z = σ(W₀x + W₁h), for two units: the last state."""
    w = [[[ra.take(ra.take(ra.take(W, g, "g"), i, "i"), j, "j") for j in range(2)] for i in range(2)] for g in range(4)]

    def step(h, k):
        z = [ra.sigmoid(w[0][0][i] * x + w[1][i][0] * h + w[1][i][1] * k) for i in range(2)]
        n = [ra.tanh(w[2][0][i] * x + w[3][i][0] * (z[0] * h) + w[3][i][1] * (z[1] * k)) for i in range(2)]
        return (1 - z[0]) * n[0] + z[0] * h, (1 - z[1]) * n[1] + z[1] * k

    return scan(step, "l", initial=(0.0, 0.0))


def _descended(x, y, rate=0.3):
    w = b = 0.0
    for t, u in zip(x, y, strict=True):
        g = _sigmoid(w * t + b) - u
        w, b = w - rate * g * t, b - rate * g
    return w, b


@entry(source="ClickHouse stochasticLogisticRegression; river linear_model", verdict="partly", reason="online-only", words=2,
       inputs={"y": bits}, reference=_descended)
def sgd_logistic(x: "l", y: "l", rate: float = 0.3):
    """One epoch of stochastic gradient descent on the logistic loss: w −= η(σ(w x + b) − y)·x, b −= η(σ(w x + b) − y)."""
    def step(w, b):
        g = ra.sigmoid(w * x + b) - y
        return w - rate * g * x, b - rate * g

    return scan(step, "l", initial=(0.0, 0.0))


def _drift(x, allowed=0.005):
    steps = np.cumsum(x - np.cumsum(x) / np.arange(1, x.size + 1) - allowed)
    return steps[-1] - steps.min()


@entry(source="Page 1954; river drift.PageHinkley", verdict="partly", reason="online-only", words=4, reference=_drift)
def page_hinkley(x: "l", allowed: float = 0.005):
    """m_L − min_l m_l with m_l = Σ_{t≤l} (x_t − x̄_t − δ), x̄_t the mean so far: an envelope of lines in what came before."""
    step = x - cumulative(ra.sum, x, "l") / (ra.index("l") + 1) - allowed
    return ra.sum(step, "l") - ra.min(cumulative(ra.sum, step, "l"), "l")


def _outliers(x):
    return sum(abs(x[n] - x[:n].mean()) > 1.5 * np.sqrt(x[:n].var(ddof=1) + 1e-9) for n in range(3, x.size))


@entry(source="river anomaly; OnlineStats peak detection", verdict="partly", reason="online-only", words=4, reference=_outliers)
def running_zscore_outliers(x: "l"):
    """How many x_l are further than 1.5 deviations from the mean of those before them, from the third one on."""
    n = ra.index("l")

    def step(mean, squares):
        after = mean + (x - mean) / (n + 1)
        return after, squares + (x - mean) * (x - after)

    mean, squares = scan(step, "l", initial=(0.0, 0.0), every="before")
    free = ra.maximum(n - 1, 1)
    return ra.count((n > 2) & ((x - mean) ** 2 * free > 2.25 * (squares + 1e-9 * free)), "l")


def _candidate(x):
    candidate, votes = -1.0, 0
    for label in x:
        candidate, votes = (label, 1) if votes == 0 else (candidate, votes + (1 if label == candidate else -1))
    return candidate


@entry(source="Boyer & Moore 1981; ClickHouse anyHeavy", verdict="partly", reason="online-only", words=2, inputs={"x": whole(4)},
       reference=_candidate)
def boyer_moore_majority(x: "l"):
    """The candidate c that votes leave: x_l = c votes for it, others against, and without votes x_l is the next candidate.

    Two summaries (c, n) can be merged so that a majority survives; the candidate itself, where there is none, takes all labels.
    """
    def step(c, n):
        return ra.where(n == 0, x, c), ra.where(n == 0, 1, ra.where(x == c, n + 1, n - 1))

    return scan(step, "l", initial=(-1.0, 0))[0]
