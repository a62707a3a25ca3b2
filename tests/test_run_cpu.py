"""Compiled CPU kernels: right for every layout and special value, vectorised, cached, safe in threads and after a fork."""

import gc
import itertools
import os
import re
import subprocess
import sys
import threading
import types
import warnings

import numba
import numpy as np
import pytest
from lowered import inputs, parts, verdict

import redfuser_algebra as ra
from redfuser_algebra.catalogue import operators
from redfuser_algebra.lower.arithmetic_cpu import prelude
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.lower.numba_cpu import print_cpu
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.run import cpu, inner, kernels, starting, threads
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.tolerance import agree

COMPILED = ("softmax_entropy", "variance", "causal_attention", "moe_routing", "layernorm", "argmax_argmin")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    before = os.environ.get("REDFUSER_CACHE_DIR")
    os.environ["REDFUSER_CACHE_DIR"] = str(tmp_path_factory.mktemp("kernels"))
    yield
    os.environ.pop("REDFUSER_CACHE_DIR") if before is None else os.environ.update(REDFUSER_CACHE_DIR=before)


def kernel(name, **types):
    fused = verdict(name).fused
    return kernels.kernel_for(fused.operator, fused.form, Signature({key: types.get(key, "f4") for key in operators[name].inputs}, {}))


def check(name, arrays, schedule=None, dtype="float32", scale=10.0):
    fused = verdict(name).fused
    arrays = {key: value.astype(dtype) if getattr(value, "dtype", None) == np.float64 else value for key, value in arrays.items()}
    binding = operators[name].bind(**arrays)
    got, expected = cpu.run_cpu(fused.operator, fused.form, binding, schedule), parts(reference(operators[name], binding))
    assert got is not None
    for a, b in zip(parts(got), expected, strict=True):
        assert agree(a, b, dtype, scale), (name, a, b)
        assert np.asarray(a).dtype in (np.dtype(dtype), np.dtype(np.int64))


STARTED = """
import gc, sys
from importlib.util import find_spec
import numpy as np
from numba.np import linalg
from redfuser_algebra.run.starting import start_numba
checks = linalg.ensure_blas
start_numba()
from numba import njit
from numba.np import arraymath
assert "scipy.linalg" not in sys.modules and linalg.ensure_blas is checks
assert arraymath._HAVE_BLAS is (find_spec("scipy") is not None)
eye = np.eye(2)
assert not arraymath._HAVE_BLAS or (njit(lambda x: np.dot(x, x))(eye) == eye).all() and "scipy.linalg" in sys.modules
"""


def test_numba_starts_without_blas_and_imports_it_for_those_who_call_it():
    subprocess.run([sys.executable, "-c", STARTED], check=True, timeout=100)


def test_numba_without_the_names_that_starting_relies_on_starts_by_itself(monkeypatch):
    monkeypatch.delattr("numba.np.linalg.ensure_blas")
    starting.start_numba()


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_again_after_a_first_call(collects):
    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), starting.uncollected():
            assert not gc.isenabled()
            with starting.uncollected():
                pass
            assert not gc.isenabled()
            1 / 0
        assert gc.isenabled() is collects
    finally:
        gc.enable()


@pytest.mark.parametrize("lacks", [False, True])
def test_what_is_called_often_is_sought_once_for_its_types_and_flags(lacks, monkeypatch):
    """What raises where it divides by 0, and what gives an infinity, is different code, whatever is remembered."""
    from numba import njit
    from numba.core.types.functions import BaseFunction
    from numba.extending import overload

    def inverse(x): ...

    overload(inverse)(lambda x: lambda x: 1.0 / x)
    seek, sought = BaseFunction.get_call_type, []
    monkeypatch.setattr(BaseFunction, "get_call_type", lambda *given: sought.append(str(given[2])) or seek(*given))
    if lacks:
        monkeypatch.delattr("numba.core.types.functions.BaseFunction")
    counting = BaseFunction.get_call_type
    with starting.remembered(), starting.remembered():
        raises, gives, raises_again = (njit(error_model=model)(lambda x: inverse(inverse(x))) for model in ("python", "numpy", "python"))
        assert [raises(4.0), gives(0.0), raises_again(4.0)] == [4.0, 0.0, 4.0]
    for each in (raises, raises_again):
        with pytest.raises(ZeroDivisionError):
            each(0.0)
    assert BaseFunction.get_call_type is counting
    assert (sought.count("(float64,)") > 2) is lacks


