"""The rules of the house, read from the source with `ast`: who may import whom, which part may use which package,
and how large a module or a function may be. Nothing here imports the package.

A rule is a function from (path, nodes, source) to complaints, where `nodes` are those of the tree as `walk` gives them;
every rule is shown a source that it must refuse.
"""

import ast
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "redfuser_algebra"

# A folder imports only from folders before it.
FOLDERS = ("algebra", "language", "discover", "prove", "lower", "ptx", "run", "catalogue", "explorer", "console", "bench")
FRONT = ("fused", "gradient", "in_passes", "nearest", "pipeline", "torch_graph", "__init__", "__main__", "cli")
# `import redfuser_algebra as ra`: parts that use the product as its users do.
FRONT_DOOR_USERS = ("catalogue", "explorer", "bench")
CATALOGUE_READERS = ("explorer", "bench")

# package: the places, inside redfuser_algebra/, that may import it
FENCE = {
    "egglog": ("discover/",),
    "sympy": ("prove/", "language/latex.py"),
    "hypothesis": ("prove/",),
    "flint": ("prove/",),
    "numba": ("run/", "ptx/"),
    "ipywidgets": ("explorer/",),
    "matplotlib": ("explorer/", "bench/"),
    "typer": ("cli/", "bench/"),
    "rich": ("cli/", "console.py", "bench/"),
}

MODULE_LINES = 450
FUNCTION_LINES = 60
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def part_of(path):
    """The folder, or the module at the top, that a file of the package belongs to."""
    return PurePosixPath(path).parts[1].removesuffix(".py")


def may_import(part):
    """The parts that `part` may import from; `__init__` stands for the front door."""
    if part in FRONT:
        return {*FOLDERS, *FRONT} if part != "pipeline" else {*FOLDERS, "pipeline"}
    if part == "catalogue":
        return {"catalogue", "language", "__init__"}
    below = {folder for folder in FOLDERS[: FOLDERS.index(part)] if folder != "catalogue" or part in CATALOGUE_READERS}
    return below | {part} | ({"__init__"} if part in FRONT_DOOR_USERS else set())


def walk(node, inside=False):
    """Every node below `node`, with whether it lies in a function."""
    for child in ast.iter_child_nodes(node):
        yield child, inside
        yield from walk(child, inside or isinstance(child, (*FUNCTION, ast.Lambda)))


def names_imported(path, node):
    """Full dotted names that an import statement, or an import_module call on a literal, brings in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = absolute(path, "." * node.level + (node.module or ""))
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__"):
            return [absolute(path, str(node.args[0].value))]
    return []


def absolute(path, name):
    """`..algebra` as written in `path`, as redfuser_algebra.algebra."""
    level = len(name) - len(name.lstrip("."))
    if not level:
        return name
    package = PurePosixPath(path).parts[:-1]
    return ".".join([*package[: len(package) - level + 1], *filter(None, [name[level:]])])


def own_part(name):
    """The part of this package that a dotted name belongs to; None for another package's name."""
    head, _, rest = name.partition(".")
    if head != PACKAGE:
        return None
    part = rest.partition(".")[0]
    return part if part in (*FOLDERS, *FRONT) else "__init__"


def imports_only_from_below(path, nodes, source):
    part = part_of(path)
    if part not in (*FOLDERS, *FRONT):
        return [f"{path}: {part} is no part of the house; it has {', '.join((*FOLDERS, *FRONT))}"]
    return [
        f"{path}:{node.lineno}: {part} may not import {name}"
        for node, _ in nodes
        for name in names_imported(path, node)
        if own_part(name) is not None and own_part(name) not in may_import(part)
    ]


def keeps_the_fence(path, nodes, source):
    inside = PurePosixPath(path).relative_to(PACKAGE).as_posix()
    return [
        f"{path}:{node.lineno}: {package} belongs in {' and '.join(FENCE[package])}"
        for node, _ in nodes
        for package in {name.partition(".")[0] for name in names_imported(path, node)}
        if package in FENCE and not inside.startswith(FENCE[package])
    ]


