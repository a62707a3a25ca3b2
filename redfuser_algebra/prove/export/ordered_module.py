"""An ordered form as a Python file: parts are neighbours, merge keeps their order, and SymPy proves it associative.

In: an operator, its cascade and its form.  Out: the text of a module that needs NumPy, Hypothesis and SymPy alone.
"""
from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.export import fused_module as common
from redfuser_algebra.prove.export.blocks import INDENT, wrapped
from redfuser_algebra.prove.export.functions import Function
from redfuser_algebra.prove.export.numpy_text import TOTAL, spelt
from redfuser_algebra.prove.export.ordered_functions import OrderedFunctions
from redfuser_algebra.prove.export.twins import sources
from redfuser_algebra.prove.trials.sampling import Space, space

SYMBOLIC = ("larger", "smaller", "log_of_sum", "chosen")
"""Functions of a file that speak of SymPy."""

CUTS = ("cuts", "sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))", "where they are cut into three neighbours")

SUMS = '''def sums(value):
    """A largest (or smallest) of sums as the set of its sums, and a sum of products multiplied out."""
    value = sympy.expand(value)
    if isinstance(value, (sympy.Max, sympy.Min)):
        return set().union(*map(sums, value.args))
    if value.has(sympy.Max, sympy.Min) and isinstance(value, sympy.Add):
        return {sympy.expand(one + other) for one in sums(value.args[0]) for other in sums(value.func(*value.args[1:]))}
    return {OF_CONDITIONS}'''

WHOLE, IN_CASES = "value", """value.replace(lambda term: term.is_Pow and str(term.base)[0] == "[", lambda term: term.base)"""
"""A sum of products as it is, or where some factors are 0 or 1 and equal their squares."""
OF_LOGS = "sympy.expand(sympy.exp(value))"
"""What a logarithm of sums is the logarithm of."""


def ordered_module(operator: Operator, cascade: Cascade, form: FusedForm) -> str:
    """The text of the module.  Raises Unprintable for what has no spelling in NumPy."""
    functions, trials = OrderedFunctions(operator, form), space(operator, cascade, form)
    body = [functions.lift, *(function for _, function in functions.moved), functions.merge, functions.finalize, functions.definition]
    law = _associativity(functions) if all(component.fixed for component in functions.form.state) else None
    proved = ("Proved below, by SymPy over the reals: merge is associative (it does not commute)." if law else
              "Nothing below is a proof: merge moves sums to new pivots.")
    sums = SUMS.replace("OF_CONDITIONS", IN_CASES if "chosen" in functions.helpers else OF_LOGS if "log_of_sum" in functions.helpers else WHOLE)
    blocks = [
        [f'"""{common.docstring(operator, functions, proved)}"""'], common.imports(law is not None or not functions.helpers.isdisjoint(SYMBOLIC)),
        *(source.splitlines() for source in sources(functions.helpers)), functions.state(),
        *(list(function.source) for function in body), *_tests(functions, trials), *([sums.splitlines(), law] if law else []),
    ]
    return common.joined(blocks)


def _tests(f: OrderedFunctions, trials: Space) -> Iterator[list[str]]:
    yield _between(f)
    yield common.palettes(trials, f.operator)
    yield common.array()
    yield common.examples(f, trials, CUTS)
    yield common.nudged()
    yield common.agree(f)
    yield common.same()
    names = [*map(spelt, (*f.operator.inputs, *f.operator.params)), "cuts"]
    ends = ("0", "cuts[0]", "cuts[1]", _length(f))
    parts = [f"{INDENT}{name} = {_part(f, *pair)}" for name, pair in zip(("one", "two", "three", "whole"), (*pairwise(ends), (ends[0], ends[-1])), strict=True)]
    left = f.merge.called(f.merge.called("one", "two"), "three")
    right = f.merge.called("one", f.merge.called("two", "three"))
    yield [*common.TEST, *wrapped(f"{INDENT}{', '.join(names)} = ", "example"), *parts, *wrapped(f"{INDENT}left, right = ", f"{left}, {right}"), "",
           f"{INDENT}# merge is associative", f"{INDENT}same(left, right)", "", f"{INDENT}# neighbours in any bracketing give the definition",
           f"{INDENT}want = {f.definition.called()}", *common.around(f, "whole"),
           f"{INDENT}for state in (left, right):", f"{INDENT * 2}agree({f.finalize.called('state')}, want, *around)"]


def _length(f: OrderedFunctions) -> str:
    return f.plan.length(f.axis)


def _part(f: OrderedFunctions, first: str, last: str) -> str:
    return f"between({', '.join([first, last, *_given(f)])})"


def _given(f: OrderedFunctions) -> list[str]:
    words = dict.fromkeys((*f.lift.arguments, *f.merge.arguments))
    return [name for name in words if name not in (f.axis, TOTAL)]


def _between(f: OrderedFunctions) -> list[str]:
    """The state of the elements between two places."""
    taken = []
    for name in f.lift.arguments:
        own = f.operator.inputs.get(name.removesuffix("_") if name not in f.operator.inputs else name, ())
        taken.append(f"{name}[{', '.join([*[':'] * own.index(f.axis), 'at'])}]" if f.axis in own else "at" if name == f.axis else name)
    element = f"lift({', '.join(taken)})"
    return [f"def between({', '.join(['first', 'last', *_given(f)])}):",
            f'{INDENT}"""The state of the elements from one place to before another, one after the other."""',
            f"{INDENT}at = first", *wrapped(f"{INDENT}state = ", element), f"{INDENT}for at in range(first + 1, last):",
            *wrapped(f"{INDENT * 2}state = ", f.merge.called("state", element)), f"{INDENT}return state"]


def _associativity(f: OrderedFunctions) -> list[str]:
    """Three states of free numbers, in both bracketings."""
    def called(merge: Function, a: str, b: str) -> str:
        return f"merge({', '.join([a, b, *(name for name in merge.arguments)])})"

    given = [f"{INDENT}{', '.join(f.merge.arguments)} = sympy.symbols(\"{' '.join(f.merge.arguments)}\", real=True)"] if f.merge.arguments else []
    dims = {c.name: len(c.axes) for c in f.form.state}
    number, item = 'sympy.Symbol(f"{name}_{part}", real=True)', "sympy.sympify({})"
    free = f"{number} for name in State._fields"
    if any(dims.values()):
        free, item = f"np.full((1,) * d, {number}) for name, d in dims.items()", "np.asarray({}).item()"
        given = [*wrapped(f"{INDENT}dims = ", repr(dims).replace("'", '"')), *given]
    return ["def test_merge_is_associative_for_all_numbers():",
            f'{INDENT}"""SymPy, over the reals, for any three states: both bracketings are the same sums."""', *given, "",
            f"{INDENT}def state(part):", f"{INDENT * 2}return State(*({free}))", "",
            f"{INDENT}a, b, c = map(state, \"abc\")",
            f"{INDENT}left, right = {called(f.merge, called(f.merge, 'a', 'b'), 'c')}, {called(f.merge, 'a', called(f.merge, 'b', 'c'))}",
            f"{INDENT}for name, one, other in zip(State._fields, left, right, strict=True):",
            f"{INDENT * 2}assert sums({item.format('one')}) == sums({item.format('other')}), name"]
