"""From rows of the law table to egglog rules: laws in, program text out.

The e-graph holds three kinds of thing.  A `T` is a value.  A `Term q C K G` is a monomial in normal form: a
rational times three bags of factors, C free of l but seeing a new pivot, K free of both, G varying along l but
seeing only old pivots.  Bags make multiplication associative and commutative at no cost in nodes, and make
"separate the new pivot from the element" a matter of reading.  `kind` says, for any T, what it sees: bit 1 a new
pivot, bit 2 the axis l.
"""
from __future__ import annotations

import ast
from collections.abc import Iterable
from fractions import Fraction
from functools import cache

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.laws import LAWS, SIGNS, Law, SignRule
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.errors import OperatorError

Pattern = tuple | str | Fraction
"""A side of a law: a variable, a number, or a head and its operands."""

Content = tuple[Law, frozenset[str]]
"""What a law says: its row, and which of its words are reductions."""

STUCK = 100_000_000
"""Cost of a reduction that no law could take apart: an extraction below it is an answer."""

SORTS = f"""
(sort T) (sort Factor) (sort Bag (MultiSet Factor))
(constructor Term (Rational Bag Bag Bag) T :cost 1)
(constructor Num (Rational) T :cost 1)
(constructor Of (T) Factor :cost 1)
(constructor Leaf (String) Factor :cost 1)
(constructor Add (T T) T :cost 2)
(constructor Mul (T T) T :cost 2)
(constructor App1 (String T) T :cost 20)
(constructor App2 (String T T) T :cost 20)
(constructor App3 (String T T T) T :cost 20)
(constructor Rounded (String T) T :cost 20)
(constructor Con (String T) T :cost 500)
(constructor Largest (String T) T :cost 500)
(constructor Smallest (String T) T :cost 500)
(constructor Red (String String T) T :cost {STUCK})
(constructor Kept (String String T) T :cost 1000)
(function kind (T) i64 :merge (& old new))
(relation pivot (T T)) (relation bounded (T T)) (relation below (T T)) (relation above (T T)) (relation settled (T T T)) (relation follows (T T T String))
(relation positive (T)) (relation nonnegative (T)) (relation nonpositive (T))
(ruleset structure) (ruleset arithmetic)
"""

_ONE = "(rational 1 1)"
NIL = "(multiset-of)"


_ARITHMETIC = (
    ("reciprocal", "!=", "(/ (rational 1 1) q)"), ("abs", "<", "(- (rational 0 1) q)"), ("abs", ">=", "q"),
    ("sign", "<", "(rational -1 1)"), ("sign", ">", "(rational 1 1)"),
)
"""Functions of a number are numbers.  They are folded before anything else sees them: as factors of themselves they
would make ever new terms.  So would a product that is found to be a number (signs that multiply to 1, and their powers):
it is not multiplied any more."""


def _opaque(pattern: str, name: str) -> Iterable[str]:
    """A function of arguments of one kind is one factor of that kind."""
    bags = {0: f"{NIL} (multiset-of (Of e)) {NIL}", 1: f"(multiset-of (Of e)) {NIL} {NIL}",
            2: f"{NIL} {NIL} (multiset-of (Of e))"}
    for kind, factors in bags.items():
        yield (f'(rule ((= e {pattern}) (= i (kind e)) (= i {kind})) ((union e (Term {_ONE} {factors})))'
               f' :ruleset structure :name "factor {name} {kind}")')


