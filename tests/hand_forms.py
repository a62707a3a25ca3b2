"""Operators with fused forms written by hand: what the interpreter and the streams are tested with.

The forms are not searched for, so a fault here is a fault of the interpreter or of the form, never of discovery.
"""

from dataclasses import dataclass

import redfuser_algebra.language.functions as ra
from redfuser_algebra.discover.form import Component, FusedForm, Pivot, Result
from redfuser_algebra.language.expr import Expr, call, const, symbol
from redfuser_algebra.language.operator import Operator, operator


@dataclass(frozen=True)
class Case:
    operator: Operator
    form: FusedForm


def shift(a, p):
    return call("shift", a, p)


def scale(c, s):
    return call("scale", c, s)


def component(name, monoid, lift, rebase=None, mask=None, count=None, axes=()):
    itself = symbol(name, axes)
    return Component(name, monoid, lift, mask, count, axes, itself if rebase is None else rebase(itself))


def both(name, axes=()):
    """A pivot before and after: p and p′."""
    return symbol(name, axes), symbol(name + "'", axes)


def themselves(*pairs):
    return tuple(Result(name, symbol(name, axes), axes) for name, axes in pairs)


def by_hand(operator, state, outputs, pivots=(), results=None):
    """The case; results are the components themselves unless given."""
    results = themselves(*((c.name, c.axes) for c in state)) if results is None else results
    parts = map(tuple, (state, pivots, results, outputs))
    return Case(operator, FusedForm("l", *parts, guards=(), facts=(), ranks={}))


def softmax():
    @operator
    def softmax(x: "l"):
        e = ra.exp(x - ra.max(x, "l"))
        return e / ra.sum(e, "l"), ra.max(x, "l") + ra.log(ra.sum(e, "l"))

    x, (m, m1) = Expr("input", (), ("x", ("l",))), both("m")
    state = [
        component("m", "max", x),
        component("s", "sum", ra.exp(shift(x, m)), lambda s: scale(ra.exp(shift(m, m1)), s)),
    ]
    return by_hand(softmax, state, [ra.exp(x - m) / symbol("s"), m + ra.log(symbol("s"))])


def masked_softmax():
    @operator
    def masked_softmax(x: "l", w: "l"):
        e = ra.exp(x - ra.max(x, "l", where=w > 0))
        return ra.max(x, "l", where=w > 0), ra.sum(e, "l", where=w > 0)

    x, w, (m, m1) = Expr("input", (), ("x", ("l",))), Expr("input", (), ("w", ("l",))), both("m")
    state = [
        component("m", "max", x, mask=w > 0),
        component("s", "sum", ra.exp(shift(x, m)), lambda s: scale(ra.exp(shift(m, m1)), s), mask=w > 0),
    ]
    return by_hand(masked_softmax, state, [m, symbol("s")])


def variance():
    @operator
    def variance(x: "l"):
        mean = ra.sum(x, "l") / ra.size("l")
        return mean, ra.sum((x - mean) ** 2, "l") / ra.size("l")

    x, (p, p1) = Expr("input", (), ("x", ("l",))), both("p")
    delta, one, number = shift(p, p1), symbol("s1"), symbol("N")
    state = [
        component("total", "sum", x),
        component("N", "sum", const(1)),
        component("s1", "sum", shift(x, p), lambda s1: s1 + scale(delta, number)),
        component("s2", "sum", shift(x, p) ** 2, lambda s2: s2 + 2 * scale(delta, one) + scale(delta * delta, number)),
    ]
    mean = symbol("total") / ra.size("l")
    return by_hand(variance, state, [mean, symbol("s2") / ra.size("l")], pivots=[Pivot("p", mean, ())])


