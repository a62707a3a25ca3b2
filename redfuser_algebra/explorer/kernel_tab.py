"""The kernel: source with the lines that rebase and guard, traffic, schedules; run here, compared, and written to a file.

In: a fused operator, a target, a dtype, a schedule or an architecture, lengths.  Out: a kernel, marked lines, pictures,
figures; of a kernel for GPUs what can be found out without one.
"""
from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path

import ipywidgets as widgets
import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.cascade_tab import as_fused, as_written, loads
from redfuser_algebra.explorer.pictures import KEPT, MOVED, picture, short
from redfuser_algebra.explorer.session import Session
from redfuser_algebra.explorer.work import Told, Work
from redfuser_algebra.language.html import Fragment, Picture, element, highlighted, preformatted, table, titled
from redfuser_algebra.language.errors import RedfuserError
from redfuser_algebra.lower.cost import estimate, work_of
from redfuser_algebra.lower.schedule import Schedule, candidates
from redfuser_algebra.lower.standalone.checking import parts
from redfuser_algebra.ptx.compile import ARCHITECTURES
from redfuser_algebra.run.audit import WGMMA
from redfuser_algebra.run.cpu import machine
from redfuser_algebra.run.cuda import CudaKernel
from redfuser_algebra.run.kernel import Kernel
from redfuser_algebra.run.tune import arrays_for

LENGTH, OTHER = 8192, 64
WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
OFFERED = {"cpu": ("float32", "float64"), "cuda": ("float32", "float16", "bfloat16", "float64")}
AUDITED = (3, 1000)
"""Lengths at which a kernel for GPUs is executed on the CPU."""
MARKED = re.compile(r"\brebase_|finite\(|== (f4\()?0\.0\)? else|\banchor|\btimes\(|\brescale")
ARITHMETIC = ("def apart(", "def middle(", "def _finite(", "def finite(", "def anchored(", "def times(")
"""Functions of every kernel that sums in float32, whatever the operator: they guard nothing of its own."""
MOST_SCHEDULES, RUNS = 8, 3
CHOSEN = ("chosen by the sizes of each call", "")
"""No schedule of one's own; its value is not None, which a list of choices shows as nothing at all."""
WARPGROUPS = Schedule(1, wgmma=True)


def marked_lines(source: str) -> set[int]:
    """The lines, counted from 1, that move a state to new pivots, or guard where floats and reals part."""
    lines, inside, general, found = source.split("\n"), False, False, set()
    for number, line in enumerate(lines, 1):
        if line and not line[0].isspace():
            inside, general = line.startswith("def rebase_"), line.startswith(ARITHMETIC)
        if (inside or MARKED.search(line) and not general) and line.strip():
            found.add(number)
    return found


def usual_lengths(operator: ra.Operator, axis: str, length: int) -> dict[str, int]:
    """The chosen length for the reduced axis, and 64 for all others."""
    return {each: length if each == axis else OTHER for each in operator.axes}


def traffic(verdict: ra.Verdict, lengths: Mapping[str, int], width: int) -> dict[str, tuple[int, int]]:
    """Bytes loaded of each input: by a sweep per reduction, and fused."""
    found = next(each for each in verdict.discoveries if each.form is verdict.fused.form)
    before, after, inputs = loads(as_written(found)), loads(as_fused(found)), verdict.operator.inputs
    sizes = {name: width * prod(lengths[axis] for axis in inputs[name]) for name in before if name in inputs}
    return {name: (size * before[name], size * after.get(name, 0)) for name, size in sizes.items()}


def traffic_picture(moved: Mapping[str, tuple[int, int]]) -> Picture:
    """Megabytes loaded of each input, as written and fused."""
    with picture("Bytes loaded of each input as written and fused", 6.5, 0.9 + 0.45 * len(moved)) as drawing:
        axes, places = drawing.axes, np.arange(len(moved))
        for offset, at, colour, label in ((-0.2, 0, MOVED, "as written"), (0.2, 1, KEPT, "fused")):
            axes.barh(places + offset, [each[at] / 1e6 for each in moved.values()], 0.36, color=colour, label=label)
        axes.set_yticks(places, list(moved))
        axes.invert_yaxis()
        axes.set_xlabel("MB loaded")
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return drawing.svg


