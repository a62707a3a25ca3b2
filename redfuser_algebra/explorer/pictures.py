"""Pictures as SVG: drawn by matplotlib without its global state, in the colour of the page's own text.

In: numbers and names.  Out: HTML fragments, the same bytes for the same picture.
"""
from __future__ import annotations

import io
import threading
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from redfuser_algebra.language.html import Picture, said

INK = "#0a0b0c"
"""Stands for the colour of the page's text, so that a picture fits a dark theme, too."""
MOVED, KEPT, FAINT = "#d9822b", "#3182bd", "#9aa0a6"
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "redfuser", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
             "xtick.color": INK, "ytick.color": INK, "font.size": 9, "font.family": "sans-serif", "axes.spines.top": False, "axes.spines.right": False,
             "text.parse_math": False}
_lock = threading.Lock()


class picture:
    """`with picture("what it shows", width, height) as drawing:` draw on `drawing.axes`; then `drawing.svg`.

    `columns` are the relative widths of axes side by side, which are `drawing.all_axes`.
    """

    def __init__(self, title: str, width: float, height: float, columns: Sequence[float] = (1,)) -> None:
        self.title, self.width, self.height, self.columns = title, width, height, columns
        self.svg = Picture()
        self._marked: list[tuple[Axes, float]] = []

    def __enter__(self) -> picture:
        _lock.acquire()
        self._settings = rc_context(_SETTINGS)
        self._settings.__enter__()
        self.figure = Figure(figsize=(self.width, self.height), layout="constrained")
        self.all_axes: Sequence[Axes] = self.figure.subplots(1, len(self.columns), squeeze=False, width_ratios=self.columns)[0]
        self.axes = self.all_axes[0]
        return self

    def marker(self, axes: Axes, start: float) -> None:
        """A line across the axes that `at` puts elsewhere without drawing again."""
        self._marked.append((axes, start))
        axes.axvline(start, color=MOVED, linewidth=1.4, gid=f"marker{len(self._marked)}")

    def at(self, place: float) -> Picture:
        """The picture with its markers at this place."""
        moved = self.svg
        for number, (axes, start) in enumerate(self._marked, 1):
            low, high = axes.get_xlim()
            step = 72 * self.width * axes.get_position().width / (high - low)
            moved = moved.replace(f'<g id="marker{number}">', f'<g id="marker{number}" transform="translate({(place - start) * step:.2f} 0)">')
        return Picture(moved)

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            if kind is None:
                self.svg = self._printed()
        finally:
            self._settings.__exit__(kind, *rest)
            _lock.release()

    def _printed(self) -> Picture:
        written = io.StringIO()
        self.figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = written.getvalue()
        drawn = text[text.index("<svg"):].replace(INK, "currentColor")
        label = said(self.title).replace('"', "&quot;")
        return Picture(drawn.replace("<svg", f'<svg role="img" aria-label="{label}" style="max-width:100%;height:auto"', 1))


def counted(axes: Axes) -> None:
    """Whole numbers along the axis to the right."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def bare(axes: Axes) -> None:
    """No frame, no ticks."""
    axes.set_axis_off()


def short(number: float) -> str:
    """A number in few letters."""
    if number != number or number in (float("inf"), float("-inf")):
        return {True: "∞", False: "−∞"}[number > 0] if number == number else "NaN"
    return f"{number:.4g}".replace("-", "−").replace("e+0", "e").replace("e+", "e").replace("e−0", "e−")
