"""What was decided about an operator, for people (sections of lines) and for programs (a record for JSON).

In: a verdict, and the verdict under the other preference.  Out: text; expressions in a record read back.
"""
from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from redfuser_algebra.discover.rules import named_elements
from redfuser_algebra.discover.show import WIDTH, state_table, summary, text_sections
from redfuser_algebra.language.mathematics import cascade_text

if TYPE_CHECKING:
    from redfuser_algebra.discover.discovery import Discovery
    from redfuser_algebra.discover.form import FusedForm
    from redfuser_algebra.discover.refusal import Refusal
    from redfuser_algebra.language.operator import Operator

Section = tuple[str, list[str]]


class HasForm(Protocol):
    """What can be run."""

    form: FusedForm


class Verdict(Protocol):
    """What a verdict tells."""

    operator: Operator
    status: str
    reason: str
    fused: HasForm | None
    refusal: Refusal | None
    discoveries: tuple[Discovery, ...]

    def nearest(self) -> tuple[object, ...]:
        """Variants that fuse, if it does not."""


def sections(verdict: Verdict, other: Verdict | None = None) -> Iterator[Section]:
    """Titles and lines: the operator, its cascades, the form or the refusal, alternatives, time and e-graph size.

    `other` is the verdict under the other preference (raw or centred), if it was asked for.
    """
    yield f"{verdict.operator.name}: {verdict.status} ({verdict.reason})", str(verdict.operator).splitlines()
    main = verdict.fused.form if verdict.fused else None
    for found in verdict.discoveries:
        yield _cascade_title(found), cascade_text(found.cascade).splitlines()
        if found.form is not None and found.form is not main:
            yield f"fused over {found.form.axis}", [summary(found.form), *found.form.update.splitlines()]
    if main:
        yield f"fused over {main.axis}", [summary(main)]
        yield from ((title, lines) for title, lines in text_sections(main).items() if lines)
    if verdict.refusal:
        yield "refusal", textwrap.wrap(str(verdict.refusal), WIDTH)
        if verdict.refusal.witness:
            yield "witness", [line for part in str(verdict.refusal.witness).splitlines()
                              for line in textwrap.wrap(part, WIDTH)]
    alternatives = list(_alternatives(verdict, other))
    if alternatives:
        yield "alternatives", alternatives
    yield "found in", [_effort(verdict)]


def _cascade_title(found: Discovery) -> str:
    depth = found.cascade.depth
    return f"cascade over {found.cascade.axis}: {_counted(len(found.cascade.reductions), 'reduction')}, " \
           f"{_counted(depth, 'pass', 'passes')} as written"


def _counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _alternatives(verdict: Verdict, other: Verdict | None) -> Iterator[str]:
    if not verdict.fused:
        yield from (_passes(found) if found.form is None else f"over {found.cascade.axis} (--axis {found.cascade.axis}): {summary(found.form)}"
                    for found in verdict.discoveries)
        yield from map(str, verdict.nearest())
        return
    form, another = verdict.fused.form, other.fused.form if other and other.fused else None
    if another is None or _same_state(form, another):
        return
    kind = "raw" if any(component.rebase is not component.symbol for component in form.state) else "centred"
    yield f"--prefer {kind}: {summary(another)}"
    yield from (f"  {line}" for line in state_table(another, named_elements(another)))
    yield from (f"  danger: {fact}" for fact in dict.fromkeys(another.dangers))


def _passes(found: Discovery) -> str:
    """How many passes a refused cascade needs, and what each of them takes in."""
    axis, cut = found.cascade.axis, found.refusal.passes if found.refusal else ()
    if len(cut) == 1:
        return f"as written: what is kept of {axis} grows with it"
    taken = ": " + " | ".join(", ".join(names) for names in cut) + "," if cut else ""
    return f"in {_counted(len(cut) or found.cascade.depth, 'pass', 'passes')}{taken} over {axis}" + (" (`--passes` exports their kernels)" if cut else "")


def _same_state(one: FusedForm, another: FusedForm) -> bool:
    kept = [{(c.monoid, id(c.lift), id(c.mask)) for c in form.state} for form in (one, another)]
    return kept[0] == kept[1]


def _effort(verdict: Verdict) -> str:
    seconds = sum(found.seconds for found in verdict.discoveries)
    questions = sum(len(found.trace) for found in verdict.discoveries)
    return f"{1000 * seconds:.0f} ms: {_counted(questions, 'question')} to the e-graph, at most {_nodes(verdict):,} e-nodes"


def _nodes(verdict: Verdict) -> int:
    return max((found.nodes for found in verdict.discoveries), default=0)


def record(verdict: Verdict, other: Verdict | None = None) -> dict[str, object]:
    """The verdict as data; every expression as the formula that `parse` reads back."""
    return {
        "operator": verdict.operator.name, "definition": str(verdict.operator),
        "status": verdict.status, "reason": verdict.reason,
        "cascades": [{"axis": found.cascade.axis, "passes": found.cascade.depth, "fused": found.form is not None,
                      "reductions": {r.name: str(r.source) for r in found.cascade.reductions}}
                     for found in verdict.discoveries],
        "form": form_record(verdict.fused.form) if verdict.fused else None,
        "refusal": str(verdict.refusal) if verdict.refusal else None,
        "passes": [list(names) for names in verdict.refusal.passes] if verdict.refusal else [],
        "nearest": [str(variant) for variant in verdict.nearest()],
        "alternative": _alternative_record(verdict, other),
        "seconds": sum(found.seconds for found in verdict.discoveries), "nodes": _nodes(verdict),
    }


def _alternative_record(verdict: Verdict, other: Verdict | None) -> dict[str, object] | None:
    if not (verdict.fused and other and other.fused) or _same_state(verdict.fused.form, other.fused.form):
        return None
    return form_record(other.fused.form)


def form_record(form: FusedForm) -> dict[str, object]:
    """A fused form as data."""
    return {
        "axis": form.axis, "words": form.words, "order": form.order, "ranks": dict(form.ranks),
        "pivots": {pivot.name: str(pivot.value) for pivot in form.pivots},
        "state": [{"name": c.name, "monoid": c.monoid, "axes": list(c.axes), "lift": str(c.lift), "rebase": str(c.rebase),
                   "mask": None if c.mask is None else str(c.mask), "count": None if c.count is None else str(c.count)}
                  for c in form.state],
        "results": {result.name: str(result.value) for result in form.results},
        "outputs": [str(output) for output in form.outputs],
        "update": form.update.splitlines(), "merge": form.merge.splitlines(),
        "assumptions": [str(condition) for condition in form.assumptions],
        "guards": [str(guard) for guard in form.guards],
        "facts": [str(fact) for fact in dict.fromkeys(form.facts) if fact.kind != "danger"],
        "dangers": [str(fact) for fact in dict.fromkeys(form.dangers)], "laws": list(form.laws),
    }
