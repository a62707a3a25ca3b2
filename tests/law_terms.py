"""The text of laws as terms: nested tuples of heads and operands, and the side conditions as (name, variables)."""

import ast
import re
from fractions import Fraction

CONTRACTIONS = {"contract": "sum", "largest": "max", "smallest": "min", "some": "any"}
BOOLEAN = {"logical_and", "logical_or", "logical_not"}
_OPERATORS = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.USub: "negative",
    ast.BitAnd: "logical_and", ast.BitOr: "logical_or", ast.Invert: "logical_not",
    ast.Eq: "equal", ast.NotEq: "not_equal", ast.Gt: "greater", ast.Lt: "less",
    ast.GtE: "greater_equal", ast.LtE: "less_equal",
}


def read(text):
    """One side of a row as nested tuples (head, operand, …); a variable is a string, a number a Fraction."""
    return _read(ast.parse(text, mode="eval").body)


def _read(node):
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=value):
            return Fraction(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return -Fraction(value)
        case ast.UnaryOp(op=op, operand=operand):
            return (_OPERATORS[type(op)], _read(operand))
        case ast.BinOp(left=a, op=op, right=b) | ast.Compare(left=a, ops=[op], comparators=[b]):
            return (_OPERATORS[type(op)], _read(a), _read(b))
        case ast.Call(func=ast.Name(id=name), args=args):
            return (name, *map(_read, args))
    raise ValueError(f"not a law: {ast.dump(node)}")


def conditions(requires):
    """The side conditions of a row: (name, variables)."""
    found = re.findall(r"(\w+)\(([^)]*)\)", requires)
    return [(name, tuple(inside.replace(",", " ").split())) for name, inside in found]


def parts(term):
    """Every part of a term, itself first."""
    yield term
    for operand in term[1:] if isinstance(term, tuple) else ():
        yield from parts(operand)


def heads(*terms):
    return {part[0] for term in terms for part in parts(term) if isinstance(part, tuple)}


def variables(*terms):
    return sorted({part for term in terms for part in parts(term) if isinstance(part, str)})


def outside_contractions(term):
    """The variables that occur outside every contraction."""
    if isinstance(term, str):
        return {term}
    if not isinstance(term, tuple) or term[0] in CONTRACTIONS:
        return set()
    return set().union(*map(outside_contractions, term[1:]))
