"""Floats of eight bits in CUDA kernels, as text: loads that widen them, tiles of their bytes, and products that take them as they are.

A fragment for eight-bit factors has four neighbours in the inner axis where one for sixteen has two (PTX ISA, "Matrix
Fragments for mma.m16n8k32"): rows of bytes are read as rows of pairs of bytes are.  Weights times rows of a matrix needs
columns of bytes.  `ldmatrix.trans` turns pairs: a lane gets two neighbouring columns of two rows, so that its bytes at
even places are of one column and those at odd places of the next.  A sum does not mind the order of its terms: a lane's
four inner places are the columns of scores that it has, and its four columns of a sum lie side by side in every sixteen.

Out: Python source that uses numba-cuda.  The conversions and the products need compute capability 8.9.
"""
from __future__ import annotations

from collections.abc import Iterable

from redfuser_algebra.lower.arithmetic_cuda import BYTES
from redfuser_algebra.lower.fragments_cuda import LOAD, SCORES_HALF, STORE_FULL, STORE_HALF, TAKEN_FULL
from redfuser_algebra.lower.variants import variant

NEAR = 4
"""How many columns of a sum lie side by side in a lane, of every sixteen; of factors of 16 bits it is two of every eight."""

_BYTES = '''
load_byte = ptx("{{.reg .pred p; .reg .b16 b; setp.ne.s32 p, $2, 0; mov.b16 b, 0; @p ld.global.nc.u8 b, [$1]; cvt.u32.u16 $0, b;}}", "r", "lr")
to_e4m3 = ptx("{{.reg .b16 b, h; .reg .b32 w; cvt.rn.satfinite.e4m3x2.f32 b, $1, $1; "
              "cvt.rn.f16x2.e4m3x2 w, b; mov.b32 {{b, h}}, w; cvt.f32.f16 $0, b;}}", "f", "f")
copy_byte = ptx("{{.reg .pred p; .reg .b16 b; setp.ne.s32 p, $2, 0; mov.b16 b, 0; @p ld.global.nc.u8 b, [$1]; st.shared.u8 [$0], b;}}", "", "rlr", memory=True)
load_bytes = ptx("{load}", "{results}", "lr")


def width_of_bytes(count):
    """Bytes of a row of so many numbers of eight bits in shared memory."""
    return -(-count // 128) * 128
'''

_ONE = '''
unpack_{kind} = ptx("{unpack}", "ffff", "r")


@cuda.jit(device=True, forceinline=True)
def load_one_{kind}(pointer, there):
    """A number of eight bits, or zero."""
    return unpack_{kind}(load_byte(pointer, there))[0]


@cuda.jit(device=True, forceinline=True)
def load_vector_{kind}(pointer, there, v, first):
    """As many numbers of eight bits as widened fill 16 bytes, or zeros."""
    words = load_bytes(pointer, there)
    for k in range({words}):
        v[first + 4 * k], v[first + 4 * k + 1], v[first + 4 * k + 2], v[first + 4 * k + 3] = unpack_{kind}({word})
'''

_MATRICES = '''
load_matrices = ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];", "rrrr", "r", memory=True, warp=True)
load_turned_matrices = ptx("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];", "rrrr", "r", memory=True, warp=True)
take_word = ptx("ld.shared.b32 $0, [$1];", "r", "r", memory=True)
keep_words = ptx("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "", "rrrrr", memory=True)
take_words = ptx("ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];", "rrrr", "r", memory=True)
'''
"""What kernels with factors of 16 bits have anyway."""

_LOAD = variant(LOAD, ("load_tile", "load_tile_of_bytes"), ("copy_one", "copy_byte"), ("CHUNK", "16"), (" * SIZE", ""), (" // SIZE", ""))

_PRODUCT = '''
mma_{pair} = ptx("mma.sync.aligned.m16n8k32.row.col.f32.{left}.{right}.f32 "
    "{{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};", "ffff", "rrrrrrffff", warp=True)
''' + variant(SCORES_HALF, ("multiply(", "multiply_{pair}("), ("multiply_rows(", "multiply_rows_{pair}("), (" mma(", " mma_{pair}("),
             ("16 · steps numbers", "32 · steps bytes"))

