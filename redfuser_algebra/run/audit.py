"""What can be known of a CUDA kernel without a GPU: that it compiles, that its PTX computes the operator, what it moves.

In: a CudaKernel.  Out: an Audit, which says of each check whether it passed, prints, and is plain data for JSON.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.floats import FLOAT_FORMATS
from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.html import Fragment, Picture, joined, preformatted
from redfuser_algebra.lower.float8 import FORMATS
from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16, to_bfloat16
from redfuser_algebra.lower.standalone.checking import distance, drawn, parts
from redfuser_algebra.lower.standalone.float8 import from_float8, to_float8
from redfuser_algebra.ptx.accesses import SECTOR
from redfuser_algebra.ptx.cards import CARDS, SPECIAL, Estimate, Occupancy, card_named, estimate, occupancy
from redfuser_algebra.ptx.compile import CompileError, toolchain_missing
from redfuser_algebra.ptx.execute import Executed
from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.ptx.text import PtxError
from redfuser_algebra.run.audit_picture import pictured
from redfuser_algebra.run.conditioning import error_bounds
from redfuser_algebra.run.export import STORED_ROUNDING, draws, error_limit
from redfuser_algebra.run.settled import settled

if TYPE_CHECKING:
    from redfuser_algebra.run.cuda import CudaKernel

LENGTHS = (1, 3, 31, 255, 1000, 8191, 8192)
"""Lengths of the reduced axis."""

PAIRS = ((1, 1), (33, 33), (64, 64), (127, 200), (190, 290))
"""Rows that come in blocks, and lengths, where matrices are multiplied in tiles."""

ARCHITECTURES = ("sm_80", "sm_90a")
CARD = "H100"
BATCH, ROWS, COLUMNS = 2, 3, 3
"""Lengths of the batch, of axes of rows, and of the other axes in executed cases."""

BLOCK, WIDE = 33, 64
"""The same of the rows that come in blocks, and of the other axes, where matrices are multiplied in tiles."""

QUICK, FULL = "quick", "full"
SIZES = {QUICK: (LENGTHS, ((1, 1), (33, 33), (127, 200))), FULL: (LENGTHS, (*PAIRS, (1, LENGTHS[-2])))}
"""What is executed, of kernels of rows and of kernels of tiles: of these also one row so long that blocks share it."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""How an array of a shape is drawn."""

Size = int | tuple[int, int]
"""A length of the reduced axis, or how many rows come in blocks and that length."""

MOST_TRAFFIC, MOST_CONFLICTS = 1.02, 1.05
RESOURCES = {"memory": "memory", "tensor": "tensor cores", "issue": "issue", "single": "float32", "double": "float64", "special": "special functions"}
"""What can bind, in words."""
TINY = 1e-30
"""What a value is taken to be at least; see `checking.distance`."""

WGMMA = "products by wgmma and copies by TMA: compiled for sm_90a and executed on the CPU; no GPU has run them yet"
EIGHT = {True: "products of floats of eight bits are compiled for sm_89 and later and executed on the CPU, with exact sums; no GPU has run them yet",
         False: "floats of eight bits are widened on their way in"}
UNTOLD = "evaluated as written, the operator leaves the range even of NumPy's widest numbers"
FEW = 2048
"""Lengths below which a sector that two rows share counts for too much to say anything about traffic."""


@dataclass(frozen=True)
class Binary:
    """How a kernel compiled for an architecture, and how much of it a multiprocessor of the card has at once."""

    architecture: str
    threads: int
    registers: int
    spilled: int
    stack: int
    shared: int
    instructions: int
    fits: Occupancy

    @property
    def occupancy(self) -> float:
        """The part of a multiprocessor's warps that can be there at once."""
        return self.fits.part

    @property
    def faults(self) -> list[str]:
        """What is wrong: something spilled, an array in local memory, no block fits."""
        local = [f"{count} B {words}" for count, words in ((self.spilled, "spilled"), (self.stack, "of stack")) if count]
        return [*local, *(["no block fits"] if self.occupancy <= 0 else [])]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


