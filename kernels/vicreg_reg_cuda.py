"""vicreg_reg: one pass over l, 3 words of state per row, commutative merge.

S_ij = Σ (a_li − μ_i)(a_lj − μ_j)/(N − 1); y = (Σ_i relu(1 − √(S_ii + 1e-4)) + Σ_{i≠j} S_ij²)/d, eye = 1.

The operator
    vicreg_reg(A[l, i], eye[i, j]):
        t1 = A - sum(A, l) / size(l)
        t2 = sum(t1 * sum(t1 * eye, i), l) / (size(l) - 1)
        return sum(maximum(1.0 - sqrt(sum(t2 * eye, j) + 0.0001), 0), i) / size(i) + sum(sum(t2 ** 2 * (1.0 - eye), j), i) / size(i)

One more element (a prime marks the new value)
    s'  = s + A[l,i]
    N'  = N + 1
    p1' = s'/N'
    s1' = s1 + N·(p1 − p1')·(p1 − p1') + (A[l,i] − p1')·(A[l,i__1] − p1')

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    s1'  = s1_a + N_a·(p1_a − p1')·(p1_a − p1') + s1_b + N_b·(p1_b − p1')·(p1_b − p1')

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference
Certificate: sha256 cc8e3f95d1072beeb018a480ab540ab143f76e31d029f9da40b765ad52576888
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python vicreg_reg_cuda.py` checks it on a GPU.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
import sys
import time

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan

_KINDS = {"r": (types.int32, ir.IntType(32)), "l": (types.int64, ir.IntType(64)),
          "f": (types.float32, ir.FloatType()), "d": (types.float64, ir.DoubleType())}


def _instruction(text, results, operands, stores=False, together=False):
    """A PTX instruction as a function: r and l are whole numbers of 32 and 64 bits, f and d floats.  `together`: by whole warps."""
    kinds = [_KINDS[letter] for letter in results]
    given = [_KINDS[letter] for letter in operands]
    constraints = ",".join(["=" + letter for letter in results] + list(operands) + ["~{memory}"] * stores)
    returns = types.none if not kinds else kinds[0][0] if len(kinds) == 1 else types.UniTuple(kinds[0][0], len(kinds))

    def emit(context, builder, signature, args):
        made = ir.VoidType() if not kinds else kinds[0][1] if len(kinds) == 1 else ir.LiteralStructType([k for _, k in kinds])
        function = ir.FunctionType(made, [kind for _, kind in given])
        value = builder.call(ir.InlineAsm(function, text, constraints, side_effect=stores), args, attrs=("convergent",) * together)
        if not kinds:
            return context.get_dummy_value()
        if len(kinds) == 1:
            return value
        return context.make_tuple(builder, signature.return_type, [builder.extract_value(value, n) for n in range(len(kinds))])

    signature = returns(*(kind for kind, _ in given))
    names = "".join(f", a{n}" for n in range(len(given)))
    scope = {"signature": signature, "emit": emit}
    exec(f"def typed(context{names}):\n    return signature, emit\n", scope)
    return intrinsic(scope["typed"])

@intrinsic
def address(context, array):
    """Where an array begins."""
    def emit(context, builder, signature, args):
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, value=args[0]).data, ir.IntType(64))
    return types.int64(array), emit

@intrinsic
def sel(context, condition, a, b):
    """a if condition else b, without a branch."""
    def emit(context, builder, signature, args):
        return builder.select(args[0], args[1], args[2])
    return a(types.boolean, a, a), emit

def _extreme(sign, name):
    """NumPy's maximum or minimum of two floats: NaN wins."""
    @intrinsic
    def extreme(context, a, b):
        def emit(context, builder, signature, args):
            kind = args[0].type
            if kind == ir.FloatType():
                function = ir.FunctionType(kind, [kind, kind])
                return builder.call(ir.InlineAsm(function, name + ".NaN.f32 $0, $1, $2;", "=f,f,f"), args)
            first = builder.or_(builder.fcmp_ordered(sign, *args), builder.fcmp_unordered("uno", args[0], args[0]))
            return builder.select(first, *args)
        return a(a, a), emit
    return extreme


