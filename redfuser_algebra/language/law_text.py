"""Laws that a user declares, read from text: `logaddexp(a + c) = logaddexp(a) + c  where invariant(c)`.

In: one line in the language of the law table, perhaps with a name before it, as `str(law)` prints it.  Out: the row,
and its sides as expressions over one input per pattern variable.  Nothing is executed.
"""
from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from fractions import Fraction

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.laws import LAWS, Law
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, const, subterms
from redfuser_algebra.language.formula import Reader
from redfuser_algebra.language.program import Program

AXIS = "l"
"""The reduced axis, which the variables of a law vary along unless they are invariant."""

STILL = ("invariant", "moving")
SIGN_CONDITIONS = ("positive", "nonnegative", "nonpositive")
CONDITIONS = (*STILL, *SIGN_CONDITIONS, "varying", "element")
"""The conditions on one variable that a declared law may have; see the law table for their meaning."""

_TEXT = re.compile(r"(?:(?P<name>\w+)\s*:)?(?P<sides>.*?)(?:\swhere\s+(?!\()(?P<requires>.*?))?(?:\[exact\]\s*)?")
_EQUALS = re.compile(r"(?<![=<>!])=(?!=)")
_OPERATORS = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.Invert, ast.USub, ast.Eq, ast.NotEq, ast.Gt, ast.Lt,
              ast.GtE, ast.LtE)
_LARGEST = 2**31


@dataclass(frozen=True)
class Statement:
    """A law as a row, its sides as expressions, and the side conditions as (condition, variable)."""

    law: Law
    left: Expr
    right: Expr
    conditions: tuple[tuple[str, str], ...]


def read_law(text: str, about: str, source: str) -> Statement:
    """The law that a text states about a function or monoid that is being declared.

    Without a name before it the law is called after the words of its left side.  Raises OperatorError, with the
    column, for what is not a law, for words no table knows, and for variables that only the right side has.
    """
    if not isinstance(text, str):
        raise OperatorError(f"a law of {about}", f"{text!r:.40} is not text", "write it as a string")
    try:
        return _Text(" ".join(text.split()), about).statement(source)
    except OperatorError as error:
        asked = error.asked.replace("a formula", f"a law of {about}", 1)
        raise OperatorError(asked, error.failed, error.remedy, error.excerpt) from None


class _Text:
    """The parts of one text, and where they are."""

    def __init__(self, text: str, about: str) -> None:
        self.about, self.program = about, Program([text], {}, [], ast.Constant(0))
        self.parts = _TEXT.fullmatch(text)
        signs = list(_EQUALS.finditer(self.parts["sides"]))
        start, stop = self.parts.span("sides")
        if len(signs) != 1:
            raise self.error(start + signs[1].start() if signs else stop, f"it has {len(signs) or 'no'} signs of equality",
                             "write `left = right`, or `left = right where condition(a)`")
        self.spans = (start, start + signs[0].start()), (start + signs[0].end(), stop)

    def error(self, column: int, failed: str, remedy: str) -> OperatorError:
        """An error at a column, counted in characters."""
        place = ast.Constant(0, lineno=1, col_offset=len(self.program.lines[0][:column].encode()))
        return self.program.error(place, failed, remedy)

    def statement(self, source: str) -> Statement:
        """The law that the text states.  Raises OperatorError where it states none."""
        conditions = self._conditions()
        still = {variable for condition, variable in conditions if condition in STILL}
        trees = [_Plain().visit(self._tree(*span)) for span in self.spans]
        reader = _LawReader(self.program, still)
        left, right = map(reader.read, trees)
        self._check(trees, left, right, {variable for _, variable in conditions})
        requires = ", ".join(f"{condition}({variable})" for condition, variable in conditions)
        law = Law(self._name(left, right), *map(ast.unparse, trees), requires, source=source)
        return Statement(law, left, right, conditions)

    def _tree(self, start: int, stop: int) -> ast.expr:
        """A part's syntax tree, whose columns are those of the whole text."""
        text = self.program.lines[0]
        start += len(text[start:stop]) - len(text[start:stop].lstrip())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text[start:stop], mode="eval").body
        except SyntaxError as error:
            raise self.error(min(start + (error.offset or 1) - 1, stop), error.msg, "check brackets and operators") from None
        except (RecursionError, MemoryError, ValueError) as error:
            raise self.error(start, f"it cannot be read: {type(error).__name__}", "write a shorter law") from None
        for node in ast.walk(tree):
            if hasattr(node, "col_offset"):
                node.col_offset += len(text[:start].encode())
        return tree

    def _conditions(self) -> tuple[tuple[str, str], ...]:
        if self.parts["requires"] is None:
            return ()
        tree = self._tree(*self.parts.span("requires"))
        return tuple(map(self._condition, tree.elts if isinstance(tree, ast.Tuple) else [tree]))

    def _condition(self, node: ast.expr) -> tuple[str, str]:
        match node:
            case ast.Call(func=ast.Name(id=condition), args=[ast.Name(id=variable)], keywords=[]) if condition in CONDITIONS:
                return condition, variable
        raise self.program.error(node, f"{ast.unparse(node):.40} is no condition on a variable",
                                 f"use {', '.join(CONDITIONS)}, as in invariant(c)")

    def _check(self, trees: list[ast.expr], left: Expr, right: Expr, conditioned: set[str]) -> None:
        if not left.args:
            raise self.program.error(trees[0], "its left side is a bare variable or number", "write the larger side first")
        known = _variables(left)
        for node in ast.walk(trees[1]):
            if isinstance(node, ast.Name) and len(node.id) == 1 and node.id not in known:
                raise self.program.error(node, f"{node.id} is only on the right side", "use the variables of the left side")
        if not conditioned <= known:
            raise self.error(self.parts.start("requires"), f"{min(conditioned - known)} is not on the left side",
                             "put conditions on the variables of the left side")
        if self.about not in _words(left) | _words(right):
            raise self.error(0, f"it does not speak of {self.about}", f"declare it with what it is about, or use {self.about}")

    def _name(self, left: Expr, right: Expr) -> str:
        """The name that is given, or one made of the words of the left side, with a number where that is taken."""
        given = self.parts["name"]
        if given is not None:
            if self.about not in given or given == self.about or not given.isascii() or given[0].isdigit():
                raise self.error(0, f"a law of {self.about} cannot be called {given}", f"call it {self.about}_…")
            if given in LAWS:
                raise self.error(0, f"there is a law {given} already", "give this one another name")
            return given
        words = list(dict.fromkeys(_word(term) for term in reversed(subterms(left)) if term.args))
        stem, number = "_of_".join(words) if len(words) > 1 else f"{words[0]}_is_{_word(right)}", 1
        while (name := stem if number == 1 else f"{stem}_{number}") in LAWS:
            number += 1
        return name


