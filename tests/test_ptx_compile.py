"""Compiling without a driver, and what the interpreter makes of compiled kernels.  Needs numba-cuda and its toolchain."""

import math
import zlib
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from cuda_kernels import drawn_case, kernel

from redfuser_algebra.ptx import alike, execute, kept
from redfuser_algebra.ptx.alike import unified
from redfuser_algebra.ptx.compile import CompileError, Compiled, arguments, compiled, toolchain_missing, translated
from redfuser_algebra.ptx.machine import Machine, Mode, read_kernel
from redfuser_algebra.ptx.memory import GlobalMemory

needs_toolchain = pytest.mark.skipif(toolchain_missing() != "", reason=f"not installed: {toolchain_missing()}")


def launched(function, given, outputs, grid, block, architecture="sm_90a", mode=None):
    types = [(value.dtype,) if isinstance(value, np.ndarray) else value.dtype for value in given]
    made = compiled(function, types, architecture)
    memory = GlobalMemory()
    flat, addresses = arguments(memory, given, outputs=outputs)
    Machine(read_kernel(made.ptx), memory, flat, mode).launch((grid, 1, 1), (block, 1, 1))
    arrays = [place for place, value in enumerate(given) if isinstance(value, np.ndarray)]
    return made, [memory.array(addresses[arrays.index(place)], given[place].shape, given[place].dtype) for place in outputs]


def test_a_wrong_architecture_is_refused():
    with pytest.raises(CompileError, match="choose one of sm_80"):
        compiled(print, [], "sm_3")


def test_a_missing_toolchain_says_what_to_install(monkeypatch):
    monkeypatch.setattr("redfuser_algebra.ptx.compile.importlib.util.find_spec", lambda name: None)
    with pytest.raises(CompileError, match="numba_cuda.*pip install 'redfuser-algebra\\[cuda\\]'"):
        compiled(print, [], "sm_80")


@needs_toolchain
def test_a_kernel_of_every_kind_of_statement():
    from numba import cuda

    def kernel(x, y, h, d):
        i = cuda.grid(1)
        t = cuda.threadIdx.x
        box, own = cuda.shared.array(128, np.float32), cuda.local.array(8, np.float32)
        for q in range(8):
            own[q] = x[i] * q
        box[t] = x[i]
        cuda.syncthreads()
        a = own[(i * 7 + d) % 8] + math.exp(box[127 - t]) + math.sin(x[i] * 1e6) + math.log(abs(x[i]) + 1)
        a += cuda.shfl_down_sync(0xFFFFFFFF, x[i], 3) * 0.5
        if i % 3 == 0:
            a += math.tanh(x[i])
        elif i % 5 == 0:
            a -= math.atan(x[i])
        n = 0
        while n < i % 7:
            a = a * 0.5 + n
            n += 1
        cuda.atomic.add(h, i % 4, 1)
        y[i] = a

    x, h = np.random.default_rng(0).standard_normal(256).astype(np.float32), np.zeros(4, np.int32)
    made, (y,) = launched(kernel, [x, np.zeros(256), h, np.int32(5)], [1], 2, 128)
    expected = np.zeros(256)
    for i in range(256):
        lane = i % 32
        a = x[i] * ((i * 7 + 5) % 8) + math.exp(x[i - i % 128 + 127 - i % 128]) + math.sin(float(x[i] * np.float64(1e6))) + math.log(abs(x[i]) + 1)
        a += x[i + 3 if lane < 29 else i] * 0.5
        a += math.tanh(x[i]) if i % 3 == 0 else -math.atan(x[i]) if i % 5 == 0 else 0
        for n in range(i % 7):
            a = a * 0.5 + n
        expected[i] = a
    assert np.allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert made.registers <= 255 and made.shared >= 512 and made.instructions > 100


@needs_toolchain
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
def test_what_the_linker_says(architecture):
    from numba import cuda

    def kernel(x, y):
        i = cuda.grid(1)
        y[i] = x[i] + x.dtype.type(1) if i < x.size else 0

    made, (y,) = launched(kernel, [np.arange(40, dtype=np.float32), np.zeros(64, np.float32)], [1], 1, 64, architecture, Mode(together=False))
    assert list(y) == [n + 1 if n < 40 else 0 for n in range(64)]
    assert (made.spilled, made.stack, made.shared) == (0, 0, 0) and 4 <= made.registers < 40 and made.cubin[:4] == b"\x7fELF"
    assert f".target {architecture}" in made.ptx and ".version 9.0" in made.ptx


