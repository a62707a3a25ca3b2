"""The search, step by step: laws fired, the size of the e-graph, the best term so far, and why a form was chosen.

In: the questions that were asked of the e-graph.  Out: steps as data, a picture of sizes, HTML for one step.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import ipywidgets as widgets

import redfuser_algebra as ra
from redfuser_algebra.discover.decode import Decoder
from redfuser_algebra.discover.discovery import Discovery
from redfuser_algebra.discover.egraph import LOOKED_AT, Answer, Sexp
from redfuser_algebra.discover.egraph_view import seen, viewer
from redfuser_algebra.discover.question import Question
from redfuser_algebra.discover.show import summary
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.pictures import FAINT, KEPT, counted, picture
from redfuser_algebra.explorer.session import Session
from redfuser_algebra.explorer.work import Told, Work
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.html import Fragment, displayed, element, folded, joined, listed, table, titled
from redfuser_algebra.language.latex import latex
from redfuser_algebra.language.mathematics import mathematics
from redfuser_algebra.language.tidy import tidied

MOST_STEPS = 400
"""Questions beyond so many steps are left out of the slider."""


@dataclass(frozen=True)
class Step:
    """What the e-graph knew of one question after some iterations."""

    axis: str
    question: int
    questions: int
    iteration: int
    iterations: int
    nodes: int
    finite: bool
    laws: tuple[tuple[str, int], ...]
    term: Expr | None = field(repr=False)
    graph: str = field(default="", repr=False)


def steps(discoveries: Sequence[Discovery], told: Told = lambda done, whole: None) -> list[Step]:
    """The steps of every question, asked again with one iteration more each time."""
    asked = [(found.cascade.axis, question) for found in discoveries for question in found.trace]
    found: list[Step] = []
    for place, (axis, question) in enumerate(asked):
        told(place, len(asked))
        if len(found) + question.answer.iterations + 1 > MOST_STEPS:
            break
        names = {leaf: mathematics(tidied(expr)) for leaf, expr in question.leaves.items()}
        for iteration, answer in enumerate(question.steps()):
            laws = tuple((law, count) for law, count in answer.fired.most_common() if law in ra.LAWS)
            found.append(Step(axis, place + 1, len(asked), iteration, question.answer.iterations, answer.nodes, answer.finite, laws,
                              best_term(question, answer, axis), seen(answer.graph, names) if answer.graph else ""))
    return found


def best_term(question: Question, answer: Answer, axis: str) -> Expr | None:
    """The cheapest term so far as an expression; what is kept at the old pivots is written as the reduction it is."""
    decoder = Decoder(dict(question.leaves))

    def written(term: Sexp) -> Expr:
        _, monoid, _, body = term
        return Expr("reduce", (decoder.expr(_opened(body), written),), (monoid, axis, ""))

    try:
        return tidied(decoder.expr(_opened(answer.term), written))
    except (ValueError, KeyError, TypeError, AssertionError, ra.RedfuserError):
        return None


def _opened(term: Sexp) -> Sexp:
    """A term in which reductions that are still to be taken apart are read like those that are kept."""
    if not isinstance(term, tuple):
        return term
    head = "Kept" if term[0] == "Red" else term[0]
    return (head, *map(_opened, term[1:]))


def sizes_picture(found: Sequence[Step]) -> picture:
    """E-nodes after each step, with a dot where a question has an answer; the marker is at the first step."""
    with picture(f"E-graph size in {len(found)} steps, at most {max(step.nodes for step in found)} e-nodes", 7.5, 2.0) as drawing:
        axes, places = drawing.axes, range(len(found))
        for start in (place for place, step in enumerate(found) if step.iteration == 0):
            axes.axvline(start - 0.5, color=FAINT, linewidth=0.5)
        axes.plot(places, [step.nodes for step in found], color=KEPT, linewidth=1, drawstyle="steps-mid")
        solved = [place for place in places if found[place].finite]
        axes.plot(solved, [found[place].nodes for place in solved], "o", color=KEPT, markersize=4, label="answer found")
        drawing.marker(axes, 0)
        counted(axes)
        axes.set_xlabel("step (a line where a question begins)")
        axes.set_ylabel("e-nodes")
        axes.set_xlim(-1, len(found))
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return drawing


def step_html(step: Step) -> Fragment:
    """One step in words and mathematics."""
    state = "an answer: no reduction sees the new pivot" if step.finite else "no answer yet: a reduction still sees the new pivot"
    title = f"Question {step.question} of {step.questions}, over {step.axis}: after {step.iteration} of {step.iterations} iterations, {step.nodes:,} e-nodes"
    best = displayed(latex(step.term)) if step.term is not None else element("p", "The term cannot be written down yet.")
    laws = table(("law", "matches", "statement"), [(law, count, _statement(law)) for law, count in step.laws[:12]])
    return joined(titled(title, element("div", f"Best term so far ({state}):"), best), folded("Laws that matched so far", laws, unfolded=True))


def _statement(law: str) -> str:
    row = ra.LAWS[law]
    return f"{row.lhs} = {row.rhs}" + (f"  where {row.requires}" if row.requires else "")


def choice_html(verdict: ra.Verdict, raw: ra.Verdict) -> Fragment:
    """Why the form is this one: words of state, components and dangers, next to the form with raw sums."""
    if not verdict.fused:
        return titled("No form was found", *([str(verdict.refusal)] if verdict.refusal else []))
    forms = [("chosen", verdict.fused.form)]
    if raw.fused and str(raw.fused.form) != str(verdict.fused.form):
        forms.append(("with raw sums", raw.fused.form))
    rows = [(name, summary(form), ", ".join(component.name for component in form.state),
             listed(dict.fromkeys(map(str, form.dangers))) or "none known") for name, form in forms]
    only = "" if len(forms) > 1 else element("p", "Raw sums give the same form: no component has a pivot to be kept at, or none can do without.")
    return joined(titled("Why this form", table(("form", "size", "components", "dangers"), rows)), only)


class DiscoveryTab:
    """The view."""

    title = "Discovery"

    def __init__(self, session: Session, work: Work) -> None:
        self.session, self.work, self.steps, self.viewer, self._of = session, work, [], None, None
        self.sizes: picture | None = None
        self.slider = fields.labelled(widgets.IntSlider, "Step", fields.WIDE, min=0, max=0, disabled=True)
        self.drawing, self.text, self.choice, self.said = fields.drawn(), fields.shown(), fields.shown(), fields.drawn()
        self.progress = fields.Progress("Asking again", lambda: work.stop((self, "steps")))
        self.slider.observe(lambda change: self._at(change.new), "value")
        self.look = fields.labelled(widgets.Checkbox, "Show the e-graph", value=False)
        self.graph = fields.column()
        self.look.observe(lambda _: self._show_graph(), "value")
        self.root = fields.column(self.choice, self.progress.box, self.said, self.slider, self.drawing, self.text, self.look, self.graph)

    def show(self) -> None:
        """Ask the questions again, once for each verdict."""
        verdict = self.session.verdict
        if verdict is self._of:
            return
        self._of, self.steps = verdict, []
        self.choice.value = choice_html(verdict, self.session.raw) if verdict else ""
        self.drawing.value = self.text.value = self.said.value = ""
        self.slider.disabled = True
        if verdict:
            self.progress.begin()
            self.work.start((self, "steps"), lambda told: steps(verdict.discoveries, told), self._found, self._failed, self.progress.told)

    def _found(self, found: list[Step]) -> None:
        self.progress.end()
        self.steps, self.sizes = found, sizes_picture(found) if found else None
        if not found:
            self.said.value = "The e-graph was not asked: nothing in this operator moves."
            return
        self.slider.max, self.slider.disabled = len(found) - 1, False
        self.slider.value = len(found) - 1
        self._at(self.slider.value)

    def _failed(self, sentence: str) -> None:
        self.progress.end()
        self.said.value = fields.complaint(sentence)

    def _at(self, place: int) -> None:
        if self.steps:
            place = min(place, len(self.steps) - 1)
            self.drawing.value, self.text.value = self.sizes.at(place), step_html(self.steps[place])
            self._show_graph()

    def _show_graph(self) -> None:
        """The e-graph of the step, where it is asked for and small enough; egglog's widget is made when it is first needed."""
        graph = self.steps[min(self.slider.value, len(self.steps) - 1)].graph if self.steps and self.look.value else ""
        if graph and self.viewer is None:
            self.viewer = viewer(graph)
        if graph:
            self.viewer.egraphs = [graph]
        large = fields.note(f"It has more than {LOOKED_AT} e-nodes: too many to look at.") if self.look.value and self.steps and not graph else ""
        self.graph.children = (self.viewer,) if graph else (fields.drawn(large),) if large else ()
