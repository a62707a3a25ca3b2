"""A fused form for people: text for a terminal, Markdown for a notebook, LaTeX for a paper.

In: a fused form.  Out: text.  All three are written from the same equations (`rules`); operations that were completed
for infinities, zeros and empty parts carry the numbers of their guards.
"""
from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from redfuser_algebra.discover import rules
from redfuser_algebra.language.expr import Expr, subterms, symbol
from redfuser_algebra.language.latex import latex, name_latex
from redfuser_algebra.language.mathematics import SUPERSCRIPTS, aligned, mathematics, output_names
from redfuser_algebra.language.tidy import tidied

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

WIDTH = 118
"""Where lists of names are wrapped."""


def form_text(form: FusedForm) -> str:
    """The whole form in plain mathematics, section by section."""
    told = [summary(form)]
    for title, lines in text_sections(form).items():
        if lines:
            told.append("\n".join([title, *(f"  {line}" for line in lines)]))
    return "\n\n".join(told)


def summary(form: FusedForm) -> str:
    """One line: the axis, the size of the state, the kind of merge."""
    words = "1 word" if form.words == 1 else f"{form.words} words"
    return f"one pass over {form.axis}, {words} of state per row, " + (f"{form.order} merge" if form.merges else "in order, no merge")


def text_sections(form: FusedForm) -> dict[str, list[str]]:
    """Titles and lines; a section that has nothing to say has no lines."""
    names = rules.named_elements(form)
    moved = ", ".join(f"{name.name} = {mathematics(tidied(move))}" for move, name in rules.differences(form).items())
    return {
        "holds only where": list(map(mathematics, form.assumptions)),
        "elements": aligned(_element_rows(names)),
        "pivots": aligned(_rows(form, rules.pivots(form), names)),
        "state": state_table(form, names),
        "update by one element": aligned(_rows(form, rules.update(form), names)),
        "merge of two states a and b": aligned(_rows(form, rules.merge(form), names)),
        f"rebase, {moved}" if moved else "rebase": [line for m in rules.matrices(form) for line in _matrix(m)],
        "results": aligned(_rows(form, rules.results(form), names)),
        "outputs": aligned(_outputs(form, names)),
        "guards": [f"{_digits(number)} {guard}" for number, guard in enumerate(form.guards, 1)],
        "facts": [str(fact) for fact in dict.fromkeys(form.facts) if fact.kind != "danger"],
        "dangers": [str(fact) for fact in dict.fromkeys(form.dangers)],
        "laws": textwrap.wrap(", ".join(form.laws), WIDTH),
    }


def state_table(form: FusedForm, names: Mapping[Expr, str]) -> list[str]:
    """Component, monoid, axes and what one element gives, in columns."""
    head = [["component", "⊕", "axes", "one element gives"]] if form.state else []
    return columns([*head, *([name, monoid, axes, element + (f"   where {mask}" if mask else "")]
                             for name, monoid, axes, element, mask in _state(form, lambda e: mathematics(e, names)))])


