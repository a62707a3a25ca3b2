"""What must hold for a fused form to be right, statement by statement.

In: an operator's cascade and its form.  Out: obligations, each in words, in LaTeX, and as the terms a checker needs.
Nothing is checked here.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.algebra.semirings import SEMIRINGS
from redfuser_algebra.discover.clipped import Clip
from redfuser_algebra.discover.form import Clipped, Component, FusedForm, Pivot, Recurred, Result
from redfuser_algebra.discover.scaling import zero_later
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol
from redfuser_algebra.language.latex import latex, name_latex
from redfuser_algebra.language.mathematics import mathematics
from redfuser_algebra.language.names import PRIME, primed, symbol_names
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.tidy import tidied
from redfuser_algebra.prove.claims import Claim, claims
from redfuser_algebra.prove.trials.parts import pivot_names

KINDS = ("monoid", "recurrence", "scaling", "rebase", "endomorphism", "cocycle", "order", "safety", "dropped", "readout", "pairs",
         "merge", "result", "infinities")
"""Every kind of obligation, in the order in which certificates list them."""


@dataclass(frozen=True)
class Obligation:
    """One statement: `about` names components, results or a monoid, `terms` are the sides that a checker compares.

    `conditions` are what it may assume.  It is a theorem of the obligations named in `follows_from`, if there are any.
    A `limit` says where the form stops doing what the operator as written does; it may fail without making the form
    wrong over the reals.  `centred` says that a state is only ever moved from its own pivots.
    """

    id: str
    kind: str
    statement: str
    latex: str
    conditions: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    terms: tuple[Expr, ...] = ()
    relation: str = "="
    follows_from: tuple[str, ...] = ()
    limit: bool = False
    centred: bool = False


def obligations(operator: Operator, cascade: Cascade, form: FusedForm) -> tuple[Obligation, ...]:
    """Everything that has to hold, in the order of KINDS."""
    if not form.merges:
        return _online(operator, form), _infinities(form)
    assumed = tuple(mathematics(condition) for condition in (*operator.assume, *form.assumptions))
    ordered = tuple(claim.statement for claim in claims(form) if claim.kind in ("order", "motion"))
    moving = [component for component in form.state if not component.fixed]
    dropped = list(_dropped(cascade, form))
    centred = {o.about[0]: o.id for o in dropped}
    parts = [
        *map(_monoid, dict.fromkeys(component.monoid for component in form.state)),
        *map(_recurrence, form.recurrences), *map(_clip, form.clips),
        *(_scaling(form, number) for number in range(1, len(form.scalings) + 1)),
        *(_rebase(form, component, assumed + ordered) for component in form.state if pivot_names(component)),
        *(_endomorphism(component) for component in moving),
        *(_cocycle(component, centred, ordered) for component in moving),
        *(_claimed("order", number, claim, assumed) for number, claim in enumerate(_of(form, "order", "motion"), 1)),
        *(_claimed("safety", number, claim, assumed) for number, claim in enumerate(_of(form, "sign", "bound"), 1)),
        _finite(form), *dropped, *_readouts(cascade, form), *_pairs(operator),
    ]
    laws = tuple(o.id for o in parts if o.kind in ("monoid", "recurrence", "rebase", "readout"))
    results = ("merge:parts", *(o.id for o in parts if o.kind in ("readout", "pairs")))
    return (*parts, *_merges(form, laws), _result(operator, form, assumed, results), _infinities(form))


def reduction(component: Component, axis: str, lift: Expr | None = None, mask: Expr | None = None) -> Expr:
    """The component as a reduction over the elements; another lift and mask may stand for its own."""
    lift, mask = (own if other is None else other for own, other in ((component.lift, lift), (component.mask, mask)))
    out = component.axes[-1] if MONOIDS[component.monoid].counted else ""
    parts = tuple(part for part in (lift, mask, component.count) if part is not None)
    return Expr("reduce", parts, (component.monoid, axis, out))


def at_new(component: Component, term: Expr) -> Expr:
    """A term of a component with its pivots at their new values."""
    names = pivot_names(component)
    old = [part for part in subterms(term) if part.op == "symbol" and part.name in names]
    return substitute(term, {part: primed(part) for part in old})


def _equation(left: Expr, right: Expr) -> tuple[str, str]:
    sides = tidied(left), tidied(right)
    return " = ".join(map(mathematics, sides)), " = ".join(map(latex, sides))


def _of(form: FusedForm, *kinds: str) -> list[Claim]:
    return [claim for claim in claims(form) if claim.kind in kinds]


def _monoid(name: str) -> Obligation:
    sign, e = MONOIDS[name].symbol, _identity(name)
    if name == "compose":
        return Obligation("monoid:compose", "monoid", "∘: (a ∘ b) ∘ c = a ∘ (b ∘ c); parts keep their order",
                          r"(a \circ b) \circ c = a \circ (b \circ c)", about=(name,))
    swap, written_swap = ("a ⊕ b = b ⊕ a, ", r"a \oplus b = b \oplus a,\ ") if MONOIDS[name].commutative else ("", "")
    statement = f"{sign}: (a ⊕ b) ⊕ c = a ⊕ (b ⊕ c), {swap}a ⊕ {e} = a"
    written = rf"\text{{{name}}}:\ (a \oplus b) \oplus c = a \oplus (b \oplus c),\ {written_swap}a \oplus {e} = a"
    return Obligation(f"monoid:{name}", "monoid", statement, written.replace("∞", r"\infty"), about=(name,))


def _recurrence(recurred: Recurred) -> Obligation:
    """The step is a matrix over a semiring, and the components are that of a part."""
    semiring = SEMIRINGS[recurred.semiring]
    functions = [mathematics(tidied(function)) for function in recurred.basis]
    steps = ", ".join(f"{state.name} ← {mathematics(tidied(step))}" for state, step in recurred.steps if step is not state)
    statement = (f"{steps} takes ({', '.join(functions)}) to a matrix times it over ({semiring.plus}, {semiring.times}); a part holds "
                 f"the product of its elements' matrices, the later ones first, and {recurred.name} is read off it")
    written = r"\varphi(h_l) = M(x_l) \otimes \varphi(h_{l-1}),\ M_{A B} = M_B \otimes M_A"
    return Obligation(f"recurrence:{recurred.name}", "recurrence", statement, written, about=(recurred.name,))


def _clip(clip: Clipped) -> Obligation:
    """The step moves a state and keeps it within bounds, and the components do so for a part."""
    step, part = (mathematics(tidied(term)) for term in (clip.step, Clip(*clip.part).of(clip.state)))
    statement = f"{clip.state.name} ← {step} moves it and keeps it within bounds; so does a part: {part}, and {clip.name} is read off it"
    written = r"h_l = \min(\max(h_{l-1} + a, b), c),\ (a, b, c)_{A B} = (a_A + a_B, \max(b_A + a_B, b_B), \min(\max(c_A + a_B, b_B), c_B))"
    return Obligation(f"recurrence:{clip.name}", "recurrence", statement, written, about=(clip.name,))


def _scaling(form: FusedForm, number: int) -> Obligation:
    """Components that are multiplied together by powers of two, so that they stay within the range of floats."""
    scaling = form.scalings[number - 1]
    moved = ", ".join(name if weight == 1 else f"{name} by λ^{weight}" for name, weight in scaling.weights)
    counted = f"; {scaling.exponent} takes −log₂ λ" if scaling.exponent else ""
    first = sorted(zero_later(form) & {name for name, _ in scaling.weights})
    conditions = (f"{', '.join(first)} are 0 in every part but the first",) if first else ()
    statement = f"multiplying {moved} by λ{counted}: parts a and b by λ and μ multiplies their merge by λμ, and no output changes"
    written = r"(\lambda a) \circ (\mu b) = \lambda\mu\,(a \circ b),\ \mathrm{finalize}(\lambda s) = \mathrm{finalize}(s)"
    return Obligation(f"scaling:{number}", "scaling", statement, written, conditions, scaling.names)


def _identity(monoid: str) -> str:
    return mathematics(const(MONOIDS[monoid].identity))


def _rebase(form: FusedForm, component: Component, conditions: tuple[str, ...]) -> Obligation:
    mask = None if component.mask is None else at_new(component, component.mask)
    left = reduction(component, form.axis, at_new(component, component.lift), mask)
    text, written = _equation(left, component.rebase)
    old = f"{component.name} = {mathematics(tidied(reduction(component, form.axis)))}"
    return Obligation(f"rebase:{component.name}", "rebase", f"{text}, where {old}", written, conditions,
                      (component.name,), (left, component.rebase))


def _endomorphism(component: Component) -> Obligation:
    name, sign, e = component.name, MONOIDS[component.monoid].symbol, _identity(component.monoid)
    statement = f"moving {name} keeps ⊕ = {sign}: T(a ⊕ b) = T(a) ⊕ T(b) and T({e}) = {e}" + (
        " before the first element" if component.takes_over else "") + f", where T is {name}' = " + \
        mathematics(tidied(component.rebase))
    written = rf"T(a \oplus b) = T(a) \oplus T(b),\ T(0_\oplus) = 0_\oplus,\ T = {latex(tidied(component.rebase))}"
    return Obligation(f"endomorphism:{name}", "endomorphism", statement, written, about=(name,), terms=(component.rebase,))


def _cocycle(component: Component, centred: dict[str, str], conditions: tuple[str, ...]) -> Obligation:
    """T(p'→p'')∘T(p→p') = T(p→p''); where sums were dropped because they are 0 about a state's own pivot, T(p→p) = id."""
    old, new, last = (", ".join(name + primes for name in pivot_names(component)) for primes in ("", PRIME, 2 * PRIME))
    nowhere = "moving it nowhere changes nothing, also where a pivot is ±inf or 0"
    dropped = tuple(centred[name] for name in pivot_names(component) if name in centred)
    if dropped:
        statement = f"{component.name} is only moved from a state's own {old}, and {nowhere}"
        written = r"T(p \to p) = \mathrm{id}"
    else:
        statement = f"moving {component.name} from {old} to {new} and on to {last} is moving it at once, and {nowhere}"
        written = r"T(p' \to p'') \circ T(p \to p') = T(p \to p''),\ T(p \to p) = \mathrm{id}"
    return Obligation(f"cocycle:{component.name}", "cocycle", statement, written, conditions, (component.name,),
                      (component.rebase,), centred=bool(dropped))


