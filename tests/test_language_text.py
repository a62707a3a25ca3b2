"""Formulas as text: what is printed reads back as the same object, and what cannot be read says where and why."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.definitions import parse_operator
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, call, const, subterms, symbol
from redfuser_algebra.language.formula import parse, parse_all
from redfuser_algebra.language.latex import latex
from redfuser_algebra.language.operator import define
from redfuser_algebra.language.text import text

INPUTS = {"x": ("b", "l"), "y": ("l", "k"), "w": (), "t1": ("b",)}
PARAMS = {"c": 2.0, "eps": None, "n": 3}
SYMBOLS = {"m": symbol("m", ("b",)), "m'": symbol("m'", ("b",)), "s''": symbol("s''")}

inputs = [Expr("input", (), (name, axes)) for name, axes in INPUTS.items()]
params = [Expr("param", (), (name,)) for name in PARAMS]
places = [Expr(op, (), (axis,)) for op in ("index", "size") for axis in ("b", "l", "k")]
INFIX = [name for name, function in FUNCTIONS.items() if function.infix]
numbers = st.one_of(st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.sampled_from([-1, -0.0, 2, 0.5]))


@st.composite
def expressions(draw, leaves=(*inputs, *params, *places), depth=5):
    """Expressions that an operator could consist of: every function, every reduction, over the axes they have."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.one_of(st.sampled_from(leaves), numbers.map(const)))
    deeper = expressions(leaves, depth - 1)
    kind = draw(st.sampled_from(["call", "call", "call", "reduce", "topk", "round"]))
    body = draw(deeper)
    if kind == "call":
        function = FUNCTIONS[draw(st.sampled_from(sorted(FUNCTIONS)) | st.sampled_from(INFIX))]
        return call(function.name, body, *(draw(deeper) for _ in range(function.arity - 1)))
    if kind == "round":
        return draw(st.sampled_from([ra.round(body), ra.round(body, True), ra.cast(body, "float16"),
                                     ra.cast(body, "bfloat16", True)]))
    if not body.axes:
        return body
    axis, where = draw(st.sampled_from(body.axes)), draw(st.one_of(st.none(), deeper))
    if kind == "reduce":
        names = ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]
        return getattr(ra, draw(st.sampled_from(names)))(body, axis, where)
    return _chosen(draw, body, axis, where)


def _chosen(draw, body, axis, where):
    taken = {name for term in subterms(body, *([] if where is None else [where])) for name in (*term.axes, *term.attrs[2:])}
    name, k = draw(st.sampled_from([(None, 2), ("best3", 3), ("best5", 5)]))
    if name in taken or name is None and "top" in taken:
        return body
    return ra.topk(body, axis, k, where, name)[draw(st.integers(0, 1))]


@given(expressions(leaves=(*inputs, *params, *places, *SYMBOLS.values())))
def test_a_formula_reads_back_as_the_same_object(expr):
    assert parse(text(expr), symbols=SYMBOLS) is expr


@given(st.lists(expressions(), min_size=1, max_size=3), st.sampled_from(["single", "tuple", "dict"]), st.booleans())
def test_an_operator_reads_back_as_an_equal_one(results, structure, reverse):
    result = {"single": results[0], "tuple": tuple(results), "dict": {f"t{i}": r for i, r in enumerate(results)}}[structure]
    op = define("f", INPUTS, PARAMS, result, (inputs[0] > 0, params[0] >= 1))
    if reverse:
        order = ", ".join(" ".join(reversed(axes)) for axes in op.output_axes)
        op = define("f", INPUTS, PARAMS, result, (inputs[0] > 0,), order=order + ("," if op.structure == "x" else ""))
    assert parse_operator(str(op)) == op


@given(expressions(depth=4))
def test_no_pair_of_parentheses_can_be_left_out(expr):
    written = text(expr)
    for place in [match.start() for match in re.finditer(r"(?<!\w)\((?!\))", written)]:
        end = _closing(written, place)
        shorter = f"{written[:place]} {written[place + 1:end]} {written[end + 1:]}"
        try:
            assert parse(shorter) is not expr, (written, shorter)
        except OperatorError:
            pass


def _closing(written, place):
    depth = 0
    for at in range(place, len(written)):
        depth += {"(": 1, ")": -1}.get(written[at], 0)
        if depth == 0:
            return at
    raise AssertionError(written)