@dataclass(frozen=True)
class Case:
    """One execution: its error as `error_of` tells it and the limit, or what went wrong.

    `traffic` and `conflicts` are over the ideal; 0 where they were not counted.  `rows` came in blocks.  Outputs are not `compared`
    where the operator as written does not tell what they are; see `settled`.
    """

    length: int
    mode: str
    error: float
    limit: float
    traffic: float
    conflicts: float
    fault: str
    rows: int = 0
    compared: bool = True

    @property
    def size(self) -> str:
        """The rows that came in blocks, if any did, and the length."""
        return f"{self.rows} × {self.length}" if self.rows else f"{self.length}"

    @property
    def faults(self) -> list[str]:
        """What is wrong: a fault, an error beyond the limit, or waste."""
        wrong = [self.fault] if self.fault else [] if self.error <= self.limit else [f"error {self.error:.1e}, limit {self.limit:.0e}"]
        traffic = [f"{self.traffic:.3f} of the ideal bytes"] if self.length >= FEW and self.traffic > MOST_TRAFFIC else []
        return [*wrong, *traffic, *([f"{self.conflicts:.2f} of the least passes over the banks"] if self.conflicts > MOST_CONFLICTS else [])]

    @property
    def passed(self) -> bool:
        """Right, and without waste."""
        return not self.faults


@dataclass(frozen=True)
class Work:
    """What the longest case did: bytes that it loaded and stored, in how many sectors of 32 bytes, the bytes of all arrays
    once, instructions of warps, and how many of them were for tensor cores and for special functions."""

    loaded: int
    stored: int
    sectors: int
    ideal: int
    instructions: int
    tensor: int
    special: int


