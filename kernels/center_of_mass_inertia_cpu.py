"""center_of_mass_inertia: one pass over l, 4 words of state per row, commutative merge.

Centre R, the tensor Σ m (|d|²·1 − d dᵀ) with d = r − R applied to the columns of a basis, and Σ m |d|².

The operator
    center_of_mass_inertia(m[l], r[l, c], basis[c, u]):
        t1 = sum(m * r, l) / sum(m, l)
        t2 = r - t1
        d1 = sum(t2 * t2, c)
        return t1, sum(m * (d1 * basis - t2 * sum(t2 * basis, c)), l), sum(m * d1, l)

One more element (a prime marks the new value)
    s'  = s + m[l]·r[l,c]
    s2' = s2 + m[l]
    p1' = s'/s2'
    δ1  = p1 − p1'
    s4' = s4 + Σ_c δ1²·s2 + Σ_c m[l]·(r[l,c] − p1')²
    δ2  = p1 − p1'
    s1' = s1 + δ1·δ2·s2 + m[l]·(r[l,c] − p1')·(r[l,c__1] − p1')

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    p1_a = s_a/s2_a
    p1_b = s_b/s2_b
    p1'  = s'/s2'
    δ1_a = p1_a − p1'
    δ1_b = p1_b − p1'
    s4'  = s4_a + Σ_c δ1_a²·s2_a + s4_b + Σ_c δ1_b²·s2_b
    δ2_a = p1_a − p1'
    δ2_b = p1_b − p1'
    s1'  = s1_a + δ1_a·δ2_a·s2_a + s1_b + δ1_b·δ2_b·s2_b

Dangers
    s2 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference
Certificate: sha256 e712e7cc3edb837c3bbb2819d1f07194f57d674e15969ffc99b1f871d9bdbb01
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python center_of_mass_inertia_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"m": "l", "r": "l c", "basis": "c u"}
DTYPES = {"m": "float32", "r": "float32", "basis": "float32"}
TILE, BLOCK = 1024, 1


def center_of_mass_inertia(m, r, basis, *, threads=None):
    """center_of_mass_inertia in one pass over l.

    Takes float32 m[…, l], float32 r[…, l, c], float32 basis[…, c, u]; gives float32 […, c], float32 […, c, u],
    float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"m": m, "r": r, "basis": basis}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "c", f4)
    out1 = written(lengths, batch, "c u", f4)
    out2 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["m"], INPUTS["m"], "l", batch),
        *laid_out(arrays["r"], INPUTS["r"], "l c", batch),
        *laid_out(arrays["basis"], INPUTS["basis"], "c u", batch),
        lengths["l"], lengths["c"], lengths["u"], out0, out1, out2)
    return (given_back(out0, batch, "c", "c"), given_back(out1, batch, "c u", "c u"), given_back(out2, batch, "", ""))


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


@intrinsic
def empty(context, shape, kind):
    """New memory for an array of a shape and a kind of number."""
    made = types.Array(kind.dtype, len(shape), "C")
    def emit(context, builder, signature, args):
        number, lengths = context.get_data_type(made.dtype), cgutils.unpack_tuple(builder, args[0])
        strides = [context.get_constant(types.intp, context.get_abi_sizeof(number))]
        for length in reversed(lengths):
            strides.insert(0, builder.mul(strides[0], length))
        memory = context.nrt.meminfo_alloc_aligned(builder, strides[0], context.get_constant(types.uint32, 64))
        start = builder.bitcast(context.nrt.meminfo_data(builder, memory), number.as_pointer())
        array = context.make_array(made)(context, builder)
        return populate_array(array, start, lengths, strides[1:], strides[-1], memory)._getvalue()
    return made(shape, kind), emit


@intrinsic
def fill(context, array, value):
    """Every element of a contiguous array becomes a value."""
    def emit(context, builder, signature, args):
        target = context.make_array(array)(context, builder, args[0])
        with cgutils.for_range(builder, target.nitems) as loop:
            context.pack_value(builder, array.dtype, args[1], builder.gep(target.data, [loop.index]))
        return context.get_dummy_value()
    return types.none(array, array.dtype), emit


