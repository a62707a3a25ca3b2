"""PTX text into a kernel: parameters, registers, where arrays lie, and basic blocks of instructions.

In: what a compiler wrote.  Out: a Kernel.  The grammar is that of the PTX ISA, as far as compilers of Python kernels use it.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from redfuser_algebra.language.errors import RedfuserError

NUMPY_TYPES = {"u8": "u1", "s8": "i1", "b8": "u1", "u16": "u2", "s16": "i2", "b16": "u2", "f16": "f2", "bf16": "u2", "u32": "u4",
          "s32": "i4", "b32": "u4", "f32": "f4", "f16x2": "u4", "bf16x2": "u4", "u64": "u8", "s64": "i8", "b64": "u8", "f64": "f8",
          "e4m3": "u1", "e5m2": "u1", "e4m3x2": "u2", "e5m2x2": "u2", "pred": "?"}
"""PTX types → NumPy types that hold them; bfloat16 and floats of eight bits are kept as their bits."""

ENDS = frozenset(("bra", "ret", "exit", "bar", "barrier"))
"""Instructions that end a basic block."""


class PtxError(RedfuserError):
    """A kernel that cannot be read, or that does what no kernel may do."""

    def __init__(self, wrong: str, remedy: str = "this is a fault of the kernel") -> None:
        super().__init__("executing PTX", wrong, remedy)


@dataclass(frozen=True)
class Instruction:
    """`@guard name.forms operands`; with `unless` the guard must be false."""

    name: str
    forms: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str
    unless: bool
    text: str

    @property
    def types(self) -> tuple[str, ...]:
        """The types among the forms."""
        return tuple(form for form in self.forms if form in NUMPY_TYPES)

    @property
    def type(self) -> str:
        """The last type among the forms: that of the operands."""
        return self.types[-1]

    @property
    def width(self) -> int:
        """How many elements a vector instruction moves."""
        return next((int(form[1]) for form in self.forms if re.fullmatch(r"v[248]", form)), 1)

    @property
    def space(self) -> str:
        """The state space of a memory access."""
        spaces = (form.partition("::")[0] for form in self.forms)
        return next((space for space in spaces if space in ("global", "shared", "local", "const", "param")), "generic")


@dataclass
class Kernel:
    """One entry of a module.  `arrays` are initialised module-level arrays, `shared` and `local` offsets of names."""

    name: str = ""
    version: str = ""
    target: str = ""
    parameters: list[tuple[str, str]] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, bytes] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    local: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    local_bytes: int = 0
    blocks: list[list[Instruction]] = field(default_factory=lambda: [[]])
    labels: dict[str, int] = field(default_factory=dict)


def uncommented(ptx: str) -> str:
    """The text without comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)