@pytest.mark.parametrize("written", [
    "x[b, l] - max(x[b, l], l)",
    "w[()] * c",
    "-x[l] ** 2",
    "(-x[l]) ** 2",
    "(-1) ** index(l)",
    "2 ** -x[l]",
    "a ** b ** c",
    "(a ** b) ** c",
    "a - (b - c)",
    "(a - b) * c - d * e",
    "a + (b + c) - d",
    "a * b / c % 2 // d",
    "a / (b / c)",
    "-(a + b)",
    "a + -b",
    "negative(1)",
    "a - -1.5",
    "~(a < b) & (c >= d) | (e != 0)",
    "(a < b) == (c > d)",
    "where(isnan(a), -inf, nan)",
    "sum(x[l], l, where=index(l) <= n)",
    "topk(x[l], l, 6)",
    "argtopk(x[l], l, k, where=x[l] > 0, name=best)",
    "sum(topk(x[l], l, 3), top)",
    "topk(sum(topk(x[b, l], l, 3), top), b, 2)",
    "cast(x[l], float16) + round(x[l], reassociate=True)",
    "shift(a, b) * ratio(a, b) + scale(a, b)",
    "1e-05 * True + 100000000000000000000",
])
def test_what_is_written_plainly_is_printed_as_written(written):
    assert text(parse(written)) == written


READINGS = {
    "a and b or not c": "a & b | ~c",
    "+a": "a",
    "sum(x[l, k], (l, k))": "sum(sum(x[l, k], k), l)",
    "sum(x[l, k], 'l k')": "sum(sum(x[l, k], k), l)",
    "mean(x[l], axis=l)": "sum(x[l], l) / size(l)",
    "m = max(x[l], l); x[l] - m": "x[l] - max(x[l], l)",
    "a = x[l]\nb = a + a\nb * b": "(x[l] + x[l]) * (x[l] + x[l])",
    "softmax(x[l], l)": "exp(x[l] - max(x[l], l)) / sum(exp(x[l] - max(x[l], l)), l)",
    "sort(x[l], l)": "-topk(-x[l], l, size(l), name=sorted_l)",
    "sigmoid(a)": "0.5 * tanh(0.5 * a) + 0.5",
    "divide(a, b, where_zero=0)": "where(b == 0, 0, a / b)",
    "  \n sum(x[l],\n   l)\n": "sum(x[l], l)",
    "clip(a, 0, 1)": "minimum(maximum(a, 0), 1)",
    "take(x[l], 2, l)": "sum(where(index(l) == 2, x[l], 0), l)",
    "add(a, logical_not(b))": "a + ~b",
    "np.exp(x[l] - numpy.max(x[l], axis='l'))": "exp(x[l] - max(x[l], l))",
    "np.where(np.isnan(a), -np.inf, np.maximum(a, b))": "where(isnan(a), -inf, maximum(a, b))",
}


@pytest.mark.parametrize("written", READINGS)
def test_other_spellings_are_understood(written):
    assert text(parse(written)) == READINGS[written]


def test_expressions_show_themselves_as_formulas():
    assert repr(inputs[0] + 1) == "x[b, l] + 1" == str(inputs[0] + 1)


def test_shared_terms_do_not_make_a_text_explode():
    square, deep = inputs[0], inputs[0]
    for _ in range(45):
        square = square * square + 1
        deep = ra.exp(-ra.abs(ra.sin(deep)))
    assert len(text(square)) < 3000 and parse(text(square)) is square
    assert parse(text(deep)) is deep
    op = define("f", INPUTS, {}, (square, deep))
    assert parse_operator(str(op)) == op


def test_definitions_avoid_the_names_of_the_signature():
    x, t1 = inputs[0], inputs[3]
    shown = str(define("f", INPUTS, {"d1": None}, ra.exp(x * t1) / ra.max(ra.exp(x * t1), "l")))
    assert "t2 = exp(x * t1)" in shown


def test_primes_belong_to_symbols():
    assert parse("exp(m - m')", symbols=SYMBOLS) is ra.exp(SYMBOLS["m"] - SYMBOLS["m'"])
    assert parse("cast(m', 'float16')", symbols=SYMBOLS) is ra.cast(SYMBOLS["m'"], "float16")
    assert text(SYMBOLS["s''"] * 2) == "s'' * 2"


def test_elements_of_a_sorted_axis_are_no_inputs_of_it():
    assert parse_operator("sum(sort(x, l) * index(sorted_l), sorted_l) + median(x, l)").inputs == {"x": ("l",)}


