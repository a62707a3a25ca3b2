"""Inputs on which fused and cascaded reductions of other projects went wrong, each with its source and right value.

The inputs and numbers are ours; every right value follows from exact arithmetic or from the definition, by the route
named in `known_by`.  A case is an operator in the front-door language, its arguments, and what must come out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import redfuser_algebra as ra

CASES = {}


@dataclass(frozen=True)
class BugCase:
    """`chunk` is the length of the pieces the case is about (None: any); `want` holds one value per output."""

    id: str
    source: str
    symptom: str
    known_by: str
    operator: ra.Operator
    inputs: Callable[[], dict]
    want: Callable[[], tuple]
    rtol: float = 0.0
    atol: float = 0.0
    chunk: int | None = None
    error_is_right: bool = False


def case(id, source, symptom, known_by, inputs, want, rtol=0.0, atol=0.0, **more):
    """Enter the operator described below as the one that the case is about."""

    def enter(function):
        CASES[id] = BugCase(id, source, symptom, known_by, ra.operator(function), inputs, want, rtol, atol, **more)
        return function

    return enter


def row(values, dtype=np.float32):
    return np.array([values], dtype)


@case("B01", "pytorch/pytorch#2470", "variance as E[x²] − E[x]² loses all digits when the mean is large",
      "(n² − 1)/12/64 for 8 equally spaced numbers", lambda: {"x": row(5000 + np.arange(8) / 8)},
      lambda: ([63 / 768],), rtol=1e-3)
def variance(x: "l"):
    return ra.var(x, "l")


@case("B03", "pytorch/pytorch#180156", "the sum of squared deviations leaves float32 although σ is well inside it",
      "σ of 2, 4, 6, 8 is √5", lambda: {"x": row(np.array([2, 4, 6, 8]) * 1e19)}, lambda: ([math.sqrt(5) * 1e19],),
      rtol=1e-5)
def deviation(x: "l"):
    return ra.std(x, "l")


@case("B05", "jax-ml/jax#37281", "normalisation by E[x²] − E[x]² is off by a factor when the row's mean is large",
      "mean 20003.75 and variance 5.3125 exactly", lambda: {"x": row(20000 + np.arange(16) / 2)},
      lambda: (((np.arange(16) / 2 - 3.75) / math.sqrt(5.3125 + 1e-5))[None],), rtol=1e-3, atol=1e-3)
def standardised(x: "l"):
    d = x - ra.mean(x, "l")
    return d / ra.sqrt(ra.mean(d * d, "l") + 1e-5)


def attention_of(q, k, v, mask, scale=1.0):
    """softmax(scale · q kᵀ) v over the keys each row may see; 0 where it sees none.  What is masked is not read."""
    out = np.zeros((len(q), v.shape[1]))
    for i, see in enumerate(mask):
        if see.any():
            s = scale * k[see].astype(float) @ q[i].astype(float)
            p = np.exp(s - s.max())
            out[i] = p / p.sum() @ v[see].astype(float)
    return (out,)


def middle_third():
    return {"q": np.ones((1, 1), np.float32), "k": (-300 + np.arange(192)[:, None] / 64).astype(np.float32),
            "v": np.linspace(-1, 1, 192, dtype=np.float32)[:, None], "mask": (np.arange(192) // 64 == 1)[None]}


def unwritten_memory():
    rng, nan = np.random.default_rng(9), np.where(np.arange(40) < 25, 0.0, np.nan)[:, None]
    return {"k": (rng.standard_normal((40, 8)) + nan).astype(np.float32),
            "v": (rng.standard_normal((40, 3)) + nan).astype(np.float32),
            "q": rng.standard_normal((2, 8)).astype(np.float32), "mask": np.tile(np.arange(40) < 25, (2, 1))}


@case("B09", "Dao-AILab/flash-attention#2374", "keys past the valid length have weight 0, and 0 · NaN fills the output",
      "attention over the 25 valid keys alone", unwritten_memory, lambda: attention_of(**unwritten_memory()),
      rtol=1e-4, atol=1e-5)
@case("B07", "Dao-AILab/flash-attention#2082", "after a tile without visible keys, far negative scores underflow: zeroed heads",
      "attention over the 64 visible keys alone", middle_third, lambda: attention_of(**middle_third()), rtol=1e-4,
      atol=1e-6, chunk=64)
def masked_attention(q: "m d", k: "l d", v: "l j", mask: "m l"):
    s = ra.sum(q * k, "d")
    p = ra.exp(s - ra.max(s, "l", where=mask))
    return ra.divide(ra.sum(p * v, "l", where=mask), ra.sum(p, "l", where=mask), where_zero=0)


@case("B11", "HypothesisWorks/hypothesis#3155", "flags that flush subnormals to zero change results",
      "math.fsum of the float32 inputs", lambda: {"x": row([1e-40, 2e-40, 3e-40, -1e-41])},
      lambda: ([math.fsum(map(float, row([1e-40, 2e-40, 3e-40, -1e-41])[0]))], [float(np.float32(3e-40))]), rtol=1e-3)
def sum_and_max(x: "l"):
    return ra.sum(x, "l"), ra.max(x, "l")


def odd_sizes():
    rng = np.random.default_rng(13)
    shapes = {"q": (77, 13), "k": (193, 13), "v": (193, 13)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} | {"scale": 13 ** -0.5}


def negative_scale():
    return {"q": np.ones((1, 1), np.float32), "k": np.linspace(-200, 200, 33, dtype=np.float32)[:, None],
            "v": np.arange(1, 34, dtype=np.float32)[:, None], "scale": -0.5}


def seen_by_all(inputs):
    return attention_of(mask=np.ones((len(inputs["q"]), len(inputs["k"])), bool), **inputs)


@case("B35", "pytorch/pytorch#105202", "max(c·s) is c·max(s) only for c ≥ 0: a negative scale overflows",
      "attention from the definition", negative_scale, lambda: seen_by_all(negative_scale()), rtol=1e-5)
@case("B13", "jax-ml/jax#27224", "padding up to the tile takes part in the softmax", "attention from the definition",
      odd_sizes, lambda: seen_by_all(odd_sizes()), rtol=1e-4, atol=1e-5, chunk=128)
def attention(q: "m d", k: "l d", v: "l j", scale: float = 1.0):
    s = ra.sum(q * k, "d") * scale
    p = ra.exp(s - ra.max(s, "l"))
    return ra.sum(p * v, "l") / ra.sum(p, "l")


@case("B15", "jax-ml/jax#7643", "a max-shifted log-sum fails on an empty axis", "log of an empty sum is −inf",
      lambda: {"x": np.zeros((3, 0))}, lambda: ([-np.inf] * 3,), error_is_right=True)
def logsumexp(x: "l"):
    m = ra.max(x, "l")
    return m + ra.log(ra.sum(ra.exp(x - m), "l"))


@case("B19", "NVIDIA/numba-cuda#589", "a view with a negative stride is read forwards, or from outside its buffer",
      "Σ (12 − i) i² in whole numbers",
      lambda: {"x": np.arange(1, 13, dtype=np.float32)[::-1], "w": (np.arange(12) ** 2).astype(np.float32)},
      lambda: (sum((12 - i) * i * i for i in range(12)), 0), rtol=1e-6)
def dot_and_argmax(x: "l", w: "l"):
    return ra.sum(x * w, "l"), ra.argmax(x, "l")


def few_keys():
    rng = np.random.default_rng(21)
    shapes = {"q": (5, 4), "k": (2, 4), "v": (2, 3)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@case("B21", "Dao-AILab/flash-attention#1778", "causal with more queries than keys: aligned at the wrong corner, NaN rows",
      "query i sees the keys j ≤ i + 2 − 5; rows 0 … 2 see none", few_keys,
      lambda: attention_of(**few_keys(), mask=np.arange(2) <= np.arange(5)[:, None] - 3), rtol=1e-4, atol=1e-5)
def causal_attention(q: "m d", k: "l d", v: "l j"):
    s = ra.sum(q * k, "d")
    see = ra.index("l") <= ra.index("m") + ra.size("l") - ra.size("m")
    p = ra.exp(s - ra.max(s, "l", where=see))
    return ra.divide(ra.sum(p * v, "l", where=see), ra.sum(p, "l", where=see), where_zero=0)


@case("B23", "apache/tvm#19518", "max passes a NaN on here and drops it there", "NaN wins, as in numpy.max",
      lambda: {"x": np.array([[1, np.nan, 3], [np.nan, -np.inf, 0], [1, 2, 3]], np.float32)},
      lambda: ([np.nan, np.nan, 3.0],))
def largest(x: "l"):
    return ra.max(x, "l")


@case("B25", "pytorch/pytorch#27542", "which duplicate of the k-th value comes back changes with k",
      "sorted by (−value, index): the head of top-k is top-(k−1)", lambda: {"x": row([3, 9, 1, 9, 9, 2])},
      lambda: ([[1]], [[1, 3]], [[1, 3, 4]], [[9, 9, 9, 3]]))
def largest_few(x: "l"):
    return (*(ra.argtopk(x, "l", k, name=f"t{k}") for k in (1, 2, 3)), ra.topk(x, "l", 4, name="t4").values)


@case("B27", "gdkrmr/WeightedOnlineStats.jl#42", "leading zero weights make 0/0, and the NaN never leaves the state",
      "15/3 and 6/3; all weights 0 is 0/0",
      lambda: {"x": np.array([[10.0, 1, 4, 7], [1.0, 2, 3, 4]]), "w": np.array([[0.0, 0, 2, 1], [0.0, 0, 0, 0]])},
      lambda: ([5.0, np.nan], [2.0, np.nan]), rtol=1e-12)
def weighted_mean_and_variance(x: "l", w: "l"):
    total = ra.sum(w, "l")
    mean = ra.sum(w * x, "l") / total
    return mean, ra.sum(w * (x - mean) ** 2, "l") / total


@case("B29", "jax-ml/jax#17117", "a huge logit that is masked still takes part in the shift", "1/(1 + e), e/(1 + e), 0",
      lambda: {"x": row([1, 2, 3e4]), "mask": np.array([[True, True, False]])},
      lambda: ([[1 / (1 + math.e), math.e / (1 + math.e), 0.0]],), rtol=1e-5)
def masked_softmax(x: "l", mask: "l"):
    e = ra.exp(x - ra.max(x, "l", where=mask))
    return ra.where(mask, e / ra.sum(e, "l", where=mask), 0)


@case("B33", "Theano/Theano#3151", "a factor leaves a product once instead of once per element", "Π −2x in whole numbers",
      lambda: {"x": np.array([[1.5, -0.5, 3.0], [0.25, 2.0, -1.0]]), "scale": -2.0}, lambda: ([18.0, 4.0],), rtol=1e-12)
def scaled_product(x: "l", scale: float = 1.0):
    return ra.prod(scale * x, "l")


@case("B37", "scipy/scipy#22903", "log Σ b eᵃ takes the log of a negative partial result",
      "log(3e + 1 − e²); the second total is negative",
      lambda: {"a": np.array([[2.0, 1, 0], [0.0, 1, 2]]), "b": np.array([[-1.0, 3, 1], [1.0, 2, -1]])},
      lambda: ([math.log(3 * math.e + 1 - math.e**2), np.nan],), rtol=1e-12)
def weighted_logsumexp(a: "l", b: "l"):
    m = ra.max(a, "l")
    return m + ra.log(ra.sum(b * ra.exp(a - m), "l"))


def constant_columns():
    return {"x": np.array([[0.57] * 7, [0.83] * 7, [1.0, 2, 3, 4, 5, 6, 7]]),
            "y": np.tile(np.array([3.0, 1, 4, 1, 5, 9, 2]), (3, 1))}


@case("B31", "pola-rs/polars#22099", "the correlation with a constant column comes out as a small number",
      "the variance is 0, so 0/0; a control row by rationals", constant_columns,
      lambda: ([np.nan, np.nan, 14 / math.sqrt(28 * (137 - 25**2 / 7))],), rtol=1e-12, chunk=7)
def correlation(x: "l", y: "l"):
    a, b = x - ra.mean(x, "l"), y - ra.mean(y, "l")
    return ra.sum(a * b, "l") / ra.sqrt(ra.sum(a * a, "l") * ra.sum(b * b, "l"))