@dataclass(frozen=True)
class Audit:
    """All that was found.  `estimate` says how long the longest case takes at least on `card`, per resource; `work` what it did.

    `fault` says why there is nothing else: the kernel does not compile.
    """

    operator: str
    dtype: str
    card: str
    binaries: tuple[Binary, ...]
    cases: tuple[Case, ...]
    work: Work | None
    estimate: Estimate | None
    note: str = ""
    fault: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check passed, and some results were compared."""
        return not self.fault and all(each.passed for each in (*self.binaries, *self.cases)) and any(each.compared for each in self.cases)

    @property
    def not_compared(self) -> list[str]:
        """The sizes at which results were not."""
        return list(dict.fromkeys(each.size for each in self.cases if not each.compared))

    def to_json(self) -> dict:
        """Plain data."""
        bound = {"bound": self.estimate.bound, "time": self.estimate.time, "roofline": self.estimate.roofline} if self.estimate else {}
        return asdict(self) | bound | {"passed": self.passed}

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    @property
    def picture(self) -> Picture:
        """The roofline of the card with the longest case on it, and how full a multiprocessor is, as SVG."""
        places = [(f"{b.architecture}, {b.threads} threads", {"warps": b.fits.by_warps, "registers": b.fits.by_registers, "shared memory": b.fits.by_shared},
                   b.occupancy) for b in self.binaries]
        return pictured(f"{self.operator} ({self.dtype}) on {self.card}, estimated", CARDS[self.card], self.estimate, places)

    def _repr_html_(self) -> str:
        return joined(preformatted(self), Fragment(self.picture._repr_html_()))


def audited(kernel: CudaKernel, sizes: str | Sequence[Size] = QUICK, card: str = CARD, seed: int = 0,
            progress: Callable[[int, int], None] | None = None, drawn_by: Mapping[str, Draw] | None = None) -> Audit:
    """Compile for the architectures and execute every size on the CPU, with arrays as `drawn_by` says, or else `draws`.

    A kernel that does not compile has failed.  Raises OperatorError for an unknown card or name of sizes and for a size that the
    kernel does not take, CompileError without a toolchain.
    """
    asked = sizes_of(kernel, sizes) if isinstance(sizes, str) else tuple(sizes)
    try:
        return _examined(kernel, asked, card, seed, progress, draws(kernel.operator) | (drawn_by or {}))
    except CompileError as error:
        if toolchain_missing():
            raise
        return Audit(kernel.operator.name, kernel.dtype, card, (), (), None, None, _note(kernel), f"{error.asked}: {' '.join(error.failed.split())}")


def _examined(kernel: CudaKernel, asked: Sequence[Size], card: str, seed: int, progress: Callable[[int, int], None] | None,
              kinds: Mapping[str, str | Draw]) -> Audit:
    on, architectures = card_named(card), _architectures(kernel)
    steps, done = (2 + len(architectures)) * len(asked), 0
    cases, binaries, last = [], [], None
    for size in asked:
        binding = case(kernel, kinds, size, seed)
        right = cache(partial(settled, kernel.operator, binding))
        for name, mode in (("in step", Mode(seed=seed)), ("random warps", Mode(together=False, rough=True, counts=False, seed=seed))):
            if name == "in step" or rows_and_length(size)[1] < FEW:
                found, ran = _executed(kernel, binding, right, size, name, mode)
                cases.append(found)
                last = (binding, ran) if ran else last
            done = _told(progress, done + 1, steps)
        for architecture in architectures:
            binaries += [Binary(architecture, threads, binary.registers, binary.spilled, binary.stack, binary.shared, binary.instructions,
                                occupancy(on, binary.registers, binary.shared, threads))
                         for binary, _, threads in kernel.file.binaries(kernel.given(binding), architecture)]
            done = _told(progress, done + 1, steps)
    work = None if last is None else _work(last[0], last[1], kernel)
    spent = None if work is None else estimate(on, SECTOR * work.sectors, last[1].counts.warps)
    return Audit(kernel.operator.name, kernel.dtype, card, tuple(dict.fromkeys(binaries)), tuple(cases), work, spent, _note(kernel))


def sizes_of(kernel: CudaKernel, name: str) -> tuple[Size, ...]:
    """The sizes of a name at which there are as many elements as the operator's top-k take.  Raises OperatorError for an
    unknown one, and where none are left."""
    if name not in SIZES:
        raise OperatorError(f"auditing {kernel.operator.name} at {name!r} sizes", "there are none of that name",
                            f"choose one of {', '.join(SIZES)}, or list lengths")
    scalars, counts = _scalars(kernel), [u.count for u in kernel.program.updates if u.count is not None]
    shortest = max((int(scalars[k.name] if k.op == "param" else k.value) for k in counts), default=1)
    found = tuple(size for size in SIZES[name][kernel.printed.tiles] if rows_and_length(size)[1] >= shortest)
    if not found:
        raise OperatorError(f"auditing {kernel.operator.name} at {name!r} sizes", f"it takes the {shortest} largest, and all are shorter", "list longer ones")
    return found


def _scalars(kernel: CudaKernel) -> dict[str, object]:
    """The values of parameters in executed cases: their defaults, where they have any."""
    return {name: (3 if name in kernel.program.chosen else 1.0) if value is None else value for name, value in kernel.operator.params.items()}


def _told(progress: Callable[[int, int], None] | None, done: int, steps: int) -> int:
    if progress:
        progress(done, steps)
    return done


def rows_and_length(size: Size) -> tuple[int, int]:
    """The rows that come in blocks, 0 where a size does not say how many, and the length of the reduced axis."""
    return (0, size) if isinstance(size, int) else size


def _note(kernel: CudaKernel) -> str:
    """What no GPU has run."""
    float8 = kernel.printed.float8
    named = ", ".join(f"{name} in {own}" for name, own in float8.formats.items())
    return WGMMA if kernel.printed.wgmma else f"{named}: {EIGHT[float8.native]}" if named else ""


def _architectures(kernel: CudaKernel) -> tuple[str, ...]:
    """What a kernel is compiled for: its own architecture, and those of others that have its instructions."""
    printed = kernel.printed
    least = () if printed.wgmma else ("sm_89", "sm_90a") if printed.float8.native else ARCHITECTURES
    return tuple(dict.fromkeys((*least, kernel.architecture)))


def _work(binding: Binding, ran: Executed, kernel: CudaKernel) -> Work:
    traffic, warps = ran.counts.traffic, ran.counts.warps
    stored = sum(t.bytes for kind, t in traffic.items() if kind == "global store")
    asked = sum(t.bytes for kind, t in traffic.items() if kind.startswith("global"))
    tensor, special = (sum(count for opcode, count in warps.items() if opcode.partition(".")[0] in names) for names in (("mma", "wgmma"), SPECIAL))
    return Work(asked - stored, stored, sum(t.moved for kind, t in traffic.items() if kind.startswith("global")) // SECTOR,
                _ideal(kernel, binding, ran), sum(warps.values()), tensor, special)


def case(kernel: CudaKernel, kinds: Mapping[str, str | Draw], size: Size, seed: int) -> Binding:
    """Arrays of the kernel's dtypes of a size, each of a kind that `draws` names or as its Draw draws one row of the batch."""
    asked, length = rows_and_length(size)
    operator, axis, rng = kernel.operator, kernel.program.axis, np.random.default_rng((seed, length))
    rows, columns = (asked or BLOCK, WIDE) if kernel.printed.tiles else (ROWS, COLUMNS)
    sizes = {a: length if a == axis else rows if a == kernel.program.block else ROWS if a in kernel.program.rows else columns for a in operator.axes}
    arrays = {}
    for name, axes in operator.inputs.items():
        values = _drawn(rng, kinds[name], (BATCH,) if axis in axes else (), tuple(sizes[a] for a in axes), length)
        real = kernel.signature.arrays[name] in ("f4", "f8")
        arrays[name] = _representable(values, kernel.format(name)) if real else values.astype(np.int64)
    return operator.bind(**arrays, **_scalars(kernel))