def _claimed(kind: str, number: int, claim: Claim, conditions: tuple[str, ...]) -> Obligation:
    signs = {"≤": r"\le", "≥": r"\ge", ">": ">", "bounded": r"\lesssim"}
    left, right = tidied(claim.left), tidied(claim.right)
    written = f"{latex(left)} {signs[claim.relation]} {latex(right)}"
    if claim.relation == "bounded":
        text = f"{mathematics(right)} is 0 only where every {mathematics(left)} that takes part is"
    else:
        text = f"{mathematics(left)} {claim.relation} {mathematics(right)}"
    return Obligation(f"{kind}:{number}", kind, text, written, conditions, terms=(claim.left, claim.right),
                      relation=claim.relation)


def _finite(form: FusedForm) -> Obligation:
    statement = "finite elements give finite states, however they are merged: no exponential overflows, no divisor is 0"
    return Obligation("safety:finite", "safety", statement, r"|s| < \infty", tuple(map(str, form.dangers)),
                      tuple(component.name for component in form.state), limit=bool(form.dangers))


def _dropped(cascade: Cascade, form: FusedForm) -> Iterator[Obligation]:
    """Sums about a mean that are 0, where the search found that some are."""
    zero = ("rational", 0, 1)
    if not any(question.answer.term[1:2] == (zero,) for question in form.trace):
        return
    sums = {component.name: (component.lift, component.mask) for component in form.state if component.monoid == "sum"}
    sums |= {row.name: (row.body, row.mask) for row in cascade.reductions if row.monoid == "sum"}
    read = set(symbol_names(*(component.lift for component in form.state)))
    for pivot in form.pivots:
        if pivot.name in read and pivot.value.op == "divide":
            (above, mask), (below, same) = (_body(side, sums, pivot, form) for side in pivot.value.args)
            if above is not None and below is not None and mask is same:
                yield _zero_sum(form, pivot, above, below, mask)


