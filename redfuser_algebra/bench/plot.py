"""Measured rows as a picture: how many times as long each contestant takes."""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from redfuser_algebra.bench.measure import OURS, Measured
from redfuser_algebra.language.errors import OperatorError

COLOURS = {"NumPy": "#4c72b0", "SciPy": "#8172b3", "torch eager": "#dd8452", "torch.compile": "#c44e52", "torch SDPA": "#937860",
           "JAX jit": "#55a868", "reading alone": "#000000", "reading alone, torch": "#000000",
           "row sum": "#8c8c8c", "row sum, torch": "#8c8c8c", "copy": "#64b5cd", "copy, torch": "#64b5cd", "bare GEMM": "#ccb974"}


def checked(path: Path) -> Path:
    """A path that a picture can be written to.  Raises OperatorError without matplotlib, or for an ending it does not know."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise OperatorError(f"a plot in {path}", f"{path.suffix or 'no ending'} is no picture", "choose a name ending in .png, .svg or .pdf")
    try:
        import matplotlib  # noqa: F401  (only whether it is there)
    except ImportError:
        raise OperatorError(f"a plot in {path}", "matplotlib is not installed", "run `pip install 'redfuser-algebra[bench]'`") from None
    return path


def ratios(rows: Iterable[Measured], path: Path) -> Path:
    """One line per workload, one mark per contestant, at its time over the kernel's."""
    from matplotlib.figure import Figure

    rows = [row for row in rows if row.ours]
    figure = Figure(figsize=(9, 1.5 + 0.32 * len(rows)), layout="constrained")
    axes = figure.subplots()
    seen: set[str] = set()
    for place, row in enumerate(rows):
        for name, each in row.contestants.items():
            if name != OURS and each.milliseconds:
                axes.plot(each.milliseconds / row.ours, place, "x" if name.endswith(", torch") else "o",
                          color=COLOURS[name], label=None if name in seen else name)
                seen.add(name)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel=f"times as long as {OURS}", yticks=range(len(rows)), yticklabels=[row.workload for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    if seen:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path)
    return path


def bars(series: dict[str, dict[str, float]], title: str, path: Path) -> Path:
    """Groups of bars: for each key of `series` one group, with a bar for each inner key."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    inner = list(dict.fromkeys(name for group in series.values() for name in group))
    width = 0.8 / max(len(inner), 1)
    for number, name in enumerate(inner):
        places = [place + (number - (len(inner) - 1) / 2) * width for place, group in enumerate(series.values()) if name in group]
        axes.bar(places, [group[name] for group in series.values() if name in group], width, label=name)
    axes.set(xticks=range(len(series)), xticklabels=list(series), ylabel=title)
    axes.legend()
    figure.savefig(path)
    return path
