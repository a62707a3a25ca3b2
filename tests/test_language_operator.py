"""Operators: traced, composed, renamed, compared, and bound to arrays; and every way to get one wrong."""

import pickle
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, const
from redfuser_algebra.language.operator import Operator, define, operator

X = Expr("input", (), ("x", ("l",)))


@operator
def attention(Q: "m k", K: "l k", V: "l j", scale: float = 1.0):
    """softmax(Q Kᵀ · scale) V."""
    S = ra.sum(Q * K, "k") * scale
    P = ra.exp(S - ra.max(S, "l"))
    return ra.sum(P * V, "l") / ra.sum(P, "l")


@operator
def softmax(x: "l", t: float = 1.0):
    e = ra.exp(x / t - ra.max(x / t, "l"))
    return e / ra.sum(e, "l")


def test_a_function_with_axes_becomes_an_operator():
    assert isinstance(attention, Operator) and attention.name == "attention" and attention.doc.startswith("softmax(Q")
    assert attention.inputs == {"Q": ("m", "k"), "K": ("l", "k"), "V": ("l", "j")}
    assert attention.params == {"scale": 1.0} and attention.axes == ("m", "k", "l", "j")
    assert attention.structure == "single" and attention.output_axes == (("m", "j"),)


def test_annotations_may_be_deferred():
    source = """
from __future__ import annotations
def f(x: "b l", t: "", y: "l", c: float, n: int = 2, *, on: bool = True, plain=0.5) -> "l b":
    return x * t + y * c + n + plain * on
"""
    space = {}
    exec(source, space)
    op = operator(space["f"])
    assert op.inputs == {"x": ("b", "l"), "t": (), "y": ("l",)}
    assert op.params == {"c": None, "n": 2, "on": True, "plain": 0.5}
    assert op.output_axes == (("l", "b"),)


def test_types_as_return_annotations_are_left_alone():
    def f(x: "l") -> float:
        return ra.sum(x, "l")

    assert operator(f).output_axes == ((),)


def test_results_may_be_tuples_lists_dicts_and_topk():
    def made(result):
        return define("f", {"x": ("l",)}, {}, result)

    assert made((X, X)).structure == "tuple" and made([X]).structure == "tuple"
    assert made({"a": X, "b": X}).structure == ("a", "b")
    assert made(ra.topk(X, "l", 2)).output_axes == (("top",), ("top",))
    assert made({"a": X, "b": X}).packed((1, 2)) == {"a": 1, "b": 2}
    assert made([X]).packed((1,)) == (1,) and made(X).packed((1,)) == 1


def test_the_axes_of_topk_come_last():
    op = define("f", {"x": ("l",), "w": ("a",)}, {}, ra.topk(X, "l", 2).values * Expr("input", (), ("w", ("a",))))
    assert op.axes == ("l", "a", "top") and op.output_axes == (("a", "top"),)


def test_the_order_of_dimensions_can_be_asked_for():
    assert define("f", {"x": ("l",)}, {}, (X, ra.sum(X, "l")), order="l,").output_axes == (("l",), ())


def test_side_conditions_are_read_with_the_signature():
    @operator(assume="x > 0, c >= 1")
    def f(x: "l", c: float = 2.0):
        return ra.sum(ra.log(x) * c, "l")

    assert [str(condition) for condition in f.assume] == ["x[l] > 0", "c >= 1"]
    with pytest.raises(OperatorError, match="there is no y"):
        operator(lambda c=1.0: ra.lift(c), name="g", assume="y > 0")


# composition


def test_an_operator_inside_an_operator_is_its_formula():
    @operator
    def composed(Q: "m k", K: "l k", V: "l j", scale: float = 1.0):
        return ra.sum(softmax(ra.sum(Q * K, "k") * scale, t=1.0) * V, "l")

    @operator
    def written_out(Q: "m k", K: "l k", V: "l j", scale: float = 1.0):
        x = ra.sum(Q * K, "k") * scale
        e = ra.exp(x / 1.0 - ra.max(x / 1.0, "l"))
        return ra.sum(e / ra.sum(e, "l") * V, "l")

    assert composed.outputs[0] is written_out.outputs[0]


def test_axes_are_found_by_name_whatever_their_order():
    x = Expr("input", (), ("s", ("l", "m")))
    e = ra.exp(x / 1.0 - ra.max(x / 1.0, "l"))
    assert softmax(x) is e / ra.sum(e, "l")


def test_axes_are_matched_in_order_where_the_names_differ():
    s = Expr("input", (), ("s", ("n",)))
    assert softmax(s, t=2.0).axes == ("n",)
    assert softmax(s, t=2.0) is softmax.renamed(l="n")(s, t=2.0)


def test_a_parameter_may_become_an_expression():
    t = Expr("input", (), ("t", ("m",)))
    assert softmax(X, t=t).axes == ("l", "m")


