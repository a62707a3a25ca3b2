"""A refusal as a Python file: what cannot be carried, the numbers that prove it, and a test that computes them again.

In: an operator and its refusal with a witness.  Out: the text of a module that needs NumPy and mpmath (which comes
with SymPy) alone, with exact fractions where the formula is rational and hundreds of digits where it is not.
"""
from __future__ import annotations

import textwrap
from fractions import Fraction

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.refusal import Refusal
from redfuser_algebra.language.expr import Expr, call, const
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.text import ATOM
from redfuser_algebra.prove.export.blocks import INDENT, WIDTH, Block, entry, wrapped
from redfuser_algebra.prove.export.fused_module import operator_lines
from redfuser_algebra.prove.export.numpy_text import RESERVED, NumpyText, Unprintable, Written, layout, spelt
from redfuser_algebra.prove.witness import Crossings, Independence, Witness

DIGITS = 800
EXACT = {"exp": "mpmath.exp", "log": "mpmath.log", "sqrt": "mpmath.sqrt", "sin": "mpmath.sin", "cos": "mpmath.cos",
         "tanh": "mpmath.tanh", "erf": "mpmath.erf", "exp2": "lambda a: mpmath.power(2, a)", "log2": "lambda a: mpmath.log(a, 2)",
         "power": "mpmath.power", "arctan": "mpmath.atan", "arctan2": "mpmath.atan2", "log1p": "mpmath.log1p", "expm1": "mpmath.expm1",
         "logadd": "lambda a, b: mpmath.log(mpmath.exp(a) + mpmath.exp(b))"}
WHOLE = {"round": "round", "floor": "math.floor", "ceil": "math.ceil"}


class ExactText(NumpyText):
    """NumPy over arrays of exact numbers: what NumPy has no exact version of is a function of that name."""

    number = "Fraction"

    def _const(self, term: Expr) -> Written:
        if isinstance(term.value, float) and np.isfinite(term.value) and not term.value.is_integer():
            return Written(f'number("{term.value!r}")', ATOM)
        return super()._const(term)

    def _spelt(self, op: str) -> str:
        if op in EXACT or op in WHOLE:
            self.helpers.add(op)
            return f"{op}_of"
        return super()._spelt(op)

    def _power(self, term: Expr) -> Written:
        axes = self.plan.sorted(term.axes)
        base, exponent = (self._along(self.written(arg), axes) for arg in term.args)
        if term.args[1].op == "const" and float(term.args[1].value).is_integer():
            return self._infix("**", base, exponent, axes)
        self.helpers.add("power")
        return Written(f"power_of({base.text}, {exponent.text})", ATOM, axes)

    def _round(self, term: Expr) -> Written:
        arg = self.written(term.args[0])
        if term.attrs[-1]:
            return arg
        self.helpers.add("round")
        return Written(f"round_of({arg.text})", ATOM, arg.axes)

    def _cast(self, term: Expr) -> Written:
        if term.attrs[-1] or term.attrs[0] == "float64":
            return self.written(term.args[0])
        raise Unprintable(f"a cast to {term.attrs[0]}")


def refused_module(operator: Operator, refusal: Refusal) -> str:
    """The text of the module.  Raises Unprintable for a witness that has no table, or what cannot be spelt."""
    witness = refusal.witness
    if witness.problem.growing:
        raise Unprintable("elements in order")
    if isinstance(witness, Crossings):
        return _module(operator, refusal, _jumps(operator, witness))
    if isinstance(witness, Independence) and witness.table is not None:
        return _module(operator, refusal, _table(operator, witness))
    raise Unprintable("a witness without a table")


def _module(operator: Operator, refusal: Refusal, blocks: list[list[str]]) -> str:
    docstring = f'"""{_docstring(operator, refusal)}\n"""'
    imports, *rest = ["\n".join(block) for block in blocks]
    return "\n\n\n".join([f"{docstring}\n\n{imports}", *rest]) + "\n"