def test_declared_names_are_the_only_ones():
    declared = {"x": ("l",)}
    assert parse("x * c", declared, ["c"]) is parse("x[l] * c")
    assert [text(each) for each in parse_all("x > 0, c >= 1", declared, {"c"})] == ["x[l] > 0", "c >= 1"]


# what cannot be read

REFUSED = {
    "1 +": (4, "invalid syntax", "check brackets"),
    "(1": (1, "never closed", "check brackets"),
    "sum(exq(x[l]), l)": (5, "no function exq", "did you mean exp?"),
    "1 + zzz(x[l])": (5, "no function zzz", "functions such as sum"),
    "1 + np.exq(x[l])": (5, "no function exq", "did you mean exp?"),
    "np.sum(x[l], axis=-1)": (19, "a name is needed", "name of an axis"),
    "1 + np.pi": (5, "np.pi has no meaning", "use numbers, names"),
    "sp.exp(x[l])": (1, "sp.exp is not a function", "write exp(…)"),
    "a.foo(1)": (1, "a.foo is not a function", "its name alone"),
    "1 + a.real": (5, "a.real has no meaning", "use numbers, names"),
    "2 * [1, 2]": (5, "[1, 2] has no meaning", "use numbers, names"),
    "1 + (lambda: 1)()": (5, "no function lambda: 1", "functions such as sum"),
    "a < b < c": (1, "comparisons are chained", "(a < b) & (b < c)"),
    "1 + x[l] @ y[l]": (5, "MatMult has no meaning", "sum(a * b, k)"),
    "a ^ b": (1, "BitXor has no meaning", "use + -"),
    "'abc' + 1": (1, "not a real number", "name an input"),
    "1 + 2j": (5, "not a real number", "name an input"),
    "None": (1, "not a real number", "name an input"),
    "sum(x[l])": (1, "missing a required argument: 'axis'", "write sum(expr, axis, where=None)"),
    "1 + max(x[l], l, 3, 4)": (5, "too many positional", "write max(expr, axis, where=None)"),
    "sum(x[l], l, mask=1)": (1, "unexpected keyword argument 'mask'", "where=None"),
    "exp(1, 2)": (1, "does not take these operands", "write exp(a)"),
    "exp(**a)": (1, "spread", "write them out"),
    "a + sum(x[l], z)": (5, "has the axes l", "reduce over"),
    "sum(x[l], 3)": (11, "a name is needed", "name of an axis"),
    "1 + topk(x[l], l, 0)": (5, "at least 1", "k: int"),
    "round(x[l], reassociate=1)": (25, "True or False", "reassociate=True"),
    "cast(x[l], float7)": (1, "no such number format", "float16"),
    "x[l] + x[k]": (8, "x has the axes [l]", "one list of axes"),
    "(x + 1)[l]": (1, "only an input has subscripts", "x[b, l]"),
    "x[1:2]": (3, "a name is needed", "name of an axis"),
    "a = 1": (1, "there is no result", "end with a formula"),
    "": (1, "there is no result", "end with a formula"),
    "import os": (1, "import os is not a formula", "name = formula"),
    "a += 1": (1, "a += 1 is not a formula", "name = formula"),
    "é * zzz(x)": (5, "no function zzz", "functions such as"),
    "m' + zzz(x)": (6, "no function zzz", "functions such as"),
    "(" * 300 + "x" + ")" * 300: (201, "too many nested parentheses", "brackets"),
}


@pytest.mark.parametrize("written", REFUSED, ids=lambda written: written[:20])
def test_a_formula_that_cannot_be_read_says_where_and_why(written):
    column, failed, remedy = REFUSED[written]
    with pytest.raises(OperatorError) as caught:
        parse(written, symbols={"m'": SYMBOLS["m'"]})
    error = caught.value
    assert f"column {column}" in error.asked and failed in error.failed and remedy in error.remedy, error
    shown, caret = error.excerpt.splitlines()[-2:] if written else ("", "    ^")
    assert caret.strip() == "^" and (len(written) > 60 or caret.index("^") == 3 + column)
    assert shown.strip() in written


