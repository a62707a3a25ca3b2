"""kl_softmax: one pass over l, 5 words of state per row, commutative merge.

KL = Σ softmax(x)_l ((x_l − lse x) − (y_l − lse y)).

The operator
    kl_softmax(x[l], y[l]):
        d1 = max(x, l)
        t1 = exp(x - d1)
        d2 = sum(t1, l)
        d3 = max(y, l)
        return sum(t1 / d2 * (x - (d1 + log(d2)) - (y - (d3 + log(sum(exp(y - d3), l))))), l)

One more element (a prime marks the new value)
    m'  = max(m, x[l])
    s'  = s·exp(m − m') + exp(x[l] − m')
    m2' = max(m2, y[l])
    s2' = s2·exp(m2 − m2') + exp(y[l] − m2')
    p1' = m' + log(s')
    p2' = m2' + log(s2')
    s1' = s1·exp(m − m') + s·(exp(m − m')·(p1 − p1') − exp(m − m')·(p2 − p2')) + exp(x[l] − m')·(x[l] − p1') − exp(x[l] − m')·(y[l] − p2')

Two states a and b
    m'   = max(m_a, m_b)
    s'   = s_a·exp(m_a − m') + s_b·exp(m_b − m')
    m2'  = max(m2_a, m2_b)
    s2'  = s2_a·exp(m2_a − m2') + s2_b·exp(m2_b − m2')
    p1_a = m_a + log(s_a)
    p2_a = m2_a + log(s2_a)
    p1_b = m_b + log(s_b)
    p2_b = m2_b + log(s2_b)
    p1'  = m' + log(s')
    p2'  = m2' + log(s2')
    s1'  = s1_a·exp(m_a − m') + s_a·(exp(m_a − m')·(p1_a − p1') − exp(m_a − m')·(p2_a − p2')) + s1_b·exp(m_b − m') + s_b·(exp(m_b − m')·(p1_b − p1') − exp(m_b − m')·(p2_b − p2'))

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, recentre_difference, exp_of_sum
Certificate: sha256 a68762605380f3845c6af6a67857c1411f99cd6ba1dc38ff4d62d0c6c2081596
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python kl_softmax_cuda.py` checks it on a GPU.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
import sys
from functools import cache

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf = np.inf
nan = np.nan
KINDS = {"r": types.int32, "l": types.int64, "f": types.float32, "d": types.float64}

def ptx(text, results, operands, memory=False, warp=False):
    """A PTX instruction as a function of numbers, each a letter of KINDS.  `memory`: it reads or writes what others wrote; `warp`: by whole warps."""
    count, many = min(len(results), 2), types.UniTuple(KINDS[results[:1] or "r"], len(results))
    returned, given = (types.none, many.dtype, many)[count], types.StarArgTuple([KINDS[each] for each in operands])
    marks = ",".join([*("=" + each for each in results), *operands, *["~{memory}"] * memory])

    def emit(context, builder, signature, args):
        numbers, kind = [builder.extract_value(args[0], n) for n in range(len(operands))], context.get_value_type(many.dtype)
        made = (ir.VoidType(), kind, ir.LiteralStructType([kind] * len(results)))[count]
        called = ir.InlineAsm(ir.FunctionType(made, [each.type for each in numbers]), text, marks, memory)
        value = builder.call(called, numbers, attrs=("convergent",) * warp)
        if count == 2:
            return context.make_tuple(builder, many, [builder.extract_value(value, n) for n in range(len(results))])
        return value if count else context.get_dummy_value()

    return intrinsic(lambda context, *numbers: (returned(given), emit))

def pointer(space, kind):
    """Where an array begins in a state space: 1 is global memory, 3 is shared."""
    def typed(context, array):
        def emit(context, builder, signature, args):
            place = context.make_array(array)(context, builder, value=args[0]).data
            return builder.ptrtoint(builder.addrspacecast(place, ir.PointerType(place.type.pointee, space)), context.get_value_type(kind))
        return kind(array), emit
    return intrinsic(typed)

address = pointer(1, types.int64)

@intrinsic
def sel(context, condition, a, b):
    """a if condition else b, without a branch."""
    return a(types.boolean, a, a), lambda context, builder, signature, args: builder.select(*args)

@intrinsic
def unrolled(context):
    """At the end of a loop: the compiler writes the loop out, so that arrays it goes over lie in registers."""
    def emit(context, builder, signature, args):
        def branch(target):
            del builder.branch
            jump, module = builder.branch(target), builder.module
            hint = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.full")])
            mark = ir.MDValue(module, [hint], name=str(len(module.metadata)))
            mark.operands = (mark, hint)
            jump.set_metadata("llvm.loop", mark)
            return jump
        builder.branch = branch
        return context.get_dummy_value()
    return types.none(), emit

def extreme(order, name):
    """NumPy's maximum or minimum of two floats: NaN wins.  For float32 that is one instruction."""
    def typed(context, a, b):
        def emit(context, builder, signature, args):
            single = ir.InlineAsm(ir.FunctionType(args[0].type, [args[0].type] * 2), name + ".NaN.f32 $0, $1, $2;", "=f,f,f")
            first = builder.or_(builder.fcmp_ordered(order, *args), builder.fcmp_unordered("uno", args[0], args[0]))
            return builder.call(single, args) if a == types.float32 else builder.select(first, *args)
        return a(a, a), emit
    return intrinsic(typed)

