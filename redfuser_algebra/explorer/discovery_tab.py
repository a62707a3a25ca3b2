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
from redfuser_algebra.discover.display import stuck_html
from redfuser_algebra.discover.egraph import LOOKED_AT, Answer, Sexp
from redfuser_algebra.discover.egraph_view import seen, viewer
from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.discover.question import Question
from redfuser_algebra.discover.rules import update
from redfuser_algebra.explorer import fields
from redfuser_algebra.explorer.pictures import FAINT, KEPT, counted, picture
from redfuser_algebra.explorer.session import Session
from redfuser_algebra.explorer.work import Told, Work
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.html import Fragment, displayed, element, folded, joined, listed, paragraphs, said, table, titled
from redfuser_algebra.language.latex import latex
from redfuser_algebra.language.mathematics import mathematics
from redfuser_algebra.language.tidy import tidied
from redfuser_algebra.lower.cost import CURVES

PAPER = "redfuser-paper"
ON_PAPER = f"<style>.{PAPER}:has(.react-flow) {{ background: #fff; color: #111; }}</style>"
"""egglog's widget draws white boxes whatever the theme, and would write on them in the theme's colour."""
MOST_STEPS, MOST_DANGERS = 400, 2
"""Questions beyond so many steps are left out of the slider; more dangers than that are folded away."""


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
        if solved:
            axes.plot(solved, [found[place].nodes for place in solved], "o", color=KEPT, markersize=4, label="answer found")
            axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        drawing.marker(axes, 0)
        counted(axes)
        axes.set_xlabel("step (a line where a question begins)")
        axes.set_ylabel("e-nodes")
        axes.set_xlim(-1, len(found))
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
    """Why the form is this one: state, what an element costs, and dangers, next to the form with raw sums."""
    if not verdict.fused:
        return joined(stuck_html(verdict.refusal), titled("Variants that fuse", listed(map(str, verdict.nearest())) or said("none was found")))
    forms = {"chosen": verdict.fused.form}
    if raw.fused and str(raw.fused.form) != str(verdict.fused.form):
        forms["with raw sums"] = raw.fused.form
    rows = [(name, f"{form.words}: {', '.join(component.name for component in form.state)}", "{}, of them {} exp, ÷ or alike".format(*operations(form)),
             _dangers(form)) for name, form in forms.items()]
    head = ("form", "words of state", "operations per element", "dangers")
    why = _preferred(*forms.values()) if len(forms) > 1 else "Raw sums give the same form: no component has a pivot to be kept at, or none can do without."
    return joined(titled("Why this form", table(head, rows)), paragraphs([why]))


def operations(form: FusedForm) -> tuple[int, int]:
    """What one more element costs: operations, each shared part once, and those of them that take long."""
    terms = [term for term in subterms(*(equation.right for equation in update(form))) if term.args]
    return len(terms), sum(term.op in CURVES for term in terms)


def _dangers(form: FusedForm) -> Fragment:
    known = listed(dict.fromkeys(map(str, form.dangers)))
    count = known.count("<li>")
    return folded(f"{count} known", known, unfolded=count <= MOST_DANGERS) if count else said("none known")


def _preferred(chosen: FusedForm, raw: FusedForm) -> str:
    """Why one of two forms is the default."""
    new = len({str(danger) for danger in raw.dangers} - {str(danger) for danger in chosen.dangers})
    if new:
        return f"Safety comes first: raw sums bring {new} {'danger' if new == 1 else 'dangers'} that sums about moving pivots have not."
    return "Neither is more dangerous; sums about moving pivots are the default."


class DiscoveryTab:
    """The view."""

    title = "Discovery"

    def __init__(self, session: Session, work: Work, pictures: Work) -> None:
        self.session, self.steps, self.viewer, self._of = session, [], None, None
        self.sizes: picture | None = None
        self.slider = fields.labelled(widgets.IntSlider, "Step", fields.WIDE, min=0, max=0)
        self.drawing, self.text, self.choice, self.said = fields.drawn(), fields.shown(), fields.shown(), fields.drawn()
        self.progress = fields.Running("Asking again", work, (self, "steps"))
        self.comparing = fields.Running("Comparing", pictures, (self, "choice"))
        self.running = (self.progress, self.comparing)
        self.slider.observe(lambda change: self._at(change.new), "value")
        self.look = fields.labelled(widgets.Checkbox, "Show the e-graph", value=False)
        self.graph = fields.column()
        self.graph.add_class(PAPER)
        self._offer(False)
        self.look.observe(lambda _: self._show_graph(), "value")
        self.root = fields.column(self.comparing.box, self.choice, self.progress.box, self.said, self.slider, self.drawing, self.text, self.look, self.graph)

    def show(self) -> None:
        """Ask the questions again, once for each verdict."""
        verdict = self.session.verdict
        if verdict is self._of:
            return
        self._of, self.steps = verdict, []
        self.choice.value = self.drawing.value = self.text.value = self.said.value = ""
        self._offer(False)
        if verdict:
            raw = self.session.raw
            self.comparing.start(lambda told: choice_html(verdict, raw), self._compared, self._failed)
            self.progress.start(lambda told: steps(verdict.discoveries, told), self._found, self._failed)

    def _compared(self, found: Fragment) -> None:
        self.choice.value = found

    def _found(self, found: list[Step]) -> None:
        self.steps, self.sizes = found, sizes_picture(found) if found else None
        if not found:
            self.said.value = "The e-graph was not asked: nothing in this operator moves."
            return
        self._offer(True)
        self.slider.max = len(found) - 1
        self.slider.value = len(found) - 1
        self._at(self.slider.value)

    def _offer(self, steps: bool) -> None:
        """Show what goes through steps where there are any."""
        for control in (self.slider, self.look):
            control.layout.display = "" if steps else "none"
        self._show_graph()

    def _failed(self, sentence: str) -> None:
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
        self.graph.children = (self.viewer, fields.drawn(ON_PAPER)) if graph else (fields.drawn(large),) if large else ()