def columns(rows: list[list[str]]) -> list[str]:
    """Rows of cells as lines with aligned columns."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def update_text(form: FusedForm) -> str:
    """What one more element does to the state, a line per equation."""
    names = rules.named_elements(form)
    return "\n".join(aligned(_element_rows(names) + _rows(form, rules.update(form), names, marked=False)))


def merge_text(form: FusedForm) -> str:
    """What two states make together, a line per equation."""
    return "\n".join(aligned(_rows(form, rules.merge(form), rules.named_elements(form), marked=False)))


def form_latex(form: FusedForm) -> str:
    """The update by one element as aligned equations."""
    names = rules.named_elements(form)
    return _aligned(_lines_latex(_elements(names), {}) + _lines_latex(rules.update(form), names))


def form_markdown(form: FusedForm) -> str:
    """The form as Markdown with mathematics between dollar signs."""
    return "\n\n".join([f"**{summary(form)}**", *_markdown(form)])


def _state(form: FusedForm, shown: Callable[[Expr], str]) -> Iterator[list[str]]:
    for component in form.state:
        count = f" {shown(component.count)}" if component.count is not None else ""
        mask = "" if component.mask is None else shown(tidied(component.mask))
        yield [component.name, component.monoid + count, " ".join(component.axes), shown(tidied(component.lift)), mask]


def _outputs(form: FusedForm, names: Mapping[Expr, str]) -> list[tuple[str, str]]:
    ends = " ".join(_digits(number) for number, guard in enumerate(form.guards, 1) if guard.operation == "finalize")
    shown = (mathematics(output, names) + ("  " + ends if ends else "") for output in rules.outputs(form))
    return list(zip(output_names(form.outputs, form.axis), shown, strict=True))


def _element_rows(names: Mapping[Expr, str]) -> list[tuple[str, str]]:
    return [(name, mathematics(term)) for term, name in names.items()]


def _rows(form: FusedForm, equations: Iterable[rules.Equation], names: Mapping[Expr, str],
          marked: bool = True) -> list[tuple[str, str]]:
    """Left and right sides; the right one with what it depends on."""
    rows = []
    for equation in equations:
        mask = "" if equation.mask is None else f"   element where {mathematics(equation.mask, names)}"
        marks = f"  {_marks(form, equation)}" if marked and _marks(form, equation) else ""
        rows.append((mathematics(equation.left), mathematics(equation.right, names) + mask + marks))
    return rows


def _marks(form: FusedForm, equation: rules.Equation) -> str:
    numbers = [number for number, guard in enumerate(form.guards, 1) if guard.operation in equation.operations]
    return " ".join(map(_digits, numbers))


def _digits(number: int) -> str:
    return str(number).translate(SUPERSCRIPTS)


def _matrix(matrix: rules.Matrix) -> list[str]:
    """T between the new components and the old ones."""
    cells = [list(map(mathematics, row)) for row in matrix.rows]
    return columns([[f"{name}'", "=" if place == 0 else "", "⎢", *row, "⎥", name]
                    for place, (name, row) in enumerate(zip(matrix.components, cells, strict=True))])


def _markdown(form: FusedForm) -> Iterator[str]:
    names = rules.named_elements(form)
    if form.assumptions:
        yield "Holds only where " + ", ".join(f"${latex(condition)}$" for condition in form.assumptions)
    yield from _titled("Elements", _lines_latex(_elements(names), {}))
    yield from _titled("Pivots", _lines_latex(rules.pivots(form), names))
    yield "\n".join(map(_row, _state_cells(form, names)))
    yield from _titled("Update by one element", _lines_latex(rules.update(form), names))
    yield from _titled("Merge of two states a and b", _lines_latex(rules.merge(form), names))
    yield from _rebase_markdown(form)
    outputs = zip(output_names(form.outputs, form.axis), rules.outputs(form), strict=True)
    shown = [rf"\text{{{name}}} &= {_latex_with(names)(output)}" for name, output in outputs]
    yield from _titled("Results", _lines_latex(rules.results(form), names) + shown)
    safe = [fact for fact in form.facts if fact.kind != "danger"]
    for title, lines in (("Guards", form.guards), ("Facts", safe), ("Dangers", form.dangers), ("Laws", [", ".join(form.laws)])):
        if lines:
            yield "\n".join([f"{title}\n", *(f"- {line}" for line in dict.fromkeys(map(_plain, lines)))])


def _state_cells(form: FusedForm, names: Mapping[Expr, str]) -> Iterator[list[str]]:
    yield ["component", "⊕", "axes", "one element gives", "where"]
    yield ["---"] * 5
    for name, monoid, axes, element, mask in _state(form, _latex_with(names)):
        yield [f"${name_latex(name)}$", monoid, axes, f"${element}$", mask and f"${mask}$"]


def _rebase_markdown(form: FusedForm) -> Iterator[str]:
    moves = [rules.Equation(name, tidied(move)) for move, name in rules.differences(form).items()]
    written = [*map(_matrix_latex, rules.matrices(form)), *([_aligned(_lines_latex(moves, {}))] if moves else [])]
    if rules.matrices(form):
        yield "Rebase\n\n$$" + r" \qquad ".join(written) + "$$"


def _elements(names: Mapping[Expr, str]) -> list[rules.Equation]:
    return [rules.Equation(symbol(name), term) for term, name in names.items()]


def _titled(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title}\n\n$${_aligned(lines)}$$"


def _plain(line: object) -> str:
    """Text that Markdown leaves as it is."""
    return re.sub(r"([*_|<>$])", r"\\\1", str(line))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\vert ") for cell in cells) + " |"


def _aligned(lines: list[str]) -> str:
    return r"\begin{aligned}" + r" \\ ".join(lines) + r"\end{aligned}"


def _lines_latex(equations: Iterable[rules.Equation], names: Mapping[Expr, str]) -> list[str]:
    shown = _latex_with(names)
    return [f"{shown(e.left)} &= {shown(e.right)}"
            + ("" if e.mask is None else rf" \quad \text{{element where }} {shown(e.mask)}") for e in equations]


def _latex_with(names: Mapping[Expr, str]) -> Callable[[Expr], str]:
    """The LaTeX printer with names for elements, for the states a and b, and for δ."""
    elements = {term: name_latex(name) for term, name in names.items()}

    def shown(expr: Expr) -> str:
        inside = {term: _symbol_latex(term.name) for term in subterms(expr) if term.op == "symbol"}
        return latex(expr, elements | inside)

    return shown


def _symbol_latex(name: str) -> str:
    stem, part = re.fullmatch(r"(.*?)(?:_([ab]))?", name).groups()
    written = name_latex(stem.replace("δ", "delta"))
    if part is None:
        return written
    return f"{written[:-1]},{part}}}" if written.endswith("}") and "_{" in written else f"{written}_{{{part}}}"


def _matrix_latex(matrix: rules.Matrix) -> str:
    def column(names: Iterable[str]) -> str:
        return r"\begin{pmatrix}" + r" \\ ".join(map(_symbol_latex, names)) + r"\end{pmatrix}"

    shown = _latex_with({})
    cells = r" \\ ".join(" & ".join(map(shown, row)) for row in matrix.rows)
    new = column(f"{name}'" for name in matrix.components)
    return rf"{new} = \begin{{pmatrix}}{cells}\end{{pmatrix}} {column(matrix.components)}"
