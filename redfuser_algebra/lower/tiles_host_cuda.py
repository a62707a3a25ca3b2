"""The host's half of a CUDA kernel file with matrix products: how long tiles are, and how many blocks there are.

In: the parts of a tile program and the dtypes of its arrays.  Out: lines of source.
"""
from __future__ import annotations

from collections.abc import Mapping

from redfuser_algebra.lower.host_cuda import host, plan
from redfuser_algebra.lower.operands_cuda import Products
from redfuser_algebra.lower.storage_cpu import Signature

SHARED = 48 * 1024
"""Bytes of shared memory that every launch may have without asking."""

SCHEDULES = ((4, 64), (4, 32), (2, 64), (2, 32), (1, 64), (1, 32), (4, 16), (2, 16), (1, 16))
"""Warps of a block, and elements in a tile: the first that fits, and has more rows than are missing, is taken."""

COLUMNS = 256
"""How many columns of a sum the registers of a block hold."""

_SIZES = f'''
def width_of(count):
    """Bytes of a row of so many numbers in shared memory: whole groups of eight chunks."""
    return -(-count * SIZE // 128) * 128


def span_of(count):
    """How many columns a block takes: all, if registers hold them."""
    return -(-count // 16) * 16 if count <= {COLUMNS} else {COLUMNS // 2}
'''


def tiles_host(parts: Products, names: Mapping[str, str], signature: Signature, dtype: str, outputs: tuple[str, ...]) -> list[str]:
    """The lines of `plan` and `launch`, and what `make` needs to know of sizes."""
    program, lengths = parts.program, [f"sizes[{a!r}]" for a in parts.lengths]
    whole = dict.fromkeys(f"sizes[{operand.columns!r}]" for operand in (*parts.lefts, *parts.streamed))
    rows = f"sizes[{program.block!r}]"
    spans = f"-(-sizes[{parts.divided!r}] // span_of(sizes[{parts.divided!r}]))" if parts.divided else "1"
    whole_columns = [a for a in parts.columns if a != parts.divided]
    chosen = [f"    items, parts = {' * '.join(['math.prod(leading)', *(f'sizes[{a!r}]' for a in program.rows[:-1])])}, 1",
              *(line for a in whole_columns for line in (f"    if sizes[{a!r}] > {COLUMNS}:", f'        raise ValueError(f"axis {a} has length {{sizes[{a!r}]}}; this kernel holds at most {COLUMNS} columns")')),
              f"    vector = all(size % CHUNK == 0 for size in ({', '.join(whole)},))",
              f"    schedules = [each for each in SCHEDULES if shared_bytes(*each, {', '.join(lengths)}) <= {SHARED} and (each[0] == 1 or 8 * each[0] < {rows})]",
              "    if not schedules:", '        raise ValueError(f"tiles of rows as long as {sizes} do not fit into shared memory; shorten the axes that are no rows")',
              "    warps, tile = schedules[0]",
              f"    launches = [((warps, tile, vector, {', '.join(lengths)}), items * -(-{rows} // (16 * warps)) * {spans}, 32 * warps)]"]
    return [f"SCHEDULES = {SCHEDULES}", *_SIZES.splitlines(), "", "", *_shared_bytes(parts), "", "",
            *host(program, names, signature, dtype, outputs, [], plan(program, names, signature, chosen, parts.lengths, (), "np.int32"))]


def _shared_bytes(parts: Products) -> list[str]:
    """Tiles that stay, two stages of those that come, and room for what is written at the end."""
    stay, come = (" + ".join(f"{parts.height(o)} * width_of({parts.width(o)})" for o in operands) or "0" for operands in (parts.lefts, parts.streamed))
    written = " + ".join(["0", *(f"ROWS * width_of(SPAN_{a})" for a in parts.columns)])
    return [f"def shared_bytes(warps, TILE, {', '.join(f'n_{a}' for a in parts.lengths)}):", '    """Bytes of shared memory for tiles that stay and two stages of those that come, or for results."""',
            "    ROWS = 16 * warps", *(f"    SPAN_{a} = span_of(n_{a})" for a in parts.columns), f"    return max({stay} + 2 * ({come}), {written})"]
