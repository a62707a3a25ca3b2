r"""Expressions and operators as LaTeX: `\sum_{l} e^{s_{l} - \max_{l} s_{l}}`.

In: expressions.  Out: mathematics for a notebook or a paper; it is shown, never read back.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.expr import LEAVES, Expr
from redfuser_algebra.language.text import shared_terms

if TYPE_CHECKING:
    from redfuser_algebra.language.operator import Operator

RELATION, ADD, REDUCTION, MULTIPLY, SCRIPT, ATOM = range(6)
"""How tightly a formula binds.  A reduction reaches as far as a product goes, so it may only come last in one."""

INFIX = {
    "add": ("+", ADD), "subtract": ("-", ADD), "mod": (r"\bmod", MULTIPLY), "equal": ("=", RELATION),
    "not_equal": (r"\ne", RELATION), "less": ("<", RELATION), "less_equal": (r"\le", RELATION),
    "greater": (">", RELATION), "greater_equal": (r"\ge", RELATION), "logical_and": (r"\land", RELATION),
    "logical_or": (r"\lor", RELATION),
}
PREFIX = {"negative": ("-", ADD), "logical_not": (r"\lnot ", SCRIPT)}
REDUCTIONS = {
    "sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min", "argmax": r"\operatorname*{arg\,max}",
    "argmin": r"\operatorname*{arg\,min}", "topk": r"\operatorname*{top}", "argtopk": r"\operatorname*{arg\,top}",
    "any": r"\bigvee", "all": r"\bigwedge",
}
GREEK = frozenset("alpha beta gamma delta epsilon eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega "
                    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split())
NAMED = frozenset(("log", "sin", "cos", "tanh", "arctan"))

Written = tuple[str, int]


def latex(expr: Expr, names: Mapping[Expr, str] | None = None) -> str:
    """The LaTeX of an expression, without dollar signs; a term in `names` is written as the LaTeX given for it."""
    return _formula(expr, names or {})


def operator_latex(operator: Operator) -> str:
    """An operator as aligned equations: a line per shared term, then a line per output."""
    outputs = operator.outputs
    names = shared_terms(outputs, reserved={*operator.inputs, *operator.params})
    shared = {term: _with_subscript(name_latex(name), list(map(name_latex, term.axes))) for term, name in names.items()}
    lines = [(name, _formula(term, {key: value for key, value in shared.items() if key is not term}))
             for term, name in shared.items()]
    lines += [(_left(operator, place), _formula(output, shared)) for place, output in enumerate(outputs)]
    return r"\begin{aligned}" + r" \\ ".join(f"{left} &= {right}" for left, right in lines) + r"\end{aligned}"


def _left(operator: Operator, place: int) -> str:
    """The left side of an output's equation: its name and axes."""
    named = isinstance(operator.structure, tuple)
    name = name_latex(operator.structure[place] if named else operator.name)
    axes = list(operator.output_axes[place])
    return _with_subscript(name, ([str(place + 1)] if operator.structure == "tuple" else []) + list(map(name_latex, axes)))


def name_latex(name: str) -> str:
    r"""A name in mathematics: x, `\mu`, `\mathrm{scale}`, `t_{1}`, `m'`."""
    stem, digits, primes = re.fullmatch(r"(.*?)_?(\d*)('*)", name).groups()
    if not stem:
        return re.sub("_", r"\\_", name)
    letter = stem if len(stem) == 1 else f"\\{stem}" if stem in GREEK else rf"\mathrm{{{stem}}}".replace("_", r"\_")
    return f"{letter}{primes}" + (f"_{{{digits}}}" if digits else "")


def _with_subscript(name: str, below: list[str]) -> str:
    """A name with subscripts; a name that ends in one already is extended, since TeX allows only one."""
    if not below:
        return name
    base, digits = re.fullmatch(r"(.*?)(?:_\{(\d+)\})?", name).groups()
    return f"{base}_{{{','.join([digits, *below] if digits else below)}}}"


def _formula(root: Expr, names: Mapping[Expr, str]) -> str:
    done: dict[Expr, Written] = {term: (name, SCRIPT) for term, name in names.items()}

    def walk(term: Expr) -> Written:
        if term not in done:
            done[term] = _written(term, list(map(walk, term.args)))
        return done[term]

    return walk(root)[0]