def schedules(kernel: Kernel, lengths: Mapping[str, int]) -> list[tuple[Schedule, float]]:
    """Legal schedules and the seconds that the cost model expects of them, the fastest first."""
    width = 4 if kernel.signature.real == "f4" else 8
    here = machine()
    work = work_of(kernel.program, lengths, 1, width)
    found = [(each, estimate(work, each, lengths.get(kernel.program.block, 1), width, here)) for each in candidates(kernel.program, lengths, 1, here)]
    return sorted(found, key=lambda row: row[1])[:MOST_SCHEDULES]


def offered_on_gpu(fused: ra.Fused, how: Mapping[str, object]) -> tuple[dict[str, Schedule], str]:
    """The schedules that a kernel for GPUs can be given, by their labels, and what to know of them."""
    try:
        fused.kernel(**how | {"schedule": WARPGROUPS})
    except RedfuserError as error:
        return {}, f"Not offered is {error}."
    return {"products by wgmma": WARPGROUPS}, f"{WGMMA[0].upper()}{WGMMA[1:]}."


def launches_html(kernel: CudaKernel, lengths: Mapping[str, int], params: Mapping[str, float]) -> Fragment:
    """The schedule of a kernel for GPUs, which its own plan chooses by the lengths; nothing where numba-cuda is missing."""
    if find_spec("numba_cuda") is None:
        return Fragment()
    types = {"bfloat16": np.uint16}
    arrays = [np.empty([lengths[axis] for axis in own], types.get(kernel.dtype, kernel.dtype) if kernel.signature.arrays[name] in ("f4", "f8") else
                       {"i8": np.int64, "b1": np.bool_}[kernel.signature.arrays[name]]) for name, own in kernel.program.inputs.items()]
    launches, *_ = kernel.file.plan([*arrays, *(params[name] for name in kernel.program.params)])
    rows = [(number, ", ".join(map(str, chosen)), f"{blocks:,}", threads) for number, (chosen, blocks, threads) in enumerate(launches, 1)]
    return titled(f"Schedule at {_at(lengths)}, chosen by the kernel's plan", table(("launch", "variant", "blocks", "threads per block"), rows))


@dataclass(frozen=True)
class Comparison:
    """Seconds of the kernel, of NumPy with the operator as written, and of a sum over the same arrays; how far results are apart."""

    compiling: float
    kernel: float
    numpy: float
    reading: float
    apart: float


def compared(fused: ra.Fused, kernel: Kernel, lengths: Mapping[str, int], params: Mapping[str, float], dtype: str, told: Told) -> Comparison:
    """Run both on random arrays of these lengths; the least of three runs each."""
    arrays = arrays_for(fused.operator, lengths, 1, dtype) | dict(params)
    told(0, 5)
    start = time.perf_counter()
    found = kernel(**arrays)
    compiling = time.perf_counter() - start
    told(2, 5)
    taken = _fastest(lambda: kernel(**arrays))
    told(3, 5)
    reading = _fastest(lambda: [array.sum() for array in arrays.values() if isinstance(array, np.ndarray)])
    told(4, 5)
    start = time.perf_counter()
    with np.errstate(all="ignore"):
        written = fused(**arrays, backend="reference")
    numpy = time.perf_counter() - start
    return Comparison(compiling, taken, numpy, reading, _apart(found, written))


def audit_html(kernel: CudaKernel, told: Told) -> Fragment:
    """What is found out without a GPU: whether the kernel compiles, computes, and wastes no traffic.  Raises OperatorError."""
    if find_spec("numba_cuda") is None:
        raise ra.OperatorError("an audit", "numba-cuda is not installed", "run `pip install 'redfuser-algebra[lab]'`")
    audit = kernel.audit(sizes=AUDITED, progress=told)
    return titled(f"Audit without a GPU: {'passed' if audit.passed else 'failed'}", preformatted(audit), audit.picture)


def _fastest(call) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(RUNS))


def _apart(one: object, other: object) -> float:
    """The largest difference, relative to the largest value."""
    pairs = zip(parts(one), parts(other), strict=True)
    return max(float(np.max(np.abs(a - b), initial=0.0) / max(np.max(np.abs(b), initial=0.0), 1e-300)) for a, b in pairs)


