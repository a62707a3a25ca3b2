"""Forms and cascades as people read them: what is printed is true, and is written as mathematics is.

The equations that are printed are computed here, element by element, and must give what the operator gives.
"""

import re
from dataclasses import replace

import hand_forms
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redfuser_algebra as ra
from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.discover import rules, show
from redfuser_algebra.discover.form import Guard
from redfuser_algebra.language.expr import Expr, call, const, subterms, symbol
from redfuser_algebra.language.mathematics import SUPERSCRIPTS, cascade_text, mathematics
from redfuser_algebra.language.tidy import repeated_elements, tidied
from redfuser_algebra.run.reference import reference

HAND = {name: case for name, case in hand_forms.CASES.items() if name in (
    "softmax", "variance", "value_at_argmax", "count_of_max", "scaled_sum", "plain")}
FOUND = ("variance", "skewness", "softmax_entropy", "kl_softmax", "count_max", "value_at_argmax", "weighted_variance",
         "mean_gap_to_max", "absmax_scaled_sum", "linear_regression")


def number(term, values, data, at):
    """A printed formula at element `at`: names from `values`, x[l] and x[i] from `data`."""
    def place(axis):
        return at if axis == "l" else int(values[axis])

    if term.op == "const":
        return term.value
    if term.op == "symbol":
        return values[term.name]
    if term.op in ("index", "size"):
        return place(term.axis) if term.op == "index" else len(next(iter(data.values())))
    if term.op == "input":
        return data[term.name][place(term.axes[0])]
    return FUNCTIONS[term.op].apply(*(number(arg, values, data, at) for arg in term.args))


class Known(dict):
    """Names and their values; results and pivots are computed from their printed definitions when first asked for."""

    def __init__(self, form, values, data, at=None):
        super().__init__(values)
        self.told = {row.left.name: row.right for row in (*rules.results(form), *rules.pivots(form))}
        self.data, self.at = data, at

    def __missing__(self, name):
        self[name] = number(self.told[name], self, self.data, self.at)
        return self[name]


def first(form, data, at):
    """The state after one element, from the lifts."""
    values = Known(form, {}, data, at)
    values.told |= {c.name: Expr("index", (), ("l",)) if c.monoid in ("argmax", "argmin") else tidied(c.lift) for c in form.state}
    return {component.name: values[component.name] for component in form.state}


def followed(equations, values, data, at=None):
    """The values that equations define, on top of those that are known."""
    for equation in equations:
        values[equation.left.name] = number(equation.right, values, data, at)
    return values


def state_by_updates(form, data, elements):
    state = first(form, data, elements[0])
    for at in elements[1:]:
        told = followed(rules.update(form), Known(form, state, data), data, at)
        state = {component.name: told[component.name + "'"] for component in form.state}
    return state


def outputs_of(form, state, data):
    told = Known(form, state, data)
    return [np.array([number(output, told, data, at) for at in range(len(next(iter(data.values()))))])
            if "l" in output.axes else number(output, told, data, None) for output in rules.outputs(form)]


def case_of(name):
    if name in HAND:
        return HAND[name].operator, HAND[name].form
    return ra.operators[name], ra.fuse(ra.operators[name]).form


def data_for(operator, rng):
    return {name: rng.uniform(0.5, 2, 7) for name in operator.inputs}


@pytest.fixture(params=[*HAND, *FOUND])
def case(request):
    return case_of(request.param)


def expected(operator, data):
    result = reference(operator, operator.bind(**data))
    return result if isinstance(result, tuple) else list(result.values()) if isinstance(result, dict) else [result]


