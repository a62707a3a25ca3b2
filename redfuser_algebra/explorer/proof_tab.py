"""The proof: obligations whose evidence fills in while it is found, laws, and for a refusal its witness, drawn.

In: a verdict, how many examples, a seed.  Out: obligations with evidence as data and HTML; a picture of a witness.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import ipywidgets as widgets

import redfuser_algebra as ra
from redfuser_algebra.discover.display import refusal_html
from redfuser_algebra.discover.length_given import length_given
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.pictures import KEPT, MOVED, counted, picture
from redfuser_algebra.explorer.session import Session
from redfuser_algebra.explorer.work import Told, Work
from redfuser_algebra.language.html import Fragment, Picture, element, folded, formula, table, titled
from redfuser_algebra.prove.certificate import Certificate, Stopped
from redfuser_algebra.prove.evidence import PROVED, REFUTED, TESTED, Evidence
from redfuser_algebra.prove.fooling import FoolingSet
from redfuser_algebra.prove.obligations import obligations
from redfuser_algebra.prove.witness import Crossings, Witness
from redfuser_algebra.run.law_examples import explained

COLOURS = {PROVED: "#2e8b57", TESTED: "#3182bd", REFUTED: "#c0392b"}


class Board:
    """Obligations with the evidence that has come in."""

    def __init__(self, fused: ra.Fused) -> None:
        cascade, form = fused.decision.main.cascade, fused.form
        cascade = length_given(cascade) or cascade if form.length_given else cascade
        self.statements = {o.id: (o.statement, o.latex) for o in obligations(fused.operator, cascade, form)}
        self.evidence: dict[str, list[Evidence]] = {id: [] for id in self.statements}

    def heard(self, id: str, evidence: Evidence) -> None:
        """Note one piece of evidence."""
        self.evidence.setdefault(id, []).append(evidence)

    def count(self, verdict: str) -> int:
        """For how many obligations some checker says so."""
        return sum(any(e.verdict == verdict for e in found) for found in self.evidence.values())

    def html(self) -> Fragment:
        """A line per obligation: what it states, who proved it, who tested it."""
        rows = []
        for id, (statement, latex) in self.statements.items():
            found = self.evidence[id]
            by = [", ".join(_mark(e.checker, v) for e in found if e.verdict == v) for v in (PROVED, TESTED, REFUTED)]
            rows.append((element("span", id, title=statement), Fragment(by[0]), Fragment(", ".join(filter(None, by[1:]))), formula(latex)))
        counts = f"{self.count(PROVED)} proved, {self.count(TESTED)} tested, {self.count(REFUTED)} refuted, of {len(self.statements)} obligations"
        return titled(counts, table(("obligation", "proved", "tested", "statement"), rows))


def _mark(checker: str, verdict: str) -> Fragment:
    return element("span", f"✓ {checker}" if verdict != REFUTED else f"✗ {checker}: see below", style=f"color:{COLOURS[verdict]}")


def magnitude(written: str) -> float:
    """log₁₀ |x| of a number as witnesses write it: a rational, or a ball with its middle first."""
    first = written.strip("[]").split(" ")[0]
    if "/" in first or "e" not in first and "." not in first:
        value = Fraction(first)
        return math.log10(abs(value.numerator)) - math.log10(value.denominator) if value else -math.inf
    digits, _, exponent = first.lower().partition("e")
    return math.log10(abs(float(digits))) + int(exponent or 0) if float(digits) else -math.inf


def orders(determinants: dict[int, str]) -> tuple[list[int], list[float]]:
    """Orders, and log₁₀ of the determinants that are not 0."""
    return list(determinants), [magnitude(value) for value in determinants.values()]


def witness_picture(witness: Witness) -> Picture:
    """Determinants that never vanish, next to two elements whose order or ratio changes (or the places of jumps)."""
    if isinstance(witness, FoolingSet):
        return _numbers_told(witness)
    with picture(f"Witness of order {witness.order}: determinants that are not 0", 8.2, 2.5, (1, 1)) as drawing:
        left, right = drawing.all_axes
        _draw_numbers(left, witness)
        right.plot(*orders(witness.determinants), "o-", color=KEPT, linewidth=1, markersize=4, label="Jacobian")
        if getattr(witness, "table", None) and witness.table.determinants:
            right.plot(*orders(witness.table.determinants), "s-", color=MOVED, linewidth=1, markersize=4, label="[F(xᵢ; pⱼ)]")
        right.set_xlabel("order n")
        counted(right)
        right.set_ylabel("log₁₀ |det|")
        right.set_title("none of them is 0", fontsize=9, loc="left")
        right.legend(frameon=False, fontsize=8)
    return drawing.svg


def _numbers_told(witness: FoolingSet) -> Picture:
    """The numbers of a prefix each of which decides what comes out as an element that follows passes it."""
    with picture(f"Fooling set of order {witness.order}: numbers that are told one by one", 8.2, 1.6) as drawing:
        (axes,) = drawing.all_axes
        axes.vlines([float(witness.prefix[column]) for column in witness.columns], 0, 1, color=MOVED, linewidth=1)
        axes.set_yticks([])
        axes.set_title("where the result changes as an element that follows passes a number of the prefix", fontsize=9, loc="left")
    return drawing.svg


def _draw_numbers(axes, witness: Witness) -> None:
    if isinstance(witness, Crossings):
        places = [float(jump.low) for jump in witness.jumps]
        axes.vlines(places, 0, 1, color=MOVED, linewidth=1)
        axes.set_yticks([])
        axes.set_title("where the result jumps as an element of the suffix grows", fontsize=9, loc="left")
        return
    if witness.table is None:
        axes.set_axis_off()
        axes.text(0, 0.5, "no two elements were singled out", fontsize=9)
        return
    values = [[_number(value) for value in row[:2]] for row in witness.table.values[:2]]
    names = [f"after suffix {at + 1}" for at in range(2)]
    for element_, colour in zip(range(2), (KEPT, MOVED), strict=True):
        axes.plot(names, [row[element_] for row in values], "o-", color=colour, label=f"element {witness.table.elements[element_] + 1}")
    axes.set_title("F of two elements: no factor moves both" if witness.table.determinants else "F of two elements: their order flips",
                   fontsize=9, loc="left")
    axes.margins(x=0.3)
    axes.legend(frameon=False, fontsize=8)


def _number(written: str) -> float:
    first = written.strip("[]").split(" ")[0]
    return float(Fraction(first)) if "/" in first else float(first)


def laws_html(names: Sequence[str]) -> Fragment:
    """Laws by name; each opens to what it states, where it holds, and an example."""
    return titled("Laws that the form rests on (open one to read it)", *(folded(name, table(("", ""), explained(ra.LAWS[name]))) for name in names))


class ProofTab:
    """The view."""

    title = "Proof"

    def __init__(self, session: Session, work: Work, pictures: Work) -> None:
        self.session, self.board, self.certificate, self._of = session, None, None, None
        self.examples = fields.labelled(widgets.BoundedIntText, "Examples", min=1, max=100_000, value=40)
        self.seed = fields.labelled(widgets.BoundedIntText, "Seed", min=0, max=2**31 - 1, value=0)
        self.run = fields.button("Prove", self.prove, "Look at every obligation, and collect the evidence")
        self.again = fields.button("Compute again", self.recheck, "Compute the witness again from its numbers")
        self.progress = fields.Running("Proving", work, (self, "prove"), patience=0)
        self.checking = fields.Running("Computing", work, (self, "recheck"), patience=0)
        self.preparing = fields.Running("Preparing", pictures, (self, "prepare"))
        self.running = (self.progress, self.checking, self.preparing)
        self.said, self.text, self.laws, self.drawing = fields.drawn(), fields.shown(), fields.drawn(), fields.drawn()
        self.proving = fields.row(self.examples, self.seed, self.run)
        self.root = fields.column(self.proving, self.again, *(each.box for each in self.running), self.said, self.drawing, self.text, self.laws)

    def show(self) -> None:
        """Begin again for a new verdict."""
        verdict = self.session.verdict
        if verdict is self._of and verdict:
            return
        self._of, self.certificate, self.board = verdict, None, None
        fused, refusal = (verdict.fused, verdict.refusal) if verdict else (None, None)
        self.proving.layout.display = "" if fused else "none"
        self.again.layout.display = "" if refusal and refusal.witness else "none"
        self.said.value = "" if verdict else "Nothing has been decided yet."
        self.drawing.value = self.text.value = self.laws.value = ""
        self.run.disabled = False
        if fused:
            self.preparing.start(lambda told: Board(fused), self._prepared, self._failed)
        elif refusal:
            self.preparing.start(lambda told: (refusal_html(refusal), witness_picture(refusal.witness) if refusal.witness else ""), self._refused, self._failed)

    def _prepared(self, board: Board) -> None:
        if self.board is None:
            self.board, self.text.value, self.laws.value = board, board.html(), laws_html(self._of.fused.form.laws)

    def _refused(self, found: tuple[str, str]) -> None:
        self.text.value, self.drawing.value = found

    def prove(self) -> None:
        """Certify the form in the background."""
        fused, examples, seed = self.session.verdict.fused, self.examples.value, self.seed.value
        self.said.value, self.run.disabled = "", True
        self.progress.start(lambda told: self._certified(fused, examples, seed, told), self._done, self._failed)

    def _certified(self, fused: ra.Fused, examples: int, seed: int, told: Told) -> tuple[Certificate, bool]:
        self.board = board = Board(fused)
        self.text.value = board.html()

        def heard(id: str, evidence: Evidence) -> None:
            board.heard(id, evidence)
            if board is self.board:
                self.text.value = board.html()

        try:
            return fused.certify(examples=examples, seed=seed, progress=told, heard=heard), False
        except Stopped as stopped:
            return stopped.certificate, True

    def _done(self, found: tuple[Certificate, bool]) -> None:
        self.certificate, stopped = found
        self.run.disabled = False
        how = "Stopped; what was found until then is kept." if stopped else "Done."
        self.said.value = fields.note(f"{how} {self.certificate}")
        self.text.value = self.certificate._repr_html_()
        self.laws.value = laws_html(self.certificate.laws)

    def _failed(self, sentence: str) -> None:
        self.run.disabled, self.said.value = False, fields.complaint(sentence)

    def recheck(self) -> None:
        """Compute the witness again in the background."""
        witness = self.session.verdict.refusal.witness
        self.said.value = "Computing the witness again …"
        self.checking.start(lambda told: witness.recheck(), self._rechecked, self._failed)

    def _rechecked(self, holds: bool) -> None:
        self.said.value = "Computed again: the numbers prove it." if holds else fields.complaint("Computed again, the numbers do not prove it.")