_WEIGHTED = '''
pack_{left} = ptx("{pack}", "r", "ffff")
even_bytes = ptx("prmt.b32 $0, $1, $2, 0x6420;", "r", "rr")
odd_bytes = ptx("prmt.b32 $0, $1, $2, 0x7531;", "r", "rr")


@cuda.jit(device=True, forceinline=True)
def add_weighted_rows_{pair}(p, right, lane, width, tile, columns, o):
    """o += p · right for `tile` rows of bytes at `right`; a lane's columns of o lie side by side, four in every sixteen."""
    right = i4(right + chunk_at(lane, 0, width, tile))
    for k in range(tile // 32):
        a = cuda.local.array(4, i4)
        for r in range(2):
            for h in range(2):
                i = 8 * k + 4 * h
                a[r + 2 * h] = pack_{left}(p[r, i], p[r, i + 1], p[r, i + 2], p[r, i + 3])
        for n in range(columns // 16):
            b, i, j = load_turned_matrices(further(right, 32 * k, n, width, tile)), 4 * n, 4 * n + 1
            even, odd = (even_bytes(b[0], b[1]), even_bytes(b[2], b[3])), (odd_bytes(b[0], b[1]), odd_bytes(b[2], b[3]))
            o[0, i], o[0, i + 2], o[1, i], o[1, i + 2] = mma_{pair}(
                a[0], a[1], a[2], a[3], even[0], even[1], o[0, i], o[0, i + 2], o[1, i], o[1, i + 2])
            o[0, j], o[0, j + 2], o[1, j], o[1, j + 2] = mma_{pair}(
                a[0], a[1], a[2], a[3], odd[0], odd[1], o[0, j], o[0, j + 2], o[1, j], o[1, j + 2])
'''

_TAKEN = variant(TAKEN_FULL, ("add_taken_rows(", "add_taken_rows_{pair}("), ("columns // 8", "columns // 16"), ('''
                row = i4(8 * (i // 2) + 2 * quarter + i % 2)
                c, d = load_pair(i4(right + chunk_at(row, i4(2 * n + (lane % 4 >> 1)), width, tile) + lane % 2 * 8))
                o[0, 2 * n] += sel(takes_part(a), a * c, f4(0))
                o[0, 2 * n + 1] += sel(takes_part(a), a * d, f4(0))
                o[1, 2 * n] += sel(takes_part(b), b * c, f4(0))
                o[1, 2 * n + 1] += sel(takes_part(b), b * d, f4(0))''', '''
                row, v = i4(8 * (i // 2) + 2 * quarter + i % 2), cuda.local.array(4, f4)
                v[0], v[1], v[2], v[3] = unpack_{right}(take_word(i4(right + chunk_at(row, n, width, tile) + lane % 4 * 4)))
                for c in range(4):
                    o[0, 4 * n + c] += sel(takes_part(a), {a} * v[c], f4(0))
                    o[1, 4 * n + c] += sel(takes_part(b), {b} * v[c], f4(0))''')) + '''

@cuda.jit(device=True, forceinline=True)
def all_finite_{right}(tile, size, thread, threads):
    """Whether `size` bytes of a tile hold neither infinity nor NaN, whose exponents make a byte's bits run over; all threads of the block learn it."""
    found = i8(0)
    for i in range(size // 16 // threads):
        for word in take_words(i4(tile + 16 * (i * threads + thread))):
            found |= (word & {ones}) + {one} & 0x80808080
    return cuda.syncthreads_and(i4(found == 0)) != 0
'''

_ONES = {"e4m3": ("0x7F7F7F7F", "0x01010101"), "e5m2": ("0x7C7C7C7C", "0x04040404")}
"""The bits of four bytes that are all set in what is not finite, and the lowest of them."""

_STORE_HALF = variant(STORE_HALF, ('''
        for n in range(span // 8):
            row = i4((thread >> 5 << 4) + (thread >> 2 & 7) + 8 * r)
            keep_word(i4(shared + chunk_at(row, n, width, height) + i4((thread & 3) << 2)), pack(y[r, 2 * n], y[r, 2 * n + 1]))''', '''
        for n in range(span // 16):
            row, odd = i4((thread >> 5 << 4) + (thread >> 2 & 7) + 8 * r), i4(thread >> 2 & 1)
            place = i4(shared + chunk_at(row, i4(2 * n + (thread >> 1 & 1)), width, height) + i4((thread & 1) << 3))
            low, high = pack(y[r, 4 * n], y[r, 4 * n + 1]), pack(y[r, 4 * n + 2], y[r, 4 * n + 3])
            keep_word(i4(place + i4(odd << 2)), sel(odd > 0, high, low))
            keep_word(i4(place + i4(i4(1 - odd) << 2)), sel(odd > 0, low, high))'''))

