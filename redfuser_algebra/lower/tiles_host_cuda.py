"""The host's half of a CUDA kernel file with matrix products: how long tiles are, and how many blocks there are.

In: the parts of a tile program and the dtypes of its arrays.  Out: lines of source.
"""
from __future__ import annotations

from redfuser_algebra.language.expr import subterms
from redfuser_algebra.lower.host_cuda import Host
from redfuser_algebra.lower.operands_cuda import Operand, Products
from redfuser_algebra.lower.templates import filled

SHARED = 48 * 1024
"""Bytes of shared memory that every launch may have without asking."""

SCHEDULES = ((4, 64), (4, 32), (2, 64), (2, 32), (1, 64), (1, 32), (4, 16), (2, 16), (1, 16))
"""Warps of a block, and elements in a tile: the first that fits, and has more rows than are missing, is taken."""

WARPGROUPS = tuple(each for each in SCHEDULES if each[0] == 4)
"""The same where four warps multiply together."""

OF_BYTES = tuple(each for each in SCHEDULES if each[1] % 32 == 0)
"""The same where weights are bytes, which are multiplied 32 at a time."""

COLUMNS = 256
"""How many columns the registers of a block hold, of all sums together."""

NUMBERS = 160
"""How many numbers of fragments a lane holds, which leaves registers for the rest."""

_SIZES = '''
def span_of(count):
    """How many columns a block takes: all, if registers hold them."""
    return -(-count // 16) * 16 if count <= WIDEST else WIDEST // 32 * 16
'''

_ALIGNED = 'getattr(each, "__cuda_array_interface__", {"data": [0]})["data"][0] % 16 == 0'
"""Whether an array of the GPU begins at a multiple of 16 bytes; others are copied to such a place."""

PARTS, BLOCKS, PIECE = 64, 256, 512
"""Into how many parts the elements of a row may be divided, how many blocks are enough in all, and how short a part may be."""


def tiles_host(parts: Products, host: Host, schedules: tuple[tuple[int, int], ...], single: tuple[Operand, ...] = (), room: int = 0) -> list[str]:
    """The lines of `plan` and `launch`, and what `make` needs to know of sizes: of tiles in a `single` place, and `room` for other bytes."""
    widest = COLUMNS // len(parts.weighted) // 16 * 16 if parts.weighted else COLUMNS
    return filled(f"""
        SCHEDULES, WIDEST = {schedules}, {widest}
        <sizes>


        <needs>


        <host>
    """, sizes=_SIZES.splitlines(), needs=_needs(parts, single, room), host=host.lines(host.plan(_chosen(parts, schedules), parts.lengths, ("parts", "piece"), "np.int32")))


def _chosen(parts: Products, schedules: tuple[tuple[int, int], ...]) -> list[str]:
    """The lines of `plan` that choose a schedule, the number of blocks and the parts into which elements are divided."""
    program, known = parts.program, {a for own in (*parts.program.inputs.values(), *parts.program.output_axes) for a in own}
    length, kinds = f"sizes[{program.axis!r}]", ", ".join(f"sizes[{a!r}]" for a in parts.lengths)
    counted = program.joined or tuple(axis for axis in (program.block,) if axis in known)
    rows = f"math.prod(sizes[axis] for axis in {counted})" if len(counted) > 1 else f"sizes[{counted[0]!r}]" if counted else "1"
    spans = f"-(-sizes[{parts.divided!r}] // span_of(sizes[{parts.divided!r}]))" if parts.divided else "1"
    return filled(f"""
        groups = {' * '.join(['math.prod(leading)', *(f'sizes[{a!r}]' for a in program.rows[:-1])])}
        <held>
        aligned = all({_ALIGNED} for each in arrays.values())
        even = tuple(axis for axis, vector in {{{_vectors(parts)}}}.items() if aligned and sizes[axis] % vector == 0)
        fits = lambda warps, tile, shared, numbers: shared <= {SHARED} and numbers <= {NUMBERS} and (warps == {schedules[-1][0]} or 8 * warps < {rows})
        schedules = [each for each in SCHEDULES if fits(*each, *needs(*each, {kinds}))]
        if not schedules:
            raise ValueError(f"rows as long as {{sizes}} fit neither into shared memory nor into registers; shorten the axes that are no rows")
        warps, tile = schedules[0]
        blocks = groups * -(-{rows} // (16 * warps)) * {spans}
        parts = max(1, min({PARTS}, {BLOCKS} // blocks, {length} // {PIECE}))
        piece = -(-{length} // (parts * tile)) * tile
        parts = -(-{length} // piece)
        make_for = (warps, tile, even, {kinds})
        launches = [(('part', *make_for), blocks * parts, 32 * warps), (('join', *make_for), blocks, 32 * warps)]
        launches = launches if parts > 1 else [(('whole', *make_for), blocks, 32 * warps)]
        items = groups * {rows} if parts > 1 else 1
    """, held=[line for a in parts.columns if a != parts.divided for line in _held(a)])


def _held(axis: str) -> list[str]:
    """Columns that are not divided among blocks are not too many."""
    return [f"if sizes[{axis!r}] > WIDEST:",
            f'    raise ValueError(f"axis {axis} has length {{sizes[{axis!r}]}}; this kernel holds at most {{WIDEST}} columns")']


def _vectors(parts: Products) -> str:
    """How many numbers are a piece of 16 bytes, along each axis of which rows are copied in such pieces if they can."""
    in_bytes = [o for o in (*parts.lefts, *parts.streamed) if set(parts.float8.formats) & {t.name for t in subterms(o.value) if t.op == "input"}]
    of_bytes = {operand.columns for operand in in_bytes}
    return ", ".join(f"{a!r}: {16 if a in of_bytes else 'CHUNK'}" for a in parts.contiguous)


def _needs(parts: Products, single: tuple[Operand, ...], room: int) -> list[str]:
    """Tiles that stay, two stages of those that come, and room for what is written at the end; and fragments."""
    twice = [o for o in parts.streamed if o not in single]
    stay, come = (" + ".join(f"{parts.height(o)} * {parts.width(o)}" for o in operands) or "0" for operands in ((*parts.lefts, *single), twice))
    stay = " + ".join([stay, *(f"width_of(n_{parts.program.inputs[name][-1]})" for name in parts.kept)])
    come = " + ".join([come, *("TILE * 8" if name in parts.wholes else "width_of(TILE)" for name in parts.vectors)])
    fragments = len(parts.produced) + len(parts.elements) + len(parts.weighted)
    written = " + ".join(f"ROWS * width_of(SPAN_{a})" for a in parts.columns) or "0"
    return filled(f'''
        def needs({', '.join(['warps', 'TILE', *(f'n_{a}' for a in parts.lengths)])}):
            """Bytes of shared memory for tiles that stay and two stages of those that come, or for results; numbers in the fragments of a lane."""
            ROWS = 16 * warps
            <spans>
            return max({stay} + 2 * ({come}), {written}){f' + {room}' * bool(room)}, {' + '.join([f'{fragments} * TILE // 2', *(f'SPAN_{w.columns} // 2' for w in parts.weighted)])}
    ''', spans=[f"SPAN_{a} = span_of(n_{a})" for a in parts.columns])
