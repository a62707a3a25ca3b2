"""Terms into the e-graph's language.

In: a reduction F whose loop-invariant parts have been named as pivots.  Out: egglog text in which every pivot in F
is its *new* value, and a Decoder for answers: expressions in old pivots p, new pivots p' and kept components.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from redfuser_algebra.algebra.functions import OPPOSITE
from redfuser_algebra.discover.decode import CONTRACTIONS, Decoder, is_condition
from redfuser_algebra.discover.facts import NEGATIVE, NONNEGATIVE, NONPOSITIVE, POSITIVE, Facts
from redfuser_algebra.discover.rulesets import NIL
from redfuser_algebra.language.composition import free_copy, with_leaves
from redfuser_algebra.language.expr import Expr, call, const, subterms, symbol
from redfuser_algebra.language.names import primed

_LARGEST = 2**7
"""Numbers up to this are exact in the e-graph (eight of them multiply within 64 bits); others are constants by name."""
_SIGN_FACTS = {POSITIVE: ("positive", "nonnegative"), NONNEGATIVE: ("nonnegative",),
               NEGATIVE: ("nonpositive",), NONPOSITIVE: ("nonpositive",)}


def is_pivot(term: Expr) -> bool:
    """Whether a term is a pivot's symbol."""
    return term.op == "symbol"


def sees_pivot(term: Expr) -> bool:
    """Whether a pivot occurs in a term."""
    return any(is_pivot(part) for part in subterms(term))