larger = _extreme(">", "max")
smaller = _extreme("<", "min")

def turns_of(width, banks):
    """How places are turned so that neither a row of them nor a column of the tile meets a bank twice: (shift, mask)."""
    power = width & -width
    return max(banks, power).bit_length() - 1, min(power, banks) - 1


@cuda.jit(device=True)
def cell(element, width, column, shift, mask):
    """Where a column of an element of the tile lies in shared memory."""
    place = element * width + column
    return place ^ (place >> shift & mask)


@cuda.jit(device=True)
def stage_real(cells, pointer, low, high, steps, shift, mask, thread, span):
    """Fill shared memory with real numbers; before `low` and from `high` on with 0."""
    for step in range(steps):
        word = step * span + thread
        cells[word ^ (word >> shift & mask)] = load_one(pointer + word * SIZE, sel(word >= low and word < high, i4(1), i4(0)))


load_one = _instruction("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = _instruction("st.global.f32 [$0], $1;", "", "lf", stores=True)
SIZE, VECTOR, FLIGHT = 4, 4, 4
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1
ROWS = 1


@cuda.jit(device=True)
def value_p1(into, vN, s, n_i):
    t1 = 1.0 / f8(vN)
    for i_i in range(n_i):
        t2 = s[i_i] * t1
        into[i_i] = t2


@cuda.jit(device=True)
def rebase_s1(into, n_i, s1, p1, p1_new, vN, n_i__1):
    for i_i in range(n_i):
        t1 = p1[i_i] if math.isfinite(p1[i_i]) else 0.0
        t2 = p1_new[i_i] if math.isfinite(p1_new[i_i]) else 0.0
        t3 = t1 - t2
        for i_i__1 in range(n_i__1):
            t4 = p1[i_i__1] if math.isfinite(p1[i_i__1]) else 0.0
            t5 = p1_new[i_i__1] if math.isfinite(p1_new[i_i__1]) else 0.0
            t6 = t4 - t5
            t7 = t3 * t6
            t8 = 0.0 if f8(vN) == 0.0 else t7 * f8(vN)
            t9 = s1[(i_i) * n_i + i_i__1] + t8
            into[(i_i) * n_i + i_i__1] = t9


@cuda.jit(device=True)
def fold(seen_old, vN_old, slots, first, span, thread, length, n_i, s_old, s, p1_old, cells_A, skew_A, shift_A, mask_A, p1, n_i__1, s1):
    many = 0
    for slot in range(slots):
        many += sel((first + slot * span + thread < length), 1, 0)
    if many == 0:
        return seen_old, vN_old
    seen = seen_old + many
    for word in range(n_i):
        s_old[word] = s[word]
    value_p1(p1_old, vN_old, s_old, n_i)
    vN = vN_old + 1 * many
    for i_l in range(slots):
        for i_i in range(n_i):
            s[i_i] = s[i_i] + sel((first + i_l * span + thread < length), f8(cells_A[cell(i_l * span + thread, n_i, i_i + skew_A, shift_A, mask_A)]), 0.0)
    value_p1(p1, vN, s, n_i)
    if seen_old > 0:
        rebase_s1(s1, n_i, s1, p1_old, p1, vN_old, n_i__1)
    for i_l in range(slots):
        for i_i in range(n_i):
            t1 = p1[i_i] if math.isfinite(p1[i_i]) else 0.0
            t2 = f8(cells_A[cell(i_l * span + thread, n_i, i_i + skew_A, shift_A, mask_A)]) - t1
            for i_i__1 in range(n_i__1):
                t3 = p1[i_i__1] if math.isfinite(p1[i_i__1]) else 0.0
                t4 = f8(cells_A[cell(i_l * span + thread, n_i, i_i__1 + skew_A, shift_A, mask_A)]) - t3
                t5 = t2 * t4
                s1[(i_i) * n_i + i_i__1] = s1[(i_i) * n_i + i_i__1] + sel((first + i_l * span + thread < length), t5, 0.0)
    return seen, vN


@cuda.jit(device=True)
def combine(seen_old, vN_old, width, n_i, s_old, s, p1_old, p1, n_i__1, s1):
    seen = seen_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            seen += cuda.shfl_xor_sync(0xFFFFFFFF, seen, by)
    for word in range(n_i):
        s_old[word] = s[word]
    value_p1(p1_old, vN_old, s_old, n_i)
    vN = vN_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            vN = vN + cuda.shfl_xor_sync(0xFFFFFFFF, vN, by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_i):
                s[word] = s[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s[word], by)
    value_p1(p1, vN, s, n_i)
    if seen_old > 0:
        rebase_s1(s1, n_i, s1, p1_old, p1, vN_old, n_i__1)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_i * n_i):
                s1[word] = s1[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s1[word], by)
    return seen, vN


