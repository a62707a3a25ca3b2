"""What each kind of obligation says about one trial: pairs of values that must be equal, or in order.

In: a trial and an obligation.  Out: comparisons, lazily, so that a checker can stop at the first that fails.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from redfuser_algebra.discover.form import Component
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import PRIME, symbol_names
from redfuser_algebra.prove.obligations import Obligation
from redfuser_algebra.prove.trials.arithmetic import Evaluation
from redfuser_algebra.prove.trials.parts import Held, Part, Values, pivot_names
from redfuser_algebra.prove.trials.trial import Trial, is_finite


@dataclass(frozen=True)
class Comparison:
    """`got` `relation` `expected`, entry by entry where `where` holds; `what` says which values these are.

    The relation ≐ is equality of finite numbers; what is ±inf or NaN need only be either.
    """

    what: str
    got: np.ndarray
    expected: np.ndarray
    relation: str = "="
    where: np.ndarray | None = None


def comparisons(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    """What an obligation says about a trial; nothing where its premise does not hold."""
    yield from _CHECKS[obligation.kind](trial, obligation)


def _of_held(what: str, got: Held, expected: Held) -> Iterator[Comparison]:
    yield Comparison(what, got.value, expected.value)
    if got.won is not None and expected.won is not None:
        yield Comparison(f"{what}, values won with", got.won, expected.won)


def _of_states(what: str, got: Part, expected: Part) -> Iterator[Comparison]:
    for name in expected.held:
        yield from _of_held(f"{name} of {what}", got.held[name], expected.held[name])


def _component(trial: Trial, obligation: Obligation) -> Component:
    return trial.form.component(obligation.about[0])


def _monoid(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    if obligation.about[0] == "compose":
        yield from _composition(trial)
        return
    for component in trial.form.state:
        if component.monoid == obligation.about[0]:
            a, b, c = (trial.lifted(letter).held[component.name] for letter in "ABC")
            nothing = trial.carrier.identity(component, a)
            ab, bc = trial.join(component, a, b), trial.join(component, b, c)
            yield from _of_held("(a ⊕ b) ⊕ c", trial.join(component, ab, c), trial.join(component, a, bc))
            if trial.form.order == "commutative":
                yield from _of_held("b ⊕ a", trial.join(component, b, a), ab)
            yield from _of_held("a ⊕ ∅", trial.join(component, a, nothing), a)


def _composition(trial: Trial) -> Iterator[Comparison]:
    """(a ∘ b) ∘ c = a ∘ (b ∘ c), for the ordered components of three parts."""
    a, b, c = (trial.lifted(letter) for letter in "ABC")
    if a.length and b.length and c.length:
        evaluation, carrier = trial.lifted("ABC").values.evaluation, trial.carrier
        first = carrier.composed(carrier.composed(a.held, b.held, evaluation), c.held, evaluation)
        last = carrier.composed(a.held, carrier.composed(b.held, c.held, evaluation), evaluation)
        for name in first:
            yield from _of_held(f"(a ∘ b) ∘ c for {name}", first[name], last[name])


def _rebase(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    name = obligation.about[0]
    for own, onto in (("A", "AB"), ("B", "ABC"), ("AB", "ABC")):
        if trial.lifted(own).length:
            what = f"{name} of {own}, moved to the pivots of {onto}"
            yield from _of_held(what, trial.moved(own, onto).held[name], trial.lifted(own, onto).held[name])


def _endomorphism(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    component, name = _component(trial, obligation), obligation.about[0]
    if not trial.lifted("AB").length:
        return
    carrier, onto, like = trial.carrier, trial.lifted("ABC").values, trial.joined("A", "B", "AB")
    together = carrier.rebased(component, like, onto)
    apart = [carrier.rebased(component, trial.lifted(letter, "AB"), onto) for letter in "AB"]
    yield from _of_held(f"T(a ⊕ b) for {name}", together, trial.join(component, *apart))
    nothing = trial.nothing("" if component.takes_over else "AB")
    yield from _of_held(f"T(0) for {name}", carrier.rebased(component, nothing, onto), nothing.held[name])


def _cocycle(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    name = obligation.about[0]
    if not trial.lifted("A").length:
        return
    if not obligation.centred:
        yield from _of_held(f"{name} moved by way of AB", trial.moved("A", "AB", "ABC").held[name],
                            trial.moved("A", "ABC").held[name])
    for letters in ("A", "ABC"):
        yield from _of_held(f"{name} moved nowhere", trial.moved(letters, letters).held[name],
                            trial.lifted(letters).held[name])


def _claim(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    """A stated fact, for the elements of a part about the pivots of that part, or between old and new pivots."""
    if not trial.ordinary():
        return
    if obligation.id == "safety:finite":
        yield from _finite(trial)
        return
    for own, onto in (("A", "AB"), ("AB", "ABC"), ("ABC", "ABC")):
        part = trial.lifted(own)
        if part.length:
            values = _with_new(trial, part.values, trial.lifted(onto).values, obligation.terms)
            left, right = map(values.of, obligation.terms)
            for where in _taking_part(trial, values, obligation.terms):
                yield Comparison(f"{obligation.statement} in {own}", left, right, obligation.relation, where)


def _with_new(trial: Trial, own: Values, onto: Values, terms: tuple[Expr, ...]) -> Values:
    """The symbols of a part and, primed, those of another one."""
    values = trial.carrier.values(own.evaluation.instance, own.evaluation.length)
    for name in symbol_names(*terms):
        values.evaluation.symbols[name] = (onto if name.endswith(PRIME) else own).named(name.removesuffix(PRIME))
    return values


def _taking_part(trial: Trial, values: Values, terms: tuple[Expr, ...]) -> Iterator[np.ndarray | None]:
    """For each component that the terms are about, which elements it is made of."""
    if not any(trial.form.axis in term.axes for term in terms):
        yield None
        return
    inside = set(terms)
    masks: dict[Expr | None, None] = {}
    for component in trial.form.state:
        if inside & set(subterms(component.lift)) and pivot_names(component):
            masks[component.mask] = None
    for mask in masks or {None: None}:
        if mask is not None:
            values.ready(mask)
        yield None if mask is None else values.evaluation.truth(mask)


def _finite(trial: Trial) -> Iterator[Comparison]:
    for state in (trial.merged("A", "B"), trial.merged("(AB)", "C"), trial.one_by_one()):
        for component in trial.form.state:
            finite = trial.finite(component, state.held[component.name])
            yield Comparison(f"{component.name} is finite", finite, np.ones(finite.shape, bool))


def _zero(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    for letters in ("AB", "ABC"):
        part = trial.lifted(letters)
        if part.length:
            values = _with_new(trial, part.values, part.values, obligation.terms)
            left, right = map(values.of, obligation.terms)
            defined = np.asarray(np.equal(left, left), bool)
            yield Comparison(f"the sum over {letters}", left, right, where=defined)


def _readout(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    for letters in ("AB", "ABC"):
        if trial.lifted(letters).length >= trial.least:
            name, (written, _) = obligation.about[0], obligation.terms
            yield Comparison(f"{name} of {letters}", trial.final(letters).named(name),
                             Evaluation(trial.arithmetic, trial.of(letters)).of(written), "≐")


def _merge(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    merge, carrier = trial.merged, trial.carrier
    match obligation.id.removeprefix("merge:"):
        case "parts":
            yield from _of_states("the merge of A and B", merge("A", "B"), trial.lifted("AB"))
            yield from _of_states("the merge of AB and C", merge("(AB)", "C"), trial.lifted("ABC"))
        case "associative":
            yield from _of_states("(A ⊕ B) ⊕ C", merge("(AB)", "C"), merge("A", "(BC)"))
        case "commutative":
            yield from _of_states("B ⊕ A", merge("B", "A"), merge("A", "B"))
        case "identity":
            nothing, a = carrier.lift(trial.instance.taking(())), trial.lifted("A")
            yield from _of_states("A ⊕ ∅", carrier.merge(a, nothing), a)
            yield from _of_states("∅ ⊕ A", carrier.merge(nothing, a), a)


def _pairs(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    evaluation = Evaluation(trial.arithmetic, trial.instance)
    whole, taken_apart = map(evaluation.of, obligation.terms)
    yield Comparison("all pairs", taken_apart, whole, "≐")


def _result(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    expected = trial.as_written()
    bracketings = {"(A ⊕ B) ⊕ C": lambda: trial.merged("(AB)", "C"), "A ⊕ (B ⊕ C)": lambda: trial.merged("A", "(BC)"),
                   "one element after the other": trial.one_by_one, "all elements at once": lambda: trial.lifted("ABC")}
    if trial.form.order == "commutative":
        bracketings["C ⊕ (A ⊕ B)"] = lambda: trial.merged("C", "(AB)")
    if not trial.form.merges:
        del bracketings["A ⊕ (B ⊕ C)"]
    for how, state in bracketings.items():
        final = trial.carrier.finalized(state(), trial.instance)
        for number, (output, wanted) in enumerate(zip(trial.form.outputs, expected, strict=True), 1):
            yield Comparison(f"output {number}, {how}", final.of(output), wanted, "≐")


def _infinities(trial: Trial, obligation: Obligation) -> Iterator[Comparison]:
    given = [np.all(is_finite(array)) for array in trial.instance.arrays.values()]
    if not all(given) and all(np.all(is_finite(value)) for value in trial.as_written()):
        yield from _result(trial, obligation)


_CHECKS: dict[str, Callable[[Trial, Obligation], Iterator[Comparison]]] = {
    "monoid": _monoid, "rebase": _rebase, "endomorphism": _endomorphism, "cocycle": _cocycle, "order": _claim,
    "safety": _claim, "dropped": _zero, "readout": _readout, "pairs": _pairs, "merge": _merge, "result": _result,
    "infinities": _infinities,
}