class Encoder:
    """One question's text: definitions of subterms, facts about them, and the table of leaves.

    Under a sum (`linear`) conditions count as 0 and 1 and a choice is a sum of products; elsewhere they stay as they are.
    Unless `moving`, pivots stand still: each is its old value, one more fixed factor.
    """

    def __init__(self, axis: str, facts: Facts, linear: bool = True, moving: bool = True) -> None:
        self.axis, self.facts, self.linear, self.moving = axis, facts, linear, moving
        self.lines: list[str] = []
        self.leaves: dict[str, Expr] = {}
        self.names: set[str] = set()
        self._known: dict[Expr, str] = {}
        self._leaf_names: dict[Expr, str] = {}
        self._axes: set[str] = set()
        self._within = 0

    def term(self, expr: Expr) -> str:
        """The egglog name of a term, defined on first sight together with its sign facts."""
        if expr not in self._known:
            if not self._within:
                self._axes.update(axis for part in subterms(expr) for axis in part.axes)
            self._within += 1
            name = self._define(self._written(expr))
            self._within -= 1
            self._known[expr] = name
            self._signed(name, expr)
        return self._known[expr]

    def _signed(self, name: str, expr: Expr) -> None:
        for relation in _SIGN_FACTS.get(self.facts.sign(expr), ()):
            self.lines.append(f"({relation} {name})")

    def _define(self, text: str) -> str:
        name = f"$t{len(self.lines)}"
        self.lines.append(f"(let {name} {text})")
        return name

    def varies(self, expr: Expr) -> bool:
        """Whether a term varies along the reduced axis."""
        return self.axis in expr.axes

    def leaf(self, expr: Expr, bag: str) -> str:
        """A single factor in bag C (new pivot), K (fixed) or G (element)."""
        if expr not in self._leaf_names:
            self._leaf_names[expr] = f"a{len(self._leaf_names)}"
            self.leaves[self._leaf_names[expr]] = expr
        factor = f'(multiset-of (Leaf "{self._leaf_names[expr]}"))'
        return f"(Term (rational 1 1) {' '.join(factor if each == bag else NIL for each in 'CKG')})"

    def _written(self, expr: Expr) -> str:
        if expr.op == "const":
            return self._number(expr)
        if is_pivot(expr):
            return self.leaf(primed(expr), "C") if self.moving else self.leaf(expr, "K")
        if not sees_pivot(expr):
            return self._pivot_free(expr)
        rule = _RULES.get(expr.op)
        return rule(self, expr) if rule else self._applied(expr)

    def _number(self, expr: Expr) -> str:
        value = expr.value
        if abs(value) < _LARGEST:
            exact = Fraction(value)
            if exact.denominator < _LARGEST:
                return f"(Num (rational {exact.numerator} {exact.denominator}))"
        return self.leaf(expr, "K")

    def _pivot_free(self, expr: Expr) -> str:
        if not self.varies(expr):
            return self.leaf(expr, "K")
        if expr.op == "multiply":
            return self._product(*expr.args)
        if expr.op == "negative":
            return self._times("(Num (rational -1 1))", self.term(expr.args[0]))
        if expr.op == "divide":
            return self._times(self.term(expr.args[0]), self.term(call("reciprocal", expr.args[1])))
        if (power := _small_power(expr)) is not None:
            return self._repeated(expr.args[0], power)
        return self.leaf(expr, "G")

    def _times(self, a: str, b: str) -> str:
        return f"(Mul {a} {b})"

    def _product(self, a: Expr, b: Expr) -> str:
        """a · b; contractions that occur in both run over axes of their own in each."""
        first = self.term(a)
        return self._times(first, self._again(b) if self._contractions(a) & self._contractions(b) else self.term(b))

    def _repeated(self, base: Expr, power: int) -> str:
        product, again = self.term(base), bool(self._contractions(base))
        for _ in range(power - 1):
            product = self._times(product, self._again(base) if again else self.term(base))
        return product

    def _contractions(self, expr: Expr) -> set[Expr]:
        return {term for term in subterms(expr) if term.op == "reduce" and sees_pivot(term)}

    def _again(self, expr: Expr) -> str:
        """A second occurrence of a term, with new axes for the contractions inside it."""
        remembered = dict(self._known)
        for term in subterms(expr):
            if self._contractions(term):
                self._known.pop(term, None)
        name = self.term(expr)
        self._known.update(remembered)
        return name

    def _applied(self, expr: Expr) -> str:
        head = _head(expr)
        self.names.add(head)
        return f'(App{len(expr.args)} "{head}" {" ".join(map(self.term, expr.args))})'

    def _pair(self, a: Expr, pivot: Expr, head: str, *relations: str) -> str:
        """a, an element, meets a pivot: the laws of recentring may apply."""
        self.names.add(head)
        new = self._moving_pivot(pivot)
        self._relate(a, pivot, relations)
        return f'(App2 "{head}" {self.term(a)} {new})'

    def _moving_pivot(self, pivot: Expr) -> str:
        """The new value of a pivot, of which the laws now know the old one."""
        old, new = self.leaf(pivot, "K"), self.term(pivot)
        self.lines.append(f"(pivot {old} {new})")
        self._signed(old, pivot)
        return new

    def _relate(self, a: Expr, pivot: Expr, relations: Iterable[str]) -> None:
        """What holds between an element and a pivot, said once it is known that they meet."""
        old, new = self.leaf(pivot, "K"), self.term(pivot)
        for relation in relations:
            arguments = {"settled": (old, new), "bounded": (old,)}.get(relation, (new,))
            self.lines.append(f"({relation} {' '.join((self.term(a), *arguments))})")

    def _order(self, a: Expr, pivot: Expr) -> list[str]:
        """The order facts about an element and a pivot, by name."""
        return [name for name in ("below", "above", "settled") if getattr(self.facts, name)(a, pivot)]

    def _meets_pivot(self, a: Expr, b: Expr) -> bool:
        return self.moving and is_pivot(b) and self.varies(a) and not sees_pivot(a)

    def _about_pivot(self, a: Expr, b: Expr) -> bool:
        """Whether b is a pivot, and a an element or a constant that is taken about it."""
        return self.moving and is_pivot(b) and not sees_pivot(a)

    def _difference(self, expr: Expr) -> str:
        a, b = expr.args
        if self._about_pivot(a, b):
            return self._pair(a, b, "subtract")
        if self._meets_pivot(b, a):
            return self._times("(Num (rational -1 1))", self.term(call("subtract", b, a)))
        return f"(Add {self.term(a)} {self._negated(self.term(b))})"

    def _negated(self, name: str) -> str:
        return self._times("(Num (rational -1 1))", name)

    def _quotient(self, expr: Expr) -> str:
        a, b = expr.args
        if self._meets_pivot(a, b) and self.facts.bounded(a, b):
            return self._pair(a, b, "divide", "bounded")
        return self._times(self.term(a), self.term(call("reciprocal", b)))

    def _comparison(self, expr: Expr) -> str:
        """An element is compared with a pivot, or with 0 after a pivot was subtracted."""
        (a, b), op = expr.args, expr.op
        if self._meets_pivot(b, a):
            (a, b), op = (b, a), _MIRRORED[op]
        if self._meets_pivot(a, b) and (order := self._order(a, b)):
            return self._pair(a, b, op, *order)
        if b is const(0) and a.op == "subtract" and self._meets_pivot(*a.args):
            self.names.add(op)
            self._relate(*a.args, self._order(*a.args))
        return self._applied(expr)

    def _bound(self, expr: Expr) -> str:
        """maximum or minimum of an element and a pivot, the element first; other elements inside may know the pivot, too."""
        a, b = reversed(expr.args) if is_pivot(expr.args[0]) else expr.args
        if is_pivot(b) and self.moving and self.varies(a):
            for part in subterms(a):
                if self._meets_pivot(part, b):
                    self._relate(part, b, self._order(part, b))
        return self._applied(call(expr.op, a, b))

    def _equality(self, expr: Expr) -> str:
        for a, b in (expr.args, tuple(reversed(expr.args))):
            if self._meets_pivot(a, b) and self.facts.settled(a, b):
                return self._pair(a, b, "equal", "settled")
            if self._meets_pivot(a, b) and self.facts.follows(a, b):
                return self._among(a, b)
        return self._comparison(expr)

    def _inequality(self, expr: Expr) -> str:
        for a, b in (expr.args, tuple(reversed(expr.args))):
            if self._meets_pivot(a, b) and self.facts.settled(a, b):
                return self._pair(a, b, "not_equal", "settled")
        if not (self.linear and self.varies(expr)):
            return self._applied(expr)
        if expr.args[1] is const(0) and expr.args[0].op == "subtract":
            return self._comparison(expr)
        return f"(Add (Num (rational 1 1)) {self._negated(self.term(call('equal', *expr.args)))})"

    def _among(self, a: Expr, positions: Expr) -> str:
        """a, a position, is compared with the positions of a top-k: later ones are among the earlier ones, or new."""
        fresh = self._fresh_copy(positions.axes[-1])
        old = self.leaf(symbol(positions.name, (*positions.axes[:-1], fresh)), "K")
        new = self.term(positions)
        self.names.update(("equal", "contract"))
        self.lines.append(f'(follows {self.term(a)} {old} {new} "{fresh}")')
        return f'(App2 "equal" {self.term(a)} {new})'

    def _choice(self, expr: Expr) -> str:
        condition, a, b = expr.args
        if not self.linear:
            return self._applied(expr)
        holds, fails = self._condition(condition), self._complement(condition)
        parts = [self._times(weight, self.term(value)) for weight, value in ((holds, a), (fails, b))
                 if not (value.op == "const" and value.value == 0)]
        return parts[0] if len(parts) == 1 else f"(Add {parts[0]} {parts[1]})" if parts else "(Num (rational 0 1))"

    def _condition(self, expr: Expr) -> str:
        """The truth of a term as 0 or 1; a number is true unless it is 0."""
        if is_condition(expr):
            return self.term(expr)
        test = call("not_equal", expr, 0)
        return self._applied(test) if sees_pivot(expr) else self.term(test)

    def _complement(self, expr: Expr) -> str:
        """1 where a term is false: 1 − [expr] where the laws must look inside, a test of its own elsewhere."""
        if expr.op in OPPOSITE:
            return self.term(call(OPPOSITE[expr.op], *expr.args))
        if self.varies(expr) and sees_pivot(expr):
            return f"(Add (Num (rational 1 1)) {self._negated(self._condition(expr))})"
        test = call("logical_not", expr)
        return self._applied(test) if sees_pivot(expr) else self.term(test)

    def _logical(self, expr: Expr) -> str:
        if not self.linear:
            return self._applied(expr)
        if expr.op == "logical_not":
            return self._complement(expr.args[0])
        names = list(map(self._condition, expr.args))
        both = self._times(*names)
        return both if expr.op == "logical_and" else f"(Add {names[0]} (Add {names[1]} {self._negated(both)}))"

    def _contraction(self, expr: Expr) -> str:
        """A sum over another axis with a pivot inside; its axis gets a name that nothing else has."""
        monoid = "sum" if self.linear and self._one_at_most(expr) else expr.monoid
        if monoid not in CONTRACTIONS or expr.mask is not None:
            return self._applied(expr)
        name, node = CONTRACTIONS[monoid]
        fresh = self._fresh_copy(expr.axis)
        self.names.add(name)
        return f'({node} "{fresh}" {self.term(with_leaves(expr.body, {}, {expr.axis: fresh}))})'

    def _one_at_most(self, expr: Expr) -> bool:
        """Whether the position is asked for among the positions of a top-k: they differ, so at most one is it."""
        return expr.monoid == "any" and expr.body.op == "equal" and any(
            self._meets_pivot(a, b) and self.facts.follows(a, b) for a, b in (expr.body.args, expr.body.args[::-1]))

    def _fresh_copy(self, axis: str) -> str:
        """A copy of an axis that nothing else in the question has, so that no factor is captured by a contraction."""
        name = free_copy(axis, self._axes)
        self._axes.add(name)
        return name

    def _rounding(self, expr: Expr) -> str:
        if not expr.attrs[-1]:
            return self._applied(expr)
        self.names.add("rounded")
        return f'(Rounded "{_head(expr)}" {self._over_pivot(expr.args[0])})'

    def _over_pivot(self, inside: Expr) -> str:
        """What is rounded; a / b of an element and a pivot if it is that: here the pivot may be a sum over the element, too."""
        quotient = inside.op in ("divide", "scaled") or inside.op == "multiply" and inside.args[1].op == "reciprocal"
        if not quotient:
            return self.term(inside)
        a, b = inside.args[0], inside.args[1].args[0] if inside.op == "multiply" else inside.args[1]
        if self.moving and is_pivot(b) and self.varies(a):
            outweighed = self.facts.outweighs(b, a)
            if outweighed and not sees_pivot(a):
                return self._define(self._pair(a, b, "divide", "bounded"))
            self._moving_pivot(b)
            if outweighed and self.facts.sign(a) == POSITIVE:
                self.lines.append(f"(positive {self.leaf(b, 'K')})")
        return self.term(call("divide", a, b))

    def _power(self, expr: Expr) -> str:
        power = _small_power(expr)
        return self._repeated(expr.args[0], power) if power is not None else self._applied(expr)

    def decoder(self) -> Decoder:
        """What turns answers to this question back into expressions."""
        return Decoder(self.leaves)


