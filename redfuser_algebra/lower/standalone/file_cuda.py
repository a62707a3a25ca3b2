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
from redfuser_algebra.lower.standalone import bfloat16, checking, float8, meaning
from redfuser_algebra.lower.standalone.pieces import body_of, header, imports_of, names_in, reachable
from redfuser_algebra.lower.tile import TileProgram

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

TOOLS = (meaning, checking, bfloat16, float8)
LENGTHS = (1, 31, 1000, 8191, 100000)
"""Of the reduced axis in a file's check of itself."""


@dataclass(frozen=True)
class CudaExport:
    """What a file is made of.  `types` and `draws` name a type and a kind of numbers for each input, `limit` the error that its check allows."""

    operator: Operator
    form: FusedForm
    program: TileProgram
    source: CudaSource
    certificate: str
    types: Mapping[str, str]
    draws: Mapping[str, str]
    limit: float

    def bits(self, name: str, code: str) -> str:
        """Code for an input as its bits where NumPy lacks its numbers."""
        if name in self.source.float8.formats:
            return f"to_float8({code}, {self.source.float8.formats[name]!r})"
        return f"to_bfloat16({code})" if self.source.dtype == "bfloat16" and self.types[name] in ("f4", "f8") else code

    def rounded(self, name: str, code: str) -> str:
        """Code for an input's numbers in its dtype."""
        bits = self.bits(name, code)
        if bits == code:
            return f"{code}.astype(DTYPES[{name!r}])"
        return f"from_float8({bits}, {self.source.float8.formats[name]!r})" if name in self.source.float8.formats else f"from_bfloat16({bits})"


def cuda_text(export: CudaExport) -> str:
    """The whole file."""
    meant, launched = "\n".join(numpy_definition(export.operator)), _launched(export)
    main = _main(export, "launched" if launched else "launch")
    tools = reachable("".join(map(body_of, TOOLS)), names_in("\n".join((meant, launched, main))), AXES=repr(export.operator.axes))
    tools = tools.replace("AXES", "ALL_AXES")
    body = [export.source.body.rstrip(), tools, meant.replace("AXES", "ALL_AXES"), *filter(None, [launched]), main]
    imports = imports_of(export.source.imports, names_in("\n".join(body)), TOOLS, "import sys")
    as_bits = ", given and returned as their bits in uint16" if export.source.dtype == "bfloat16" else ""
    as_bits += "".join(f"; {name} in {own}" for name, own in export.source.float8.formats.items())
    as_bits += ", of torch, ml_dtypes or as bits in uint8" if export.source.float8.formats else ""
    top = header(export.operator, export.form, export.certificate, [
        f"Real numbers: {export.source.dtype}{as_bits}.  A row is shared by the threads of a warp, of a block, or of several.",
        *(["Products by wgmma and copies by TMA, which sm_90a alone has: compiled, and executed on a CPU; no GPU has run it yet."] if export.source.wgmma else []),
        *([SPOKEN[export.source.float8.native]] if export.source.float8.formats else []),
        f"Needs NumPy and numba-cuda; `python {export.operator.name}_cuda.py` checks it on a GPU."])
    return "\n\n\n".join([f"{top}\n{imports}", *body]) + "\n"


SPOKEN = {True: "Floats of eight bits need compute capability 8.9: compiled, and executed on a CPU; no GPU has run it yet.",
          False: "Floats of eight bits are widened on their way in, which every GPU can."}
"""What files say of factors of eight bits, native or not."""

DRAWN = {"normal": "rng.standard_normal({})", "positive": "rng.uniform(0.5, 2.0, {})", "unit": "rng.uniform(0.01, 0.99, {})",
         "whole": "rng.integers(0, length, {})", "bits": "rng.integers(0, 2, {})"}
"""Numbers of a kind, with a shape, as code."""


def _launched(export: CudaExport) -> str:
    """A function that calls `launch` with arrays and axes as the operator has them; "" where `launch` itself takes them so."""
    operator, narrow = export.operator, export.source.dtype == "bfloat16"
    moved = [f"turned({name}, {operator.inputs[name]!r}, {own!r})" if own != operator.inputs[name] else name for name, own in export.program.inputs.items()]
    moved = [export.bits(name, code) for name, code in zip(export.program.inputs, moved, strict=True)]
    given = [*operator.inputs, *operator.params]
    back = []
    for place, (own, type_) in enumerate(zip(export.program.output_axes, export.source.outputs, strict=True)):
        result = f"from_bfloat16(outputs[{place}])" if narrow and type_ == "f4" else f"outputs[{place}]"
        back.append(result if own == export.program.stored(own) else f"turned({result}, {export.program.stored(own)!r}, {own!r})")
    if [*moved, *operator.params] == given and back == [f"outputs[{place}]" for place in range(len(back))]:
        return ""
    turned = ["def turned(array, axes, order):", '    """An array with its last axes in another order."""', "    leading = array.ndim - len(axes)",
              "    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))", "", ""]
    lines = [f"def launched({', '.join(given)}):", '    """`launch` with the axes as the operator has them."""',
             f"    outputs = launch({', '.join([*moved, *operator.params])})", "    outputs = outputs if isinstance(outputs, tuple) else (outputs,)",
             f"    return {', '.join(back)}{',' if len(back) == 1 else ''}"]
    return "\n".join([*(turned if "turned(" in "".join(lines) else []), *lines])


def _main(export: CudaExport, function: str) -> str:
    operator, axis = export.operator, export.program.axis
    sizes = {a: "length" if a == axis else str(3 + place) for place, a in enumerate(operator.axes)}
    scalars = {name: (3 if name in export.program.chosen else 1.0) if value is None else value for name, value in operator.params.items()}
    lengths = [length for length in LENGTHS if length > 1 or not any(MONOIDS[u.monoid].counted for u in export.program.updates)]
    drawn = []
    for name, own in operator.inputs.items():
        shape = [*(["3"] if axis in own else []), *(sizes[a] for a in own)]
        value = DRAWN[export.draws[name]].format(f"({', '.join(shape)}{',' * (len(shape) == 1)})")
        drawn.append(f'"{name}": {export.rounded(name, value)}')
    between = "," + chr(10) + 18 * " "
    return "\n".join([
        "def main():", '    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""',
        "    if not cuda.is_available():", '        print("There is no GPU here, or no driver for one: nothing was checked.")', "        return 1",
        "    errors = {}", f"    for length in {tuple(lengths)!r}:", "        rng = np.random.default_rng(length)",
        f"        arrays = {{{between.join(drawn)}}}", '        with np.errstate(all="ignore"):',
        f"            wanted = definition(*arrays.values(), {', '.join(map(repr, scalars.values()))})".replace(", )", ")"),
        f"        errors[length] = distance({function}(*arrays.values(), {', '.join(map(repr, scalars.values()))}), wanted)".replace(", )", ")"),
        f'        print(f"{operator.name}, {axis} = {{length}}: error {{errors[length]:.1e}} of the largest value, at most {export.limit:g} is right")',
        f"    return 0 if max(errors.values()) <= {export.limit!r} else 1", "", "",
        'if __name__ == "__main__":', "    sys.exit(main())"])
