"""Exported proofs: they pass on their own, say the same twice, know nothing of this package, and catch what is spoilt."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from lowered import verdict

import redfuser_algebra as ra
from redfuser_algebra import cli
from redfuser_algebra.prove.export.blocks import WIDTH, wrapped
from redfuser_algebra.prove.export.proof_module import NoProof, proof_module

FOLDER = Path(__file__).resolve().parent.parent / "proofs"
SAMPLE = ("softmax", "attention", "variance", "weighted_variance", "count_max", "value_at_argmax", "topk_mean_fixed", "prod_scaled",
          "mean_absolute_deviation", "count_above_mean")
ORDERED = ("lindley_wait", "bracket_balance", "attn_gated_linear", "runs_and_streaks")
ALLOWED = {"typing", "numpy", "sympy", "hypothesis", "mpmath", "fractions", "math"}
OTHERS = sorted({path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py")} - {*SAMPLE, *ORDERED})


@cache
def text(name):
    return proof_module(verdict(name))


def failures(source):
    """The tests of a module that do not pass, by name."""
    space = {}
    exec(compile(source, "exported", "exec"), space)
    failed = []
    for name, test in space.items():
        if name.startswith("test_"):
            try:
                test()
            except Exception:
                failed.append(name)
    return failed


@pytest.mark.parametrize("name", [*SAMPLE, *ORDERED])
def test_an_exported_proof_passes_by_itself(name):
    assert failures(text(name)) == []


@pytest.mark.parametrize("old, new", [("one.", "two."), ("merge(merge(one, two), three)", "merge(merge(two, one), three)")],
                         ids=["forgets the earlier part", "turns parts around"])
def test_an_ordered_proof_catches_a_wrong_merge(old, new):
    source = text("lindley_wait")
    assert old in source and failures(source.replace(old, new)) != []


@pytest.mark.parametrize("name", [*SAMPLE, *ORDERED])
def test_an_exported_proof_needs_nothing_of_this_package_and_fits_the_line(name):
    source = text(name)
    tree = ast.parse(source)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in imported} <= ALLOWED
    assert ast.get_docstring(tree).startswith(f"{name}: one pass is ")
    assert [line for line in source.splitlines() if len(line) > WIDTH + 2 or line != line.rstrip()] == []


@pytest.mark.parametrize("name", SAMPLE)
def test_the_folder_holds_what_is_exported_now(name):
    assert (FOLDER / f"test_{name}.py").read_text(encoding="utf-8") == text(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ra.operators)
def test_the_whole_folder_holds_what_is_exported_now(name):
    path = FOLDER / f"test_{name}.py"
    try:
        now = text(name)
    except NoProof:
        assert not path.exists()
    else:
        assert path.read_text(encoding="utf-8") == now


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_other_proof_of_the_folder_passes(part):
    files = [str(FOLDER / f"test_{name}.py") for name in OTHERS[part::4]]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--assert=plain", "-p", "no:cacheprovider", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_proof_compares_what_is_no_number():
    space = {}
    exec(compile(text("variance"), "exported", "exec"), space)
    space["assume"], nan = bool, np.float64(np.nan)
    space["agree"](nan, nan, *[nan] * 5)
    with pytest.raises(AssertionError):
        space["agree"](np.float64(1), nan, *[nan] * 5)


SPOILT = [
    ("softmax", "Z=times(np.exp(minus(finite(part.m), finite(m_new))), part.Z)", "Z=part.Z"),
    ("softmax", "minus(finite(part.m), finite(m_new))", "minus(finite(m_new), finite(part.m))"),
    ("softmax", "m = np.maximum(one.m, two.m)", "m = np.minimum(one.m, two.m)"),
    ("absmax_scaled_sum", "np.where(np.equal(p, 0), 0.0, np.divide(x, p))", "np.divide(x, p)"),
    ("variance", "part.M2 + times(", "part.M2 - times("),
    ("variance", "mu = part.sx / part.N", "mu = part.sx / (part.N + 1)"),
    ("variance", "M2 = sum((x - mu) ** 2 for x in elements)", "M2 = sum((x + mu) ** 2 for x in elements)"),
    ("weighted_variance", "times(d ** 2, part.sw)", "times(d ** 3, part.sw)"),
    ("count_max", "np.where(part.m == m_new, ", "np.where(part.m != m_new, "),
    ("attention", "o = times(", "o = 1 + times("),
    ("value_at_argmax", "np.where(won, positions, 2**62)", "np.where(won, -positions, 2**62)"),
    ("topk_mean_fixed", "(positions, -values, positions < 0)", "(positions, values, positions < 0)"),
    ("prod_scaled", "q / (m / np.exp2(", "q / (2 * m / np.exp2("),
    ("mean_absolute_deviation", "np.abs(x - np.sum(x) / len(x))", "x - np.sum(x) / len(x)"),
    ("count_above_mean", "> np.sum(x)", "> 0 * np.sum(x)"),
    ("anova_f", "(len(x) - 2)", "(len(x) - 1)"),
    ("uint8_zero_point_quant", "u = np.round(-t / p)", "u = np.round(-t / p) + 1"),
]


@pytest.mark.parametrize("name, right, wrong", SPOILT, ids=[f"{name}: {wrong[:30]}" for name, _, wrong in SPOILT])
def test_a_spoilt_proof_fails(name, right, wrong):
    assert right in text(name)
    assert failures(text(name).replace(right, wrong))


@pytest.mark.parametrize("formula", [
    "f(x[l], v[l]): (sum(where(x == max(x, l), v, 0), l), argmax(x, l))",
    "f(N[l], seen[l], y[l]): (mean((N - mean(N, l)) ** 2, l), sum(y / sum(seen, l), l, where=y > 0))"], ids=["pivots that are others by name", "names that are taken"])
def test_a_proof_has_names_for_all_it_needs(formula):
    assert not failures(proof_module(ra.decide(ra.parse_operator(formula))))


def words_of(source):
    """All names that a module defines or uses, but for those of its tests."""
    tree = ast.walk(ast.parse(source))
    return {getattr(node, "id", getattr(node, "arg", getattr(node, "name", None))) for node in tree
            if isinstance(node, ast.Name | ast.arg | ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("name", ["variance", pytest.param("lindley_wait", marks=pytest.mark.slow)])
def test_inputs_may_have_any_name_that_a_proof_uses(name):
    """A few operators, whose many inputs have every one of these names."""
    words = sorted(word for word in words_of(text(name)) | {"ra", "len", "sum"} if not word.startswith("test_"))

    def body(first, *others):
        recurrence = ra.scan(lambda h: 0.5 * h + first, "l", 0.0) if name == "lindley_wait" else ra.var(first, "l")
        return recurrence + ra.sum(sum(other * first for other in others), "l")

    for some in (words[::3], words[1::3], words[2::3]):
        space = {"body": body}
        annotated = ", ".join(f"{word}: 'l'" for word in some)
        exec(f"def f({annotated}):\n    return body({', '.join(some)})", space)
        assert not failures(proof_module(ra.decide(ra.operator(space["f"])))), some


def test_truth_is_spelt_for_numbers_too():
    """`~1` is −2, which NumPy takes for true."""
    space = {}
    exec(proof_module(ra.decide(ra.parse_operator("f(x[l], v[l]): s = max(abs(x), l); sum(divide(x, s, where_zero=0) * v, l)"))), space)
    for x in (np.zeros(3), np.array([2.0, -4.0, 1.0])):
        assert space["finalize"](space["lift"](x, x)) == space["definition"](x, x)
    formula = "f(x[l], k[l], n[l]): sum(where((k | n) & (x > 0), x, 0), l) + sum(x, l, where=~k & ~(n > 0))"
    assert not failures(proof_module(ra.decide(ra.parse_operator(formula))))


def test_a_masked_result_of_no_elements_is_its_identity_in_a_proof():
    """Whatever it is divided by."""
    space, zero = {}, np.zeros(3)
    exec(proof_module(ra.decide(ra.parse_operator(
        "f(x[l], y[l], k[l]): (sum(y / sum(x, l), l, where=k > 0), prod(y / sum(x, l), l, where=k > 0), max(y / sum(abs(x), l), l, where=k > 0))"))), space)
    with np.errstate(all="ignore"):
        assert space["finalize"](space["merge"](*[space["lift"](zero, zero, zero)] * 2)) == space["definition"](zero, zero, zero) == (0, 1, -np.inf)


def test_the_command_writes_proofs_and_says_what_it_cannot(tmp_path, capsys):
    assert cli.status_of(["export", "--proof", "softmax", "relu_about_mean", "-o", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"test_softmax.py", "test_relu_about_mean.py"}
    assert (tmp_path / "test_softmax.py").read_text(encoding="utf-8") == text("softmax")
    path = tmp_path / "one.py"
    assert cli.status_of(["export", "--proof", "sum(exp(x - max(x, l)), l)", "-o", str(path)]) == 0
    assert failures(path.read_text(encoding="utf-8")) == []


def test_what_is_undecided_has_no_proof():
    @ra.operator
    def farthest(x: "l"):
        return ra.max(ra.sin(x * ra.sum(x, "l")) ** 2, "l")

    verdict = ra.decide(farthest)
    if verdict.status == "undecided":
        with pytest.raises(NoProof, match="it is undecided"):
            proof_module(verdict)


@pytest.mark.parametrize("head, body", [
    ("    a = ", "f(" + ", ".join(f"number_{n}" for n in range(30)) + ")"), ("    return ", ", ".join(f"g({n}, x)" for n in range(40))),
    ("    b = ", " + ".join(f"long_name_{n} * (x - {n})" for n in range(20))), ("    c = ", "sum(" + " + ".join(["x * y"] * 40) + " for x in e)"),
    ("    d = ", "[" + ", ".join(map(str, range(99))) + "]"),
])
def test_long_lines_are_broken_where_python_allows_it(head, body):
    lines = wrapped(head, body)
    assert len(lines) > 1 and max(map(len, lines)) <= WIDTH
    broken = ast.dump(ast.parse("def f():\n" + "\n".join(lines)))
    assert broken == ast.dump(ast.parse(f"def f():\n{head}{body}"))