_RULES: dict[str, Callable[[Encoder, Expr], str]] = {
    "add": lambda self, expr: f"(Add {self.term(expr.args[0])} {self.term(expr.args[1])})",
    "multiply": lambda self, expr: self._product(*expr.args),
    "negative": lambda self, expr: self._negated(self.term(expr.args[0])),
    "subtract": Encoder._difference, "shift": Encoder._difference,
    "divide": Encoder._quotient, "scaled": Encoder._quotient,
    "equal": Encoder._equality,
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), Encoder._comparison),
    "maximum": Encoder._bound, "minimum": Encoder._bound,
    "not_equal": Encoder._inequality,
    "where": Encoder._choice,
    "logical_and": Encoder._logical, "logical_or": Encoder._logical, "logical_not": Encoder._logical,
    "reduce": Encoder._contraction,
    "round": Encoder._rounding, "cast": Encoder._rounding,
    "power": Encoder._power,
}


_MIRRORED = {"less": "greater", "greater": "less", "less_equal": "greater_equal", "greater_equal": "less_equal",
             "equal": "equal", "not_equal": "not_equal"}


def _head(expr: Expr) -> str:
    """The e-graph's name of a function with its static attributes."""
    return expr.op if not expr.attrs else ":".join((expr.op, *map(str, expr.attrs)))


def _small_power(expr: Expr) -> int | None:
    if expr.op == "power" and expr.args[1].op == "const" and expr.args[1].value in range(2, 13):
        return int(expr.args[1].value)
    return None
