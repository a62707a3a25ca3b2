"""gumbel_softmax: one pass over l, 2 words of state per row, commutative merge.

y = softmax((x − log(−log u)) / 0.7) for uniform noise u in (0, 1).

The operator
    gumbel_softmax(x[l], u[l]):
        t1 = (x - log(-log(u))) / 0.7
        t2 = exp(t1 - max(t1, l))
        return t2 / sum(t2, l)

One more element (a prime marks the new value)
    x  = (x[l] − log(−log(u[l])))/0.7
    m' = max(m, x)
    s' = s·exp(m − m') + exp(x − m')

Two states a and b
    m' = max(m_a, m_b)
    s' = s_a·exp(m_a − m') + s_b·exp(m_b − m')

Dangers
    exp((x[l] − log(−log(u[l])))/0.7 − m) may overflow: nothing bounds its exponent

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum
Certificate: sha256 209ab552a33d613b965ffb4370ee8494f864f174468399c29bf4479b40b9db1a
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python gumbel_softmax_cuda.py` checks it on a GPU.
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


load_vector = _instruction("{.reg .pred p; setp.ne.s32 p, $5, 0; mov.f32 $0, 0f00000000; mov.f32 $1, 0f00000000; mov.f32 $2, 0f00000000; mov.f32 $3, 0f00000000; @p ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];}", "ffff", "lr")
load_one = _instruction("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_vector = _instruction("st.global.v4.f32 [$0], {$1, $2, $3, $4};", "", "lffff", stores=True)
store_one = _instruction("st.global.f32 [$0], $1;", "", "lf", stores=True)
SIZE, VECTOR, FLIGHT = 4, 4, 4
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1
ROWS = 8


@cuda.jit(device=True)
def rebase_s(m, m_new, s):
    t1 = m if math.isfinite(m) else 0.0
    t2 = m_new if math.isfinite(m_new) else 0.0
    t3 = t1 - t2
    t4 = math.exp(t3)
    t5 = 0.0 if s == 0.0 else t4 * s
    return t5


@cuda.jit(device=True)
def fold(seen_old, m_old, s_old, ok, v_x, v_u):
    many = 0
    for slot in range(SLOTS):
        many += sel(ok[slot], 1, 0)
    if many == 0:
        return seen_old, m_old, s_old
    seen = seen_old + many
    m = m_old
    m_it = f4(-inf)
    t1 = 1.0 / 0.7
    for i_l in range(SLOTS):
        t2 = math.log(v_u[i_l])
        t3 = -t2
        t4 = math.log(t3)
        t5 = v_x[i_l] - t4
        t6 = t5 * f4(t1)
        m_it = larger(m_it, sel(ok[i_l], t6, f4(-inf)))
    m = larger(m, f8(m_it))
    s = (rebase_s(m_old, m, s_old) if seen_old > 0 else s_old)
    s_it = f4(0.0)
    t12 = m if math.isfinite(m) else 0.0
    for i_l in range(SLOTS):
        t7 = math.log(v_u[i_l])
        t8 = -t7
        t9 = math.log(t8)
        t10 = v_x[i_l] - t9
        t11 = f4(t1) * t10
        t13 = t11 - f4(t12)
        t14 = math.exp(t13)
        s_it = s_it + sel(ok[i_l], t14, f4(0.0))
    s = s + f8(s_it)
    return seen, m, s


@cuda.jit(device=True)
def combine(seen_old, m_old, s_old, width):
    seen = seen_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            seen += cuda.shfl_xor_sync(0xFFFFFFFF, seen, by)
    m = m_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            m = larger(m, cuda.shfl_xor_sync(0xFFFFFFFF, m, by))
    s = rebase_s(m_old, m, s_old) if seen_old > 0 else 0.0
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            s = s + cuda.shfl_xor_sync(0xFFFFFFFF, s, by)
    return seen, m, s


@cuda.jit(device=True)
def settle_s(m, s):
    t1 = m
    t2 = t1 - t1
    t3 = math.exp(t2)
    t4 = t3 * 1.0
    t5 = t4 != t4
    t6 = m - m
    t7 = t6 == 0.0
    t8 = m if t7 else f8(0)
    t9 = t8 - m
    t10 = math.exp(t9)
    t11 = t10 * s
    t12 = t11 if t5 else s
    return t12


@cuda.jit(device=True)
def finish(seen, m, s):
    s = settle_s(m, s)
    return m, s


@cuda.jit(device=True)
def map_0(y_0, s, v_x, v_u, m):
    t1 = 1.0 / s
    t2 = 1.0 / 0.7
    for i_l in range(SLOTS):
        t3 = math.log(v_u[i_l])
        t4 = -t3
        t5 = math.log(t4)
        t6 = v_x[i_l] - t5
        t7 = t6 * f4(t2)
        t8 = t7 - f4(m)
        t9 = math.exp(t8)
        t10 = t9 * f4(t1)
        y_0[i_l] = t10


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, p_u, even_u, ok, at, v_x, v_u):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = first + flight * span + thread
        full = number < vectors
        place = begin + head + number * VECTOR
        for k in range(VECTOR):
            ok[flight * VECTOR + k] = full
            at[flight * VECTOR + k] = i4(place + k)
        v_x[flight * VECTOR + 0], v_x[flight * VECTOR + 1], v_x[flight * VECTOR + 2], v_x[flight * VECTOR + 3] = load_vector(p_x + place * SIZE, sel(full, i4(1), i4(0)))
        if even_u:
            v_u[flight * VECTOR + 0], v_u[flight * VECTOR + 1], v_u[flight * VECTOR + 2], v_u[flight * VECTOR + 3] = load_vector(p_u + place * SIZE, sel(full, i4(1), i4(0)))
        else:
            for k in range(VECTOR):
                v_u[flight * VECTOR + k] = load_one(p_u + (place + k) * SIZE, sel(full, i4(1), i4(0)))
    edge = first == 0 and thread < edges
    ok[TILE] = edge
    at[TILE] = i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))
    v_u[TILE] = load_one(p_u + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))


@cuda.jit(device=True)
def store(pointer, even, ok, at, y):
    """Write a tile of the row."""
    for flight in range(FLIGHT):
        if ok[flight * VECTOR] and even:
            store_vector(pointer + at[flight * VECTOR] * SIZE, y[flight * VECTOR + 0], y[flight * VECTOR + 1], y[flight * VECTOR + 2], y[flight * VECTOR + 3])
        elif ok[flight * VECTOR]:
            for k in range(VECTOR):
                store_one(pointer + (at[flight * VECTOR] + k) * SIZE, y[flight * VECTOR + k])
    if ok[TILE]:
        store_one(pointer + at[TILE] * SIZE, y[TILE])


def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, u, s_u, n_l, items, parts, piece, out_0):
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
        o_x = rest * s_x
        p_x = address(x) + o_x * SIZE
        o_u = rest * s_u
        p_u = address(u) + o_u * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_x + begin * SIZE) // SIZE) % (32 // SIZE), length)
        vectors = (length - head) // VECTOR
        edges = length - vectors * VECTOR
        even_u = (p_u + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        v_u = cuda.local.array(SLOTS, f4)
        y_0 = cuda.local.array(SLOTS, f4)
        seen, m, s = i8(0), (-inf), 0.0
        first = 0
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, p_u, even_u, ok, at, v_x, v_u)
            seen, m, s = fold(seen, m, s, ok, v_x, v_u)
            first += FLIGHT * span
            more = first < vectors
        seen, m, s = combine(seen, m, s, 32)
        shared_seen = cuda.shared.array(32, i8)
        shared_m = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_m[warp] = m
                shared_s[warp] = s
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i8(0))
                m = sel(lane < warps, shared_m[lane % warps], (-inf))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                seen, m, s = combine(seen, m, s, warps)
        place = sel(alone, i8(cuda.threadIdx.x) // 32, i8(0))
        final_m = cuda.shared.array(ROWS, f8)
        final_s = cuda.shared.array(ROWS, f8)
        if warp == 0 or alone:
            m, s = finish(seen, m, s)
            if thread == 0:
                final_m[place] = m
                final_s[place] = s
        cuda.syncthreads()
        m = final_m[place]
        s = final_s[place]
        long = first > FLIGHT * span
        first, more = 0, True
        while more:
            if long:
                load(first, thread, span, begin, head, vectors, edges, p_x, p_u, even_u, ok, at, v_x, v_u)
            map_0(y_0, s, v_x, v_u, m)
            if live:
                store(address(out_0) + item * n_l * SIZE, (address(out_0) + item * n_l * SIZE + head * SIZE) % 16 == 0, ok, at, y_0)
            first += FLIGHT * span
            more = first < vectors

    return kernel


AXES = {'x': ('l',), 'u': ('l',)}
DTYPES = {'x': np.float32, 'u': np.float32}
OUTPUTS = [(('l',), np.float32)]
HELD = []
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


def plan(x, u):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'x': x, 'u': u})
    items, length = math.prod(leading), sizes['l']
    warps = next((w for w in (1, 2, 4, 8, 16) if length <= 32 * w * TILE), 8)
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts, piece, launches = 1, length, [((warps, 'whole'), blocks, threads)]
    arguments = [
        x,
        np.int64(1 * sizes['l'] * (len(described(x)[0]) > 1)),
        u,
        np.int64(1 * sizes['l'] * (len(described(u)[0]) > 1)),
        np.int64(sizes['l']),
        np.int64(items),
        np.int64(parts),
        np.int64(piece),
    ]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, u, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, u)
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



ALL_AXES = ('l',)


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


def definition(x, u):
    """gumbel_softmax as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    u = spread(u, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = (x - np.log(-np.log(u))) / 0.7
    t2 = np.exp(t1 - reduced("max", t1, "l"))
    return taken_out(t2 / reduced("sum", t2, "l"), 'l', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(x, u):
    """`launch` with the axes as the operator has them."""
    outputs = launch(x, u)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], ('l',), ('l',)),


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'x': 'unit', 'u': 'unit'}, {}, []
    for length in (1, 31, 1000, 8191, 100000):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        axes, names = {'x': ('l',), 'u': ('l',)}, {'x': 'x', 'u': 'u'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"gumbel_softmax, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
