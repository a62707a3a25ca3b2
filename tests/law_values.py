"""Values for the variables of a law: rationals, floats that laws break on, and floats with short mantissas.

In: the sides and side conditions of a row.  Out: one array per variable that meets the conditions.
"""

from fractions import Fraction

import numpy as np
from law_arithmetic import EXACT, FLOATS
from law_terms import BOOLEAN, conditions, outside_contractions, parts, variables


def drawn(sides, requires, grid, rng, pools):
    """Values for the variables of the sides of a row that meet its side conditions."""
    return Draw(sides, conditions(requires), grid, rng, pools).values(variables(*sides))


class Draw:
    """One draw: which variables vary along l and k, and which pool each is chosen from.

    A variable that a row has outside its contractions does not vary along their axis: the search gives every
    contraction an axis of its own.
    """

    def __init__(self, sides, required, grid, rng, pools):
        self.required, self.grid, self.rng, self.pools = required, grid, rng, pools
        self.flat = set().union(*map(outside_contractions, sides))
        self.truth = {operand for side in sides for part in parts(side) if isinstance(part, tuple)
                      and part[0] in BOOLEAN for operand in part[1:]}
        self.signs = {inside[0]: name for name, inside in required if name in SIGNS}
        self.still = {variable for name, inside in required for variable in inside[slice(*STILL.get(name, (0, 0)))]}

    def values(self, names):
        values = {name: self.variable(name) for name in names}
        for name, inside in self.required:
            if name in TIES:
                values |= dict(zip(inside, TIES[name](self, *(values[each] for each in inside)), strict=True))
        return values

    def variable(self, name):
        shape = (1 if name in self.still else self.grid.length, 1 if name in self.flat else self.grid.width,
                 self.grid.draws)
        return self.chosen("truth" if name in self.truth else self.signs.get(name, "any"), shape)

    def chosen(self, kind, shape):
        pool = self.pools[kind]
        return pool[self.rng.integers(len(pool), size=shape)]


def _bounded(drawn, a, p):
    """|a| ≤ 2p, with p ≥ 0 and 0 among the values of p."""
    p = drawn.chosen("nonnegative", p.shape)
    return p * drawn.chosen("factor", a.shape), p


def _settled(drawn, a, p, q):
    """a ≤ p ≤ q or a ≥ p ≥ q for every element, with ties."""
    largest = drawn.rng.random() < 0.5
    best = EXACT.reduced if a.dtype == object else FLOATS.reduced
    p = best("max" if largest else "min", a, 0) if drawn.rng.random() < 0.5 else _further(a, p, largest)
    return a, p, _further(p, q, largest)


def _further(a, p, largest):
    pick = "maximum" if largest else "minimum"
    arithmetic = EXACT if a.dtype == object else FLOATS
    for each in a:
        p = arithmetic.apply(pick, [p, each[None]], None)
    return p


def _follows(drawn, a, p, q):
    """a are the positions of elements, p those of an earlier top-k, q one of a later: among p, or new."""
    length, width, draws = drawn.grid.length, drawn.grid.width, drawn.grid.draws
    number = (lambda value: Fraction(int(value))) if a.dtype == object else float
    a = np.array([number(i) for i in range(length)], a.dtype).reshape(length, 1, 1) + np.zeros((1, 1, draws), int)
    columns = [[number(i) for i in drawn.rng.permutation(max(length, width))[:width]] for _ in range(draws)]
    p = np.array(columns, a.dtype).T.reshape(1, width, draws)
    chosen = [number(drawn.rng.choice([*map(int, column), length + width])) for column in columns]
    return a, p, np.array(chosen, a.dtype).reshape(1, 1, draws)


def _distinct(drawn, a, q):
    """a are the positions of elements, q different ones."""
    a, q, _ = _follows(drawn, a, q, q)
    return a, q


def _below(drawn, a, q):
    return a, _further(a, q, True)


def _above(drawn, a, q):
    return a, _further(a, q, False)


TIES = {"bounded": _bounded, "distinct": _distinct, "below": _below, "above": _above, "settled": _settled, "follows": _follows}
"""Conditions between variables, and how to draw values that meet them."""

SIGNS = ("positive", "nonnegative", "nonpositive")
STILL = {"invariant": (0, 1), "moving": (0, 1), "pivot": (0, 2), "bounded": (1, 2), "below": (1, 2), "above": (1, 2), "distinct": (1, 2), "settled": (1, 3),
         "follows": (1, 3)}
"""Which variables of a condition do not vary along l."""

CONDITIONS = {"varying": 1, "element": 1, **dict.fromkeys(SIGNS, 1),
              **{name: stop for name, (_, stop) in STILL.items()}}
"""Every condition a row may ask for, with the number of its variables."""


def _fractions(*values):
    pool = np.empty(len(values), object)
    pool[:] = values
    return pool


_SMALL = sorted({Fraction(n, d) for n in range(-6, 7) for d in (1, 2, 3, 5)})
RATIONALS = {
    "any": _fractions(*_SMALL),
    "positive": _fractions(*(value for value in _SMALL if value > 0)),
    "nonnegative": _fractions(*(value for value in _SMALL if value >= 0)),
    "nonpositive": _fractions(*(value for value in _SMALL if value <= 0)),
    "factor": _fractions(*(Fraction(n, 3) for n in range(-6, 7))),
    "truth": _fractions(True, False),
}

_EXTREME = np.array([0.0, 5e-324, 2.2250738585072014e-308, 1e-300, 1e-8, 0.1, 0.5, 1.0, 1 + 2**-52, 1 - 2**-53, 1.5,
                     2.0, 2.5, np.pi, 7.0, 700.0, 710.0, 1e8, 2.0**53, 1e300, 1.7976931348623157e308, np.inf])
ADVERSARIAL = {
    "any": np.concatenate([_EXTREME, -_EXTREME, [np.nan, 0.3, np.nextafter(0.3, 1)]]),
    # What is positive over the reals may underflow to 0 on floats, and NaN has no sign at all.
    "positive": np.array([*_EXTREME, np.nan]),
    "nonnegative": np.array([*_EXTREME, np.nan, -0.0]),
    "nonpositive": np.array([*-_EXTREME, np.nan, 0.0]),
    "factor": np.array([-1.0, 0.0, 0.5, 1.0]),
    "truth": np.array([True, False]),
}
"""Floats that laws break on."""

_EVEN = np.arange(-256, 257) / 64
BENIGN = {
    "any": _EVEN[_EVEN != 0], "positive": _EVEN[_EVEN > 0], "nonnegative": _EVEN[_EVEN >= 0],
    "nonpositive": _EVEN[_EVEN <= 0], "factor": np.array([-1.0, -0.5, 0.0, 0.5, 1.0]),
    "truth": np.array([True, False]),
}
"""Floats with short mantissas, so that sums and ties are exact and only what the law does is rounded."""
