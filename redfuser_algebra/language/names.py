"""Names in expressions: primed ones, for what pivots become and later parts hold, and such as nothing else has."""
from __future__ import annotations

from collections.abc import Container, Iterator
from functools import lru_cache
from itertools import count

from redfuser_algebra.algebra.monoids import WON
from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol

PRIME = "'"
"""What the name of a pivot's new value, or of what the later of two parts holds, ends with."""


def symbol_names(*exprs: Expr | None) -> dict[str, None]:
    """The names of the symbols in expressions, in order; None stands for no expression."""
    return dict.fromkeys(name for expr in exprs if expr is not None for name in _names_in(expr))


@lru_cache(maxsize=4096)
def _names_in(expr: Expr) -> tuple[str, ...]:
    return tuple(dict.fromkeys(term.name for term in subterms(expr) if term.op == "symbol"))


def primed(expr: Expr) -> Expr:
    """What is said of old pivots or of the earlier part, said of new ones or of the later part."""
    return substitute(expr, {term: symbol(term.name + PRIME, term.axes) for term in subterms(expr) if term.op == "symbol"})


def pivots_moved(rebase: Expr) -> list[str]:
    """The pivots whose new values a rule reads."""
    return [name.removesuffix(PRIME) for name in symbol_names(rebase) if name.endswith(PRIME)]


def stem(name: str) -> str:
    """The component or value that a symbol speaks of: m for m′, i for the value that i won with."""
    return name.removesuffix(PRIME).removesuffix(WON)


def numbered(word: str, taken: Container[str]) -> Iterator[str]:
    """The names word1, word2, … that are not taken."""
    return (name for name in map(f"{word}{{}}".format, count(1)) if name not in taken)


def unused(word: str, taken: Container[str]) -> str:
    """A word, with a number behind it from 2 on where it is taken."""
    return word if word not in taken else next(name for name in map(f"{word}{{}}".format, count(2)) if name not in taken)