def same(ours, theirs):
    return all(np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


def test_the_printed_update_computes_the_operator(case, rng):
    operator, form = case
    data = data_for(operator, rng)
    assert same(outputs_of(form, state_by_updates(form, data, range(7)), data), expected(operator, data))


def test_the_printed_merge_computes_the_operator(case, rng):
    operator, form = case
    data = data_for(operator, rng)
    parts = {"_a": state_by_updates(form, data, range(3)), "_b": state_by_updates(form, data, range(3, 7))}
    told = followed(rules.merge(form), {name + part: v for part, state in parts.items() for name, v in state.items()}, data)
    state = {component.name: told[component.name + "'"] for component in form.state}
    assert same(outputs_of(form, state, data), expected(operator, data))


def test_the_printed_matrix_is_the_rebase(case, rng):
    form = case[1]
    names = {term.name for c in form.state for term in subterms(c.rebase) if term.op == "symbol"}
    values = dict(zip(sorted(names), rng.uniform(0.5, 2, len(names)), strict=True))
    values |= {short.name: number(tidied(move), values, {}, None) for move, short in rules.differences(form).items()}
    for matrix in rules.matrices(form):
        old = [values.setdefault(name, 1.0) for name in matrix.components]
        for name, row in zip(matrix.components, matrix.rows, strict=True):
            moved = sum(number(cell, values, {}, None) * part for cell, part in zip(row, old, strict=True))
            assert moved == pytest.approx(number(tidied(form.component(name).rebase), values, {}, None))


def test_a_matrix_is_printed_where_several_components_move_together():
    (matrix,) = rules.matrices(HAND["variance"].form)
    shown = [[mathematics(cell) for cell in row] for row in matrix.rows]
    assert matrix.components == ("N", "s1", "s2")
    assert shown == [["1", "0", "0"], ["δ", "1", "0"], ["δ²", "2·δ", "1"]]
    assert rules.matrices(HAND["softmax"].form) == ()


def form_with(rebase, outputs=()):
    """A form of sums N, a and b, where b moves by `rebase` of a, b, p and p'."""
    a, b, p, p1 = (symbol(name) for name in ("a", "b", "p", "p'"))
    x = Expr("input", (), ("x", ("l",)))
    state = [hand_forms.component("a", "sum", x), hand_forms.component("i", "argmax", x),
             hand_forms.component("b", "sum", x, lambda _: rebase(a, b, call("shift", p, p1)))]
    return hand_forms.by_hand(ra.operators["variance"], state, outputs).form


def row_of(form):
    (matrix,) = rules.matrices(form)
    assert matrix.components == ("a", "b")
    return [mathematics(cell) for cell in matrix.rows[1]]


def test_factors_of_one_component_are_added_and_keep_their_signs():
    assert row_of(form_with(lambda a, b, d: b - d * a)) == ["−p + p'", "1"]
    assert row_of(form_with(lambda a, b, d: b + d * a + a / d)) == ["δ + 1/δ", "1"]
    assert row_of(form_with(lambda a, b, d: b * ra.exp(d) - (-a))) == ["1", "exp(p − p')"]


@pytest.mark.parametrize("rebase", [lambda a, b, d: b + a * b, lambda a, b, d: b + ra.exp(a) * d, lambda a, b, d: b / a + d * a])
def test_what_is_not_linear_has_no_matrix(rebase):
    assert rules.matrices(form_with(rebase)) == ()


def test_a_distance_has_a_name_where_it_is_needed_twice():
    assert rules.differences(form_with(lambda a, b, d: b + d * a)) == {}
    (name,) = rules.differences(form_with(lambda a, b, d: b + d * a + ra.exp(d) * a)).values()
    assert name is symbol("δ")


def test_what_a_position_won_with_is_the_element_there():
    form = form_with(lambda a, b, d: b, outputs=[symbol("i_value") - symbol("a")])
    assert list(map(mathematics, rules.outputs(form))) == ["x[i] − a"]


UPDATES = {
    "softmax": "m' = max(m, x[l])\ns' = s·exp(m − m') + exp(x[l] − m')",
    "variance": """total' = total + x[l]
N'     = N + 1
p'     = total'/N_l
δ      = p − p'
s1'    = s1 + δ·N + x[l] − p'
s2'    = s2 + 2·δ·s1 + δ²·N + (x[l] − p')²""",
    "attention": """x      = size·Σ_k Q[m,k]·K[l,k]
top' = max(top, x)   element where l ≤ m + 2
s'   = s·exp(top − top') + exp(x − top')   element where l ≤ m + 2
o'   = o·exp(top − top') + V[l,j]·exp(x − top')   element where l ≤ m + 2""",
    "count_of_max": "m' = max(m, x[l])\nc' = (c if m = m' else 0) + (1 if x[l] = m' else 0)",
    "value_at_argmax": """i' = l if x[l] > x[i] else i
j' = l if x[l] < x[j] else j
v' = (v if i = i' else 0) + (y[l] if l = i' else 0)""",
    "scaled_sum": "m' = max(m, |x[l]|)\ns' = m·s/m' + x[l]/m'",
    "largest_three": "at'   = best_positions(3, at, l)   element where x[l] ≠ 1\nbest' = best_values(3, best, x[l])   element where x[l] ≠ 1",
    "plain": """q'      = q·x[l]
n'      = min(n, x[l])
some'   = some ∨ x[l] > 1
every'  = every ∧ x[l] > 1
moment' = moment + l·x[l]""",
}


@pytest.mark.parametrize("name", UPDATES)
def test_the_update_is_written_as_mathematics(name):
    told = hand_forms.CASES[name].form.update
    assert [re.sub(" +=", " =", line) for line in told.splitlines()] == [
        re.sub(" +=", " =", line) for line in UPDATES[name].splitlines()]


def test_the_merge_names_both_states():
    assert HAND["softmax"].form.merge == "m' = max(m_a, m_b)\ns' = s_a·exp(m_a − m') + s_b·exp(m_b − m')"


def test_a_guard_marks_the_lines_it_completes():
    form = HAND["softmax"].form
    guarded = replace(form, guards=(Guard("where", "w"), Guard("shift", "a − a is 0"), Guard("scale", "0 stays")))
    told = str(guarded)
    assert "m' = max(m, x[l])\n" in told
    assert "s' = s·exp(m − m') + exp(x[l] − m')  ² ³\n" in told
    assert "guards\n  ¹ w\n  ² a − a is 0\n  ³ 0 stays" in told


@pytest.mark.parametrize("name", ["variance", "kl_softmax", "count_max", "softmax_entropy"])
def test_every_guard_is_the_guard_of_some_line(name):
    sections = show.text_sections(ra.fuse(ra.operators[name]).form)
    others = "\n".join(line for title, lines in sections.items() if title != "guards" for line in lines)
    assert sections["guards"] and all(f" {line[0]}" in others for line in sections["guards"])


def test_the_text_has_a_section_for_everything_there_is():
    form = ra.fuse(ra.operators["layernorm_gemm"], prefer="raw").form
    told = str(form)
    titles = [line for line in told.splitlines() if line and not line.startswith(" ")]
    assert titles[0] == f"one pass over l, {form.words} words of state per row, commutative merge"
    for title in ("pivots", "state", "update by one element", "merge of two states a and b", "outputs", "facts", "dangers", "laws"):
        assert title in titles
    for said in (*form.laws, *map(str, form.facts), *(c.name for c in form.state)):
        assert said in told
    assert told.count(str(form.dangers[0])) == 1


def test_expressions_inside_a_form_still_read_back():
    for case in hand_forms.CASES.values():
        form, inputs = case.form, case.operator.inputs
        terms = [expr for c in form.state for expr in (c.lift, c.rebase)] + list(form.outputs)
        symbols = {term.name: term for term in subterms(*terms) if term.op == "symbol"}
        for term in terms:
            assert ra.parse(str(term), inputs, case.operator.params, symbols) is term


# --- Markdown and LaTeX ---------------------------------------------------------------------------------------------


def balanced(latex):
    opened = re.findall(r"\\begin\{(\w+)\}", latex)
    return latex.count("{") == latex.count("}") and sorted(opened) == sorted(re.findall(r"\\end\{(\w+)\}", latex)) and (
        latex.count(r"\left") - latex.count(r"\leftarrow") == latex.count(r"\right"))


@pytest.mark.parametrize("name", hand_forms.CASES)
def test_notebooks_get_well_formed_mathematics(name):
    form = hand_forms.CASES[name].form
    told = form._repr_markdown_()
    displayed = re.findall(r"\$\$(.*?)\$\$", told, re.DOTALL)
    assert len(displayed) >= 3 and all(map(balanced, displayed)) and balanced(form._repr_latex_())
    table = [line for line in told.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {6} and len(table) == 2 + len(form.state)
    assert not [twin for twin in (r"\ominus", r"\odot") if twin in told]


def test_latex_of_the_update():
    assert show.form_latex(HAND["softmax"].form) == (
        r"\begin{aligned}m' &= \max(m, x_{l}) \\ s' &= s \, e^{m - m'} + e^{x_{l} - m'}\end{aligned}")
    told = HAND["variance"].form._repr_markdown_()
    assert r"\delta_{a} &= p_{a} - p'" in told and r"s'_{2} &= s_{2,a} + 2 \, \delta_{a}" in told
    assert r"\begin{pmatrix}1 & 0 & 0 \\ \delta & 1 & 0 \\ \delta^{2} & 2 \, \delta & 1\end{pmatrix}" in told


def test_an_absolute_value_does_not_break_the_table():
    assert r"$\left\vert x_{l}\right\vert $" in HAND["scaled_sum"].form._repr_markdown_()


# --- cascades and formulas -------------------------------------------------------------------------------------------


def test_a_cascade_is_a_list_of_definitions():
    (cascade,) = ra.cascades(ra.operators["attention"])
    assert cascade_text(cascade).splitlines() == [
        "x      = scale·Σ_k Q[m,k]·K[l,k]",
        "m2     = max_l x",
        "s      = Σ_l V[l,j]·exp(x − m2)",
        "s2     = Σ_l exp(x − m2)",
        "output = s/s2",
    ]


FORMULAS = {
    "a - (b - c)": "a − (b − c)", "a - b - c": "a − b − c", "a + (b - c)": "a + (b − c)", "-(a + b)": "−(a + b)",
    "(a + b) * c": "(a + b)·c", "a / (b * c)": "a/(b·c)", "(a / b) / c": "a/b/c", "a / (b / c)": "a/(b/c)",
    "a ** 2": "a²", "(a + b) ** 12": "(a + b)¹²", "(-a) ** 2": "(−a)²", "a ** b": "a^b", "a ** -1": "a^(−1)",
    "(a ** 2) ** 3": "(a²)³", "sum(x[l] * a, l)": "Σ_l x[l]·a", "sum(x[l], l) * a": "(Σ_l x[l])·a",
    "a * sum(x[l], l)": "a·Σ_l x[l]", "sum(x[l], l) + a": "Σ_l x[l] + a", "sum(x[l] + a, l)": "Σ_l (x[l] + a)",
    "max(x[l], l, where=x[l] > a)": "max_{l: x[l] > a} x[l]", "topk(x[l], l, 3)": "topk_l^3 x[l]",
    "abs(a - b)": "|a − b|", "sqrt(a) * floor(b)": "√(a)·⌊b⌋", "maximum(a, 0)": "max(a, 0)", "exp(a)": "exp(a)",
    "where(a < b, a, b) * c": "(a if a < b else b)·c", "(a < b) & (b <= c) | ~(a == c)": "a < b ∧ b ≤ c ∨ ¬(a = c)",
    "index(l) * size(l)": "l·N_l", "1e-05 + a": "1e−05 + a", "2.0 * a": "2·a", "inf - a": "∞ − a",
    "cast(x[l], int8)": "int8(x[l])", "(a + b) % c": "(a + b) mod c", "a * (b // c)": "a·(b // c)",
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_are_written_with_the_brackets_they_need(formula):
    assert mathematics(ra.parse(formula)) == FORMULAS[formula]


@pytest.mark.parametrize(
    "formula, tidy",
    [
        ("b * 2 * a", "2·b·a"), ("x[l] * a * 3 * exp(x[l])", "3·a·x[l]·exp(x[l])"), ("sum(x[l], l) * a", "a·Σ_l x[l]"),
        ("a * b * a", "a²·b"), ("a * reciprocal(b)", "a/b"), ("a / b / c", "a/(b·c)"), ("a / (b / c)", "a·c/b"),
        ("a + -1 * b", "a − b"), ("a - -b", "a + b"), ("-2 * a * b", "−2·a·b"), ("a + (b + -3)", "a + b − 3"),
        ("a * -0.5", "−0.5·a"), ("1 * a", "a"), ("a ** 2 * a", "a³"), ("reciprocal(a) * reciprocal(a)", "1/a²"),
        ("shift(a, b) * shift(a, b)", "(a − b)²"), ("scale(exp(shift(a, b)), c)", "c·exp(a − b)"),
        ("ratio(a, b) * scaled(c, b)", "a·c/b²"), ("exp(shift(0, a))", "exp(−a)"), ("0 + a - 0", "a"), ("0 + 0", "0"),
        ("a * 0 + b", "b"), ("sum(0 * x[l], l) + a", "a"), ("a + 2 * b * where(equal(c, anchor(c)), 0, b)", "a"),
        ("where(equal(a, anchor(c)), 0, b)", "0 if a = c else b"),
    ],
)
def test_tidied_formulas(formula, tidy):
    assert mathematics(tidied(ra.parse(formula))) == tidy


NAMES = ("a", "b", "c")
FORMULA = st.recursive(
    st.sampled_from([symbol(name) for name in NAMES]) | st.sampled_from([const(2), const(-3), const(0.5), const(1)]),
    lambda inner: st.builds(call, st.sampled_from(["add", "subtract", "multiply", "divide", *TOTAL_TWINS]).filter(
        lambda name: FUNCTIONS[name].arity == 2), inner, inner)
    | st.builds(call, st.sampled_from(["negative", "reciprocal", "abs", "exp"]), inner)
    | st.builds(lambda base, n: call("power", base, n), inner, st.integers(2, 3)), max_leaves=9)


def value(expr):
    with np.errstate(all="ignore"):
        return number(expr, {"a": 1.25, "b": -0.75, "c": 2.5}, {}, None)


@given(FORMULA)
def test_tidying_keeps_the_value(expr):
    before, after = value(expr), value(tidied(expr))
    assert after == pytest.approx(before, rel=1e-6, abs=1e-9) or not np.isfinite(before) or abs(before) > 1e9 or _touchy(expr)


def _touchy(expr):
    """A quotient whose divisor is next to 0: reordering products there tells nothing."""
    divisors = [term.args[-1] for term in subterms(expr) if term.op in ("divide", "reciprocal", "ratio", "scaled")]
    sizes = [abs(value(divisor)) for divisor in divisors]
    return any(not 1e-6 < size < 1e9 for size in sizes)


@given(FORMULA)
def test_what_is_written_is_what_is_meant(expr):
    """The brackets are right: read as Python, the text has the value of the expression."""
    plain = tidied(expr)
    written = mathematics(plain).replace("·", "*").replace("−", "-")
    written = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda digits: "**" + digits[0].translate({v: k for k, v in SUPERSCRIPTS.items()}), written)
    written = re.sub(r"\|", "~", written)
    while "~" in written:
        written = _bars_read(written)
    read = ra.parse(written, {}, NAMES, {name: symbol(name) for name in NAMES})
    assert value(read) == pytest.approx(value(plain), rel=1e-9) or not np.isfinite(value(plain))


def _bars_read(written):
    """The innermost |…| as a call; bars nest, so one that follows an operator, a bracket or another bar opens."""
    opened = None
    for place, letter in enumerate(written):
        before = written[:place].rstrip()
        if letter == "~" and (not before or before[-1] in "(*/-+~,"):
            opened = place
        elif letter == "~":
            return f"{written[:opened]}abs({written[opened + 1:place]}){written[place + 1:]}"
    raise AssertionError(written)


def test_repeated_elements_are_named_once_and_not_after_something_else():
    x, m = Expr("input", (), ("x", ("l",))), symbol("m")
    product, power = x * 2, x ** 2
    assert repeated_elements([product - m, product], "l", ()) == {product: "x"}
    assert repeated_elements([product - m, product + m], "l", {"x"}) == {product: "x1"}
    assert repeated_elements([product - m, product + m, power - m, m / power], "l", {"x2"}) == {product: "x1", power: "x3"}
    assert repeated_elements([product - m, x - m, x + m], "l", ()) == {}
