"""Every row of the law table as a rule: what the e-graph is given says what the row says, and does it.

Each rule is asked one question in an e-graph that holds nothing but its row (and the normal form).
"""

import re
from dataclasses import replace
from fractions import Fraction

import law_values
import pytest
from law_terms import CONTRACTIONS, conditions, read, variables
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.laws import LAWS, SIGNS, Law
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.egraph import Limits, ask
from redfuser_algebra.discover.encode import Encoder
from redfuser_algebra.discover.facts import Facts
from redfuser_algebra.discover.rulesets import compiled, foundation, law_program, relevant
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr, call, const, symbol

ENABLED = [law for law in LAWS.values() if law.role != "disabled"]
RULES = [(law, place) for law in ENABLED if law.role != "normal form" for place in range(len(compiled(law)))]
KINDS = {"invariant": lambda k: not k & 2, "varying": lambda k: bool(k & 2), "element": lambda k: not k & 1,
         "moving": lambda k: k == 1}
"""Conditions on what a term sees: bit 1 a new pivot, bit 2 the reduced axis."""

WRITTEN = ("negate", "some_of_distinct", "equal_to_choice", "sum_of_choice")
"""Rows that are applied when a term is written."""

each_rule = pytest.mark.parametrize("law, place", RULES, ids=lambda part: getattr(part, "name", part))
each_sign = pytest.mark.parametrize("rule", SIGNS, ids=lambda rule: rule.name)


def parse(text):
    """A rule as nested tuples; strings lose their quotes."""
    stack = [[]]
    for token in re.findall(r'[()]|"[^"]*"|[^\s()]+', text):
        if token == "(":
            stack.append([])
        elif token == ")":
            stack[-2].append(tuple(stack.pop()))
        else:
            stack[-1].append(int(token) if re.fullmatch(r"-?\d+", token) else token.strip('"'))
    return stack[0][0]


def meaning(part):
    """A side of a rule as `read` gives the side of a row."""
    match part:
        case str():
            return part
        case ("Num", ("rational", numerator, denominator)):
            return Fraction(numerator, denominator)
        case ("Add" | "Mul" as node, a, b):
            return ("add" if node == "Add" else "multiply", meaning(a), meaning(b))
        case ("Con" | "Largest" | "Smallest" | "Rounded" as node, "axis" | "how", a):
            named = {"Con": "contract"}.get(node, node.lower())
            return (named, meaning(a))
        case ("Red", monoid, "mask", a):
            return (monoid, meaning(a))
        case ("App1" | "App2" | "App3" as node, head, *operands):
            assert len(operands) == int(node[-1])
            return (head, *map(meaning, operands))
    raise ValueError(part)


def either_way(term):
    """A term with the operands of + and × in one order."""
    if not isinstance(term, tuple):
        return term
    operands = [either_way(operand) for operand in term[1:]]
    return (term[0], *(sorted(operands, key=repr) if term[0] in ("add", "multiply") else operands))


def rule_of(law, place):
    """The left side, the conditions and the right side of a rule."""
    _, ((_, _, left), *required), ((_, _, right),), *_ = parse(compiled(law)[place])
    return left, required, right


def sees(required, variable, kind):
    """Whether a rule lets a variable of this kind through."""
    tests = [test for test in required if test[0] == "=" and f"k{variable}" in str(test) and test[2][0] != "kind"]
    tests += [test for test in required if test[0] == "=" and test[2] == f"k{variable}"]
    return all(test[1] == (kind if isinstance(test[2], str) else kind & test[2][2]) for test in tests)


@each_rule
def test_rule_says_what_its_row_says(law, place):
    left, required, right = rule_of(law, place)
    assert either_way(meaning(left)) == either_way(read(law.lhs))
    assert meaning(left) == read(law.lhs) or place == 1
    assert meaning(right) == read(law.rhs)
    assert [written(test) for test in required if test[0] != "="] == [
        relation.replace('"axis"', "$axis") for relation in relations(law.requires)]
    for name, (variable, *_) in conditions(law.requires):
        if name in KINDS:
            assert ("=", f"k{variable}", ("kind", variable)) in required
            wanted = [test for test, (each, *_) in conditions(law.requires) if test in KINDS and each == variable]
            for kind in range(4):
                assert sees(required, variable, kind) == all(KINDS[test](kind) for test in wanted)


@pytest.mark.parametrize("law", ENABLED, ids=lambda law: law.name)
def test_row_is_loaded_in_a_ruleset_of_its_own(law):
    if law.role == "normal form":
        assert law.name in foundation() or law.name in WRITTEN
    else:
        assert law_program(law).startswith(f"(ruleset {law.name})") and f':name "{law.name}"' in law_program(law)


def test_a_search_is_given_no_disabled_row_and_none_that_it_was_told_to_leave_out():
    everything = frozenset({*FUNCTIONS, *MONOIDS, *CONTRACTIONS, "rounded"})
    given = relevant(everything, frozenset({"always", "centred", "raw", "ordered"}), frozenset({"reset"}))
    assert {law.role for law in given} == {"always", "centred", "raw", "ordered"}
    assert {law.name for law in ENABLED if law.role in ("always", "raw")} - {law.name for law in given} == {"reset"}


# at work