def _written(term: Expr, args: list[Written]) -> Written:
    if term.op in LEAVES:
        return _leaf(term)
    if term.op == "reduce":
        return _reduction(term, args)
    if term.op == "scan":
        return _recurrence(term, [written for written, _ in args]), ATOM
    if term.op in INFIX:
        sign, level = INFIX[term.op]
        return f"{_at_least(level if level == ADD else level + 1, args[0])} {sign} {_at_least(level + 1, args[1])}", level
    if term.op in PREFIX:
        sign, level = PREFIX[term.op]
        return sign + _at_least(level + 1 if level == ADD else level, args[0]), level
    return _SPECIAL[term.op](args) if term.op in _SPECIAL else _call(term, args)


def _leaf(term: Expr) -> Written:
    if term.op == "const":
        return _constant(term.value)
    if term.op == "size":
        return f"N_{{{name_latex(copied_axis(term.axis))}}}", SCRIPT
    if term.op == "index":
        return name_latex(term.axis), SCRIPT
    below = list(map(name_latex, term.axes)) if term.op == "input" else []
    return _with_subscript(name_latex(term.name), below), SCRIPT


def _constant(value: bool | int | float) -> Written:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e6
    written = r"\text{%s}" % str(value).lower() if isinstance(value, bool) else repr(int(value) if whole else value)
    written = written.replace("inf", r"\infty").replace("nan", r"\mathrm{NaN}")
    power = re.fullmatch(r"(-?[\d.]+)e([+-]?\d+)", written)
    if power:
        digits = "" if power[1] == "1" else rf"{power[1]} \cdot "
        return f"{digits}10^{{{int(power[2])}}}", MULTIPLY if not written.startswith("-") else ADD
    return written, ADD if written.startswith("-") else ATOM


def _reduction(term: Expr, args: list[Written]) -> Written:
    below = name_latex(term.axis)
    if term.mask is not None:
        below += rf" \,:\, {args[1][0]}"
    above = f"^{{{args[-1][0]}}}" if term.count is not None else ""
    sign = REDUCTIONS.get(term.monoid) or r"\operatorname*{%s}" % term.monoid.replace("_", r"\_")
    return f"{sign}_{{{below}}}{above} {_at_least(REDUCTION, args[0])}", REDUCTION


def _recurrence(term: Expr, args: list[str]) -> str:
    axis, names, place, every = term.attrs
    steps = r";\ ".join(rf"{name_latex(name)} \gets {after},\ {_with_subscript(name_latex(name), ['0'])} = {start}"
                       for name, start, after in zip(names, args, args[len(names):], strict=False))
    below = {"": "", "after": r"\le ", "before": "<"}[every] + name_latex(axis)
    which = rf"{name_latex(names[place])} \mid " if len(names) > 1 else ""
    return rf"\operatorname{{scan}}_{{{below}}}\left({which}{steps}\right)"


def _product(args: list[Written]) -> Written:
    left, right = _at_least(MULTIPLY, args[0]), _at_least(REDUCTION, args[1])
    sign = r"\cdot" if right[0].isdigit() else r"\,"
    return f"{left} {sign} {right}", REDUCTION if args[1][1] == REDUCTION else MULTIPLY


def _power(args: list[Written]) -> Written:
    return f"{_at_least(ATOM, args[0]) if '^' in args[0][0] else _at_least(SCRIPT, args[0])}^{{{args[1][0]}}}", MULTIPLY


def _cases(args: list[Written]) -> Written:
    condition, yes, no = (written for written, _ in args)
    return rf"\begin{{cases}}{yes} & {condition} \\ {no} & \text{{otherwise}}\end{{cases}}", MULTIPLY


_SPECIAL = {
    "multiply": _product,
    "power": _power,
    "where": _cases,
    "divide": lambda args: (rf"\frac{{{args[0][0]}}}{{{args[1][0]}}}", MULTIPLY),
    "floor_divide": lambda args: (rf"\left\lfloor \frac{{{args[0][0]}}}{{{args[1][0]}}} \right\rfloor", ATOM),
}


def _call(term: Expr, args: list[Written]) -> Written:
    template = FUNCTIONS[term.op].latex if term.op in FUNCTIONS else ""
    if template.startswith("%s"):
        return template % tuple(_at_least(SCRIPT, arg) for arg in args), ADD
    if template:
        return template % tuple(written for written, _ in args), ATOM if r"\left" in template else MULTIPLY
    name = term.attrs[0] if term.op == "cast" else term.op
    head = f"\\{name}" if name in NAMED else rf"\operatorname{{{name}}}".replace("_", r"\_")
    return rf"{head}\left({', '.join(written for written, _ in args)}\right)", ATOM


def _at_least(level: int, written: Written) -> str:
    return written[0] if written[1] >= level else rf"\left({written[0]}\right)"