PROGRAMS = {
    "a = b; b = a; a": ("the definitions go in a circle: b → a → b", "only earlier ones"),
    "a = a + 1; a": ("the definitions go in a circle: a → a", "only earlier ones"),
    "a = b + 1; b = c; c = sum(a, l); a": ("the definitions go in a circle: b → c → a → b", "only earlier ones"),
    "a = b + 1\nb = 2\na": ("b is used before it is defined", "move its definition up"),
    "a = 1\na = 2\na": ("a is defined twice", "its own name"),
    "a = 1; a[l]": ("only an input has subscripts", "x[b, l]"),
    "1; 2": ("something follows the result", "put the result last"),
    "x = 1; x": ("x is already an input or a parameter", "another name"),
    "x + yy": ("there is no yy", "did you mean y?"),
    "x + unknown": ("there is no unknown", "use one of: x, y, c"),
    "z[l]": ("there is no input z", "use one of: x, y"),
    "x[m]": ("x has the axes [l] elsewhere", "one list of axes"),
}


@pytest.mark.parametrize("written", PROGRAMS)
def test_definitions_and_names_are_checked(written):
    failed, remedy = PROGRAMS[written]
    with pytest.raises(OperatorError) as caught:
        parse(written, {"x": ("l",), "y": ("l",)}, ["c"])
    assert failed in caught.value.failed and remedy in caught.value.remedy, caught.value


@pytest.mark.parametrize("written", [5, "x, y", "+".join("x" * 3000), "+".join("x" * 600), "x\0", "-" * 3000 + "x"], ids=lambda w: f"{str(w)[:9]}{len(str(w))}")
def test_other_refusals_are_operator_errors_too(written):
    with pytest.raises(OperatorError) as caught:
        parse(written)
    assert caught.value.asked and caught.value.failed and caught.value.remedy


tokens = ["x[l]", "y", "m'", "sum(", "max(", "topk(", "where(", "(", ")", "[", "]", ",", " ", "l", "k", "=", "==", "<",
          "+", "-", "**", "~", "&", "1", "0.5", "inf", ";", "\n", "return ", "'", '"', "not ", "lambda ", ":", "assume("]


@given(st.lists(st.sampled_from(tokens), max_size=12).map("".join) | st.text(max_size=8))
def test_any_text_is_read_or_refused(written):
    for read in (parse, parse_operator):
        try:
            read(written)
        except OperatorError as error:
            assert error.failed and error.remedy and str(error)


# operators

SPELLINGS = {
    "sum(exp(x - max(x, l)), l)": "formula(x[l])",
    "sum(exp(x[l] - max(x[l], l)), l)": "formula(x[l])",
    "m = max(x, l); e = exp(x - m); sum(e * v, l) / sum(e, l)": "formula(x[l], v[l])",
    "u = x * c; e = exp(u); sum(e, l)": "formula(x[l], c[l])",
    "sum(sum(Q * K, k) * V, l) + eps": "formula(Q[l, k], K[l, k], V[l]; eps)",
    "sum(x[l] * scale, l)": "formula(x[l]; scale)",
    'm = np.max(x, "l"); np.sum(np.where(x > -np.inf, np.exp(x - m), 0), axis="l")': "formula(x[l])",
    "mean(x, l, where=keep) / sqrt(c)": "formula(x[l], keep[l]; c)",
    "sum(topk(x, l, n), top)": "formula(x[l]; n)",
    "sum(argtopk(x, l, 2, name=best) * inf, best)": "formula(x[l])",
    "take(x, i, l) + index(l)": "formula(x[l]; i)",
    "u = y; sum(x, l)": "formula(x[l]; y)",
    "softmax(x[b, l], t[]; c=-0.5, n): exp(x * t - max(x, l)) * c + n": "softmax(x[b, l], t[]; c=-0.5, n)",
    "f(x[l], y[b]; flag=True) -> l b: x * y": "f(x[l], y[b]; flag=True)",
}


@pytest.mark.parametrize("written", SPELLINGS)
def test_operators_are_read_in_three_spellings(written):
    op = parse_operator(written)
    assert str(op.signature) == SPELLINGS[written]
    assert parse_operator(str(op)) == op


def test_an_operator_prints_its_definitions():
    assert str(parse_operator("softmax(x[l]; t=2.0) -> l, : return exp(x/t - max(x/t, l)), sum(exp(x/t - max(x/t, l)), l)")) \
        == """\
softmax(x[l]; t=2.0):
    t1 = x / t
    t2 = exp(t1 - max(t1, l))
    return t2, sum(t2, l)"""
    both = parse_operator('f(x[b, l]) -> l b, b:\n  assume(x > 0)\n  return {"a": x, "s": sum(x, l)}')
    assert str(both) == 'f(x[b, l]) -> l b, b:\n    assume(x > 0)\n    return {"a": x, "s": sum(x, l)}'
    assert parse_operator("x[l],").structure == "tuple" and str(parse_operator("x[l],")).endswith("return x,")


