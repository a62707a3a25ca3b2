"""softmax_entropy_plogp: one pass over l, 3 words of state per row, commutative merge.

H = −Σ p_l log p_l with p = softmax(x) inside the sum.

The operator
    softmax_entropy_plogp(x[l]):
        t1 = exp(x - max(x, l))
        t2 = t1 / sum(t1, l)
        return -sum(t2 * log(t2), l)

One more element (a prime marks the new value)
    m'  = max(m, x[l])
    δ   = m − m'
    s'  = s·exp(δ) + exp(x[l] − m')
    s1' = s1·exp(δ) + δ·s·exp(δ) + exp(x[l] − m')·(x[l] − m')

Two states a and b
    m'  = max(m_a, m_b)
    δ_a = m_a − m'
    δ_b = m_b − m'
    s'  = s_a·exp(δ_a) + s_b·exp(δ_b)
    s1' = s1_a·exp(δ_a) + δ_a·s_a·exp(δ_a) + s1_b·exp(δ_b) + δ_b·s_b·exp(δ_b)

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, recentre_difference, exp_of_sum, log_of_product, log_of_exp, log_of_reciprocal
Certificate: sha256 2adbdbf715feffa87ac17bbe0e2d8cd2ab5461ed22ca809464c1b60956807c3b
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python softmax_entropy_plogp_cuda.py` checks it on a GPU.
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
def rebase_s1(m, m_new, s1, s):
    t1 = m if math.isfinite(m) else 0.0
    t2 = m_new if math.isfinite(m_new) else 0.0
    t3 = t1 - t2
    t4 = math.exp(t3)
    t5 = 0.0 if s1 == 0.0 else t4 * s1
    t6 = t4 * t3
    t7 = 0.0 if s == 0.0 else t6 * s
    t8 = t5 + t7
    return t8


@cuda.jit(device=True)
def fold(seen_old, m_old, s_old, s1_old, ok, v_x):
    many = 0
    for slot in range(SLOTS):
        many += sel(ok[slot], 1, 0)
    if many == 0:
        return seen_old, m_old, s_old, s1_old
    seen = seen_old + many
    m = m_old
    m_it = f4(-inf)
    for i_l in range(SLOTS):
        m_it = larger(m_it, sel(ok[i_l], v_x[i_l], f4(-inf)))
    m = larger(m, f8(m_it))
    s = (rebase_s(m_old, m, s_old) if seen_old > 0 else s_old)
    s_it = f4(0.0)
    s1 = (rebase_s1(m_old, m, s1_old, s_old) if seen_old > 0 else s1_old)
    s1_it = f4(0.0)
    t1 = m if math.isfinite(m) else 0.0
    for i_l in range(SLOTS):
        t2 = v_x[i_l] - f4(t1)
        t3 = math.exp(t2)
        s_it = s_it + sel(ok[i_l], t3, f4(0.0))
        t4 = t3 * t2
        s1_it = s1_it + sel(ok[i_l], t4, f4(0.0))
    s = s + f8(s_it)
    s1 = s1 + f8(s1_it)
    return seen, m, s, s1


@cuda.jit(device=True)
def combine(seen_old, m_old, s_old, s1_old, width):
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
    s1 = rebase_s1(m_old, m, s1_old, s_old) if seen_old > 0 else 0.0
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            s = s + cuda.shfl_xor_sync(0xFFFFFFFF, s, by)
            s1 = s1 + cuda.shfl_xor_sync(0xFFFFFFFF, s1, by)
    return seen, m, s, s1


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
def settle_s1(m, s1):
    t1 = m
    t2 = t1 - t1
    t3 = math.exp(t2)
    t4 = t3 * 1.0
    t5 = t3 * t2
    t6 = t5 * 1.0
    t7 = t4 + t6
    t8 = t7 != t7
    t9 = nan if t8 else s1
    return t9


@cuda.jit(device=True)
def value_s2(s, s1):
    t1 = 1.0 / s
    t2 = t1 * s1
    t3 = math.log(s)
    t4 = t3 * t1
    t5 = -t4
    t6 = t5 * s
    t7 = t2 + t6
    return t7


@cuda.jit(device=True)
def output_0(s2):
    t1 = -s2
    return f4(t1)


@cuda.jit(device=True)
def finish(seen, m, s, s1):
    s = settle_s(m, s)
    s1 = settle_s1(m, s1)
    s2 = value_s2(s, s1)
    return output_0(s2)


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, ok, at, v_x):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = first + flight * span + thread
        full = number < vectors
        place = begin + head + number * VECTOR
        for k in range(VECTOR):
            ok[flight * VECTOR + k] = full
            at[flight * VECTOR + k] = i4(place + k)
        v_x[flight * VECTOR + 0], v_x[flight * VECTOR + 1], v_x[flight * VECTOR + 2], v_x[flight * VECTOR + 3] = load_vector(p_x + place * SIZE, sel(full, i4(1), i4(0)))
    edge = first == 0 and thread < edges
    ok[TILE] = edge
    at[TILE] = i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))


def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, n_l, items, parts, piece, part_seen, part_m, part_s, part_s1, out_0):
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
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_x + begin * SIZE) // SIZE) % (32 // SIZE), length)
        vectors = (length - head) // VECTOR
        edges = length - vectors * VECTOR
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        seen, m, s, s1 = i8(0), (-inf), 0.0, 0.0
        first = 0
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, ok, at, v_x)
            seen, m, s, s1 = fold(seen, m, s, s1, ok, v_x)
            first += FLIGHT * span
            more = first < vectors
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i8(0))
            m = sel(there, part_m[place], (-inf))
            s = sel(there, part_s[place], 0.0)
            s1 = sel(there, part_s1[place], 0.0)
        seen, m, s, s1 = combine(seen, m, s, s1, 32)
        shared_seen = cuda.shared.array(32, i8)
        shared_m = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(32, f8)
        shared_s1 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_m[warp] = m
                shared_s[warp] = s
                shared_s1[warp] = s1
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i8(0))
                m = sel(lane < warps, shared_m[lane % warps], (-inf))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                seen, m, s, s1 = combine(seen, m, s, s1, warps)
        if splits:
            if thread == 0:
                part_seen[item * parts + part] = seen
                part_m[item * parts + part] = m
                part_s[item * parts + part] = s
                part_s1[item * parts + part] = s1
        elif warp == 0 or alone:
            result_0 = finish(seen, m, s, s1)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'x': ('l',)}
DTYPES = {'x': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]
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


def plan(x):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'x': x})
    items, length = math.prod(leading), sizes['l']
    warps = next((w for w in (1, 8) if length <= 32 * w * TILE), 8)
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // items, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part'), items * parts, 32 * warps), ((8, 'join'), items, 256)] if parts > 1 else [((warps, 'whole'), blocks, threads)]
    arguments = [
        x,
        np.int64(1 * sizes['l'] * (len(described(x)[0]) > 1)),
        np.int64(sizes['l']),
        np.int64(items),
        np.int64(parts),
        np.int64(piece),
    ]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x)
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


def definition(x):
    """softmax_entropy_plogp as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = np.exp(x - reduced("max", x, "l"))
    t2 = t1 / reduced("sum", t1, "l")
    return taken_out(-reduced("sum", t2 * np.log(t2), "l"), '', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(x):
    """`launch` with the axes as the operator has them."""
    outputs = launch(x)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], (), ()),


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'x': 'normal'}, {}, []
    for length in (1, 31, 1000, 8191, 100000):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        axes, names = {'x': ('l',)}, {'x': 'x'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"softmax_entropy_plogp, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