def imports_its_own_at_the_top(path, nodes, source):
    if path == f"{PACKAGE}/__init__.py":
        # The front door is lazy by design: `__getattr__` imports a name's module when it is first used.
        suspects = [node for node, inside in nodes if inside and not isinstance(node, ast.Call)]
    else:
        suspects = [node for node, inside in nodes if inside or isinstance(node, ast.Call)]
    return [
        f"{path}:{node.lineno}: {name} is imported inside a function or by call; import it at the top"
        for node in suspects
        for name in names_imported(path, node)
        if own_part(name) is not None
    ]


def names_what_it_imports(path, nodes, source):
    return [
        f"{path}:{node.lineno}: a star import"
        for node, _ in nodes
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]


def has_a_name_that_says_something(path, nodes, source):
    empty = {"util", "utils"} & set(PurePosixPath(path).with_suffix("").parts)
    return [f"{path}: {name} says nothing; name what is inside" for name in empty]


def module_is_short(path, nodes, source):
    lines = len(source.splitlines())
    return [f"{path}: {lines} lines, at most {MODULE_LINES}"] if lines > MODULE_LINES else []


def functions_are_short(path, nodes, source):
    return [
        f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES}"
        for node, _ in nodes
        if isinstance(node, FUNCTION) and (lines := node.end_lineno - node.lineno + 1) > FUNCTION_LINES
    ]


PACKAGE_RULES = (imports_only_from_below, keeps_the_fence, imports_its_own_at_the_top)
STYLE_RULES = (names_what_it_imports, has_a_name_that_says_something, module_is_short, functions_are_short)
RULES = (*PACKAGE_RULES, *STYLE_RULES)


def complaints(rule, path, source):
    return rule(path, [*walk(ast.parse(source))], source)


def read(folder):
    """Every file under a folder as rules take it."""
    found = {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in (ROOT / folder).rglob("*.py")}
    assert found, f"no Python file under {folder}/"
    return [(path, [*walk(ast.parse(source))], source) for path, source in sorted(found.items())]


@pytest.fixture(scope="module")
def package():
    return read(PACKAGE)


@pytest.fixture(scope="module")
def tests():
    return read("tests")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package(rule, package):
    said = [line for file in package for line in rule(*file)]
    assert not said, "\n".join(said)


@pytest.mark.parametrize("rule", STYLE_RULES, ids=lambda rule: rule.__name__)
def test_the_tests(rule, tests):
    said = [line for file in tests for line in rule(*file)]
    assert not said, "\n".join(said)


def source_of(lines):
    return "\n".join(["def f():", *["    pass"] * (lines - 1)])