OPERATORS = {
    "f(x[l], x[k]): 1": ("the signature (x[l], x[k])", "'x[k]' cannot be read", "list each input"),
    "f(x[l] y[l]): 1": ("the signature (x[l] y[l])", "cannot be read", "list each input"),
    "f(x[l]; c=d): x": ("a formula at column 1", "there is no d", "leave it out"),
    "f(x[l]; c=1+1): x": ("the default c=1+1", "not a number", "write a number"),
    "f(x[l]): sum(y, l)": ("a formula at column 5", "there is no y", "use one of: x"),
    "f(l[l]): sum(l, l)": ("the name l", "two different things", "rename"),
    "return {1: x[l]}": ("column 8", "not named by different strings", 'return {"a": a'),
    'return {"a": x[l], "a": y[l]}': ("column 8", "not named by different strings", 'return {"a": a'),
    "sum(x[l] - index(k), l)": ("operator formula", "index(k)", "every axis"),
}


@pytest.mark.parametrize("written", OPERATORS)
def test_an_operator_that_cannot_be_read_says_why(written):
    asked, failed, remedy = OPERATORS[written]
    with pytest.raises(OperatorError) as caught:
        parse_operator(written)
    error = caught.value
    assert asked in error.asked and failed in error.failed and remedy in error.remedy, error


# LaTeX

PICTURES = {
    "sum(exp(x[b, l] - max(x[b, l], l)), l)": r"\sum_{l} e^{x_{b,l} - \max_{l} x_{b,l}}",
    "(a + b) * c - (d - e)": r"\left(a + b\right) \, c - \left(d - e\right)",
    "(a / b) ** 2": r"\left(\frac{a}{b}\right)^{2}",
    "sqrt(mu) * scale": r"\sqrt{\mu} \, \mathrm{scale}",
    "sum(x[l], l) * c": r"\left(\sum_{l} x_{l}\right) \, c",
    "c * sum(x[l], l) * d": r"\left(c \, \sum_{l} x_{l}\right) \, d",
    "c * sum(x[l], l)": r"c \, \sum_{l} x_{l}",
    "sum(x[l] + 1, l, where=index(l) < size(l))": r"\sum_{l \,:\, l < N_{l}} \left(x_{l} + 1\right)",
    "1e-05 * 2.5": r"10^{-5} \cdot 2.5",
    "-inf": r"-\infty",
    "topk(K2[l], l, 6)": r"\operatorname*{top}_{l}^{6} K_{2,l}",
    "where(a > 0, a, 0.0)": r"\begin{cases}a & a > 0 \\ 0 & \text{otherwise}\end{cases}",
    "log(a) + cast(b, float16)": r"\log\left(a\right) + \operatorname{float16}\left(b\right)",
    "-(a + b) - -c": r"-\left(a + b\right) - \left(-c\right)",
}


@pytest.mark.parametrize("written", PICTURES)
def test_latex_reads_like_mathematics(written):
    assert latex(parse(written)) == PICTURES[written]


@given(expressions(leaves=(*inputs, *params, *places, *SYMBOLS.values()), depth=4))
def test_latex_is_balanced(expr):
    written = latex(expr)
    assert written.count("{") == written.count("}") and written.count(r"\left") == written.count(r"\right")
    assert "%s" not in written and not re.search(r"\}\^\{[^{}]*\}\^", written)


def test_an_operator_shows_itself_in_aligned_lines():
    shown = parse_operator("f(x[b, l]): e = exp(x - max(x, l)); e / sum(e, l)")._repr_latex_()
    assert shown == (r"$$\begin{aligned}t_{1,b,l} &= e^{x_{b,l} - \max_{l} x_{b,l}} \\ "
                     r"f_{b,l} &= \frac{t_{1,b,l}}{\sum_{l} t_{1,b,l}}\end{aligned}$$")


def test_numbers_keep_their_kind():
    for number in (1, 1.0, True, -0.0, math.inf, 1e300, -(10**30)):
        assert parse(text(const(number))) is const(number)
