"""What is known of axes while NumPy code is traced: their lengths, and which of them turned out to be one.

Every axis gets a length of its own, a large prime, so that code which asks for shapes, makes ranges or reshapes runs
as it would.  A plain number that only happens to equal a length is found by tracing again with other primes.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain, count, islice
from math import prod

import numpy as np

from redfuser_algebra.language.tracing.place import refused

Dim = tuple[str, ...]
"""The axes that one dimension runs over, slowest first: none for a dimension of length one, several if flattened."""

LISTED = 16
"""Up to so many elements along an axis are spoken of one by one."""

SMALLEST = 307
"""Lengths start here: code that treats short axes apart is read as for long ones."""

NEAR = 16
"""A number so near to a length is that length, and some; no two lengths are near the same number."""


@dataclass
class Axes:
    """The axes of one trace: `lengths` by name; `unions` collects the pairs that met, where names may be inferred.

    `origins` names the axis that each copy is a second, independent index over, `mirrors` the axis that each one runs over
    from its end, and `stretches` the axis that each slice is a part of, with the number of elements that it leaves out.  `listed` are the axes of constants written out one
    by one; the axes that meet them, `fixed`, have their lengths.  `tables` are arrays of constants that stay arrays, by name.  `halves` names the axis
    that each one is a half of, and `even` are the axes of which halves were asked: the function is then traced with even lengths.
    """

    lengths: dict[str, int]
    inferred: bool = False
    unions: list[tuple[str, str]] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    stretches: dict[str, tuple[str, int]] = field(default_factory=dict)
    mirrors: dict[str, str] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    fixed: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    halves: dict[str, str] = field(default_factory=dict)
    even: set[str] = field(default_factory=set)

    def origin(self, axis: str) -> str:
        """The axis that this one is a copy of; itself if it is none."""
        return self.origins.get(axis, axis)

    def apart(self, axis: str, taken: Collection[str]) -> str:
        """The axis, or its first copy, that is not taken."""
        origin = self.origin(axis)
        names = chain((origin,), (f"{origin}_{number}" for number in count(2)))
        name = next(name for name in names if name not in taken and (name not in self.lengths or self.origin(name) == origin))
        if name != origin:
            self.origins[name] = origin
            self.lengths[name] = self.lengths[origin]
        return name

    def distinct(self, names: Iterable[str]) -> tuple[str, ...]:
        """The axes, copies where one occurs again."""
        found: list[str] = []
        for name in names:
            found.append(name if name not in found else self.apart(name, found))
        return tuple(found)

    def met(self, one: Dim, other: Dim, what: str) -> Dim:
        """The dimension that two make where they meet position by position.  Raises OperatorError if they differ."""
        if one == other or other == ():
            return one
        if one == ():
            return other
        if len(one) == len(other) == 1 and self._fixes(one[0], other[0]):
            return other if self.origin(one[0]) in self.listed else one
        if len({name in self.mirrors for name in (*one, *other)}) > 1 and (self.inferred or self._mirrored(*one, *other)):
            raise refused(f"{what}, where axis {written(one)} meets axis {written(other)}", "each element meets the one as far from the other end",
                          "pass the reversed array as an input")
        if self.inferred and len(one) == len(other) == 1:
            (axis, left_out), (axis2, left_out2) = (self.stretches.get(dim[0], (dim[0], 0)) for dim in (one, other))
            if left_out == left_out2:
                self.unions.append(tuple(self.origin(self.mirrors.get(each, each)) for each in (axis, axis2)))
                return one
        raise refused(f"{what}, where axis {written(one)} meets axis {written(other)}", "they are different axes",
                      "give them one name if they are the same axis, or transpose the arrays")

    def _mirrored(self, *names: str) -> bool:
        """Whether some axes are one from its start and from its end."""
        origins = {self.origin(name) for name in names}
        return any(self.mirrors.get(name) in origins for name in origins)

    def mirror(self, axis: str) -> str:
        """The axis from its end."""
        if axis in self.mirrors:
            return self.mirrors[axis]
        name = f"{axis}_reversed"
        while name in self.lengths and self.mirrors.get(name) != axis:
            name += "_"
        self.mirrors[name], self.lengths[name] = axis, self.lengths[axis]
        return name

    def _fixes(self, one: str, other: str) -> bool:
        """Whether one of two axes is that of listed constants, whose length the other then has."""
        one, other = sorted(map(self.origin, (one, other)), key=self.listed.__contains__)
        found = other in self.listed and one not in self.listed and one not in self.stretches
        if found:
            self.fix(self.mirrors.get(one, one), self.lengths[other])
        return found

    def table(self, array: np.ndarray) -> str:
        """The name of an array of constants."""
        known = (name for name, other in self.tables.items() if np.array_equal(other, array, equal_nan=True))
        name = next(known, f"table{len(self.tables) + 1}")
        self.tables[name] = array
        return name

    def fix(self, axis: str, length: int) -> None:
        """Take note that an axis has a length: the function is then traced with it."""
        if self.lengths[self.origin(axis)] != length:
            self.fixed[self.origin(axis)] = length

    def listing(self, length: int) -> str:
        """The axis of so many constants that are spoken of one by one."""
        name = f"listed{length}"
        self.lengths[name] = length
        self.listed.add(name)
        return name

    def stretch(self, axis: str, left_out: int) -> str:
        """The axis of what is left of an axis without so many elements at its ends."""
        whole, before = self.stretches.get(axis, (axis, 0))
        part = whole, before + left_out
        name = next((name for name, other in self.stretches.items() if other == part), f"{whole}_from{part[1]}")
        while name in self.lengths and self.stretches.get(name) != part:
            name += "_"
        self.stretches[name], self.lengths[name] = part, self.lengths[whole] - part[1]
        return name

    def half(self, axis: str) -> str:
        """The axis of the lower, or upper, half of an axis.  Raises OperatorError where that has no such halves here."""
        if axis in self.lengths and not any(axis in made for made in (self.origins, self.stretches, self.mirrors, self.listed, self.halves)):
            self.even.add(axis)
            name = f"{axis}_half"
            while name in self.lengths and self.halves.get(name) != axis:
                name += "_"
            if self.lengths[axis] % 2 == 0:
                self.halves[name], self.lengths[name] = axis, self.lengths[axis] // 2
                return name
        raise refused(f'half of axis "{axis}"', "it is no whole axis of an even number of elements", "pass both halves as inputs of their own")

    def half_of_length(self, number: int) -> str | None:
        """The half of an axis that has this length in this trace."""
        found = next((axis for axis, length in self.known_lengths if length // 2 == number and axis not in self.halves), None)
        return None if found is None else self.half(found)

    def length(self, dim: Dim) -> int:
        """The number of elements of a dimension in this trace."""
        return prod(self.lengths[axis] for axis in dim)

    @property
    def known_lengths(self) -> list[tuple[str, int]]:
        """The axes whose lengths are this trace's own, with these."""
        return [(axis, length) for axis, length in self.lengths.items()
                if length >= SMALLEST and not any(axis in made for made in (self.origins, self.stretches, self.mirrors))]

    def axis_of(self, number: float) -> str | None:
        """The axis of the inputs that has this length in this trace."""
        found = [axis for axis, length in self.lengths.items() if length == number and length >= SMALLEST and axis not in self.mirrors]
        return found[0] if found else None

    def dims_of(self, shape: Sequence[int], what: str) -> tuple[Dim, ...]:
        """The dimensions of an array of this shape that code made from lengths.  Raises OperatorError if they are none."""
        by_length = {length: axis for axis, length in self.lengths.items() if axis not in self.origins and axis not in self.mirrors} | {1: ""}
        for length in {*shape} - by_length.keys():
            if length <= LISTED:
                by_length[length] = self.listing(length)
            elif half := self.half_of_length(length):
                by_length[length] = half
        unknown = [length for length in shape if length not in by_length]
        if unknown:
            raise refused(f"{what} of {unknown[0]} elements", "no axis of the inputs has that length",
                          "make it an input with axes of its own")
        axes = iter(self.distinct(by_length[length] for length in shape if length != 1))
        return tuple(() if length == 1 else (next(axes),) for length in shape)


