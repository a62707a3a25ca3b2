"""Exported kernels: the files in kernels/ are what `export` writes, say what they must, run alone, and find their own faults.

After a change to forms or to the printer, `redfuser export --all -o kernels/ --certificates kernels/` writes them anew.
"""

import ast
import os
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from lowered import FUSABLE, ORDERED, parts, verdict

import redfuser_algebra as ra
from redfuser_algebra.cli import status_of
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.run.export import draws, exported_cpu
from redfuser_algebra.run.files import recorded_certificate

KERNELS = Path(ra.__file__).parent.parent / "kernels"
SOME = ("attention", "causal_attention", "cross_entropy", "describe_jarque_bera", "int8_absmax_quant", "moe_routing", "softmax", "variance")
"""Scores and blocks, masks, positions, outputs without axes, rounding, top-k, maps, several components."""

RUN = ("kabsch_rmsd", "attention", "moe_routing", "softmax")
"""Many components, products, top-k, maps."""


@cache
def exported(name, dtype="float32"):
    """The text of an export; None where there is no form or no kernel.  The certificate is the one in kernels/."""
    fused = verdict(name).fused
    try:
        return exported_cpu(fused.operator, fused.form, hash_in(name), dtype) if fused else None
    except LoweringError:
        return None


def hash_in(name):
    path = KERNELS / f"{name}_cpu.py"
    found = re.search("^Certificate: sha256 ([0-9a-f]{64})$", path.read_text(encoding="utf-8") if path.exists() else "", re.MULTILINE)
    return found[1] if found else 64 * "0"


def written(folder, name, text):
    path = folder / f"{name}_cpu.py"
    path.write_text(text, encoding="utf-8")
    return path


def module(tmp_path, name, dtype="float32"):
    """The names of an exported file, imported from a file of its own."""
    return runpy.run_path(str(written(tmp_path, name, exported(name, dtype))))


def all_names():
    rest = [name for name in (*FUSABLE, *ORDERED) if name not in SOME]
    return [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in rest)]


@pytest.mark.parametrize("name", all_names())
def test_kernels_are_what_export_writes(name):
    """Nothing is missing, and nothing is there that could not be written again."""
    path = KERNELS / f"{name}_cpu.py"
    assert (path.read_text(encoding="utf-8") if path.exists() else None) == exported(name)


def test_every_file_in_kernels_belongs_to_an_operator():
    assert {path.name.removesuffix("_cpu.py") for path in KERNELS.glob("*_cpu.py")} <= {*FUSABLE, *ORDERED}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "kurtosis"])
def test_the_hash_is_that_of_the_certificate(name):
    assert hash_in(name) == verdict(name).fused.certificate.hash


@pytest.mark.parametrize("name", SOME)
def test_the_header_tells_operator_rule_laws_certificate_and_schedule(name):
    header = ast.get_docstring(ast.parse(exported(name)))
    form = verdict(name).fused.form
    for line in (*str(ra.operators[name]).splitlines(), *form.update.splitlines(), f"Certificate: sha256 {hash_in(name)}"):
        assert line in header
    assert set(form.laws) <= set(re.findall(r"\w+", header)) and f"Schedule: tiles of {_constant(name, 0)} along {form.axis}" in header


def _constant(name, place):
    return re.search(r"^TILE, BLOCK = (\d+), (\d+)$", exported(name), re.MULTILINE)[1 + place]


