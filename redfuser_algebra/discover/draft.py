"""The components of a form in the making: what is kept so far, and what each needs when it moves."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from redfuser_algebra.language.expr import Expr, symbol


@dataclass
class Draft:
    """A component in the making.  `needs` are the components its rebase reads, and the sums found to be 0."""

    name: str
    monoid: str
    lift: Expr
    mask: Expr | None
    count: Expr | None
    axes: tuple[str, ...]
    rebase: Expr | None = None
    joined: Expr | None = None
    empty: float = 0.0
    needs: set[object] = field(default_factory=set)

    @property
    def symbol(self) -> Expr:
        """The component's value in expressions."""
        return symbol(self.name, self.axes)


class TooMany(Exception):
    """More components than a form may have."""


class Drafts:
    """The drafts in the order in which they were found; names are provisional (`build` gives the final ones).

    `needs` collects what the term being worked out reads; `moving` sets it aside for a draft's own rebase.
    """

    def __init__(self, limit: int) -> None:
        self.found: list[Draft] = []
        self.needs: set[object] = set()
        self._limit = limit

    def new(self, monoid: str, lift: Expr, mask: Expr | None, count: Expr | None, axes: tuple[str, ...]) -> Draft:
        """A new draft.  Raises TooMany."""
        if len(self.found) >= self._limit:
            raise TooMany
        self.found.append(Draft(f"#{len(self.found)}", monoid, lift, mask, count, axes))
        return self.found[-1]

    @contextmanager
    def moving(self, draft: Draft) -> Iterator[None]:
        """While a draft's rebase is worked out, what it reads is what the draft needs."""
        asking, self.needs = self.needs, draft.needs
        try:
            yield
        finally:
            self.needs = asking

    def closure(self) -> set[object]:
        """Everything that the collected needs need when they move, themselves included."""
        drafts = {draft.name: draft for draft in self.found}
        reached: set[object] = set()
        todo = list(self.needs)
        while todo:
            need = todo.pop()
            if need not in reached:
                reached.add(need)
                todo.extend(drafts[need].needs if need in drafts else ())
        return reached
