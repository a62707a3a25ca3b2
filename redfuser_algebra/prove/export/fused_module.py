"""A fused form as a Python file: the theorem in words, its functions in NumPy, and the tests that check it again.

In: an operator, its cascade and its form.  Out: the text of a module that needs NumPy, Hypothesis and SymPy alone.
"""
from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.discover.show import summary, text_sections
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.language.mathematics import mathematics
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.export.blocks import INDENT, WIDTH, wrapped
from redfuser_algebra.prove.export.functions import Functions
from redfuser_algebra.prove.export.numpy_text import TOTAL, spelt
from redfuser_algebra.prove.export.symbolic_law import symbolic_law
from redfuser_algebra.prove.export.twins import sources
from redfuser_algebra.prove.trials.sampling import Space, space

PALETTES = {
    "any": ("ANY", "(0, 1, -1, 2, 0.5, -2, -0.5, 3)"), "positive": ("POSITIVE", "(1, 2, 0.5, 3, 0.25, 1.5)"),
    "unit": ("UNIT", "(0.5, 0.25, 0.75, 0.125)"), "few": ("FEW", "(0, 1)"), "whole": ("WHOLE", "(0, 1, 2, 3, -1, -2)"),
    "signed": ("SIGNED", "(1, -1, 2, -2, 1.5, -0.25)"), "negative": ("NEGATIVE", "(-1, -2, -0.5, -3)"),
}
"""Numbers that are drawn: exact in binary, so that what is equal stays equal."""

BETWEEN_STEPS = {
    "any": "(0, 1.1, -1.3, 2.1, 0.7, -1.9, -0.6, 3.1)", "positive": "(1.1, 2.1, 0.7, 3.1, 0.3, 1.7)", "unit": "(0.6, 0.3, 0.7, 0.1)",
    "signed": "(1.1, -1.3, 2.1, -1.9, 1.7, -0.3)", "negative": "(-1.3, -1.9, -0.6, -3.1)",
}
"""Numbers that are drawn where a result is rounded: quotients of them are no ties, which an ulp would turn."""

LONGEST = 6
PARTS = 3


def fused_module(operator: Operator, cascade: Cascade, form: FusedForm) -> str:
    """The text of the module.  Raises Unprintable for what has no spelling in NumPy."""
    functions = Functions(operator, form)
    trials = space(operator, cascade, form)
    body = [functions.lift, *(function for _, function in functions.moved), functions.merge, functions.finalize, functions.definition]
    law = symbolic_law(functions)
    proved = ("Proved below, by SymPy over the reals: the sums about a new pivot are those that `moved` gives." if law else
              "Nothing below is a proof: the update rule is none that SymPy decides.")
    blocks = [
        [f'"""{docstring(operator, functions, proved)}"""'], imports(law is not None),
        *(source.splitlines() for source in sources(functions.helpers)), functions.state(),
        *(list(function.source) for function in body), *_tests(functions, trials), *([law] if law else []),
    ]
    return joined(blocks)


def joined(blocks: list[list[str]]) -> str:
    """Blocks with two empty lines between them, one after the docstring."""
    docstring, imports, *rest = ["\n".join(block) for block in blocks]
    imports = f"import math\n{imports}" if [block for block in rest if "math." in block] else imports
    return "\n\n\n".join([f"{docstring}\n\n{imports}", *rest]) + "\n"


# the theorem

def docstring(operator: Operator, functions: Functions, proved: str) -> str:
    """The theorem in words; `proved` says what is more than tested."""
    form = functions.form
    sections = text_sections(form)
    told = [f"{operator.name}: one pass is enough.", "", *operator_lines(operator), ""]
    told += textwrap.wrap(_theorem(form), WIDTH) + [""]
    for title in ("holds only where", "elements", "update by one element", "guards", "dangers"):
        lines = [line for long in sections[title] for line in textwrap.wrap(long, WIDTH - 4, subsequent_indent="    ",
                                                                            break_long_words=False) or [""]]
        if lines:
            told += [f"{title[0].upper()}{title[1:]}:", "", *_indented(lines), ""]
    told += textwrap.wrap(f"Laws: {', '.join(form.laws) or 'none beyond those of the monoids'}.", WIDTH) + [""]
    told += textwrap.wrap(_evidence(operator, form, proved), WIDTH)
    return "\n".join(told).replace("\\", "\\\\").rstrip() + "\n"


def operator_lines(operator: Operator) -> list[str]:
    """The text of an operator, indented, no line too long."""
    return [part for line in str(operator).splitlines() for part in textwrap.wrap(
        line.strip(), WIDTH, initial_indent=INDENT + " " * (len(line) - len(line.lstrip())), subsequent_indent=INDENT * 4,
        break_long_words=False)]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in lines]


