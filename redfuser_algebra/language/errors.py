"""The one kind of error a user meets: what was asked, what failed, what to try."""
from __future__ import annotations


class RedfuserError(Exception):
    """A mistake in what was asked, told in three parts; an excerpt of the text may point at the place."""

    def __init__(self, asked: str, failed: str, remedy: str, excerpt: str = "") -> None:
        self.asked, self.failed, self.remedy, self.excerpt = asked, failed, remedy, excerpt
        super().__init__(asked, failed, remedy, excerpt)

    def __str__(self) -> str:
        told = f"{self.asked}: {self.failed}; {self.remedy}" if self.remedy else f"{self.asked}: {self.failed}"
        return f"{told}\n{self.excerpt}" if self.excerpt else told

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback."""
        parts = (("asked", self.asked), ("failed", self.failed), ("try", self.remedy))
        return [f"{name + ':':<7} {part}" for name, part in parts if part] + self.excerpt.splitlines()


class OperatorError(RedfuserError, ValueError):
    """An operator, formula or array that makes no sense as written."""


def undeclared(kind: str, name: object) -> OperatorError:
    """The error of a function or monoid that is in no table, or no longer."""
    return OperatorError(f"the {kind} {name!r:.40}", "there is none of this name, or its declaration has ended",
                         f"declare it with ra.{'Monoid' if kind == 'monoid' else kind}(…)")
