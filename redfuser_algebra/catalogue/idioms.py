"""Turns of phrase that several operators share, as expressions over the reduced axis `l`."""
from __future__ import annotations

import math

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr


def softmax_weights(s: Expr, axis: str = "l") -> Expr:
    """p_l = e^{s_l − max s} / Σ e^{s_l − max s}."""
    e = ra.exp(s - ra.max(s, axis))
    return e / ra.sum(e, axis)


def log_sum_exp(s: Expr, axis: str = "l") -> Expr:
    """max s + log Σ e^{s_l − max s}."""
    m = ra.max(s, axis)
    return m + ra.log(ra.sum(ra.exp(s - m), axis))


def attend(s: Expr, V: Expr, where: Expr | None = None) -> Expr:
    """Σ e^{s_l − max s} V_l / Σ e^{s_l − max s} over the keys that the mask lets through."""
    e = ra.exp(s - ra.max(s, "l", where=where))
    return ra.sum(e * V, "l", where=where) / ra.sum(e, "l", where=where)


def dot(q: Expr, K: Expr, axis: str) -> Expr:
    """Scaled scores Σ q K / √d over the feature axis."""
    return ra.sum(q * K, axis) / ra.sqrt(ra.size(axis))


def standardised(x: Expr, epsilon: float = 1e-5) -> Expr:
    """(x − μ) / √(σ² + ε) along `l`."""
    deviation = x - ra.mean(x, "l")
    return deviation / ra.sqrt(ra.mean(deviation * deviation, "l") + epsilon)


def gelu(x: Expr) -> Expr:
    """½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return 0.5 * x * (1.0 + ra.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
