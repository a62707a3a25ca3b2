"""How outputs answer when components are multiplied by λ^w and their exponent takes −log₂ λ: not at all.

In: a form and a scaling whose places are counted.  Out: equations.  Every term t becomes λ^d · t + c · log₂ λ, with a
degree d and a slide c of which one is 0; both are terms themselves, as in (λ^a b)^n = λ^(a·n) b^n.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from redfuser_algebra.discover.form import FusedForm, Scaling
from redfuser_algebra.discover.scaling import LOGARITHMS
from redfuser_algebra.discover.simplify import folded, is_number
from redfuser_algebra.language.expr import Expr, const, rewritten

Answer = tuple[Expr, Expr]
"""Degree and slide."""

ZERO = const(0)


def what_outputs_see(form: FusedForm, scaling: Scaling) -> Iterator[tuple[str, Expr, Expr]]:
    """What has to be equal for the outputs to stay as they are."""
    moved = _Moved(form, scaling)
    for number, output in enumerate(form.outputs, 1):
        degree, slide = moved.of(output)
        yield from moved.required
        moved.required.clear()
        yield f"the degree of output {number}", degree, ZERO
        yield f"the slide of output {number}", slide, ZERO


class _Moved:
    """Answers of terms; `required` is what makes them answers."""

    def __init__(self, form: FusedForm, scaling: Scaling) -> None:
        held = {component.name for component in form.state}
        self.values = {name: value for name, value in form.definitions.items() if name not in held}
        self.components: dict[str, Answer] = {name: (const(weight), ZERO) for name, weight in scaling.weights}
        self.components[scaling.exponent] = ZERO, const(-1)
        self.required: list[tuple[str, Expr, Expr]] = []

    def of(self, term: Expr) -> Answer:
        """Degree and slide of a term."""
        if term.op == "symbol":
            return self.of(self.values[term.name]) if term.name in self.values else self.components.get(term.name, (ZERO, ZERO))
        answers = [self.of(arg) for arg in term.args]
        if all(part is ZERO for answer in answers for part in answer):
            return ZERO, ZERO
        degree, slide = _RULES.get(term.op, _still)(self, term, *answers)
        return rewritten(degree, folded), rewritten(slide, folded)

    def same(self, term: Expr, one: Expr, other: Expr) -> None:
        """Ask for two degrees or slides to be equal."""
        if one is not other:
            self.required.append((str(term), one, other))


def _still(moved: _Moved, term: Expr, *answers: Answer) -> Answer:
    """A function that is known to answer only where nothing moves."""
    for degree, slide in answers:
        moved.same(term, degree, ZERO)
        moved.same(term, slide, ZERO)
    return ZERO, ZERO


def _times(moved: _Moved, term: Expr, a: Answer, b: Answer) -> Answer:
    """Degrees add up; a slide is stretched by what does not move."""
    slides = [slide * factor for (_, slide), factor in zip((a, b), reversed(term.args), strict=True) if slide is not ZERO]
    if not slides:
        return a[0] + b[0], ZERO
    for degree, _ in (a, b):
        moved.same(term, degree, ZERO)
    moved.same(term, (a if b[1] is not ZERO else b)[1], ZERO)
    return ZERO, slides[0]


def _over(moved: _Moved, term: Expr, a: Answer, b: Answer) -> Answer:
    moved.same(term, b[1], ZERO)
    if a[1] is ZERO:
        return a[0] - b[0], ZERO
    moved.same(term, b[0], ZERO)
    return ZERO, a[1] / term.args[1]


def _sum(sign: int) -> Callable[[_Moved, Expr, Answer, Answer], Answer]:
    def rule(moved: _Moved, term: Expr, a: Answer, b: Answer) -> Answer:
        moved.same(term, a[0], b[0])
        return a[0], a[1] + sign * b[1]

    return rule


def _alike(moved: _Moved, term: Expr, *answers: Answer) -> Answer:
    """Operands of one degree have a result of that degree."""
    for degree, slide in answers:
        moved.same(term, degree, answers[0][0])
        moved.same(term, slide, ZERO)
    return answers[0]


def _choice(moved: _Moved, term: Expr, condition: Answer, *answers: Answer) -> Answer:
    """0 has every degree."""
    _still(moved, term, condition)
    return _alike(moved, term, *(answer for value, answer in zip(term.args[1:], answers, strict=True) if not is_number(value, 0)))


def _reduced(moved: _Moved, term: Expr, body: Answer, *others: Answer) -> Answer:
    _still(moved, term, *others)
    return (_alike if term.monoid in ("sum", "max", "min") else _still)(moved, term, body)


def _power(moved: _Moved, term: Expr, a: Answer, b: Answer) -> Answer:
    for still in (a[1], *b):
        moved.same(term, still, ZERO)
    return a[0] * term.args[1], ZERO


def _logarithm(moved: _Moved, term: Expr, a: Answer) -> Answer:
    moved.same(term, a[1], ZERO)
    return ZERO, LOGARITHMS[term.op] * a[0]


def _exp2(moved: _Moved, term: Expr, a: Answer) -> Answer:
    moved.same(term, a[0], ZERO)
    return a[1], ZERO


_RULES: dict[str, Callable[..., Answer]] = {
    "multiply": _times, "divide": _over, "add": _sum(1), "subtract": _sum(-1), "negative": lambda moved, term, a: (a[0], -a[1]),
    "power": _power, "exp2": _exp2, "abs": _alike, "maximum": _alike, "minimum": _alike,
    "where": _choice, "reduce": _reduced,
    "sqrt": lambda moved, term, a: _power(moved, term ** const(0.5), a, (ZERO, ZERO)),
    "reciprocal": lambda moved, term, a: _over(moved, term, (ZERO, ZERO), a),
    "sign": lambda moved, term, a: (ZERO, ZERO), **dict.fromkeys(LOGARITHMS, _logarithm)}