def test_composition_renames_index_size_and_topk_axes():
    op = define("f", {"x": ("l",)}, {}, ra.topk(X * ra.index("l") / ra.size("l"), "l", 2).values)
    v = Expr("input", (), ("v", ("n",)))
    assert op(v) is ra.topk(v * ra.index("n") / ra.size("n"), "n", 2).values
    assert op.renamed(top="best")(v) is ra.topk(v * ra.index("n") / ra.size("n"), "n", 2, name="best").values


def test_renaming_keeps_everything_else():
    there = attention.renamed(l="key", m="query")
    assert there.inputs["K"] == ("key", "k") and there.output_axes == (("query", "j"),)
    assert there != attention and there.renamed(key="l", query="m") == attention


S = Expr("input", (), ("s", ("m", "n")))
USES = {
    "axes that do not match": (lambda: softmax(S), "x[l] does not match an expression with the axes [m, n]"),
    "an axis that would be two": (
        lambda: attention(S, S, Expr("input", (), ("v", ("n", "j")))), "axis l would be both m and n"),
    "two axes that would be one": (
        lambda: attention(S, Expr("input", (), ("k", ("m", "n"))), Expr("input", (), ("v", ("m", "j")))),
        "two of its axes would become the same axis"),
    "a batch axis that would be captured": (
        lambda: softmax(X, t=Expr("input", (), ("t", ("l",)))), "axis l of the expression for t would be mistaken"),
}


@pytest.mark.parametrize("case", USES)
def test_a_use_that_would_mix_up_axes_is_refused(case):
    attempt, failed = USES[case]
    with pytest.raises(OperatorError) as caught:
        attempt()
    assert "inside another operator" in caught.value.asked
    assert failed in caught.value.failed and "renamed(" in caught.value.remedy


# identity


def test_equal_operators_are_equal_whatever_they_are_documented_as():
    def f(x: "l", t: float = 1.0):
        """Something else."""
        e = ra.exp(x / t - ra.max(x / t, "l"))
        return e / ra.sum(e, "l")

    assert operator(f, name="softmax") == softmax and hash(operator(f, name="softmax")) == hash(softmax)
    assert operator(f) != softmax and softmax != "softmax"
    assert define("softmax", softmax.inputs, {"t": 2.0}, softmax.outputs[0]) != softmax
    assert define("softmax", softmax.inputs, softmax.params, X) != softmax


def test_expressions_and_operators_survive_pickle_and_copy():
    assert pickle.loads(pickle.dumps(attention)) == attention
    assert pickle.loads(pickle.dumps(attention.outputs[0])) is attention.outputs[0]
    assert deepcopy(X + 1) is (X + 1)


def test_errors_survive_pickle():
    error = pickle.loads(pickle.dumps(OperatorError("asked", "failed", "remedy", "  x\n  ^")))
    assert (error.asked, error.failed, error.remedy) == ("asked", "failed", "remedy")
    assert str(error) == "asked: failed; remedy\n  x\n  ^"


def test_equal_terms_are_one_object_and_different_ones_are_not():
    assert const(np.float64(2)) is const(2.0) and const(float("nan")) is const(-float("nan"))
    assert ra.lift(np.float32(2)) is const(2.0) and ra.lift(np.array(3)) is const(3) and ra.lift(np.bool_(1)) is const(True)
    assert len({const(1), const(1.0), const(True), const(0.0), const(-0.0)}) == 5
    assert ra.sum(X * 2, "l") is ra.sum(X * 2, "l")


# binding


@given(st.data())
def test_the_last_dimensions_are_axes_and_the_others_broadcast(data):
    sizes = {axis: data.draw(st.integers(0, 4), label=axis) for axis in attention.axes}
    batch = tuple(data.draw(st.lists(st.integers(1, 3), max_size=3), label="batch"))
    arrays = {}
    for name, axes in attention.inputs.items():
        keep = data.draw(st.integers(0, len(batch)))
        leading = tuple(data.draw(st.sampled_from([1, size])) for size in batch[len(batch) - keep:])
        arrays[name] = np.zeros(leading + tuple(sizes[axis] for axis in axes))
    binding = attention.bind(arrays["Q"], V=arrays["V"], K=arrays["K"])
    assert binding.sizes == sizes and list(binding.arrays) == ["Q", "K", "V"]
    leading = [array.shape[:-2] for array in arrays.values()]
    assert binding.batch == np.broadcast_shapes(*leading)


def test_arrays_keep_their_dtype_and_lists_become_arrays():
    binding = softmax.bind(np.float32([1, 2]), t=np.int64(3))
    assert binding.arrays["x"].dtype == np.float32 and binding.params == {"t": 3} and type(binding.params["t"]) is int
    assert softmax.bind([1, 2, 3]).sizes == {"l": 3} and softmax.bind([True]).arrays["x"].dtype == bool
    assert softmax.bind([1, 2, 3]).params == {"t": 1.0}