def _drawn(rng: np.random.Generator, kind: str | Draw, batch: tuple[int, ...], shape: tuple[int, ...], length: int) -> np.ndarray:
    if isinstance(kind, str):
        return drawn(rng, kind, (*batch, *shape), length)
    return np.reshape([kind(rng, shape) for _ in range(math.prod(batch))], (*batch, *shape))


def _representable(values: np.ndarray, dtype: str) -> np.ndarray:
    """The nearest numbers of a dtype, in float64."""
    if dtype in FORMATS:
        return from_float8(to_float8(values, dtype), dtype).astype(np.float64)
    if dtype == "bfloat16":
        return from_bfloat16(to_bfloat16(values.astype(np.float32))).astype(np.float64)
    return values.astype(dtype).astype(np.float64)


def _executed(kernel: CudaKernel, binding: Binding, right: Callable[[], list[np.ndarray] | None], size: Size, name: str,
              mode: Mode) -> tuple[Case, Executed | None]:
    limit, (rows, length) = limit_of(kernel), rows_and_length(size)
    try:
        ran = kernel.file.run(kernel.given(binding), kernel.architecture, mode)
    except PtxError as error:
        return Case(length, name, float("inf"), limit, 0.0, 0.0, error.failed, rows), None
    except ValueError as error:
        raise OperatorError(f"auditing {kernel.operator.name} at length {length}", str(error), "list other lengths, or take another default") from error
    waste = _waste(kernel, binding, ran) if mode.counts else (0.0, 0.0)
    told = right()
    error = 0.0 if told is None else error_of(kernel, binding, ran.outputs, told)
    return Case(length, name, error, limit, *waste, "", rows, told is not None), ran if mode.counts else None


def limit_of(kernel: CudaKernel) -> float:
    """The largest error of a right kernel."""
    return error_limit(kernel.operator, kernel.signature.real) + STORED_ROUNDING[kernel.dtype]


