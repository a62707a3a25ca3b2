"""Matrix products by warps, as text: tiles in shared memory, fragments in registers, and the instructions for both.

A warp has 16 rows of a block.  Its lane holds, of a tile's row, two neighbouring numbers in every eight: those of rows
lane // 4 and lane // 4 + 8 (PTX ISA, "Matrix Fragments for mma.m16n8k16").  As local arrays: s[r, i] is the number in
column 8·(i // 2) + 2·(lane % 4) + i % 2 of the lane's row r.  Float32 has the same fragments and multiplies without tensor cores.

In shared memory a row lies in chunks of 16 bytes; chunk c of row r is at place c ^ (r % 8), so that neither a row nor a
column of eight chunks meets a bank twice.

Out: Python source that uses numba-cuda; `fragments(dtype, bodies)` holds only what is used.
"""
from __future__ import annotations

import re

from redfuser_algebra.lower.arithmetic_cuda import BYTES

_SHARED = '''
@intrinsic
def shared_address(context, array):
    """Where an array begins in shared memory."""
    def emit(context, builder, signature, args):
        pointer = context.make_array(signature.args[0])(context, builder, value=args[0]).data
        return builder.ptrtoint(builder.addrspacecast(pointer, ir.PointerType(pointer.type.pointee, 3)), ir.IntType(32))
    return types.int32(array), emit
'''

_COPIES = '''
copy_chunk = _instruction("cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "rlr", stores=True)
copies_end = _instruction("cp.async.commit_group;", "", "", stores=True)
wait_for_copies = _instruction("cp.async.wait_group 0;", "", "", stores=True)
wait_for_all_but_the_last = _instruction("cp.async.wait_group 1;", "", "", stores=True)
'''

_PLACE = '''
@cuda.jit(device=True, forceinline=True)
def chunk_at(row, chunk, width):
    """Where a chunk of a row lies in a tile whose rows are `width` bytes long."""
    return i4(i4(row * width) + i4(i4(chunk ^ i4(row & 7)) << 4))
'''

_LOAD = '''
@cuda.jit(device=True, forceinline=True)
def load_tile(to, source, stride, rows, columns, height, width, vector, thread, threads):
    """Copy a tile of `height` rows of `width` bytes into shared memory; beyond `rows` and `columns` there are zeros."""
    first, rows, columns = i4(thread >> 3), i4(min(rows, height)), i4(min(columns, width))
    for panel in range(width // 128):
        chunk = i4((thread & 7) + 8 * panel)
        there = chunk * CHUNK < columns
        for i in range(height * 8 // threads):
            row = i4(first + i * (threads // 8))
            place, origin = i4(to + chunk_at(row, chunk, width)), source + i8(row) * stride + chunk * 16
            if vector:
                inside = there & (row < rows)
                copy_chunk(place, sel(inside, origin, source), sel(inside, i4(16), i4(0)))
            else:
                v = cuda.local.array(CHUNK, f4)
                for e in range(CHUNK):
                    v[e] = load_one(origin + e * SIZE, sel((row < rows) & (chunk * CHUNK + e < columns), i4(1), i4(0)))
                keep_chunk(place, VALUES)
'''

_SCORES_HALF = '''
@cuda.jit(device=True, forceinline=True)
def multiply_rows(left, right, lane, steps, width, tile, s):
    """s += left · rightᵀ for the 16 rows at `left`, both with rows of 16 · steps numbers."""
    inner, outer, across, low = i4(lane & 15), i4(lane >> 4), i4((lane & 7) + i4(lane >> 4 << 3)), i4(lane >> 3 & 1)
    for k in range(steps):
        a = load_matrices(i4(left + chunk_at(inner, i4(2 * k + outer), width)))
        for n in range(tile // 16):
            b = load_matrices(i4(right + chunk_at(i4(16 * n + across), i4(2 * k + low), width)))
            for half in range(2):
                i = 4 * n + 2 * half
                s[0, i], s[0, i + 1], s[1, i], s[1, i + 1] = mma(
                    a[0], a[1], a[2], a[3], b[2 * half], b[2 * half + 1], s[0, i], s[0, i + 1], s[1, i], s[1, i + 1])
'''

_WEIGHTED_HALF = '''
@cuda.jit(device=True, forceinline=True)
def add_weighted_rows(p, right, lane, width, tile, columns, o):
    """o += p · right for `tile` rows at `right`; the weights become factors where they are."""
    inner, outer = i4(lane & 15), i4(lane >> 4)
    for k in range(tile // 16):
        a0, a1 = pack(p[0, 4 * k], p[0, 4 * k + 1]), pack(p[1, 4 * k], p[1, 4 * k + 1])
        a2, a3 = pack(p[0, 4 * k + 2], p[0, 4 * k + 3]), pack(p[1, 4 * k + 2], p[1, 4 * k + 3])
        for n in range(columns // 16):
            b = load_turned_matrices(i4(right + chunk_at(i4(16 * k + inner), i4(2 * n + outer), width)))
            for half in range(2):
                i = 4 * n + 2 * half
                o[0, i], o[0, i + 1], o[1, i], o[1, i + 1] = mma(
                    a0, a1, a2, a3, b[2 * half], b[2 * half + 1], o[0, i], o[0, i + 1], o[1, i], o[1, i + 1])
'''

