"""A certificate for people: Markdown for a terminal or a repository, HTML with LaTeX for a notebook.

In: a Certificate.  Out: text.  What is proved and what is tested stand in columns of their own.
"""
from __future__ import annotations

import html as escaping
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.html import Fragment, element, formula, joined, listed, paragraphs, table, titled
from redfuser_algebra.prove.evidence import CANNOT, PROVED, REFUTED, TESTED, Evidence, Row

if TYPE_CHECKING:
    from redfuser_algebra.prove.certificate import Certificate

HEAD = ("obligation", "statement", "proved", "tested")
SUFFIXES = (".json", ".md", ".html")
"""The kinds of file that a certificate or proof is written to."""


def checked_suffix(suffix: str) -> str:
    """A kind of file that a proof can be written to.  Raises OperatorError."""
    if suffix not in SUFFIXES:
        raise OperatorError(f"writing a proof to a {suffix or 'nameless'} file", "it is not one of the kinds it is written in",
                            f"choose a name that ends in {', '.join(SUFFIXES)}")
    return suffix


def markdown(certificate: Certificate) -> str:
    """The whole certificate as Markdown."""
    return "\n\n".join(filter(None, _sections(certificate))) + "\n"


def _sections(c: Certificate) -> Iterator[str]:
    yield f"# Certificate: {title(c)}"
    yield f"**{c.status}** — {counts(c)}"
    yield f"Seed {c.seed}, {c.examples} examples. Hash `{c.hash}`."
    yield f"```\n{c.operator}\n```"
    yield f"```\n{c.form}\n```"
    yield "## Obligations\n\n" + "\n".join(_table(c))
    yield _list("Assumed", dict.fromkeys(f"{row.id}: {'; '.join(row.conditions)}" for row in c.rows if row.conditions
                                         and row.kind in ("rebase", "cocycle")))
    yield _list("Refuted", (f"{row.id}: {counterexample(row)}" for row in c.refuted))
    yield _list("Limits", (f"{row.id}: {counterexample(row)}" for row in c.limits))
    yield _list("Not looked at", (f"{row.id}: {row.statement}" for row in c.unseen))
    yield _list("Not decided", (f"{row.id}, {e.checker}: {e.detail.get('reason', '')}" for row in c.rows for e in row.by(CANNOT)))
    yield _list("Laws", [", ".join(c.laws)] if c.laws else [])
    yield _list("Guards", c.guards)
    yield _list("Facts", c.facts)
    yield _list("Dangers", c.dangers)
    yield "\n\n".join(filter(None, map(_figures, c.rows)))
    yield _list("Versions", [", ".join(f"{name} {version}" for name, version in c.versions.items())])


def title(c: Certificate) -> str:
    """The operator's signature and the axis."""
    return f"{c.operator.partition(':')[0]} over {c.axis}"


def counts(c: Certificate) -> str:
    """How many obligations are proved, follow, or are only tested."""
    by_checker = sum(row.verdict == PROVED for row in c.rows)
    only_tested = [row.id for row in c.rows if row.id not in c.proved and row.verdict == TESTED]
    said = f"{by_checker} of {len(c.rows)} obligations proved, {len(c.proved) - by_checker} more follow from those"
    return f"{said}, {len(only_tested)} only tested" + (f" ({', '.join(only_tested)})" if only_tested else "") + "."


def _table(c: Certificate) -> Iterator[str]:
    yield _line(HEAD)
    yield _line(["---"] * len(HEAD))
    for row in c.rows:
        yield _line([row.id, _plain(row.statement), proved_by(c, row), tested_by(row)])


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return text.replace("_", r"\_").replace("*", r"\*").replace("<", r"\<")


def proved_by(c: Certificate, row: Row) -> str:
    """Who proved an obligation, or what it follows from."""
    said = [f"{e.checker}: {e.detail['method']}" if "method" in e.detail else f"{e.checker}, {len(e.detail.get('laws', ()))} laws"
            for e in row.by(PROVED)]
    if row.id in c.proved and not said:
        premises = dict.fromkeys(premise.partition(":")[0] for premise in row.follows_from)
        said = [f"follows from {', '.join(row.follows_from if len(row.follows_from) == 1 else premises)}"]
    return "; ".join(said)


def tested_by(row: Row) -> str:
    """On what an obligation was tested, or what refutes it."""
    if row.by(REFUTED):
        return "refuted, see below"
    return "; ".join(_tested(e) for e in row.by(TESTED))