@pytest.mark.parametrize("name", SOME)
def test_a_file_imports_nothing_but_numpy_and_numba_and_defines_no_name_twice(name):
    tree = ast.parse(exported(name))
    modules = {alias.name if isinstance(node, ast.Import) else node.module for node in tree.body
               if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    outside = {each.partition(".")[0] for each in modules} - set(sys.stdlib_module_names)
    assert outside <= {"numpy", "numba", "llvmlite"}
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(defined) == len(set(defined))


@pytest.mark.parametrize("name", all_names())
def test_the_definition_is_the_operator(name, tmp_path):
    if exported(name) is None:
        pytest.skip("no kernel")
    entry = ra.operators.entry(name)
    given = entry.inputs(np.random.default_rng(1), max(17, entry.shortest))
    arrays = {key: np.asarray(given[key], float) for key in entry.operator.inputs}
    scalars = {key: given.get(key, default) for key, default in entry.operator.params.items()}
    with np.errstate(all="ignore"):
        got, wanted = (parts(each(**arrays, **scalars)) for each in (module(tmp_path, name)["definition"], entry.reference))
    for a, b in zip(got, wanted, strict=True):
        assert np.shape(a) == np.shape(b) and np.allclose(np.asarray(a, float), np.asarray(b, float), 1e-7, 1e-9, equal_nan=True)


@pytest.mark.parametrize("name", SOME)
def test_the_check_draws_its_cases_and_compares(name, tmp_path, capsys):
    """With the definition in the place of the kernel, which would have to be compiled, and then with something else."""
    names = module(tmp_path, name)["main"].__globals__
    names[name] = names["definition"]
    assert names["main"]() == 0 and capsys.readouterr().out.count("error 0.0e+00 of the largest value (agrees") == 3
    scale = 1 + 2 * float(re.search(r"passed_over\(.*, (\S+)\) else", exported(name))[1])
    names[name] = lambda **given: tuple(scale * part for part in map(np.asarray, parts(names["definition"](**given))))
    assert names["main"]() == 1 and capsys.readouterr().out.count("DIFFERS") == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_a_file_checks_itself(name, tmp_path):
    done = alone(written(tmp_path, name, exported(name)))
    assert done.returncode == 0 and done.stdout.count("agrees") == 3, done.stdout + done.stderr


@pytest.mark.slow
def test_a_file_finds_its_own_fault(tmp_path):
    text = exported("variance")
    faulty = text.replace("s2 = s2 + f8(r0)", "s2 = s2 + 1.001 * f8(r0)")
    assert faulty != text
    done = alone(written(tmp_path, "variance", faulty))
    assert done.returncode == 1 and done.stdout.count("DIFFERS") == 3 and done.stderr == ""


def alone(path):
    """Run a file where this package cannot be found."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run([sys.executable, "-W", "error::RuntimeWarning", str(path)], capture_output=True, text=True, env=environment,
                          cwd=path.parent, timeout=600)


@pytest.mark.parametrize("given, error, said", [
    (lambda x: (x.astype(np.float64), x[0]), TypeError, "a is float64, and this kernel reads float32: convert it"),
    (lambda x: (np.float32(1), x[0]), ValueError, "a of shape () has too few dimensions"),
    (lambda x: (x, x[0, :5]), ValueError, "axis l has length 5 in b and 7 before"),
    (lambda x: (x[:, :0], x[0, :0]), ValueError, "axis l has length 0 in a"),
    (lambda x: (x, x[[0, 1, 0, 1]]), ValueError, "do not broadcast"),
])
def test_what_does_not_fit_is_told(given, error, said, tmp_path):
    operator = ra.parse_operator("sum(a[l] * b[l], l)")
    fused = ra.fuse(operator)
    text = exported_cpu(operator, fused.form, "0" * 64)
    function = runpy.run_path(str(written(tmp_path, "product", text)))["formula"]
    with pytest.raises(error, match=re.escape(said)):
        function(*given(np.ones((3, 7), np.float32)))


def test_a_top_k_of_too_many_is_told(tmp_path):
    function = module(tmp_path, "moe_routing")["moe_routing"]
    with pytest.raises(ValueError, match="9 of the 4 elements of axis l cannot be chosen"):
        function(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), k=9)


@pytest.mark.slow
def test_batches_layouts_and_several_outputs(tmp_path, rng):
    function = module(tmp_path, "moe_routing", "float64")["moe_routing"]
    X, W = rng.standard_normal((2, 5, 7, 3)).transpose(0, 1, 3, 2), rng.standard_normal((5, 1, 7, 11))[:, 0, :, ::-1]
    got = function(X, W, k=3)
    wanted = ra.fuse(ra.operators["moe_routing"])(X, W, k=3, backend="reference")
    assert [each.dtype for each in got] == [np.float64, np.int64] and got[0].shape == (2, 5, 3, 3)
    assert np.allclose(got[0], wanted[0]) and np.array_equal(got[1], wanted[1])


def test_inputs_are_drawn_so_that_results_mean_something():
    assert draws(ra.operators["geometric_mean"]) == {"x": "positive"}
    assert draws(ra.operators["cross_entropy"]) == {"x": "normal", "label": "whole"}
    assert draws(ra.parse_operator("sum(x[l], l, where=keep[l])")) == {"x": "normal", "keep": "bits"}
    assert draws(ra.parse_operator("sum(log(1.0 - x[l]) + log(x[l]), l)")) == {"x": "unit"}


@pytest.mark.parametrize("name, limit", [
    ("causal_attention", 1e-4), ("cross_entropy", 1e-4), ("int8_absmax_quant", 2e-2), ("quant_gemm_reassociate", 0.2)])
def test_only_steps_and_moved_roundings_widen_the_limit(name, limit):
    """Positions are whole numbers, and compare the same in the kernel and in the definition."""
    assert re.search(r"passed_over\(.*, (\S+)\) else", exported(name))[1] == repr(limit)


def test_export_writes_the_file_and_names_the_certificate(tmp_path):
    fused = verdict("variance").fused
    path = fused.export(tmp_path / "v.py", target="cpu", schedule=Schedule(128), certificate="ab" * 32)
    text = path.read_text(encoding="utf-8")
    assert text == exported_cpu(fused.operator, fused.form, "ab" * 32, "float32", Schedule(128)) and "TILE, BLOCK = 128, 1" in text
    (tmp_path / "variance_cpu.py").write_text(text, encoding="utf-8")
    assert recorded_certificate(tmp_path, fused.operator, fused.form) == "ab" * 32
    (tmp_path / "softmax_cpu.py").write_text(text, encoding="utf-8")
    other = verdict("softmax").fused
    assert recorded_certificate(tmp_path, other.operator, other.form) is None
    for wrong, said in (({"target": "abacus"}, "no such target"), ({"dtype": "float16"}, "no CPU kernels of that dtype"),
                        ({"certificate": verdict("any_outlier_sigma").fused.certify(examples=1)}, "another operator or form")):
        with pytest.raises(ra.OperatorError, match=said):
            fused.export(tmp_path / "w.py", **({"certificate": "00"} | wrong))
    with pytest.raises(ra.OperatorError, match="is not a folder that can be written to"):
        fused.export(tmp_path / "nowhere" / "w.py", certificate="00")


def test_the_command_exports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "variance_cpu.py").write_text(exported("variance"), encoding="utf-8")
    assert status_of(["export", "variance", "-o", "out/", "--certificates", "."]) == 0
    assert (tmp_path / "out" / "variance_cpu.py").read_text(encoding="utf-8") == exported("variance")
    assert capsys.readouterr().out == "out/variance_cpu.py\n"
    assert status_of(["export", "quant_gemm"]) == 1 and "not fusable (rounding)" in capsys.readouterr().err
    assert status_of(["export", "mean_absolute_deviation", "--passes", "-o", "out/"]) == 0
    assert capsys.readouterr().out.split() == [f"out/mean_absolute_deviation_pass{number}_cpu.py" for number in (1, 2)]
    for words in (["export"], ["export", "variance", "--all"], ["export", "variance", "--certificates", "out", "--target", "abacus"]):
        assert status_of(words) == 2 and capsys.readouterr().err.startswith("redfuser: export")
