"""Arguments for catalogue operators that are meant to break fused forms: drawn as the entry says, then spoilt.

`spoilt_call(row, form)` is a Hypothesis strategy of (named arguments, chunk sizes).  A new kind of trouble is one
row of TROUBLES.
"""

import functools
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from redfuser_algebra.catalogue import operators
from redfuser_algebra.catalogue.entry import Entry

SMALLEST = 5e-324
SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, SMALLEST, -1e-310, 1e30, -1e30, 800.0, -800.0, 1e8)
LONGEST = 12


def put(values, at, special):
    values.reshape(-1)[at % values.size] = special


def put_tile(values, at, special):
    values[sorted((at % (len(values) + 1), at // 7 % (len(values) + 1)))[0] : max(at % 5, at % (len(values) + 1))] = special


def put_first(values, at, special):
    values[:at] = special


def make_equal(values, at, special):
    values[...] = values[at % len(values)] if np.isnan(special) else special


TROUBLES = {
    "one element": put,
    "a tile": put_tile,
    "the first tile": put_first,
    "a hidden tile": lambda values, at, special: put_tile(values, at, -np.inf),
    "an offset": lambda values, at, special: np.add(values, 1e8, out=values),
    "a constant row": make_equal,
    "zeros": lambda values, at, special: values.fill(0.0),
    "ties": lambda values, at, special: np.round(values, out=values),
    "large": lambda values, at, special: np.multiply(values, 1e30, out=values),
    "subnormal": lambda values, at, special: np.multiply(values, 1e-310, out=values),
}
"""What can happen to an array whose first dimension is the reduced axis: (values in place, a number, a special value)."""


SITUATIONS = {
    "a hidden tile before scores far below 0": [("a constant row", 0, -800.0), ("the first tile", 5, -np.inf)],
    "a tile without weight": [("the first tile", 5, 0.0)],
    "no weight at all": [("zeros", 0, 0.0)],
    "everything hidden": [("a constant row", 0, -np.inf)],
    "everything infinite": [("a constant row", 0, np.inf)],
    "infinite at first": [("the first tile", 1, np.inf)],
    "a NaN at last": [("one element", -1, np.nan)],
    "large against its spread": [("an offset", 0, 1.0)],
    "equal numbers that no float holds": [("a constant row", 0, 0.1)],
    "subnormal": [("subnormal", 0, 1.0)],
}
"""Troubles in all inputs that have the reduced axis: what each guard is there for."""
SITUATION_CHUNKS = (5, 1, 0, 6)


def in_situation(row, form, situation):
    """Named arguments of length 12 in that situation."""
    given = drawn(row, 1, sum(SITUATION_CHUNKS))
    inside = domain(row.operator.name, assumed_positive(*row.operator.assume, *form.assumptions))
    for name in inside.kinds:
        if "l" in row.operator.inputs[name]:
            for trouble in SITUATIONS[situation]:
                given[name] = spoilt(row, inside, name, given[name], *trouble)
    return given


@dataclass(frozen=True)
class Domain:
    """Which inputs may be spoilt: `real` ones by anything, `nonnegative` and `positive` ones within their domain."""

    kinds: dict[str, str]

    def restored(self, name, values):
        """The values brought back into the domain of the input."""
        if self.kinds[name] == "real":
            return values
        inside = np.abs(values)
        return np.where(inside == 0, SMALLEST, inside) if self.kinds[name] == "positive" else inside


@functools.cache
def domain(name, assumed):
    """What an entry draws: whole numbers (labels, masks, one-hot rows) stay as drawn, signs are kept."""
    row = operators.entry(name)
    draws = [row.inputs(np.random.default_rng(seed), max(9, row.shortest)) for seed in range(6)]
    kinds = {}
    for array in row.operator.inputs:
        values = np.concatenate([np.ravel(draw[array]) for draw in draws])
        if (values != np.floor(values)).any():
            kinds[array] = "positive" if array in assumed else "nonnegative" if (values > 0).all() else "real"
    return Domain(kinds)


def assumed_positive(*conditions):
    """The inputs that a comparison with a number, such as x > 0, speaks of."""
    return tuple(sorted({c.args[0].name for c in conditions if c.args and c.args[0].op == "input"}))


def drawn(row: Entry, seed, length):
    """Arguments as the entry draws them, cut to a length that may be shorter than the entry's shortest, even 0."""
    given = row.inputs(np.random.default_rng(seed), max(length, row.shortest))
    for name, axes in row.operator.inputs.items():
        if "l" in axes:
            given[name] = np.take(given[name], range(length), axis=axes.index("l"))
    return given


@st.composite
def spoilt_call(draw, row: Entry, form):
    """Named arguments for the operator of `row`, up to three troubles in them, and chunk sizes."""
    length = draw(st.integers(0, LONGEST), "length")
    given = drawn(row, draw(st.integers(0, 2**16), "seed"), length)
    inside = domain(row.operator.name, assumed_positive(*row.operator.assume, *form.assumptions))
    names = [name for name in inside.kinds if np.size(given[name])]
    happened = st.tuples(st.sampled_from(names), st.sampled_from(list(TROUBLES)), st.integers(0, 2**10), st.sampled_from(SPECIAL))
    for name, trouble, at, special in draw(st.lists(happened, max_size=3), "troubles") if names else ():
        given[name] = spoilt(row, inside, name, given[name], trouble, at, special)
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=4), "cuts"))
    return given, np.diff([0, *cuts, length]).tolist()


def spoilt(row, inside, name, values, trouble, at, special):
    """A copy of the values with one trouble in it, the reduced axis first while it happens."""
    axes = row.operator.inputs[name]
    values = np.array(values, float, order="C")
    along = np.ascontiguousarray(np.moveaxis(values, axes.index("l"), 0) if "l" in axes else values.reshape(-1))
    TROUBLES[trouble](along, at, special)
    back = np.moveaxis(along, 0, axes.index("l")) if "l" in axes else along.reshape(values.shape)
    return inside.restored(name, back)