def parse(text: str) -> Kernel:
    """The first entry of a module without comments and calls.  Raises PtxError for text that has none."""
    entry = re.search(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{;]*)\{", text, re.DOTALL)
    if not entry:
        raise PtxError("the text has no kernel entry", "give it the PTX of a kernel")
    kernel = Kernel(entry[1], *(re.search(rf"\.{word}\s+([\w.]+)", text)[1] for word in ("version", "target")))
    kernel.parameters = [(m[2], m[1]) for m in re.finditer(r"\.param\s+\.(\w+)\s+[^,]*?([\w$]+)\s*(?:,|$)", entry[2].strip())]
    _place_shared(kernel, text)
    for m in re.finditer(r"\.(?:global|const)\s+\.align\s+\d+\s+\.(\w+)\s+([\w$]+)\[\d+\]\s*=\s*\{([^}]*)\}", text):
        size = int(re.search(r"\d+", m[1])[0]) // 8
        kernel.arrays[m[2]] = b"".join(int(v, 0).to_bytes(size, "little") for v in m[3].split(","))
    _read_body(kernel, braced(text, entry.end()))
    return kernel


def _place_shared(kernel: Kernel, text: str) -> None:
    dynamic = []
    for m in re.finditer(r"\.shared\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)(\[\d*\])?\s*;", text):
        count = m[4].strip("[]") if m[4] else "1"
        if not count:
            dynamic.append(m[3])
            continue
        kernel.shared[m[3]] = start = _aligned(kernel.shared_bytes, int(m[1]))
        kernel.shared_bytes = start + int(count) * np.dtype(NUMPY_TYPES[m[2]]).itemsize
    kernel.shared_bytes = _aligned(kernel.shared_bytes, 16)
    kernel.shared |= dict.fromkeys(dynamic, kernel.shared_bytes)


def _aligned(place: int, to: int) -> int:
    return -(-place // to) * to


def braced(text: str, start: int) -> str:
    """What stands before the brace that closes the one just before `start`."""
    depth, place = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        place += 1
    return text[start:place - 1]


_STATEMENT = re.compile(r"\s*(?:(?P<brace>[{}])|(?P<label>[$%\w]+):(?!:)|(?P<line>(?:[^;{}]|\{[^{};]*\})+);)", re.DOTALL)


def _read_body(kernel: Kernel, body: str) -> None:
    """Fill registers, local arrays and blocks; names that a scope declares are made its own."""
    scopes: list[dict[str, str]] = []
    opened = 0
    for m in _STATEMENT.finditer(body):
        if m["brace"] == "{":
            scopes.append({})
            opened += 1
        elif m["brace"]:
            scopes.pop()
        elif m["label"]:
            if kernel.blocks[-1]:
                kernel.blocks.append([])
            kernel.labels[m["label"]] = len(kernel.blocks) - 1
        else:
            line = " ".join(m["line"].split())
            if line.startswith(".param"):
                name = re.search(r"([\w$]+)(?:\[\d+\])?$", line)[1]
                scopes[-1][name] = f"%scope{opened}_{name}"
            elif line.startswith(".reg"):
                _declare(kernel, line, scopes, opened)
            elif line.startswith(".local"):
                _place_local(kernel, line)
            elif not line.startswith("."):
                _append(kernel, read_instruction(_renamed(line, scopes)))
    if not kernel.blocks[-1]:
        kernel.blocks[-1].append(read_instruction("ret"))


def _declare(kernel: Kernel, line: str, scopes: list[dict[str, str]], opened: int) -> None:
    _, type_, names = line.split(None, 2)
    for name in map(str.strip, names.split(",")):
        many = re.fullmatch(r"(%?\w+)<(\d+)>", name)
        if many:
            kernel.registers |= {f"{many[1]}{n}": type_[1:] for n in range(int(many[2]))}
        elif scopes:
            scopes[-1][name] = f"%scope{opened}_{name.strip('%')}"
            kernel.registers[scopes[-1][name]] = type_[1:]
        else:
            kernel.registers[name] = type_[1:]


def _renamed(line: str, scopes: list[dict[str, str]]) -> str:
    for scope in reversed(scopes):
        for name, own in scope.items():
            line = re.sub(rf"(?<![\w%$.]){re.escape(name)}(?!\w)", own, line)
    return line


def _place_local(kernel: Kernel, line: str) -> None:
    m = re.search(r"\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]", line)
    kernel.local[m[2]] = start = _aligned(kernel.local_bytes, int(m[1]))
    kernel.local_bytes = _aligned(start + int(m[3]), 16)


def _append(kernel: Kernel, instruction: Instruction) -> None:
    kernel.blocks[-1].append(instruction)
    if instruction.name in ENDS:
        kernel.blocks.append([])


def read_instruction(line: str) -> Instruction:
    """An instruction from a line without its semicolon."""
    m = re.match(r"(?:@(!?)(%?[\w$]+)\s+)?([\w.:]+)\s*(.*)$", line, re.DOTALL)
    if not m:
        raise PtxError(f"cannot read {line!r}", "look at the PTX")
    name, *forms = m[3].split(".")
    return Instruction(name, tuple(forms), tuple(operands(m[4])), m[2] or "", m[1] == "!", line)


def operands(text: str) -> Iterator[str]:
    """The parts between commas that no bracket encloses."""
    for m in re.finditer(r"\s*((?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{\[(])+)\s*(?:,|$)", text):
        yield m[1].strip()


def elements(operand: str) -> list[str]:
    """The elements of a vector operand; one of a plain one."""
    return list(operands(operand[1:-1])) if operand.startswith("{") else [operand]
