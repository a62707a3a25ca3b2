"""The vector–Jacobian product of an operator, as operators: reverse-mode differentiation of its expressions.

In: an operator and the axis that its fused form sweeps.  Out: for each input that the outputs depend on smoothly, an
operator of the inputs, of what the forward pass has left of each row (`saved`) and of one cotangent per output.  What
varies along the axis is computed again, not stored, but for states of scans: their derivative runs backwards.  Of equal
elements the first wins a maximum, as in argmax.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS, STEPS
from redfuser_algebra.language.adjoint import Parts, adjoint
from redfuser_algebra.language.cascade import STEMS, cascade_over, cascades, primary
from redfuser_algebra.language.derivatives import derivatives
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, unbound_states
from redfuser_algebra.language.factored import NOTHING, ONE, Factors, Product, holding, single
from redfuser_algebra.language.functions import argmax, argmin, count, exp, index, log, prod, size, where
from redfuser_algebra.language.names import numbered, unused
from redfuser_algebra.language.operator import Operator, define
from redfuser_algebra.language.polynomial import Polynomials

_RUNNING = ("max", "min", "prod")
"""Monoids whose reductions of running values are differentiated as scans."""

Weights = dict[Expr, tuple[Expr, Expr]]
"""Exponentials e that are summed to an s: each with the weight w of which it is the product w·s, and with s."""


@dataclass(frozen=True)
class Backward:
    """What `differentiated` makes: `saved` gives the rows' results by name, `operators` the derivatives.

    Each operator gives the derivatives by the inputs it stands under, in their order: those that are made in one sweep
    of one axis.  `cotangents` has the axes of each output's derivative by name.  `reversed` operators take, and give, arrays
    whose swept axis runs from the last element to the first; the inputs `position` and `length` are where each element was,
    and how many there are.
    """

    saved: Operator | None
    operators: dict[tuple[str, ...], Operator]
    cotangents: dict[str, tuple[str, ...]]
    axis: str
    reversed: frozenset[tuple[str, ...]]
    position: str
    length: str

    @property
    def words(self) -> int:
        """How many results are saved."""
        return len(self.saved.outputs) if self.saved else 0


def differentiated(operator: Operator, axis: str) -> Backward:
    """The operators of an operator's vector–Jacobian product.

    Raises OperatorError for a term without a derivative, and where no input can be differentiated by.
    """
    weights = _weights(operator, axis)
    tried = [Reverse(operator, axis, chosen).backward() for chosen in ([weights, {}] if weights else [{}])]
    return min(tried, key=lambda backward: backward.words)


def _weights(operator: Operator, axis: str) -> Weights:
    """e^(a − c) = e^(a − lse)·s for the sums s of exponentials, with lse = c + log s, so that a row is one number."""
    found: Weights = {}
    for term in subterms(*operator.outputs):
        if term.op == "reduce" and term.monoid == "sum" and term.axis == axis and term.body.op == "exp":
            exponent = term.body.args[0]
            shifted = exponent.op == "subtract" and axis not in exponent.args[1].axes
            element, sums = (exponent.args[0], exponent.args[1] + log(term)) if shifted else (exponent, log(term))
            found.setdefault(term.body, (exp(element - sums), term))
    return found


class Reverse:
    """One walk back through an operator's terms, results before what they are made of."""

    def __init__(self, operator: Operator, axis: str, weights: Weights) -> None:
        self.operator, self.axis = operator, axis
        self.terms = subterms(*operator.outputs)
        self.smooth = _smooth(self.terms)
        self.states = _states(self.terms, axis) | {weight.args[0].args[1]: "lse" for weight, _ in weights.values()}
        sums = [term for term in self.terms if term.op == "reduce" and term.monoid == "sum"]
        self.factors = Factors(self.states.__contains__, {e: single(w) * single(s) for e, (w, s) in weights.items()}, sums)
        self.written_out = {weight: e / s for e, (weight, s) in weights.items()}
        self.polynomials = Polynomials()
        self.parts: Parts = {}
        self.seen: dict[tuple, dict[tuple[int, str], Product]] = {}
        self.scans = {(term.args, *term.attrs[:2]): term for term in reversed(self.terms) if term.op == "scan"}
        self.adjoint_names = numbered("a", {*operator.inputs, *operator.params, *operator.axes})

    def backward(self) -> Backward:
        """The operators that the walk leads to."""
        cotangents = _cotangents(self.operator, self.smooth)
        for name, (output, axes) in cotangents.items():
            self.parts.setdefault(output, []).append(single(Expr("input", (), (name, axes))))
        found: dict[str, Expr] = {}
        for term in reversed(self.terms):
            total = self._gathered(term) if self.smooth[term] and term in self.parts else NOTHING
            if term.op == "scan":
                self._pass_back(term, total)
            elif total.number and self._is_of_running_values(term):
                self._pass_through(self._as_scan(term), {(0, ""): total})
            elif total.number and term.op == "input":
                found[term.name] = total.expr
            elif total.number:
                self._pass_on(term, total, self.parts, self.smooth.__getitem__)
        if not found:
            raise OperatorError(f"the gradient of {self.operator.name}", "its results do not change smoothly with any input",
                                "differentiate an operator whose results are real numbers made of its inputs")
        return _written(self, {name: found[name] for name in self.operator.inputs if name in found and name not in self.operator.constants},
                        {name: axes for name, (_, axes) in cotangents.items()})

    def _gathered(self, term: Expr) -> Product:
        """The derivative by a term, from all its uses; that by a pivot may vanish."""
        total = self.factors.added(self.parts[term])
        return NOTHING if term.op == "reduce" and self._vanishes(total) else total

    def _pass_back(self, scan: Expr, total: Product) -> None:
        """From the states of a scan to its elements, once the derivatives by all of its states are known."""
        axis, names, place, every = scan.attrs
        seen = self.seen.setdefault((scan.args, axis, names), {})
        if total.number:
            seen[place, every] = total
        if scan is not self.scans[scan.args, axis, names] or not seen or unbound_states(scan):
            return
        if axis != self.axis:
            raise self.refusal(scan)
        self._pass_through(scan, seen)

    def _pass_through(self, scan: Expr, seen: Mapping[tuple[int, str], Product]) -> None:
        found = adjoint(scan, seen, self.factors, self._pass_on, self.smooth, self.adjoint_names)
        self.states |= dict.fromkeys(found.read, STEMS["compose"])
        for arg, value in found.passed:
            self.parts.setdefault(arg, []).append(self._summed(self.factors.of(value), _missing(value.axes, arg)))

    def _is_of_running_values(self, term: Expr) -> bool:
        """Whether a term is the largest, the smallest or the product of what sees the elements before."""
        return term.op == "reduce" and term.monoid in _RUNNING and term.axis == self.axis and any(part.op == "scan" for part in subterms(term.body))

    def _as_scan(self, term: Expr) -> Expr:
        """A reduction as the last state of a scan: nothing has to be known of where its elements lie."""
        name = next(self.adjoint_names)
        state = Expr("state", (), (name, term.axes))
        step = call(STEPS[term.monoid], state, term.body)
        step = step if term.mask is None else where(term.mask, step, state)
        return Expr("scan", (const(MONOIDS[term.monoid].identity), step), (term.axis, (name,), 0, ""))

    def _vanishes(self, product: Product) -> bool:
        return self.polynomials.vanishes(substitute(product.expr, self.written_out))

    def _pass_on(self, term: Expr, total: Product, parts: Parts, follows: Callable[[Expr], bool], kept: str = "") -> None:
        """What a term's derivative makes of those by its operands that follow; the axis that is `kept` is not summed over."""
        rule = _REDUCTIONS.get(term.monoid) if term.op == "reduce" else _elementwise
        if rule is None:
            raise self.refusal(term)
        for arg, factor, axes in rule(self, term):
            if follows(arg):
                parts.setdefault(arg, []).append(self._summed(total * factor, [axis for axis in axes if axis != kept]))

    def _summed(self, product: Product, axes: Iterable[str]) -> Product:
        """Σ over axes, without the addends whose sums vanish."""
        for axis in axes:
            addends = self.factors.addends(product)
            kept = [part for part in addends if not self._vanishes(self.factors.summed(part, axis))]
            product = product if len(kept) == len(addends) else self.factors.added(kept)
            product = self.factors.summed(product, axis) if kept else NOTHING
        return product

    def helper(self, reduction: Expr) -> Expr:
        """A reduction that only the derivative needs, which the forward pass saves as well."""
        self.states[reduction] = STEMS.get(reduction.monoid, "d")
        return reduction

    def refusal(self, term: Expr) -> OperatorError:
        """The error of a term without a derivative."""
        word = term.monoid if term.op == "reduce" else term.op
        return OperatorError(f"the gradient of {self.operator.name}", f"{word} has no derivative, in {term!r:.100}",
                             "pass its result as an input instead, or declare a function of your own with derivative=…")