TWICE = """
from numba import njit


@njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
def twice(x):
    return 2 * x


@njit
def run(x):
    return twice(x) + 1
"""


@pytest.mark.parametrize("lacks", [False, True])
def test_functions_that_only_compiled_code_calls_become_a_part_of_it(lacks, monkeypatch):
    """They have no machine code of their own; a Numba without the names that this relies on compiles them by themselves."""
    inner._pipeline.cache_clear()
    if lacks:
        monkeypatch.delattr("numba.core.codegen.JITCodeLibrary")
    module = kernels.load(f"{TWICE}LACKS = {lacks}\n", "twice")
    assert module.run(20) == 41
    alone, whole = ([each.library.get_pointer_to_function(each.fndesc.llvm_func_name) for each in function.overloads.values()] for function in (module.twice, module.run))
    assert all(whole) and len(alone) == 1 and bool(alone[0]) is lacks


PRODUCT = prelude(["multiply(", "product(", "wide_vectors("]) + '''

@njit
def run(left, right, turns, into):
    panel = np.full((left.shape[1] + WIDE // into.itemsize, VECTORS * WIDE // into.itemsize), nan, into.dtype)
    multiply(left, right, turns, panel, into)


@njit
def masked(left, taken, right, into):
    product(left, taken, right, into)
'''


def test_products_of_every_shape(rng):
    """Around what registers hold: rows in sixes, columns in one or several vectors, and nothing outside is read or written.

    The last elements are taken once: what is beyond them, and is taken for them, would make infinite ones no numbers.
    """
    module = kernels.load(PRODUCT, "product")
    for _ in range(300):
        rows, summed, columns = (int(rng.choice(lengths)) for lengths in ((1, 2, 5, 6, 7, 12, 30), (1, 2, 7, 16, 33), (1, 15, 16, 17, 63, 64, 65, 145)))
        left, right, beyond = rng.normal(size=(rows, summed)), rng.normal(size=(summed, columns)), rng.normal(size=(rows + 2, columns))
        left, right, beyond = (each.astype(np.float32) for each in (left, right, beyond))
        left[-1, -1] = rng.choice((1, np.inf))
        turns, before = bool(rng.integers(2)), beyond.copy()
        module.run(left, right.T.copy() if turns else right, turns, beyond[1:-1])
        with np.errstate(invalid="ignore"):
            expected = left.astype(float) @ right + (0 if turns else before[1:-1])
        assert np.allclose(beyond[1:-1], expected, rtol=1e-5, atol=1e-5)
        assert (beyond[[0, -1]] == before[[0, -1]]).all()


def test_a_product_does_not_see_what_is_masked(rng):
    module = kernels.load(PRODUCT, "product")
    left, right, taken = rng.normal(size=(9, 20)), rng.normal(size=(20, 70)), rng.integers(2, size=(9, 20)).astype(bool)
    taken[:, 3], right[3], into = False, np.nan, np.zeros((9, 70))
    module.masked(np.where(taken, left, 0), taken, right, into)
    assert np.allclose(into, np.where(taken, left, 0) @ np.nan_to_num(right))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_ragged_lengths(name):
    for length in (1, 3, 31, 255, 1000):
        if length >= operators.entry(name).shortest:
            check(name, inputs(name, length))
            check(name, inputs(name, length), Schedule(64, 2, 2))