@cuda.jit(device=True)
def settle_s1(into, n_i, p1, s1, vN, n_i__1):
    for i_i in range(n_i):
        t1 = p1[i_i]
        t2 = t1 - t1
        t11 = p1[i_i] - p1[i_i]
        t12 = t11 == 0.0
        t13 = p1[i_i] if t12 else f8(0)
        t14 = t13 - p1[i_i]
        for i_i__1 in range(n_i__1):
            t3 = p1[i_i__1]
            t4 = t3 - t3
            t5 = t2 * t4
            t6 = t5 * 1.0
            t7 = 1.0 + t6
            t8 = t7 != t7
            t9 = s1[(i_i) * n_i + i_i__1] - s1[(i_i) * n_i + i_i__1]
            t10 = t9 == 0.0
            t15 = p1[i_i__1] - p1[i_i__1]
            t16 = t15 == 0.0
            t17 = p1[i_i__1] if t16 else f8(0)
            t18 = t17 - p1[i_i__1]
            t19 = t14 * t18
            t20 = t19 * f8(vN)
            t21 = s1[(i_i) * n_i + i_i__1] + t20
            t22 = t21 if t10 else nan
            t23 = t22 if t8 else s1[(i_i) * n_i + i_i__1]
            into[(i_i) * n_i + i_i__1] = t23


@cuda.jit(device=True)
def value_s2(into, n_j, cells_eye, s1, n_i, n_i__1):
    for i_i in range(n_i):
        for i_j in range(n_j):
            t1 = 0.0
            for i_i__1 in range(n_i__1):
                t2 = f8(cells_eye[(i_i__1) * n_j + i_j]) * s1[(i_i) * n_i + i_i__1]
                t1 = t1 + t2
            into[(i_i) * n_j + i_j] = t1


@cuda.jit(device=True)
def output_0(n_l, s2, n_j, cells_eye, n_i):
    t1 = 0.0
    t3 = n_l - 1
    t4 = 1.0 / f8(t3)
    for i_i in range(n_i):
        t2 = 0.0
        for i_j in range(n_j):
            t5 = s2[(i_i) * n_j + i_j] * t4
            t6 = t5 * f8(cells_eye[(i_i) * n_j + i_j])
            t2 = t2 + t6
        t7 = t2 + 0.0001
        t8 = math.sqrt(t7)
        t9 = 1.0 - t8
        t10 = larger(t9, 0.0)
        t1 = t1 + t10
    t11 = t1 / f8(n_i)
    t12 = 0.0
    for i_i in range(n_i):
        t13 = 0.0
        for i_j in range(n_j):
            t14 = s2[(i_i) * n_j + i_j] * t4
            t15 = t14 * t14
            t16 = 1.0 - f8(cells_eye[(i_i) * n_j + i_j])
            t17 = t15 * t16
            t13 = t13 + t17
        t12 = t12 + t13
    t18 = t12 / f8(n_i)
    t19 = t11 + t18
    return f4(t19)


@cuda.jit(device=True)
def finish(seen, vN, p1, n_i, s, s1, n_i__1, s2, n_j, cells_eye):
    value_p1(p1, vN, s, n_i)
    settle_s1(s1, n_i, p1, s1, vN, n_i__1)
    value_s2(s2, n_j, cells_eye, s1, n_i, n_i__1)
    return output_0(seen, s2, n_j, cells_eye, n_i)