@intrinsic
def copy(context, source, target):
    """What one contiguous array holds, another holds."""
    def emit(context, builder, signature, args):
        start, into = (context.make_array(kind)(context, builder, each) for kind, each in zip(signature.args, args))
        cgutils.raw_memcpy(builder, into.data, start.data, start.nitems, start.itemsize)
        return context.get_dummy_value()
    return types.none(source, target), emit


@intrinsic
def times(context, factor, x):
    """factor · x, and 0 where x is 0, whatever the factor."""
    def emit(context, builder, signature, args):
        factor, x = args
        zero = ir.Constant(x.type, 0.0)
        return builder.select(builder.fcmp_ordered("==", x, zero), zero, builder.fmul(factor, x))
    return x(x, x), emit


def _finite(builder, x):
    infinity = ir.Constant(x.type, float("inf"))
    size = builder.call(builder.module.declare_intrinsic("llvm.fabs", [x.type], ir.FunctionType(x.type, [x.type])), [x])
    return builder.fcmp_ordered("<", size, infinity)


@intrinsic
def finite(context, x):
    """Whether a number is neither infinite nor NaN."""
    def emit(context, builder, signature, args):
        return _finite(builder, *args)
    return types.boolean(x), emit


@intrinsic
def anchored(context, x):
    """A number, or 0 where it is not finite."""
    def emit(context, builder, signature, args):
        return builder.select(_finite(builder, *args), args[0], ir.Constant(args[0].type, 0.0))
    return x(x), emit


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


@intrinsic
def seldom(context):
    """Let LLVM keep a function of many loops short: it would unfold them into one another for minutes."""
    def emit(context, builder, signature, args):
        for name in ("minsize", "noinline"):
            builder.function.attributes.add(name)
        return context.get_dummy_value()
    return types.none(), emit


@intrinsic
def touch(context, array, place):
    """Ask the caches for what lies `place` elements behind the start of an array, be it outside: this never fails."""
    def emit(context, builder, signature, args):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number]))
        builder.call(fetch, [builder.bitcast(start, byte), number(0), number(3), number(1)])
        return context.get_dummy_value()
    return types.none(array, place), emit


@njit(**PART)
def ahead(tile, first, count, apart, pages, line):
    """Fetch `count` elements that begin `first` behind the start of a tile, `line` at a time, and as many of other `pages`
    that lie so far `apart`, in turn: memory gives several pages at once sooner than one after another.  A tile of more
    than 64 KiB is not fetched: no cache would keep it."""
    if pages * apart > 1024 * line:
        return
    for place in range(first, first + count, line):
        for page in range(pages):
            touch(tile, place + page * apart)


@njit(**PART)
def apart(x, pivot, real):
    """x − pivot with a pivot in float64: as that and what it lacks, it is two numbers of the type."""
    near = real(pivot)
    return (x - near) - (real(pivot - f8(near)) if finite(near) else real(0.0))


@njit(**PART)
def sound(total):
    """Whether a sum is finite and so far from 0 that it misses nothing of products too small for float32."""
    return 1e-30 < abs(total) < inf


@njit(**LOOP)
def fold_0a(m, r, s, n_c, n):
    wide_vectors()
    for i_l in range(n):
        for i_c in range(n_c):
            t1 = f8(m[i_l]) * f8(r[i_l, i_c])
            s[i_c] = s[i_c] + t1


@njit(**LOOP)
def fold_0b(m, n):
    wide_vectors()
    s2 = 0.0
    for i_l in range(n):
        s2 = s2 + f8(m[i_l])
    return s2


@njit(**PART)
def value_1(p1, s, s2, n_c):
    for i_c in range(n_c):
        t1 = s[i_c] / s2
        p1[i_c] = t1