def _structure() -> Iterable[str]:
    """The rules of the normal form: what a term sees, monomials, and sums of monomials."""
    def rule(name: str, body: str, head: str) -> str:
        return f'(rule ({body}) ({head}) :ruleset structure :name "{name}")'

    yield rule("kind of number", "(= e (Num q))", f"(set (kind e) 0) (union e (Term q {NIL} {NIL} {NIL}))")
    yield rule("kind of monomial", "(= e (Term q c k g)) (= i (multiset-length c)) (= j (multiset-length g))",
               "(set (kind e) (| (min 1 i) (<< (min 1 j) 1)))")
    for node in ("Add a b", "Mul a b", "App2 f a b"):
        yield rule(f"kind of {node}", f"(= e ({node})) (= i (kind a)) (= j (kind b))", "(set (kind e) (| i j))")
    for node in ("App1 f a", "Rounded f a", "Con f a", "Largest f a", "Smallest f a"):
        yield rule(f"kind of {node}", f"(= e ({node})) (= i (kind a))", "(set (kind e) i)")
    yield rule("kind of App3", "(= e (App3 f a b c)) (= i (kind a)) (= j (kind b)) (= k (kind c))",
               "(set (kind e) (| i (| j k)))")
    yield rule("kind of reduction", "(= e (Red s m a)) (= i (kind a))", "(set (kind e) (& i 1))")
    yield rule("kind of component", "(= e (Kept s m a))", "(set (kind e) 0)")
    for node in ("App1 f a", "App2 f a b", "App3 f a b c", "Rounded f a", "Con f a", "Largest f a", "Smallest f a"):
        yield from _opaque(f"({node})", node.split()[0])
    yield rule("multiply_commutes, multiply_associates, multiply_one",
               "(= e (Mul (Term q c k g) (Term r d l h)))",
               "(union e (Term (* q r) (multiset-sum c d) (multiset-sum k l) (multiset-sum g h)))")
    yield rule("multiply_commutes, multiply_associates",
               "(= e (Rounded how m)) (= m (Term q c k g)) (= x (Of f)) (multiset-contains c x)",
               "(union m (Mul (Term q (multiset-remove c x) k g) f))")
    kept = f'(multiset-of (Of (Kept "sum" m (Term {_ONE} {NIL} {NIL} g))))'
    yield rule("sum_pulls_invariant, sum_of_invariant", '(= e (Red "sum" m (Term q c k g)))',
               f"(union e (Term q c (multiset-sum k {kept}) {NIL}))")
    yield rule("multiply_one", f"(= e (Term q {NIL} k {NIL})) (!= q {_ONE})",
               f"(union e (Mul (Num q) (Term {_ONE} {NIL} k {NIL})))")
    for name, fact, value in _ARITHMETIC:
        yield (f'(rule ((= a (Num q)) (= e (App1 "{name}" a)) ({fact} q (rational 0 1)))'
               f' ((union e (Num {value})) (subsume (App1 "{name}" a))) :ruleset arithmetic :name "{name} {fact} 0")')
    yield ('(rule ((= e (Num n)) (= e (Term q c k g)) (< 0 (+ (multiset-length c) (+ (multiset-length k) (multiset-length g)))))'
           ' ((subsume (Term q c k g))) :ruleset arithmetic :name "a number is no product")')
    for sign in SIGNS:
        yield rule(sign.name, f"(= e {_egglog(side(sign.term))}) {_conditions(sign)}", f"({sign.sign} e)")
    yield rule("component", '(= e (Red s m a)) (!= s "sum") (= i (kind a)) (= 0 (& i 1))', "(union e (Kept s m a))")


_CONDITIONS = {"varying": "(= 2 (& k{0} 2))", "invariant": "(= 0 (& k{0} 2))", "element": "(= 0 (& k{0} 1))", "moving": "(= 1 k{0})"}
_OPERATORS = {
    ast.Add: "Add", ast.Mult: "Mul", ast.Sub: "subtract", ast.Div: "divide", ast.BitAnd: "logical_and",
    ast.BitOr: "logical_or", ast.Invert: "logical_not", ast.Eq: "equal", ast.NotEq: "not_equal", ast.Gt: "greater", ast.Lt: "less",
    ast.GtE: "greater_equal", ast.LtE: "less_equal",
}
_COMMUTATIVE = ("Add", "Mul")
_NODES = {"contract": "Con axis", "largest": "Largest axis", "smallest": "Smallest axis", "rounded": "Rounded how"}


