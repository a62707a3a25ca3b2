"""An operator as it was written, as the source of a NumPy function.

In: an operator.  Out: the lines of `def definition(…)`, in terms of the functions of `lower/standalone/meaning.py`:
spread, along, positions, position_of, largest, chosen, stepped, cast_to, taken_out.  Formulas bind as in Python.
"""
from __future__ import annotations

from collections.abc import Mapping

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import LEAVES, Expr, subterms, unbound_states
from redfuser_algebra.language.names import numbered
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.recurrence import with_elements
from redfuser_algebra.language.text import ATOM, UNARY, Written, at_least, binary, shared_terms

RESERVED = ("np", "spread", "along", "positions", "position_of", "largest", "chosen", "stepped", "cast_to", "taken_out", "lengths", "definition",
            "AXES", "True", "False", "None")
IDENTITIES = {"sum": "0", "prod": "1", "max": "-np.inf", "min": "np.inf", "fmax": "-np.inf", "fmin": "np.inf", "argmax": "-np.inf", "argmin": "np.inf",
              "topk": "-np.inf", "argtopk": "-np.inf", "any": "False", "all": "True"}
"""What elements outside a mask count as."""

BITWISE = {"&": "np.logical_and({}, {})", "|": "np.logical_or({}, {})"}


def numpy_definition(operator: Operator) -> list[str]:
    """The lines of a function `definition` of the operator's inputs and parameters; extra leading dimensions are batch."""
    known = {name: f"{name}_" if name in RESERVED else name for name in (*operator.inputs, *operator.params)}
    leaves = {Expr("input", (), (name, axes)): known[name] for name, axes in operator.inputs.items()}
    leaves |= {Expr("param", (), (name,)): known[name] for name in operator.params}
    shared = shared_terms(operator.outputs, leaves, {*known.values(), *RESERVED})
    names = leaves | shared
    lines = [f"{known[name]} = spread({name}, {' '.join(axes)!r})" for name, axes in operator.inputs.items()]
    lines += [f"{known[name]} = {name}" for name in operator.params if known[name] != name]
    lines += [f"lengths = {_lengths(operator, known)}"]
    lines += [f"{name} = {_formula(term, {key: n for key, n in names.items() if key is not term})}" for term, name in shared.items()]
    outputs = [f"taken_out({_formula(output, names)}, {' '.join(axes)!r}, lengths)"
               for output, axes in zip(operator.outputs, operator.output_axes, strict=True)]
    lines.append(f"return {_result(operator.structure, outputs)}")
    return [f"def definition({', '.join([*operator.inputs, *operator.params])}):",
            f'    """{operator.name} as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""',
            *(f"    {line}" for line in lines)]


def _lengths(operator: Operator, known: Mapping[str, str]) -> str:
    """The length of every axis, from the first input that has it; of an axis that topk makes, its k."""
    found = {}
    for name, axes in operator.inputs.items():
        for axis in axes:
            found.setdefault(axis, f"{known[name]}.shape[{operator.axes.index(axis) - len(operator.axes)}]")
    for term in subterms(*operator.outputs):
        if term.op == "reduce" and term.attrs[2]:
            found.setdefault(term.attrs[2], known[term.count.name] if term.count.op == "param" else repr(term.count.value))
    return "{" + ", ".join(f'"{axis}": {length}' for axis, length in found.items()) + "}"


def _result(structure: str | tuple[str, ...], outputs: list[str]) -> str:
    if isinstance(structure, tuple):
        return "{" + ", ".join(f'"{name}": {output}' for name, output in zip(structure, outputs, strict=True)) + "}"
    return outputs[0] if structure == "single" else f"({', '.join(outputs)},)"


def spelt_number(value: float) -> str:
    """A number as Python reads it, infinities and NaN with NumPy's names."""
    return {"inf": "np.inf", "-inf": "-np.inf", "nan": "np.nan"}.get(repr(value), repr(value))