@njit(**PART)
def rebase_1(s4, old_p1, p1, old_s, n_c, old_s2, s1, n_c__1):
    t1 = 0.0
    for i_c in range(n_c):
        t2 = anchored(old_p1[i_c])
        t3 = anchored(p1[i_c])
        t4 = t2 - t3
        t5 = 2.0 * t4
        t6 = old_p1[i_c] == t2
        t7 = f8(0) if t6 else old_s[i_c]
        t8 = times(t5, t7)
        t1 = t1 + t8
    t9 = s4 + t1
    t10 = 0.0
    for i_c in range(n_c):
        t11 = anchored(old_p1[i_c])
        t12 = anchored(p1[i_c])
        t13 = t11 - t12
        t14 = t13 * t13
        t15 = times(t14, old_s2)
        t10 = t10 + t15
    t16 = t9 + t10
    s4 = t16
    for i_c in range(n_c):
        t20 = anchored(old_p1[i_c])
        t21 = old_p1[i_c] == t20
        t22 = f8(0) if t21 else old_s[i_c]
        t25 = anchored(p1[i_c])
        t26 = t20 - t25
        for i_c__1 in range(n_c__1):
            t17 = anchored(old_p1[i_c__1])
            t18 = anchored(p1[i_c__1])
            t19 = t17 - t18
            t23 = times(t19, t22)
            t24 = s1[i_c, i_c__1] + t23
            t27 = t26 * t19
            t28 = times(t27, old_s2)
            t29 = t24 + t28
            t30 = old_p1[i_c__1] == t17
            t31 = f8(0) if t30 else old_s[i_c__1]
            t32 = times(t26, t31)
            t33 = t29 + t32
            s1[i_c, i_c__1] = t33
    return s4


@njit(**LOOP)
def fold_1a(m, r, p1, s1, n_c__1, n_c, n):
    wide_vectors()
    for i_l in range(n):
        for i_c in range(n_c):
            t1 = anchored(p1[i_c])
            t2 = f8(r[i_l, i_c]) - t1
            t3 = f8(m[i_l]) * t2
            for i_c__1 in range(n_c__1):
                t4 = anchored(p1[i_c__1])
                t5 = f8(r[i_l, i_c__1]) - t4
                t6 = t3 * t5
                s1[i_c, i_c__1] = s1[i_c, i_c__1] + t6


@njit(**LOOP)
def fold_1b(m, r, p1, n_c, n, real):
    wide_vectors()
    s4 = real(0.0)
    for i_l in range(n):
        t1 = real(0.0)
        for i_c in range(n_c):
            t2 = anchored(p1[i_c])
            t3 = apart(real(r[i_l, i_c]), t2, real)
            t4 = real(m[i_l]) * t3
            t5 = t4 * t3
            t1 = t1 + t5
        s4 = s4 + t1
    return s4


