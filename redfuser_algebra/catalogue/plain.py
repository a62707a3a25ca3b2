"""NumPy in float64, without this package: what the references of several entries share."""
from __future__ import annotations

import numpy as np


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logsumexp(x: np.ndarray) -> np.ndarray:
    m = x.max(-1, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(-1, keepdims=True)))[..., 0]


def attention(scores: np.ndarray, V: np.ndarray, visible: np.ndarray | bool = True) -> np.ndarray:
    return softmax(np.where(visible, scores, -np.inf)) @ V


def dot(q: np.ndarray, K: np.ndarray) -> np.ndarray:
    return q @ K.T / np.sqrt(K.shape[-1])


def variance(x: np.ndarray, ddof: int = 0) -> float:
    return np.square(x - x.mean()).sum() / (x.size - ddof)


def standardised(x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def largest(x: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest, ties to the lowest position."""
    return np.argsort(-x, kind="stable")[:k]


def e4m3(x: np.ndarray) -> np.ndarray:
    """The nearest 8-bit float with 4 exponent and 3 mantissa bits, saturating at 448."""
    exponent = np.clip(np.floor(np.log2(np.maximum(np.abs(x), 2.0 ** -20))), -6, 8)
    step = 2.0 ** (exponent - 3)
    return np.clip(np.round(x / step) * step, -448, 448)