_TAKE_HALF = '''
@cuda.jit(device=True, forceinline=True)
def take_fragment(tile, lane, columns, v):
    """The fragment of the 16 rows at `tile`, as floats."""
    for r in range(2):
        for n in range(columns // 8):
            v[r, 2 * n], v[r, 2 * n + 1] = load_pair(i4(tile + chunk_at(lane // 4 + 8 * r, n, WIDTH_OF(columns)) + lane % 4 * 4))
'''

_STORE_HALF = '''
@cuda.jit(device=True, forceinline=True)
def store_tile(shared, y, to, stride, rows, columns, height, span, vector, thread, threads):
    """Write a block's fragments: through shared memory, so that whole rows reach memory."""
    width, first, rows, columns = (span * SIZE + 127) // 128 * 128, i4(thread >> 3), i4(min(rows, height)), i4(min(columns, span))
    for r in range(2):
        for n in range(span // 8):
            row = i4((thread >> 5 << 4) + (thread >> 2 & 7) + 8 * r)
            keep_pair(i4(shared + chunk_at(row, n, width) + i4((thread & 3) << 2)), y[r, 2 * n], y[r, 2 * n + 1])
    cuda.syncthreads()
    for panel in range(width // 128):
        chunk = i4((thread & 7) + 8 * panel)
        for i in range(height * 8 // threads):
            row = i4(first + i * (threads // 8))
            place, target = i4(shared + chunk_at(row, chunk, width)), to + i8(row) * stride + chunk * 16
            if row < rows and chunk * CHUNK < columns:
                if vector:
                    a, b, c, d = take_words(place)
                    store_words(target, a, b, c, d)
                else:
                    v = take_chunk(place)
                    for e in range(CHUNK):
                        if chunk * CHUNK + e < columns:
                            store_one(target + e * SIZE, v[e])
    cuda.syncthreads()
'''

_SCORES_FULL = '''
@cuda.jit(device=True, forceinline=True)
def multiply_rows(left, right, lane, steps, width, tile, s):
    """s += left · rightᵀ for the 16 rows at `left`, both with rows of 16 · steps numbers."""
    for k in range(4 * steps):
        a, b = load_four(i4(left + chunk_at(lane // 4, k, width))), load_four(i4(left + chunk_at(lane // 4 + 8, k, width)))
        for i in range(tile // 4):
            c = load_four(i4(right + chunk_at(8 * (i // 2) + 2 * (lane % 4) + i % 2, k, width)))
            s[0, i] += a[0] * c[0] + a[1] * c[1] + (a[2] * c[2] + a[3] * c[3])
            s[1, i] += b[0] * c[0] + b[1] * c[1] + (b[2] * c[2] + b[3] * c[3])
'''

_WEIGHTED_FULL = '''
@cuda.jit(device=True, forceinline=True)
def add_weighted_rows(p, right, lane, width, tile, columns, o):
    """o += p · right for `tile` rows at `right`; a weight comes from the lane that has it, then the next moves up to its place."""
    for i in range(tile // 4):
        first, second = p[0, 0], p[1, 0]
        for k in range(tile // 4 - 1):
            p[0, k], p[1, k] = p[0, k + 1], p[1, k + 1]
        for quarter in range(4):
            a, b = cuda.shfl_sync(0xFFFFFFFF, first, (lane & 28) + quarter), cuda.shfl_sync(0xFFFFFFFF, second, (lane & 28) + quarter)
            for n in range(columns // 8):
                row = i4(8 * (i // 2) + 2 * quarter + i % 2)
                c, d = load_pair(i4(right + chunk_at(row, i4(2 * n + (lane % 4 >> 1)), width) + lane % 2 * 8))
                o[0, 2 * n] += a * c
                o[0, 2 * n + 1] += a * d
                o[1, 2 * n] += b * c
                o[1, 2 * n + 1] += b * d
'''

_TAKE_FULL = _TAKE_HALF.replace("n, WIDTH_OF(columns)) + lane % 4 * 4", "2 * n + (lane % 4 >> 1), WIDTH_OF(columns)) + lane % 2 * 8")

_STORE_FULL = '''
@cuda.jit(device=True, forceinline=True)
def store_tile(shared, y, to, stride, rows, columns, height, span, vector, thread, threads):
    """Write a block's fragments: four lanes fill 32 bytes of a row."""
    lane = thread % 32
    for r in range(2):
        row = thread // 32 * 16 + lane // 4 + 8 * r
        for n in range(span // 8):
            column, target = 8 * n + 2 * (lane % 4), to + i8(row) * stride + (8 * n + 2 * (lane % 4)) * SIZE
            if row < rows and vector and column < columns:
                store_pair(target, y[r, 2 * n], y[r, 2 * n + 1])
            elif row < rows:
                for c in range(2):
                    if column + c < columns:
                        store_one(target + c * SIZE, y[r, 2 * n + c])
'''