def _smooth(terms: Iterable[Expr]) -> dict[Expr, bool]:
    """Whether each term is made of inputs other than by comparisons, truth values and positions."""
    smooth: dict[Expr, bool] = {}
    for term in terms:
        still = (term.op == "reduce" and term.monoid in ("argmax", "argmin", "argtopk", "any", "all")
                 or term.op in FUNCTIONS and FUNCTIONS[term.op].boolean)
        parts = term.args[1:] if term.op == "where" else term.args[:1] if term.op == "reduce" else term.args
        smooth[term] = term.op == "input" or not still and any(smooth[part] for part in parts)
    return smooth


def _states(terms: Iterable[Expr], axis: str) -> dict[Expr, str]:
    """The terms that one row has one value of after the sweep, each with the letter that stands for it."""
    swept: dict[Expr, bool] = {}
    for term in terms:
        swept[term] = any(swept[arg] for arg in term.args) or term.op in ("reduce", "scan") and term.axis == axis
    return {term: STEMS.get(term.monoid, "d") if term.op in ("reduce", "scan") else "r"
            for term, is_swept in swept.items() if not unbound_states(term) and (is_swept and axis not in term.axes or term.op == "scan")}


def _cotangents(operator: Operator, smooth: Mapping[Expr, bool]) -> dict[str, tuple[Expr, tuple[str, ...]]]:
    """A name for the derivative by each real output, with its axes."""
    names = ([""] if operator.structure == "single" else [f"_{name}" for name in operator.structure]
             if isinstance(operator.structure, tuple) else [str(place + 1) for place in range(len(operator.outputs))])
    taken = {*operator.inputs, *operator.params, *operator.axes}
    return {_fresh(f"dy{name}", taken): (output, axes)
            for name, output, axes in zip(names, operator.outputs, operator.output_axes, strict=True) if smooth[output]}