current: ContextVar[Axes] = ContextVar("current", default=Axes({}))
"""The axes of the trace that is running here; of no trace, none."""


def written(dim: Dim) -> str:
    """A dimension for messages."""
    return f'"{" ".join(dim)}"'


def primes(number: int, skip: int) -> list[int]:
    """So many different lengths, after those that `skip` earlier calls would have got."""
    found = (next(n for n in count(start) if prod(n % d for d in range(2, int(n**0.5) + 1))) for start in count(SMALLEST, 4 * NEAR))
    return list(islice(found, skip * number, (skip + 1) * number))


def evened(lengths: dict[str, int], even: Collection[str]) -> dict[str, int]:
    """Lengths of which some are twice a prime; no length, nor half of one, is near another."""
    for axis in (axis for axis in lengths if axis in even):
        others = [length for name, length in lengths.items() if name != axis]
        lengths |= {axis: next(2 * n for n in count(lengths[axis]) if prod(n % d for d in range(2, int(n**0.5) + 1))
                               and all(abs(each - other) > 2 * NEAR for each in (n, 2 * n) for other in others))}
    return lengths


def broadcast(shapes: Iterable[tuple[Dim, ...]], what: str) -> tuple[Dim, ...]:
    """The dimensions that arrays make together, aligned at the last one, as NumPy does."""
    axes, result = current.get(), ()
    for dims in shapes:
        longer, shorter = (result, dims) if len(result) >= len(dims) else (dims, result)
        lead = len(longer) - len(shorter)
        result = longer[:lead] + tuple(axes.met(a, b, what) for a, b in zip(longer[lead:], shorter, strict=True))
    return result


def regrouped(dims: tuple[Dim, ...], shape: Sequence[int]) -> tuple[Dim, ...]:
    """The dimensions after a reshape that flattens neighbours, separates them again, or adds and drops ones.

    Raises OperatorError for a shape that would cut an axis.
    """
    axes = current.get()
    flat, whole = [axis for dim in dims for axis in dim], axes.length(tuple(axis for dim in dims for axis in dim))
    known = prod(length for length in shape if length != -1)
    target = [whole // known if length == -1 and known else int(length) for length in shape]
    result = []
    for length in target:
        dim = []
        while axes.length(tuple(dim)) < length and flat:
            dim.append(flat.pop(0))
        if axes.length(tuple(dim)) != length:
            break
        result.append(tuple(dim))
    if flat or len(result) < len(target):
        raise refused(f"a reshape of ({', '.join(map(written, dims))})", "it cuts an axis into pieces",
                      "pass the array with a dimension for each piece")
    return tuple(result)
