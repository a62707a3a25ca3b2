"""The cascade: its reductions in order, and which sweep loads what, as written and fused.

In: what was decided about an operator.  Out: sweeps as data, a picture of them, a table of loads.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from redfuser_algebra.discover.discovery import Discovery
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.pictures import FAINT, INK, KEPT, MOVED, bare, picture
from redfuser_algebra.explorer.session import Session
from redfuser_algebra.explorer.work import Work
from redfuser_algebra.language.display import symbols_in
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.html import Fragment, Picture, joined, paragraphs, table, titled
from redfuser_algebra.language.mathematics import output_names

LONG, WIDEST, MARGIN = 26, 11.0, 1.6
"""Letters of names that fit on a root, and the picture's most inches and its room for names, of which a tree takes one."""
WRITTEN = "as written: a sweep per reduction"
PARTS = (-0.33, -0.11, 0.11, 0.33)
"""Where a tree's four leaves are."""
READ = ("A tree stands for one time through the data: its leaves are parts of the data, a dot merges two, the root is what it makes. "
        "Below, a full square is a part that is loaded. An arrow leads to a sweep that has to wait.")


@dataclass(frozen=True)
class Sweep:
    """One time through the axis: what it computes, which inputs it loads, which earlier sweeps it waits for."""

    makes: tuple[str, ...]
    loads: tuple[str, ...]
    waits: tuple[int, ...] = ()


def as_written(found: Discovery) -> tuple[Sweep, ...]:
    """A sweep for every reduction, as a library runs them, and one for every output that keeps the axis."""
    cascade, sweeps, made = found.cascade, [], {}
    for reduction in cascade.reductions:
        parts = [*reduction.elements]
        waits = tuple(made[name] for name in symbols_in(*parts) if name in made)
        made[reduction.name] = len(sweeps)
        sweeps.append(Sweep((reduction.name,), _loads(cascade.axis, *parts), waits))
    for name, output in zip(output_names(cascade.outputs, cascade.axis), cascade.outputs, strict=True):
        if cascade.axis in output.axes:
            sweeps.append(Sweep((name,), _loads(cascade.axis, output), tuple(made[each] for each in symbols_in(output) if each in made)))
    return tuple(sweeps)


def as_fused(found: Discovery) -> tuple[Sweep, ...]:
    """The one sweep that keeps the state, and one more for outputs that keep the axis; the passes, where there is no form."""
    form, axis = found.form, found.cascade.axis
    if form is None:
        return _in_passes(found)
    parts = [part for c in form.state for part in c.elements]
    sweeps = [Sweep(tuple(component.name for component in form.state), _loads(axis, *parts))]
    maps = [output for output in form.outputs if axis in output.axes]
    if maps:
        names = [name for name in output_names(form.outputs, axis) if name.startswith("map")]
        sweeps.append(Sweep(tuple(names), _loads(axis, *maps), (0,)))
    return tuple(sweeps)


def _in_passes(found: Discovery) -> tuple[Sweep, ...]:
    reductions = {reduction.name: reduction for reduction in found.cascade.reductions}
    sweeps: list[Sweep] = []
    for names in found.refusal.passes if found.refusal else ():
        parts = [p for name in names for p in (reductions[name].body, reductions[name].mask) if p is not None]
        sweeps.append(Sweep(names, _loads(found.cascade.axis, *parts), tuple(range(len(sweeps)))[-1:]))
    return tuple(sweeps)


def _loads(axis: str, *exprs: Expr) -> tuple[str, ...]:
    """The inputs with the axis that expressions read."""
    return tuple(dict.fromkeys(term.name for term in subterms(*exprs) if term.op == "input" and axis in term.axes))


def loads(sweeps: Sequence[Sweep]) -> dict[str, int]:
    """How often each input is loaded."""
    names = dict.fromkeys(name for sweep in sweeps for name in sweep.loads)
    return {name: sum(name in sweep.loads for sweep in sweeps) for name in names}


def cascade_picture(found: Discovery) -> Picture:
    """A tree over the data for every sweep, as written and fused, and below it what the sweep loads."""
    before, after = as_written(found), as_fused(found)
    names = list(loads(before))
    fused = "fused" if found.form else "not fusable: the fewest passes found"
    title = f"Loads over {found.cascade.axis}: {len(before)} sweeps as written, {len(after)} {'fused' if found.form else 'at least'}"
    room = [max(len(sweeps) + MARGIN + widest(sweeps), 0.07 * len(label)) for sweeps, label in ((before, WRITTEN), (after, fused))]
    with picture(title, min(sum(room), WIDEST), 1.5 + 0.24 * len(names), room) as drawing:
        for axes, sweeps, label in zip(drawing.all_axes, (before, after), (WRITTEN, fused), strict=True):
            _draw(axes, sweeps, names, f"{label} ({len(sweeps)})")
    return drawing.svg


