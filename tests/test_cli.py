"""The command `redfuser`: what it prints, its exit codes, the files it reads and writes, and how it tells a mistake."""

import importlib
import json
import os
import re
import sys

import numpy as np
import pytest

import redfuser_algebra as ra
from redfuser_algebra import __main__, cli
from redfuser_algebra.bench import demo, discovery
from redfuser_algebra.run import files
from redfuser_algebra.run.law_examples import example, explained

FUSED, REFUSED, BAD, UNDECIDED = 0, 1, 2, 3


class Told:
    def __init__(self, code, captured):
        self.code, self.out, self.err = code, captured.out, captured.err


@pytest.fixture
def redfuser(capsys):
    """Run a command line in this process: exit code, standard output and standard error."""
    def run(*words):
        return Told(cli.status_of(list(map(str, words))), capsys.readouterr())
    return run


def one_message(told):
    """Whether a failure was told once, in three parts, and nothing else was."""
    head, _, rest = told.err.partition(": ")
    return head == "redfuser" and ": " in rest and "; " in rest and told.out == "" and "Traceback" not in told.err


OPS = '''import redfuser_algebra as ra

@ra.operator
def spread(x: "l"):
    return ra.max(x, "l") - ra.min(x, "l")

@ra.operator
def deviation(x: "l"):
    return ra.sum(ra.abs(x - ra.mean(x, "l")), "l")
'''


