"""The files around the package agree with each other: pyproject.toml, environment.yml, README.md, Makefile, .ci/run
and the top of the tree. Every check is a function on text or names, and is shown one that it must refuse.
"""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
from conftest import SEED, profile_name
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = {
    *("redfuser_algebra", "notebooks", "proofs", "kernels", "tests", ".ci"),
    *("environment.yml", "README.md", "pyproject.toml", "Makefile"),
    *(".git", ".gitignore", ".gitattributes", "LICENSE"),
}
IGNORED_TOP_LEVEL = {".venv", "build", "dist"}
IN_CONDA = ("core", "lab", "test")


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


# --- requirements -------------------------------------------------------------------------------------------------


def groups(pyproject):
    """{group: [Requirement]} of a pyproject.toml's text; `core` is what every install gets."""
    project = tomllib.loads(pyproject)["project"]
    listed = {"core": project["dependencies"], **project["optional-dependencies"]}
    return {group: [Requirement(line) for line in lines] for group, lines in listed.items()}


def pyproject_bounds(pyproject):
    bounds = {r.name: r.specifier for g in IN_CONDA for r in groups(pyproject)[g]}
    return {**bounds, "python": SpecifierSet(tomllib.loads(pyproject)["project"]["requires-python"])}


def environment_bounds(environment):
    """{name: bounds} of an environment.yml's text, the part under `pip:` included."""
    _, _, listed = environment.partition("\ndependencies:\n")
    entries = re.findall(r"^ *- ([^#\n]+)", listed, flags=re.MULTILINE)
    requirements = [Requirement(e) for e in map(str.strip, entries) if e not in ("pip", "pip:", "-e .")]
    return {requirement.name: requirement.specifier for requirement in requirements}


def disagreements(pyproject, environment):
    ours, theirs = pyproject_bounds(pyproject), environment_bounds(environment)
    return [
        f"{name}: pyproject.toml has {ours.get(name, 'nothing')}, environment.yml {theirs.get(name, 'nothing')}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]


def unbounded(pyproject):
    """Requirements of an ordinary install that lack a lower or an upper bound; dask counts by year and month."""
    operators = {
        r.name: {s.operator for s in r.specifier} for rs in groups(pyproject).values() for r in rs if r.name != "dask"
    }
    return sorted(name for name, found in operators.items() if not ({">=", "<"} <= found or "==" in found))


def bounded_twice(pyproject):
    """Packages that two groups ask for with different bounds."""
    seen = {}
    for requirement in sum(groups(pyproject).values(), []):
        seen.setdefault(requirement.name, set()).add(str(requirement.specifier))
    return sorted(name for name, bounds in seen.items() if len(bounds) > 1)


def test_environment_agrees_with_pyproject():
    assert disagreements(read("pyproject.toml"), read("environment.yml")) == []


def test_every_requirement_is_bounded_once():
    assert unbounded(read("pyproject.toml")) == []
    assert bounded_twice(read("pyproject.toml")) == []


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ("- numpy>=2.1,<2.5", "- numpy>=2.0,<2.5", "numpy"),
        ("      - egglog>=13.2,<15\n", "", "egglog"),
        ("- python>=3.11,<3.15", "- python>=3.10", "python"),
        ("  # lab\n", "  - pandas>=2,<3\n", "pandas"),
        ("- sympy>=1.13,<2", "- sympy", "sympy"),
    ],
)
def test_a_drifted_environment_is_refused(old, new, complaint):
    assert old in read("environment.yml")
    (said,) = disagreements(read("pyproject.toml"), read("environment.yml").replace(old, new))
    assert said.startswith(f"{complaint}: ")


def test_loose_requirements_are_refused():
    loose = '[project]\ndependencies = ["a>=1", "b", "c>=1,<2"]\n[project.optional-dependencies]\nx = ["c>=1,<3"]\n'
    assert unbounded(loose) == ["a", "b"]
    assert bounded_twice(loose) == ["c"]


# --- README, Makefile, .ci/run ------------------------------------------------------------------------------------


def opening_commands(readme):
    """The commands of the first code block, when nothing but a title stands above it; else nothing."""
    block = re.match(r"\s*(?:# [^\n]*\n\s*)?```(?:sh|bash|console|shell)?\n(.*?)\n```", readme, flags=re.DOTALL)
    lines = block[1].splitlines() if block else []
    return [line.partition("#")[0].strip() for line in lines]


