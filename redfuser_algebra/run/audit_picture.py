"""The picture of an audit: a kernel under the roofline of a card, and how full its blocks make a multiprocessor.

In: a card, an estimate, and the limits of each binary.  Out: SVG in the colour of the page's own text, the same for the same audit.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from redfuser_algebra.language.html import Fragment, Picture, element
from redfuser_algebra.ptx.cards import Card, Estimate

WIDTH, HEIGHT, LEFT, TOP, ROW = 800, 300, 64, 40, 22
PLOT, BARS = 380, 470
"""Where the roofline ends and the bars of occupancy begin."""
POINT, ROOF, FAINT = "#d9822b", "#3182bd", "#9aa0a6"
LOW, HIGH, DEEP = 1 / 16, 1024.0, 4.0
"""Operations per byte at both ends of the axis, and by how many powers of 10 the lowest rate lies under the highest."""


def pictured(title: str, card: Card, estimate: Estimate | None, binaries: Sequence[tuple[str, Mapping[str, int], float]]) -> Picture:
    """`binaries` are names, blocks that each resource has room for, and the part of the warps that are there."""
    height = max(HEIGHT, TOP + 3 * ROW * len(binaries) + 2 * ROW)
    parts = [element("text", title, x=str(LEFT), y="18", **{"font-weight": "bold"}), *_roofline(card, estimate, height), *_occupancy(binaries)]
    return Picture(element("svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height}", width=str(WIDTH), height=str(height), role="img",
                   fill="currentColor", style="max-width:100%;height:auto", **{"aria-label": title, "font-family": "sans-serif", "font-size": "11"}))


def _roofline(card: Card, estimate: Estimate | None, height: int) -> Iterator[Fragment]:
    """Rate over operations per byte, both as powers: the slope of the memory, the ceiling of each kind of arithmetic, the kernel."""
    highest = 10 ** (math.ceil(math.log10(max(card.peaks.values())) * 2) / 2)
    bottom = height - 2 * ROW

    def x(intensity: float) -> float:
        return LEFT + (PLOT - LEFT) * min(max(math.log(intensity / LOW) / math.log(HIGH / LOW), 0), 1)

    def y(rate: float) -> float:
        return TOP + (bottom - TOP) * min(max(math.log10(highest / rate) / DEEP, 0), 1)

    yield from (_line(LEFT, bottom, PLOT, bottom, "currentColor"), _line(LEFT, TOP, LEFT, bottom, "currentColor"))
    for power in range(-4, 11, 2):
        yield _text(f"{2.0**power:g}", x(2.0**power), bottom + 14, "middle")
    for power in range(math.ceil(math.log10(highest) - DEEP), math.floor(math.log10(highest)) + 1):
        yield _text(f"{10.0 ** (power - 3):g}", LEFT - 6, y(10.0**power) + 4, "end")
    yield _text("operations per byte of memory", (LEFT + PLOT) / 2, bottom + 30, "middle")
    yield _text("TFLOP/s", LEFT - 6, TOP - 8, "end")
    most = max(card.peaks.values())
    yield _line(x(LOW), y(LOW * card.bandwidth), x(most / card.bandwidth), y(most), ROOF)
    yield _text(f"memory {card.bandwidth / 1e3:.3g} TB/s", x(1.0) - 8, y(card.bandwidth) - 4, "end")
    for name, peak in card.peaks.items():
        yield _line(x(peak / card.bandwidth), y(peak), PLOT, y(peak), ROOF)
        yield _text(f"{name} {peak / 1e3:.3g}", PLOT, y(peak) - 4, "end")
    if estimate is not None and estimate.operations and estimate.bytes:
        place, rate = x(estimate.operations / estimate.bytes), y(estimate.operations / estimate.time / 1e3)
        yield element("circle", cx=f"{place:.1f}", cy=f"{rate:.1f}", r="5", fill=POINT)
        yield _text(f"{estimate.time:.3g} µs, {estimate.roofline:.0%}", place + 9, rate + 12, "start")


def _occupancy(binaries: Sequence[tuple[str, Mapping[str, int], float]]) -> Iterator[Fragment]:
    """For each binary the part of the warps that are there, and how many blocks each resource has room for."""
    full = WIDTH - BARS - 80
    yield _text("warps that are there at once", BARS, TOP - 8, "start")
    for number, (name, limits, part) in enumerate(binaries):
        top = TOP + 3 * ROW * number
        least = min(limits.values())
        yield _text(name, BARS, top + 12, "start")
        yield element("rect", x=str(BARS), y=str(top + 18), width=str(full), height="12", fill="none", stroke=FAINT)
        yield element("rect", x=str(BARS), y=str(top + 18), width=f"{full * part:.1f}", height="12", fill=POINT)
        yield _text(f"{part:.0%}", BARS + full + 6, top + 28, "start")
        room = ", ".join(f"{resource} {count}{' ◂' if count == least else ''}" for resource, count in limits.items())
        yield _text(f"blocks: {room}", BARS, top + 46, "start")


def _line(x: float, y: float, to: float, at: float, colour: str) -> Fragment:
    return element("line", x1=f"{x:.1f}", y1=f"{y:.1f}", x2=f"{to:.1f}", y2=f"{at:.1f}", stroke=colour, **{"stroke-width": "1.5"})


def _text(text: str, x: float, y: float, anchor: str) -> Fragment:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", **{"text-anchor": anchor})
