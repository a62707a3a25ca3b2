"""A witness for operators that compare elements and count: prefixes that are all told apart by what may follow.

The argument (a fooling set).  Whatever is kept of a prefix must determine the result after every suffix.  Let n
numbers of a prefix vary, each so little that the order of its elements stays as it is.  Two prefixes that differ in
the i-th number are told apart: put a number between the two, or equal to one of them, into the i-th suffix; what comes
out for a number a little less, equal, or a little more is not the same, and depends on the order alone.  So all these
prefixes are kept differently: 2ⁿ of them, if each number is one of two, take n bits, whatever the state is; and a state
that depends continuously on the elements, piece by piece, has at least n numbers (invariance of domain).
"""
from __future__ import annotations

from dataclasses import dataclass, field

from redfuser_algebra.prove.refutation.patterns import Steering, seen_by_order, told
from redfuser_algebra.prove.witness import Witness, coordinate_name, elements_text, numbers_as_text

_SHOWN = 3


@dataclass(frozen=True, eq=False)
class FoolingSet(Witness):
    """For each varying number of the prefix, three suffixes after which what is seen is not the same."""

    steerings: tuple[Steering, ...] = field(repr=False)

    def recheck(self) -> bool:
        """Whether the operator depends on the order alone, and every number is told, evaluated now in exact fractions."""
        return seen_by_order(self.problem) and all(told(self.problem, self.prefix, self.steerings))

    def _facts(self) -> dict[str, object]:
        return {"suffixes": [[numbers_as_text(suffix) for suffix in steering.suffixes] for steering in self.steerings],
                "seen": [[steering.seen.output, list(steering.seen.place)] for steering in self.steerings]}

    def __str__(self) -> str:
        what, before = ("part", "before it") if self.problem.behind else ("prefix", "after it")
        element, coordinate = self.columns[0]
        number = len(self.steerings[0].suffixes[0])
        sides = " / ".join(f"({elements_text(self.problem, suffix)})" for suffix in self.steerings[0].suffixes)
        sides = f"{number} elements, {sides}" if number > 1 else sides
        return "\n".join([
            *self._lines(),
            f"The result depends only on how the elements are ordered.  {self.order} numbers of the {what} "
            f"({coordinate_name(self.problem, coordinate)} of elements {', '.join(str(at) for at, _ in self.columns[:_SHOWN])}, …) "
            f"are told one by one: {before} comes a number a little less, equal, or a little more, and the result is not the same "
            f"(about {self.prefix[element, coordinate]}: {sides}).",
            f"So such a {what} is told apart from any other: the 2^{self.order} made of two values for each number are all kept differently, "
            f"in at least {self.order} bits; if what is kept depends continuously on the elements, it is at least {self.order} numbers."])