def runs_make_test(script):
    """The script stops at a failure, and calls `make test` on a line of its own."""
    stops = re.search(r"^set -euo pipefail$", script, flags=re.MULTILINE)
    return bool(stops and re.search(r"^(exec )?make test$", script, flags=re.MULTILINE))


def makefile_pythons(makefile):
    """First and last Python that the Makefile accepts."""
    first, last = re.search(r"\((\d+, \d+)\) <= sys.version_info\[:2\] <= \((\d+, \d+)\)", makefile).groups()
    return first.replace(", ", "."), last.replace(", ", ".")


def accepts_exactly(bounds, first, last):
    minor = Version(last).minor
    inside = all(version in SpecifierSet(bounds) for version in (first, f"{last}.9"))
    return inside and not any(v in SpecifierSet(bounds) for v in (f"3.{Version(first).minor - 1}.9", f"3.{minor + 1}"))


def test_readme_opens_with_the_two_commands():
    assert opening_commands(read("README.md")) == ["make demo", "make test"]


@pytest.mark.parametrize(
    "readme",
    [
        "# T\n\nFirst some words.\n\n```sh\nmake demo\nmake test\n```\n",
        "```sh\npip install .\nmake demo\nmake test\n```\n",
        "```sh\nmake test\n```\n\n```sh\nmake demo\n```\n",
        "make demo\nmake test\n",
    ],
)
def test_another_opening_is_refused(readme):
    assert opening_commands(readme) != ["make demo", "make test"]


def test_ci_runs_the_command_of_the_readme():
    assert runs_make_test(read(".ci/run"))
    assert os.access(ROOT / ".ci/run", os.X_OK)


@pytest.mark.parametrize("script", ["make test\n", "set -euo pipefail\n# make test\n", "set -euo pipefail\nmake tests\n"])
def test_a_ci_that_does_not_test_is_refused(script):
    assert not runs_make_test(script)


def test_makefile_has_the_promised_targets_and_pythons():
    makefile = read("Makefile")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    assert {"demo", "test", "lab", "bench", "clean", "help"} <= targets
    bounds = tomllib.loads(read("pyproject.toml"))["project"]["requires-python"]
    assert accepts_exactly(bounds, *makefile_pythons(makefile))


def test_other_python_ranges_are_refused():
    assert not accepts_exactly(">=3.12,<3.15", "3.11", "3.14")
    assert not accepts_exactly(">=3.11,<3.14", "3.11", "3.14")
    assert not accepts_exactly(">=3.11", "3.11", "3.14")


# --- the tree -----------------------------------------------------------------------------------------------------


def foreign(names):
    return sorted(set(names) - TOP_LEVEL)


def top_level():
    """What stands at the top, less what Git is told to ignore; an unpacked archive has no Git to ask."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        return {name.split("/")[0] for name in listed.split("\0") if name and (ROOT / name).exists()}
    return set(os.listdir(ROOT)) - IGNORED_TOP_LEVEL


def test_only_the_agreed_names_stand_at_the_top():
    assert foreign(top_level()) == []


def test_another_name_at_the_top_is_refused():
    assert foreign([*TOP_LEVEL, "docs", "setup.py"]) == ["docs", "setup.py"]


def inside_the_tree(folders):
    return [str(folder) for folder in folders if Path(folder).resolve().is_relative_to(ROOT)]


def test_caches_stay_outside_the_tree():
    assert inside_the_tree([os.environ["NUMBA_CACHE_DIR"], os.environ["HYPOTHESIS_STORAGE_DIRECTORY"]]) == []


def test_a_cache_inside_the_tree_is_refused():
    assert inside_the_tree([ROOT / ".hypothesis"]) == [str(ROOT / ".hypothesis")]


# --- what conftest.py promises ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ, name",
    [
        ({}, "dev"),
        ({"CI": "true"}, "ci"),
        ({"CI": "false"}, "dev"),
        ({"CI": "true", "HYPOTHESIS_PROFILE": "deep"}, "deep"),
    ],
)
def test_the_profile_follows_the_environment(environ, name):
    assert profile_name(environ) == name


def test_rng_starts_from_the_seed(rng):
    assert rng.integers(2**63) == np.random.default_rng(SEED).integers(2**63)
