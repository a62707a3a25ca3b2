"""`redfuser bench --gpu` as far as it goes without a GPU: contestants, the loop, the table, the report, and what is said where there is none."""

import json

import numpy as np
import pytest
from cuda_kernels import needs_toolchain

import redfuser_algebra as ra
from redfuser_algebra.bench import commands, gpu, gpu_workloads
from redfuser_algebra.bench.gpu_workloads import GPU_WORKLOADS
from redfuser_algebra.cli import status_of
from redfuser_algebra.ptx.compile import compiled
from redfuser_algebra.run import gpu as device_side

ABOUT = {"name": "a card", "capability": "9.0", "processors": "132", "driver": "13.0"}


def ours(each, arrays):
    fused = ra.fuse(each.workload.operator())
    return lambda: fused(**{name: a.astype("f8") if a.dtype.kind == "f" else a for name, a in arrays.items()}, **each.scalars(arrays), backend="numpy")


class Ticking:
    """A clock by which every call takes a millisecond more than the one before."""

    def __init__(self):
        self.calls = []

    def __call__(self, call):
        call()
        self.calls.append(call)
        return float(len(self.calls))


@pytest.fixture
def device():
    return gpu.Device("cpu", Ticking(), ours, ABOUT)


def test_contestants_are_checked_and_then_take_turns(device, monkeypatch):
    monkeypatch.setattr(gpu, "library", lambda module: np)

    def missing(torch, **_):
        raise ModuleNotFoundError("No module named 'none'")

    def entrants(each, device, arrays):
        yield "redfuser", lambda: device.prepare(each, arrays)
        yield "right", lambda: lambda: arrays["x"].astype("f8").var(-1)
        yield "wrong", lambda: lambda: arrays["x"].astype("f8").var(-1) * 1.1
        yield "absent", lambda: missing(np)
        yield "broken", lambda: np.nothing

    monkeypatch.setattr(gpu, "_entrants", entrants)
    row = gpu.measured(GPU_WORKLOADS["variance"], device, (4, 50), 3)
    found = row.measured.contestants
    assert found["redfuser"].times == [1, 4, 5] and found["right"].times == [2, 3, 6] and row.bytes == 4 * 4 * 50 + 4 * 4
    assert found["wrong"].why.startswith("wrong: ") and found["absent"].why == "not installed (No module named 'none')"
    assert found["broken"].why.startswith("failed: AttributeError") and not found["broken"].times
    head, lines = gpu.table([row])
    assert head == ["workload", "shape", "redfuser, µs", "GB/s", "right", "wrong", "absent", "broken"]
    assert lines == [["variance", "4 × 50", "4,000.0", "0", "0.75", "wrong", "missing", "failed"]]
    results = gpu.GpuResults(ABOUT, 3, [row], True)
    assert "0.75 times" in gpu.summary(results) and json.dumps(results.record())
    text = gpu.markdown(results, "redfuser bench --gpu")
    assert "| variance | 4 × 50 | 4,000.0 |" in text and "a card" in text and "absent not installed" in text and "stopped" not in text


def test_without_torch_its_peers_are_missing(device, monkeypatch):
    monkeypatch.setattr(gpu, "library", lambda module: "not installed (no torch)")
    row = gpu.measured(GPU_WORKLOADS["attention-f16"], device, (1, 3, 5, 8), 1)
    why = {name: each.why for name, each in row.measured.contestants.items()}
    assert why.pop("redfuser") == "" and set(why.values()) == {"not installed (no torch)"}
    assert set(why) == {"torch eager", "torch.compile", "torch SDPA, Flash", "flex_attention", "flash-attn"}


@pytest.mark.slow
def test_peers_of_torch_compute_the_same(device):
    pytest.importorskip("torch")
    small = {"softmax-gemm-f16": (4, 40, 8), "attention-causal-f16": (2, 33, 33, 16)}
    for name, shape in small.items():
        each = GPU_WORKLOADS[name]
        arrays = gpu_workloads.drawn(each, shape, 0)
        eager = {n: call for n, call in gpu._entrants(each, device, arrays) if n in ("redfuser", "torch eager", "torch SDPA")}
        wide = {n: a.astype("f8") for n, a in arrays.items()}
        expected = gpu.measure.parts(each.workload.peers["numpy"](**wide))
        assert len(eager) == (3 if "attention" in name else 2)
        for prepare in eager.values():
            timed, call = gpu._admitted(prepare, expected, gpu.TOLERANCE["float16"])
            assert not timed.why and call


def test_the_workloads_are_the_papers():
    assert {"attention-f16", "attention-decode-f16", "softmax-gemm-f16", "moe-top6-64", "absmax-gemm-f16", "variance", "inertia"} <= set(GPU_WORKLOADS)
    for each in GPU_WORKLOADS.values():
        assert len(each.workload.shape) == len(each.workload.quick) and each.dtype in gpu.TOLERANCE


def test_without_a_gpu_one_message_says_so(monkeypatch, capsys):
    monkeypatch.setattr(device_side, "gpu_missing", lambda: "there is no GPU, or no driver for one")
    assert status_of(["bench", "--gpu"]) == 2
    said = capsys.readouterr().err
    assert "measuring on a GPU: there is no GPU" in said and "redfuser audit" in said and "Traceback" not in said
    assert status_of(["bench", "--gpu", "--shape", "3x4"]) == 2 and "leave them out" in capsys.readouterr().err


def test_a_run_is_written(device, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "this_device", lambda: device)
    monkeypatch.setattr(gpu, "library", lambda module: "not installed (no torch)")
    monkeypatch.setattr(commands, "GPU_WORKLOADS", {"variance": GPU_WORKLOADS["variance"]})
    given = ["bench", "--gpu", "--quick", "--runs", "2", "--json", str(tmp_path / "a.json"), "--report", str(tmp_path / "a.md")]
    assert status_of(given) == 0 and "variance" in capsys.readouterr().out
    assert json.loads((tmp_path / "a.json").read_text())["rows"][0]["workload"] == "variance"
    assert "# Benchmarks on a GPU" in (tmp_path / "a.md").read_text()


@needs_toolchain
def test_what_clears_the_caches_and_what_waits_compile():
    overwrite, rest = device_side.delays()
    assert "st.global" in compiled(overwrite, [(np.dtype("i4"),), np.dtype("i8")], "sm_90a").ptx
    assert "nanosleep" in compiled(rest, [np.dtype("i8")], "sm_90a").ptx