def make(warps, stage, slots, n_i, n_j):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    n_i__1 = n_i
    words_s = n_i
    words_s1 = n_i * n_i
    words_p1 = n_i
    words_s2 = n_i * n_j
    words_s_old = n_i
    words_p1_old = n_i
    room_s = warps * (words_s | 1)
    room_s1 = warps * (words_s1 | 1)
    words_A = n_i
    shift_A, mask_A = turns_of(words_A, 32)
    steps_A = 0 if joins else -(-(slots * span * words_A + 32 // SIZE) // span)
    room_A = max(steps_A * span, 1)
    words_eye = n_i * n_j

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(vA, s_A, eye, s_eye, n_l, items, parts, piece, part_seen, part_vN, part_s, part_s1, out_0):
        thread = i8(cuda.threadIdx.x)
        lane, warp = thread % 32, thread // 32 % warps
        item, part = i8(cuda.blockIdx.x), i8(0)
        if splits:
            item, part = item // parts, item % parts
        if alone:
            item, thread = item * ROWS + thread // 32, lane
        live = item < items
        row = sel(live, item, i8(0))
        rest = row
        o_A = rest * s_A
        p_A = address(vA) + o_A * SIZE
        o_eye = rest * s_eye
        p_eye = address(eye) + o_eye * SIZE
        cells_eye = cuda.shared.array(words_eye, f4)
        for word in range(thread, words_eye, span):
            cells_eye[word] = load_one(p_eye + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_A = cuda.shared.array(room_A, f4)
        s = cuda.local.array(words_s, f8)
        s1 = cuda.local.array(words_s1, f8)
        p1 = cuda.local.array(words_p1, f8)
        s2 = cuda.local.array(words_s2, f8)
        s_old = cuda.local.array(words_s_old, f8)
        p1_old = cuda.local.array(words_p1_old, f8)
        seen, vN = i8(0), 0
        for word in range(words_s):
            s[word] = 0.0
        for word in range(words_s1):
            s1[word] = 0.0
        first = 0
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_A + (begin + first) * words_A * SIZE
            skew_A = lead // SIZE % (32 // SIZE)
            stage_real(cells_A, lead - skew_A * SIZE, skew_A, skew_A + min(slots * span, length - first) * words_A, steps_A, shift_A, mask_A, thread, span)
            cuda.syncthreads()
            seen, vN = fold(seen, vN, slots, first, span, thread, length, n_i, s_old, s, p1_old, cells_A, skew_A, shift_A, mask_A, p1, n_i__1, s1)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i8(0))
            vN = sel(there, part_vN[place], 0)
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], 0.0)
            for word in range(words_s1):
                s1[word] = sel(there, part_s1[place * words_s1 + word], 0.0)
        seen, vN = combine(seen, vN, 32, n_i, s_old, s, p1_old, p1, n_i__1, s1)
        shared_seen = cuda.shared.array(32, i8)
        shared_vN = cuda.shared.array(32, i8)
        shared_s = cuda.shared.array(room_s, f8)
        shared_s1 = cuda.shared.array(room_s1, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_vN[warp] = vN
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
                for word in range(words_s1):
                    shared_s1[warp * (words_s1 | 1) + word] = s1[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i8(0))
                vN = sel(lane < warps, shared_vN[lane % warps], 0)
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], 0.0)
                for word in range(words_s1):
                    s1[word] = sel(lane < warps, shared_s1[lane % warps * (words_s1 | 1) + word], 0.0)
                seen, vN = combine(seen, vN, warps, n_i, s_old, s, p1_old, p1, n_i__1, s1)
        if splits:
            if thread == 0:
                part_seen[item * parts + part] = seen
                part_vN[item * parts + part] = vN
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
                for word in range(words_s1):
                    part_s1[(item * parts + part) * words_s1 + word] = s1[word]
        elif warp == 0 or alone:
            result_0 = finish(seen, vN, p1, n_i, s, s1, n_i__1, s2, n_j, cells_eye)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'vA': ('l', 'i'), 'eye': ('i', 'j')}
DTYPES = {'vA': np.float32, 'eye': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int64, ()), (np.int64, ()), (np.float64, ('i',)), (np.float64, ('i', 'i'))]
KERNELS = {}