def test_the_length_of_a_topk_axis_is_k():
    op = define("f", {"x": ("l",)}, {"k": 2}, ra.topk(X, "l", Expr("param", (), ("k",))).values)
    assert op.bind([1, 2, 3]).sizes == {"l": 3, "top": 2}
    assert op.bind([1, 2, 3], k=np.int32(3)).sizes["top"] == 3


def weighted(k=2):
    return define("f", {"x": ("l",), "w": ("top",)}, {"k": k},
                  ra.topk(X, "l", Expr("param", (), ("k",))).values * Expr("input", (), ("w", ("top",))))


A = np.ones((2, 3))
BINDINGS = {
    "two lengths": (lambda: attention.bind(A, np.ones((4, 3)), np.ones((5, 2))), "length 4 in K and 5 in V",
                    "K has shape (4, 3), V has shape (5, 2)"),
    "missing": (lambda: attention.bind(A), "K, V are missing", "every input"),
    "a missing scalar": (lambda: define("f", {"x": ("l",)}, {"c": None}, X).bind([1]), "c is missing", "no default"),
    "unknown": (lambda: softmax.bind([1], temp=2), "no such input or parameter", "use one of: x, t"),
    "misspelt": (lambda: attention.bind(A, A, A, scal=2), "no such input or parameter", "did you mean scale?"),
    "twice": (lambda: softmax.bind([1], x=[1]), "x was also given by position", "once"),
    "scalars by position": (lambda: softmax.bind([1], 2.0), "it has 1 input", "parameters by name"),
    "too few dimensions": (lambda: softmax.bind(1.0), "shape () has too few dimensions for the axes [l]", "length 1"),
    "batch": (lambda: attention.bind(np.ones((4, 2, 3)), np.ones((3, 2, 3)), A), "Q (4,), K (3,)", "from the right"),
    "objects": (lambda: softmax.bind(np.array([None])), "object is not a real number", "astype(float)"),
    "complex": (lambda: softmax.bind([1j]), "complex128 is not a real number", "real and imaginary"),
    "text": (lambda: softmax.bind(["a"]), "is not a real number", "numbers first"),
    "dates": (lambda: softmax.bind(np.array(["2020"], "M8[D]")), "is not a real number", "subtract a start time"),
    "durations": (lambda: softmax.bind(np.array([1], "m8[D]")), "is not a real number", "divide it by a unit"),
    "masked": (lambda: softmax.bind(np.ma.array([1])), "lose its mask", "where="),
    "ragged": (lambda: softmax.bind([[1], [1, 2]]), "does not make an array", "rectangular"),
    "an array for a scalar": (lambda: softmax.bind([1], t=[1.0, 2.0]), "is not a real number", "input with axes"),
    "k = 0": (lambda: weighted().bind([1, 2], [1, 2], k=0), "k = 0 elements cannot be chosen", "at least 1"),
    "k = 1.5": (lambda: weighted().bind([1, 2], [1, 2], k=1.5), "k = 1.5 elements", "whole number"),
    "k and a length": (lambda: weighted().bind([1, 2], [1, 2, 3]), "length 3 in w and 2 from topk", "make them equal"),
}


@pytest.mark.parametrize("case", BINDINGS)
def test_a_binding_that_makes_no_sense_is_refused(case):
    attempt, failed, remedy = BINDINGS[case]
    with pytest.raises(OperatorError) as caught:
        attempt()
    assert caught.value.asked and failed in caught.value.failed and remedy in caught.value.remedy, caught.value


# definitions that make no sense


def misused(**annotations):
    def f(x, *more, **named):
        return x

    def g(x):
        return x

    f.__annotations__ = g.__annotations__ = annotations
    return f if "more" in annotations else g


def raising(x: "l"):
    return np.exp(x)


def with_default(x: "l" = None, y: "l" = 1.0):
    return x


def once_more(x: "l", y: "k" = "x", z: "m" = "y"):
    return x * y * z


def text_for_a_scalar(t: float = "a"):
    return t


def leaking(x: "l"):
    return x + Expr("input", (), ("z", ("l",)))