@needs_toolchain
def test_what_was_compiled_is_kept_until_anything_changes(monkeypatch, tmp_path):
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path))
    made, asked = Compiled("sm_80", "text", b"binary", 9, 0, 0, 128, 70), ("source", (8, "whole"), [(np.dtype("f4"),), np.dtype("i8")], "sm_80")
    kept.keep(made, *asked)
    assert kept.kept(*asked) == made
    others = ("other", (1, "whole"), [(np.dtype("f8"),), np.dtype("i8")], "sm_90a")
    assert [kept.kept(*asked[:place], other, *asked[place + 1:]) for place, other in enumerate(others)] == 4 * [None]
    path, = (tmp_path / "kernels").iterdir()
    for broken in (b"", b"x", path.read_bytes()[:-9], zlib.compress(b"x"), zlib.compress(b""), zlib.compress(b"[1]"), zlib.compress(b'{"cubin": ""}')):
        path.write_bytes(broken)
        assert kept.kept(*asked) is None
    kept.keep(made, *asked)
    monkeypatch.setattr(kept, "_compilers", lambda: ("another version",))
    assert kept.kept(*asked) is None
    monkeypatch.setattr(kept, "MOST", 1)
    kept.keep(made, *asked)
    assert kept.kept(*asked) == made and len(list((tmp_path / "kernels").iterdir())) == 1


@needs_toolchain
def test_a_kernel_that_was_compiled_before_is_executed_without_compiling(monkeypatch, tmp_path):
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path))
    made, compilations = kernel("variance"), []
    monkeypatch.setattr(execute, "translated", lambda *asked: compilations.append(asked) or translated(*asked))
    given, file = made.given(drawn_case(made, 40)), execute.KernelFile(made.source)
    told = [binary for binary, _, _ in file.binaries(given, "sm_90a")]
    first, second = (each.run(given) for each in (file, execute.KernelFile(made.source)))
    assert [replace(binary, ptx="") for binary, _ in first.binaries] == told and all(binary.ptx for binary, _ in first.binaries)
    assert len(compilations) == 1 and second.binaries == first.binaries and np.array_equal(first.outputs, second.outputs)


FILE = """
from numba import cuda
def adding(number):
    @cuda.jit(device=True)
    def added(x):
        return x + number + MORE
    return added
added = adding(2)
@cuda.jit(device=True)
def first(x):
    return added(x) * (1, 3)[1]
def make(by):
    @cuda.jit
    def kernel(x):
        x[cuda.threadIdx.x] = first(x[cuda.threadIdx.x]) * by
    return kernel
MORE = 0
"""


@needs_toolchain
@pytest.mark.parametrize(("old", "new", "both"), [
    ("", "\n\n", (True, True)), ("MORE = 0", "MORE = False", (False, False)), ("MORE = 0", "MORE = 0.0", (False, False)), ("adding(2)", "adding(2.0)", (False, False)),
    ("x + number", "x - number", (False, False)), ("(1, 3)", "(1, 3.0)", (True, False)), ("added(x) *", "added(x) +", (True, False)), ("device=True", "device=True, forceinline=True", (False, False))])
def test_functions_that_files_write_alike_are_one(old, new, both):
    """Whatever a function refers to tells it from others; where it stands does not."""
    def functions(text):
        names = {}
        exec(text, names)
        kernel = names["make"](1)
        unified(kernel.py_func)
        return names["added"], names["first"]

    assert tuple(a is b for a, b in zip(functions(FILE), functions(new + FILE if old == "" else FILE.replace(old, new)), strict=True)) == both


@needs_toolchain
def test_so_many_functions_are_remembered(monkeypatch):
    """Those that are met again stay; what was forgotten is met as if for the first time."""
    monkeypatch.setattr(alike, "MOST", 2)
    monkeypatch.setattr(alike, "_MET", OrderedDict())
    texts = [FILE.replace("x + number", f"x + number * {n % 4}") for n in range(5)]
    files = [{} for _ in texts]
    for text, names in zip(texts, files, strict=True):
        exec(text, names)
        unified(names["make"](1).py_func)
    assert len(alike._MET) == 2 and files[0]["added"] is not files[4]["added"] and files[0]["added"] is not files[1]["added"]


@needs_toolchain
def test_what_was_compiled_for_one_file_serves_another(monkeypatch, tmp_path):
    """The fold of a variance is its own; its tiles are loaded as those of other rows, whatever the numbers they are called with."""
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path))
    files, compiled_for = [execute.KernelFile(kernel(name).source) for name in ("kurtosis", "variance")], []
    for name, file in zip(("kurtosis", "variance"), files, strict=True):
        file.run(kernel(name).given(drawn_case(kernel(name), 40)))
        compiled_for.append([*file.names["load"].overloads])
        assert not [each for name in ("load", "fold", "combine") for given in file.names[name].overloads for each in given if str(each).startswith("Literal")]
    one, two = (file.names for file in files)
    assert one["load"] is two["load"] and one["fold"] is not two["fold"] and compiled_for[0] == compiled_for[1]