def _theorem(form: FusedForm) -> str:
    if form.recurrences:
        return (f"Theorem. Lift the elements along the axis {form.axis} to their states, and merge neighbours in any bracketing: finalize "
                f"gives what the definition gives ({summary(form)}). merge is associative, and keeps the order of its parts.")
    return (f"Theorem. Cut the axis {form.axis} into parts in any way, lift each part to its state, and merge the states in any "
            f"bracketing: finalize gives what the definition gives ({summary(form)}). merge is {_symmetry(form)}, and the state of no "
            "elements is its identity.")


def _symmetry(form: FusedForm) -> str:
    return "associative and commutative" if form.order == "commutative" else "associative"


def _evidence(operator: Operator, form: FusedForm, proved: str) -> str:
    said = [proved, "Tested below, by Hypothesis on small examples in float64: everything else the theorem says."]
    rounded = [term for term in subterms(*operator.outputs) if term.op in ("round", "cast") and term.attrs[-1]]
    if rounded:
        said.append("The operator allows its rounding to be regrouped, so that the fused form rounds at other scales than the definition; "
                    "what is stated here is the form without that rounding, on both sides.")
    if form.assumptions or operator.assume:
        said.append(f"Assumed: {', '.join(map(mathematics, (*operator.assume, *form.assumptions)))}.")
    return " ".join(said)


def imports(symbolic: bool) -> list[str]:
    """The lines that import what the file needs."""
    return ["from typing import NamedTuple", "", "import numpy as np", *(["import sympy"] if symbolic else []),
            "from hypothesis import HealthCheck, assume, given, settings", "from hypothesis import strategies as st",
            "from hypothesis.extra.numpy import arrays"]


# the tests

def _tests(f: Functions, trials: Space) -> Iterator[list[str]]:
    yield _of(f)
    yield palettes(trials, f.operator)
    yield array()
    yield examples(f, trials)
    yield nudged()
    yield agree(f)
    yield same()
    yield _theorem_test(f)


TEST = ["@settings(max_examples=50, deadline=None, derandomize=True, database=None,",
        "          suppress_health_check=[HealthCheck.filter_too_much])", "@given(examples())", '@np.errstate(all="ignore")',
        "def test_the_theorem(example):", f'{INDENT}"""On fifty small examples, the same ones every time."""']
"""How the test of what the theorem says begins."""


def _theorem_test(f: Functions) -> list[str]:
    """All that the theorem says, on the same examples."""
    names = [*map(spelt, (*f.operator.inputs, *f.operator.params)), "owner"]
    orders = [f.merge.called("one", "two"), f.merge.called("two", "one")] if f.form.order == "commutative" else []
    return [
        *TEST, *wrapped(f"{INDENT}{', '.join(names)} = ", "example"), *_parts(f),
        f"{INDENT}nothing = {_part(f, 'owner < 0')}", *wrapped(f"{INDENT}states = ", ", ".join(_bracketings(f))), "",
        f"{INDENT}# merge is {_symmetry(f.form)}, and the state of no elements is its identity",
        f"{INDENT}same(states[1], states[2])", *(same_states(*orders) if orders else []),
        *same_states(f.merge.called("states[0]", "nothing"), "states[0]"), *same_states(f.merge.called("nothing", "states[0]"), "states[0]"), "",
        f"{INDENT}# any split in any bracketing gives the definition", f"{INDENT}want = {f.definition.called()}",
        *around(f, "states[0]"), f"{INDENT}for state in states:", f"{INDENT * 2}agree({f.finalize.called('state')}, want, *around)"]


def around(f: Functions, state: str) -> list[str]:
    """The results of the form in one part, and of states that are some roundings beside it."""
    return [f"{INDENT}around = [{f.finalize.called('each')} for each in ({state}, *nudged({state}))]"]


def same_states(one: str, two: str) -> list[str]:
    """A line that compares two states."""
    return wrapped(INDENT, f"same({one}, {two})")


def _bracketings(f: Functions) -> list[str]:
    def merged(a: str, b: str) -> str:
        return f.merge.called(a, b)

    found = [_part(f, "owner >= 0"), merged(merged("one", "two"), "three"), merged("one", merged("two", "three"))]
    return [*found, merged(merged("three", "one"), "two")] if f.form.order == "commutative" else found


def _of(f: Functions) -> list[str]:
    """The state of the elements at some places."""
    taken = []
    for name in f.lift.arguments:
        own = f.operator.inputs.get(name.removesuffix("_") if name not in f.operator.inputs else name, ())
        if f.axis in own:
            at = own.index(f.axis)
            taken.append(f"{name}[{', '.join([*[':'] * at, 'at'])}]")
        else:
            taken.append({f.axis: "1.0 * np.flatnonzero(at)", TOTAL: "len(at)"}.get(name, name))
    arguments = [name for name in f.lift.arguments if name not in (f.axis, TOTAL)]
    return [f"def of({', '.join(['at', *arguments])}):", f'{INDENT}"""The state of the elements at these places."""',
            *wrapped(f"{INDENT}return ", f"lift({', '.join(taken)})")]


def _part(f: Functions, where: str) -> str:
    return f"of({', '.join([where, *(name for name in f.lift.arguments if name not in (f.axis, TOTAL))])})"