_NIL = "(multiset-of)"
_LEAVES = {bag: " ".join('(multiset-of (Leaf "%s"))' if each == bag else _NIL for each in "CKG") for bag in "CKG"}


def leaf(name, bag):
    """A value that sees the new pivot (C), neither it nor the axis (K), or the axis (G)."""
    return f"(Term (rational 1 1) {_LEAVES[bag] % name})"


def standing_for(variable, requires, plain):
    """A term that meets the conditions on a variable; without any, one that sees the axis and the new pivot."""
    required = [(name, inside.index(variable)) for name, inside in conditions(requires) if variable in inside]
    if ("pivot", 0) in required or ("follows", 1) in required:
        return leaf(variable, "K")
    if [name for name, place in required if place in range(*law_values.STILL.get(name, (0, 0)))]:
        return leaf(variable, "C")
    if [name for name, _ in required if name in ("varying", "element")] or plain:
        return leaf(variable, "G")
    return f'(App2 "mod" {leaf(variable, "G")} {leaf(variable + " new", "C")})'


STRINGS = {"Red": 2, "Con": 1, "Largest": 1, "Smallest": 1, "Rounded": 1, "App1": 1, "App2": 1, "App3": 1}
"""How many operands of a node are names."""


def written(part):
    """A side of a rule as text, its variables as definitions."""
    if isinstance(part, tuple):
        head, *rest = part
        names = STRINGS.get(head, 0)
        return f"({' '.join([head, *map(quoted, rest[:names]), *map(written, rest[names:])])})"
    return f"${part}" if isinstance(part, str) and part != "rational" else str(part)


def quoted(name):
    return f'"{name}"'


def relations(requires):
    """The conditions of a row that are relations, stated of its variables."""
    for name, inside in conditions(requires):
        if name not in KINDS:
            yield f"({name} {' '.join(map(written, inside))}{' ' + quoted('axis') if name == 'follows' else ''})"


def sides_at_work(law, left, right, allowed):
    """The cheapest terms equal to the two sides when nothing but `allowed` is known, and the laws that fired."""
    names = variables(read(law.lhs), read(law.rhs), *(("", *inside) for _, inside in conditions(law.requires)))
    lines = [f"(let ${name} {standing_for(name, law.requires, law.role == 'normal form')})" for name in names]
    question = f'(App2 "both" {written(left)} {written(right)})'
    answer = ask([*lines, *relations(law.requires)], question, allowed, Limits())
    assert answer.term[:2] == ("App2", "both"), answer.term
    return answer.term[2:], answer.fired


@each_rule
def test_law_makes_its_sides_equal(law, place):
    left, _, right = rule_of(law, place)
    (got, expected), fired = sides_at_work(law, left, right, (law.name,))
    assert fired[law.name] and got == expected


@pytest.mark.parametrize("law", [law for law in ENABLED if law.role == "normal form" and law.name not in WRITTEN],
                         ids=lambda law: law.name)
def test_normal_form_makes_its_sides_equal(law):
    left, _, right = rule_of(law, 0)
    (got, expected), fired = sides_at_work(law, left, right, ())
    assert fired[law.name] and got == expected


def test_a_negated_term_is_written_as_a_product():
    encoder, p = Encoder("l", Facts("l", ())), symbol("p")
    assert encoder.term(-p) in encoder.lines[-1] and "(Mul (Num (rational -1 1))" in encoder.lines[-1]


def test_membership_among_positions_is_written_as_a_sum():
    top = Reduction("t", "argtopk", Expr("input", (), ("x", ("l",))), None, const(2), None)
    at = call("equal", Expr("index", (), ("l",)), symbol("t", ("top",)))
    member = Expr("reduce", (at,), ("any", "top", ""))
    positions, values = (Encoder("l", Facts("l", [each])) for each in (top, replace(top, monoid="topk")))
    positions.term(member), values.term(member)
    assert "(Con " in "".join(positions.lines) and "(Con " not in "".join(values.lines)


@pytest.mark.parametrize("name, requires", [
    ("max_scales_by_nonnegative", "invariant(c)"), ("max_shifts", "element(c)"), ("reset", "pivot(p, q), element(a)"),
    ("recentre_ratio", "pivot(p, q), element(a)"), ("log_of_product", "positive(a)"),
    ("maximum_scales", "nonnegative(c)"), ("recentre_difference", "pivot(p, q)"), ("prod_of_power", "positive(a)"),
])
def test_law_does_not_fire_without_its_condition(name, requires):
    law = LAWS[name]
    left, _, right = rule_of(law, 0)
    (got, expected), fired = sides_at_work(replace(law, requires=requires), left, right, (name,))
    assert not fired[name] and got != expected


@each_sign
def test_sign_spreads(rule):
    names = variables(read(rule.term))
    lines = [f"(let ${name} {standing_for(name, '', False)})" for name in names]
    head, witness = {"positive": ("sign", "sign_of_positive"), "nonnegative": ("abs", "abs_of_nonnegative")}[rule.sign]
    _, ((_, _, term),), *_ = parse(compiled(Law("", rule.term, "a"))[0]) if rule.term != "a" else (0, ((0, 0, "a"),))
    question = f'(App1 "{head}" {written(term)})'
    assert ask([*lines, *relations(rule.requires)], question, (witness,), Limits()).fired[witness]
