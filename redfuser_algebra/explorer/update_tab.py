"""The update rule, live: two parts of the data are moved to the pivots of both and merged; raw and centred side by side.

In: a fused operator and arrays.  Out: parts and merged states as numbers, pictures of the state as it grows, results
under an offset for which raw sums lose what centred ones keep.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import ipywidgets as widgets
import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.discover.show import form_latex
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.pictures import MOVED, bare, counted, picture, short
from redfuser_algebra.explorer.session import Session
from redfuser_algebra.explorer.work import Told, Work
from redfuser_algebra.language.html import Fragment, displayed, element, formula, joined, table, titled
from redfuser_algebra.language.latex import name_latex
from redfuser_algebra.lower.kinds import natural_kinds
from redfuser_algebra.run.laid_out import environment_of
from redfuser_algebra.run.reference import cut
from redfuser_algebra.run.state import State, lift, merge, merge_seen, pivots_of

ONE, TILE, REST = "one element", "a tile of 4", "all the others"
FEEDS = (ONE, TILE, REST)
OFFSETS = (0.0, 1e2, 1e4, 1e6, 1e8)
READ = element("span", "a is what has been seen, b is what it is merged with. Before they are merged both are moved to the pivots of both: ",
               element("span", "what that changes", style=f"color:{MOVED};font-weight:bold"), " is in colour. Of other axes the first row is shown.")
MOST_LINES = 6
NOTHING = 1e-12
"""What roundings leave of a number of size 1 that should be 0."""


@dataclass(frozen=True)
class Merged:
    """Numbers of two parts and of both together, in the first row of other axes, by component and by pivot.

    `moved` holds the components of either part at the pivots of both.
    """

    parts: tuple[dict[str, float], dict[str, float]]
    moved: tuple[dict[str, float], dict[str, float]]
    together: dict[str, float]
    pivots: tuple[dict[str, float], dict[str, float], dict[str, float]]


class Rule:
    """The states of growing prefixes of some data, and merges of parts of it."""

    def __init__(self, fused: ra.Fused, arrays: dict[str, np.ndarray | float]) -> None:
        self.form = fused.form
        self.environment = environment_of(fused.operator, fused.operator.bind(**arrays), self.form)
        self.length = self.environment.sizes[self.form.axis]
        self.elements = [lift(self.form, chunk) for chunk in cut(self.environment, self.form.axis, [1] * self.length)]
        self.prefixes = [self.elements[0]]
        for element_ in self.elements[1:]:
            self.prefixes.append(merge(self.form, self.prefixes[-1], element_))

    def merged(self, seen: int, feed: str) -> Merged:
        """The first `seen` elements, merged with what is fed next; there must be at least one on either side."""
        stop = {ONE: seen + 1, TILE: min(seen + 4, self.length), REST: self.length}[feed]
        a, b = self.prefixes[seen - 1], reduce(lambda one, other: merge(self.form, one, other), self.elements[seen:stop])
        both, (a_moved, b_moved) = merge_seen(self.form, a, b)
        pivots = tuple({name: _first(value) for name, value in pivots_of(self.form, state).items()} for state in (a, b, both))
        return Merged((_numbers(a), _numbers(b)), tuple({name: _first(held.value) for name, held in moved.items()} for moved in (a_moved, b_moved)),
                      _numbers(both), pivots)

    def history(self) -> dict[str, list[float]]:
        """Each component after 1, 2, … elements."""
        return {c.name: [_first(prefix.components[c.name].value) for prefix in self.prefixes] for c in self.form.state}

    def factors(self) -> dict[str, list[float]]:
        """What moving to the next pivots makes of each component that moves, relative to what it was, step by step."""
        moving = [c.name for c in self.form.state if not c.fixed]
        found: dict[str, list[float]] = {name: [] for name in moving}
        for before, element_ in zip(self.prefixes, self.elements[1:], strict=False):
            _, (moved, _) = merge_seen(self.form, before, element_)
            for name in moving:
                found[name].append(_ratio(_first(moved[name].value), _first(before.components[name].value)))
        return found


def _numbers(state: State) -> dict[str, float]:
    return {name: _first(held.value) for name, held in state.components.items()}


def _ratio(after: float, before: float) -> float:
    """By what a number was multiplied; NaN where it was 0, or what roundings leave of 0."""
    return after / before if abs(before) > NOTHING * max(1.0, abs(after)) else math.nan


def _first(value: np.ndarray) -> float:
    """The value in the first row of everything."""
    return float(np.asarray(value, float).ravel()[0]) if np.size(value) else float("nan")


def merged_html(merged: Merged) -> Fragment:
    """The merge as a table: each part, each part moved, both together; what moved is in colour."""
    def cells(name: str, place: int) -> list[Fragment]:
        old, new = merged.parts[place][name], merged.moved[place][name]
        same = old == new or old != old and new != new
        return [element("span", short(old)), element("span", short(new), style="" if same else f"color:{MOVED};font-weight:bold")]

    rows = [[formula(name_latex(name)), *cells(name, 0), *cells(name, 1), short(merged.together[name])] for name in merged.together]
    pivots = [[formula(name_latex(name)), *(short(each[name]) for each in merged.pivots)] for name in merged.pivots[2]]
    head = ("component", "a", "a moved", "b", "b moved", "together")
    of_pivots = titled("Pivots", table(("pivot", "of a", "of b", "of both"), pivots)) if pivots else ""
    return joined(of_pivots, titled("State", table(head, rows)), fields.note(READ))


def history_picture(rule: Rule) -> picture:
    """The components, and the factors they are moved by, as elements come in; the marker is at the first element."""
    with np.errstate(all="ignore"):
        history, factors = rule.history(), rule.factors()
    with picture(f"State and rescale factors over {rule.length} elements", 8.2, 2.4, (1, 1)) as drawing:
        state, moved = drawing.all_axes
        for name, values in list(history.items())[:MOST_LINES]:
            state.plot(range(1, rule.length + 1), values, "-", linewidth=1, marker=".", markersize=4, label=name)
        for name, values in list(factors.items())[:MOST_LINES]:
            moved.plot(range(2, rule.length + 1), values, "-", linewidth=1, marker=".", markersize=4, label=name)
        if not factors:
            bare(moved)
            moved.text(0.5, 0.5, "no component has a pivot, so nothing is moved", ha="center", transform=moved.transAxes)
        for axes, label in ((state, "state"), (moved, "rescale factors: moved ÷ before"))[:2 if factors else 1]:
            drawing.marker(axes, 1)
            counted(axes)
            axes.set_xlabel("elements seen")
            axes.set_title(label, fontsize=9, loc="left")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return drawing


def shifted(operator: ra.Operator, arrays: dict[str, np.ndarray | float], axis: str, offset: float) -> dict[str, np.ndarray | float]:
    """The arrays, with an offset added to the real ones that vary along the axis."""
    natural = natural_kinds(operator)
    return {name: value + offset if axis in operator.inputs.get(name, ()) and name not in natural else value for name, value in arrays.items()}


def results_html(operator: ra.Operator, forms: dict[str, ra.Fused], arrays: dict[str, np.ndarray | float]) -> Fragment:
    """The first result as written and under each form, in float64, with how far they are apart."""
    with np.errstate(all="ignore"):
        written = _leading(next(iter(forms.values()))(**arrays, backend="reference"))
        rows = [("as written", repr(written), "")]
        for name, fused in forms.items():
            found = _leading(fused(**arrays, backend="numpy"))
            apart = abs(found - written) / abs(written) if written else abs(found - written)
            rows.append((name, repr(found), "the same" if apart == 0 else short(apart)))
    return titled("The first result, in float64", table(("computed", "value", "relative difference"), rows))


def _leading(result: object) -> float:
    while isinstance(result, dict | tuple):
        result = next(iter(result.values() if isinstance(result, dict) else result))
    return _first(np.asarray(result))


def computed(forms: dict[str, ra.Fused], kind: str, arrays: dict[str, np.ndarray | float], told: Told) -> tuple[Rule, str, str, picture]:
    """The rule of a form at work on arrays, its LaTeX, results under all forms, and the picture.  Raises OperatorError."""
    fused = forms[kind]
    told(0, 3)
    with np.errstate(all="ignore"):
        rule = Rule(fused, arrays)
    told(1, 3)
    results = results_html(fused.operator, forms, arrays)
    told(2, 3)
    return rule, displayed(form_latex(fused.form)), results, history_picture(rule)


class UpdateTab:
    """The view."""

    title = "Update rule"

    def __init__(self, session: Session, pictures: Work) -> None:
        self.session, self.rule = session, None
        self.history: picture | None = None
        self.kind = fields.labelled(widgets.Dropdown, "Form", options=["centred", "raw"])
        self.feed = fields.labelled(widgets.Dropdown, "Merge with", options=FEEDS)
        self.seen = fields.labelled(widgets.IntSlider, "Elements seen", fields.WIDE, min=1, max=1)
        self.offset = fields.labelled(widgets.SelectionSlider, "Offset of the data", fields.WIDE, options=[(short(o), o) for o in OFFSETS])
        self.latex, self.text, self.drawing, self.results, self.said = fields.shown(), fields.shown(), fields.drawn(), fields.shown(), fields.drawn()
        for control in (self.kind, self.offset):
            control.observe(lambda _: self._anew(), "value")
        for control in (self.feed, self.seen):
            control.observe(lambda _: self._merged(), "value")
        self.progress = fields.Running("Computing", pictures, (self, "rule"))
        self.running = (self.progress,)
        self.live = fields.column(self.kind, self.latex, self.seen, self.feed, self.text, self.drawing, self.offset, self.results)
        self.root = fields.column(self.progress.box, self.said, self.live)

    def forms(self) -> dict[str, ra.Fused]:
        """The forms there are, by name."""
        found = {"centred": self.session.verdict, "raw": self.session.raw} if self.session.verdict else {}
        return {name: verdict.fused for name, verdict in found.items() if verdict and verdict.fused}

    def show(self) -> None:
        """Begin again with what was decided."""
        self.live.layout.display = "" if self.forms() else "none"
        self.said.value = "" if self.forms() else "There is no fused form, so there is no rule to show."
        if self.forms():
            self._anew()

    def _arrays(self) -> dict[str, np.ndarray | float]:
        fused = self.forms()[self.kind.value]
        return shifted(fused.operator, self.session.arrays(), fused.form.axis, self.offset.value)

    def _anew(self) -> None:
        """Compute the states of all prefixes, then draw them; the controls stay free."""
        if self.forms():
            forms, kind, arrays = self.forms(), self.kind.value, self._arrays
            self.progress.start(lambda told: computed(forms, kind, arrays(), told), self._shown, self._failed)

    def _shown(self, found: tuple[Rule, str, str, picture]) -> None:
        self.rule, self.latex.value, self.results.value, self.history = found
        self.said.value, self.seen.max = "", max(1, self.rule.length - 1)
        self._merged()

    def _failed(self, sentence: str) -> None:
        self.rule, self.text.value, self.drawing.value = None, "", ""
        self.said.value = fields.complaint(sentence)

    def _merged(self) -> None:
        if self.rule is None or self.rule.length < 2:
            self.text.value = self.drawing.value = ""
            return
        with np.errstate(all="ignore"):
            self.text.value = merged_html(self.rule.merged(self.seen.value, self.feed.value))
        self.drawing.value = self.history.at(self.seen.value)