def spelt_function(op: str) -> str:
    """NumPy's function of arrays for a word of one operand or more."""
    return {"erf": "np.vectorize(math.erf, otypes=[float])", "logadd": "np.logaddexp"}.get(op, f"np.{op}")


def spelt_reduction(monoid: str) -> str:
    """NumPy's function that folds an array along an axis."""
    return f"np.{monoid}.reduce" if monoid in ("fmax", "fmin") else f"np.{monoid}"


def _formula(root: Expr, names: Mapping[Expr, str]) -> str:
    done: dict[Expr, Written] = {}

    def written(term: Expr) -> Written:
        if term not in done:
            done[term] = ((names[term], ATOM) if term in names else (_scan(term, names), ATOM) if term.op == "scan"
                          else _written(term, [written(arg) for arg in term.args]))
        return done[term]

    return written(root)[0]


def _scan(term: Expr, names: Mapping[Expr, str]) -> str:
    """A recurrence as a loop over elements: its states, what it takes of an element, and its step."""
    axis, states, place, every = term.attrs
    elements: dict[Expr, Expr] = {}
    steps = [with_elements(step, axis, elements) for step in term.args[len(states):]]
    own = dict(zip(elements.values(), numbered("e", {*names.values(), *states}), strict=False))
    inside = dict(names) | own | {state: state.name for state in unbound_states(*steps) if state.name in states}
    given = "".join(f"{_formula(start, names)}, " for start in term.args[:len(states)])
    taken_in = "".join(f"{_formula(element, names)}, " for element in elements)
    after = ", ".join(_formula(step, inside) for step in steps)
    return (f'stepped("{axis}", lengths["{axis}"], {place}, "{every}", ({given.strip()}), ({taken_in.strip()}), '
            f'lambda {", ".join((*states, *own.values()))}: ({after},))')


def _written(term: Expr, args: list[Written]) -> Written:
    if term.op in LEAVES:
        return _leaf(term)
    operands = [written for written, _ in args]
    if term.op == "reduce":
        return _reduction(term, operands), ATOM
    function = FUNCTIONS.get(term.op)
    if function is None:
        return f'cast_to({operands[0]}, "{term.attrs[0]}")', ATOM
    if function.source:
        raise OperatorError(f"a NumPy function with {term.op}", "it was declared by you, and a file cannot bring it along",
                            "write the operator with functions of redfuser_algebra alone")
    if function.infix in BITWISE:
        return BITWISE[function.infix].format(*operands), ATOM
    if function.infix and function.arity == 2:
        return binary(function.infix, *args)
    if term.op == "negative":
        return "-" + at_least(UNARY, args[0]), UNARY
    return (f"(1.0 / {at_least(UNARY, args[0])})" if term.op == "reciprocal" else f"{spelt_function(term.op)}({', '.join(operands)})"), ATOM


def _leaf(term: Expr) -> Written:
    if term.op == "index":
        return f'positions("{term.axis}", lengths["{term.axis}"])', ATOM
    if term.op == "size":
        return f'lengths["{term.axis}"]', ATOM
    written = spelt_number(term.value)
    return written, UNARY if written.startswith("-") else ATOM


def _reduction(term: Expr, operands: list[str]) -> str:
    if term.count is None:
        body = operands[0] if term.mask is None else f"np.where({operands[1]}, {operands[0]}, {IDENTITIES[term.monoid]})"
        if term.mask is not None and term.monoid.startswith("arg"):
            return f'position_of(np.{term.monoid}, {body}, along("{term.axis}"), {operands[1]})'
        return f'{spelt_reduction(term.monoid)}({body}, along("{term.axis}"), keepdims=True)'
    where = f", where={operands[1]}" if term.mask is not None else ""
    at = f'largest({operands[0]}, "{term.axis}", {operands[-1]}, "{term.attrs[2]}"{where})'
    return at if term.monoid == "argtopk" else f'chosen({operands[0]}, "{term.axis}", {at}, "{term.attrs[2]}")'