def _pattern(node: ast.expr) -> Pattern:
    """A row's side as nested tuples: a variable is a string, a number a Fraction."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=value):
            return Fraction(str(value))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return -Fraction(str(value))
        case ast.UnaryOp(op=op, operand=operand):
            return (_OPERATORS[type(op)], _pattern(operand))
        case ast.BinOp(left=a, op=op, right=b) | ast.Compare(left=a, ops=[op], comparators=[b]):
            return (_OPERATORS[type(op)], _pattern(a), _pattern(b))
        case ast.Call(func=ast.Name(id=name), args=args):
            return (name, *map(_pattern, args))
    raise ValueError(f"not a law: {ast.dump(node)}")


def side(text: str) -> Pattern:
    """One side of a row as a nested tuple (head, argument, …)."""
    return _pattern(ast.parse(text, mode="eval").body)


def _egglog(pattern: Pattern) -> str:
    if isinstance(pattern, Fraction):
        return f"(Num (rational {pattern.numerator} {pattern.denominator}))"
    if isinstance(pattern, str):
        return pattern
    head, *args = pattern
    inner = " ".join(map(_egglog, args))
    if head in _COMMUTATIVE:
        return f"({head} {inner})"
    if head in MONOIDS:
        return f'(Red "{head}" mask {inner})'
    if head in _NODES:
        return f"({_NODES[head]} {inner})"
    return f'(App{len(args)} "{head}" {inner})'


def _condition(call: ast.Call) -> str:
    name, args = call.func.id, [arg.id for arg in call.args]
    if name in _CONDITIONS:
        return f"(= k{args[0]} (kind {args[0]})) {_CONDITIONS[name].format(args[0])}"
    return f"({name} {' '.join(args)}{' axis' if name == 'follows' else ''})"


def _conditions(law: Law | SignRule) -> str:
    body = ast.parse(f"({law.requires},)", mode="eval").body if law.requires else ast.Tuple([])
    return " ".join(map(_condition, body.elts))


def _mirrored(pattern: Pattern, conditioned: str) -> Pattern:
    """The left side with its outermost commutative operands swapped, where the swap says something new."""
    if not isinstance(pattern, tuple):
        return pattern
    if pattern[0] in _COMMUTATIVE:
        _, a, b = pattern
        alike = isinstance(a, str) and isinstance(b, str) and not any(f"k{v} " in conditioned for v in (a, b))
        return pattern if alike else (pattern[0], b, a)
    return (pattern[0], *(_mirrored(arg, conditioned) for arg in pattern[1:]))


def compiled(law: Law) -> tuple[str, ...]:
    """The egglog rules of one row (two where the left side can be met in mirrored order)."""
    left, right, conditions = side(law.lhs), _egglog(side(law.rhs)), _conditions(law)
    heads = dict.fromkeys((_egglog(left), _egglog(_mirrored(left, conditions))))
    if isinstance(left, str):
        raise ValueError(f"{law.name}: the left side is a bare variable")
    suffixes = ("", " mirrored")
    return tuple(
        f'(rule ((= e {head}) {conditions}) ((union e {right})) :ruleset {law.name} :name "{law.name}{suffix}")'
        for head, suffix in zip(heads, suffixes, strict=False))


@cache
def heads(text: str) -> frozenset[str]:
    """The function and reduction names on one side of a row."""
    def walk(pattern: Pattern) -> frozenset[str]:
        if not isinstance(pattern, tuple):
            return frozenset()
        return frozenset((pattern[0],)).union(*map(walk, pattern[1:]))

    return walk(side(text)) - {"Add", "Mul"}


def relevant(names: frozenset[str], roles: frozenset[str], without: frozenset[str] = frozenset()) -> tuple[Law, ...]:
    """The laws that can apply to a term made of `names`, directly or after others have applied."""
    pool = [law for law in tuple(LAWS.values()) if law.role in roles and law.name not in without]
    chosen: dict[str, Law] = {}
    while fresh := [law for law in pool if law.name not in chosen and heads(law.lhs) <= names]:
        chosen.update((law.name, law) for law in fresh)
        names = names.union(*(heads(law.rhs) for law in fresh))
    return tuple(law for law in pool if law.name in chosen)


@cache
def foundation() -> str:
    """What every question needs: the sorts and the normal form."""
    return "\n".join((SORTS, *_structure()))


def content(name: str) -> Content:
    """What the law of this name says now.  Raises OperatorError for one whose declaration has ended."""
    if name not in LAWS:
        raise OperatorError(f"a question about the law {name}", "there is none of this name, or its declaration has ended",
                            "declare it again")
    law = LAWS[name]
    return law, frozenset((heads(law.lhs) | heads(law.rhs)) & MONOIDS.keys())


def law_program(law: Law) -> str:
    """One law in a ruleset of its own."""
    return "\n".join((f"(ruleset {law.name})", *compiled(law)))


def law_of(rule_name: str) -> list[str]:
    """The rows that a rule of the program stands for (none for bookkeeping rules)."""
    return [name for name in rule_name.removesuffix(" mirrored").split(", ") if name in LAWS]


assert not set(FUNCTIONS) & set(MONOIDS), "a name is either a function or a monoid"