def _word(term: Expr) -> str:
    return term.monoid if term.op == "reduce" else term.name if term.op == "input" else term.op


def _words(side: Expr) -> set[str]:
    return {_word(term) for term in subterms(side) if term.args}


def _variables(side: Expr) -> set[str]:
    return {term.name for term in subterms(side) if term.op == "input"}


class _Plain(ast.NodeTransformer):
    """a − b as a + (−1)·b, −a as (−1)·a, a / b as a · reciprocal(b): how the e-graph writes terms without a pivot."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node = self.generic_visit(node)
        if isinstance(node.op, ast.Sub):
            return _placed(ast.BinOp(node.left, ast.Add(), _negated(node.right)), node)
        if not isinstance(node.op, ast.Div):
            return node
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant) and node.right.value:
            return _placed(ast.Constant(node.left.value / node.right.value), node)
        inverse = _placed(ast.Call(ast.Name("reciprocal", ast.Load()), [node.right], []), node)
        one = isinstance(node.left, ast.Constant) and node.left.value == 1
        return inverse if one else _placed(ast.BinOp(node.left, ast.Mult(), inverse), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node = self.generic_visit(node)
        return _negated(node.operand) if isinstance(node.op, ast.USub) else node


def _negated(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Constant):
        return _placed(ast.UnaryOp(ast.USub(), node), node)
    return _placed(ast.BinOp(_negated(ast.copy_location(ast.Constant(1), node)), ast.Mult(), node), node)


def _placed(node: ast.expr, at: ast.expr) -> ast.expr:
    return ast.fix_missing_locations(ast.copy_location(node, at))


class _LawReader(Reader):
    """Reads the sides of a law: one-letter names are variables, and reductions take one operand and run over l."""

    def __init__(self, program: Program, still: set[str]) -> None:
        super().__init__(program, None, None, {})
        self.still = still

    def _read_name(self, node: ast.Name) -> Expr:
        if len(node.id) > 1 or not node.id.isascii():
            raise self.program.error(node, f"{node.id} is no variable", "use one letter for each variable")
        return Expr("input", (), (node.id, () if node.id in self.still else (AXIS,)))

    def _read_constant(self, node: ast.Constant) -> Expr:
        value = super()._read_constant(node).value
        exact = Fraction(0) if isinstance(value, bool) or abs(value) == float("inf") else Fraction(str(value))
        if isinstance(value, bool) or not (abs(exact.numerator) < _LARGEST > exact.denominator and abs(value) < _LARGEST):
            raise self.program.error(node, f"{node.value} is not a short number", "use whole numbers and short decimals")
        return const(value)

    def _operator(self, node: ast.expr, operator: ast.AST) -> str:
        if not isinstance(operator, _OPERATORS):
            raise self.program.error(node, f"laws do not use the operator {type(operator).__name__}",
                                     "use + - * / & | ~ and comparisons, and write powers as power(a, r)")
        return super()._operator(node, operator)

    def _read_call(self, node: ast.Call) -> Expr:
        name = self._function(node)
        if name in FUNCTIONS:
            return self._elementwise(node, name)
        if name not in MONOIDS or MONOIDS[name].counted:
            raise self.program.error(node, f"laws do not use {name}", "use elementwise functions and reductions such as sum")
        if len(node.args) != 1 or node.keywords:
            raise self.program.error(node, f"in a law {name} takes one operand", f"write {name}(a): it runs over {AXIS}")
        return Expr("reduce", (self.read(node.args[0]),), (name, AXIS, ""))
