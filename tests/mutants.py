"""Fused forms with one fault each, of the kinds that a search, a law or a guard could get wrong.

A mutant is an operator with its form as found, changed in one place.  All of them are wrong; none may pass.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import redfuser_algebra as ra
from redfuser_algebra.algebra.functions import TOTAL_TWINS
from redfuser_algebra.discover.form import Component, FusedForm
from redfuser_algebra.fused import Fused
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol


@dataclass(frozen=True)
class Mutant:
    """`spoilt` turns the form of the operator called `of` into a wrong one."""

    of: str
    fault: str
    spoilt: Callable[[FusedForm], FusedForm]

    def __str__(self) -> str:
        return f"{self.of}: {self.fault}"


@ra.operator
def largest_multiple(x: "l", c: float):
    return ra.max(x * c, "l")


@ra.operator
def position_of_multiple(x: "l", c: float):
    return ra.argmax(x * c, "l")


@ra.operator
def product_of_multiples(x: "l", c: float):
    return ra.prod(x * c, "l")


@ra.operator
def first_largest(x: "l"):
    return ra.argmax(x, "l")


@ra.operator
def largest_magnitude(x: "l"):
    return ra.max(ra.abs(x), "l")


OWN = {operator.name: operator for operator in (
    largest_multiple, position_of_multiple, product_of_multiples, first_largest, largest_magnitude)}


@cache
def fused(name: str) -> Fused:
    """The operator with its form as found."""
    return ra.fuse(OWN[name] if name in OWN else ra.operators[name])


def picked(form: FusedForm, which: str) -> Component:
    """A component by its monoid, "count" for the one that counts elements, or "moving" and its place among those that move."""
    kind, _, place = which.partition(" ")
    if kind == "moving":
        return [c for c in form.state if not c.fixed][int(place or 0)]
    if kind == "count":
        return next(c for c in form.state if c.lift is const(1))
    return [c for c in form.state if c.monoid == kind][int(place or 0)]


# what can be wrong with a form

def changed(which: str, **fields) -> Callable[[FusedForm], FusedForm]:
    """One component with other fields; a field may be a function of the component."""
    def spoilt(form: FusedForm) -> FusedForm:
        own = picked(form, which)
        made = {field: value(own) if callable(value) else value for field, value in fields.items()}
        return replace(form, state=tuple(replace(c, **made) if c is own else c for c in form.state))

    return spoilt


def not_moved(which):
    return changed(which, rebase=lambda c: c.symbol)


def moved_the_wrong_way(which):
    """Old and new pivots exchanged."""
    def exchanged(c: Component) -> Expr:
        moving = {t.name.removesuffix("'") for t in subterms(c.rebase) if t.op == "symbol" and t.name.endswith("'")}
        symbols = [t for t in subterms(c.rebase) if t.op == "symbol" and t.name.removesuffix("'") in moving]
        return substitute(c.rebase, {t: symbol(t.name[:-1] if t.name.endswith("'") else t.name + "'", t.axes) for t in symbols})

    return changed(which, rebase=exchanged)


def scaled_once(form: FusedForm) -> FusedForm:
    """What is taken to the power N is not."""
    return replace(form, outputs=tuple(substitute(output, {form.component("N").symbol: const(1)}) for output in form.outputs))


def without_guards(form: FusedForm) -> FusedForm:
    """Every total twin as the partial operation that it completes."""
    def partial(expr: Expr) -> Expr:
        done = {}
        for term in subterms(expr):
            args = tuple(done[arg] for arg in term.args)
            own = Expr(term.op, args, term.attrs) if args else term
            done[term] = (args[0] if term.op == "anchor" else call(TOTAL_TWINS[term.op], *args)) if term.op in TOTAL_TWINS else own
        return done[expr]

    return replace(form, state=tuple(replace(c, lift=partial(c.lift), rebase=partial(c.rebase)) for c in form.state))


def missing(which):
    return lambda form: replace(form, state=tuple(c for c in form.state if c is not picked(form, which)))


def late(which):
    """A component after those that need it."""
    return lambda form: replace(missing(which)(form), state=(*missing(which)(form).state, picked(form, which)))


def multiplied_at_the_end(which):
    """x·c reduced as x, and the result multiplied by c."""
    def spoilt(form: FusedForm) -> FusedForm:
        name, c = picked(form, which).name, Expr("param", (), ("c",))
        values = (replace(r, value=r.value * c) if r.value.name == name else r for r in form.results)
        return replace(changed(which, lift=first_factor)(form), results=tuple(values))

    return spoilt


def pivots_are(value):
    return lambda form: replace(form, pivots=tuple(replace(p, value=value(p.value)) for p in form.pivots))


def one_more(value):
    """a / N as a / (N + 1)."""
    return Expr("divide", (value.args[0], value.args[1] + 1))


def linearised(expr):
    """exp(t) as 1 + t, which is right to first order only."""
    done = {}
    for term in subterms(expr):
        own = Expr(term.op, tuple(done[a] for a in term.args), term.attrs) if term.args else term
        done[term] = 1 + own.args[0] if term.op == "exp" else own
    return done[expr]


def last_of_ties(form):
    """The largest position where the maximum is, instead of the smallest: ties go to the wrong side."""
    i = picked(form, "argmax")
    m, m1, here = symbol("m"), symbol("m'"), Expr("index", (), ("l",))
    top = Component("m", "max", i.lift, None, None, (), m)
    last = Component(i.name, "max", call("where", call("equal", i.lift, m), here, -1), None, None, (),
                     call("where", call("equal", m, m1), i.symbol, -1))
    return replace(form, state=(top, last))


def zero_for_nothing(which):
    """Masked elements count as 0 instead of not at all."""
    return changed(which, mask=None, lift=lambda c: call("where", c.mask, c.lift, 0))


def first_factor(c):
    return c.lift.args[0]


def twice(c):
    return 2 * c.lift


def negated(c):
    return -c.lift


def squared(c):
    return c.lift * c.lift


def first_order(c):
    return linearised(c.rebase)


def doubled(c):
    return 2 * c.rebase


def shifted(c):
    return c.rebase + 1


ALL = tuple(Mutant(*row) for row in (
    ("softmax", "the sum is not moved", not_moved("sum")),
    ("softmax", "the sum is moved the wrong way", moved_the_wrong_way("sum")),
    ("softmax", "the sum is kept as a maximum", changed("sum", monoid="max")),
    ("softmax", "the maximum is kept as a minimum", changed("max", monoid="min")),
    ("softmax", "T is right to first order only", changed("sum", rebase=first_order)),
    ("softmax", "T is not multiplicative", changed("sum", rebase=shifted)),
    ("softmax", "T(p→p) is not the identity", changed("sum", rebase=doubled)),
    ("softmax", "every element counts twice", changed("sum", lift=twice)),
    ("softmax", "the maximum comes after the sum", late("max")),
    ("softmax", "no guard at infinite pivots", without_guards),
    ("softmax", "the maximum is missing", missing("max")),
    ("logsumexp", "the sum is moved the wrong way", moved_the_wrong_way("moving")),
    ("attention", "the values are not moved", not_moved("moving")),
    ("attention", "the weights are moved the wrong way", moved_the_wrong_way("moving 1")),
    ("attention", "the weights are squared", changed("moving 1", lift=squared)),
    ("attention", "no guard at infinite pivots", without_guards),
    ("causal_attention", "masked keys count as 0 in the maximum", zero_for_nothing("max")),
    ("causal_attention", "the mask of a sum is lost", changed("sum", mask=None)),
    ("variance", "the squares are not moved", not_moved("moving")),
    ("variance", "the square of the shift is missing", changed("moving", rebase=lambda c: c.symbol + symbol("N"))),
    ("variance", "off by one in N", pivots_are(one_more)),
    ("variance", "N counts two for each element", changed("count", lift=const(2))),
    ("variance", "N is missing", missing("count")),
    ("variance", "the sum is missing", missing("sum")),
    ("variance", "fourth powers instead of squares", changed("moving", lift=squared)),
    ("skewness", "the squares are not moved", not_moved("moving")),
    ("skewness", "the cubes are moved the wrong way", moved_the_wrong_way("moving 1")),
    ("kurtosis", "the fourth powers are moved the wrong way", moved_the_wrong_way("moving")),
    ("kurtosis", "the squares are missing", missing("moving 2")),
    ("covariance", "the products are not moved", not_moved("moving")),
    ("weighted_variance", "the squares are not moved", not_moved("moving")),
    ("weighted_variance", "no anchor while a part has no weight", without_guards),
    ("softmax_entropy", "the entropy sum is moved the wrong way", moved_the_wrong_way("moving 1")),
    ("softmax_entropy", "T is right to first order only", changed("moving 1", rebase=first_order)),
    ("kl_divergence", "one sum is not moved", not_moved("moving")),
    ("count_max", "no reset", not_moved("sum")),
    ("count_max", "reset to 1", changed("sum", rebase=lambda c: call("where", c.rebase.args[0], c.symbol, 1))),
    ("count_max", "reset where nothing moved", changed("sum", rebase=lambda c: call("where", c.rebase.args[0], 0, c.symbol))),
    ("second_distinct", "no reset", not_moved("moving")),
    ("second_distinct", "nothing takes the place", changed("moving", rebase=lambda c: call("where", c.rebase.args[0], c.symbol, -float("inf")))),
    ("value_at_argmax", "no reset", not_moved("moving")),
    ("absmax_scaled_sum", "scaled the wrong way", moved_the_wrong_way("sum")),
    ("absmax_scaled_sum", "no guard at a zero scale", without_guards),
    ("absmax_scaled_sum", "the scale sees no signs", changed("max", lift=first_factor)),
    ("prod_scaled", "scaled once instead of N times", scaled_once),
    ("prod_scaled", "N counts two for each element", changed("count", lift=const(2))),
    ("mean_gap_to_max", "the gap is not moved", not_moved("moving")),
    ("moment_of_inertia", "the squares are not moved", not_moved("moving")),
    ("minmax_normalised_sum", "the minimum is kept as a maximum", changed("min", monoid="max")),
    ("topk_mean_fixed", "the smallest instead of the largest", changed("argtopk", lift=negated)),
    ("argmax_argmin", "largest and smallest exchanged", changed("argmax", monoid="argmin")),
    ("all_any_constant", "all as any", changed("all", monoid="any")),
    ("all_any_constant", "any as all", changed("any", monoid="all")),
    ("first_largest", "ties go to the last position", last_of_ties),
    ("largest_multiple", "max(a·c) = max(a)·c without a condition on c", multiplied_at_the_end("max")),
    ("position_of_multiple", "argmax(a·c) = argmax(a) without a condition on c", changed("argmax", lift=first_factor)),
    ("product_of_multiples", "Π(a·c) = c·Πa", multiplied_at_the_end("prod")),
    ("largest_magnitude", "max|a| = max a", changed("max", lift=first_factor)),
    ("rmsnorm_gemm", "the wrong sign of the products", changed("sum 1", lift=negated)),
    ("linear_regression", "off by one in N", pivots_are(one_more)),
    ("structure_factor_com", "a sum of waves is moved the wrong way", moved_the_wrong_way("moving")),
    ("chebyshev_radius_2d", "the larger side is kept as the smaller", changed("max", monoid="min")),
))