@njit(**PART)
def finish(p1, s, s2, n_c, s4, s1, n_c__1, out0, s3, basis, n_u, out1):
    seldom()
    for i_c in range(n_c):
        t1 = s[i_c] / s2
        p1[i_c] = t1
    t2 = 0.0
    for i_c in range(n_c):
        t3 = p1[i_c]
        t4 = t3 - t3
        t5 = 2.0 * t4
        t6 = p1[i_c] == t3
        t7 = f8(0) if t6 else 1.0
        t8 = t5 * t7
        t2 = t2 + t8
    t9 = 1.0 + t2
    t10 = 0.0
    for i_c in range(n_c):
        t11 = p1[i_c]
        t12 = t11 - t11
        t13 = t12 * t12
        t10 = t10 + t13
    t14 = t9 + t10
    t15 = t14 != t14
    t16 = s4 - s4
    t17 = t16 == 0.0
    t18 = 0.0
    for i_c in range(n_c):
        t19 = p1[i_c] - p1[i_c]
        t20 = t19 == 0.0
        t21 = p1[i_c] if t20 else f8(0)
        t22 = t21 - p1[i_c]
        t23 = 2.0 * t22
        t24 = p1[i_c] == t21
        t25 = f8(0) if t24 else s[i_c]
        t26 = t23 * t25
        t18 = t18 + t26
    t27 = s4 + t18
    t28 = 0.0
    for i_c in range(n_c):
        t29 = p1[i_c] - p1[i_c]
        t30 = t29 == 0.0
        t31 = p1[i_c] if t30 else f8(0)
        t32 = t31 - p1[i_c]
        t33 = t32 * t32
        t34 = t33 * s2
        t28 = t28 + t34
    t35 = t27 + t28
    t36 = t35 if t17 else nan
    t37 = t36 if t15 else s4
    s4 = t37
    for i_c in range(n_c):
        t40 = p1[i_c]
        t41 = p1[i_c] == t40
        t42 = f8(0) if t41 else 1.0
        t45 = t40 - t40
        t59 = p1[i_c] - p1[i_c]
        t60 = t59 == 0.0
        t61 = p1[i_c] if t60 else f8(0)
        t62 = p1[i_c] == t61
        t63 = f8(0) if t62 else s[i_c]
        t66 = t61 - p1[i_c]
        for i_c__1 in range(n_c__1):
            t38 = p1[i_c__1]
            t39 = t38 - t38
            t43 = t39 * t42
            t44 = 1.0 + t43
            t46 = t45 * t39
            t47 = t44 + t46
            t48 = p1[i_c__1] == t38
            t49 = f8(0) if t48 else 1.0
            t50 = t45 * t49
            t51 = t47 + t50
            t52 = t51 != t51
            t53 = s1[i_c, i_c__1] - s1[i_c, i_c__1]
            t54 = t53 == 0.0
            t55 = p1[i_c__1] - p1[i_c__1]
            t56 = t55 == 0.0
            t57 = p1[i_c__1] if t56 else f8(0)
            t58 = t57 - p1[i_c__1]
            t64 = t58 * t63
            t65 = s1[i_c, i_c__1] + t64
            t67 = t66 * t58
            t68 = t67 * s2
            t69 = t65 + t68
            t70 = p1[i_c__1] == t57
            t71 = f8(0) if t70 else s[i_c__1]
            t72 = t66 * t71
            t73 = t69 + t72
            t74 = t73 if t54 else nan
            t75 = t74 if t52 else s1[i_c, i_c__1]
            s1[i_c, i_c__1] = t75
    for i_c in range(n_c):
        t76 = s[i_c] / s2
        out0[i_c] = f4(t76)
    for i_c in range(n_c):
        for i_u in range(n_u):
            t77 = f8(basis[i_c, i_u]) * s4
            t78 = 0.0
            for i_c__1 in range(n_c__1):
                t79 = -f8(basis[i_c__1, i_u])
                t80 = t79 * s1[i_c, i_c__1]
                t78 = t78 + t80
            t81 = t77 + t78
            s3[i_c, i_u] = t81
    for i_c in range(n_c):
        for i_u in range(n_u):
            out1[i_c, i_u] = f4(s3[i_c, i_u])
    out2 = f4(s4)
    return s4, out2


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_m, m, b_r, r, b_basis, basis, n_l, n_c, n_u, out0, out1, out2):
    wide_vectors()
    s = empty((n_c,), f8)
    s1 = empty((n_c, n_c,), f8)
    p1 = empty((n_c,), f8)
    s3 = empty((n_c, n_u,), f8)
    old_p1 = empty((n_c,), f8)
    old_s = empty((n_c,), f8)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(s, 0.0)
        s2 = f8(0.0)
        s4 = f8(0.0)
        fill(s1, 0.0)
        fill(p1, 0)
        fill(s3, 0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            m_tile = m[b_m[b], t0:t0 + n]
            r_tile = r[b_r[b], t0:t0 + n]
            copy(p1, old_p1)
            copy(s, old_s)
            old_s2 = s2
            fold_0a(m_tile, r_tile, s, n_c, n)
            r0 = fold_0b(m_tile, n)
            s2 = s2 + r0
            value_1(p1, s, s2, n_c)
            if t0 > begin:
                s4 = rebase_1(s4, old_p1, p1, old_s, n_c, old_s2, s1, n_c)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(m_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(r_tile, (n + at // 2) * n_c, (piece // 2) * n_c, (n // 2) * n_c, 2, 16)
                fold_1a(m_tile[at:at + piece], r_tile[at:at + piece], p1, s1, n_c, n_c, piece)
            r0 = fold_1b(m_tile, r_tile, p1, n_c, n, f4)
            if not sound(r0):
                r0 = fold_1b(m_tile, r_tile, p1, n_c, n, f8)
            s4 = s4 + f8(r0)
        s4, out2[b] = finish(p1, s, s2, n_c, s4, s1, n_c, out0[b], s3, basis[b_basis[b]], n_u, out1[b])


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_m, m, b_r, r, b_basis, basis, n_l, n_c, n_u, out0, out1, out2):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_m, m, b_r, r, b_basis, basis, n_l, n_c, n_u, out0, out1, out2)


def fitted(arrays, inputs, dtypes):
    """The arrays, the length of each axis and the common batch shape.  Raises TypeError and ValueError for what does not fit."""
    arrays, lengths = {name: np.asarray(array) for name, array in arrays.items()}, {}
    for name, array in arrays.items():
        axes = inputs[name].split()
        if array.dtype != dtypes[name]:
            raise TypeError(f"{name} is {array.dtype}, and this kernel reads {dtypes[name]}: convert it, or export for another --dtype")
        if array.ndim < len(axes):
            raise ValueError(f"{name} of shape {array.shape} has too few dimensions for the axes [{', '.join(axes)}]")
        for axis, length in zip(axes, array.shape[array.ndim - len(axes):]):
            if lengths.setdefault(axis, length) != length:
                raise ValueError(f"axis {axis} has length {length} in {name} and {lengths[axis]} before: make them equal")
            if length == 0:
                raise ValueError(f"axis {axis} has length 0 in {name}: there is nothing to reduce")
    leading = [array.shape[:array.ndim - len(inputs[name].split())] for name, array in arrays.items()]
    try:
        return arrays, lengths, np.broadcast_shapes(*leading)
    except ValueError:
        raise ValueError(f"the dimensions before the axes do not broadcast: {leading}") from None


def laid_out(array, axes, order, batch):
    """Which of an array's own batch each batch element reads, and the array: (own batch, axes in the kernel's order)."""
    axes = axes.split()
    leading = array.ndim - len(axes)
    moved = array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order.split()))
    flat = np.ascontiguousarray(moved).reshape(-1, *moved.shape[leading:])
    which = np.arange(len(flat)).reshape((1,) * (len(batch) - leading) + array.shape[:leading])
    return np.broadcast_to(which, batch).flatten(), flat


