"""The proof of a verdict as the text of a Python file that `pytest` runs, with nothing of this package in it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.prove.export.fused_module import fused_module
from redfuser_algebra.prove.export.numpy_text import Unprintable
from redfuser_algebra.prove.export.ordered_module import ordered_module
from redfuser_algebra.prove.export.refused_module import refused_module

if TYPE_CHECKING:
    from redfuser_algebra.discover.discovery import Discovery
    from redfuser_algebra.discover.refusal import Refusal
    from redfuser_algebra.language.operator import Operator


class Decision(Protocol):
    """What all passes found about an operator."""

    main: Discovery


class Fused(Protocol):
    """A fused operator."""

    decision: Decision


class Verdict(Protocol):
    """What was decided about an operator."""

    operator: Operator
    status: str
    fused: Fused | None
    refusal: Refusal | None


class NoProof(OperatorError):
    """There is nothing to export: the verdict is open, or its proof cannot be said in NumPy."""


def proof_module(verdict: Verdict) -> str:
    """The text of the module that checks a verdict again.  Raises NoProof."""
    asked = f"exporting a proof about {verdict.operator.name}"
    try:
        if verdict.fused is not None:
            main = verdict.fused.decision.main
            if not main.form.merges:
                raise Unprintable("an online form")
            if main.form.clips:
                raise Unprintable("a state that is kept within bounds")
            written = ordered_module if main.form.recurrences else fused_module
            return written(verdict.operator, main.cascade, main.form)
        if verdict.refusal.witness is not None:
            return refused_module(verdict.operator, verdict.refusal)
    except Unprintable as what:
        raise NoProof(asked, f"the exported files have no word for {what}", "use `redfuser prove`, which has") from what
    raise NoProof(asked, f"it is {verdict.status}: there is neither a form nor a witness", "see what `redfuser prove` says of it")