def _body(side: Expr, sums: dict[str, tuple], pivot: Pivot, form: FusedForm) -> tuple[Expr | None, Expr | None]:
    """What a sum adds up and where, if `side` is a sum of elements that do not see the pivot (weights may see another)."""
    if side.op == "size" and side.axis == form.axis:
        return const(1), None
    body, mask = sums.get(side.name, (None, None)) if side.op == "symbol" else (None, None)
    return (None, None) if body is None or pivot.name in symbol_names(body) else (body, mask)


def _zero_sum(form: FusedForm, pivot: Pivot, above: Expr, below: Expr, mask: Expr | None) -> Obligation:
    mean = symbol(pivot.name, pivot.axes)
    body = call("subtract", above, mean if below is const(1) else call("multiply", below, mean))
    left = Expr("reduce", (body,) if mask is None else (body, mask), ("sum", form.axis, ""))
    text, written = _equation(left, const(0))
    return Obligation(f"dropped:{pivot.name}", "dropped", f"{text}, so nothing carries it", written,
                      (f"{pivot.name} = {mathematics(tidied(pivot.value))}",), (pivot.name,), (left, const(0)))


def _readouts(cascade: Cascade, form: FusedForm) -> Iterator[Obligation]:
    recurrences = {followed.name for followed in (*form.recurrences, *form.clips)}
    for row, result in zip(cascade.reductions, form.results, strict=True):
        parts = row.operands
        source = row.body if row.monoid == "compose" else Expr("reduce", parts, row.source.attrs)
        value = tidied(result.value)
        statement = f"{row.name} = {mathematics(tidied(source))} is {mathematics(value)} of the state"
        yield Obligation(f"readout:{row.name}", "readout", statement, f"{latex(tidied(source))} = {latex(value)}",
                         about=(row.name,), terms=(row.source, _of_the_state(result)),
                         follows_from=(f"recurrence:{row.name}",) if row.name in recurrences else ())


