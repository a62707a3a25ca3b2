"""`redfuser bench`: contestants are checked before they are timed, the missing are told, and Ctrl-C keeps what there is.

Nothing here says how long anything takes: clocks are counters.
"""

import itertools
import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import redfuser_algebra as ra
from redfuser_algebra.bench import commands, levels, measure, peers, plot, report, scaling
from redfuser_algebra.bench.measure import Measured, Timed
from redfuser_algebra.bench.workloads import COMPILERS, COPY, READS, ROW_SUM, WORKLOADS, Target
from redfuser_algebra.cli import status_of
from redfuser_algebra.lower.schedule import LEVELS

SIMPLE = replace(WORKLOADS["variance"], name="simple", quick=(3, 40), shape=(4, 50), peers={
    "numpy": lambda x: x.var(-1), "scipy": lambda scipy, x: x.var(-1) * 1.01, "torch": lambda torch, x: torch.nothing(x),
    "jax": lambda jax, x: x.var(-1), "row_sum": lambda x: x.sum(-1)})


@pytest.fixture(autouse=True)
def without_compilers(monkeypatch):
    """Kernels are not compiled here, and no garbage is collected; torch is broken, and JAX is missing."""
    def kernel(workload, arrays):
        fused = ra.fuse(workload.operator())
        return lambda: fused(**arrays, **workload.scalars, backend="numpy")

    found = {"numpy": np, "scipy": "stand-in", "torch": "stand-in"}
    ours = [replace(peer, prepare=lambda module, function, arrays: lambda: function(module, **arrays)) if peer.module != "numpy" else peer
            for peer in peers.PEERS]
    library = lambda module: {"scipy": np, "torch": np}.get(module, found.get(module, "not installed (no module)"))
    monkeypatch.setattr(measure, "_kernel", kernel)
    monkeypatch.setattr(measure, "READS", READS | {"reading": lambda **arrays: READS["torch_reading"](np, **arrays)})
    monkeypatch.setattr(measure.gc, "collect", lambda: None)
    monkeypatch.setattr(measure, "PEERS", ours)
    for module in (measure, report, peers):
        monkeypatch.setattr(module, "library", library)
    monkeypatch.setattr(peers, "equal_threads", lambda number: nullcontext())
    monkeypatch.setattr(commands, "WORKLOADS", {"simple": SIMPLE, "other": replace(SIMPLE, name="other")})
    monkeypatch.setattr(commands, "OTHERS", {})


