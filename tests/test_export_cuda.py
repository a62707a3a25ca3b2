"""Exported CUDA kernels: the files in kernels/ are what `export` writes, are there for every operator, load without a GPU, and compute.

After a change to forms or to the printer, `redfuser export --all --target cuda -o kernels/ --certificates kernels/` writes them anew.
"""

import ast
import re
import runpy
import sys
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from cuda_kernels import drawn_case, kernel, limit, needs_toolchain, run
from lowered import FUSABLE, ORDERED, program

import redfuser_algebra as ra
from redfuser_algebra.lower.standalone.checking import distance
from redfuser_algebra.ptx.execute import KernelFile
from redfuser_algebra.run.audit import case
from redfuser_algebra.run.cuda import made_cuda
from redfuser_algebra.run.export import draws, exported_cuda
from redfuser_algebra.run.reference import reference

KERNELS = Path(ra.__file__).parent.parent / "kernels"
SOME = ("softmax", "variance", "topk_mean_fixed", "moment_of_inertia", "attention")


def text_of(name):
    return (KERNELS / f"{name}_cuda.py").read_text(encoding="utf-8")


def hash_in(text):
    return re.search("^Certificate: sha256 ([0-9a-f]{64})$", text, re.MULTILINE)[1]


@pytest.mark.parametrize("name", [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in (*FUSABLE, *ORDERED) if name not in SOME)])
def test_kernels_are_what_export_writes(name):
    if program(name) is None:
        pytest.skip("the search finds no form")
    assert text_of(name) == exported_cuda(kernel(name), hash_in(text_of(name)))


def test_there_is_a_file_for_every_operator_that_has_one_for_cpus():
    files, others = ({path.name.removesuffix(f"_{target}.py") for path in KERNELS.glob(f"*_{target}.py")} for target in ("cuda", "cpu"))
    assert files == others


def test_every_file_loads_without_a_gpu_and_says_what_it_needs(capsys):
    cuda = pytest.importorskip("numba.cuda")
    for path in sorted(KERNELS.glob("*_cuda.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = {alias.name if isinstance(node, ast.Import) else node.module for node in tree.body
                   if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
        assert {each.partition(".")[0] for each in modules} - set(sys.stdlib_module_names) <= {"numpy", "numba", "llvmlite"}, path.name
        assert "Needs NumPy and numba-cuda" in ast.get_docstring(tree), path.name
        names = runpy.run_path(str(path))
        assert {"plan", "launch", "make", "definition", "main"} <= set(names), path.name
        own = ra.operators[path.name.removesuffix("_cuda.py")]
        assert [*signature(names["launch"]).parameters] == [*own.inputs, *own.params, "stream"], path.name
        if not cuda.is_available():
            assert names["main"]() == 1 and "no GPU here" in capsys.readouterr().out, path.name


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("name", SOME[1:4])
def test_a_file_computes_its_operator(name):
    made, file = kernel(name), KernelFile(text_of(name))
    for length in (33, 1000):
        binding = drawn_case(made, length)
        ran = file.run(made.given(binding))
        with np.errstate(all="ignore"):
            assert distance(tuple(made.delivered(ran.outputs)), reference(made.operator, binding)) <= limit(made), length


@needs_toolchain
def test_inputs_may_be_called_as_what_the_host_reads_or_makes():
    @ra.operator
    def named(launches: "m k", tuple: "l k", np: "l j", stream: float = 1.0, numbers: float = 2.0):
        scores = ra.sum(launches * tuple, "k") * stream
        return ra.sum(ra.exp(scores - ra.max(scores, "l")) * np, "l") * numbers

    fused = ra.fuse(named)
    made = made_cuda(fused.operator, fused.form, "float32")
    assert "def launch(launches, tuple_, np_, stream_, numbers, stream=0):" in made.source
    binding = case(made, draws(named), 33, 0)
    assert run(made, binding)[1] <= limit(made)