def _pairs(operator: Operator) -> Iterator[Obligation]:
    """What is summed over pairs of elements of one array is what sums over its elements make."""
    for number, (output, whole) in enumerate(zip(operator.outputs, operator.as_written.outputs, strict=True), 1):
        if output is not whole:
            sides = [tidied(whole), tidied(output)]
            again = ", ".join(f"{copy} = {source}" for copy, (source, *_) in operator.copies.items())
            yield Obligation(f"pairs:{number}", "pairs", f"{' is '.join(map(mathematics, sides))}, where {again}", " = ".join(map(latex, sides)),
                             terms=(whole, output))


def _of_the_state(result: Result) -> Expr:
    """What a result is made of, without the larger of it and 0: the sum it stands for is never negative."""
    value = result.value
    return value.args[0] if result.monoid == "sum" and value.op == "maximum" and value.args[1] is const(0) else value


def _merges(form: FusedForm, premises: tuple[str, ...]) -> Iterator[Obligation]:
    """The state of a union is the merge; over reachable states the other laws of merge follow from those of unions."""
    def merge(name: str, statement: str, written: str, follows: tuple[str, ...] = ("merge:parts",)) -> Obligation:
        return Obligation(f"merge:{name}", "merge", statement, written, about=tuple(c.name for c in form.state),
                          follows_from=follows)

    yield merge("parts", "the state of A ∪ B is the merge of the states of A and B",
                r"\mathrm{lift}(A \cup B) = \mathrm{lift}(A) \oplus \mathrm{lift}(B)", premises)
    yield merge("associative", "(a ⊕ b) ⊕ c = a ⊕ (b ⊕ c), also where a part is masked out and its pivot infinite",
                r"(a \oplus b) \oplus c = a \oplus (b \oplus c)")
    if form.order == "commutative":
        yield merge("commutative", "a ⊕ b = b ⊕ a, ties included", r"a \oplus b = b \oplus a")
    yield merge("identity", "the state of no elements changes nothing: a ⊕ ∅ = ∅ ⊕ a = a",
                r"a \oplus \emptyset = \emptyset \oplus a = a")


def _result(operator: Operator, form: FusedForm, conditions: tuple[str, ...], premises: tuple[str, ...]) -> Obligation:
    statement = f"finalize(merge of lifted parts, in any bracketing) = {operator.name} as written"
    written = r"\mathrm{finalize}(\bigoplus_i \mathrm{lift}(A_i)) = " + rf"{name_latex(operator.name)}(\bigcup_i A_i)"
    return Obligation("result", "result", statement, written, conditions, follows_from=premises)


def _online(operator: Operator, form: FusedForm) -> Obligation:
    """Nothing is claimed of parts that do not begin the axis."""
    steps = ", ".join(f"{c.name} ← {mathematics(tidied(c.step))}" for c in form.state)
    statement = f"the states after all elements, fed in any chunks in their order, give {operator.name} as written: {steps}"
    return Obligation("result", "result", statement, r"h_l = f(h_{l-1}, x_l)", about=tuple(c.name for c in form.state))


def _infinities(form: FusedForm) -> Obligation:
    statement = "where elements are ±inf and the operator as written still has finite results, so has the form, the same"
    return Obligation("infinities", "infinities", statement, r"x_l = \pm\infty", tuple(map(str, form.guards)), limit=bool(form.clips))