def test_damaged_files_of_compiled_code_are_compiled_anew(rng):
    fused, x = verdict("logsumexp").fused, rng.normal(size=40).astype("float32")
    compiled = cpu.planned(fused.operator, fused.form, fused.operator.bind(x), None, None).compiled
    check("logsumexp", {"x": x})
    kept = [*compiled.files, kernels.cache_folder() / f"{compiled.title}.py", kernels.cache_folder() / f"{compiled.title}.compiled"]
    for path in kept:
        path.write_bytes(b"no code \xff\x00")
    assert not compiled.is_cached
    for loaded in (kernels._ran.discard, sys.modules.pop, lambda title: compiled.__dict__.pop("module")):
        loaded(compiled.title)
    with warnings.catch_warnings(action="error"):
        check("logsumexp", {"x": x})
    assert kept and compiled.is_cached and all(b"no code" not in path.read_bytes() for path in kept)


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan])
def test_special_values(special):
    x = np.linspace(-3, 3, 40)
    x[7:19] = special
    check("softmax_entropy", {"x": x}, Schedule(8))
    check("softmax_entropy", {"x": np.full(40, special)}, Schedule(8))


def test_strided_reversed_and_broadcast_views(rng):
    x = rng.normal(size=(6, 80, 3)).astype(np.float32)
    for view in (x[:, ::2, 0], x[:, ::-1, 1], x.T, np.broadcast_to(x[0, :, 0], (5, 80))):
        check("softmax_entropy", {"x": view})


def test_a_large_mean_does_not_spoil_the_variance(rng):
    check("variance", {"x": (rng.normal(size=(4, 8192)) + 1e4).astype(np.float32)}, scale=1.0)


def test_a_pivot_that_sees_only_how_many_came_moves_from_tile_to_tile(rng):
    @ra.operator
    def left(x: "l"):
        """Σ (N − 1 − l) x, of which N is known at the end."""
        return ra.sum((ra.size("l") - 1 - ra.index("l")) * x, "l")

    fused = ra.fuse(left)
    for length in (1, 2, 1000, 70_000):
        x = rng.standard_normal(length)
        np.testing.assert_allclose(fused(x, backend="cpu"), reference(left, left.bind(x)), 1e-9)
    assert fused.kernel("cuda").audit().passed


@pytest.mark.parametrize("name", ["variance", "kurtosis", "correlation", "weighted_variance"])
def test_sums_in_float32_know_a_far_mean_and_leave_no_number_out(name, rng):
    """Spreads next to their mean down to the last bits, sorted data, outliers first; squares that overflow and underflow."""
    drawn = {key: rng.exponential(size=5000).astype(np.float32) for key in operators[name].inputs}
    outlier = {key: np.where(np.arange(5000) == 3, np.float32(1e6), value) for key, value in drawn.items()}
    for data in (drawn, {key: np.sort(value) for key, value in drawn.items()}, outlier):
        for offset in (0, 1e3, -1e5):
            check(name, {key: value if key == "w" else (value + offset).astype(np.float32) for key, value in data.items()}, Schedule(2048), scale=0.1)
    for size in (1e-42, 1e-25, 1e-18) + (() if "variance" in name else (1e12, 1e25, 1e34)):
        check(name, {key: value * np.float32(size) for key, value in drawn.items()}, Schedule(2048), scale=1e-3)


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan, 3e38])
def test_special_values_in_sums(special):
    x = np.linspace(-3, 3, 40)
    for place in (0, 7, 39):
        x[place] = special
        check("kurtosis", {"x": x}, Schedule(16))
        check("correlation", {"x": x, "y": np.arange(40.0)}, Schedule(16))


def the_largest(x: "l", y: "l", k: int = 6):
    return tuple(ra.topk(x, "l", k, where=y > 0))