def _tested(e: Evidence) -> str:
    if "examples" not in e.detail:
        return f"{e.checker}, measured"
    ball = f", balls of radius ≤ {e.detail['radius']}" if "radius" in e.detail else ", exact rationals"
    undecided = f", {e.detail['undecided']} undecided" if "undecided" in e.detail else ""
    return f"{e.checker}, {e.detail['examples']} examples{ball}{undecided}"


def counterexample(row: Row) -> str:
    """The example that refutes an obligation, in one line."""
    found = row.by(REFUTED)[0].detail["counterexample"]
    parts = [f"{found['where']}: got {found['got']}, expected {found['expected']}" if "got" in found else str(found["where"])]
    if "inputs" in found:
        parts.append("with " + ", ".join(f"{name} = {_values(value)}" for name, value in found["inputs"].items()))
        parts.append("in parts " + ", ".join(f"{letter} = {places}" for letter, places in found["parts"].items()))
    return " ".join(parts)


def _values(value: object) -> str:
    return f"[{', '.join(map(_values, value))}]" if isinstance(value, list) else str(value)


def _figures(row: Row) -> str:
    lines = [f"- {name}: {figure}" for e in row.evidence for name, figure in e.measured.items()]
    if not lines:
        return ""
    heading = "What floats lose far from 0" if row.id == "floats:far" else "Errors with floats"
    return f"## {heading}\n\n{what_was_measured(row)}\n\n" + "\n".join(lines)


def what_was_measured(row: Row) -> str:
    """What figures about floats are of, and for those far from 0 what they mean."""
    conditions = "".join(f" {condition[0].upper()}{condition[1:]}." for condition in row.conditions)
    return f"{row.statement[0].upper()}{row.statement[1:]}.{conditions}{loss(row)}"


def loss(row: Row) -> str:
    """What floats lose far from 0, in a sentence or two; nothing for other obligations."""
    figures = row.evidence[0].measured if row.evidence else {}
    if "float32, centred form" not in figures:
        return ""
    inputs, narrow, wide = (figures[name] for name in (
        "float32 inputs, everything else exact", "float32, centred form", "float64, centred form"))
    said = (f" Rounding the inputs to float32 alone makes a relative error of {inputs}{_none_right(inputs)}, which no way of "
            f"computing can undo; the centred form has {narrow}{_none_right(narrow)} when computed in float32 and "
            f"{wide}{_none_right(wide)} in float64.")
    if "float64, raw form" in figures:
        raw, raw_narrow = figures["float64, raw form"], figures["float32, raw form"]
        said += (f" The raw form, which subtracts sums of squares of size 10¹⁶ each, has {raw_narrow}{_none_right(raw_narrow)} in "
                 f"float32 and {raw}{_none_right(raw)} in float64.")
    return said


def _none_right(error: str) -> str:
    return " (no correct digit)" if float(error) >= 0.5 else ""


def _list(heading: str, lines: object) -> str:
    written = [f"- {_plain(str(line))}" for line in lines]
    return f"## {heading}\n\n" + "\n".join(written) if written else ""


def html(c: Certificate) -> Fragment:
    """The certificate as HTML: a table with mathematics between dollar signs, what is refuted, and figures."""
    told = lambda text: element("div", text, style="width:15em") if text else Fragment()
    rows = [(row.id, told(proved_by(c, row)), told(tested_by(row)), element("span", formula(row.latex), title=row.statement)) for row in c.rows]
    figures = [f"{name}: {figure}" for row in c.rows for e in row.evidence for name, figure in e.measured.items() if row.id == "floats:far"]
    refuted = [joined(element("b", row.id), f": {counterexample(row)}") for row in (*c.refuted, *c.limits)]
    head = paragraphs([joined(element("b", f"{title(c)}: {c.status}"), element("div", counts(c)), element("div", "hash ", element("code", c.hash[:16])))])
    return joined(head, table((HEAD[0], *HEAD[2:], HEAD[1]), rows), titled("Refuted", listed(refuted)),
                  *((paragraphs([what_was_measured(c.row("floats:far"))]), listed(figures)) if figures else ()))


def page(title: str, certificate: Certificate | None, sections: Iterable[tuple[str, list[str]]]) -> str:
    """A page for a browser: the certificate with its mathematics, or sections of lines where there is none."""
    said = escaping.escape
    body = html(certificate) if certificate else "".join(
        f"<h2>{said(name)}</h2><pre>{said(chr(10).join(lines))}</pre>" for name, lines in sections)
    return f"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{said(title)}</title></head><body>{body}</body></html>\n"