larger = extreme(">", "max")

def over_lanes(both):
    """What `both` makes of the values of so many lanes; every lane gets it."""
    @cuda.jit(device=True, forceinline=True)
    def of_all(value, width):
        for step in range(5):
            by = width >> step + 1
            if by > 0:
                value = both(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, by))
        return value
    return of_all

sum_over = over_lanes(cuda.jit(device=True, forceinline=True)(lambda a, b: type(a)(a + b)))
larger_over = over_lanes(larger)
fast_exp = ptx("{.reg .f32 t; mul.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t;}", "f", "f")
load_4 = ptx("{.reg .pred p; setp.ne.s32 p, $5, 0; mov.f32 $0, 0f00000000; mov.f32 $1, 0f00000000; mov.f32 $2, 0f00000000; mov.f32 $3, 0f00000000; @p ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];}", "ffff", "lr")
load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True, forceinline=True)
def load_vector(pointer, there, v, first):
    """16 bytes of a row into v from `first` on, or zeros."""
    numbers = load_4(pointer, there)
    for k in range(4):
        v[first + k] = numbers[k]

SIZE, VECTOR, FLIGHT, ROWS = 4, 4, 2, 8
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1


@cuda.jit(device=True)
def value_p1(m, s):
    return m + math.log(s)


@cuda.jit(device=True)
def value_p2(m2, s2):
    return m2 + math.log(s2)


@cuda.jit(device=True)
def rebase_s(m, m_new, s):
    t4 = f8(fast_exp(f4((m if math.isfinite(m) else 0.0) - (m_new if math.isfinite(m_new) else 0.0))))
    return 0.0 if s == 0.0 else t4 * s


@cuda.jit(device=True)
def rebase_s2(m2, m2_new, s2):
    t4 = f8(fast_exp(f4((m2 if math.isfinite(m2) else 0.0) - (m2_new if math.isfinite(m2_new) else 0.0))))
    return 0.0 if s2 == 0.0 else t4 * s2


@cuda.jit(device=True)
def rebase_s1(m, m_new, s1, p1, p1_new, p2, p2_new, s):
    t4 = f8(fast_exp(f4((m if math.isfinite(m) else 0.0) - (m_new if math.isfinite(m_new) else 0.0))))
    t13 = t4 * ((p2 if math.isfinite(p2) else 0.0) - (p2_new if math.isfinite(p2_new) else 0.0))
    t14 = t4 * ((p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)) - t13
    return (0.0 if s1 == 0.0 else t4 * s1) + (0.0 if s == 0.0 else t14 * s)


