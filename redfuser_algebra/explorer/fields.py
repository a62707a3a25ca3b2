"""Widgets as every tab uses them: with a label, of one width, and messages that are one sentence."""
from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from redfuser_algebra.language.html import element

STYLE = {"description_width": "9em"}
WIDE = "34em"
LINES = "line-height:1.4"
"""ipywidgets puts the lines of HTML as far apart as its controls."""


def labelled(kind: type[widgets.Widget], label: str, width: str = "22em", **how: object) -> widgets.Widget:
    """A control with its label to the left."""
    return kind(description=label, style=STYLE, layout=widgets.Layout(width=width), **how)


def shown(value: str = "") -> widgets.HTMLMath:
    """A place for fragments with mathematics."""
    return widgets.HTMLMath(value=value, layout=widgets.Layout(width="100%"))


def drawn(value: str = "") -> widgets.HTML:
    """A place for pictures."""
    return widgets.HTML(value=value, layout=widgets.Layout(width="100%"))


def button(label: str, pressed: Callable[[], None], tip: str) -> widgets.Button:
    """A button that calls a function without arguments."""
    made = widgets.Button(description=label, tooltip=tip)
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
    return widgets.VBox(list(children), layout=widgets.Layout(width="100%", padding="6px"))


def row(*children: widgets.Widget) -> widgets.HBox:
    """Side by side, on a second line where there is no room."""
    return widgets.HBox(list(children), layout=widgets.Layout(flex_flow="row wrap", align_items="center"))


class Progress:
    """A bar with a stop button, seen while something is going on."""

    def __init__(self, label: str, stop: Callable[[], None]) -> None:
        self.bar = labelled(widgets.IntProgress, label, WIDE, min=0, max=100)
        self.stop = button("Stop", stop, "Stop, and keep what was found")
        self.box = row(self.bar, self.stop)
        self.end()

    def begin(self) -> None:
        self.bar.value, self.box.layout.display = 0, ""

    def told(self, done: int, whole: int) -> None:
        """So many of so many."""
        percent = 100 * done // max(whole, 1)
        if percent != self.bar.value:
            self.bar.value = percent

    def end(self) -> None:
        self.box.layout.display = "none"
