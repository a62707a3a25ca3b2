"""Elements to try: prefixes and the suffixes that steer the pivots, simplest first.

A shape gives one number per element and coordinate.  Numbers are small integers and simple fractions; a domain maps
them monotonically into what the operator is defined for.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from math import cos, gcd, pi, sin

import numpy as np

STILL = Fraction(1, 2)
"""The value of a coordinate that a shape does not use."""

OWN, OTHERS, ALL = "own", "others", "all"
"""Which coordinates of a ramp move: its own, all but its own, or all."""

_BEND, _MIRROR, _FAR = 26, 60, 1000
_QUARTER = Fraction(1, 4)
_RIDGE = Fraction(5, 4)
_MOST = 3
"""Coordinates that are tried in turn; an element with more of them has more of the same kind."""

Domain = Callable[[Fraction], Fraction]


@dataclass(frozen=True)
class Shape:
    """A prefix, which of its coordinates move (none named: all), and pools of suffixes, each of one length.

    `scalable`: the same with numbers closer together is worth a try.
    """

    prefix: np.ndarray
    pools: tuple[list[np.ndarray], ...]
    moving: tuple[int, ...] = ()
    scalable: bool = False


def real(value: Fraction) -> Fraction:
    """Any number."""
    return value


def shifted(value: Fraction) -> Fraction:
    """Numbers that formulas do not compare with."""
    return value + Fraction(1, 8)


def positive(value: Fraction) -> Fraction:
    """A positive number: v itself, and 1/(2 − v) for v < 1."""
    return value if value >= 1 else 1 / (2 - value)


def unit(value: Fraction) -> Fraction:
    """A number between 0 and 1; numbers near 0 are spread evenly about the middle."""
    return (1 + value / (abs(value) + _BEND)) / 2


def negative(value: Fraction) -> Fraction:
    """A negative number: the positive ones in the mirror."""
    return -positive(_MIRROR - value)


def negative_unit(value: Fraction) -> Fraction:
    """A number between −1 and 0."""
    return -unit(-value)


def geometric(value: Fraction) -> Fraction:
    """A positive number, close to 2ᵛ."""
    whole = value.numerator // value.denominator
    return Fraction(2) ** whole * (1 + value - whole)


def geometric_negative(value: Fraction) -> Fraction:
    """A negative number on a scale of powers."""
    return -geometric(_MIRROR - value)


def geometric_unit(value: Fraction) -> Fraction:
    """A number between 0 and 1 that can be very close to either."""
    return geometric(value) / (1 + geometric(value))


def skewed(value: Fraction) -> Fraction:
    """Numbers whose distances to whole numbers differ."""
    return value * Fraction(65, 64)


def finer(domain: Domain) -> Domain:
    """A domain with its numbers closer together."""
    return lambda value: domain(value) / 8


def mapped(elements: np.ndarray, domains: list[Domain]) -> np.ndarray:
    """Elements with each coordinate in its domain."""
    made = np.empty(elements.shape, object)
    for at, domain in enumerate(domains):
        made[:, at] = [domain(value) for value in elements[:, at]]
    return made


def still(count: int, width: int) -> np.ndarray:
    """Elements that are all alike."""
    return np.full((count, width), STILL, object)


def spread(shape: Shape) -> Iterator[Shape]:
    """The same with numbers of their own where all elements were alike; nothing if they were so nowhere."""
    prefix, alike = shape.prefix.copy(), (shape.prefix == shape.prefix[:1]).all(axis=0)
    for at in np.flatnonzero(alike):
        prefix[:, at] = [Fraction((7 + 4 * int(at)) * k % 26 + 1, 2) for k in range(len(prefix))]
    if alike.any():
        yield replace(shape, prefix=prefix)


def ramps(count: int, width: int, moves: str, values: list[Fraction] | None = None, step: int = 1) -> Iterator[Shape]:
    """1, 2, 3, … along one coordinate; suffixes of one element steer one coordinate each, through `values`.

    What `moves` is the ramp's own coordinate, the others, or all.  With a `step` of 2 no element is another's double:
    roundings to floats treat those alike.
    """
    for along in range(min(width, _MOST)):
        steered = [along, *(other for other in range(min(width, _MOST)) if other != along)]
        pools = tuple(_steering(values or levels(count), width, along, coordinate) for coordinate in steered)
        others = tuple(other for other in range(width) if other != along)
        moving = {OWN: (along,), OTHERS: others, ALL: ()}[moves]
        yield Shape(_ramp(count, width, along, step), pools, moving, scalable=True)


def walks(count: int, width: int) -> Iterator[Shape]:
    """Numbers that fall ever faster, or go up and down by amounts of their own, for states that others come to."""
    falling = [Fraction(-1 - at, 4) for at in range(count)]
    turning = [Fraction((-1) ** at * (7 * at % 26 + 1), 8) for at in range(count)]
    values = strides([Fraction(k * k, 8) + _QUARTER for k in range(4 * count)])
    for numbers in (falling, turning):
        for along in range(min(width, _MOST)):
            prefix = still(count, width)
            prefix[:, along] = numbers
            yield Shape(prefix, (_steering(values, width, along, along),), (along,), scalable=True)


def zigzags(count: int, width: int, values: list[Fraction]) -> Iterator[Shape]:
    """Numbers above and below by turns, each by an amount of its own, for what counts how often neighbours differ."""
    for along in range(min(width, _MOST)):
        prefix = still(count, width)
        prefix[:, along] = [Fraction((-1) ** at * (11 * at % 53 + 1)) for at in range(count)]
        yield Shape(prefix, (_steering(values, width, along, along),), (along,))


def crowds(count: int, width: int) -> Iterator[Shape]:
    """A ramp with suffixes of as many elements as the prefix, all alike: what one bounded element cannot steer."""
    values = strides([Fraction(k, 2) + _QUARTER for k in range(-count, 4 * count)])
    for along in range(min(width, _MOST)):
        pool = [np.repeat(suffix, count, axis=0) for suffix in _steering(values, width, along, along)]
        yield Shape(_ramp(count, width, along), (pool,), (along,))


def pads(count: int, width: int, often: int = 1) -> Iterator[Shape]:
    """A ramp, downwards along the other coordinates, with suffixes `often` times as long: ranks move along the ramp.

    Some of a suffix is below all of it and the rest above; or as much below as above, and the rest in its middle.
    """
    length = often * count
    for along in range(min(width, _MOST)):
        prefix = np.stack([_ramp(count, 1, 0)[::1 if at == along else -1, 0] for at in range(width)], axis=1)
        numbers = strides(list(range(length + 1)))
        outside = [_padding(length, width, along, low, length - low) for low in numbers]
        yield Shape(prefix, (outside, [_padding(length, width, along, far // 2, far - far // 2) for far in numbers]))


def centred(count: int, width: int) -> Iterator[Shape]:
    """A ramp with suffixes of one element more, ever more of them near 0 and the rest far below: deviations from the middle."""
    for along in range(min(width, _MOST)):
        pool = []
        for near in strides(list(range(1, count + 1))):
            suffix = _ramp(count + 1, 1, 0).repeat(width, axis=1) + STILL
            suffix[:, along] = [Fraction(1, 2 ** at) if at <= near else Fraction(-_FAR - at) for at in range(1, count + 2)]
            pool.append(suffix)
        yield Shape(_ramp(count, width, along), (pool,), (along,))


def far_pads(count: int, width: int, often: int) -> Iterator[Shape]:
    """A ramp with suffixes `often` times as long, almost all below it or almost all above: for quantiles near either end."""
    length = often * count
    for along in range(min(width, _MOST)):
        few = strides(list(range(4 * count)))
        for below in (True, False):
            pool = [_far(length, width, along, some if below else length - some) for some in few]
            yield Shape(_ramp(count, width, along), (pool,))


def scaled(count: int, width: int) -> Iterator[Shape]:
    """A ramp at several scales, with suffixes of one element that steer in small steps: sums over the largest then hold few or many."""
    steered = strides([4 * k + Fraction(3, 13) for k in range(-20, 160)])
    for scale in (Fraction(1, 64), Fraction(1, 128), Fraction(1, 512)):
        pools = (_steering([scale * value for value in steered], width, 0, at) for at in range(min(width, _MOST)))
        yield Shape(_ramp(count, width, 0) * scale, tuple(pools))


Steered = Callable[[Fraction], np.ndarray]
"""The suffix of a number."""


def ridges(count: int, width: int, often: int = 1) -> Iterator[tuple[Shape, Steered]]:
    """Numbers close together, away from 0, and suffixes that steer: `often` elements, all alike."""
    for along in range(min(width, _MOST)):
        prefix = still(count, width)
        prefix[:, along] = [1 + Fraction(at, 2 * count) for at in range(count)]
        shape = Shape(prefix, (), tuple(range(width)))
        for made in (shape, *spread(shape)):
            for steered in (along, *(other for other in range(min(width, _MOST)) if other != along and often == 1)):
                yield made, partial(_repeated, often, width, along, steered)
            if often > 1:
                yield made, partial(_mirrored, often, width, along)


def _repeated(often: int, width: int, along: int, steered: int, value: Fraction) -> np.ndarray:
    return np.repeat(_steering([value], width, along, steered)[0], often, axis=0)


def _mirrored(often: int, width: int, along: int, value: Fraction) -> np.ndarray:
    """Elements as far above the middle of a ridge as below it: they steer the spread, and leave the mean there."""
    suffix = still(often, width)
    suffix[:, along] = [_RIDGE + (-1) ** at * value for at in range(often)]
    return suffix


def _padding(count: int, width: int, along: int, low: int, high: int) -> np.ndarray:
    suffix = _ramp(count, 1, 0).repeat(width, axis=1) + STILL
    suffix[:, along] = [Fraction(-_FAR - at) if at < low else Fraction(_FAR + at) if at < low + high else
                        Fraction(count, 2) + Fraction(at + 1, _FAR) for at in range(count)]
    return suffix


def _far(count: int, width: int, along: int, high: int) -> np.ndarray:
    """So many of the elements above a ramp, the others below it, but above 0."""
    suffix = still(count, width)
    suffix[:, along] = [Fraction(_FAR + at) if at < high else Fraction(1, 2 + at) for at in range(count)]
    return suffix


def opposed(count: int, width: int) -> Iterator[Shape]:
    """1, 2, 3, … along one coordinate and the same numbers downwards along another: no element is better in both."""
    for up, down in permutations(range(min(width, _MOST)), 2):
        prefix = _ramp(count, width, up)
        prefix[:, down] = prefix[::-1, up]
        pools = tuple(_steering(levels(count), width, up, steered) for steered in (up, down))
        yield Shape(prefix, pools)


def _ramp(count: int, width: int, along: int, step: int = 1) -> np.ndarray:
    prefix = still(count, width)
    prefix[:, along] = [Fraction(1 + step * i) for i in range(count)]
    return prefix


def _steering(values: list[Fraction], width: int, along: int, steered: int) -> list[np.ndarray]:
    suffixes = []
    for value in values:
        suffix = still(1, width)
        suffix[0, along], suffix[0, steered] = _QUARTER, value
        suffixes.append(suffix)
    return suffixes


def levels(count: int) -> list[Fraction]:
    """Numbers near the elements, numbers that steer a fraction of the maximum, numbers that steer the mean."""
    near = {k + _QUARTER for k in range(-2, count + 2)}
    middle = {5 * k + _QUARTER for k in range(-count // 4, count + 2)}
    total = Fraction(count * (count + 1), 2)
    wide = {(count + 1) * (k + STILL) - total for k in range(2 * count)}
    return strides(sorted(near | middle | wide))


def hitting_levels(count: int) -> list[Fraction]:
    """Numbers that steer the maximum or the mean exactly to an element, and those of `levels`."""
    total = Fraction(count * (count + 1), 2)
    hits = [(count + 1) * k - total for k in range(1, count + 1)]
    return [level for pair in zip(hits, levels(count), strict=False) for level in pair] + levels(count)[count:]


def crossing_levels(count: int) -> list[Fraction]:
    """The same, and numbers that steer the mean to between those."""
    total = Fraction(count * (count + 1), 2)
    return levels(count) + [(count + 1) * (k + Fraction(j, 8)) - total for k in range(3 * count // 2) for j in (3, 7)]


def fine_levels() -> list[Fraction]:
    """Numbers a quarter apart, around 0."""
    return strides([Fraction(k, 4) for k in range(-16, 28)])


def strides(values: list) -> list:
    """The same values, in an order that covers their range early."""
    n = len(values)
    stride = next(s for s in range(max(1, int(0.382 * n)), n + 1) if gcd(s, n) == 1)
    return [values[(i * stride) % n] for i in range(n)]


def pairs(count: int, width: int) -> Iterator[Shape]:
    """A ramp with suffixes of two elements: what one element cannot steer alone (mean and spread at once)."""
    for along in range(min(width, _MOST)):
        values = levels(count)
        pool = []
        for first, second in zip(values, values[len(values) // 3:] + values, strict=False):
            suffix = still(2, width)
            suffix[:, along] = first, second + STILL
            pool.append(suffix)
        yield Shape(_ramp(count, width, along), (pool,))


def stairs(count: int, width: int) -> list[np.ndarray]:
    """Elements that grow in every coordinate, and from one coordinate to the next, or to the one before."""
    up = np.array([[1 + at + Fraction(2 * place, 2 * width + 1) for place in range(width)] for at in range(count)], object)
    return [up, up[:, ::-1]] if width > 1 else [up]


def flights(count: int, width: int) -> Iterator[Shape]:
    """Stairs with suffixes of one element that steer one coordinate, the others below all elements or above them."""
    for prefix, steered, other in product(stairs(count, width), range(min(width, _MOST)), (-_FAR, _FAR)):
        pool = np.full((count, width), Fraction(other), object)
        pool[:, steered] = strides([k - _QUARTER / width for k in range(1, count + 1)])
        yield Shape(prefix, ([suffix[None] for suffix in pool],))


def circles(count: int, width: int, radius: int = 1000) -> Iterator[Shape]:
    """Points of a circle in the plane of two coordinates; suffixes of one element lie inside it, all around."""
    planes = [(a, b) for a in range(min(width, _MOST)) for b in range(a + 1, min(width, _MOST))]
    for plane in planes:
        prefix = still(count, width)
        for at in range(count):
            prefix[at, plane] = _on_circle(radius, at / count)
        pool = []
        for at in strides(list(range(4 * count))):
            suffix = still(1, width)
            suffix[0, plane] = _on_circle(radius // 2, (at + 0.5) / (4 * count))
            pool.append(suffix)
        yield Shape(prefix, (pool,))


def _on_circle(radius: int, turn: float) -> tuple[Fraction, Fraction]:
    return Fraction(round(radius * cos(2 * pi * turn))), Fraction(round(radius * sin(2 * pi * turn)))


def all_steerings(count: int, width: int) -> tuple[list[np.ndarray], ...]:
    """Suffixes of one element that steer each coordinate in turn, finely and then widely."""
    return tuple(_steering(values, width, steered, steered)
                 for values in (fine_levels(), levels(count)[::2]) for steered in range(min(width, _MOST)))


def between(limits: list[float]) -> list[Fraction]:
    """One number strictly between each two neighbours of an increasing list, all with one small denominator."""
    gap = min(after - before for before, after in zip(limits, limits[1:], strict=False))
    denominator = 1
    while denominator * gap <= 1:
        denominator *= 2
    return [Fraction(int(before * denominator // 1) + 1, denominator) for before in limits[:-1]]