def widest(sweeps: Sequence[Sweep]) -> float:
    """By how much the names on a root are wider than its tree, in trees."""
    return max((0.055 * len(_root(sweep)) - 0.6 for sweep in sweeps), default=0.0) if sweeps else 0.0


def _root(sweep: Sweep) -> str:
    makes = ", ".join(sweep.makes)
    return makes if len(makes) <= LONG else f"{len(sweep.makes)} components"


def _draw(axes, sweeps: Sequence[Sweep], names: Sequence[str], label: str) -> None:
    bare(axes)
    axes.set_title(label, fontsize=9, loc="left")
    counts, reach = loads(sweeps), max((here - other for here, sweep in enumerate(sweeps) for other in sweep.waits), default=1)
    for column, sweep in enumerate(sweeps):
        _tree(axes, column)
        axes.text(column, 0, _root(sweep), ha="center", va="center", fontsize=8, bbox={"boxstyle": "round,pad=0.3", "facecolor": "none", "edgecolor": KEPT})
        for other in sweep.waits:
            top = 0.35 + 1.1 * (column - other) / reach
            path = Path([(other + 0.1, 0.3), (other + 0.2, top), (column - 0.2, top), (column - 0.08, 0.32)], [Path.MOVETO, *[Path.CURVE4] * 3])
            axes.add_patch(FancyArrowPatch(path=path, arrowstyle="->", mutation_scale=8, color=MOVED, linewidth=1))
    right = len(sweeps) - 0.45
    for place, name in enumerate(names):
        y = -1.75 - 0.55 * place
        axes.text(-0.6, y, name, ha="right", va="center")
        for column, sweep in enumerate(sweeps):
            fill = {"color": KEPT} if name in sweep.loads else {"markerfacecolor": "none", "markeredgecolor": FAINT, "markeredgewidth": 0.5}
            axes.plot([column + part for part in PARTS], [y] * len(PARTS), "s", markersize=6, linestyle="none", **fill)
        axes.text(right, y, f"{counts.get(name, 0)}×", ha="left", va="center", color=INK, weight="bold")
    axes.set_xlim(-MARGIN / 2 - widest(sweeps) / 2, right + MARGIN / 2 + widest(sweeps) / 2)
    axes.set_ylim(-1.5 - 0.55 * len(names), 1.3)


def _tree(axes, column: int) -> None:
    """Parts of the data as leaves, merged in pairs; the root is drawn by the caller."""
    for middle, leaves in ((column + PARTS[0] / 2 + PARTS[1] / 2, PARTS[:2]), (column + PARTS[2] / 2 + PARTS[3] / 2, PARTS[2:])):
        axes.plot([column, middle], [-0.3, -0.75], color=FAINT, linewidth=0.8)
        axes.plot([middle], [-0.75], ".", color=KEPT, markersize=5)
        for leaf in leaves:
            axes.plot([middle, column + leaf], [-0.75, -1.3], color=FAINT, linewidth=0.8)


def loads_table(found: Discovery, axes: dict[str, tuple[str, ...]], lengths: dict[str, int]) -> Fragment:
    """For each input its elements, and how often they are loaded."""
    before, after = loads(as_written(found)), loads(as_fused(found))
    rows = [(name, " × ".join(f"{axis} = {lengths[axis]}" for axis in axes[name]), prod(lengths[axis] for axis in axes[name]),
             before[name], after.get(name, 0)) for name in before if name in axes]
    totals = [sum(row[2] * row[at] for row in rows) for at in (3, 4)]
    saved = f"Elements loaded in all: {totals[0]:,} as written, {totals[1]:,} {'fused' if found.form else 'in the fewest passes found'}."
    return joined(table(("input", "axes", "elements", "loads as written", "loads fused" if found.form else "loads in passes"), rows), paragraphs([saved]))


def cascades_html(session: Session) -> tuple[Fragment, Fragment]:
    """The cascades in tables, and their pictures."""
    parts, drawn = [], []
    for found in session.verdict.discoveries:
        parts += [found.cascade._repr_html_(), loads_table(found, session.operator.inputs, session.lengths)]
        drawn.append(titled(f"Who loads what, over {found.cascade.axis}", cascade_picture(found)))
    return joined(*parts), joined(*drawn, fields.note(READ) if drawn else "")


class CascadeTab:
    """The view."""

    title = "Cascade"

    def __init__(self, session: Session, pictures: Work) -> None:
        self.session = session
        self.text, self.drawing = fields.shown(), fields.drawn()
        self.progress = fields.Running("Drawing", pictures, (self, "drawing"))
        self.running = (self.progress,)
        self.root = fields.column(self.progress.box, self.drawing, self.text)

    def show(self) -> None:
        """Draw what was decided."""
        if self.session.verdict is None:
            self._shown(("Nothing has been decided yet.", ""))
            return
        self.progress.start(lambda told: cascades_html(self.session), self._shown, lambda sentence: self._shown((fields.complaint(sentence), "")))

    def _shown(self, found: tuple[str, str]) -> None:
        self.text.value, self.drawing.value = found