def comparison_html(found: Comparison, lengths: Mapping[str, int]) -> Fragment:
    """The figures of a comparison."""
    rows = [("kernel", f"{1e3 * found.kernel:.3g} ms"), ("NumPy, as written", f"{1e3 * found.numpy:.3g} ms"),
            ("NumPy, a plain sum over the same arrays", f"{1e3 * found.reading:.3g} ms"),
            ("first call, compiling included", f"{found.compiling:.3g} s"), ("largest relative difference", short(found.apart))]
    return titled(f"Run on this machine at {_at(lengths)}", table(("", ""), rows))


def _at(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} = {length}" for axis, length in lengths.items())


@dataclass(frozen=True)
class Prepared:
    """A kernel, and what is shown of it: schedules to choose from and a note on them, launches, source, a picture of traffic."""

    kernel: Kernel | CudaKernel
    schedules: Mapping[str, Schedule]
    note: str
    launches: Fragment
    source: Fragment
    traffic: Fragment


def prepared(verdict: ra.Verdict, lengths: Mapping[str, int], params: Mapping[str, float], how: Mapping[str, object]) -> Prepared:
    """The kernel of a form for a target, dtype, schedule and architecture; of a schedule that GPUs are not offered, none.

    Raises OperatorError or LoweringError where there is no kernel.
    """
    on_gpu = how["target"] == "cuda"
    offered, note = offered_on_gpu(verdict.fused, how) if on_gpu else ({}, "")
    kernel = verdict.fused.kernel(**how | {"schedule": None} if on_gpu and not offered else how)
    lines = marked_lines(kernel.source)
    source = titled(f"Source: {kernel.source.count(chr(10))} lines; those that rebase or guard have a bar", highlighted(kernel.source, lines))
    moved = traffic_picture(traffic(verdict, lengths, WIDTHS[how["dtype"]]))
    if on_gpu:
        return Prepared(kernel, offered, note, launches_html(kernel, lengths, params), source, moved)
    offered = {f"{schedule}: {1e3 * seconds:.3g} ms expected": schedule for schedule, seconds in schedules(kernel, lengths)}
    return Prepared(kernel, offered, note, Fragment(), source, moved)


