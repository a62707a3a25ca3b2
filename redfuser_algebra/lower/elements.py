"""Parts of elements that several loops over a tile need and that take long to compute: a thread makes them once, and keeps them.

In: a tile program.  Out: the same with producers for these parts.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol
from redfuser_algebra.language.names import numbered, symbol_names
from redfuser_algebra.lower.device_functions import takes_long
from redfuser_algebra.lower.tile import Producer, TileProgram, Update


def with_elements(program: TileProgram) -> TileProgram:
    """A program whose loops share what they compute of elements alone, in functions of many steps."""
    loops = [[e for u in stage for e in u.elements] for stage in program.stages]
    loops += [[program.outputs[place]] for place in program.maps]
    needed = Counter(term for loop in loops for term in subterms(*loop) if _is_element(term, program.axis))
    found = dict.fromkeys(term for loop in loops for expr in loop for term in _outermost(expr, needed))
    taken = {*program.inputs, *program.params, *program.holds}
    names, producers, named = numbered("E", taken), list[Producer](), dict[Expr, Expr]()
    for term in sorted(found, key=lambda term: len(subterms(term))):
        producers.append(Producer(next(names), substitute(term, named), None))
        named[term] = symbol(producers[-1].name, term.axes)

    def update(u: Update) -> Update:
        return replace(u, lift=substitute(u.lift, named), mask=None if u.mask is None else substitute(u.mask, named))

    return replace(program, producers=(*program.producers, *producers), stages=tuple(tuple(map(update, stage)) for stage in program.stages),
                   outputs=tuple(substitute(output, named) for output in program.outputs), holds={**program.holds, **{p.name: p.axes for p in producers}})


def _is_element(term: Expr, axis: str) -> bool:
    """Whether a term is made of an element alone, by functions that take long."""
    return axis in term.axes and not symbol_names(term) and any(takes_long(each, {axis}) for each in subterms(term))


def _outermost(term: Expr, needed: Counter[Expr]) -> Iterator[Expr]:
    if needed[term] > 1:
        yield term
    else:
        for arg in term.args:
            yield from _outermost(arg, needed)
