"""Widgets as every tab uses them: with a label, of one width, and messages that are one sentence."""
from __future__ import annotations

import threading
from collections.abc import Callable

import ipywidgets as widgets

from redfuser_algebra.explorer.work import Told, Work
from redfuser_algebra.language.html import element

STYLE = {"description_width": "9em"}
WIDE = "34em"
WHOLE = {"width": "auto", "display": "grid", "grid_template_columns": "minmax(0, 1fr)"}
"""As wide as there is room, and no wider: ipywidgets would make HTML as wide as it likes to be."""
LINES = "line-height:1.4"
"""ipywidgets puts the lines of HTML as far apart as its controls."""


def labelled(kind: type[widgets.Widget], label: str, width: str = "22em", **how: object) -> widgets.Widget:
    """A control with its label to the left."""
    return kind(description=label, style=STYLE, layout=widgets.Layout(width=width), **how)


def shown(value: str = "") -> widgets.HTMLMath:
    """A place for fragments with mathematics."""
    return widgets.HTMLMath(value=value, layout=widgets.Layout(**WHOLE))


def drawn(value: str = "") -> widgets.HTML:
    """A place for pictures."""
    return widgets.HTML(value=value, layout=widgets.Layout(**WHOLE))


def button(label: str, pressed: Callable[[], None], tip: str) -> widgets.Button:
    """A button that calls a function without arguments."""
    made = widgets.Button(description=label, tooltip=tip, layout=widgets.Layout(width="auto", min_width="9em", align_self="flex-start"))
    made.on_click(lambda _: pressed())
    return made


def complaint(sentence: str, excerpt: str = "") -> str:
    """A mistake as it is shown; nothing for no sentence."""
    if not sentence:
        return ""
    where = element("pre", excerpt, style="margin:.2em 0") if excerpt else ""
    return element("div", element("span", "● ", style="color:#c0392b"), sentence, where, role="alert", style=LINES)


def note(text: object) -> str:
    """A sentence that is no mistake."""
    return element("div", text, style=LINES)


def column(*children: widgets.Widget) -> widgets.VBox:
    """One below the other."""
    return widgets.VBox(list(children), layout=widgets.Layout(width="auto", padding="6px"))


def row(*children: widgets.Widget) -> widgets.HBox:
    """Side by side, on a second line where there is no room."""
    return widgets.HBox(list(children), layout=widgets.Layout(flex_flow="row wrap", align_items="center"))


class Running:
    """The job that a tab has going on: what it finds or its mistake is told, and a bar with a stop button is seen meanwhile.

    The bar waits a little, so that what is done at once does not make the page jump.
    """

    def __init__(self, label: str, work: Work, name: object, patience: float = 0.15) -> None:
        self.work, self.name, self.patience, self._timer = work, name, patience, None
        self.bar = labelled(widgets.IntProgress, label, WIDE, min=0, max=100)
        self.stop = button("Stop", lambda: work.stop(name), "Stop, and keep what was found")
        self.box = row(self.bar, self.stop)
        self.box.layout.display = "none"
        self._lock = threading.Lock()

    def start(self, run: Callable[[Told], object], done: Callable[[object], None], failed: Callable[[str], None]) -> None:
        """Do this; a job that is still going on is stopped and forgotten."""
        with self._lock:
            self.bar.value = 0
            if self._timer is None:
                self._timer = threading.Timer(self.patience, self._show)
                self._timer.daemon = True
                self._timer.start()
        self.work.start(self.name, run, self._ending(done), self._ending(failed), self._told)

    def forget(self) -> None:
        """Stop what is going on, and hear no more of it."""
        self.work.forget(self.name)
        self._end()

    def _ending(self, tell: Callable[[object], None]) -> Callable[[object], None]:
        def ended(found: object) -> None:
            self._end()
            tell(found)

        return ended

    def _show(self) -> None:
        with self._lock:
            if self._timer is not None:
                self.box.layout.display = ""

    def _end(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self.box.layout.display = None, "none"

    def _told(self, done: int, whole: int) -> None:
        percent = 100 * done // max(whole, 1)
        if percent != self.bar.value:
            self.bar.value = percent
