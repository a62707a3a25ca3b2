"""batchnorm_train: one pass over l, 3 words of state per row, commutative merge.

Training mode: y_l = (x_l − μ)/√(σ² + ε), and running mean and unbiased variance moved by a tenth.

The operator
    batchnorm_train(x[l], rm[], rv[]):
        t1 = sum(x, l) / size(l)
        t2 = x - t1
        return t2 / sqrt(sum(t2 * t2, l) / size(l) + 1e-05), 0.9 * rm + 0.1 * t1, 0.9 * rv + 0.1 * (sum(t2 ** 2, l) / (size(l) - 1))

One more element (a prime marks the new value)
    s'  = s + x[l]
    N'  = N + 1
    p1' = s'/N'
    δ   = p1 − p1'
    s2' = s2 + δ²·N + (x[l] − p1')²

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s2'  = s2_a + δ_a²·N_a + s2_b + δ_b²·N_b

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 a99ca94732ef326d1afbd4f28d09e28d1f2b69152e869a1593ca1a2163c3d2ea
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python batchnorm_train_cuda.py` checks it on a GPU.
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
load_4 = ptx("{.reg .pred p; setp.ne.s32 p, $5, 0; mov.f32 $0, 0f00000000; mov.f32 $1, 0f00000000; mov.f32 $2, 0f00000000; mov.f32 $3, 0f00000000; @p ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];}", "ffff", "lr")
load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_4 = ptx("st.global.v4.f32 [$0], {$1, $2, $3, $4};", "", "lffff", memory=True)
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True, forceinline=True)
def load_vector(pointer, there, v, first):
    """16 bytes of a row into v from `first` on, or zeros."""
    numbers = load_4(pointer, there)
    for k in range(4):
        v[first + k] = numbers[k]

@cuda.jit(device=True, forceinline=True)
def store_vector(pointer, v, first):
    """16 bytes of a row."""
    store_4(pointer, v[first], v[first + 1], v[first + 2], v[first + 3])

SIZE, VECTOR, FLIGHT, ROWS = 4, 4, 4, 8
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1


@cuda.jit(device=True)
def value_p1(s, N):
    return s / f8(N)


@cuda.jit(device=True)
def rebase_s2(s2, p1, p1_new, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s2 + (0.0 if f8(N) == 0.0 else t3 * t3 * f8(N))


@cuda.jit(device=True)
def fold(seen_old, s_old, N_old, s2_old, ok, v_x):
    many = sel(ok[TILE], i4(1), i4(0))
    for flight in range(FLIGHT):
        many = i4(many + sel(ok[flight * VECTOR], i4(VECTOR), i4(0)))
    if many == 0:
        return seen_old, s_old, N_old, s2_old
    seen = i4(seen_old + many)
    p1_old = value_p1(s_old, N_old)
    s = s_old
    s_it = 0.0
    N = N_old + 1 * many
    s_of = 0.0
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        s_of = s_of + f8(v_x[i_l])
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s_it = s_it + sel(ok[i_l], s_of, 0.0)
            s_of = 0.0
        unrolled()
    s = s + s_it
    p1 = value_p1(s, N)
    s2 = rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else s2_old
    s2_it = 0.0
    t1 = p1 if math.isfinite(p1) else 0.0
    s2_of = 0.0
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        t2 = f8(v_x[i_l]) - t1
        s2_of = s2_of + t2 * t2
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s2_it = s2_it + sel(ok[i_l], s2_of, 0.0)
            s2_of = 0.0
        unrolled()
    s2 = s2 + s2_it
    return seen, s, N, s2


@cuda.jit(device=True)
def combine(seen_old, s_old, N_old, s2_old, width):
    seen = sum_over(seen_old, width)
    p1_old = value_p1(s_old, N_old)
    s = sum_over(s_old, width)
    N = sum_over(N_old, width)
    p1 = value_p1(s, N)
    s2 = sum_over(rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else 0.0, width)
    return seen, s, N, s2


@cuda.jit(device=True)
def settle_s2(p1, s2, N):
    t1 = p1
    t2 = t1 - t1
    t4 = 1.0 + t2 * t2
    t11 = (p1 if p1 - p1 == 0.0 else f8(0)) - p1
    t14 = s2 + t11 * t11 * f8(N)
    return (t14 if s2 - s2 == 0.0 else nan) if t4 != t4 else s2


@cuda.jit(device=True)
def output_1(x_rm, s, n_l):
    return f4(0.9 * f8(x_rm) + 0.1 * (s / f8(n_l)))


@cuda.jit(device=True)
def value_s3(s2):
    return s2


@cuda.jit(device=True)
def output_2(x_rv, s3, n_l):
    return f4(0.9 * f8(x_rv) + 0.1 * (s3 / f8(n_l - 1)))


@cuda.jit(device=True)
def finish(seen, s, N, s2, x_rm, x_rv):
    p1 = value_p1(s, N)
    s2 = settle_s2(p1, s2, N)
    s3 = value_s3(s2)
    return s, s2, output_1(x_rm, s, seen), output_2(x_rv, s3, seen)


@cuda.jit(device=True)
def map_0(y_0, s2, n_l, v_x, s, ok):
    t4 = 1.0 / math.sqrt(s2 / f8(n_l) + 1e-05)
    t5 = s / f8(n_l)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        y_0[i_l] = f4((f8(v_x[i_l]) - t5) * t4)
        unrolled()


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, ok, at, v_x):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = i4(first + flight * span + thread)
        full = number < vectors
        place = i4(begin + head + number * VECTOR)
        for k in range(VECTOR):
            ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
        load_vector(p_x + place * SIZE, full, v_x, flight * VECTOR)
    edge = first == 0 and thread < edges
    ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, edge)


@cuda.jit(device=True)
def store(pointer, even, ok, at, y):
    """Write a tile of the row."""
    for flight in range(FLIGHT):
        if ok[flight * VECTOR] and even:
            store_vector(pointer + at[flight * VECTOR] * SIZE, y, flight * VECTOR)
        elif ok[flight * VECTOR]:
            for k in range(VECTOR):
                store_one(pointer + (at[flight * VECTOR] + k) * SIZE, y[flight * VECTOR + k])
    if ok[TILE]:
        store_one(pointer + at[TILE] * SIZE, y[TILE])


@cache
def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, rm, s_rm, rv, s_rv, n_l, items, parts, piece, out_0, out_1, out_2):
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
        o_rm = rest * s_rm
        p_rm = address(rm) + o_rm * SIZE
        o_rv = rest * s_rv
        p_rv = address(rv) + o_rv * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_x + begin * SIZE) & 31) // SIZE, length)
        vectors = i4((length - head) // VECTOR)
        edges = i4(length - vectors * VECTOR)
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        y_0 = cuda.local.array(SLOTS, f4)
        seen, s, N, s2 = i4(0), 0.0, i8(0), 0.0
        first = i8(0)
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, ok, at, v_x)
            seen, s, N, s2 = fold(seen, s, N, s2, ok, v_x)
            first += FLIGHT * span
            more = first < vectors
        seen, s, N, s2 = combine(seen, s, N, s2, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_s = cuda.shared.array(32, f8)
        shared_N = cuda.shared.array(32, i8)
        shared_s2 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_s[warp] = s
                shared_N[warp] = N
                shared_s2[warp] = s2
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                N = sel(lane < warps, shared_N[lane % warps], i8(0))
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                seen, s, N, s2 = combine(seen, s, N, s2, warps)
        place = sel(alone, i8(cuda.threadIdx.x) >> 5, i8(0))
        final_s = cuda.shared.array(ROWS, f8)
        final_s2 = cuda.shared.array(ROWS, f8)
        if warp == 0 or alone:
            x_rm = load_one(p_rm, 1)
            x_rv = load_one(p_rv, 1)
            s, s2, result_1, result_2 = finish(seen, s, N, s2, x_rm, x_rv)
            if live and thread == 0:
                store_one(address(out_1) + (item) * SIZE, f4(result_1))
                store_one(address(out_2) + (item) * SIZE, f4(result_2))
            if thread == 0:
                final_s[place] = s
                final_s2[place] = s2
        cuda.syncthreads()
        s = final_s[place]
        s2 = final_s2[place]
        long = first > FLIGHT * span
        first, more = i8(0), True
        while more:
            if long:
                load(first, thread, span, begin, head, vectors, edges, p_x, ok, at, v_x)
            map_0(y_0, s2, n_l, v_x, s, ok)
            if live:
                store(address(out_0) + item * n_l * SIZE, (address(out_0) + item * n_l * SIZE + head * SIZE) % 16 == 0, ok, at, y_0)
            first += FLIGHT * span
            more = first < vectors

    return kernel


AXES = {'x': ('l',), 'rm': (), 'rv': ()}
DTYPES = {'x': np.float32, 'rm': np.float32, 'rv': np.float32}
OUTPUTS = [(('l',), np.float32), ((), np.float32), ((), np.float32)]
HELD = []


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


def plan(x, rm, rv):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'x': x, 'rm': rm, 'rv': rv}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    warps = next((w for w in (1, 2, 4, 8, 16) if length <= 32 * w * TILE), 8)
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts, piece, launches = 1, length, [((warps, 'whole'), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, rm, rv, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, rm, rv)
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


def definition(x, rm, rv):
    """batchnorm_train as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    rm = spread(rm, '')
    rv = spread(rv, '')
    lengths = {"l": x.shape[-1]}
    t1 = np.sum(x, along("l"), keepdims=True) / lengths["l"]
    t2 = x - t1
    return (taken_out(t2 / np.sqrt(np.sum(t2 * t2, along("l"), keepdims=True) / lengths["l"] + 1e-05), 'l', lengths), taken_out(0.9 * rm + 0.1 * t1, '', lengths), taken_out(0.9 * rv + 0.1 * (np.sum(t2 ** 2, along("l"), keepdims=True) / (lengths["l"] - 1)), '', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x']),
                  "rm": rng.standard_normal(()).astype(DTYPES['rm']),
                  "rv": rng.standard_normal(()).astype(DTYPES['rv'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"batchnorm_train, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