def attention():
    @operator
    def attention(Q: "m k", K: "l k", V: "l j", size: float = 0.5):
        S = ra.sum(Q * K, "k") * size
        causal = ra.index("l") <= ra.index("m") + 2
        P = ra.exp(S - ra.max(S, "l", where=causal))
        return ra.sum(P * V, "l", where=causal) / ra.sum(P, "l", where=causal)

    Q, K, V = (Expr("input", (), pair) for pair in (("Q", ("m", "k")), ("K", ("l", "k")), ("V", ("l", "j"))))
    S, causal = ra.sum(Q * K, "k") * Expr("param", (), ("size",)), ra.index("l") <= ra.index("m") + 2
    top, top1 = both("top", ("m",))
    factor = ra.exp(shift(top, top1))
    state = [
        component("top", "max", S, mask=causal, axes=("m",)),
        component("s", "sum", ra.exp(shift(S, top)), lambda s: scale(factor, s), mask=causal, axes=("m",)),
        component("o", "sum", ra.exp(shift(S, top)) * V, lambda o: scale(factor, o), mask=causal, axes=("m", "j")),
    ]
    return by_hand(attention, state, [symbol("o", ("m", "j")) / symbol("s", ("m",))])


def value_at_argmax():
    @operator
    def value_at_argmax(x: "l", y: "l"):
        return ra.argmax(x, "l"), ra.argmin(x, "l"), ra.take(y, ra.argmax(x, "l"), "l")

    x, y, (i, i1) = Expr("input", (), ("x", ("l",))), Expr("input", (), ("y", ("l",))), both("i")
    state = [
        component("i", "argmax", x),
        component("j", "argmin", x),
        component("v", "sum", ra.where(ra.index("l") == i, y, 0), lambda v: ra.where(i == i1, v, 0)),
    ]
    return by_hand(value_at_argmax, state, [i, symbol("j"), symbol("v")])


def masked_positions():
    @operator
    def masked_positions(x: "l", w: "l"):
        return ra.argmax(x, "l", where=w > 0), ra.argmin(x, "l", where=w > 0)

    x, w = Expr("input", (), ("x", ("l",))), Expr("input", (), ("w", ("l",)))
    state = [component("i", "argmax", x, mask=w > 0), component("j", "argmin", x, mask=w > 0)]
    return by_hand(masked_positions, state, [symbol("i"), symbol("j")])


def count_of_max():
    @operator
    def count_of_max(x: "l"):
        return ra.max(x, "l"), ra.sum(ra.where(x == ra.max(x, "l"), 1, 0), "l")

    x, (m, m1) = Expr("input", (), ("x", ("l",))), both("m")
    state = [
        component("m", "max", x),
        component("c", "sum", ra.where(x == m, 1, 0), lambda c: ra.where(m == m1, c, 0)),
    ]
    return by_hand(count_of_max, state, [m, symbol("c")])


def largest_three():
    @operator
    def largest_three(x: "l"):
        return ra.argtopk(x, "l", 3, where=x != 1, name="top"), ra.topk(x, "l", 3, where=x != 1, name="top").values

    x, top = Expr("input", (), ("x", ("l",))), ("top",)
    state = [
        component("at", "argtopk", x, mask=x != 1, count=const(3), axes=top),
        component("best", "topk", x, mask=x != 1, count=const(3), axes=top),
    ]
    return by_hand(largest_three, state, [symbol("at", top), symbol("best", top)])


def scaled_sum():
    @operator
    def scaled_sum(x: "l"):
        return ra.sum(x / ra.max(ra.abs(x), "l"), "l")

    x, (m, m1) = Expr("input", (), ("x", ("l",))), both("m")
    state = [
        component("m", "max", ra.abs(x)),
        component("s", "sum", call("scaled", x, m), lambda s: scale(call("ratio", m, m1), s)),
    ]
    return by_hand(scaled_sum, state, [symbol("s")])


def plain():
    @operator
    def plain(x: "l"):
        return ra.prod(x, "l"), ra.min(x, "l"), ra.any(x > 1, "l"), ra.all(x > 1, "l"), ra.sum(ra.index("l") * x, "l")

    x = Expr("input", (), ("x", ("l",)))
    state = [
        component("q", "prod", x), component("n", "min", x), component("some", "any", x > 1),
        component("every", "all", x > 1), component("moment", "sum", ra.index("l") * x),
    ]
    return by_hand(plain, state, [symbol(c.name) for c in state])


CASES = {
    make.__name__: make()
    for make in (softmax, masked_softmax, variance, attention, value_at_argmax, masked_positions, count_of_max,
                 largest_three, scaled_sum, plain)
}
