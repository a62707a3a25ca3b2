"""`ra.explore()`: one app of six tabs about an operator.

In: an operator, a name of the catalogue, a formula, or nothing.  Out: an Explorer, which a notebook shows.
"""
from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets
from IPython import get_ipython

import redfuser_algebra as ra
from redfuser_algebra.discover.display import verdict_line
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.cascade_tab import CascadeTab
from redfuser_algebra.explorer.discovery_tab import DiscoveryTab
from redfuser_algebra.explorer.kernel_tab import KernelTab
from redfuser_algebra.explorer.operator_tab import OperatorTab
from redfuser_algebra.explorer.proof_tab import ProofTab
from redfuser_algebra.explorer.session import Session, decide_both
from redfuser_algebra.explorer.update_tab import UpdateTab
from redfuser_algebra.explorer.work import DRAWING, WORK, Work

_open: dict[str, Explorer] = {}
"""The explorer of each notebook cell; running the cell again closes it."""


class Explorer:
    """The app.  `session` holds what it is about, `tabs` the six views; only the tab in front is kept up to date."""

    def __init__(self, operator: ra.Operator | None = None, work: Work = WORK, drawing: Work = DRAWING) -> None:
        self.session, self.work, self.drawing = Session(), work, drawing
        self.operator_tab = OperatorTab(self.session, self.decide)
        self.tabs = (self.operator_tab, CascadeTab(self.session, drawing), DiscoveryTab(self.session, work, drawing),
                     UpdateTab(self.session, drawing), ProofTab(self.session, work, drawing), KernelTab(self.session, work, drawing))
        self.said = fields.drawn()
        self.deciding = fields.Running("Deciding", work, (self, "decide"))
        self.front = widgets.Tab([tab.root for tab in self.tabs], titles=[tab.title for tab in self.tabs], selected_index=0)
        self.root = fields.column(self.said, self.deciding.box, self.front)
        self._stale = set(self.tabs)
        self.session.listeners.append(self._changed)
        self.front.observe(lambda _: self._turned(), "selected_index")
        if operator:
            self.decide(operator)

    def decide(self, operator: ra.Operator) -> None:
        """Be about an operator, and decide about it in the background; what goes on about another one is given up."""
        self._give_up()
        self.session.choose(operator)
        self.operator_tab.begin()
        self.said.value = fields.note(f"Deciding about {operator.name} …")
        self.deciding.start(lambda told: decide_both(operator, told), self._decided, self._failed)

    def _give_up(self) -> None:
        for running in (self.deciding, *(each for tab in self.tabs for each in tab.running)):
            running.forget()

    def _decided(self, verdicts: tuple[ra.Verdict, ra.Verdict]) -> None:
        self.said.value = verdict_line(verdicts[0])
        self.session.decided(*verdicts)

    def _failed(self, sentence: str) -> None:
        self.said.value = fields.complaint(sentence)

    def _changed(self) -> None:
        self._stale = set(self.tabs)
        self._refresh()

    def _turned(self) -> None:
        if self.front.selected_index == self.tabs.index(self.operator_tab):
            self.operator_tab.mark()
        self._refresh()

    def _refresh(self) -> None:
        tab = self.tabs[self.front.selected_index or 0]
        if tab in self._stale:
            self._stale.discard(tab)
            tab.show()

    def close(self) -> None:
        """Stop all work, and forget all widgets."""
        self.session.listeners.clear()
        self._give_up()
        for widget in reversed(_below(self.root)):
            widget.close()

    def _repr_mimebundle_(self, **how: object) -> object:
        return self.root._repr_mimebundle_(**how)

    def __repr__(self) -> str:
        about = self.session.operator.name if self.session.operator else "no operator yet"
        return f"Explorer({about}): open it in a notebook, with `redfuser lab`"


def explore(about: ra.Operator | Callable | str | None = None) -> Explorer:
    """The explorer of an operator: an Operator, a function that `ra.operator` takes, a name of the catalogue, or a formula.

    Without any, it begins with softmax.  Running the same notebook cell again closes the explorer it showed before.
    Raises OperatorError for anything else.
    """
    explorer, cell = Explorer(_operator(about)), _cell()
    if cell:
        if cell in _open:
            _open[cell].close()
        _open[cell] = explorer
    return explorer


def _operator(about: ra.Operator | Callable | str | None) -> ra.Operator:
    if about is None:
        return ra.operators["softmax"]
    if isinstance(about, str):
        return ra.operators[about] if about.isidentifier() else ra.parse_operator(about)
    if isinstance(about, ra.Operator):
        return about
    if isinstance(about, ra.Fused | ra.Verdict):
        return about.operator
    if callable(about):
        return ra.operator(about)
    raise ra.OperatorError(f"exploring {about!r:.40}", "it is no operator, name or formula", "give ra.operators[…], a function, or a formula in quotes")


def _cell() -> str | None:
    """The id of the notebook cell that is running; None where there is none."""
    shell = get_ipython()
    parent = shell.get_parent() if shell is not None and hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId")


def _below(root: widgets.Widget) -> list[widgets.Widget]:
    found = [root]
    for child in getattr(root, "children", ()):
        found += _below(child)
    return found
