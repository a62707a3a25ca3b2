"""The operator: chosen from the catalogue or typed, with lengths and parameters as fields.

In: words to search for, names, text.  Out: operators, or a mistake with its place.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ipywidgets as widgets

import redfuser_algebra as ra
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.session import LENGTH, LONGEST, Session
from redfuser_algebra.language.errors import RedfuserError
from redfuser_algebra.language.html import displayed, folded, joined, preformatted
from redfuser_algebra.language.latex import operator_latex

EXAMPLE = "sum(exp(x - max(x, l)), l)"
PLACEHOLDER = f"{EXAMPLE}\n\nor lines, as in NumPy:\nm = mean(x, l)\nmean((x - m)**2, l)"
CHOSEN, TYPED, LABEL = "23em", "26em", {"description_width": "7em"}
"""Widths of what is chosen from and what is typed, which stand side by side, and of their labels."""


def matches(words: str) -> list[str]:
    """The names of the catalogue whose name, group or source holds every word."""
    wanted = words.lower().split()
    entries = map(ra.operators.entry, ra.operators)
    return [e.operator.name for e in entries if all(word in f"{e.operator.name} {e.group} {e.source}".lower() for word in wanted)]


@dataclass(frozen=True)
class Reading:
    """What a text was read as: an operator, or a sentence about what is wrong with it and the lines that show where."""

    operator: ra.Operator | None
    mistake: str = ""
    excerpt: str = ""


def read(text: str) -> Reading:
    """A formula, or definitions before a result; nothing is executed."""
    if not text.strip():
        return Reading(None, f"Nothing is written yet; try {EXAMPLE}")
    try:
        operator = ra.parse_operator(text)
        return Reading(operator)
    except RedfuserError as error:
        return Reading(None, f"{error.failed}; {error.remedy}", error.excerpt)


def about(operator: ra.Operator, source: str) -> str:
    """The operator in mathematics and as text."""
    where = f"Source: {source}" if source else ""
    return joined(displayed(operator_latex(operator)), folded("as text", preformatted(operator)), where)


def _is_known(operator: ra.Operator) -> bool:
    """Whether the catalogue has this very operator."""
    return operator.name in ra.operators and ra.operators[operator.name] == operator


class OperatorTab:
    """The view.  `decide` is called with each operator that is chosen."""

    title = "Operator"

    def __init__(self, session: Session, decide: Callable[[ra.Operator], None]) -> None:
        self.session, self.decide, self._quiet = session, decide, False
        self.search = fields.labelled(widgets.Text, "Search", CHOSEN, placeholder="softmax, physics, Welford …")
        self.names = fields.labelled(widgets.Select, "Catalogue", CHOSEN, options=list(ra.operators), value=None, rows=8)
        self.formula = fields.labelled(widgets.Textarea, "Or a formula", TYPED, placeholder=PLACEHOLDER, rows=7)
        self.mistake = fields.drawn()
        self.use = fields.button("Use the formula", self.use_formula, "Read the formula and decide about it")
        self.about = fields.shown()
        self.lengths, self.params = fields.row(), fields.row()
        for control in (self.search, self.names, self.formula):
            control.style = LABEL
        self.running = ()
        self.seed = fields.labelled(widgets.BoundedIntText, "Seed of the data", "16em", min=0, max=2**31 - 1, value=0)
        self.search.observe(lambda change: self._found(change.new), "value")
        self.names.observe(lambda change: self._chosen(change.new), "value")
        self.formula.observe(lambda change: self._typed(change.new), "value")
        self.seed.observe(lambda change: self._seeded(change.new), "value")
        chosen, typed = widgets.VBox([self.search, self.names]), widgets.VBox([self.formula, self.use])
        self.use.layout.margin = "2px 2px 2px 7.8em"
        self.root = fields.column(fields.row(chosen, typed), self.mistake, self.about, self.lengths, self.params, self.seed)
        self.root.children[0].layout.align_items = "flex-start"

    def _found(self, words: str) -> None:
        self._quiet = True
        self.names.options = matches(words)
        self._quiet = False
        self._select()

    def _select(self) -> None:
        """Mark the operator that all is about, where it is among those offered."""
        self._quiet = True
        operator = self.session.operator
        self.names.value = operator.name if operator and operator.name in self.names.options and _is_known(operator) else None
        self._quiet = False

    def mark(self) -> None:
        """Mark the operator anew: a page that was loaded with another tab in front shows the list from its top."""
        self._quiet = True
        self.names.value = None
        self._select()

    def _chosen(self, name: str | None) -> None:
        if name and not self._quiet:
            self.mistake.value = ""
            self.decide(ra.operators[name])

    def _typed(self, text: str) -> None:
        reading = read(text) if text.strip() else Reading(None)
        self.mistake.value = fields.complaint(reading.mistake, reading.excerpt)

    def use_formula(self) -> None:
        """Decide about what is written."""
        reading = read(self.formula.value)
        self.mistake.value = fields.complaint(reading.mistake, reading.excerpt)
        if reading.operator:
            self.decide(reading.operator)

    def _seeded(self, seed: int) -> None:
        self.session.seed = seed
        self.session.changed()

    def begin(self) -> None:
        """Fields for a new operator."""
        session, operator = self.session, self.session.operator
        self._select()
        self.about.value = about(operator, ra.operators.entry(operator.name).source if _is_known(operator) else "")
        self.lengths.children = [self._length(axis) for axis in session.lengths]
        self.params.children = [self._param(name) for name in session.params]

    def _length(self, axis: str) -> widgets.Widget:
        field = fields.labelled(widgets.BoundedIntText, f"Length of {axis}", "14em", min=1, max=LONGEST, value=self.session.lengths.get(axis, LENGTH))
        field.observe(lambda change: self._set(self.session.lengths, axis, change.new), "value")
        return field

    def _param(self, name: str) -> widgets.Widget:
        value = self.session.params[name]
        kind = widgets.Checkbox if isinstance(value, bool) else widgets.IntText if isinstance(value, int) else widgets.FloatText
        field = fields.labelled(kind, name, "14em", value=value)
        field.observe(lambda change: self._set(self.session.params, name, change.new), "value")
        return field

    def _set(self, values: dict, name: str, value: float) -> None:
        values[name] = value
        self.session.changed()

    def show(self) -> None:
        """Nothing here depends on what was decided."""
