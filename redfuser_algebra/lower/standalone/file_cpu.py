"""A CPU kernel as a file of its own: NumPy and Numba are all it needs.

In: an operator, its form and program, the kernel printed for it, a schedule, and which inputs to draw.  Out: the text.
The same arguments give the same bytes.
"""
from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redfuser_algebra.discover.show import WIDTH, summary
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.language.numpy_text import numpy_definition
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.numba_cpu import CpuSource
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.standalone import calling, checking, meaning
from redfuser_algebra.lower.storage_cpu import Signature
from redfuser_algebra.lower.tile import TileProgram

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

TOOLS = (calling, meaning, checking)
OWN = ("kernel", "sweep", "one_pass", "definition", "main", "INPUTS", "DTYPES", "TILE", "BLOCK", "sys")
DTYPES = {"f4": "float32", "f8": "float64", "i8": "int64", "b1": "bool"}
LIMITS = {"exact": {"f4": 1e-4, "f8": 1e-9}, "steps": {"f4": 2e-2, "f8": 1e-6}, "moved": {"f4": 0.2, "f8": 0.2}}
"""How far a kernel may be from the definition, in units of the largest value: where results move smoothly with the
inputs; where a rounding or a comparison makes steps, next to which float32 may fall to the other side; and where the
operator permits to round at another pivot."""


@dataclass(frozen=True)
class Export:
    """What a file is made of.  `draws` names a kind of numbers for each input, `limit` the error that its check allows."""

    operator: Operator
    form: FusedForm
    program: TileProgram
    signature: Signature
    source: CpuSource
    schedule: Schedule
    certificate: str
    draws: Mapping[str, str]
    limit: float


def file_text(export: Export) -> str:
    """The whole file."""
    user, meant, main = _user_function(export), "\n".join(numpy_definition(export.operator)), _main(export)
    tools = _reachable("".join(map(_body, TOOLS)), _names("\n".join((user, meant, main))), AXES=repr(export.operator.axes))
    body = [user, _reachable(export.source.text, ["kernel"]), tools, meant, main]
    imports = _imports(export.source.text, _names("\n".join(body)))
    return "\n\n\n".join([f"{_docstring(export)}\n{imports}", *body]) + "\n"


# the parts of a module that are needed


def _reachable(source: str, wanted: Iterable[str], **constants: str) -> str:
    """The constants and definitions of a module that something wanted needs, in their order."""
    lines, nodes = source.splitlines(), ast.parse(source).body
    defined = {name: node for node in nodes for name in _defined(node)}
    todo, needed = [name for name in wanted if name in defined], set()
    while todo:
        node = defined[todo.pop()]
        if node not in needed:
            needed.add(node)
            todo += [name for name in _names(_segment(lines, node)) if name in defined]
    kept = []
    for node in nodes:
        if node in needed:
            name = next(iter(_defined(node)), "")
            text = f"{name} = {constants[name]}" if name in constants else _segment(lines, node)
            tight = kept and not isinstance(node, ast.FunctionDef) and kept[-1][0] is type(node)
            kept.append((type(node), ("\n" if tight else "\n\n\n") + text))
    return "".join(text for _, text in kept).strip("\n")


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _segment(lines: list[str], node: ast.stmt) -> str:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    return "\n".join(lines[first - 1:node.end_lineno])


def _names(source: str) -> list[str]:
    return sorted({each.id for each in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(each, ast.Name)})