def error_of(kernel: CudaKernel, binding: Binding, outputs: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> float:
    """How far outputs are from the right ones, in units of the largest value.

    Where rounding its inputs could move all of a value even in float64, nothing but rounding is left of it on either side, as
    of a single body's moment of inertia.  Then the limit stands for how far rounding can move it in the kernel's numbers.
    What lies beyond their range, as a product of thousands may, has to be infinite, and what is less than their least normal number
    the nearest that there is, which may be 0.
    """
    with np.errstate(all="ignore"):
        got = kernel.delivered(outputs)
        wanted = [_within_range(value, kernel.dtype) if own.dtype.kind == "f" else value for own, value in zip(got, right, strict=True)]
        error, limit = distance(tuple(got), tuple(wanted)), limit_of(kernel)
        if limit < error < np.inf:
            double, own = (parts(error_bounds(kernel.operator, binding, 0.0, given=np.finfo(type_).eps / 2)) for type_ in ("f8", kernel.signature.real))
            units = [_size(moved) / limit if _size(least) > _size(value) else _size(value) for value, least, moved in zip(wanted, double, own, strict=True)]
            error = max(distance((a,), (b,)) * max(_size(b), TINY) / max(unit, TINY) for a, b, unit in zip(got, wanted, units, strict=True))
    return float(error)


def _within_range(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values as they are, but the nearest numbers of a dtype where that is infinite, or has fewer digits than others."""
    nearest = _representable(values, dtype)
    least = 2.0 ** FLOAT_FORMATS[dtype].smallest_exponent if dtype in FLOAT_FORMATS else np.finfo(dtype).smallest_normal
    return np.where(np.isinf(nearest) | (np.abs(values) < least), nearest, values)


def _size(values: np.ndarray) -> float:
    """The largest that is finite."""
    return np.abs(values[np.isfinite(values)]).max(initial=0.0)


def _waste(kernel: CudaKernel, binding: Binding, ran: Executed) -> tuple[float, float]:
    """Bytes in sectors over the bytes of all arrays once; passes over the banks of shared memory over the least."""
    traffic, ideal = ran.counts.traffic, _ideal(kernel, binding, ran)
    moved = sum(t.moved for kind, t in traffic.items() if kind.startswith("global"))
    passes, least = (sum(getattr(t, field) for kind, t in traffic.items() if kind.startswith("shared")) for field in ("moved", "least"))
    return moved / ideal, passes / least if least else 1.0


def _ideal(kernel: CudaKernel, binding: Binding, ran: Executed) -> int:
    """The bytes of all arrays once."""
    given = [each for each in kernel.given(binding) if isinstance(each, np.ndarray)]
    return sum(array.nbytes for array in (*given, *ran.outputs))


def _lines(audit: Audit) -> list[str]:
    lines = [f"{audit.operator} ({audit.dtype}): {'passed' if audit.passed else 'FAILED'}, without a GPU"]
    lines += [f"  {line}" for line in (audit.note, audit.fault) if line]
    lines += [f"  not compared at length {', '.join(audit.not_compared)}: {UNTOLD}"] if audit.not_compared else []
    for b in audit.binaries:
        lines.append(f"  {b.architecture}: {b.registers} registers, {b.spilled} B spilled, {b.stack} B of stack, {b.shared} B shared, "
                     f"{b.instructions} instructions, {b.threads} threads per block, "
                     f"{b.occupancy:.0%} of the warps of one {audit.card} processor (limit: {b.fits.limit})")
    for c in audit.cases:
        counted = f", {c.traffic:.3f} of the ideal bytes, {c.conflicts:.2f} of the least passes over the banks" if c.traffic else ""
        told = c.fault or (f"error {c.error:.1e} of the largest value (limit {c.limit:.0e})" if c.compared else "not compared") + counted
        lines.append(f"  {'rows × length' if c.rows else 'length'} {c.size}, {c.mode}: {'ok' if c.passed else 'FAILED'}: {told}")
    if audit.work and audit.estimate:
        w, e = audit.work, audit.estimate
        lines.append(f"  longest case: {w.loaded:,} bytes loaded, {w.stored:,} stored, in {w.sectors:,} sectors; all arrays once are {w.ideal:,}")
        lines.append(f"  {w.instructions:,} instructions of warps, {w.tensor:,} for tensor cores, {w.special:,} for special functions")
        times = ", ".join(f"{getattr(e, name):.3f} of {said}" for name, said in RESOURCES.items())
        lines.append(f"  {audit.card}, estimated: at least {times} (µs); "
                     f"bound by {RESOURCES[e.bound]}, {e.roofline:.0%} of the roofline ({CARDS[audit.card].source})")
    return lines
