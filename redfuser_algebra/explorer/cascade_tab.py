"""The cascade: its reductions in order, and which sweep loads what, as written and fused.

In: what was decided about an operator.  Out: sweeps as data, a picture of them, a table of loads.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from redfuser_algebra.discover.discovery import Discovery
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.pictures import FAINT, INK, KEPT, MOVED, bare, picture
from redfuser_algebra.explorer.session import Session
from redfuser_algebra.language.display import symbols_in
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.html import Fragment, joined, paragraphs, table, titled
from redfuser_algebra.language.mathematics import output_names

LONG = 26


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
        parts = [part for part in (reduction.body, reduction.mask) if part is not None]
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
    parts = [part for c in form.state for part in (c.lift, c.mask) if part is not None]
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


def cascade_picture(found: Discovery) -> Fragment:
    """Inputs as rows, sweeps as columns, a dot where a sweep loads an input: as written, and fused."""
    before, after = as_written(found), as_fused(found)
    names = list(loads(before))
    width, height = 1.6 + 1.15 * (len(before) + max(len(after), 1)), 1.5 + 0.42 * len(names)
    title = f"Loads over {found.cascade.axis}: {len(before)} sweeps as written, {len(after)} {'fused' if found.form else 'at least'}"
    with picture(title, min(width + 1.6, 11), height, 2) as drawing:
        labels = ("as written: a sweep per reduction", "fused" if found.form else "not fusable: the fewest passes found")
        for axes, sweeps, label in zip(drawing.all_axes, (before, after), labels, strict=True):
            _draw(axes, sweeps, names, f"{label} ({len(sweeps)})")
    return drawing.svg


def _draw(axes, sweeps: Sequence[Sweep], names: Sequence[str], label: str) -> None:
    bare(axes)
    axes.set_title(label, fontsize=9, loc="left")
    counts = loads(sweeps)
    for column, sweep in enumerate(sweeps):
        makes = ", ".join(sweep.makes)
        axes.text(column, 0, makes if len(makes) <= LONG else f"{len(sweep.makes)} components", ha="center", va="center", fontsize=8,
                  bbox={"boxstyle": "round,pad=0.35", "facecolor": "none", "edgecolor": KEPT})
        for other in sweep.waits:
            axes.annotate("", (column - 0.12, 0.34), (other + 0.12, 0.34),
                          arrowprops={"arrowstyle": "->", "color": MOVED, "connectionstyle": "arc3,rad=-0.35"})
    for place, name in enumerate(names, 1):
        axes.text(-0.75, -place, name, ha="right", va="center")
        axes.plot([-0.6, len(sweeps) - 0.4], [-place, -place], color=FAINT, linewidth=0.6)
        dots = [column for column, sweep in enumerate(sweeps) if name in sweep.loads]
        axes.plot(dots, [-place] * len(dots), "o", color=KEPT, markersize=7, clip_on=False)
        axes.text(len(sweeps) - 0.3, -place, f"{counts.get(name, 0)}×", ha="left", va="center", color=INK, weight="bold")
    axes.set_xlim(-1.6, len(sweeps) + 0.1)
    axes.set_ylim(-len(names) - 0.6, 1.1)


def loads_table(found: Discovery, axes: dict[str, tuple[str, ...]], lengths: dict[str, int]) -> Fragment:
    """For each input its elements, and how often they are loaded."""
    before, after = loads(as_written(found)), loads(as_fused(found))
    rows = [(name, " × ".join(f"{axis} = {lengths[axis]}" for axis in axes[name]), prod(lengths[axis] for axis in axes[name]),
             before[name], after.get(name, 0)) for name in before if name in axes]
    totals = [sum(row[2] * row[at] for row in rows) for at in (3, 4)]
    saved = f"Elements loaded in all: {totals[0]:,} as written, {totals[1]:,} {'fused' if found.form else 'in the fewest passes found'}."
    return joined(table(("input", "axes", "elements", "loads as written", "loads fused" if found.form else "loads in passes"), rows), paragraphs([saved]))


class CascadeTab:
    """The view."""

    title = "Cascade"

    def __init__(self, session: Session) -> None:
        self.session = session
        self.text, self.drawing = fields.shown(), fields.drawn()
        self.root = fields.column(self.text, self.drawing)

    def show(self) -> None:
        """Draw what was decided."""
        verdict = self.session.verdict
        if verdict is None:
            self.text.value, self.drawing.value = "Nothing has been decided yet.", ""
            return
        operator, parts, drawn = self.session.operator, [], []
        for found in verdict.discoveries:
            parts += [found.cascade._repr_html_(), loads_table(found, operator.inputs, self.session.lengths)]
            drawn.append(titled(f"Over {found.cascade.axis}", cascade_picture(found)))
        self.text.value, self.drawing.value = joined(*parts), joined(*drawn)
