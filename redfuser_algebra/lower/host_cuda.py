"""The host's half of a CUDA kernel file: `plan` checks arrays and chooses the grid, `launch` runs the kernel.

In: a tile program and the dtypes of its arrays.  Out: lines of source.  `plan` needs no GPU, so it can be tested anywhere.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from inspect import getsource

from redfuser_algebra.lower.float8 import Float8
from redfuser_algebra.lower.marks import marked, taken_from_outside, unmarked
from redfuser_algebra.lower.standalone.float8 import as_bits
from redfuser_algebra.lower.storage import Signature, Variable
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import TileProgram
from redfuser_algebra.lower.variants import variant

STORED = {"float32": "np.float32", "float64": "np.float64", "float16": "np.float16", "bfloat16": "np.uint16"}
_DTYPES = {"i8": "np.int64", "b1": "np.bool_"}

SPLIT, PARTS, BLOCKS = 1 << 16, 256, 1024
"""From which length on a row may be shared by blocks, by how many at most, and how many blocks are enough in all."""


@dataclass(frozen=True)
class Choice:
    """How `plan` chooses a kernel: lines that define `warps` (from `length` and `sizes`), and what `make` is given besides, as code.

    `grid` is code for the number of blocks and the threads of each.
    """

    lines: list[str]
    made: str
    grid: str = "(-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)"


_CHECKED = '''
def checked(arrays):
    """Lengths of axes, the batch's shape, and how far apart an array's parts of the batch are; raises ValueError for arrays that do not fit."""
    sizes, leading, steps = {}, (), {}
    for name, array in arrays.items():
        there, own = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None), AXES[name]
        if there is None:
            raise TypeError(f"{name} is {type(array).__name__}, which is no array; give one of NumPy, CuPy or torch")
        shape, dtype = tuple(there["shape"]), np.dtype(there["typestr"])
        ahead, inner = shape[:len(shape) - len(own)], shape[len(shape) - len(own):] if own else ()
        dense = tuple(dtype.itemsize * math.prod(shape[n + 1:]) for n in range(len(shape)))
        for right, wrong in ((len(shape) >= len(own), f"it needs the axes {own}, after any batch axes"),
                             (dtype == DTYPES[name], f"it holds {dtype}, and this kernel was made for {np.dtype(DTYPES[name])}; convert it"),
                             (there.get("strides") in (None, dense), "it is not contiguous; make a contiguous copy of it"),
                             (there["data"][0] % dtype.itemsize == 0, f"its elements are not at multiples of {dtype.itemsize} bytes; make a copy of it"),
                             (all(0 < size <= 2**31 - 2**16 for size in shape), "each axis needs from 1 to 2^31 - 2^16 elements; reduce parts of it"),
                             (not ahead or ahead == (leading or ahead), f"its batch axes are {ahead}, elsewhere {leading}; give an array all or none"),
                             (all(sizes.get(axis, size) == size for axis, size in zip(own, inner)), f"lengths must agree, and elsewhere are {sizes}")):
            if not right:
                raise ValueError(f"{name} of shape {shape}: {wrong}")
        sizes.update(zip(own, inner))
        leading, steps[name] = leading or ahead, np.int64(math.prod(inner) if ahead else 0)
    return sizes, leading, steps
'''

_RUN = '''    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(GIVEN)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)'''


_NEEDED = '''    if cuda.get_current_device().compute_capability < (8, 9):
        raise RuntimeError("floats of eight bits need compute capability 8.9 here; export the kernel for sm_80, which widens them")
'''


@dataclass(frozen=True)
class Host:
    """The host's half of a module: `plan`, `launch`, and the tables they read; `held` is what parts of rows leave."""

    program: TileProgram
    signature: Signature
    dtype: str
    outputs: tuple[str, ...]
    held: list[Variable]
    float8: Float8 = Float8()

    @property
    def _given(self) -> str:
        return ", ".join(map(marked, (*self.program.inputs, *self.program.params)))

    def lines(self, plan: list[str]) -> list[str]:
        """Everything, with the lines of `plan` as given."""
        own = "\n".join([*plan, "", "", f"def launch({self._given}, stream=0):", self._run()])
        return [*self._tables(), *self._checked().splitlines(), "", "", *unmarked(own, {*taken_from_outside(own), "stream"}).splitlines()]

    def _tables(self) -> list[str]:
        program, formats = self.program, self.float8.formats
        kinds = {"f4": STORED[self.dtype], "f8": STORED[self.dtype], **_DTYPES}
        kept = {"f4": "np.float32", "f8": "np.float64", "i4": "np.int32", **_DTYPES}
        order = [program.stored(own) for own in program.output_axes]
        return [f"AXES = {dict(program.inputs)!r}",
                "DTYPES = {" + ", ".join(f"{n!r}: {'np.uint8' if n in formats else kinds[self.signature.arrays[n]]}" for n in program.inputs) + "}",
                *([f"FACTORS = {dict(formats)!r}"] if formats else []),
                "OUTPUTS = [" + ", ".join(f"({own!r}, {kinds[type_]})" for own, type_ in zip(order, self.outputs, strict=True)) + "]",
                f"HELD = [{', '.join(f'({kept[v.type]}, {tuple(program.copies.get(a, a) for a in v.columns)!r})' for v in self.held)}]", ""]

    def _checked(self) -> str:
        if not self.float8.formats:
            return _CHECKED
        return f"\n{getsource(as_bits)}\n{variant(_CHECKED, ('{np.dtype(DTYPES[name])}', '{FACTORS.get(name) or np.dtype(DTYPES[name])}'))}"

    def _run(self) -> str:
        run = _RUN.replace("GIVEN", self._given)
        return variant(run, ("    launches, arguments, held", f"{_NEEDED}    launches, arguments, held")) if self.float8.native else run

    def rows_plan(self, choice: Choice, columns: Collection[str]) -> list[str]:
        """The lines of `plan` for kernels in which warps share a row; they are made for numbers of columns."""
        program, whole = self.program, f"[((warps, 'whole'{choice.made}), blocks, threads)]"
        items = " * ".join(["math.prod(leading)", *(f"sizes[{a!r}]" for a in program.rows)])
        split = filled(f"""
            parts = max(1, min({PARTS}, {BLOCKS} // blocks, length // {SPLIT // 8})) if length >= {SPLIT} else 1
            piece = -(-length // parts // 32) * 32 if parts > 1 else length
            launches = [((warps, 'part'{choice.made}), blocks * parts, threads), ((8, 'join'{choice.made}), items, 256)] if parts > 1 else {whole}
        """)
        chosen = filled(f"""
            items, length = {items}, sizes[{program.axis!r}]
            <choice>
            blocks, threads = {choice.grid}
            <parts>
        """, choice=choice.lines, parts=[f"parts, piece, launches = 1, length, {whole}"] if program.maps else split)
        return self.plan(chosen, columns, ("items", "parts", "piece"))

    def plan(self, chosen: list[str], fixed: Collection[str], counts: tuple[str, ...], whole: str = "np.int64") -> list[str]:
        """The lines of `plan`: sizes, then what is `chosen` by them, then arguments: arrays, scalars, sizes
        but `fixed` ones, which are `whole` numbers, and counts."""
        program, formats = self.program, self.float8.formats
        known = (a for own in (*program.inputs.values(), *program.output_axes) for a in own)
        sizes = tuple(a for a in dict.fromkeys(known) if a not in program.copies and a not in fixed)
        scalars = {"i8": "np.int64", "b1": "np.bool_"}
        arrays = {n: f"as_bits({marked(n)}, {formats[n]!r})" if n in formats else marked(n) for n in program.inputs}
        numbers = {p: f"{scalars.get(self.signature.params[p], 'np.float64')}({marked(p)})" for p in program.params}
        counted = [*(["*numbers.values()"] if numbers else []), *([f"*({whole}(sizes[axis]) for axis in {sizes!r})"] if sizes else []),
                   *(f"np.int64({each})" for each in counts)]
        return filled(f'''
            def plan({self._given}):
                """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
                and the shapes of the outputs."""
                <tables>
                sizes, leading, steps = checked(arrays)
                <chosen>
                arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
                arguments += [{', '.join(counted)}]
                held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
                return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]
        ''', chosen=chosen, tables=[f"arrays, numbers = {_table(arrays)}, {_table(numbers)}" if numbers else f"arrays = {_table(arrays)}"])


def _table(codes: Mapping[str, str]) -> str:
    """Code for a dict of what is given, by the operator's names."""
    return f"{{{', '.join(f'{name!r}: {code}' for name, code in codes.items())}}}"
