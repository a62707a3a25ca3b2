"""Instructions into steps: what each does to the registers of many threads at once.

A step is a function of (group, mask); mask None means every thread.  `TABLE` has one row per opcode or its beginning with some
forms, entered by `@instruction(...)` where its meaning is written; an opcode that nobody entered is an error that names it.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.ptx.text import NUMPY_TYPES, Instruction, Kernel, PtxError, elements

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group

Mask = np.ndarray | None
Step = Callable[["Group", Mask], None]
Read = Callable[["Group"], np.ndarray]
Write = Callable[["Group", Mask, np.ndarray], None]

TABLE: dict[str, Callable[[Instruction, "Decoder"], Step]] = {}

_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.[xyz]|%(laneid|warpid|dynamic_smem_size|total_smem_size)")


def instruction(*names: str) -> Callable:
    """Enter what decodes these opcodes; of "cp" and "cp.async.bulk" the longer one counts."""
    def enter(decode: Callable[[Instruction, Decoder], Step]) -> Callable:
        TABLE.update(dict.fromkeys(names, decode))
        return decode

    return enter


class Decoder:
    """Operands of one kernel.  `slots` are the (register, dtype) pairs that steps use; a group has an array for each."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.slots: dict[tuple[str, str], int] = {}

    def step(self, i: Instruction) -> Step:
        """What an instruction does, under its guard."""
        names = (".".join((i.name, *i.forms[:many])) for many in range(len(i.forms), -1, -1))
        decode = next((TABLE[name] for name in names if name in TABLE), None)
        if decode is None:
            raise PtxError(f"the instruction {i.text!r} is not known", f"enter {i.name} in redfuser_algebra.ptx")
        plain = decode(i, self)
        if not i.guard:
            return plain
        guard = self.guard(i)

        def guarded(g: Group, mask: Mask) -> None:
            taken = guard(g) if mask is None else mask & guard(g)
            if taken.any():
                plain(g, taken)

        return guarded

    def guard(self, i: Instruction) -> Read:
        """Where an instruction's guard lets it act."""
        slot = self.slot(i.guard, "?")
        return (lambda g: ~g.slots[slot]) if i.unless else (lambda g: g.slots[slot])

    def slot(self, register: str, dtype: str) -> int:
        """The place of a register seen as a dtype of its own width."""
        if register not in self.kernel.registers:
            raise PtxError(f"the register {register} is not declared", "look at the PTX")
        return self.slots.setdefault((register, dtype), len(self.slots))

    def width(self, operand: str) -> int:
        """Bytes of a register; 0 for what is none."""
        type_ = self.kernel.registers.get(operand)
        return 0 if type_ is None else np.dtype(NUMPY_TYPES[type_]).itemsize

    def read(self, operand: str, type_: str) -> Read:
        """The value of a register, special register, number or name as a type."""
        dtype = np.dtype(NUMPY_TYPES[type_])
        if operand.startswith(("-", "!")) and operand[1:2] == "%":
            inner = self.read(operand[1:], type_)
            return (lambda g: -inner(g)) if operand[0] == "-" else (lambda g: ~inner(g))
        if _SPECIAL.fullmatch(operand):
            name = operand[1:]
            return lambda g: g.special[name].astype(dtype)
        if operand in self.kernel.registers:
            return self._register(operand, dtype)
        if operand in self.kernel.arrays:
            return lambda g: dtype.type(g.machine.arrays[operand])
        value = self._constant(operand, type_, dtype)
        return lambda g: value

    def _register(self, operand: str, dtype: np.dtype) -> Read:
        width = self.width(operand)
        if dtype == "?" or width == dtype.itemsize:
            slot = self.slot(operand, dtype.str[-2:].strip("|"))
            return lambda g: g.slots[slot]
        narrow = f"u{dtype.itemsize}"
        whole = self.slot(operand, f"u{width}")
        return lambda g: g.slots[whole].astype(narrow).view(dtype)

    def _constant(self, operand: str, type_: str, dtype: np.dtype) -> np.generic:
        places = self.kernel.shared | self.kernel.local
        if operand in places:
            return dtype.type(places[operand])
        for prefix, bits in (("0f", "u4"), ("0d", "u8")):
            if re.fullmatch(rf"{prefix}[0-9a-f]{{{2 * int(bits[1])}}}", operand.lower()):
                value = np.array(int(operand[2:], 16), bits).view(f"f{bits[1]}")[()]
                return value if dtype.kind != "u" or dtype.itemsize != value.itemsize else value.view(dtype)
        if not re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", operand):
            raise PtxError(f"cannot read the operand {operand!r}", "look at the PTX")
        number = int(operand.rstrip("U"), 0)
        if type_ == "pred":
            return np.bool_(number != 0)
        unsigned = np.array(number % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}")
        return unsigned.view(dtype)[()] if dtype.kind in "iu" else dtype.type(number)

    def write(self, operand: str, type_: str) -> Write:
        """What gives a register a value; a wider one gets it extended by its sign or by zeros.  `_` takes anything."""
        if operand == "_":
            return lambda g, mask, value: None
        dtype = np.dtype(NUMPY_TYPES[type_])
        own = self._held(operand, dtype)
        bits = dtype.kind == "f" and own.kind != "f"
        slot = self.slot(operand, own.str[-2:].strip("|"))

        def put(g: Group, mask: Mask, value: np.ndarray) -> None:
            value = np.asarray(value, dtype).view(f"u{dtype.itemsize}") if bits else value
            if mask is None:
                g.slots[slot][:] = value
            else:
                np.copyto(g.slots[slot], value, casting="unsafe", where=mask)

        return put

    def _held(self, operand: str, dtype: np.dtype) -> np.dtype:
        """The dtype as which a register gets a value of a dtype: of its own width."""
        width = self.width(operand)
        return dtype if dtype.itemsize >= width or dtype == "?" else np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{width}")

    def place(self, operand: str, type_: str) -> int | None:
        """The slot that a value of a type can be computed right into; None where it has to be extended, or goes nowhere."""
        dtype = np.dtype(NUMPY_TYPES[type_])
        if operand == "_" or self._held(operand, dtype) != dtype:
            return None
        return self.slot(operand, dtype.str[-2:].strip("|"))

    def address(self, operand: str) -> Read:
        """The address in [base + offset], as 64-bit integers."""
        m = re.fullmatch(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
        if not m:
            raise PtxError(f"cannot read the address {operand!r}", "look at the PTX")
        offset = int(m[2] or "0", 0)
        if m[1] not in self.kernel.registers:
            fixed = self.read(m[1], "u64")
            return lambda g: np.full(g.count, np.int64(int(fixed(g)) + offset))
        if self.width(m[1]) == 8:
            whole = self.read(m[1], "s64")
            return (lambda g: whole(g) + offset) if offset else whole
        base = self.read(m[1], f"u{8 * self.width(m[1])}")
        return lambda g: base(g).astype(np.int64) + offset

    def vector(self, operand: str, type_: str) -> list[Read]:
        """What reads each element of {a, b, …}."""
        return [self.read(each, type_) for each in elements(operand)]

    def targets(self, operand: str, type_: str) -> list[Write]:
        """What writes each element of {a, b, …}."""
        return [self.write(each, type_) for each in elements(operand)]


def elementwise(i: Instruction, d: Decoder, function: Callable[..., np.ndarray], reads: Sequence[str] | str = "", writes: str = "") -> Step:
    """A step that computes its first operand from the others, thread by thread; types are the instruction's unless given."""
    sources, result = i.operands[1:], writes or i.type
    types = [reads or i.type] * len(sources) if isinstance(reads, str) else reads
    read = [d.read(operand, type_) for operand, type_ in zip(sources, types, strict=True)]
    place = d.place(i.operands[0], result) if hasattr(function, "nout") else None
    if place is not None:
        return _in_place(function, read, place)
    write = d.write(i.operands[0], result)

    def step(g: Group, mask: Mask) -> None:
        write(g, mask, function(*(each(g) for each in read)))

    return step


def _in_place(function: np.ufunc, read: Sequence[Read], place: int) -> Step:
    """A step that computes a function of NumPy's kind right into a register."""
    def step(g: Group, mask: Mask) -> None:
        if mask is None:
            function(*[each(g) for each in read], out=g.slots[place])
        else:
            np.copyto(g.slots[place], function(*[each(g) for each in read]), where=mask)

    return step


class Program:
    """A kernel decoded: for each basic block its steps, its end, what guards that, and how often it has each opcode; where each
    register lies in the bytes of a thread, and how many these are."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.decoder = kernel, Decoder(kernel)
        self.steps: list[list[Step]] = [[self.decoder.step(i) for i in block] for block in kernel.blocks]
        self.ends = [block[-1] for block in kernel.blocks]
        self.guards = [self.decoder.guard(end) if end.guard else None for end in self.ends]
        widths = {name: self.decoder.width(name) for name, _ in self.decoder.slots}
        self.places, self.bytes = _places(widths), sum(widths.values())
        self.opcodes = [Counter(".".join((i.name, *i.forms)) for i in block) for block in kernel.blocks]


def _places(widths: dict[str, int]) -> dict[str, int]:
    """Where registers of these widths begin in the bytes of a thread: the wide ones first, so that all are aligned."""
    ordered = sorted(widths, key=widths.__getitem__, reverse=True)
    return dict(zip(ordered, accumulate((widths[name] for name in ordered), initial=0), strict=False))