HARD = {"numbers": lambda x: x, "equal": np.zeros_like, "few values": np.round, "close": lambda x: 1 + 1e-7 * x, "tiny": lambda x: 1e-42 * x,
        "zeros": lambda x: np.copysign(0.0, x), "rising": np.sort, "nothing": lambda x: np.full_like(x, -np.inf), "nan": lambda x: np.full_like(x, np.nan),
        "some nan": lambda x: np.where(x > 0.9, np.nan, x), "infinities": lambda x: np.where(abs(x) > 1, np.copysign(np.inf, x), x)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_are_found_in_order(dtype, rng):
    fused = ra.fuse(ra.operator(the_largest))
    kernels = [fused.kernel("cpu", dtype=dtype, schedule=Schedule(tile=tile)) for tile in (64, 257, 8192)]
    for hard, length, k in itertools.product(HARD, (7, 64, 65, 1000), (1, 6, 70)):
        x, y = HARD[hard](rng.standard_normal((2, length))).astype(dtype), rng.standard_normal((2, length)).astype(dtype)
        y[:, length // 2:length // 2 + k] = 1.0
        if (y > 0).sum(-1).min() >= k:
            expected = fused(x, y, k=k, backend="reference")
            for kernel in kernels:
                for got, right in zip(kernel(x, y, k=k), expected, strict=True):
                    assert np.array_equal(got, right, equal_nan=True), (hard, length, k, kernel.schedule)


def test_the_loops_become_vectors():
    """Sums, maxima and exponentials of float32 in packed instructions, and no call of the C library for one element."""
    x = np.ones((2, 64), np.float32)
    for name, packed in (("softmax_entropy", (r"v?maxps", r"v?mulps|vfn?m\w+ps")), ("variance", (r"v?subps", r"v?mulps|vfm\w+ps"))):
        made = kernel(name)
        made.module.sweep(0, 2, 64, 1, np.arange(2), x, 64, np.empty(2, np.float32))
        assembly = "".join(made.module.sweep.inspect_asm().values())
        assert all(re.search(each, assembly) for each in packed) or "aarch64" in assembly, name
        assert not re.search(r"\bexpf\b", assembly), "a call into libm"


@pytest.mark.parametrize(("name", "dtype", "bits"), [("exp4", np.float32, np.uint32), ("exp8", np.float64, np.uint64)])
def test_the_exponential_is_within_two_units_in_the_last_place(name, dtype, bits, rng):
    module = kernels.load(print_cpu(lower(operators["softmax"], verdict("softmax").fused.form),
                                Signature({"x": "f4" if name == "exp4" else "f8"}, {})).text, "softmax")
    inner = getattr(module, name)
    exponential = numba.njit(lambda x: inner(x))
    largest = 88.0 if dtype == np.float32 else 709.0
    x = np.concatenate([rng.uniform(-largest, largest, 3000), rng.uniform(-1, 1, 1000), rng.uniform(-1.2 * largest, -largest, 500)]).astype(dtype)
    got = np.array([exponential(each) for each in x])
    right = np.exp(x.astype(np.longdouble))
    tiny = 2.0**-125 if dtype == np.float32 else 0.0
    assert np.max((np.abs(got - right) / np.spacing(right.astype(dtype)))[right > tiny]) <= 2
    assert np.max(np.abs(got - right)[right <= tiny], initial=0.0) <= tiny
    assert [exponential(dtype(v)) for v in (-np.inf, np.inf, 0.0)] == [0.0, np.inf, 1.0] and np.isnan(exponential(dtype(np.nan)))


def test_prange_and_shared_sweeps_give_the_same_bits(rng):
    made = kernel("variance")
    x, out, again = rng.normal(size=(9, 300)).astype(np.float32), np.empty(9, np.float32), np.empty(9, np.float32)
    which = np.arange(9)
    made.module.kernel(2, 9, 128, 1, which, x, 300, out)
    made.module.sweep(0, 9, 128, 1, which, x, 300, again)
    assert np.array_equal(out, again)


def test_many_threads_call_at_once(rng):
    fused = verdict("variance").fused
    x = rng.normal(size=(8, 64, 100)).astype(np.float32)
    got = [None] * 8

    def work(place):
        for _ in range(5):
            got[place] = fused(x[place], backend="cpu")

    callers = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    [caller.start() for caller in callers]
    [caller.join() for caller in callers]
    assert np.allclose(got, x.var(-1), rtol=1e-5)


def test_parts_are_done_once_where_no_worker_is_free_and_failures_come_last(monkeypatch):
    monkeypatch.setattr(threads, "MOST_THREADS", 3)
    done = []
    threads.side_by_side(lambda part: threads.side_by_side(lambda inner: done.append((part, inner)), 4), 5)
    assert sorted(done) == [(part, inner) for part in range(5) for inner in range(4)]
    for failing in range(4):
        done.clear()
        with pytest.raises(ZeroDivisionError):
            threads.side_by_side(lambda part, failing=failing: 1 // (part - failing) if part == failing else done.append(part), 4)
        assert set(done) >= {part for part in (1, 2) if part != failing}
    assert len(threads._free) == len(threads._hired)


@pytest.mark.skipif(not threads.PLACED, reason="this system chooses processors by itself")
@pytest.mark.parametrize("here", [0, 5])
def test_workers_sit_where_the_caller_may_but_is_not(here, monkeypatch):
    asked = {}
    monkeypatch.setattr(threads, "_here", lambda: here)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5, 7, 9})
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, places: asked.update({thread: set(places)}))
    threads._take_places([types.SimpleNamespace(native_id=number) for number in (11, 12)])
    assert asked.keys() == {11, 12} and asked[11] | asked[12] == {0, 2, 5, 7, 9} - {here} and not asked[11] & asked[12]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {here})
    threads._take_places([types.SimpleNamespace(native_id=11)])
    assert asked[11] == {here}, "the caller's choice holds for its workers"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_kernel_works_in_a_forked_child():
    program = """
import os, numpy as np, redfuser_algebra as ra
fused, x = ra.fuse(ra.operators["variance"]), np.arange(12.0, dtype=np.float32).reshape(4, 3)
first = fused(x, backend="cpu")
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(fused(x, backend="cpu"), first) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=300)


@pytest.mark.parametrize("directory, why", [(True, "numba"), (False, "working directory, which was deleted")])
def test_without_numba_numpy_runs_and_one_warning_says_so(monkeypatch, directory, why):
    """Nor is there a kernel in a working directory that was deleted: Numba writes the names of files from there."""
    def nowhere():
        raise FileNotFoundError

    def broken(text, name):
        raise ImportError("no module named numba")

    monkeypatch.setattr(kernels, "load", broken)
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(kernels, "_warned", [])
    monkeypatch.setattr("os.getcwd", os.getcwd if directory else nowhere)
    fused = verdict("variance").fused
    with pytest.warns(RuntimeWarning, match=f"no CPU kernel for variance.*{why}") as caught:
        assert fused([1.0, 3.0], backend="cpu") == 1.0
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert verdict("softmax").fused([1.0, 1.0], backend="cpu")[0] == 0.5


def test_other_source_is_another_module():
    first, second = kernels.load("value = 1\n", "same"), kernels.load("value = 2\n", "same")
    assert (first.value, second.value) == (1, 2)


def test_auto_compiles_where_the_work_is_worth_it_and_uses_what_is_compiled(monkeypatch):
    fused, asked = verdict("variance").fused, []
    monkeypatch.setattr("redfuser_algebra.run.repeated_calls.attempted", lambda *given: asked.append(1))
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(kernels, "_ran", set())
    monkeypatch.setenv("REDFUSER_CACHE_DIR", os.environ["REDFUSER_CACHE_DIR"] + "/empty")
    small, large = np.zeros(100, np.float32), np.zeros((2, 1 << 23), np.float32)
    fused(small)
    assert not asked
    monkeypatch.setattr(cpu, "COMPILES", large.size)
    fused(large)
    assert len(asked) == 1
    kernel("variance").has_run()
    fused(small)
    assert len(asked) == 2


def test_a_kernel_that_does_not_compile_is_told_once_and_numpy_runs(monkeypatch):
    def broken(*given):
        raise TypeError("cannot compile this")

    monkeypatch.setattr(kernels, "load", lambda text, name: type("Module", (), {"sweep": staticmethod(broken), "fold": staticmethod(broken)}))
    monkeypatch.setattr(kernels.Compiled, "files", [])
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(kernels, "_warned", [])
    fused = verdict("variance").fused
    with pytest.warns(RuntimeWarning, match="TypeError: cannot compile this"):
        assert fused([1.0, 3.0], backend="cpu") == 1.0
    assert fused([1.0, 3.0], backend="cpu") == 1.0