def _parts(f: Functions, count: int = PARTS) -> list[str]:
    return [f"{INDENT}{name} = {_part(f, f'owner == {number}')}" for number, name in enumerate(("one", "two", "three")[:count])]


def palettes(trials: Space, operator: Operator) -> list[str]:
    """The numbers that inputs are drawn from."""
    rounds = [term for term in subterms(*operator.outputs) if term.op in ("round", "cast")]
    between = BETWEEN_STEPS if rounds else {}
    used = {name for each in operator.inputs for name in _palettes(trials, each)}
    return [f"{word} = {between.get(name, values)}" for name, (word, values) in PALETTES.items() if name in used]


def _palettes(trials: Space, name: str) -> tuple[str, ...]:
    """The palettes that an input is drawn from."""
    return ("any", "positive", "unit", "few") if set(trials.palettes[name]) == set(PALETTES) else trials.palettes[name]


def array() -> list[str]:
    """What draws an array."""
    return ["def array(draw, shape, *palettes):", f'{INDENT}"""An array of simple numbers, so that equal ones are drawn."""',
            f"{INDENT}numbers = draw(st.sampled_from(palettes))",
            f"{INDENT}return draw(arrays(float, shape, elements=st.sampled_from(numbers)))"]


OWNERS = ("owner", f"draw(arrays(int, n, elements=st.integers(0, {PARTS - 1})))", "to which part each element belongs")
"""How elements are dealt to parts: the word for it, what draws it, and what that is."""


def examples(f: Functions, trials: Space, dealt: tuple[str, str, str] = OWNERS) -> list[str]:
    """The strategy: inputs, parameters, and how the elements are dealt to parts."""
    word, drawn, what = dealt
    lines = ["@st.composite", "def examples(draw):", f'{INDENT}"""A few elements, the parameters, and {what}."""',
             f"{INDENT}n = draw(st.integers({max(1 if dealt is OWNERS else PARTS, trials.shortest)}, {max(LONGEST, trials.shortest + 2)}))"]
    made = []
    for name, own in f.operator.inputs.items():
        words = [PALETTES[palette][0] for palette in _palettes(trials, name)]
        shape = ["n" if axis == f.axis else str(trials.sizes[axis]) for axis in own]
        text = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
        lines += wrapped(f"{INDENT}{spelt(name)} = ", f"array(draw, {text}, {', '.join(words)})")
        made.append(spelt(name))
    for name, values in trials.params.items():
        shown = ", ".join(repr(float(value)) if not isinstance(value, int) else repr(value) for value in dict.fromkeys(values))
        lines += [f"{INDENT}{spelt(name)} = draw(st.sampled_from([{shown}]))"]
        made.append(spelt(name))
    return [*lines, f"{INDENT}{word} = {drawn}", *wrapped(f"{INDENT}return ", ", ".join([*made, word]))]


def agree(f: Functions) -> list[str]:
    """What compares results."""
    duty = "Equal up to rounding (and roots of it) where roundings leave both alone, and NaN where neither is a number."
    head = ["def agree(got, want, *around):", f'{INDENT}"""{duty}"""']
    lines = ["at_once, *beside = around",
             "known = np.isfinite(want) & np.isfinite(at_once) & np.isclose(beside, beside[0], rtol=1e-9, atol=1e-7).all(0)",
             "assert np.isnan(got[np.isnan(want) & np.isnan(at_once)]).all()", "assume(known.any())",
             "np.testing.assert_allclose(got[known], want[known], rtol=1e-9, atol=1e-7)"]
    if len(f.operator.outputs) == 1:
        return [*head, f"{INDENT}got, want, *around = np.broadcast_arrays(got, want, *around)", *(INDENT + line for line in lines)]
    renamed = (re.sub(r"\bgot\b", "one", re.sub(r"\bwant\b", "other", line)) for line in lines[1:])
    return [*head, f"{INDENT}for outputs in zip(got, want, *around, strict=True):", f"{INDENT * 2}one, other, at_once, *beside = np.broadcast_arrays(*outputs)",
            *(INDENT * 2 + line for line in renamed)]


def nudged() -> list[str]:
    """What moves a state by some roundings."""
    return ["def nudged(state):", f'{INDENT}"""The state with its numbers moved by some roundings: up and down, the first or the last of them most."""',
            f"{INDENT}for by, turn in ((1e-13, 1), (-1e-13, 1), (1e-13, -1), (-1e-13, -1)):",
            f"{INDENT * 2}moved = (", f"{INDENT * 3}word * (1 + by * at**turn) if np.asarray(word).dtype.kind == \"f\" else word",
            f"{INDENT * 3}for at, word in enumerate(state, 1)", f"{INDENT * 2})",
            f"{INDENT * 2}yield State(*moved)"]


def same() -> list[str]:
    """What compares states."""
    return ["def same(one, two):", f'{INDENT}"""Two states are equal up to rounding."""',
            f"{INDENT}for name in State._fields:",
            f"{INDENT * 2}np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-9, atol=1e-9, err_msg=name)"]