def _half(kind: str) -> dict[str, str]:
    """The instructions for numbers of 16 bits, by name: (text, results, operands, options)."""
    packed = "".join(f"cvt.rn.{kind}x2.f32 {w}, ${2 * n + 2}, ${2 * n + 1}; " for n, w in enumerate("abcd"))
    spread = "mov.b32 {{l, h}}, {0}; cvt.f32.f16 {1}, l; cvt.f32.f16 {2}, h; " if kind == "f16" else "shl.b32 {1}, {0}, 16; and.b32 {2}, {0}, -65536; "
    loose = ".reg .b32 a, b, c, d{}; ".format("; .reg .b16 l, h" if kind == "f16" else "")
    if kind != "f16":
        spread = "shl.b32 e, {0}, 16; mov.b32 {1}, e; and.b32 e, {0}, -65536; mov.b32 {2}, e; "
        loose = ".reg .b32 a, b, c, d, e; "
    eight = "".join(spread.format(w, f"${2 * n}", f"${2 * n + 1}") for n, w in enumerate("abcd"))
    four = "{$0, $1, $2, $3}"
    fragment = "{{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}}".replace("{{", "{").replace("}}", "}")
    return {
        "mma": f'"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {fragment};", "ffff", "rrrrrrffff", together=True',
        "load_matrices": f'"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {four}, [$4];", "rrrr", "r", stores=True, together=True',
        "load_turned_matrices": f'"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {four}, [$4];", "rrrr", "r", stores=True, together=True',
        "pack": f'"cvt.rn.{kind}x2.f32 $0, $2, $1;", "r", "ff"',
        "keep_pair": f'"{{.reg .b32 a; cvt.rn.{kind}x2.f32 a, $2, $1; st.shared.b32 [$0], a;}}", "", "rff", stores=True',
        "load_pair": f'"{{{loose}ld.shared.b32 a, [$2]; {spread.format("a", "$0", "$1")}}}", "ff", "r", stores=True',
        "keep_chunk": f'"{{.reg .b32 a, b, c, d; {packed}st.shared.v4.b32 [$0], {{a, b, c, d}};}}", "", "r{"f" * 8}", stores=True',
        "take_chunk": f'"{{{loose}ld.shared.v4.b32 {{a, b, c, d}}, [$8]; {eight}}}", "{"f" * 8}", "r", stores=True',
        "take_words": f'"ld.shared.v4.b32 {four}, [$4];", "rrrr", "r", stores=True',
        "store_words": '"st.global.v4.b32 [$0], {$1, $2, $3, $4};", "", "lrrrr", stores=True',
    }


_FULL = {
    "load_four": '"ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "ffff", "r", stores=True',
    "load_pair": '"ld.shared.v2.f32 {$0, $1}, [$2];", "ff", "r", stores=True',
    "keep_chunk": '"st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "", "rffff", stores=True',
    "store_pair": '"st.global.v2.f32 [$0], {$1, $2};", "", "lff", stores=True',
}

_FAST = '''
two_to_the = _instruction("ex2.approx.ftz.f32 $0, $1;", "f", "f")
'''

_BOUNDED = '''
@cuda.jit(device=True, forceinline=True)
def bounded(factor):
    """A factor that leaves 0 what is 0, be it infinite; NaN stays."""
    return larger(smaller(factor, f4(3.4028235e38)), f4(-3.4028235e38))
'''


def fragments(dtype: str, bodies: str) -> str:
    """The definitions for numbers of a dtype that the bodies call, and those that they call in turn."""
    half = BYTES[dtype] == 2
    texts = {"multiply_rows": _SCORES_HALF if half else _SCORES_FULL, "add_weighted_rows": _WEIGHTED_HALF if half else _WEIGHTED_FULL,
             "take_fragment": _TAKE_HALF if half else _TAKE_FULL, "store_tile": _STORE_HALF if half else _STORE_FULL, "load_tile": _LOAD, "bounded": _BOUNDED}
    values = ", ".join(f"v[{n}]" for n in range(16 // BYTES[dtype]))
    texts = {name: text.replace("VALUES", values).replace("WIDTH_OF(columns)", "(columns * SIZE + 127) // 128 * 128") for name, text in texts.items()}
    used = "".join(text for name, text in texts.items() if _calls(bodies, name))
    known = _half("f16" if dtype == "float16" else "bf16") if half else _FULL
    machine = "".join(f"{name} = _instruction({how})\n" for name, how in known.items() if _calls(bodies + used, name))
    base = "".join(text for name, text in (("shared_address", _SHARED), ("copies_end", _COPIES), ("two_to_the", _FAST), ("chunk_at", _PLACE))
                   if _calls(bodies + used, name))
    return f"{base}\n{machine}\n{used}"


def _calls(bodies: str, name: str) -> bool:
    return re.search(rf"\b{name}\(", bodies) is not None