def _fresh(stem: str, taken: set[str]) -> str:
    name = unused(stem, taken)
    taken.add(name)
    return name


# one rule per kind of term: (operand, factor, axes to sum over)

Passed = Iterable[tuple[Expr, Product, list[str]]]


def _elementwise(reverse: Reverse, term: Expr) -> Passed:
    slopes = derivatives(term)
    if not slopes:
        raise reverse.refusal(term)
    for arg, slope in zip(term.args, slopes, strict=True):
        yield arg, reverse.factors.of(slope), _missing(term.axes, arg)


def _missing(axes: Iterable[str], arg: Expr) -> list[str]:
    return [axis for axis in axes if axis not in arg.axes]


def _mask(term: Expr) -> Product:
    return ONE if term.mask is None else holding(term.mask)


def _all_axes(term: Expr) -> dict[str, None]:
    return dict.fromkeys((*term.axes, *(axis for arg in term.args for axis in arg.axes)))


def _sum(reverse: Reverse, term: Expr) -> Passed:
    yield term.body, _mask(term), _missing(_all_axes(term), term.body)


def _extreme(reverse: Reverse, term: Expr) -> Passed:
    winner = reverse.helper((argmax if term.monoid == "max" else argmin)(term.body, term.axis, where=term.mask))
    yield term.body, holding(index(term.axis) == winner), _missing(_all_axes(term), term.body)


def _topk(reverse: Reverse, term: Expr) -> Passed:
    winners = reverse.helper(Expr("reduce", term.args, ("argtopk", *term.attrs[1:])))
    yield term.body, holding(index(term.axis) == winners), _missing(_all_axes(term), term.body)


def _product(reverse: Reverse, term: Expr) -> Passed:
    """The product of the other elements: one 0 leaves its own derivative, two leave none."""
    zero = term.body == 0
    zeros = reverse.helper(count(zero if term.mask is None else zero & term.mask, term.axis))
    others = reverse.helper(prod(term.body, term.axis, where=~zero if term.mask is None else ~zero & term.mask))
    factor = where(zero, where(zeros == 1, others, 0), where(zeros == 0, others / term.body, 0))
    yield term.body, single(factor) * _mask(term), _missing(_all_axes(term), term.body)


_REDUCTIONS = {"sum": _sum, "max": _extreme, "min": _extreme, "topk": _topk, "prod": _product}


# what is saved, and the operators