def described(array):
    """Shape and dtype of an array of NumPy's, CuPy's or torch's; it must be contiguous."""
    there = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None)
    if there is None:
        raise TypeError(f"{type(array).__name__} is no array; give one of NumPy, CuPy or torch")
    shape, dtype, strides = tuple(there["shape"]), np.dtype(there["typestr"]), there.get("strides")
    whole = tuple(dtype.itemsize * math.prod(shape[n + 1:]) for n in range(len(shape)))
    if strides is not None and tuple(strides) != whole:
        raise ValueError(f"an array of shape {shape} is not contiguous; make a contiguous copy of it")
    return shape, dtype


def sizes_of(arrays):
    """The length of every axis and the batch's shape; each array has all batch axes or none."""
    sizes, leading = {}, ()
    for name, array in arrays.items():
        (shape, dtype), own = described(array), AXES[name]
        ahead, inner = shape[:len(shape) - len(own)], shape[len(shape) - len(own):] if own else ()
        if len(shape) < len(own):
            raise ValueError(f"{name} has shape {shape}; it needs the axes {own}, after any batch axes")
        for axis, size in zip(own, inner):
            if sizes.setdefault(axis, size) != size or size == 0:
                raise ValueError(f"axis {axis} of {name} has length {size}, elsewhere {sizes[axis]}; lengths must agree and be positive")
            if size >= 2**31:
                raise ValueError(f"axis {axis} of {name} has length {size}; this kernel counts to 2^31: reduce parts of it")
        leading = leading or ahead
        if ahead not in ((), leading):
            raise ValueError(f"the batch axes of {name} are {ahead}, elsewhere {leading}; give an array all of them or none")
        if dtype != DTYPES[name]:
            raise TypeError(f"{name} holds {dtype}, and this kernel was made for {np.dtype(DTYPES[name])}; convert it")
    if 0 in leading:
        raise ValueError(f"the batch axes are {leading}: there is no row; give at least one")
    return sizes, leading