def _docstring(operator: Operator, refusal: Refusal) -> str:
    told = [f"{operator.name}: one pass is not enough ({refusal.witness.reason}).", ""]
    told += [*operator_lines(operator), ""]
    for line in str(refusal.witness).splitlines():
        told += textwrap.wrap(line, WIDTH, break_on_hyphens=False)
    told += [""] + textwrap.wrap(_what_is_checked(refusal.witness), WIDTH)
    if refusal.passes:
        told += [""] + textwrap.wrap(f"It runs in {len(refusal.passes)} passes: {' | '.join(', '.join(names) for names in refusal.passes)}.", WIDTH)
    return "\n".join(told).replace("\\", "\\\\")


def _what_is_checked(witness: Witness) -> str:
    if isinstance(witness, Crossings):
        return ("Checked below, in exact fractions: after the prefix the result jumps at each of these places, as the number that is "
                "steered passes it. How the places move with the prefix is quoted.")
    if not witness.table.determinants:
        return ("Checked below: of two elements each wins after one of two suffixes, so no nondecreasing map moves what was kept of "
                "them from one pivot to the other. The rest of the witness above is quoted.")
    numbers = f"numbers of {DIGITS} digits, and again with half as many more" if witness.bits else "exact fractions"
    return (f"Checked below, in {numbers}: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make. With R "
            "components, all of order more than R would be 0. The determinants of the Jacobian are quoted.")


def _printer(operator: Operator, roots: tuple[Expr, ...], axis: str) -> Block:
    plan = layout(operator.inputs, roots, axis, {})
    taken = {*RESERVED, *map(spelt, (*operator.inputs, *operator.params)), "number", "Fraction", "mpmath", axis}
    return Block(ExactText(plan, {}), taken, as_written=True)


def _function(operator: Operator, name: str, duty: str, outputs: tuple[Expr, ...], witness: Witness) -> tuple[list[str], Block]:
    problem = witness.problem
    block = _printer(operator, outputs, problem.axis)
    block.expect(*outputs)
    texts = [block.text(output, also_whole=True) for output in outputs]
    names = [spelt(each) for each in operator.inputs]
    lines = [f"def {name}({', '.join(names)}):", f'{INDENT}"""{duty}"""']
    return [*lines, *block.lines, *wrapped(f"{INDENT}return ", ", ".join(texts))], block


def _parameters(operator: Operator, witness: Witness) -> list[str]:
    return [f'{spelt(name)} = number("{value}")' for name, value in witness.problem.params.items() if name in operator.params]


def _imports(block: Block, balls: bool) -> list[str]:
    used = block.printer.helpers
    lines = ["import math"] * bool(used & {"floor", "ceil"}) + ["from fractions import Fraction", ""]
    lines += (["import mpmath"] if balls else []) + ["import numpy as np"]
    lines += ["", f"mpmath.mp.dps = {DIGITS}", "", "", "def number(text):", f'{INDENT}"""A fraction, to as many digits as are asked for."""',
              f"{INDENT}exact = Fraction(text)", f"{INDENT}return mpmath.mpf(exact.numerator) / exact.denominator"] if balls else [
              "", "number = Fraction"]
    made = [f"{op}_of = np.frompyfunc({EXACT.get(op) or WHOLE[op]}, {2 if op in ('power', 'arctan2', 'logadd') else 1}, 1)" for op in sorted(used)]
    return [*lines, *([""] * 2 * balls + made if made else [])]


def _texts(values: object) -> str:
    if isinstance(values, (list, np.ndarray)):
        return f"[{', '.join(map(_texts, values))}]"
    return f'"{values}"' if isinstance(values, Fraction) and values.denominator > 1 else str(values)


def _elements(operator: Operator, witness: Witness, elements: np.ndarray) -> dict[str, object]:
    """The numbers of some elements for every input that varies along the axis, with the dimensions that it has."""
    problem, found = witness.problem, {}
    for name, own in problem.inputs.items():
        others = [axis for axis in own if axis != problem.axis]
        columns = [at for at, (owner, _) in enumerate(problem.coordinates) if owner == name]
        shaped = elements[:, columns].reshape(len(elements), *(problem.sizes[axis] for axis in others))
        found[name] = np.moveaxis(shaped, 0, own.index(problem.axis)).tolist()
    return found


