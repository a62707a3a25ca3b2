"""Names that a mathematician would use, by what a term is: m for a maximum, N for a number, M2 for a sum of squares
about a mean, Z for a sum of exponentials, mu for a mean.

In: a form as the search leaves it.  Out: the same form with other names, and names for terms that are used twice.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from redfuser_algebra.algebra.monoids import WON
from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.expr import Expr, const, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.tidy import tidied
from redfuser_algebra.prove.export.numpy_text import RESERVED, spelt

STEMS = {"max": "m M", "min": "lo", "prod": "q", "argmax": "i", "argmin": "j", "topk": "top", "argtopk": "pos", "any": "some",
           "all": "every", "fmax": "m M", "fmin": "lo", "compose": "h"}
POOL = ("t", "u", "v", "r", "y", "h", "g", "z", "w", "f", "alpha", "beta", "gamma", "eta", "theta", "kappa", "rho", "tau",
        "phi", "psi", "omega", "xi", "zeta", "nu")


class Names:
    """Names as they are given out: each once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def fresh(self, stem: str, tags: Sequence[str] = (), several: bool = False) -> str:
        """The first free word of the stem, else the stem with a tag, else a letter of the pool, else one with a number.

        Of `several` of a kind each gets its tag.
        """
        words = stem.split()
        tagged, numbered = [f"{word}_{tag}" for word in words for tag in tags], (f"{POOL[0]}_{n}" for n in count(2))
        candidates = chain(tagged[:len(tags)] if several else (), words, tagged, POOL, numbered)
        name = next(name for name in candidates if not {name, f"{name}_new"} & self.taken)
        self.taken.add(name)
        return name


def renamed(operator: Operator, form: FusedForm) -> FusedForm:
    """The form with components, pivots and results renamed."""
    axes = {copied_axis(axis) for own in form.symbol_axes.values() for axis in own} | set(operator.axes)
    names = Names({*RESERVED, *map(spelt, (*operator.inputs, *operator.params)), *axes})
    given: dict[str, str] = {}
    bases = _bases(form)
    lifts = {component.name: component.lift for component in form.state}
    kinds: dict[str, tuple[str, list[str]]] = {}
    for component in form.state:
        lift = tidied(component.lift)
        stem = STEMS.get(component.monoid) or sum_stem(lift, component.mask, form.axis, bases)
        kinds[component.name] = stem, tags(lift, component.mask)
    for row in (*form.pivots, *form.results):
        parts = [lifts[term.name] for term in subterms(row.value) if term.op == "symbol" and term.name in lifts]
        kinds.setdefault(row.name, (value_stem(tidied(row.value), lifts), tags(*parts[:1])))
    alike = Counter((stem, bool(own)) for stem, own in kinds.values())
    for name, (stem, own) in kinds.items():
        given[name] = names.fresh(stem, own, alike[stem, bool(own)] > 1)
    return _with_names(form, given)


def _with_names(form: FusedForm, given: Mapping[str, str]) -> FusedForm:
    formulas = [expr for c in form.state for expr in (c.lift, c.mask, c.count, c.rebase, c.joined) if expr is not None]
    formulas += [*form.definitions.values()] + [r.mask for r in form.results if r.mask is not None]
    old = [term for term in subterms(*formulas, *form.outputs) if term.op == "symbol"]
    mapping = {term: symbol(new_name(term.name, given), term.axes) for term in old}

    def new(expr: Expr | None) -> Expr | None:
        return None if expr is None else substitute(expr, mapping)

    return replace(
        form, state=tuple(replace(c, name=given[c.name], lift=new(c.lift), mask=new(c.mask), count=new(c.count), rebase=new(c.rebase), joined=new(c.joined))
                          for c in form.state),
        pivots=tuple(replace(p, name=given[p.name], value=new(p.value)) for p in form.pivots),
        results=tuple(replace(r, name=given[r.name], value=new(r.value), mask=new(r.mask)) for r in form.results),
        outputs=tuple(map(new, form.outputs)), ranks={given[name]: rank for name, rank in form.ranks.items()},
        facts=tuple(replace(fact, statement=_spoken(fact.statement, given)) for fact in form.facts))


def new_name(name: str, given: Mapping[str, str]) -> str:
    """The new name of a symbol: its prime, or what follows the name of a position's value, stays."""
    for ending in ("", PRIME, WON):
        if name.endswith(ending) and name.removesuffix(ending) in given:
            return given[name.removesuffix(ending)] + ending
    return name


