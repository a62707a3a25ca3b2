"""States that are multiplied together by powers of two, so that they stay within the range of floats.

In: the scalings of a program, and what its states are called.  Out: statements, the same for CPU and GPU.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import Scaling


def rescaling(scalings: Iterable[Scaling], names: Mapping[str, str]) -> Iterator[str]:
    """Statements that bring what left the middle of float64's range back, by a power of two; `names` are the variables in sight.

    Where one is infinite or NaN, the size of the others counts; where all are such, or 0, they stay, and so does the exponent: ∞ · 0 would be NaN.
    """
    for scaling in scalings:
        here = [(names[name], weight) for name, weight in scaling.weights if name in names]
        if here:
            low, high, shift = f"2.0**-{scaling.shift // 2}", f"2.0**{scaling.shift // 2}", scaling.shift
            factors = {weight: " * ".join(["power"] * weight) for _, weight in here}
            yield f"size = {_largest(f'abs({name})' for name, _ in here)}"
            yield f"if not {low} <= size <= {high}:"
            yield f"    size = {_largest(f'(abs({name}) if {name} - {name} == 0 else 0.0)' for name, _ in here)}"
            yield f"    power = 2.0**-{shift} if size > {high} else 2.0**{shift} if 0.0 < size < {low} else 1.0"
            yield f"    {', '.join(name for name, _ in here)} = {', '.join(f'{name} * {factors[weight]}' for name, weight in here)}"
            if scaling.exponent in names:
                count = names[scaling.exponent]
                yield f"    {count} = {count} + ({float(shift)} if size > {high} else {float(-shift)} if 0.0 < size < {low} else 0.0)"


def _largest(numbers: Iterable[str]) -> str:
    return reduce(lambda a, b: f"max({a}, {b})", numbers)