@cuda.jit(device=True)
def fold(seen_old, m_old, m2_old, s_old, s2_old, s1_old, ok, v_x, v_y):
    many = sel(ok[TILE], i4(1), i4(0))
    for flight in range(FLIGHT):
        many = i4(many + sel(ok[flight * VECTOR], i4(VECTOR), i4(0)))
    if many == 0:
        return seen_old, m_old, m2_old, s_old, s2_old, s1_old
    seen = i4(seen_old + many)
    p1_old = value_p1(m_old, s_old)
    p2_old = value_p2(m2_old, s2_old)
    m = m_old
    m_it = f4(-inf)
    m2 = m2_old
    m2_it = f4(-inf)
    m_of = f4(-inf)
    m2_of = f4(-inf)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        m_of = larger(m_of, v_x[i_l])
        m2_of = larger(m2_of, v_y[i_l])
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            m_it = larger(m_it, sel(ok[i_l], m_of, f4(-inf)))
            m_of = f4(-inf)
            m2_it = larger(m2_it, sel(ok[i_l], m2_of, f4(-inf)))
            m2_of = f4(-inf)
        unrolled()
    m = larger(m, f8(m_it))
    m2 = larger(m2, f8(m2_it))
    s = rebase_s(m_old, m, s_old) if seen_old > 0 else s_old
    s_it = f4(0.0)
    s2 = rebase_s2(m2_old, m2, s2_old) if seen_old > 0 else s2_old
    s2_it = f4(0.0)
    t1 = m if math.isfinite(m) else 0.0
    t4 = m2 if math.isfinite(m2) else 0.0
    s_of = f4(0.0)
    s2_of = f4(0.0)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        s_of = s_of + fast_exp(v_x[i_l] - f4(t1))
        s2_of = s2_of + fast_exp(v_y[i_l] - f4(t4))
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s_it = s_it + sel(ok[i_l], s_of, f4(0.0))
            s_of = f4(0.0)
            s2_it = s2_it + sel(ok[i_l], s2_of, f4(0.0))
            s2_of = f4(0.0)
        unrolled()
    s = s + f8(s_it)
    s2 = s2 + f8(s2_it)
    p1 = value_p1(m, s)
    p2 = value_p2(m2, s2)
    s1 = rebase_s1(m_old, m, s1_old, p1_old, p1, p2_old, p2, s_old) if seen_old > 0 else s1_old
    s1_it = f4(0.0)
    t9 = p1 if math.isfinite(p1) else 0.0
    t12 = p2 if math.isfinite(p2) else 0.0
    s1_of = f4(0.0)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        t8 = fast_exp(v_x[i_l] - f4(t1))
        s1_of = s1_of + (t8 * (v_x[i_l] - f4(t9)) - t8 * (v_y[i_l] - f4(t12)))
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s1_it = s1_it + sel(ok[i_l], s1_of, f4(0.0))
            s1_of = f4(0.0)
        unrolled()
    s1 = s1 + f8(s1_it)
    return seen, m, m2, s, s2, s1


@cuda.jit(device=True)
def combine(seen_old, m_old, m2_old, s_old, s2_old, s1_old, width):
    seen = sum_over(seen_old, width)
    p1_old = value_p1(m_old, s_old)
    p2_old = value_p2(m2_old, s2_old)
    m = larger_over(m_old, width)
    m2 = larger_over(m2_old, width)
    s = sum_over(rebase_s(m_old, m, s_old) if seen_old > 0 else 0.0, width)
    s2 = sum_over(rebase_s2(m2_old, m2, s2_old) if seen_old > 0 else 0.0, width)
    p1 = value_p1(m, s)
    p2 = value_p2(m2, s2)
    s1 = sum_over(rebase_s1(m_old, m, s1_old, p1_old, p1, p2_old, p2, s_old) if seen_old > 0 else 0.0, width)
    return seen, m, m2, s, s2, s1


@cuda.jit(device=True)
def settle_s(m, s):
    t1 = m
    t3 = math.exp(t1 - t1)
    t10 = math.exp((m if m - m == 0.0 else f8(0)) - m) * s
    return t10 if t3 != t3 else s


@cuda.jit(device=True)
def settle_s2(m2, s2):
    t1 = m2
    t3 = math.exp(t1 - t1)
    t10 = math.exp((m2 if m2 - m2 == 0.0 else f8(0)) - m2) * s2
    return t10 if t3 != t3 else s2


@cuda.jit(device=True)
def settle_s1(m, p1, p2, s1):
    t1 = m
    t3 = math.exp(t1 - t1)
    t4 = p1
    t7 = p2
    t11 = t3 + (t3 * (t4 - t4) - t3 * (t7 - t7))
    return nan if t11 != t11 else s1


@cuda.jit(device=True)
def value_s3(s, s1):
    return 1.0 / s * s1


@cuda.jit(device=True)
def output_0(s3):
    return f4(s3)


@cuda.jit(device=True)
def finish(seen, m, m2, s, s2, s1):
    s = settle_s(m, s)
    s2 = settle_s2(m2, s2)
    p1 = value_p1(m, s)
    p2 = value_p2(m2, s2)
    s1 = settle_s1(m, p1, p2, s1)
    s3 = value_s3(s, s1)
    return output_0(s3)


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, p_y, even_y, ok, at, v_x, v_y):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = i4(first + flight * span + thread)
        full = number < vectors
        place = i4(begin + head + number * VECTOR)
        for k in range(VECTOR):
            ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
        load_vector(p_x + place * SIZE, full, v_x, flight * VECTOR)
        if even_y:
            load_vector(p_y + place * SIZE, full, v_y, flight * VECTOR)
        else:
            for k in range(VECTOR):
                v_y[flight * VECTOR + k] = load_one(p_y + (place + k) * SIZE, full)
    edge = first == 0 and thread < edges
    ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, edge)
    v_y[TILE] = load_one(p_y + at[TILE] * SIZE, edge)


