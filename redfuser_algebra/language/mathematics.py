"""Expressions and cascades as plain mathematics for people: `s·exp(m − m') + Σ_k Q[m,k]·K[l,k]`.

In: expressions.  Out: Unicode text to be looked at; `text` is the printer whose output is read back.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.text import Written, at_least
from redfuser_algebra.language.tidy import repeated_elements, tidied

if TYPE_CHECKING:
    from redfuser_algebra.language.cascade import Cascade

CHOICE, OR, AND, RELATION, ADD, REDUCTION, MULTIPLY, POWER, ATOM = range(9)
"""How tightly a formula binds.  A reduction reaches as far as a product goes, so it may only come last in one."""

INFIX = {
    "logical_or": (" ∨ ", OR), "logical_and": (" ∧ ", AND), "equal": (" = ", RELATION), "not_equal": (" ≠ ", RELATION),
    "less": (" < ", RELATION), "less_equal": (" ≤ ", RELATION), "greater": (" > ", RELATION),
    "greater_equal": (" ≥ ", RELATION), "add": (" + ", ADD), "subtract": (" − ", ADD), "multiply": ("·", MULTIPLY),
    "divide": ("/", MULTIPLY), "floor_divide": (" // ", MULTIPLY), "mod": (" mod ", MULTIPLY),
}
PREFIX = {"negative": ("−", ADD), "logical_not": ("¬", POWER)}
AROUND = {"abs": ("|", "|"), "floor": ("⌊", "⌋"), "ceil": ("⌈", "⌉"), "sqrt": ("√(", ")")}
WORDS = {"maximum": "max", "minimum": "min"}
SYMBOLS = {"sum": "Σ", "prod": "Π"}
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def mathematics(expr: Expr, names: Mapping[Expr, str] | None = None) -> str:
    """An expression in plain mathematics; a term in `names` is written by its name."""
    done: dict[Expr, Written] = {term: (name, ATOM) for term, name in (names or {}).items()}

    def walk(term: Expr) -> Written:
        if term not in done:
            done[term] = _written(term, [walk(arg) for arg in term.args])
        return done[term]

    return walk(expr)[0]


def cascade_text(cascade: Cascade) -> str:
    """A cascade as definitions: what is computed of each element, the reductions in order, the outputs."""
    sources = {reduction: tidied(reduction.stated) for reduction in cascade.reductions}
    outputs = list(map(tidied, cascade.outputs))
    roots = [*(part for source in sources.values() for part in source.args), *outputs]
    taken = {reduction.name for reduction in sources} | {axis for root in roots for axis in root.axes}
    names = repeated_elements(roots, cascade.axis, taken)
    rows = [(name, mathematics(element)) for element, name in names.items()]
    rows += [(reduction.name, mathematics(source, names)) for reduction, source in sources.items()]
    rows += [(name, mathematics(output, names))
             for name, output in zip(output_names(cascade.outputs, cascade.axis), outputs, strict=True)]
    return "\n".join(aligned(rows))


def output_names(outputs: tuple[Expr, ...], axis: str) -> list[str]:
    """What outputs are called where the operator's own names are not known; those that keep the axis are maps."""
    number = [""] if len(outputs) == 1 else [f" {place + 1}" for place in range(len(outputs))]
    return [("map" if axis in output.axes else "output") + n for output, n in zip(outputs, number, strict=True)]


def aligned(rows: list[tuple[str, str]]) -> list[str]:
    """Definitions with their signs of equality below one another."""
    width = max((len(left) for left, _ in rows), default=0)
    return [f"{left:<{width}} = {right}" for left, right in rows]


def _written(term: Expr, args: list[Written]) -> Written:
    if term.op in _LEAF:
        return _LEAF[term.op](term)
    if term.op == "reduce":
        mask = args[1] if term.mask is not None else None
        return _reduction(term.monoid, term.axis, args[0], mask, args[-1] if term.count is not None else None)
    if term.op == "scan":
        return _recurrence(term, [written for written, _ in args]), ATOM
    if term.op == "multiply" and args[1][1] == REDUCTION:
        return f"{at_least(MULTIPLY, args[0])}·{args[1][0]}", REDUCTION
    if term.op in INFIX:
        sign, level = INFIX[term.op]
        left = at_least(level + 1 if level == RELATION else level, args[0])
        return f"{left}{sign}{at_least(level + 1, args[1])}", level
    if term.op in PREFIX:
        sign, level = PREFIX[term.op]
        return sign + at_least(level + 1, args[0]), level
    if term.op in _SPECIAL:
        return _SPECIAL[term.op](args)
    operands = ", ".join(written for written, _ in args)
    before, after = AROUND.get(term.op, (f"{WORDS.get(term.op, _word(term))}(", ")"))
    return f"{before}{operands}{after}", ATOM


def _word(term: Expr) -> str:
    return term.attrs[0] if term.op == "cast" else term.op


def _constant(term: Expr) -> Written:
    value = term.value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    written = str(value).lower().replace("inf", "∞").replace("-", "−")
    return written, ADD if written.startswith("−") else ATOM


_LEAF = {
    "const": _constant,
    "input": lambda term: (f"{term.name}[{','.join(term.axes)}]" if term.axes else term.name, ATOM),
    "index": lambda term: (term.axis, ATOM),
    "size": lambda term: (f"N_{copied_axis(term.axis)}", ATOM),
    "param": lambda term: (term.name, ATOM),
    "symbol": lambda term: (term.name, ATOM),
    "state": lambda term: (term.name, ATOM),
}


def _recurrence(term: Expr, args: list[str]) -> str:
    """scan_l(h ← 0.9·h + x[l] from 0); of several states the one that is meant comes first: scan_l(s | m ← …; s ← …)."""
    axis, names, place, every = term.attrs
    steps = "; ".join(f"{name} ← {after} from {start}" for name, start, after in zip(names, args, args[len(names):], strict=False))
    below = {"": axis, "after": f"{{≤{axis}}}", "before": f"{{<{axis}}}"}[every]
    return f"scan_{below}({f'{names[place]} | ' if len(names) > 1 else ''}{steps})"


def _reduction(monoid: str, axis: str, body: Written, mask: Written | None, count: Written | None) -> Written:
    below = axis if mask is None else f"{{{axis}: {mask[0]}}}"
    above = f"^{at_least(ATOM, count)}" if count is not None else ""
    return f"{SYMBOLS.get(monoid, monoid)}_{below}{above} {at_least(REDUCTION, body)}", REDUCTION


def _power(args: list[Written]) -> Written:
    base = at_least(ATOM, args[0])
    if args[1][0].isdigit():
        return base + args[1][0].translate(SUPERSCRIPTS), POWER
    return f"{base}^{at_least(ATOM, args[1])}", POWER


def _choice(args: list[Written]) -> Written:
    condition, yes, no = args
    return f"{at_least(OR, yes)} if {condition[0]} else {no[0]}", CHOICE


_SPECIAL = {"power": _power, "where": _choice}