def plan(vA, eye):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'vA': vA, 'eye': eye})
    items, length = math.prod(leading), sizes['l']
    state = 8 * sizes['i'] + 8 * sizes['i'] * sizes['i']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['i']
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // items, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['i'], sizes['j']), items * parts, 32 * warps), ((8, 'join', slots, sizes['i'], sizes['j']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['i'], sizes['j']), blocks, threads)]
    arguments = [
        vA,
        np.int64(1 * sizes['l'] * sizes['i'] * (len(described(vA)[0]) > 2)),
        eye,
        np.int64(1 * sizes['i'] * sizes['j'] * (len(described(eye)[0]) > 2)),
        np.int64(sizes['l']),
        np.int64(items),
        np.int64(parts),
        np.int64(piece),
    ]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(vA, eye, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(vA, eye)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        if chosen not in KERNELS:
            KERNELS[chosen] = make(*chosen)
        KERNELS[chosen][blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)



ALL_AXES = ('l', 'i', 'j')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return ALL_AXES.index(axis) - len(ALL_AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of ALL_AXES."""
    array, axes = np.asarray(array, np.float64), axes.split()
    batch, order = array.ndim - len(axes), sorted(axes, key=ALL_AXES.index)
    moved = array.transpose(*range(batch), *(batch + axes.index(axis) for axis in order))
    lengths = dict(zip(order, moved.shape[batch:]))
    return moved.reshape(*moved.shape[:batch], *(lengths.get(axis, 1) for axis in ALL_AXES))


REDUCTIONS = {"sum": (np.sum, 0), "prod": (np.prod, 1), "max": (np.max, -np.inf), "min": (np.min, np.inf), "any": (np.any, False),
              "all": (np.all, True), "fmax": (np.fmax.reduce, -np.inf), "fmin": (np.fmin.reduce, np.inf),
              "argmax": (np.argmax, -np.inf), "argmin": (np.argmin, np.inf)}


def reduced(monoid, body, axis, where=None):
    """⊕ over an axis, which keeps a dimension of length 1; elements outside the mask do not take part."""
    function, nothing = REDUCTIONS[monoid]
    masked = body if where is None else np.where(where, body, nothing)
    result = function(masked, axis=along(axis), keepdims=True)
    if where is None or not monoid.startswith("arg"):
        return result
    return np.where(np.any(np.broadcast_to(where, masked.shape), axis=along(axis), keepdims=True), result, -1)


def taken_out(value, axes, lengths):
    """A value with dimensions (batch…, its axes…)."""
    value = value if np.ndim(value) else np.full((1,) * len(ALL_AXES), value)
    axes, batch = axes.split(), value.ndim - len(ALL_AXES)
    full = np.broadcast_to(value, value.shape[:batch] + tuple(lengths[axis] if axis in axes else 1 for axis in ALL_AXES))
    kept = sorted(axes, key=ALL_AXES.index)
    full = full.reshape(value.shape[:batch] + tuple(lengths[axis] for axis in kept))
    return full.transpose(*range(batch), *(batch + kept.index(axis) for axis in axes))


def drawn(rng, kind, shape, length):
    """Numbers of a kind: normal, positive (about 1), unit (inside 0 … 1), whole (below `length`) or bits."""
    if kind in ("whole", "bits"):
        return rng.integers(0, length if kind == "whole" else 2, shape)
    return rng.standard_normal(shape) if kind == "normal" else rng.uniform(*((0.5, 2.0) if kind == "positive" else (0.01, 0.99)), shape)


def parts(result):
    """One array per output."""
    values = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else (result,)
    return [np.asarray(value, np.float64) for value in values]


def distance(got, wanted):
    """The largest difference, in units of the largest value; infinities and NaN have to be the same."""
    errors = []
    for a, b in zip(parts(got), parts(wanted)):
        if b.shape != a.shape[a.ndim - b.ndim:]:
            return np.inf
        b = np.broadcast_to(b, a.shape)
        finite = np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
            return np.inf
        errors.append(np.abs(a[finite] - b[finite]).max(initial=0.0) / max(np.abs(b[finite]).max(initial=0.0), 1e-30))
    return max(errors)


def passed_over(function, definition, cases, limit):
    """Run every case (a name, arrays, scalars), print how far the kernel is from the definition and how long both take."""
    agreed = True
    for name, arrays, scalars in cases:
        with np.errstate(all="ignore"):
            start = time.perf_counter()
            wanted = definition(**arrays, **scalars)
        between = time.perf_counter()
        first = function(**arrays, **scalars)
        again = time.perf_counter()
        got = function(**arrays, **scalars)
        end = time.perf_counter()
        error = distance(got, wanted)
        well = error <= limit and distance(first, got) == 0
        agreed = agreed and well
        print(f"{name}: error {error:.1e} of the largest value ({'agrees' if well else 'DIFFERS'}, limit {limit:.0e}); "
              f"{1000 * (end - again):.2f} ms, definition {1000 * (between - start):.2f} ms, first call {again - between:.2f} s")
    return agreed


def definition(A, eye):
    """vicreg_reg as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    A = spread(A, 'l i')
    eye = spread(eye, 'i j')
    lengths = {"l": A.shape[-3], "i": A.shape[-2], "j": eye.shape[-1]}
    t1 = A - reduced("sum", A, "l") / lengths["l"]
    t2 = reduced("sum", t1 * reduced("sum", t1 * eye, "i"), "l") / (lengths["l"] - 1)
    return taken_out(reduced("sum", np.maximum(1.0 - np.sqrt(reduced("sum", t2 * eye, "j") + 0.0001), 0), "i") / lengths["i"] + reduced("sum", reduced("sum", t2 ** 2 * (1.0 - eye), "j"), "i") / lengths["i"], '', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(A, eye):
    """`launch` with the axes as the operator has them."""
    outputs = launch(A, eye)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], (), ()),


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'A': 'normal', 'eye': 'normal'}, {}, []
    for length in (1, 31, 1000, 8191, 100000):
        sizes, rng = {"i": 4, "j": 5, "l": length}, np.random.default_rng(length)
        axes, names = {'A': ('l', 'i'), 'eye': ('i', 'j')}, {'A': 'vA', 'eye': 'eye'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"vicreg_reg, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