def _written(reverse: Reverse, found: Mapping[str, Expr], cotangents: Mapping[str, tuple[str, ...]]) -> Backward:
    """The operators of the derivatives found, those over one axis together.

    What reduces nothing itself joins the operator over the swept axis; where there is none it makes the states itself.
    """
    operator, saved, axis = reverse.operator, _Saved(reverse, found.values(), cotangents), reverse.axis
    inputs = operator.inputs | saved.inputs | cotangents
    taken = {*inputs, *operator.params, *operator.axes}
    place, length = Expr("input", (), (_fresh("position", taken), (axis,))), Expr("input", (), (_fresh("length", taken), ()))
    reading = {name: substitute(expr, saved.leaves) for name, expr in found.items()}
    swept = {name: _swept(operator, inputs, expr) for name, expr in reading.items()}
    still = [name for name, axis in swept.items() if axis is None and reading[name] is not found[name]]
    if axis not in swept.values():
        reading |= {name: found[name] for name in still}
    swept |= dict.fromkeys(still, axis)
    operators, backwards = {}, set()
    for each in dict.fromkeys(swept.values()):
        together = [name for name in found if swept[name] == each]
        for names in map(tuple, [together] if each else [[name] for name in together]):
            exprs, known = {name: reading[name] for name in names}, inputs
            if any(term.op == "scan" for term in subterms(*exprs.values())):
                backwards.add(names)
                exprs = {name: substitute(expr, {index(axis): place, size(axis): length}) for name, expr in exprs.items()}
                known = inputs | {place.name: place.axes, length.name: ()}
            operators[names] = _derivatives(operator, known, exprs, "_reversed" if names in backwards else "")
    read = {name for each in operators.values() for name in each.inputs}
    results = {name: term for term, name in saved.names.items() if name in read}
    order = ", ".join(" ".join(saved.inputs[name]) for name in results)
    return Backward(_operator(operator, "saved", operator.inputs, results, order) if results else None, operators, dict(cotangents),
                    axis, frozenset(backwards), place.name, length.name)


class _Saved:
    """The states that derivatives read, under the names and as the inputs that stand for them."""

    def __init__(self, reverse: Reverse, exprs: Iterable[Expr], cotangents: Mapping[str, tuple[str, ...]]) -> None:
        operator = reverse.operator
        taken = {*operator.inputs, *operator.params, *operator.axes, *cotangents}
        known = {reduction.source: reduction.name for reduction in cascade_over(reverse.axis, operator).reductions}
        known |= _names_of_outputs(operator)
        self.names = {term: _fresh(known.get(term, reverse.states[term]), taken) for term in _read(reverse.states, exprs)}
        self.inputs = {name: tuple(axis for axis in operator.axes if axis in term.axes) for term, name in self.names.items()}
        self.leaves = {term: Expr("input", (), (name, self.inputs[name])) for term, name in self.names.items()}


def _names_of_outputs(operator: Operator) -> dict[Expr, str]:
    names = operator.structure if isinstance(operator.structure, tuple) else [f"y{n + 1}" for n in range(len(operator.outputs))]
    return dict(zip(operator.outputs, ["y"] if operator.structure == "single" else names, strict=True))


def _read(states: Mapping[Expr, str], roots: Iterable[Expr]) -> list[Expr]:
    """The largest states that expressions read."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    todo = list(roots)[::-1]
    while todo:
        term = todo.pop()
        if term in states:
            found[term] = None
        elif term not in seen:
            seen.add(term)
            todo.extend(reversed(term.args))
    return list(found)


def _swept(operator: Operator, inputs: Mapping[str, tuple[str, ...]], expr: Expr) -> str | None:
    """The axis that a derivative is reduced over in its own right, if there is one."""
    found = cascades(_operator(operator, "swept", inputs, expr))
    return primary(found).axis if found else None


def _derivatives(operator: Operator, inputs: Mapping[str, tuple[str, ...]], exprs: Mapping[str, Expr], ending: str) -> Operator:
    """The operator of some derivatives, each with the dimensions of its input in their order."""
    order = ", ".join(" ".join(axis for axis in operator.inputs[name] if axis in expr.axes) for name, expr in exprs.items())
    result = dict(exprs) if len(exprs) > 1 else next(iter(exprs.values()))
    return _operator(operator, "_".join(f"d{name}" for name in exprs) + ending, inputs, result, order)


def _operator(operator: Operator, word: str, inputs: Mapping[str, tuple[str, ...]], result: Expr | dict[str, Expr],
              order: str | None = None) -> Operator:
    """An operator of those inputs and parameters that its results use, and of those that know the lengths of their axes."""
    terms = subterms(*([result] if isinstance(result, Expr) else result.values()))
    used = {term.name for term in terms if term.op in ("input", "param")}
    made = {term.attrs[2] for term in terms if term.op == "reduce"}
    axes = {term.axis for term in terms if term.op in ("index", "size", "reduce", "scan")} - made
    unknown = axes - {axis for name in used & set(inputs) for axis in inputs[name]}
    used |= {next(name for name, own in inputs.items() if axis in own) for axis in sorted(unknown)}
    kept = {name: own for name, own in inputs.items() if name in used}
    params = {name: default for name, default in operator.params.items() if name in used}
    return define(f"{operator.name}_{word}", kept, params, result, operator.conditions_on(kept, params), order=order)
