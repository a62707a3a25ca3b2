"""The demonstration: the workloads of the RedFuser paper and two from outside machine learning, at real sizes.

Each operator is discovered on the spot, its update rule printed, its data streamed in chunks, and the result held
against float64 NumPy.  In: a place to print to.  Out: whether every result was as close as it has to be.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.run.tolerance import TOLERANCE, agree

SEED = 0
Arrays = dict[str, np.ndarray | float]
Print = Callable[[str], object]


@dataclass(frozen=True)
class Workload:
    """An operator at a size: how its inputs are drawn, what NumPy makes of them, and how long a chunk is.

    Where a rounding is moved, results differ by more than the float64 tolerance: `bound(arrays)` is how far apart
    they may lie, and `unrounded(arrays)` what both approximate.
    """

    title: str
    name: str
    draw: Callable[[np.random.Generator], Arrays]
    chunk: int
    bound: Callable[[Arrays], np.ndarray] | None = None
    unrounded: Callable[[Arrays], np.ndarray] | None = None


def _attention(rng: np.random.Generator) -> Arrays:
    return {"Q": rng.standard_normal((128, 128)), "K": rng.standard_normal((4096, 128)),
            "V": rng.standard_normal((4096, 128)), "scale": 128 ** -0.5}


def _mla(rng: np.random.Generator) -> Arrays:
    return {"qC": rng.standard_normal((1, 16, 512)), "qR": rng.standard_normal((1, 16, 64)),
            "C": rng.standard_normal((4096, 512)), "R": rng.standard_normal((4096, 64)), "scale": 576 ** -0.5}


def _moe(rng: np.random.Generator) -> Arrays:
    return {"X": rng.standard_normal((2048, 4096)), "W": rng.standard_normal((4096, 64)) / 64, "k": 6}


def _fp8(rng: np.random.Generator) -> Arrays:
    X = rng.standard_normal((64, 4096)) * np.geomspace(0.1, 10, 4096)
    return {"X": X, "W": rng.standard_normal((4096, 512))}


def _fp8_bound(arrays: Arrays) -> np.ndarray:
    """Both ways are within half a step of e4m3 of the product without rounding: 2⁻⁴·|x|, or 2⁻¹⁰·s near 0."""
    size = np.abs(arrays["X"])
    scale = size.max(-1, keepdims=True) / 448
    return 2 * (2.0 ** -4 * size + 2.0 ** -10 * scale) @ np.abs(arrays["W"])


WORKLOADS = (
    Workload("attention, one LLaMA head: 128 queries × 4096 keys × 128", "attention", _attention, 512),
    Workload("multi-head latent attention: 16 heads, 4096 keys of 512 + 64, values of 512", "mla", _mla, 512),
    Workload("mixture-of-experts routing: 2048 tokens × 4096, top 6 of 64 experts", "moe_routing", _moe, 16),
    Workload("per-token FP8 quantisation + GEMM: 64 × 4096 × 512", "fp8_gemm", _fp8, 512, _fp8_bound,
             lambda arrays: arrays["X"] @ arrays["W"]),
    Workload("variance of 10⁶ samples with mean 10⁴", "variance",
             lambda rng: {"x": 1e4 + rng.standard_normal(1_000_000)}, 65_536),
    Workload("moment of inertia of 10⁶ particles", "moment_of_inertia",
             lambda rng: {"m": rng.uniform(1, 2, 1_000_000), "r": 100 + rng.standard_normal((1_000_000, 3))}, 65_536),
)


def run(told: Print, watched: Callable[[str], object] = lambda title: None) -> bool:
    """Every workload in turn; whether all results were close enough.  `watched` hears what is being worked on."""
    start, passed = time.perf_counter(), []
    for number, workload in enumerate(WORKLOADS, 1):
        watched(workload.title)
        told(f"{number}/{len(WORKLOADS)}  {workload.title}")
        passed.append(_shown(workload, told))
        told("")
    told(f"{sum(passed)} of {len(passed)} agree with NumPy, in {time.perf_counter() - start:.1f} s")
    return all(passed)


def _shown(workload: Workload, told: Print) -> bool:
    operator, reference = _operator(workload.name)
    if workload.name == "fp8_gemm":
        told(f"     as written: {ra.decide(_fp8_gemm(reassociate=False)).status}, since a rounding sits between the scale "
             "and the sum; allowed to round at the scale known so far:")
    start = time.perf_counter()
    verdict = ra.decide(operator)
    if verdict.fused is None:
        told(f"     {verdict}")
        return False
    nodes, form = max(found.nodes for found in verdict.discoveries), verdict.fused.form
    told(f"     {verdict.status} ({verdict.reason}), found in {1000 * (time.perf_counter() - start):.0f} ms "
         f"with {nodes} e-nodes; {form.words} words of state")
    told("\n".join(f"       {line}" for line in form.update.splitlines()))
    return _compared(workload, verdict.fused, reference, told)


def _compared(workload: Workload, fused: ra.Fused, reference: Callable, told: Print) -> bool:
    arrays = workload.draw(np.random.default_rng(SEED))
    start = time.perf_counter()
    found, chunks = _streamed(fused, arrays, workload.chunk)
    between = time.perf_counter()
    expected = reference(**arrays)
    end = time.perf_counter()
    told(f"     streamed in {chunks} chunks: {1000 * (between - start):.0f} ms; NumPy at once: {1000 * (end - between):.0f} ms")
    if workload.bound:
        return _rounded_alike(workload, arrays, found, expected, told)
    pairs = list(zip(*(value if isinstance(value, tuple) else (value,) for value in (found, expected)), strict=True))
    passed = all(agree(ours, theirs, "float64", scale=np.abs(theirs).max()) for ours, theirs in pairs)
    error = max(_part(ours - theirs, theirs) for ours, theirs in pairs)
    told(f"     largest error {error:.1e} of the largest value, tolerance {TOLERANCE['float64'][0]:.0e}: {_word(passed)}")
    return passed


def _rounded_alike(workload: Workload, arrays: Arrays, found: np.ndarray, expected: np.ndarray, told: Print) -> bool:
    """Within the bound everywhere, and on average as close to the unrounded result as NumPy's is (within a tenth)."""
    within = bool(np.all(np.abs(found - expected) <= workload.bound(arrays)))
    ours, theirs = (np.sqrt(np.mean((value - workload.unrounded(arrays)) ** 2)) for value in (found, expected))
    passed = within and bool(ours <= 1.1 * theirs)
    told(f"     root mean square distance from the product without rounding: {ours:.3f}, and {theirs:.3f} for NumPy as "
         f"written; largest error {_part(found - expected, expected):.1e} of the largest value: {_word(passed)}")
    return passed