@pytest.fixture
def redfuser(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return status_of(list(map(str, words))), *capsys.readouterr()

    return run


def ticking():
    """A clock that moves by one at every look: every call takes a second."""
    return itertools.count().__next__


# --- contestants ----------------------------------------------------------------------------------------------------


def test_contestants_are_checked_before_they_are_timed():
    row = measure.measured(SIMPLE, runs=2, clock=ticking())
    found = row.contestants
    assert set(found) == {"redfuser", "reading alone", "reading alone, torch", "NumPy", "SciPy", "torch eager", "torch.compile", "JAX jit", "row sum"}
    assert found["redfuser"].times == [1000, 1000] and found["redfuser"].error < 1e-6 and found["redfuser"].why == ""
    assert found["SciPy"].times == [] and 0.009 < found["SciPy"].error < 0.011 and found["SciPy"].why.startswith("wrong: ")
    assert found["torch eager"].times == [] and found["torch eager"].why.startswith("failed: AttributeError")
    assert found["JAX jit"].times == [] and found["JAX jit"].why == "not installed (no module)"
    assert found["row sum"].milliseconds == 1000 and found["row sum"].error is None
    assert found["SciPy"].milliseconds is None


@pytest.mark.parametrize("made, said", [
    (lambda x: x.var(-1)[:2], "wrong"), (lambda x: x.var(-1) * np.nan, "wrong"), (lambda x: (x.var(-1), x), "wrong"),
])
def test_other_shapes_and_nan_are_wrong(made, said):
    def checked(function):
        return measure.measured(replace(SIMPLE, peers={**SIMPLE.peers, "scipy": lambda _, x: function(x)}), runs=1).contestants["SciPy"]

    assert checked(made).why.startswith(said) and not checked(made).times
    assert checked(lambda x: x.var(-1)).times


def test_turns_are_taken_and_slow_contestants_leave():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    clock = iter(itertools.accumulate(itertools.cycle([0, 0.7]))).__next__
    contestants = {name: Timed() for name in calls}
    measure._take_turns(calls, contestants, 6, clock)
    assert "".join(order) == "abcbcacab" and [len(each.times) for each in contestants.values()] == [3, 3, 3]


def test_ratios_are_of_medians_and_to_the_fastest():
    times = {"redfuser": [2.0, 9.0, 1.0], "torch.compile": [5.0], "JAX jit": [4.0, 4.0], "row sum": []}
    row = Measured("w", (1,), {name: Timed(times=each) for name, each in times.items()}, ())
    assert row.ours == 2.0 and row.ratio(Target(COMPILERS, 0.5)) == 0.5
    assert row.ratio(Target(ROW_SUM, 1.2)) is None and row.ratio(Target(("NumPy",), 1.0)) is None


def test_reading_takes_what_the_fastest_takes_that_reads_all():
    """Floors may read less than all inputs; a contestant that is faster than the sum of them has read them, too."""
    times = {"redfuser": [3.0], "JAX jit": [6.0], "reading alone": [2.0], "row sum": [1.0]}
    row = Measured("w", (1,), {name: Timed(times=each) for name, each in times.items()}, ())
    assert row.reading == 2.0 and row.allowed(Target(COMPILERS, 0.5)) == 1 / 3 and row.allowed(Target(("NumPy",), 1.0)) is None
    row.contestants["reading alone"].times = [5.0]
    assert row.reading == 3.0 and row.allowed(Target(COMPILERS, 0.5)) == row.ratio(Target(COMPILERS, 0.5)) == 0.5


def test_sums_of_all_inputs_are_read():
    x, y = np.arange(6.0).reshape(2, 3), np.arange(4)
    assert [float(each) for each in READS["reading"](x=x, y=y)] == [15.0, 6.0] == READS["torch_reading"](np, x=x, y=y)


@pytest.mark.parametrize("target, said", [
    (Target(ROW_SUM, 1.15), "≤ 1.15 × row sum"), (Target(COMPILERS, 1 / 1.8), "≥ 1.8 × faster than the best of torch.compile, JAX jit"),
    (Target(COPY, 1.3), "≤ 1.3 × copy"), (Target(("torch SDPA",), 1.1), "≤ 1.1 × torch SDPA")])
def test_targets_say_what_they_ask(target, said):
    assert str(target) == said


# --- the table of workloads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_operator_of_a_workload_is_its_numpy_function(name):
    workload = WORKLOADS[name]
    shape = tuple(min(size, 64) for size in workload.quick)
    arrays = workload.draw(np.random.default_rng(0), shape)
    row = measure.measured(replace(workload, peers={"numpy": workload.peers["numpy"]}), shape, 1)
    assert row.contestants["redfuser"].why == "" and row.contestants["NumPy"].why == ""
    assert all(array.dtype in (np.float32, np.int64) for array in arrays.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("module", ["scipy", "torch", "jax"])
def test_peers_that_are_installed_compute_the_same(name, module, monkeypatch):
    found = pytest.importorskip(module)
    workload = WORKLOADS[name]
    keys = {"scipy": ("scipy",), "torch": ("torch", "sdpa", "torch_row_sum", "torch_copy"), "jax": ("jax",)}[module]
    arrays = workload.draw(np.random.default_rng(0), workload.quick)
    wide = {key: array.astype(float) if array.dtype.kind == "f" else array for key, array in arrays.items()}
    prepare = {"scipy": peers._scipy, "torch": peers._eager, "jax": peers._jit}[module]
    for key in keys[:2]:
        if key in workload.peers:
            got = prepare(found, workload.peers[key], arrays)()
            assert measure.distance(measure.parts(got), measure.parts(workload.peers["numpy"](**wide))) <= measure.TOLERANCE


def test_the_workloads_are_those_that_were_promised():
    assert {name: workload.shape for name, workload in WORKLOADS.items() if "attention" in name} == {
        "attention": (8, 1024, 1024, 64), "attention-causal": (8, 1024, 1024, 64), "attention-decode": (8, 1, 32768, 64)}
    assert {workload.shape for workload in WORKLOADS.values() if len(workload.shape) == 2} == {(4096, 8192), (8192, 64), (4096, 4096)}
    assert [name for name, workload in WORKLOADS.items() if workload.shape == (10_000_000,)] == ["kurtosis", "covariance", "correlation", "inertia"]
    assert len(WORKLOADS) == 22 and all(workload.targets for workload in WORKLOADS.values())


# --- what is shown and written --------------------------------------------------------------------------------------


def test_the_command_shows_a_table_and_what_was_not_timed(redfuser):
    code, out, err = redfuser("bench", "simple", "--quick", "--runs", 1)
    head, row, *rest = out.splitlines()
    assert code == 0 and head.split()[:2] == ["workload", "shape"] and row.split()[:4] == ["simple", "3", "×", "40"]
    assert "wrong" in row and "failed" in row and "missing" in row
    assert any(line.startswith("SciPy wrong: ") and line.endswith("(simple)") for line in rest)
    assert "JAX jit not installed (no module)" in rest and rest[-1].startswith(("1 workloads: ", "missed: "))


def test_json_report_and_plot(redfuser, tmp_path):
    pytest.importorskip("matplotlib")
    code, out, err = redfuser("bench", "--shape", "5x60", "--runs", 1, "--json", "b.json", "--report", "b.md", "--plot", "b.png")
    record = json.loads((tmp_path / "b.json").read_text())
    assert code == 0 and err == ""
    assert set(record) == {"schema", "complete", "machine", "versions", "environment", "threads", "runs", "missing", "rows", "lengths", "compiled"}
    assert record["schema"] == report.SCHEMA and record["complete"] and record["missing"] == {"JAX jit": "not installed (no module)"}
    first, second = record["rows"]
    assert (first["workload"], second["workload"], first["shape"]) == ("simple", "other", [5, 60])
    assert set(first["contestants"]["NumPy"]) == {"milliseconds", "runs", "error", "why"} and first["contestants"]["NumPy"]["runs"] == 1
    assert first["contestants"]["SciPy"]["milliseconds"] is None and first["contestants"]["SciPy"]["why"].startswith("wrong")
    floor, compilers = first["targets"]
    assert set(floor) == {"of", "most", "ratio", "met", "allowed"} and floor["met"] == (floor["ratio"] <= floor["most"]) and compilers["met"] is None
    written = (tmp_path / "b.md").read_text()
    assert "| simple | 5 × 60 |" in written and "nothing to compare with" in written and "- SciPy wrong" in written
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_keeps_what_was_measured(redfuser, tmp_path, monkeypatch):
    first = measure.measured

    def stopped(workload, *given):
        if workload.name == "other":
            raise KeyboardInterrupt
        return first(workload, *given)

    monkeypatch.setattr(measure, "measured", stopped)
    code, out, err = redfuser("bench", "--quick", "--runs", 1, "--json", "b.json", "--report", "b.md")
    record = json.loads((tmp_path / "b.json").read_text())
    assert code == 130 and out.splitlines()[1].startswith("simple") and "; stopped before the end" in out and "Traceback" not in err
    assert [row["workload"] for row in record["rows"]] == ["simple"] and record["complete"] is False
    assert "stopped before its end" in (tmp_path / "b.md").read_text()


@pytest.mark.parametrize("words, said", [
    (["simpel"], "did you mean simple?"), (["zzz"], "choose from simple, other"), (["simple", "--shape", "4"], "its shape has 2 lengths, as in 4 × 50"),
    (["--shape", "4x-2"], "it is no list of lengths"), (["--plot", "b.txt"], "is no picture"), (["--json", "nowhere/b.json"], "is not a folder")])
def test_mistakes_are_told_in_one_message(redfuser, words, said):
    code, out, err = redfuser("bench", *words)
    assert code == 2 and out == "" and err.startswith("redfuser: ") and said in err and "Traceback" not in err


def test_missed_targets_are_listed():
    times = {"redfuser": [3.0], "torch.compile": [3.0], "reading alone": [1.5], "row sum": [2.0], "row sum, torch": [1.0]}
    targets = (Target(ROW_SUM, 1.15), Target(COMPILERS, 1.0), Target(COMPILERS, 1 / 2), Target(("NumPy",), 1.0))
    results = report.Results(2, 1, [Measured("w", (1,), {name: Timed(times=each) for name, each in times.items()}, targets)],
                             [scaling.Length(name, 1 << power, time) for name, power, time in (("v", 20, 10.0), ("v", 21, 60.0), (scaling.READING, 20, 10.0), (scaling.READING, 21, 30.0))],
                             [scaling.Compiled("v", 3.5, 0.1, 0.05, 0.1)])
    assert report.missed(results) == [
        "w: ≤ 1.15 × row sum, measured 3.00; reading alone allows 1.50",
        "w: ≥ 2 × faster than the best of torch.compile, JAX jit, measured 1.00; reading alone allows 2.00",
        "time linear in the length: an element takes 3.00 times as long at twice the length somewhere; where it is only read, 1.50", "compiling v: ≤ 3 s, measured 3.50 s"]
    assert report.summary(results) == "1 workloads: 1 of 3 targets met, 1 without a peer to compare with"
    head, (row,) = report.table(results.rows)
    assert dict(zip(head, row, strict=True)) == {
        "workload": "w", "shape": "1", "redfuser, ms": "3", "torch.compile": "1.00", "reading alone": "0.50", "row sum": "0.33",
        "targets": "≤ 1.15 × row sum: 3.00 MISSED; ≤ 1 × the best of torch.compile, JAX jit: 1.00 met; "
                   "≥ 2 × faster than the best of torch.compile, JAX jit: 1.00 MISSED; ≤ 1 × NumPy: nothing to compare with"}


# --- levels, lengths, first calls -----------------------------------------------------------------------------------


def a_level(level, milliseconds):
    return levels.Level("logsumexp", (2, 8), level, f"as {level}", milliseconds, 0.0)


def test_levels_are_shown_next_to_that_per_tile():
    rows = [(a_level("element", 6.0), a_level("tile", 2.0), a_level("split", 3.0))]
    head, (row,) = levels.table(rows)
    assert row == ["logsumexp", "2 × 8", "as tile", "6 (3.00)", "2 (1.00)", "3 (1.50)", ""] and head[-1] == "split at once, ms"
    assert levels.series(rows) == {"logsumexp\n2×8": {"element": 3.0, "tile": 1.0, "split": 1.5}}


@pytest.mark.slow
def test_levels_compute_the_same(redfuser, tmp_path):
    code, out, _ = redfuser("bench", "levels", "--quick", "--runs", 1, "--json", "l.json")
    rows = json.loads((tmp_path / "l.json").read_text())
    assert code == 0 and len(rows) == len(LEVELS) * len(levels.QUICK) and max(row["error"] for row in rows) < 1e-4
    assert [row["level"] for row in rows[:4]] == list(LEVELS) and rows[0]["schedule"].startswith("tiles of 1,")


@pytest.mark.slow
def test_lengths_and_first_calls():
    assert [row.length for row in scaling.lengths(["variance", scaling.READING], [4, 6], 1)] == [16, 64] * 2
    (row,) = scaling.compiled(["variance"])
    assert 0 < row.start < row.warm and 0 < row.cold and 0 < row.imported


def test_growth_is_measured_beyond_the_caches():
    rows = [scaling.Length("v", 1 << power, float(1 << power)) for power in (10, 17, 18)] + [scaling.Length("v", 1 << 11, 1e9)]
    assert scaling.steepest(rows) == 1.0 and scaling.steepest([]) == 1.0


def test_a_plot_needs_an_ending_it_knows(tmp_path):
    with pytest.raises(ra.OperatorError, match="is no picture"):
        plot.checked(tmp_path / "a.doc")


def test_help_lists_the_measurements(redfuser):
    code, out, _ = redfuser("bench", "--help")
    assert code == 0 and all(word in out for word in ("workloads", "levels", "discovery"))
