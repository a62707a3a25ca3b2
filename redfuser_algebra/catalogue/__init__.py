"""The catalogue: `operators["attention"]` is an Operator; `.entry(name)` says what is known about it.

A new operator is one function under `@entry(...)` in the module of its group.
"""
from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from redfuser_algebra.catalogue import (  # noqa: F401  (each module enters its operators, in this order)
    attention,
    decoding,
    softmax,
    probability,
    losses,
    normalisation,
    quantisation,
    routing,
    statistics,
    outliers,
    fitting,
    order,
    ranked,
    pairs,
    physics,
    streaming,
    recurrent,
)
from redfuser_algebra.catalogue.entry import ENTRIES, Entry
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.operator import Operator

__all__ = ["Catalogue", "Entry", "operators"]


class UnknownOperator(OperatorError, KeyError):
    """A name that the catalogue does not have."""

    __str__ = OperatorError.__str__


class Catalogue(Mapping[str, Operator]):
    """Operators by name, in the order in which the catalogue states them."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Operator:
        return self.entry(name).operator

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, name: str) -> Entry:
        """Source, reference, inputs and expected verdict of an operator.  Raises OperatorError, a KeyError, too."""
        if name not in self._entries:
            close = difflib.get_close_matches(str(name), self._entries, 3)
            raise UnknownOperator(f"the operator {name!r}", "the catalogue has none of that name",
                                  f"did you mean {' or '.join(close)}" if close else "list the catalogue for its names")
        return self._entries[name]

    def groups(self) -> dict[str, tuple[str, ...]]:
        """The names in each group, groups and names in order."""
        groups: dict[str, list[str]] = {}
        for name, entry in self._entries.items():
            groups.setdefault(entry.group, []).append(name)
        return {group: tuple(names) for group, names in groups.items()}


operators = Catalogue(ENTRIES)
