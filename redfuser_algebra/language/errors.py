"""The one kind of error a user meets: what was asked, what failed, what to try."""
from __future__ import annotations


class RedfuserError(Exception):
    """A mistake in what was asked, told in three parts."""

    def __init__(self, asked: str, failed: str, remedy: str) -> None:
        self.asked, self.failed, self.remedy = asked, failed, remedy
        super().__init__(f"{asked}: {failed}; {remedy}" if remedy else f"{asked}: {failed}")


class OperatorError(RedfuserError, ValueError):
    """An operator, formula or array that makes no sense as written."""
