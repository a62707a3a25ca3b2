"""Small PTX kernels written by hand: one instruction for every thread, or a body between a prologue and `ret`."""

import numpy as np

from redfuser_algebra.ptx.machine import Machine, Mode, read_kernel
from redfuser_algebra.ptx.memory import GlobalMemory
from redfuser_algebra.ptx.text import NUMPY_TYPES

HEAD = """
.version 9.0
.target sm_80
.address_size 64
{module}
.visible .entry kernel({params})
{{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<32>; .reg .f32 %f<16>; .reg .b64 %rd<32>; .reg .f64 %fd<8>;
mov.u32 %r0, %tid.x;
cvt.u64.u32 %rd0, %r0;
{body}
ret;
}}
"""


def run(body, arrays=(), out=None, *, threads=32, blocks=1, module="", mode=None, dynamic=0, shifts=()):
    """What the kernel writes to `out` and its counts; parameters are a0, a1, … for arrays, then `out`."""
    memory = GlobalMemory(1 << 16)
    addresses = [memory.place(array, shift=shift) for array, shift in zip(arrays, (*shifts, *[0] * len(arrays)), strict=False)]
    out = np.zeros(threads * blocks, np.uint32) if out is None else out
    addresses.append(memory.place(out, written=False))
    names = [f"a{n}" for n in range(len(arrays))] + ["out"]
    text = HEAD.format(params=", ".join(f".param .u64 {name}" for name in names), body=body, module=module)
    counts = Machine(read_kernel(text), memory, addresses, mode or Mode()).launch((blocks, 1, 1), (threads, 1, 1), dynamic)
    return memory.array(addresses[-1], out.shape, out.dtype), counts


def each(instruction, operands, types, result):
    """Apply an instruction written with $0 (result), $1, $2, … to arrays, one element per thread."""
    lines, names = [], []
    for place, type_ in enumerate([result, *types]):
        kind = "pred" if type_ == "pred" else f"b{8 * np.dtype(NUMPY_TYPES[type_]).itemsize}"
        lines.append(f".reg .{kind} %x{place};")
        names.append(f"%x{place}")
    for place, (array, type_) in enumerate(zip(operands, types, strict=True)):
        size = np.dtype(NUMPY_TYPES[type_]).itemsize
        lines += [f"ld.param.u64 %rd1, [a{place}];", f"mad.lo.s64 %rd2, %rd0, {size}, %rd1;", f"ld.global.b{8 * size} {names[place + 1]}, [%rd2];"]
    written = instruction
    for place, name in enumerate(names):
        written = written.replace(f"${place}", name)
    if result == "pred":
        lines += [f"{written};", "selp.u32 %r1, 1, 0, %x0;"]
    dtype = "u4" if result == "pred" else NUMPY_TYPES[result]
    size, value = np.dtype(dtype).itemsize, "%r1" if result == "pred" else "%x0"
    lines += [] if result == "pred" else [f"{written};"]
    lines += ["ld.param.u64 %rd1, [out];", f"mad.lo.s64 %rd2, %rd0, {size}, %rd1;", f"st.global.b{8 * size} [%rd2], {value};"]
    count = -(-len(operands[0]) // 32) * 32
    padded = [np.resize(array, count) for array in operands]
    return run("\n".join(lines), padded, np.zeros(count, dtype), threads=count)[0][: len(operands[0])]