@cache
def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, y, s_y, n_l, items, parts, piece, part_seen, part_m, part_m2, part_s, part_s2, part_s1, out_0):
        thread = i8(cuda.threadIdx.x)
        lane, warp = thread & 31, thread >> 5 & warps - 1
        item, part = i8(cuda.blockIdx.x), i8(0)
        if splits:
            item, part = item // parts, item % parts
        if alone:
            item, thread = item * ROWS + (thread >> 5), lane
        live = item < items
        row = sel(live, item, i8(0))
        rest = row
        o_x = rest * s_x
        p_x = address(x) + o_x * SIZE
        o_y = rest * s_y
        p_y = address(y) + o_y * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_x + begin * SIZE) & 31) // SIZE, length)
        vectors = i4((length - head) // VECTOR)
        edges = i4(length - vectors * VECTOR)
        even_y = (p_y + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        v_y = cuda.local.array(SLOTS, f4)
        seen, m, m2, s, s2, s1 = i4(0), (-inf), (-inf), 0.0, 0.0, 0.0
        first = i8(0)
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, p_y, even_y, ok, at, v_x, v_y)
            seen, m, m2, s, s2, s1 = fold(seen, m, m2, s, s2, s1, ok, v_x, v_y)
            first += FLIGHT * span
            more = first < vectors
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            m = sel(there, part_m[place], (-inf))
            m2 = sel(there, part_m2[place], (-inf))
            s = sel(there, part_s[place], 0.0)
            s2 = sel(there, part_s2[place], 0.0)
            s1 = sel(there, part_s1[place], 0.0)
        seen, m, m2, s, s2, s1 = combine(seen, m, m2, s, s2, s1, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_m = cuda.shared.array(32, f8)
        shared_m2 = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(32, f8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s1 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_m[warp] = m
                shared_m2[warp] = m2
                shared_s[warp] = s
                shared_s2[warp] = s2
                shared_s1[warp] = s1
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                m = sel(lane < warps, shared_m[lane % warps], (-inf))
                m2 = sel(lane < warps, shared_m2[lane % warps], (-inf))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                seen, m, m2, s, s2, s1 = combine(seen, m, m2, s, s2, s1, warps)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_m[item * parts + part] = m
                part_m2[item * parts + part] = m2
                part_s[item * parts + part] = s
                part_s2[item * parts + part] = s2
                part_s1[item * parts + part] = s1
        elif warp == 0 or alone:
            result_0 = finish(seen, m, m2, s, s2, s1)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'x': ('l',), 'y': ('l',)}
DTYPES = {'x': np.float32, 'y': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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


def plan(x, y):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'x': x, 'y': y}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    warps = 1 if length <= 32 * TILE else 4 if length <= 512 * TILE else 8
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part'), blocks * parts, threads), ((8, 'join'), items, 256)] if parts > 1 else [((warps, 'whole'), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, y, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, y)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l',)


def along(axis):
    """The dimension of an axis, counted from the end."""
    return ALL_AXES.index(axis) - len(ALL_AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of ALL_AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(ALL_AXES) - len(own)))]
    return np.moveaxis(array, range(-len(ALL_AXES), len(own) - len(ALL_AXES)), own)


def taken_out(value, axes, lengths):
    """A value with dimensions (batch…, its axes…)."""
    own = axes.split()
    full = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), tuple(lengths[axis] if axis in own else 1 for axis in ALL_AXES)))
    moved = np.moveaxis(full, [along(axis) for axis in own], range(-len(own), 0))
    return moved.reshape(full.shape[:full.ndim - len(ALL_AXES)] + tuple(lengths[axis] for axis in own))


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


def definition(x, y):
    """kl_softmax as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    y = spread(y, 'l')
    lengths = {"l": x.shape[-1]}
    d1 = np.max(x, along("l"), keepdims=True)
    t1 = np.exp(x - d1)
    d2 = np.sum(t1, along("l"), keepdims=True)
    d3 = np.max(y, along("l"), keepdims=True)
    return taken_out(np.sum(t1 / d2 * (x - (d1 + np.log(d2)) - (y - (d3 + np.log(np.sum(np.exp(y - d3), along("l"), keepdims=True))))), along("l"), keepdims=True), '', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x']),
                  "y": rng.standard_normal((3, length)).astype(DTYPES['y'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"kl_softmax, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