@pytest.fixture
def folder(tmp_path, rng, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").write_text(OPS)
    np.save("q.npy", rng.standard_normal((2, 3, 4)))
    np.save("k.npy", rng.standard_normal((50, 4)).astype(np.float32))
    np.save("v.npy", rng.standard_normal((50, 5)))
    np.savetxt("x.csv", rng.standard_normal(20))
    return tmp_path


# --- fuse -----------------------------------------------------------------------------------------------------------


def test_ctrl_c_is_heard_while_the_command_is_imported(monkeypatch):
    class Pressed:
        def find_spec(self, name, *where):
            if name == "redfuser_algebra.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "redfuser_algebra.cli")
    monkeypatch.setattr(sys, "meta_path", [Pressed(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        importlib.reload(__main__)
    assert ended.value.code == 130


def test_fuse_prints_everything_about_a_form(redfuser):
    told = redfuser("fuse", "attention")
    assert told.code == FUSED and told.err == ""
    for line in (
        "attention: fusable (rank-1)", "cascade over l: 3 reductions, 2 passes as written", "m2' = max(m2, x)",
        "s2' = s2·exp(m2 − m2') + exp(x − m2')", "s2' = s2_a·exp(m2_a − m2') + s2_b·exp(m2_b − m2')",
        "one pass over l, 3 words of state per row, commutative merge",
    ):
        assert line in told.out
    titles = [line for line in told.out.splitlines() if line[:1].strip()]
    for title in ("elements", "state", "update by one element", "merge of two states a and b", "outputs", "guards", "facts",
                  "laws", "alternatives", "found in"):
        assert title in titles
    assert "exp_of_sum" in told.out and "--prefer raw" in told.out and "may overflow" in told.out and "e-nodes" in told.out


@pytest.mark.parametrize("target, code, said", [
    ("sum(exp(x - max(x, l)), l)", FUSED, "formula: fusable"),
    ("quant_gemm", REFUSED, "quant_gemm: not fusable (rounding)"),
    ("mean_absolute_deviation", REFUSED, "mean_absolute_deviation: not fusable (unbounded-rank)"),
    ("quant_gemm_reassociate", FUSED, "quant_gemm_reassociate: partly (rounding)"),
])
def test_fuse_exits_with_the_verdict(redfuser, target, code, said):
    told = redfuser("fuse", target)
    assert told.code == code and told.out.startswith(said)
    assert ("refusal" in told.out) == (code != FUSED)


def test_a_limit_that_is_hit_is_undecided(redfuser):
    told = redfuser("fuse", "variance", "--limit-nodes", 5)
    assert told.code == UNDECIDED and told.out.startswith("variance: undecided (limit)")


def test_prefer_raw_offers_the_centred_form_and_the_other_way_round(redfuser):
    raw, centred = redfuser("fuse", "variance", "--prefer", "raw"), redfuser("fuse", "variance")
    assert "x[l]²" in raw.out and "--prefer centred" in raw.out and "(x[l] − p1')²" not in raw.out
    assert "(x[l] − p1')²" in centred.out and "--prefer raw" in centred.out
    assert "alternatives" not in redfuser("fuse", "rmsnorm_gemm").out


def test_fuse_over_another_axis(redfuser):
    over_k = redfuser("fuse", "attention", "--axis", "k")
    assert over_k.code == FUSED and "fused over k" in over_k.out


def test_every_operator_of_a_file_is_fused_and_the_worst_verdict_counts(redfuser, folder):
    told = redfuser("fuse", "ops.py")
    assert told.code == REFUSED
    assert "spread: fusable" in told.out and "deviation: not fusable" in told.out


def test_json_is_data_whose_formulas_read_back(redfuser, folder):
    (record, second) = json.loads(redfuser("fuse", "ops.py", "--json").out)
    assert (record["operator"], record["status"], second["status"]) == ("spread", "fusable", "not fusable")
    assert second["form"] is None and "abs" in second["refusal"]
    record = json.loads(redfuser("fuse", "variance", "--json").out)
    assert ra.parse_operator(record["definition"]) == ra.operators["variance"]
    assert record["form"]["words"] == len(record["form"]["state"]) and record["nodes"] > 10
    assert record["form"]["update"] == ra.fuse(ra.operators["variance"]).form.update.splitlines()
    lifts = {c["name"]: ra.parse(c["lift"], {"x": ("l",)}).op for c in record["form"]["state"]}
    assert lifts["s"] == "input" and record["alternative"]["pivots"] == record["form"]["pivots"]


BAD_TARGETS = {
    "atention": "did you mean attention", "sum(exq(x), l)": "did you mean exp?", "sum(x": "column 4", "": "no result",
    "gone.py": "no such file", "broken.py": "broken.py, line 1: SyntaxError", "raises.py": "raises.py, line 2: ZeroDivisionError",
    "empty.py": "the file defines none", "axis.py": "axis.py, line 4", "x[l] + 1": "nothing to fuse",
}


@pytest.mark.parametrize("target", BAD_TARGETS)
def test_a_bad_target_is_told_in_one_message(redfuser, folder, target):
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "raises.py").write_text("x = 1\ny = x / 0\n")
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "axis.py").write_text('import redfuser_algebra as ra\n@ra.operator\ndef f(x: "l"):\n    return ra.sum(x, "n")\n')
    told = redfuser("fuse", target)
    assert told.code == BAD and one_message(told) and BAD_TARGETS[target] in told.err


@pytest.mark.parametrize("words", [["fuse"], ["fuse", "softmax", "--nope"], ["fuse", "softmax", "--prefer", "fast"], ["nope"],
                                   ["fuse", "softmax", "--limit-nodes", "0"], ["run", "softmax", "--chunk", "0"]])
def test_a_wrong_option_is_bad_input(redfuser, words):
    told = redfuser(*words)
    assert told.code == BAD and "Traceback" not in told.err and told.err != ""


# --- run ------------------------------------------------------------------------------------------------------------


def attention_of(folder):
    Q, K, V = (np.load(folder / f"{name}.npy").astype(float) for name in "qkv")
    S = Q @ K.T * 0.125
    P = np.exp(S - S.max(-1, keepdims=True))
    return P @ V / P.sum(-1, keepdims=True)


@pytest.mark.parametrize("chunk", [1, 7, 50, 4096])
def test_run_streams_files(redfuser, folder, chunk):
    told = redfuser("run", "attention", "--Q", "q.npy", "--K", "k.npy", "--V=v.npy", "--scale", "0.125",
                    "--chunk", chunk, "-o", "o.npy")
    assert told.code == FUSED, told.err
    assert np.allclose(np.load("o.npy"), attention_of(folder)) and "o.npy: float64 2 × 3 × 5" in told.out


def test_arrays_are_mapped_and_cut_before_they_are_read(redfuser, folder, monkeypatch):
    seen = []
    lifted = files.streamed

    def watched(fused, values, chunk, told):
        seen.extend(type(value) for value in values.values())
        return lifted(fused, values, chunk, lambda done, length: seen.append((done, length)))

    monkeypatch.setattr(files, "streamed", watched)
    redfuser("run", "weighted_mean", "--w", "v.npy", "--x", "v.npy", "--chunk", 2)
    assert seen[:2] == [np.memmap, np.memmap] and seen[2:] == [(0, 5), (2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("name, written", [
    ("o.npz", {"o.npz"}), ("o.npy", {"o_out1.npy", "o_out2.npy"}), ("o.csv", {"o_out1.csv", "o_out2.csv"}), ("o.txt", {"o_out1.txt", "o_out2.txt"}),
])
def test_several_outputs_have_names(redfuser, folder, name, written):
    before = set(os.listdir())
    told = redfuser("run", "count_max", "--x", "x.csv", "-o", name)
    assert told.code == FUSED and set(os.listdir()) - before == written
    values = np.load(name) if name == "o.npz" else {
        path.split("_")[1].split(".")[0]: np.load(path) if path.endswith("npy") else np.loadtxt(path) for path in written}
    assert values["out1"] == np.loadtxt("x.csv").max() and values["out2"] == 1


def test_maps_keep_the_axis(redfuser, folder):
    redfuser("run", "softmax", "--x", "x.csv", "-o", "o.csv", "--chunk", 6)
    x = np.exp(np.loadtxt("x.csv"))
    assert np.allclose(np.loadtxt("o.csv"), x / x.sum())


def test_without_an_output_results_are_printed(redfuser, folder):
    x = np.loadtxt("x.csv")
    assert redfuser("run", "max(x, l) - min(x, l)", "--x", "x.csv").out == f"out = {x.max() - x.min()}\n"


def test_tables_of_text_are_read_and_written(redfuser, folder):
    (folder / "t.csv").write_text("# two rows\n1,2,3\n4,5,6\n")
    (folder / "t.txt").write_text("1 2 3\n4 5 6\n")
    for name in ("t.csv", "t.txt"):
        assert redfuser("run", "f(x[b, l]): cumulative = sum(x, l); return x / cumulative", "--x", name, "-o", f"o_{name}").code == FUSED
    assert (folder / "o_t.csv").read_text().splitlines()[0].split(",") == [f"{part / 6:.17g}" for part in (1, 2, 3)]
    assert np.array_equal(np.loadtxt("o_t.csv", delimiter=","), np.loadtxt("o_t.txt"))


def test_named_results_keep_their_names(redfuser, folder):
    (folder / "named.py").write_text('import redfuser_algebra as ra\n@ra.operator\ndef f(x: "l"):\n'
                                     '    return {"low": ra.min(x, "l"), "high": ra.max(x, "l")}\n')
    redfuser("run", "named.py", "--x", "x.csv", "-o", "o.npz")
    assert sorted(np.load("o.npz")) == ["high", "low"]


RUN = ("run", "attention", "--Q", "q.npy", "--K", "k.npy", "--V")
BAD_RUNS = {
    "missing input": ((*RUN[:-1],), "V is missing"),
    "unknown name": ((*RUN, "v.npy", "--scal", "2"), "did you mean scale?"),
    "lengths differ": ((*RUN, "q.npy"), "make them equal"),
    "no such file": ((*RUN, "w.npy"), "no such file"),
    "no kind of file": ((*RUN, "v.mat"), "no known kind of file"),
    "objects": ((*RUN, "objects.npy"), "cannot be read"),
    "words": ((*RUN, "words.csv"), "cannot be read"),
    "nothing": ((*RUN, "empty.npy"), "cannot be read"),
    "no array": ((*RUN, "text.npy"), "as numpy.save writes it;"),
    "a folder": (("run", "folder", "--x", "x.csv"), "it is a folder"),
    "nothing as text": ((*RUN, "empty.csv"), "cannot be read"),
    "no number": ((*RUN, "v.npy", "--scale", "big"), "not a number"),
    "no option": ((*RUN, "v.npy", "scale", "2"), "not an option"),
    "no value": ((*RUN, "v.npy", "--scale"), "not an option with a value"),
    "twice": ((*RUN, "v.npy", "--V", "v.npy"), "given twice"),
    "no ending": ((*RUN, "v.npy", "-o", "result"), "no known kind of file"),
    "no folder": ((*RUN, "v.npy", "-o", "gone/o.npy"), "not a folder"),
    "several operators": (("run", "ops.py", "--x", "x.csv"), "it holds 2 operators"),
    "three dimensions as text": ((*RUN, "v.npy", "-o", "o.csv"), "rows and columns only"),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_a_bad_run_is_told_in_one_message_and_writes_nothing(redfuser, folder, case):
    np.save("objects.npy", np.array([{}, {}]), allow_pickle=True)
    (folder / "words.csv").write_text("a,b\nc,d\n")
    (folder / "text.npy").write_text("1 2 3")
    (folder / "folder").mkdir()
    for name in ("empty.npy", "empty.csv"):
        (folder / name).touch()
    before = set(os.listdir())
    told = redfuser(*BAD_RUNS[case][0])
    assert told.code == BAD and one_message(told) and BAD_RUNS[case][1] in told.err
    assert set(os.listdir()) == before


def test_an_operator_that_cannot_be_fused_is_not_run(redfuser, folder):
    told = redfuser("run", "sum(abs(x - mean(x, l)), l)", "--x", "x.csv", "-o", "o.npy")
    assert told.code == REFUSED and one_message(told) and "unbounded-rank" in told.err and not (folder / "o.npy").exists()


def test_negative_and_truth_valued_scalars(redfuser, folder):
    assert redfuser("run", "a * max(x, l)", "--x", "x.csv", "--a", "-2").out == f"out = {-2 * np.loadtxt('x.csv').max()}\n"
    assert files.scalar_from("a", "true") is True and files.scalar_from("a", "1e-3") == 1e-3


def test_an_interrupted_write_leaves_what_was_there(folder):
    (folder / "o.npy").write_text("old")

    def stopped(file):
        file.write(b"half")
        raise KeyboardInterrupt

    before = set(os.listdir())
    with pytest.raises(KeyboardInterrupt):
        files.written(folder / "o.npy", stopped)
    assert (folder / "o.npy").read_text() == "old" and set(os.listdir()) == before


# --- catalogue, explain, bench, demo --------------------------------------------------------------------------------


def test_the_catalogue_lists_every_operator(redfuser):
    names = {line.strip() for line in redfuser("catalogue").out.splitlines()}
    assert set(ra.operators) <= names and set(ra.operators.groups()) <= names


def test_the_catalogue_as_a_table_of_one_group(redfuser):
    told = redfuser("catalogue", "--group", "routing", "--table")
    head, _, *rows = (line.strip("| ").split(" | ") for line in told.out.splitlines() if line.startswith("|"))
    assert head == ["operator", "verdict", "reason", "state", "laws", "CPU", "CUDA"]
    assert [row[0] for row in rows] == list(ra.operators.groups()["routing"])
    softmax = next(row for row in rows if row[0] == "moe_routing")
    assert softmax[1] == "fusable" and "topk" in softmax[3] and softmax[5] == "yes"
    assert redfuser("catalogue", "--group", "rooting").code == redfuser("catalogue", "--list", "Oper").code == BAD
    assert "6 of 6 decided" in redfuser("catalogue", "--list", "RedFuser").out


def test_a_law_is_explained(redfuser):
    told = redfuser("explain", "max_scales_by_nonnegative")
    assert told.code == 0 and one_message(redfuser("explain", "max_scale"))
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in told.out.splitlines()[1:] if line.strip()}
    law = ra.LAWS["max_scales_by_nonnegative"]
    assert said["statement"] == f"{law.lhs} = {law.rhs}" and said["where"] == law.requires
    assert "reciprocal" not in said["example"] and said["needed"].startswith("by ")
    assert "recentre_difference" in redfuser("explain", "recentre_diff").err


@pytest.mark.parametrize("law, needed", [
    ("recentre_difference", "by softmax"), ("reset", "by count_max"), ("max_of_arctan", "by none of the operators tried here")])
def test_explain_names_an_operator_that_needs_the_law(redfuser, law, needed):
    assert re.search(rf"^  needed +{needed}", redfuser("explain", law).out, re.MULTILINE)


@pytest.mark.parametrize("name", ra.LAWS)
def test_examples_show_what_the_law_says(name):
    law = ra.LAWS[name]
    told, tried = dict(explained(law)), example(law)
    assert told["statement"] and " " in told["true"] and told["used"] != law.role
    if tried is None:
        assert "example" not in told
    else:
        equal = np.allclose(tried.left, tried.right, equal_nan=True)
        assert equal != (law.role == "disabled"), tried


def test_bench_discovery_has_a_row_per_operator(redfuser, folder):
    told = redfuser("bench", "discovery", "--group", "attention", "--runs", 1, "--json", "b.json")
    names = list(ra.operators.groups()["attention"])
    rows = json.loads((folder / "b.json").read_text())
    assert told.code == 0 and [row["operator"] for row in rows] == names
    assert [line.split()[0] for line in told.out.splitlines()[1:-1]] == names
    assert told.out.splitlines()[-1] == discovery.summary([discovery.Row(**row) for row in rows])


def test_a_refused_operator_has_a_row_without_words():
    (row,) = discovery.measured(["mean_absolute_deviation"], 1)
    assert (row.status, row.group, row.words) == ("not fusable", "outliers", None) and row.nodes > 0 < row.milliseconds


def test_bench_of_no_group_is_bad_input(redfuser):
    assert redfuser("bench", "discovery", "--group", "nope").code == BAD


SMALL = {
    "variance": lambda rng: {"x": 1e4 + rng.standard_normal(1000)},
    "fp8_gemm": lambda rng: {"X": rng.standard_normal((16, 500)), "W": rng.standard_normal((500, 32))},
}


def small(name):
    (workload,) = [workload for workload in demo.WORKLOADS if workload.name == name]
    return type(workload)(**(vars(workload) | {"draw": SMALL[name], "chunk": 64}))


@pytest.mark.parametrize("name", SMALL)
def test_the_demo_shows_the_rule_and_the_error(redfuser, monkeypatch, name):
    monkeypatch.setattr(demo, "WORKLOADS", (small(name),))
    told = redfuser("demo")
    assert told.code == 0 and "1 of 1 agree with NumPy" in told.out
    assert "s' " in told.out and "streamed in" in told.out and "agrees" in told.out
    assert ("as written: not fusable" in told.out) == (name == "fp8_gemm")


@pytest.mark.parametrize("name, reference", [
    ("variance", lambda x: x.var() * (1 + 1e-8)),
    ("fp8_gemm", lambda X, W: X @ W),
    ("fp8_gemm", lambda X, W: demo._fp8_reference(X, W) + 100),
])
def test_the_demo_fails_when_results_are_apart(redfuser, monkeypatch, name, reference):
    operator = demo._operator(name)[0]
    monkeypatch.setattr(demo, "WORKLOADS", (small(name),))
    monkeypatch.setattr(demo, "_operator", lambda _: (operator, reference))
    told = redfuser("demo")
    assert told.code == 1 and "DIFFERS" in told.out and "0 of 1" in told.out


def test_the_demo_has_the_six_workloads():
    assert [workload.name for workload in demo.WORKLOADS] == [
        "attention", "mla", "moe_routing", "fp8_gemm", "variance", "moment_of_inertia"]


def test_the_demo_s_fp8_reference_rounds_as_the_package_does(rng):
    X, W = rng.standard_normal((3, 50)) * np.geomspace(1e-4, 10, 50), rng.standard_normal((50, 2))
    fused = ra.fuse(demo._fp8_gemm(reassociate=True))
    assert np.allclose(demo._fp8_reference(X, W), fused(X, W, backend="reference"), rtol=1e-12)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, cli.typer.Abort])
def test_being_stopped_is_130_whichever_way_it_is_told(redfuser, monkeypatch, stop):
    def stopped(*_, **__):
        raise stop

    monkeypatch.setattr(cli, "app", stopped)
    told = redfuser("fuse", "softmax")
    assert (told.code, told.err) == (130, "redfuser: stopped\n")


def test_a_fault_of_the_package_is_not_taken_for_a_verdict(redfuser, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(ra, "decide", broken)
    told = redfuser("fuse", "softmax")
    assert told.code == 70 and "ZeroDivisionError: inside" in told.err and "please report" in told.err


def test_help_names_the_commands(redfuser):
    told = redfuser("--help")
    assert told.code == 0
    for command in ("fuse", "run", "catalogue", "explain", "demo", "bench", "lab"):
        assert command in told.out