def _spoken(statement: str, given: Mapping[str, str]) -> str:
    """A statement with the new names; what stands before a bracket is an array, not a symbol."""
    return re.sub(r"(?<![\w'])([^\W\d]\w*)\b(?![\[\'])", lambda found: given.get(found[1], found[1]), statement)


def sum_stem(body: Expr, mask: Expr | None, axis: str, bases: tuple[Expr, ...] = ()) -> str:
    """What a sum is called, by its tidied summand; "" where there is no usual name."""
    if body is const(1):
        return "N" if mask is None else "n"
    if body.op == "where" and body.args[0].op == "equal" and body.args[0].args[0].op == "index" and len(tags(body.args[1])) == 1:
        return f"{tags(body.args[1])[0]}_at"
    factors = list(_factors(body))
    deviations = [(base, degree) for base, degree in factors if is_deviation(base, axis)]
    others = [(base, degree) for base, degree in factors if not is_deviation(base, axis)]
    weights = "".join(base.name * degree for base, degree in others if base.op == "input")
    plain = all(base.op in ("input", "const", "param") for base, _ in others)
    if deviations and plain:
        several = [base for base in bases if base in dict(deviations)] if len(bases) < 2 else bases
        degrees = "".join(str(dict(deviations).get(base, 0)) for base in several) or str(sum(d for _, d in deviations))
        return f"M{degrees}{weights}"
    if [base for base, _ in others if base.op == "exp"]:
        rest = [base for base, _ in factors if base.op != "exp"]
        return "Z" if not rest else "o" if not deviations and all(base.op == "input" for base in rest) else "E"
    if others and all(base.op == "input" for base, _ in others):
        return "s" + ("" if len(weights) == sum(d for _, d in others) else "_") + "_".join(
            [weights] if len(weights) == sum(d for _, d in others) else [base.name for base, _ in others])
    return ""


def _bases(form: FusedForm) -> tuple[Expr, ...]:
    """What the sums of a form are about: x − p for each x and p."""
    found = [base for c in form.state if c.monoid == "sum" for base, _ in _factors(tidied(c.lift)) if is_deviation(base, form.axis)]
    return tuple(dict.fromkeys(found))


def is_deviation(term: Expr, axis: str) -> bool:
    """Whether a term is an element minus something that does not vary along the axis."""
    return term.op == "subtract" and axis in term.args[0].axes and axis not in term.args[1].axes and term.args[1].op != "const"


def _factors(term: Expr) -> Iterator[tuple[Expr, int]]:
    if term.op == "multiply":
        yield from _factors(term.args[0])
        yield from _factors(term.args[1])
    elif term.op == "power" and term.args[1].op == "const" and term.args[1].value in (2, 3, 4, 5, 6, 7, 8):
        yield term.args[0], int(term.args[1].value)
    elif term.op == "negative":
        yield from _factors(term.args[0])
    else:
        yield term, 1


def tags(*terms: Expr | None) -> list[str]:
    """What tells two of a kind apart: the inputs they are made of."""
    inputs = dict.fromkeys(term.name for part in terms if part is not None for term in subterms(part) if term.op == "input")
    return ["".join(inputs) if all(len(name) == 1 for name in inputs) else "_".join(inputs)] if inputs else []


def value_stem(value: Expr, lifts: Mapping[str, Expr]) -> str:
    """What a pivot or a result is called."""
    if value.op == "divide" and value.args[0].op == "symbol" and value.args[0].name in lifts and value.args[1].op in ("symbol", "size"):
        return "mu"
    if value.op == "sqrt":
        return "sigma"
    return ""


def local_stem(term: Expr, axis: str) -> str:
    """What a term that is used twice is called where it is computed."""
    scores = [part for part in subterms(term) if part.op == "reduce" and part.axis != axis and axis in part.axes]
    if scores and axis in term.axes and not any(part.op == "exp" for part in subterms(term)):
        return "S"
    if term.op == "reduce":
        body = tidied(term.body)
        return STEMS.get(term.monoid) or sum_stem(body, term.mask, term.axis)
    if term.op in ("shift", "subtract"):
        lone = tags(term.args[0])
        return f"d{lone[0]}" if axis in term.axes and lone and len(lone[0]) == 1 else "d"
    if term.op == "divide" and term.args[0].op == "reduce" and term.args[1].op in ("size", "reduce"):
        return "mu"
    return {"exp": "e", "sqrt": "sigma", "divide": "p", "equal": "here", "less": "here", "greater": "here", "less_equal": "here",
            "greater_equal": "here", "abs": "size", "power": "w"}.get(term.op, "")