T = Expr("input", (), ("t", ("l",)))
DEFINITIONS = {
    "no annotation": (lambda: operator(misused()), "parameter x", "an array or a scalar", 'x: "l"'),
    "a foreign annotation": (lambda: operator(misused(x=np.ndarray)), "parameter x", "an array or a scalar", "float"),
    "starred": (lambda: operator(misused(x="l", more="l")), "*more", "fixed list", "name every input"),
    "a default for an array": (lambda: operator(with_default), "array y", "only scalars", "leave the default"),
    "a copy of a copy": (lambda: operator(once_more), "z = 'y'", "no input of its own", "name an input that has no default"),
    "a default that is no number": (lambda: operator(text_for_a_scalar), "t = 'a'", "not a real number", "give a float"),
    "a function that raises": (lambda: operator(raising), "operator raising", "raised TypeError", "ra.trace"),
    "nothing returned": (lambda: define("f", {"x": ("l",)}, {}, None), "operator f", "NoneType None", "dict"),
    "a number returned": (lambda: define("f", {"x": ("l",)}, {}, (X, 1)), "operator f", "returned int 1", "tuple"),
    "no results": (lambda: define("f", {"x": ("l",)}, {}, ()), "operator f", "returned tuple ()", "expression"),
    "a keyword as axis": (lambda: define("f", {"x": ("in",)}, {}, X), "axis 'in'", "not a name", "letters"),
    "commas between axes": (lambda: define("f", {"x": ("b,", "l")}, {}, X), "axis 'b,'", "not a name", "by spaces"),
    "an operator without a name": (lambda: operator(lambda t=1.0: t), "'<lambda>'", "not a name", "letters"),
    "a reserved name": (lambda: define("f", {"inf": ("l",)}, {}, X), "input 'inf'", "not a name", "letters"),
    "an axis twice": (lambda: define("f", {"x": ("l", "l")}, {}, X), "x[l, l]", "repeated in one input", "ra.take"),
    "an axis and an input": (lambda: define("f", {"x": ("x",)}, {}, X), "name x", "two different things", "rename"),
    "an input and a scalar": (lambda: define("f", {"x": ("l",)}, {"x": 1}, X), "name x", "two different", "rename"),
    "an undeclared input": (lambda: operator(leaking), "operator leaking", "uses z[l]", "declare every array"),
    "an input with other axes": (lambda: define("f", {"x": ("m",)}, {}, X), "operator f", "uses x[l]", "declare"),
    "an unknown axis": (lambda: define("f", {"x": ("l",)}, {}, X + ra.index("z")), "operator f", "index(z)", "every axis"),
    "an unknown size": (lambda: define("f", {"x": ("l",)}, {}, X + ra.size("z")), "operator f", "size(z)", "every axis"),
    "an undeclared k": (lambda: define("f", {"x": ("l",)}, {}, ra.topk(X, "l", Expr("param", (), ("k",))).values),
                        "operator f", "uses k", "declare"),
    "two lengths of one topk axis": (
        lambda: define("f", {"x": ("l",)}, {}, (ra.topk(X, "l", 2).values, ra.topk(X, "l", 3).values)),
        "operator f", "different k make the axis top", 'name="best"'),
    "a topk axis without a name": (
        lambda: define("f", {"x": ("l",)}, {}, ra.topk(X, "l", 2, name="a b").values), 'name="a b"', "not a name", "letters"),
    "an order of other axes": (lambda: define("f", {"x": ("l",)}, {}, X, order="m"), '"m"', 'have the axes "l"', "once"),
    "an order of other outputs": (lambda: define("f", {"x": ("l",)}, {}, X, order="l, l"), '"l, l"', '"l"', "comma"),
    "a renaming of nothing": (lambda: softmax.renamed(z="a"), "axis z renamed", "no such axis", "one of: l"),
    "a call with arrays": (lambda: softmax(np.ones(3)), "with arrays", "a description", "ra.fuse(softmax)"),
    "a call with too much": (lambda: softmax(X, 2.0), "2 operands", "1 input", "by name"),
}


@pytest.mark.parametrize("case", DEFINITIONS)
def test_a_definition_that_makes_no_sense_is_refused(case):
    attempt, asked, failed, remedy = DEFINITIONS[case]
    with pytest.raises(OperatorError) as caught:
        attempt()
    error = caught.value
    assert asked in error.asked and failed in error.failed and remedy in error.remedy, error


def test_an_error_inside_the_function_comes_through_unchanged():
    def f(x: "l"):
        return ra.sum(x, "z")

    with pytest.raises(OperatorError, match="^sum over axis"):
        operator(f)


def test_what_an_inner_operator_assumes_is_assumed_of_what_it_is_given():
    @operator(assume="w > 0")
    def share(w: "l", c: float = 1.0):
        return ra.sum(w, "l") * c

    @operator(assume="y > 0")
    def both(x: "l", y: "l"):
        return share(x) + share(ra.exp(y)) + share(y) + share(2.0 + 0 * y)

    assert [str(condition) for condition in both.assume] == ["y[l] > 0", "x[l] > 0", "exp(y[l]) > 0", "2.0 + 0 * y[l] > 0"]

    @operator
    def neither(x: "l"):
        return ra.sum(x, "l")

    assert neither.assume == ()