REFUSED = [
    (imports_only_from_below, "algebra/laws.py", "from ..language import expr", "algebra may not import"),
    (imports_only_from_below, "algebra/laws.py", "from .. import language", "algebra may not import"),
    (imports_only_from_below, "algebra/__init__.py", "from ..language import expr", "algebra may not import"),
    (imports_only_from_below, "lower/tile/loop.py", "from ...run import cpu", "lower may not import"),
    (imports_only_from_below, "discover/rebase.py", "import redfuser_algebra.prove.exact", "discover may not import"),
    (imports_only_from_below, "discover/rebase.py", "import redfuser_algebra as ra", "discover may not import"),
    (imports_only_from_below, "run/cpu.py", "from ..pipeline import fuse", "run may not import"),
    (imports_only_from_below, "run/cpu.py", "from ..catalogue import entry", "run may not import"),
    (imports_only_from_below, "catalogue/a.py", "from ..algebra import monoids", "catalogue may not import"),
    (imports_only_from_below, "catalogue/a.py", "from ..pipeline import fuse", "catalogue may not import"),
    (imports_only_from_below, "explorer/view.py", "from ..bench import peers", "explorer may not import"),
    (imports_only_from_below, "pipeline.py", "from .cli import main", "pipeline may not import"),
    (imports_only_from_below, "run/cpu.py", "if TYPE_CHECKING:\n    from ..bench import peers", "run may not import"),
    (imports_only_from_below, "extras.py", "", "no part of the house"),
    (keeps_the_fence, "lower/printer.py", "import numba", "numba belongs in"),
    (keeps_the_fence, "lower/printer.py", "from numba import cuda", "numba belongs in"),
    (keeps_the_fence, "prove/step.py", "def f():\n    import egglog", "egglog belongs in"),
    (keeps_the_fence, "language/expr.py", "import sympy as sp", "sympy belongs in"),
    (keeps_the_fence, "discover/a.py", "import importlib\nimportlib.import_module('flint')", "flint belongs in"),
    (keeps_the_fence, "run/cpu.py", "import hypothesis.strategies", "hypothesis belongs in"),
    (keeps_the_fence, "bench/table.py", "import ipywidgets", "ipywidgets belongs in"),
    (keeps_the_fence, "run/cpu.py", "import matplotlib.pyplot as plt", "matplotlib belongs in"),
    (keeps_the_fence, "explorer/table.py", "import typer", "typer belongs in"),
    (keeps_the_fence, "prove/report.py", "from rich import print", "rich belongs in"),
    (imports_its_own_at_the_top, "run/cpu.py", "def f():\n    from ..lower import tile", "inside a function"),
    (imports_its_own_at_the_top, "run/cpu.py", "class A:\n    def f(self):\n        import redfuser_algebra", "inside"),
    (imports_its_own_at_the_top, "run/cpu.py", "import_module('redfuser_algebra.lower')", "by call"),
    (imports_its_own_at_the_top, "run/cpu.py", "f = lambda: __import__('redfuser_algebra')", "by call"),
    (imports_its_own_at_the_top, "__init__.py", "def f():\n    from .lower import tile", "inside a function"),
    (names_what_it_imports, "run/cpu.py", "from math import *", "star import"),
    (has_a_name_that_says_something, "run/utils.py", "", "says nothing"),
    (has_a_name_that_says_something, "utils/cpu.py", "", "says nothing"),
    (module_is_short, "run/cpu.py", "\n" * (MODULE_LINES + 1), "451 lines"),
    (functions_are_short, "run/cpu.py", source_of(FUNCTION_LINES + 1), "f has 61 lines"),
    (functions_are_short, "run/cpu.py", source_of(61).replace("def", "async def"), "f has 61 lines"),
]

ALLOWED = [
    (imports_only_from_below, "discover/a.py", "from ..algebra import laws\nfrom . import encode\nimport numpy"),
    (imports_only_from_below, "bench/a.py", "import redfuser_algebra as ra\nfrom ..catalogue import entry"),
    (imports_only_from_below, "catalogue/a.py", "import redfuser_algebra as ra\nfrom ..language import operator"),
    (imports_only_from_below, "pipeline.py", "from .bench import peers\nfrom .algebra import laws"),
    (imports_only_from_below, "cli/forms.py", "import redfuser_algebra as ra\nfrom .. import pipeline"),
    (keeps_the_fence, "language/latex.py", "import sympy"),
    (keeps_the_fence, "run/cpu.py", "def f():\n    import numba"),
    (keeps_the_fence, "cli/forms.py", "import typer\nfrom rich.table import Table"),
    (imports_its_own_at_the_top, "run/cpu.py", "from ..lower import tile\ndef f():\n    import numba"),
    (imports_its_own_at_the_top, "__init__.py", "def __getattr__(n):\n    import_module('.pipeline', __name__)"),
    (names_what_it_imports, "run/cpu.py", "from math import exp"),
    (has_a_name_that_says_something, "run/contraction.py", ""),
    (module_is_short, "run/cpu.py", "\n" * MODULE_LINES),
    (functions_are_short, "run/cpu.py", source_of(FUNCTION_LINES)),
]


@pytest.mark.parametrize("rule, path, source, complaint", REFUSED)
def test_a_rule_refuses(rule, path, source, complaint):
    said = complaints(rule, f"{PACKAGE}/{path}", source)
    assert len(said) == 1 and complaint in said[0], said


@pytest.mark.parametrize("rule, path, source", ALLOWED)
def test_a_rule_allows(rule, path, source):
    assert complaints(rule, f"{PACKAGE}/{path}", source) == []


def test_every_rule_and_every_fence_has_refused_something():
    assert {rule for rule, *_ in REFUSED} == set(RULES)
    fenced = {said.split()[0] for rule, _, _, said in REFUSED if rule is keeps_the_fence}
    assert fenced == set(FENCE)