def _data(operator: Operator, witness: Witness, suffixes: list[np.ndarray]) -> list[str]:
    """PREFIX, SUFFIXES and what does not vary, and a function that puts them together."""
    problem = witness.problem
    varying = list(problem.inputs)
    lines = ["PREFIX = {"]
    for name, values in _elements(operator, witness, witness.prefix).items():
        lines += entry(wrapped(f'{INDENT}"{name}": ', _texts(values)))
    lines += ["}", "SUFFIXES = ["]
    for suffix in suffixes:
        short = "{" + ", ".join(f'"{name}": {_texts(values)}' for name, values in _elements(operator, witness, suffix).items()) + "}"
        if len(short) < WIDTH - 8:
            lines += [f"{INDENT}{short},"]
            continue
        lines += [f"{INDENT}{{"]
        for name, values in _elements(operator, witness, suffix).items():
            lines += entry(wrapped(f'{INDENT * 2}"{name}": ', _texts(values)))
        lines += [f"{INDENT}}},"]
    lines += ["]"]
    arguments = []
    for name in operator.inputs:
        if name in varying:
            own = problem.inputs[name]
            arguments.append(f'numbers(PREFIX["{name}"], suffix["{name}"], axis={own.index(problem.axis)})')
        elif name in problem.others:
            arguments.append(f"numbers({_texts(problem.others[name][1].tolist())})")
        else:
            arguments.append("None")
    return [*lines, "", "", "def numbers(*parts, axis=0):", f'{INDENT}"""Arrays of exact numbers, one behind the other."""',
            f"{INDENT}exact = np.frompyfunc(number, 1, 1)",
            f"{INDENT}return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)" if varying else "", "", "",
            "def after(suffix):", f'{INDENT}"""The inputs: the prefix, then the suffix."""', *wrapped(f"{INDENT}return ", f"[{', '.join(arguments)}]")]


def _table(operator: Operator, witness: Independence) -> list[list[str]]:
    source, table = witness.problem.own(witness.reduction).source, witness.table
    body = source.body if source.mask is None else call("where", source.mask, source.body, const(float(MONOIDS[source.monoid].identity)))
    function, block = _function(operator, "summands", "F(x_l; p) of every element, with the pivots p that all elements together make.",
                                (body,), witness)
    data = _data(operator, witness, [witness.suffixes[at] for at in table.suffixes])
    first = _first(block, body, witness.problem.axis)
    values = ["def table():", f'{INDENT}"""F of the chosen elements (columns) after each suffix (rows)."""',
              f"{INDENT}rows = [np.asarray(summands(*after(suffix))){first} for suffix in SUFFIXES]",
              f"{INDENT}return [[row[at] for at in ELEMENTS] for row in rows]"]
    head = [_imports(block, bool(witness.bits)) + _parameters(operator, witness), function,
            [*data[:data.index("SUFFIXES = [")], f"ELEMENTS = {_texts(list(table.elements))}", *data[data.index("SUFFIXES = ["):]], values]
    return [*head, *(_determinants(witness) if table.determinants else [_flip()])]


def _first(block: Block, body: Expr, axis: str) -> str:
    """An index that keeps the elements, at the first place of other axes."""
    axes = block.printer.plan.sorted(body.axes)
    index = [":" if own == axis else "0" for own in axes]
    return f"[{', '.join(index)}]" if len(axes) > 1 else ""