def _word(passed: bool) -> str:
    return "agrees" if passed else "DIFFERS"


def _part(difference: np.ndarray, whole: np.ndarray) -> float:
    return float(np.abs(difference).max() / max(np.abs(whole).max(), np.finfo(float).tiny))


def _streamed(fused: ra.Fused, arrays: Arrays, chunk: int) -> tuple[object, int]:
    """The result of feeding the reduced axis chunk by chunk, and the number of chunks."""
    axis = fused.form.axis
    places = {name: axes.index(axis) for name, axes in fused.operator.inputs.items() if axis in axes}
    stream = fused.stream(**{name: value for name, value in arrays.items() if name not in places})
    length = {arrays[name].shape[place] for name, place in places.items()}.pop()
    starts = range(0, length, chunk)
    for start in starts:
        stream.update(**{name: arrays[name][(slice(None),) * place + (slice(start, start + chunk),)]
                         for name, place in places.items()})
    return stream.result(), len(starts)


def _operator(name: str) -> tuple[ra.Operator, Callable]:
    if name == "fp8_gemm":
        return _fp8_gemm(reassociate=True), _fp8_reference
    return ra.operators[name], ra.operators.entry(name).reference


@cache
def _fp8_gemm(reassociate: bool) -> ra.Operator:
    @ra.operator
    def fp8_gemm(X: "m l", W: "l n"):
        s = ra.max(ra.abs(X), "l") / 448.0
        return ra.sum(ra.cast(X / s, "float8_e4m3", reassociate=reassociate) * W, "l") * s

    return fp8_gemm


def _fp8_reference(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Rounded to 3 binary places after the leading one, from 2⁻⁶ on; multiples of 2⁻⁹ below that."""
    s = np.abs(X).max(-1, keepdims=True) / 448
    step = 2.0 ** (np.maximum(np.frexp(X / s)[1] - 1, -6) - 3)
    return np.round(X / s / step) * step @ W * s
