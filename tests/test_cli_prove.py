"""`redfuser prove`: certificates and refusals from the command line, their files, exit codes, and Ctrl-C."""

import json

import pytest

import redfuser_algebra as ra
from redfuser_algebra import cli
from redfuser_algebra.prove import by_examples, certificate_text
from redfuser_algebra.prove.certificate import Certificate
from redfuser_algebra.prove.witness import Witness

QUICK = ("--examples", "5")


def prove(capsys, *words):
    code = cli.status_of(["prove", *words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("target, code, said", [
    ("count_max", 0, "count_max: fusable (reset): proved and tested"),
    ("sum(exp(x - max(x, l)), l)", 0, "formula: fusable (rank-1): proved and tested"),
    ("mean_absolute_deviation", 1, "mean_absolute_deviation: not fusable (unbounded-rank): proved by a witness, computed again"),
    ("count_above_mean", 1, "count_above_mean: not fusable (threshold): proved by a witness, computed again"),
    ("sum(x % max(x, l), l)", 3, "formula: undecided (no law applies): not proved"),
])
def test_the_exit_code_tells_the_verdict(capsys, target, code, said):
    found, out, err = prove(capsys, target, *QUICK)
    assert (found, out.splitlines()[0], err) == (code, said, "")


@pytest.mark.parametrize("words, complaint", [
    (["softmaxx"], "did you mean softmax"), (["sum(x,"], "'(' was never closed"), (["nowhere.py"], "nowhere.py"),
    (["count_max", "--examples", "0"], "examples"), (["count_max", "--seed", "-1"], "seed"),
    (["count_max", "-o", "proof.doc"], ".json, .md, .html"), (["count_max", "--axis", "m"], "no reduction over that axis"),
])
def test_bad_input_is_one_message(capsys, words, complaint):
    code, out, err = prove(capsys, *words)
    assert code == 2 and complaint in err and "Traceback" not in err and out == ""


def test_every_obligation_has_a_line(capsys):
    _, out, _ = prove(capsys, "variance", *QUICK)
    shown = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    asked = ra.fuse(ra.operators["variance"]).certify(examples=5)
    assert {row.id for row in asked.rows} <= shown and asked.hash in out
    sentence = " ".join(out.split())
    assert "Next to 10⁸, float32 numbers are 8 apart" in sentence and "which no way of computing can undo" in sentence


def test_json_is_a_certificate_and_the_seed_and_the_examples_count(capsys):
    _, out, _ = prove(capsys, "softmax", "--json", "--seed", "3", *QUICK)
    found = Certificate.from_json(out)
    assert (found.seed, found.examples) == (3, 5)
    assert found == ra.fuse(ra.operators["softmax"]).certify(examples=5, seed=3)


def test_json_of_a_refusal_holds_the_witness(capsys):
    code, out, _ = prove(capsys, "quant_gemm", "--json")
    record = json.loads(out)
    assert code == 1 and record["rechecked"] is True and record["passes"] == [["m2"], ["s"]]
    assert len(record["witness"]["determinants"]) >= 8


@pytest.mark.parametrize("suffix, begins", [(".json", "{"), (".md", "# Certificate: count_max"), (".html", "<!DOCTYPE html>")])
def test_a_certificate_is_written_to_a_file(capsys, tmp_path, suffix, begins):
    path = tmp_path / f"count_max{suffix}"
    code, _, _ = prove(capsys, "count_max", "-o", str(path), *QUICK)
    assert code == 0 and path.read_text(encoding="utf-8").startswith(begins)


@pytest.mark.parametrize("suffix", certificate_text.SUFFIXES)
def test_a_refusal_is_written_to_a_file(capsys, tmp_path, suffix):
    path = tmp_path / f"refused{suffix}"
    assert prove(capsys, "relu_about_mean", "-o", str(path))[0] == 1
    assert "relu_about_mean" in path.read_text(encoding="utf-8") and "1/27" in path.read_text(encoding="utf-8")


def test_markdown_is_the_whole_certificate(capsys):
    _, out, _ = prove(capsys, "count_max", "--markdown", *QUICK)
    assert out.rstrip() == ra.fuse(ra.operators["count_max"]).certify(examples=5).to_markdown().rstrip()


TWO = '''import redfuser_algebra as ra


@ra.operator
def largest(x: "l"):
    return ra.max(x, "l")


@ra.operator
def above(x: "l"):
    return ra.sum(ra.maximum(x - ra.mean(x, "l"), 0), "l")
'''


def test_a_file_with_two_operators_gives_two_proofs_and_the_worse_code(capsys, tmp_path):
    path = tmp_path / "two.py"
    path.write_text(TWO, encoding="utf-8")
    code, out, _ = prove(capsys, str(path), "--json", *QUICK)
    assert code == 1 and [record["status"] for record in json.loads(out)] == ["proved and tested", "not fusable"]
    code, _, err = prove(capsys, str(path), "-o", str(tmp_path / "both.json"))
    assert code == 2 and "it holds 2 operators: largest, above" in err


def test_ctrl_c_keeps_what_was_established(capsys, monkeypatch):
    seen = []
    compared = by_examples.checked

    def interrupted(trial, obligation):
        seen.append(obligation)
        if len(seen) > 60:
            raise KeyboardInterrupt
        return compared(trial, obligation)

    monkeypatch.setattr(by_examples, "checked", interrupted)
    code, out, err = prove(capsys, "softmax", "--json")
    kept = Certificate.from_json(out)
    assert code == 130 and err == "" and kept.status == "incomplete"
    assert kept.row("rebase:s").by("proved") and 0 < kept.row("rebase:s").by("tested")[0].detail["examples"] < 40
    assert {"infinities", "floats"} <= {row.id for row in kept.unseen}
    seen.clear()
    code, out, _ = prove(capsys, "softmax")
    assert code == 130 and "not looked at\n  infinities" in out


def test_ctrl_c_at_once_leaves_everything_to_look_at(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("redfuser_algebra.prove.certificate.derived", interrupted)
    code, out, _ = prove(capsys, "softmax", "--json")
    kept = Certificate.from_json(out)
    assert code == 130 and len(kept.unseen) == len(kept.rows)


def test_a_witness_that_fails_is_a_fault(capsys, monkeypatch):
    monkeypatch.setattr(Witness, "recheck", lambda self: False)
    code, out, _ = prove(capsys, "count_above_mean")
    assert code == 70 and "the witness does not prove it" in out
