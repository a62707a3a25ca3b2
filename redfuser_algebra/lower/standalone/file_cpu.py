"""A CPU kernel as a file of its own: NumPy and Numba are all it needs.

In: an operator, its form and program, the kernel printed for it, a schedule, and which inputs to draw.  Out: the text.
The same arguments give the same bytes.
"""
from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redfuser_algebra.discover.show import WIDTH
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.language.numpy_text import numpy_definition
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.kinds import DTYPES
from redfuser_algebra.lower.numba_cpu import CpuSource
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.standalone import calling, checking, meaning
from redfuser_algebra.lower.standalone.pieces import body_of, defined_by, header, imports_of, names_in, reachable
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import TileProgram

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

TOOLS = (calling, meaning, checking)
OWN = ("kernel", "sweep", "one_pass", "definition", "main", "INPUTS", "DTYPES", "TILE", "BLOCK", "sys")
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
    tools = reachable("".join(map(body_of, TOOLS)), names_in("\n".join((user, meant, main))), AXES=repr(export.operator.axes))
    body = [user, reachable(export.source.text, ["kernel"]), tools, meant, main]
    imports = imports_of(export.source.text, names_in("\n".join(body)), TOOLS, "import sys\nfrom numba import get_num_threads")
    return "\n\n\n".join([f"{_docstring(export)}\n{imports}", *body]) + "\n"


# the parts that are written for this operator


def _docstring(export: Export) -> str:
    schedule, axis = export.schedule, export.form.axis
    blocks = f", blocks of {schedule.block} along {export.program.block}" if export.program.block else ""
    return header(export.operator, export.form, export.certificate,
                  [f"Schedule: tiles of {schedule.tile} along {axis}{blocks}, rows shared between threads",
                   f"Needs NumPy and Numba.  `python {export.operator.name}_cpu.py` checks it."])


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
             f"items = {_items(program)}", "kernel(", "    threads or get_num_threads(), items, TILE, BLOCK,", *(f"    {line}" for line in (*arrays, *scalars)),
             "    " + ", ".join([*map(_length, source.sizes), *outputs]) + ")"]
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
    taken = {*OWN, *(name for module in TOOLS for name in vars(module)), *(name for node in ast.parse(export.source.text).body for name in defined_by(node))}
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