def _determinants(witness: Independence) -> list[list[str]]:
    orders = tuple(witness.table.determinants)
    det = ["def determinant(rows):", f'{INDENT}"""By elimination with the largest entry of each column."""',
           f"{INDENT}rows, product = [list(row) for row in rows], 1", f"{INDENT}for at in range(len(rows)):",
           f"{INDENT * 2}place = max(range(at, len(rows)), key=lambda row: abs(rows[row][at]))",
           f"{INDENT * 2}if rows[place][at] == 0:", f"{INDENT * 3}return 0", f"{INDENT * 2}if place != at:",
           f"{INDENT * 3}rows[at], rows[place], product = rows[place], rows[at], -product",
           f"{INDENT * 2}product *= rows[at][at]", f"{INDENT * 2}for row in rows[at + 1 :]:",
           f"{INDENT * 3}factor = row[at] / rows[at][at]",
           f"{INDENT * 3}row[at:] = [a - factor * b for a, b in zip(row[at:], rows[at][at:], strict=True)]", f"{INDENT}return product"]
    name = "def test_no_form_with_fewer_components_fits_these_points():"
    duty = f'{INDENT}"""det [F(x_i; p_j)] is not 0 for n = 1 … 8 and 12: F is no sum of fewer than 12 products g(x)·h(p)."""'
    if not witness.bits:
        exact = {n: value for n, value in witness.table.determinants.items() if "(" not in value}
        known = [f"ORDERS = {orders}", "DETERMINANTS = {", *(line for n, value in exact.items() for line in _quoted(n, value)), "}"]
        return [known, det, [name, duty, f"{INDENT}matrix = table()", f"{INDENT}for n in ORDERS:",
                             f"{INDENT * 2}found = determinant([row[:n] for row in matrix[:n]])",
                             f"{INDENT * 2}assert found != 0 and found == Fraction(DETERMINANTS.get(n, found)), n"]]
    return [[f"ORDERS = {orders}"], det, [
        name, duty, f"{INDENT}matrix = table()", f"{INDENT}with mpmath.workdps({DIGITS * 3 // 2}):", f"{INDENT * 2}again = table()",
        f"{INDENT}for n in ORDERS:", f"{INDENT * 2}found = determinant([row[:n] for row in matrix[:n]])",
        f"{INDENT * 2}with mpmath.workdps({DIGITS * 3 // 2}):", f"{INDENT * 3}better = determinant([row[:n] for row in again[:n]])",
        f"{INDENT * 2}assert found != 0 and abs(found - better) < abs(better) * mpmath.mpf(10) ** -20, n"]]


def _quoted(n: int, value: str) -> list[str]:
    """An exact number by its order; a long one in pieces."""
    if len(value) <= WIDTH - 12:
        return [f'{INDENT}{n}: "{value}",']
    pieces = textwrap.wrap(value, WIDTH - 12)
    return [f"{INDENT}{n}: (", *(f'{INDENT * 2}"{piece}"' for piece in pieces), f"{INDENT}),"]


def _flip() -> list[str]:
    return ["def test_the_order_of_two_elements_flips():", f'{INDENT}"""Each of two elements is strictly ahead after one of two suffixes."""',
            f"{INDENT}(a, b), (later_a, later_b) = table()", f"{INDENT}assert (a < b and later_a > later_b) or (a > b and later_a < later_b)"]


def _jumps(operator: Operator, witness: Crossings) -> list[list[str]]:
    outputs = witness.problem.outputs
    function, block = _function(operator, "result", "The operator, in exact numbers.", outputs, witness)
    suffixes = []
    for jump in witness.jumps:
        for value in (jump.low, jump.high):
            suffix = np.array(jump.still, object)
            suffix[0, jump.steered] = value
            suffixes.append(suffix)
    data = _data(operator, witness, suffixes)
    several = len(outputs) > 1
    seen = _texts([jump.seen.output for jump in witness.jumps])
    values = [f"SEEN = {seen}", f"PLACES = {_texts([list(jump.seen.place) for jump in witness.jumps])}"]
    picked = "result(*after(suffix))[SEEN[at]]" if several else "result(*after(suffix))"
    return [_imports(block, False) + _parameters(operator, witness), function, data, values,
            ["def observed(at, suffix):", f'{INDENT}"""The number that jumps."""',
             f"{INDENT}return np.asarray({picked})[tuple(PLACES[at])]"],
            ["def test_the_result_jumps_at_every_place():",
             f'{INDENT}"""On the two sides of each place, which are next to each other, the result differs."""',
             f"{INDENT}for at, (low, high) in enumerate(zip(SUFFIXES[::2], SUFFIXES[1::2], strict=True)):",
             f"{INDENT * 2}assert observed(at, low) != observed(at, high), at"]]