def written(lengths, batch, order, dtype):
    """Memory for an output: (batch, axes in the kernel's order)."""
    return np.empty((prod(batch), *(lengths[axis] for axis in order.split())), dtype)


def given_back(output, batch, order, axes):
    """An output with dimensions (batch…, its axes…); a scalar if there are none."""
    full = output.reshape(batch + output.shape[1:])
    return full.transpose(*range(len(batch)), *(len(batch) + order.split().index(axis) for axis in axes.split()))[()]


AXES = ('l', 'c', 'u')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return AXES.index(axis) - len(AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(AXES) - len(own)))]
    return np.moveaxis(array, range(-len(AXES), len(own) - len(AXES)), own)


def taken_out(value, axes, lengths):
    """A value with dimensions (batch…, its axes…)."""
    own = axes.split()
    full = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), tuple(lengths[axis] if axis in own else 1 for axis in AXES)))
    moved = np.moveaxis(full, [along(axis) for axis in own], range(-len(own), 0))
    return moved.reshape(full.shape[:full.ndim - len(AXES)] + tuple(lengths[axis] for axis in own))


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


def definition(m, r, basis):
    """center_of_mass_inertia as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    m = spread(m, 'l')
    r = spread(r, 'l c')
    basis = spread(basis, 'c u')
    lengths = {"l": m.shape[-3], "c": r.shape[-2], "u": basis.shape[-1]}
    t1 = np.sum(m * r, along("l"), keepdims=True) / np.sum(m, along("l"), keepdims=True)
    t2 = r - t1
    d1 = np.sum(t2 * t2, along("c"), keepdims=True)
    return (taken_out(t1, 'c', lengths), taken_out(np.sum(m * (d1 * basis - t2 * np.sum(t2 * basis, along("c"), keepdims=True)), along("l"), keepdims=True), 'c u', lengths), taken_out(np.sum(m * d1, along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'m': 'normal', 'r': 'normal', 'basis': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"c": 6, "u": 7, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"center_of_mass_inertia, l = {length}", arrays, scalars))
    return 0 if passed_over(center_of_mass_inertia, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
