"""Rows that a user adds to the tables: one way into each, and one way out.

In: rows of functions, monoids and laws.  Out: the tables FUNCTIONS, MONOIDS and LAWS hold them, until they are
forgotten or the scope they were added in ends.  Nothing here tests a row; whoever registers one has done so.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from redfuser_algebra.algebra.functions import FUNCTIONS, Function
from redfuser_algebra.algebra.laws import LAWS, SIGNS, Law
from redfuser_algebra.algebra.monoids import MONOIDS, Monoid

Row = Function | Monoid | Law

_TABLES: tuple[dict, ...] = (FUNCTIONS, MONOIDS, LAWS)
_RULES = {"structure", "asked", "component", *(rule.name for rule in SIGNS)}
"""Names of rules and rulesets of the e-graph that are no laws."""
_DUALS = {"max": "min", "min": "max", "fmax": "fmin", "fmin": "fmax"}


def register_function(row: Function) -> None:
    """Add an elementwise function, and what its marks say about max, argmax and their twins.  Raises ValueError."""
    _add(FUNCTIONS, row, {*MONOIDS})
    for law in laws_of_marks(row):
        register_law(law)


def register_monoid(row: Monoid) -> None:
    """Add a monoid, and what holds for every monoid.  Raises ValueError."""
    _add(MONOIDS, row, {*FUNCTIONS})
    register_law(Law(f"{row.name}_of_choice", f"{row.name}(where(c, a, b))", f"where(c, {row.name}(a), {row.name}(b))",
                     "invariant(c)", source=row.source))


def register_law(row: Law) -> None:
    """Add a law.  Raises ValueError."""
    _add(LAWS, row, _RULES)


def _add(table: dict[str, Row], row: Row, others: set[str]) -> None:
    if row.name in table or row.name in others:
        raise ValueError(f"the name {row.name} is taken")
    if not (row.name.isidentifier() and row.name.isascii() and row.source):
        raise ValueError(f"{row!r} has no proper name, or does not say where it comes from")
    table[row.name] = row


def laws_of_marks(row: Function) -> tuple[Law, ...]:
    """The laws that follow from how a function of one argument moves."""
    mark, f = row.monotone[0] if len(row.monotone) == 1 else "", row.name
    law, laws = partial(Law, source=row.source), []
    if mark:
        laws += [law(f"{m}_of_{f}", f"{m}({f}(a))", f"{f}({dual if mark == '-' else m}(a))") for m, dual in _DUALS.items()]
    if mark == "s":
        laws += [law(f"topk_of_{f}", f"topk({f}(a))", f"{f}(topk(a))")]
        laws += [law(f"{m}_ignores_{f}", f"{m}({f}(a))", f"{m}(a)") for m in ("argmax", "argmin", "argtopk")]
    return tuple(laws)


def declared(name: str) -> Function | Monoid | None:
    """The row that a user added under this name."""
    row = FUNCTIONS.get(name) or MONOIDS.get(name)
    return row if row is not None and row.source else None


def declared_with(row: Function | Monoid) -> dict[str, Law]:
    """The laws that were added together with a row."""
    return {law.name: law for law in LAWS.values() if law.source == row.source}


def renew(row: Function | Monoid) -> None:
    """Put a row in the place of one that says the same."""
    (FUNCTIONS if isinstance(row, Function) else MONOIDS)[row.name] = row


def forget(name: str) -> None:
    """Remove a declared function or monoid and every declared law that speaks of it.  Raises KeyError."""
    if declared(name) is None:
        raise KeyError(name)
    spoken = re.compile(rf"\b{name}\(")
    for law in [law for law in LAWS.values() if law.source and spoken.search(f"{law.lhs} {law.rhs}")]:
        del LAWS[law.name]
    del (FUNCTIONS if name in FUNCTIONS else MONOIDS)[name]


@contextmanager
def declarations() -> Iterator[None]:
    """A scope: at its end the tables hold what they held at its start.

    Expressions made inside keep the names; without the rows they can no longer be computed or fused.  Rows are
    added and deleted one by one, so that another thread never meets an empty table.
    """
    before = [dict(table) for table in _TABLES]
    try:
        yield
    finally:
        for table, rows in zip(_TABLES, before, strict=True):
            for name in [name for name in table if name not in rows]:
                del table[name]
            table.update(rows)
