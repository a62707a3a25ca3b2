"""A CUDA kernel as a file of its own: NumPy and numba-cuda are all it needs, and a GPU only to run.

In: an operator, its form and program, the kernel printed for it, and which inputs to draw.  Out: the text.  The same
arguments give the same bytes.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.numpy_text import numpy_definition
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.arithmetic_cuda import CudaSource
from redfuser_algebra.lower.standalone import bfloat16, checking, meaning
from redfuser_algebra.lower.standalone.pieces import body_of, header, imports_of, names_in, reachable
from redfuser_algebra.lower.tile import TileProgram

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

TOOLS = (meaning, checking, bfloat16)
LENGTHS = (1, 31, 1000, 8191, 100000)
"""Of the reduced axis in a file's check of itself."""


@dataclass(frozen=True)
class CudaExport:
    """What a file is made of.  `draws` names a kind of numbers for each input, `limit` the error that its check allows."""

    operator: Operator
    form: FusedForm
    program: TileProgram
    source: CudaSource
    certificate: str
    draws: Mapping[str, str]
    limit: float


def cuda_text(export: CudaExport) -> str:
    """The whole file."""
    meant, main = "\n".join(numpy_definition(export.operator)), _main(export)
    tools = reachable("".join(map(body_of, TOOLS)), names_in("\n".join((meant, main))), AXES=repr(export.operator.axes))
    tools = tools.replace("AXES", "ALL_AXES")
    body = [export.source.body, tools, meant.replace("AXES", "ALL_AXES"), main]
    imports = imports_of(export.source.imports, names_in("\n".join(body)), TOOLS, "import sys")
    as_bits = ", given and returned as their bits in uint16" if export.source.dtype == "bfloat16" else ""
    top = header(export.operator, export.form, export.certificate, [
        f"Real numbers: {export.source.dtype}{as_bits}.  A row is shared by the threads of a warp, of a block, or of several.",
        f"Needs NumPy and numba-cuda; `python {export.operator.name}_cuda.py` checks it on a GPU."])
    return "\n\n\n".join([f"{top}\n{imports}", *body]) + "\n"


def _main(export: CudaExport) -> str:
    operator, axis, names = export.operator, export.program.axis, export.source.names
    sizes = {a: 3 + place for place, a in enumerate(operator.axes) if a != axis}
    fixed = "".join(f'"{a}": {size}, ' for a, size in sizes.items())
    scalars = {name: (3 if name in export.program.chosen else 1.0) if value is None else value for name, value in operator.params.items()}
    given, narrow = [*operator.inputs, *operator.params], export.source.dtype == "bfloat16"
    lengths = [length for length in LENGTHS if length > 1 or not any(MONOIDS[u.monoid].counted for u in export.program.updates)]
    moved = [f"turned({name}, {operator.inputs[name]!r}, {own!r})" if own != operator.inputs[name] else name for name, own in export.program.inputs.items()]
    moved = [f"to_bfloat16({code}) if DTYPES[{names[name]!r}] == np.uint16 else {code}" if narrow else code for name, code in zip(export.program.inputs, moved, strict=True)]
    written = [export.program.stored(own) for own in export.program.output_axes]
    results = [f"from_bfloat16(outputs[{n}])" if narrow and type_ == "f4" else f"outputs[{n}]" for n, type_ in enumerate(export.source.outputs)]
    back = [f"turned({result}, {own!r}, {axes!r})" for result, own, axes in zip(results, written, export.program.output_axes, strict=True)]
    kinds = {name: export.draws[name] for name in operator.inputs}
    stored = "from_bfloat16(to_bfloat16(VALUES)) if DTYPES[names[name]] == np.uint16 else VALUES" if narrow else "VALUES.astype(DTYPES[names[name]])"
    stored = stored.replace("VALUES", "drawn(rng, kinds[name], shape, length)")
    return "\n".join([
        "def turned(array, axes, order):", '    """An array with its last axes in another order."""', "    leading = array.ndim - len(axes)",
        "    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))", "", "",
        f"def launched({', '.join(given)}):", '    """`launch` with the axes as the operator has them."""',
        f"    outputs = launch({', '.join([*moved, *operator.params])})", "    outputs = outputs if isinstance(outputs, tuple) else (outputs,)",
        f"    return {', '.join(back)}{',' if len(back) == 1 else ''}", "", "",
        "def main():", '    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""',
        "    if not cuda.is_available():", '        print("There is no GPU here, or no driver for one: nothing was checked.")', "        return 1",
        f"    kinds, scalars, cases = {kinds!r}, {scalars!r}, []",
        f"    for length in {tuple(lengths)!r}:",
        f'        sizes, rng = {{{fixed}"{axis}": length}}, np.random.default_rng(length)',
        f"        axes, names = {dict(operator.inputs)!r}, {names!r}",
        "        shapes = {name: (3,) * (" + repr(axis) + " in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}",
        f"        arrays = {{name: {stored} for name, shape in shapes.items()}}",
        f'        cases.append((f"{operator.name}, {axis} = {{length}}", arrays, scalars))',
        f"    return 0 if passed_over(launched, definition, cases, {export.limit!r}) else 1", "", "",
        'if __name__ == "__main__":', "    sys.exit(main())"])
