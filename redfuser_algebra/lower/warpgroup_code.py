"""Products of four warps and bulk copies, as text: descriptors, barriers, tensor maps, and the instructions of sm_90a for them.

A product is under way until its group has been waited for; then `landed` hands its sums over, and until then nobody has them.
A bulk copy of a box of a tensor (TMA) tells a barrier when its bytes have come.  Maps of tensors are made by the driver.

Out: Python source that uses numba-cuda and cuda.bindings.
"""
from __future__ import annotations

WARPGROUPS = '''
async_fence = ptx("fence.proxy.async.shared::cta;", "", "", memory=True)
products_end = ptx("wgmma.commit_group.sync.aligned;", "", "", memory=True, warp=True)


@cuda.jit(device=True, forceinline=True)
def described(place, leading, stride):
    """A tile with the swizzle of 128 bytes, as wgmma takes it (PTX ISA, "Matrix Descriptor Format"): places and distances in units of 16 bytes."""
    return i8(place >> 4 & 0x3FFF) | i8(leading >> 4) << 16 | i8(stride >> 4) << 32 | i8(1) << 62


@cuda.jit(device=True, forceinline=True)
def pack_weights(p, tile, w):
    """Weights as factors of 16 bits, where they are."""
    for k in range(tile // 16):
        for half in range(2):
            for r in range(2):
                w[4 * k + 2 * half + r] = pack(p[r, 4 * k + 2 * half], p[r, 4 * k + 2 * half + 1])


def on_sums(columns, text, letters):
    """Instructions, `$0` and so on, with the sums of so many columns in their registers, and what else they read."""
    count = columns // 2
    marks = ",".join(["=f"] * count + [str(n) for n in range(count)] + [*letters, "~{{memory}}"])

    def emit(context, builder, array, value, given):
        data = context.make_array(array)(context, builder, value=value).data
        found = [n // 4 * 2 + n // 2 % 2 * (count // 2) + n % 2 for n in range(count)]
        held = [builder.gep(data, [ir.Constant(ir.IntType(32), n)]) for n in found]
        given = [builder.load(place) for place in held] + given
        made = ir.FunctionType(ir.LiteralStructType([ir.FloatType()] * count), [each.type for each in given])
        results = builder.call(ir.InlineAsm(made, text, marks, True), given, attrs=("convergent",))
        for n, place in enumerate(held):
            builder.store(builder.extract_value(results, n), place)
        return context.get_dummy_value()
    return emit


def product_of_warps(columns, left, right, turned, kinds="k16.f32.{kind}.{kind}"):
    """s += a · b for the 64 rows of four warps begins: step k takes 32 bytes of numbers at offset left[k] of a tile, or, without
    `left`, weights; and at right[k] of a tile."""
    count, factors = columns // 2, 1 if left else 4 * len(right)
    sums, b = ", ".join(f"${{n}}" for n in range(count)), 2 * count + factors
    text = "{{.reg .pred p; .reg .b32 one; .reg .b64 a, b; mov.b32 one, 1; setp.ne.b32 p, one, 0; wgmma.fence.sync.aligned; "
    for k in range(len(right)):
        a = "a" if left else "{{" + ", ".join(f"${{2 * count + 4 * k + n}}" for n in range(4)) + "}}"
        text += f"add.s64 a, ${{2 * count}}, {{left[k] >> 4}}; " if left else ""
        text += f"add.s64 b, ${{b}}, {{right[k] >> 4}}; wgmma.mma_async.sync.aligned.m64n{{columns}}{{kinds}} "
        text += "{{" + sums + "}}, " + f"{{a}}, b, p, 1, 1{{turned}}; "
    emit = on_sums(columns, text + "}}", (["l"] if left else ["r"] * factors) + ["l"])

    def typed(context, s, a, b):
        def begin(context, builder, signature, args):
            weights = [] if left else [builder.load(builder.gep(context.make_array(a)(context, builder, value=args[1]).data, [ir.Constant(ir.IntType(32), n)]))
                                       for n in range(factors)]
            return emit(context, builder, s, args[0], [*weights, *args[1:2] * bool(left), args[2]])
        return types.none(s, types.int64 if left else a, types.int64), begin
    return intrinsic(typed)


def landed(columns, left):
    """Wait for the products of all but the last `left` groups; the sums are there."""
    emit = on_sums(columns, f"wgmma.wait_group.sync.aligned {{left}};", [])
    return intrinsic(lambda context, s: (types.none(s), lambda context, builder, signature, args: emit(context, builder, s, args[0], [])))
'''

BULK = '''
start_barrier = ptx("mbarrier.init.shared::cta.b64 [$0], $1;", "", "rr", memory=True)
announce = ptx("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "", "rr", memory=True)
phase_is_over = ptx("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; selp.b32 $0, 1, 0, p;}", "r", "rr", memory=True)
acquire_map = ptx("fence.proxy.tensormap::generic.acquire.sys [$0], 128;", "", "l", memory=True)
copy_box = ptx("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3, $4}], [$5];", "", "rlrrrr", memory=True)


@cuda.jit(device=True, forceinline=True)
def arrived(barrier, parity):
    """All threads wait until the bytes of this phase have come."""
    while phase_is_over(barrier, parity) == 0:
        pass
    cuda.syncwarp()


@cuda.jit(device=True, forceinline=True)
def copy_tile(to, tensor, column, row, item, height, width, size, barrier):
    """One thread sends for a tile of `height` rows of `width` bytes, in panels of 128 bytes; beyond the tensor there are zeros."""
    for panel in range(width // 128):
        copy_box(i4(to + panel * height * 128), tensor, i4(column + panel * (128 // size)), row, item, barrier)


def tensor_maps(planned, arrays, places, encode=driver.cuTensorMapEncodeTiled):
    """What TMA knows of tensors, 16 words of each.  A row of `planned` begins with the place of an array, columns, rows, and rows of a box,
    0 of what is not copied so; `places` are addresses on the GPU.  Raises ValueError for what the driver refuses."""
    names, maps = driver.CUtensorMapDataType, np.zeros_like(planned)
    for own, (place, columns, rows, height) in zip(maps, planned[:, :4].tolist()):
        if height:
            size, longs, shorts = arrays[place].dtype.itemsize, driver.cuuint64_t, driver.cuuint32_t
            lengths, apart = (columns, rows, arrays[place].size // (columns * rows)), (columns * size, columns * rows * size)
            wrong, made = encode(names.CU_TENSOR_MAP_DATA_TYPE_UINT8 if size == 1 else names.CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, places[place],
                                 [*map(longs, lengths)], [*map(longs, apart)], [*map(shorts, (128 // size, height, 1))], [*map(shorts, (1, 1, 1))],
                                 driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
                                 driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                 driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
            if int(wrong):
                raise ValueError(f"the driver makes no tensor map ({wrong!r}) of {lengths} numbers of {size} bytes at {places[place]:#x}")
            own[:] = [int(word) for word in made.opaque]
    return maps


def with_maps(flat, planned, stream=0):
    """The kernel's arguments on the GPU with maps in the place of the last, which stands for planned ones."""
    places = [each.__cuda_array_interface__["data"][0] if hasattr(each, "__cuda_array_interface__") else 0 for each in flat]
    return [*flat[:-1], cuda.to_device(tensor_maps(planned, flat, places).reshape(-1), stream)]
'''