class KernelTab:
    """The view."""

    title = "Kernel"

    def __init__(self, session: Session, work: Work, pictures: Work) -> None:
        self.session, self.kernel, self._of, self._quiet = session, None, None, False
        self.target = fields.labelled(widgets.Dropdown, "Target", options=list(OFFERED))
        self.dtype = fields.labelled(widgets.Dropdown, "Numbers", options=OFFERED["cpu"])
        self.architecture = fields.labelled(widgets.Dropdown, "Architecture", options=list(ARCHITECTURES), value="sm_90a")
        self.length = fields.labelled(widgets.BoundedIntText, "Axis length", min=1, max=10_000_000, value=LENGTH)
        self.schedule, self.note = fields.labelled(widgets.Dropdown, "Schedule", fields.WIDE, options=[CHOSEN]), fields.drawn()
        self.run = fields.button("Run and compare", self.compare, "Compile, run on random data, compare with NumPy")
        self.audit = fields.button("Audit without a GPU", self.look, "Compile, execute on the CPU, count bytes and conflicts")
        self.path = fields.labelled(widgets.Text, "File", fields.WIDE)
        self.write = fields.button("Write the file", self.export, "Certify the form and write the kernel as a file of its own")
        self.progress = fields.Running("Working", work, (self, "job"), patience=0)
        self.printing = fields.Running("Printing", pictures, (self, "kernel"))
        self.running = (self.progress, self.printing)
        self.said, self.figures, self.link, self.launches = fields.drawn(), fields.drawn(), fields.drawn(), fields.drawn()
        self.drawing, self.source = fields.drawn(), fields.drawn()
        self.target.observe(lambda change: self._aimed(change.new), "value")
        for control in (self.dtype, self.architecture, self.length, self.schedule):
            control.observe(lambda _: self._anew(), "value")
        self.live = fields.column(fields.row(self.target, self.dtype), fields.row(self.length, self.architecture), self.schedule, self.note,
                                  fields.row(self.path, self.write), fields.row(self.run, self.audit), self.progress.box, self.link, self.figures,
                                  self.printing.box, self.launches, self.drawing, self.source)
        self.root = fields.column(self.said, self.live)

    def show(self) -> None:
        """Begin again with what was decided."""
        verdict = self.session.verdict
        self.live.layout.display = "" if verdict and verdict.fused else "none"
        self.said.value = "" if verdict and verdict.fused else "There is no fused form, so there is no kernel."
        if verdict is not self._of and verdict and verdict.fused:
            self._of, self.figures.value, self.link.value = verdict, "", ""
            self._aimed(self.target.value)

    def lengths(self) -> dict[str, int]:
        """The axis lengths that kernels are shown and run at."""
        return usual_lengths(self.session.operator, self.session.axis, self.length.value)

    def _aimed(self, target: str) -> None:
        """Offer what there is for a target."""
        self._quiet, on_gpu, dtype = True, target == "cuda", self.dtype.value
        self.dtype.options = OFFERED[target]
        self.dtype.value = dtype if dtype in OFFERED[target] else "float32"
        self.schedule.options, self.note.value = [CHOSEN], ""
        for control, seen in ((self.run, not on_gpu), (self.architecture, on_gpu), (self.audit, on_gpu)):
            control.layout.display = "" if seen else "none"
        self.path.value = f"{self.session.operator.name}_{target}.py"
        self._quiet = False
        self._anew()

    def how(self) -> dict[str, object]:
        """What the controls ask a kernel to be."""
        chosen = {"target": self.target.value, "dtype": self.dtype.value, "schedule": self.schedule.value or None}
        return chosen | ({"arch": self.architecture.value} if self.target.value == "cuda" else {})

    def _anew(self) -> None:
        """Print the kernel that is asked for now, and show nothing more of the one before."""
        if not self._quiet and self.session.axis:
            self.progress.forget()
            self.figures.value = self.link.value = ""
            verdict, lengths, params, how = self.session.verdict, self.lengths(), dict(self.session.params), self.how()
            self.printing.start(lambda told: prepared(verdict, lengths, params, how), self._printed, self._missing)

    def _printed(self, found: Prepared) -> None:
        self.kernel, self.said.value, self.launches.value = found.kernel, "", found.launches
        self._allow(True)
        self.drawing.value, self.source.value = found.traffic, found.source
        self._offer(found)

    def _allow(self, there_is_one: bool) -> None:
        for button in (self.run, self.audit, self.write):
            button.disabled = not there_is_one

    def _missing(self, sentence: str) -> None:
        self.kernel, self.said.value = None, fields.complaint(sentence)
        self._allow(False)
        self.note.value = self.launches.value = self.drawing.value = self.source.value = ""

    def _offer(self, found: Prepared) -> None:
        """The schedules there are for what is asked, and why there is none."""
        value, self._quiet = self.schedule.value, True
        self.schedule.options = [CHOSEN, *found.schedules.items()]
        self.schedule.value = value if value in found.schedules.values() else CHOSEN[1]
        self.schedule.disabled, self.note.value = not found.schedules, fields.note(found.note) if found.note else ""
        self._quiet = False
        if self.schedule.value != value:
            self._anew()

    def compare(self) -> None:
        """Run in the background."""
        fused, lengths, how, params = self.session.verdict.fused, self.lengths(), self.how(), dict(self.session.params)
        self._start(lambda told: comparison_html(compared(fused, fused.kernel(**how), lengths, params, how["dtype"], told), lengths), self.figures)

    def look(self) -> None:
        """Audit in the background."""
        fused, how = self.session.verdict.fused, self.how()
        self._start(lambda told: audit_html(fused.kernel(**how), told), self.figures)

    def export(self) -> None:
        """Write the file in the background: its header names the certificate, which is made first."""
        fused, path, how = self.session.verdict.fused, self.path.value.strip(), self.how()
        how.pop("arch", None)

        def written(told: Told) -> Fragment:
            if not path:
                raise ra.OperatorError("writing the kernel", "no file is named", f"write a name such as {fused.operator.name}.py into the field File")
            certificate = fused.certify(progress=told)
            return download(fused.export(Path(path), certificate=certificate, **how))

        self._start(written, self.link)

    def _start(self, run: Callable[[Told], Fragment], place: widgets.HTML) -> None:
        def show(found: str) -> None:
            place.value = found

        self.progress.start(run, show, lambda sentence: show(fields.complaint(sentence)))


def download(path: Path) -> Fragment:
    """A link that carries the file."""
    content = base64.b64encode(path.read_bytes()).decode()
    link = element("a", f"Download {path.name}", href=f"data:text/x-python;base64,{content}", download=path.name)
    return element("div", f"Written to {path}. ", link)