def _body(module: object) -> str:
    """A module without its docstring and imports."""
    source = inspect.getsource(module)
    nodes = [node for node in ast.parse(source).body[1:] if not isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n\n\n" + "\n\n\n".join(_segment(source.splitlines(), node) for node in nodes)


def _imports(kernel: str, used: list[str]) -> str:
    """The imports of the printed kernel and of the tools that define a name in use: of Python itself first, then of others."""
    known = {}
    for source in (kernel, *map(inspect.getsource, TOOLS), "import sys\nfrom numba import get_num_threads"):
        for node in ast.parse(source).body:
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else []:
                known[alias.asname or alias.name] = (getattr(node, "module", None), alias.name, alias.asname)
    wanted = sorted({known[name] for name in used if name in known}, key=lambda each: (each[0] or "", each[1]))
    lines: dict[str, list[str]] = {}
    for module, name, renamed in wanted:
        written = f"{name} as {renamed}" if renamed else name
        lines.setdefault(f"from {module} import " if module else f"import {written}", []).extend([written] if module else [])
    blocks: tuple[list[str], list[str]] = ([], [])
    for start, names in lines.items():
        blocks[start.split()[1].partition(".")[0] not in sys.stdlib_module_names].append(start + ", ".join(names))
    return "\n\n".join("\n".join(block) for block in blocks)


# the parts that are written for this operator


def _docstring(export: Export) -> str:
    form, schedule, axis = export.form, export.schedule, export.form.axis
    blocks = f", blocks of {schedule.block} along {export.program.block}" if export.program.block else ""
    needs = "NumPy and Numba (and SciPy, where Numba finds BLAS for np.dot)" if export.source.multiplies else "NumPy and Numba"
    dangers = list(dict.fromkeys(map(str, form.dangers)))
    parts = [f"{export.operator.name}: {summary(form)}.", export.operator.doc, _listed("The operator", str(export.operator).splitlines()),
             _listed("One more element (a prime marks the new value)", form.update.splitlines()),
             _listed("Two states a and b", form.merge.splitlines()),
             _listed("Holds only where", list(map(str, form.assumptions))), _listed("Dangers", dangers),
             "\n".join([*textwrap.wrap(f"Laws: {', '.join(form.laws)}", WIDTH), f"Certificate: sha256 {export.certificate}",
                        f"Schedule: tiles of {schedule.tile} along {axis}{blocks}, rows shared between threads",
                        f"Needs {needs}.  `python {export.operator.name}_cpu.py` checks it.",
                        "Written by `redfuser export`; changes are lost when it is written again."])]
    text = "\n\n".join(filter(None, parts))
    return ('r' if "\\" in text else "") + '"""' + text.replace('"""', "'''") + '\n"""'


def _listed(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"    {line}" for line in lines)]) if lines else ""


def _user_function(export: Export) -> str:
    operator, program, source = export.operator, export.program, export.source
    types = export.signature.arrays | export.signature.params
    inputs = "{" + ", ".join(f'"{name}": "{" ".join(axes)}"' for name, axes in operator.inputs.items()) + "}"
    arrays = [f'*laid_out(arrays["{name}"], INPUTS["{name}"], "{" ".join(program.inputs[name])}", batch),' for name in source.arrays]
    scalars = [f'{types[name]}(scalars["{name}"]),' for name in source.params]
    orders = [" ".join(_order(program, axes)) for axes in program.output_axes]
    dtypes = "{" + ", ".join(f'"{name}": "{DTYPES[types[name]]}"' for name in operator.inputs) + "}"
    tops = [f'{_length(axis)} = places({count}, "{chosen}", {_length(chosen)})' for axis, count, chosen in _tops(operator)]
    outputs = [f"out{place}" for place in range(len(orders))]
    lines = ['arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)', *tops,
             *(f'{out} = written(lengths, batch, "{order}", {type_})' for out, order, type_ in zip(outputs, orders, source.outputs, strict=True)),
             f"items = {_items(program)}", *(["with one_blas_thread():"] if source.multiplies else []),
             *textwrap.indent("\n".join(["kernel(", "    threads or get_num_threads(), items, TILE, BLOCK,", *(f"    {line}" for line in (*arrays, *scalars)),
                                         "    " + ", ".join([*map(_length, source.sizes), *outputs]) + ")"]), "    " * source.multiplies).splitlines()]
    back = [f'given_back(out{n}, batch, "{order}", "{" ".join(axes)}")' for n, (order, axes) in enumerate(zip(orders, program.output_axes, strict=True))]
    lines.append(f"return {_packed(operator, back)}")
    call = ", ".join(f'"{name}": {name}' for name in operator.inputs)
    given = ", ".join(f'"{name}": {name}' for name in operator.params)
    parameters = [*operator.inputs, "*", *(f"{n}" if d is None else f"{n}={d!r}" for n, d in operator.params.items()), "threads=None"]
    return "\n".join([
        f"INPUTS = {inputs}", f"DTYPES = {dtypes}", f"TILE, BLOCK = {export.schedule.tile}, {export.schedule.block}", "", "",
        f"def {_function_name(export)}({', '.join(parameters)}):", *(f"    {line}".rstrip() for line in _user_doc(export)),
        f"    return one_pass({{{call}}}, {{{given}}}, threads)", "", "",
        "def one_pass(arrays, scalars, threads):", '    """The outputs for arrays and scalars by name."""', *(f"    {line}" for line in lines)])


