"""Loads, stores, asynchronous copies and atomics."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.ptx.decode import Decoder, Mask, Step, instruction
from redfuser_algebra.ptx.memory import ALLOCATED, BASES, PENDING, WINDOWS, WRITTEN, Memory, SharedMemory, count_passes, count_sectors
from redfuser_algebra.ptx.text import NUMPY_TYPES, Instruction, PtxError

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group


def reached(g: Group, space: str, address: np.ndarray, mask: Mask) -> tuple[Memory, np.ndarray]:
    """The memory behind addresses of active threads, and offsets into it; for other threads an offset that is safe."""
    active = address if mask is None else address[mask]
    if space == "generic":
        windows = np.unique(active >> 40)
        if len(windows) != 1 or int(windows[0]) not in WINDOWS:
            raise PtxError("a generic address that lies in no state space, or threads that differ in it")
        space = WINDOWS[int(windows[0])]
        address = address - BASES[space] if space in ("shared", "local") else address
    window = g.windows[space]
    offsets = address + window.shift
    return window.memory, offsets if mask is None else np.where(mask, offsets, window.base)


def touch(g: Group, memory: Memory, offsets: np.ndarray, size: int, mask: Mask, stores: bool, what: str, kind: str = "") -> None:
    """Check an access of active threads, remember it, and count it."""
    active, window = g.every if mask is None else mask, g.windows[memory.space]
    memory.check(offsets, active, window.base, window.span, size, ALLOCATED if stores else ALLOCATED | WRITTEN, what, WRITTEN * stores)
    if isinstance(memory, SharedMemory) and g.mode.races:
        memory.note_access(offsets, active, size, g.warps, stores)
    if stores and isinstance(memory, SharedMemory) and memory.proxies:
        memory.proxies.written(offsets, active, size, g.warps)
    if g.mode.counts and (mask is None or mask.any()):
        traffic = g.counts.of(f"{memory.space} {kind or ('store' if stores else 'load')}")
        if memory.space == "shared":
            count_passes(traffic, offsets - window.base, active, size, g.lanes)
        elif memory.space == "global":
            count_sectors(traffic, offsets, active, size, g.lanes)
        else:
            traffic.bytes += int(active.sum()) * size


@instruction("ld", "ldu")
def load(i: Instruction, d: Decoder) -> Step:
    """ld.param reads an argument; other spaces are read element by element of the vector."""
    targets = d.targets(i.operands[0], i.type)
    if i.space == "param":
        name = i.operands[1].strip("[] ")
        value = d.read(_cell(name, d), i.type) if name.startswith("%") else lambda g: g.machine.arguments[name]
        return lambda g, mask: targets[0](g, mask, value(g))
    address, dtype, space = d.address(i.operands[1]), NUMPY_TYPES[i.type], i.space
    size, many = np.dtype(dtype).itemsize, len(targets)
    shift = (size * many).bit_length() - 1

    def step(g: Group, mask: Mask) -> None:
        memory, offsets = reached(g, space, address(g), mask)
        touch(g, memory, offsets, size * many, mask, False, "load")
        found = memory.view(dtype, many).take(offsets >> shift, 0)
        for place, write in enumerate(targets):
            write(g, mask, found[:, place])

    return step


def _cell(address: str, d: Decoder) -> str:
    """The register that stands for a place in the parameters of a function."""
    name, _, offset = address.replace(" ", "").partition("+")
    cell = f"{name}+{offset or 0}"
    d.kernel.registers.setdefault(cell, "b64")
    return cell


@instruction("st")
def store(i: Instruction, d: Decoder) -> Step:
    """Of two threads that store to one place, one wins; here the later one.  st.param hands a value to a function."""
    if i.space == "param":
        write, value = d.write(_cell(i.operands[0].strip("[] "), d), i.type), d.read(i.operands[1], i.type)
        return lambda g, mask: write(g, mask, value(g))
    address, dtype, space = d.address(i.operands[0]), NUMPY_TYPES[i.type], i.space
    sources, size = d.vector(i.operands[1], i.type), np.dtype(dtype).itemsize
    shift = (size * len(sources)).bit_length() - 1

    def step(g: Group, mask: Mask) -> None:
        memory, offsets = reached(g, space, address(g), mask)
        touch(g, memory, offsets, size * len(sources), mask, True, "store")
        active = slice(None) if mask is None else mask
        values, first = memory.view(dtype, len(sources)), offsets[active] >> shift
        for place, read in enumerate(sources):
            values[first, place] = np.broadcast_to(read(g), (g.count,))[active]

    return step


@instruction("cp")
def copy(i: Instruction, d: Decoder) -> Step:
    """cp.async: the data arrive as late as they may, which is at the wait for their group."""
    if "commit_group" in i.forms:
        return _commit
    if "wait_group" in i.forms or "wait_all" in i.forms:
        left = int(i.operands[0]) if i.operands else None
        return lambda g, mask: _wait(g, mask, left)
    to, source, size = d.address(i.operands[0]), d.address(i.operands[1]), int(i.operands[2])
    given = d.read(i.operands[3], "u32") if len(i.operands) > 3 else lambda g: np.int64(size)

    def step(g: Group, mask: Mask) -> None:
        every = g.every if mask is None else mask
        taken = np.broadcast_to(given(g), (g.count,))
        reads = every & (taken == size)
        if (every & ~reads & (taken != 0)).any():
            raise PtxError("cp.async of part of its bytes", "copy all of them, or none and let zeros be filled in")
        memory, offsets = reached(g, "global", source(g), reads)
        shared, places = reached(g, "shared", to(g), mask)
        touch(g, memory, offsets, size, reads, False, "asynchronous load", "async load")
        touch(g, shared, places, size, mask, True, "asynchronous store", "async store")
        data = memory.view("u1", size).take(offsets // size, 0)
        data[~reads] = 0
        _fill(shared, places[every], size, 0xFF, ALLOCATED | PENDING)
        g.pending.append((every.copy(), g.committed.copy(), places, data))

    return step


def _fill(memory: Memory, places: np.ndarray, size: int, data: np.ndarray | int, notes: int) -> None:
    """So many bytes at each place, which are aligned to that, become `data`, and their notes `notes`."""
    memory.view("u1", size)[places // size] = data
    memory.notes.reshape(-1, size)[places // size] = notes


def _commit(g: Group, mask: Mask) -> None:
    g.committed[slice(None) if mask is None else mask] += 1


def _wait(g: Group, mask: Mask, left: int | None) -> None:
    """Let copies of all but the last `left` groups arrive; of all of them if it is None."""
    still = []
    for open_, group, places, data in g.pending:
        done = open_.copy() if left is None else open_ & (group < g.committed - left)
        done = done if mask is None else done & mask
        _fill(g.machine.shared, places[done], data.shape[1], data[done], ALLOCATED | WRITTEN)
        if g.machine.shared.proxies:
            g.machine.shared.proxies.written(places, done, data.shape[1], g.warps)
        if (open_ & ~done).any():
            still.append((open_ & ~done, group, places, data))
    g.pending = still


_ATOMS = {"add": lambda old, a, b: old + a, "max": lambda old, a, b: max(old, a), "min": lambda old, a, b: min(old, a),
          "exch": lambda old, a, b: a, "or": lambda old, a, b: old | a, "and": lambda old, a, b: old & a,
          "inc": lambda old, a, b: 0 if old >= a else old + 1, "cas": lambda old, a, b: b if old == a else old}


@instruction("atom", "red")
def atomic(i: Instruction, d: Decoder) -> Step:
    """Read, combine and store, one thread after the other."""
    combine = next(_ATOMS[form] for form in i.forms if form in _ATOMS)
    rest = list(i.operands) if i.name == "red" else list(i.operands[1:])
    address, dtype, space = d.address(rest[0]), NUMPY_TYPES[i.type], i.space
    values = [d.read(each, i.type) for each in rest[1:]]
    write = None if i.name == "red" else d.write(i.operands[0], i.type)

    def step(g: Group, mask: Mask) -> None:
        memory, offsets = reached(g, space, address(g), mask)
        size = np.dtype(dtype).itemsize
        active = np.arange(g.count) if mask is None else np.flatnonzero(mask)
        memory.check(offsets, g.every if mask is None else mask, g.windows[memory.space].base, g.windows[memory.space].span, size, ALLOCATED | WRITTEN, "atomic access")
        given = [np.broadcast_to(read(g), (g.count,)) for read in values]
        view, old = memory.view(dtype), np.zeros(g.count, dtype)
        for lane in active:
            old[lane] = view[offsets[lane] // size]
            view[offsets[lane] // size] = combine(old[lane], given[0][lane], given[-1][lane])
        if write is not None:
            write(g, mask, old)

    return step
