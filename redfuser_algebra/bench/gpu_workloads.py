"""What is measured on a GPU: the paper's workloads, each a workload of the CPU's table at a GPU's size, and peers that only GPUs have.

A peer is a function of (torch, **tensors) that makes a call: what it does once, such as compiling, is not in the call.
"""
from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.bench.workloads import WORKLOADS, Workload, normal, numpy_softmax

Maker = Callable[..., Callable[[], object]]


@dataclass(frozen=True)
class GpuWorkload:
    """A workload with the dtype of its real arrays, more peers by name, and what its scalars are for given arrays."""

    workload: Workload
    dtype: str
    peers: Mapping[str, Maker] = field(default_factory=dict)
    scalars: Callable[[Mapping[str, np.ndarray]], Mapping[str, float]] = lambda arrays: {}

    @property
    def name(self) -> str:
        """Its name: that of the workload, and the dtype where it is not float32."""
        return self.workload.name + {"float32": "", "float16": "-f16"}[self.dtype]


def _softmax_gemm() -> ra.Operator:
    @ra.operator
    def softmax_gemm(X: "m l", W: "l n"):
        P = ra.exp(X - ra.max(X, "l"))
        return ra.sum(P * W, "l") / ra.sum(P, "l")

    return softmax_gemm


# --- peers --------------------------------------------------------------------------------------------------------


def flash(causal: bool) -> Maker:
    """torch's attention with the FlashAttention backend and no other (torch.nn.attention.sdpa_kernel)."""
    def make(torch, Q, K, V):
        attention = importlib.import_module("torch.nn.attention")

        def run():
            with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(Q[None], K[None], V[None], is_causal=causal)[0]

        return run

    return make


def flex(causal: bool) -> Maker:
    """torch's flex_attention, compiled, with a block mask (torch.nn.attention.flex_attention)."""
    def make(torch, Q, K, V):
        attention = importlib.import_module("torch.nn.attention.flex_attention")
        mask = attention.create_block_mask(lambda batch, head, m, l: m >= l, None, None, Q.shape[-2], K.shape[-2], device=Q.device) if causal else None
        fast = torch.compile(attention.flex_attention, dynamic=False)
        return lambda: fast(Q[None], K[None], V[None], block_mask=mask)[0]

    return make


def flash_package(causal: bool) -> Maker:
    """The flash-attn package, whose arrays are (batch, length, heads, columns)."""
    def make(torch, Q, K, V):
        package = importlib.import_module("flash_attn")
        given = [each[None].transpose(1, 2).contiguous() for each in (Q, K, V)]
        return lambda: package.flash_attn_func(*given, causal=causal)[0].transpose(0, 1)

    return make


def triton_softmax(torch, x):
    """One program per row, which holds all of it, as in Triton's tutorial "Fused Softmax"."""
    triton = importlib.import_module("triton")
    tl = importlib.import_module("triton.language")
    globals()["tl"] = tl  # where Triton looks for what a kernel names

    def rows(out, x, columns, BLOCK: tl.constexpr):
        at, begin = tl.arange(0, BLOCK), tl.program_id(0).to(tl.int64) * columns
        value = tl.load(x + begin + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        e = tl.exp(value - tl.max(value, 0))
        tl.store(out + begin + at, e / tl.sum(e, 0), mask=at < columns)

    kernel, block = triton.jit(rows), triton.next_power_of_2(x.shape[-1])

    def run():
        out = torch.empty_like(x)
        kernel[(x.numel() // x.shape[-1],)](out, x, x.shape[-1], BLOCK=block, num_warps=max(4, min(32, block // 512)))
        return out

    return run


# --- the table ----------------------------------------------------------------------------------------------------


def _attention(name: str, base: str, shape: tuple[int, ...], causal: bool = False) -> GpuWorkload:
    peers = {"torch SDPA, Flash": flash(causal), "flex_attention": flex(causal), "flash-attn": flash_package(causal)}
    quick = (2, *(min(length, 256) for length in shape[1:]))
    return GpuWorkload(replace(WORKLOADS[base], name=name, shape=shape, quick=quick), "float16", peers, lambda arrays: {"scale": arrays["Q"].shape[-1] ** -0.5})


def _rows(name: str, shape: tuple[int, ...], dtype: str = "float32", **peers: Maker) -> GpuWorkload:
    return GpuWorkload(replace(WORKLOADS[name], shape=shape), dtype, peers)


SOFTMAX_GEMM = Workload("softmax-gemm", _softmax_gemm, (4096, 8192, 128), normal("X:ml W:ln", "mln"), {
    "numpy": lambda X, W: numpy_softmax(X) @ W, "torch": lambda torch, X, W: torch.softmax(X, -1) @ W}, (), quick=(64, 512, 64))

_TRITON = {"Triton softmax": triton_softmax}

GPU_WORKLOADS = {each.name: each for each in (
    _attention("attention", "attention", (32, 2048, 2048, 64)), _attention("attention-128", "attention", (16, 2048, 2048, 128)),
    _attention("attention-causal", "attention-causal", (32, 2048, 2048, 64), causal=True),
    _attention("attention-decode", "attention-decode", (64, 1, 32768, 64)),
    GpuWorkload(SOFTMAX_GEMM, "float16"), _rows("moe-top6-64", (65536, 64)), _rows("absmax-gemm", (4096, 4096, 256), "float16"),
    _rows("rmsnorm-gemm", (4096, 4096, 256), "float16"), _rows("variance", (8192, 8192)), _rows("inertia", (50_000_000,)),
    _rows("softmax", (8192, 8192), "float32", **_TRITON), _rows("softmax", (8192, 8192), "float16", **_TRITON),
    _rows("logsumexp", (8192, 8192)), _rows("layernorm", (8192, 8192), "float16"), _rows("softmax-entropy", (8192, 8192)))}
"""Every workload by name, in the order in which they are shown."""


def drawn(each: GpuWorkload, shape: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    """Arrays of the workload's dtype; whole numbers stay."""
    arrays = each.workload.draw(np.random.default_rng(seed), shape)
    return {name: array.astype(each.dtype) if array.dtype.kind == "f" else array for name, array in arrays.items()}