def _user_doc(export: Export) -> list[str]:
    shown = lambda axes: f"[{', '.join(['…', *axes])}]"
    types = export.signature.arrays
    given = ", ".join(f"{DTYPES[types[name]]} {name}{shown(axes)}" for name, axes in export.operator.inputs.items())
    results = ", ".join(f"{DTYPES[type_]} {shown(axes)}" for type_, axes in zip(export.source.outputs, export.program.output_axes, strict=True))
    return [f'"""{export.operator.name} in one pass over {export.form.axis}.', "",
            *textwrap.wrap(f"Takes {given}; gives {results}.  Leading dimensions are batch and broadcast.", WIDTH - 8),
            "Raises TypeError for another dtype, ValueError for shapes that do not fit.", '"""']


def _function_name(export: Export) -> str:
    """What the file calls the operator: its name, unless the file needs that name itself."""
    taken = {*OWN, *(name for module in TOOLS for name in vars(module)), *(name for node in ast.parse(export.source.text).body for name in _defined(node))}
    name = export.operator.name
    return f"{name}_" if name in taken else name


def _tops(operator: Operator) -> list[tuple[str, str, str]]:
    """The axes that topk makes: their name, the code of their length, the axis that is chosen from."""
    found = {}
    for term in subterms(*operator.outputs):
        if term.op == "reduce" and term.attrs[2]:
            count = f'scalars["{term.count.name}"]' if term.count.op == "param" else repr(term.count.value)
            found[term.attrs[2]] = (term.attrs[2], count, term.axis)
    return list(found.values())


def _order(program: TileProgram, axes: tuple[str, ...]) -> tuple[str, ...]:
    return (*program.rows, *([program.axis] if program.axis in axes else []), *program.columns(axes))


def _items(program: TileProgram) -> str:
    rows = [f"-(-{_length(axis)} // BLOCK)" if axis == program.block else _length(axis) for axis in program.rows]
    return " * ".join(["prod(batch)", *rows])


def _length(axis: str) -> str:
    return f'lengths["{axis}"]'


def _packed(operator: Operator, values: list[str]) -> str:
    if operator.structure == "single":
        return values[0]
    if operator.structure == "tuple":
        return "(" + ", ".join(values) + ("," if len(values) == 1 else "") + ")"
    return "{" + ", ".join(f'"{name}": {value}' for name, value in zip(operator.structure, values, strict=True)) + "}"


def _main(export: Export) -> str:
    operator, axis, name = export.operator, export.form.axis, _function_name(export)
    tile, block = export.schedule.tile, export.schedule.block
    others = {a: block + 3 if a == export.program.block else 3 + place for place, a in enumerate(a for own in operator.inputs.values() for a in own)}
    fixed = ", ".join(f'"{a}": {length}' for a, length in others.items() if a != axis)
    batch = "(3,)" if not export.program.rows else "()"
    scalars = {n: _default(operator, n) for n in operator.params}
    return "\n".join([
        "def main():", '    """Check the kernel against the definition at lengths that are no multiple of a tile."""',
        f"    kinds, scalars, cases = {dict(export.draws)!r}, {scalars!r}, []",
        f"    for length in ({max(tile // 2 + 1, 8)}, {2 * tile + 7}, {5 * tile - 3}):",
        f'        sizes, rng = {{{fixed}{", " if fixed else ""}"{axis}": length}}, np.random.default_rng(length)',
        f"        shapes = {{name: {batch} + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}}",
        "        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}",
        f'        cases.append((f"{operator.name}, {axis} = {{length}}", arrays, scalars))',
        f"    return 0 if passed_over({name}, definition, cases, {export.limit!r}) else 1", "", "",
        'if __name__ == "__main__":', "    sys.exit(main())"])


def _default(operator: Operator, name: str) -> bool | int | float:
    default = operator.params[name]
    if default is not None:
        return default
    return 3 if f'scalars["{name}"]' in {count for _, count, _ in _tops(operator)} else 1.0
