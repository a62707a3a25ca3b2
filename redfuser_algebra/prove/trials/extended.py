"""Exact numbers with infinities and NaN: what a fused form computes over the reals, guards included.

A number is a rational (fmpq), a ball that contains its value (arb), or inf, −inf or nan as a Python float.  Where
terms are rational so is the arithmetic; infinities and NaN follow IEEE 754.  A ball too wide to answer raises Undecided.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np
from flint import arb, fmpq

from redfuser_algebra.prove.refutation.numbers import balls, working, written

BITS = 160
"""Precision of balls."""

TOLERANCE = 2.0 ** -40
"""Balls that overlap count as equal if their radii are below this, relative to 1 + their size."""

Exact = fmpq | arb | float
NAN, INF = float("nan"), float("inf")
ZERO, ONE = fmpq(0), fmpq(1)


class Undecided(Exception):
    """A ball is too wide to tell which of two things holds."""


@contextmanager
def exactly() -> Iterator[None]:
    """A context in which arithmetic has the precision of BITS, and in which infinities are nothing to warn of."""
    with working(balls(BITS)), np.errstate(all="ignore"):
        yield


@cache
def simplest(value: float) -> Fraction:
    """The simplest fraction that rounds to a float: 0.2 is 1/5, and 0.3333333333333333 is 1/3."""
    for bound in (10**3, 10**6, 10**9):
        near = Fraction(value).limit_denominator(bound)
        if float(near) == value:
            return near
    return Fraction(value)


@lru_cache(maxsize=4096)
def exact(value: object) -> Exact:
    """A Python number as an exact one."""
    if isinstance(value, float):
        if not abs(value) < INF:
            return value
        value = simplest(value)
    fraction = Fraction(value)
    return fmpq(fraction.numerator, fraction.denominator)


def is_special(a: Exact) -> bool:
    """Whether a number is inf, −inf or NaN."""
    return isinstance(a, float)


def sign(a: Exact) -> int:
    """−1, 0 or 1 of a number that is not NaN.  Raises Undecided."""
    if a > 0:
        return 1
    if a < 0:
        return -1
    if a == 0:
        return 0
    raise Undecided(f"the sign of {written(a)}")


def order(a: Exact, b: Exact) -> int | None:
    """−1, 0 or 1; None if one of them is NaN.  Raises Undecided."""
    if a != a or b != b:
        return None
    if a is b:
        return 0
    if is_special(a) or is_special(b):
        a, b = (x if is_special(x) else 0.0 for x in (a, b))
        return (a > b) - (a < b)
    return sign(a - b)


def shown(a: Exact | bool) -> str:
    """A number in full if it is rational, otherwise with ten digits."""
    return str(a) if isinstance(a, bool | float) else written(a)


def agree(a: Exact | bool, b: Exact | bool) -> bool:
    """Whether two results are the same number: rationals exactly, balls if they overlap.  Raises Undecided."""
    if is_special(a) or is_special(b):
        return a == b or a != a and b != b
    if isinstance(a, arb) or isinstance(b, arb):
        a, b = arb(a), arb(b)
        if not a.overlaps(b):
            return False
        if radius(a) > TOLERANCE or radius(b) > TOLERANCE:
            raise Undecided(f"whether {written(a)} is {written(b)}")
        return True
    return bool(a == b)


def radius(a: Exact | bool) -> float:
    """The radius of a ball relative to 1 + its size; 0 for other numbers."""
    if not isinstance(a, arb):
        return 0.0
    return float(a.rad()) / (1 + abs(float(a.mid()))) if a.is_finite() else 1.0


def is_moderate(a: Exact | bool) -> bool:
    """Whether a number can be written out: e to the 10¹⁵ has more digits than there is memory."""
    if not isinstance(a, arb) or a.is_zero():
        return True
    return bool(abs(a.mid()) < arb(2) ** 20000) and bool(abs(a.mid()) > arb(2) ** -20000)