_STORE_FULL = variant(
    STORE_FULL, ("four lanes fill 32 bytes", "four lanes fill 64 bytes"), ("n in range(span // 8)", "n in range(span // 16)"),
    ("8 * n + 2 * (lane % 4)", "16 * n + 4 * (lane % 4)"), ("c in range(2)", "c in range(4)"), ("y[r, 2 * n + c]", "y[r, 4 * n + c]"),
    ("store_pair(target, y[r, 2 * n], y[r, 2 * n + 1])", "store_4(target, y[r, 4 * n], y[r, 4 * n + 1], y[r, 4 * n + 2], y[r, 4 * n + 3])"))


def loads_of_bytes(dtype: str, kinds: Iterable[str], native: bool) -> str:
    """The loads for numbers of these kinds, which become numbers of `dtype`; `native`: by the machine's own conversions."""
    words = 16 // BYTES[dtype] // 4
    values = [f"${n}" for n in range(words)]
    vector = f"v{words}.b32 {{{', '.join(values)}}}" if words > 1 else "b32 $0"
    load = "{.reg .pred p; setp.ne.s32 p, $%d, 0; %s@p ld.global.nc.%s, [$%d];}" % (words + 1, "".join(f"mov.b32 {v}, 0; " for v in values), vector, words)
    ones = [_ONE.format(kind=kind, unpack=_unpacked(kind, native), words=words, word="words[k]" if words > 1 else "words") for kind in kinds]
    return "\n".join([*([] if BYTES[dtype] == 2 else [_MATRICES]), _BYTES.format(load=load, results="r" * words), *ones, _LOAD])


def products_of_bytes(dtype: str, scores: Iterable[tuple[str, str]], weighted: Iterable[tuple[str, str]]) -> str:
    """The products of bytes, by the kinds of their factors; where they add weighted rows up, another `store_tile` is defined last, and counts."""
    found = []
    for left, right in dict.fromkeys((*scores, *weighted)):
        own = {"pair": f"{left}_{right}", "left": left, "right": right}
        found.append(_PRODUCT.format(**own))
        if (left, right) in weighted:
            ones, one = _ONES[right]
            a, b = ("to_e4m3(a)", "to_e4m3(b)") if left == "e4m3" else "ab"
            found += [_WEIGHTED.format(**own, pack=_PACKED[left]), _TAKEN.format(**own, ones=ones, one=one, a=a, b=b)]
    return "\n".join([*found, *([_STORE_HALF if BYTES[dtype] == 2 else _STORE_FULL] if weighted else [])])


_PACKED = {"e4m3": "{.reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, $2, $1; cvt.rn.satfinite.e4m3x2.f32 h, $4, $3; mov.b32 $0, {l, h};}",
           "e5m2": "{.reg .b32 l, h; cvt.rn.f16x2.f32 l, $2, $1; cvt.rn.f16x2.f32 h, $4, $3; prmt.b32 $0, l, h, 0x7531;}"}
"""Four weights as bytes.  The conversion to e4m3 rounds and saturates as a cast does; that to e5m2 has no infinities, but
the upper half of a float16 is such a number already."""


def _unpacked(kind: str, native: bool) -> str:
    """Four floats of a word, by pairs of float16: from the machine, or with the bits of a byte where float16 has them, which
    makes numbers of e4m3 2⁸ times too small, and 480 of its NaN."""
    pairs = []
    for pair, places in enumerate(("0x1404", "0x3424")):
        first, second = f"${2 * pair}", f"${2 * pair + 1}"
        if kind == "e4m3" and native:
            text = f"mov.b32 {{l, h}}, $4; cvt.rn.f16x2.e4m3x2 w, {'lh'[pair]}; "
        else:
            text = f"prmt.b32 w, $4, 0, {places}; "
            text += "and.b32 s, w, 0x80008000; and.b32 w, w, 0x7F007F00; shr.u32 w, w, 1; or.b32 w, w, s; " if kind == "e4m3" else ""
        text += f"mov.b32 {{l, h}}, w; cvt.f32.f16 {first}, l; cvt.f32.f16 {second}, h; "
        for each in (first, second) if kind == "e4m3" and not native else ():
            text += f"mul.f32 {each}, {each}, 0f43800000; abs.f32 t, {each}; setp.eq.f32 p, t, 0f43F00000; selp.f32 {each}, 0f7FC00000, {each}, p; "
        pairs.append(text)
    return "{.reg .b16 l, h; .reg .b32 w, s; .reg .f32 t; .reg .pred p; " + "".join(pairs).strip() + "}"
