"""Monoids and functions of a user's own: tested, then added to the tables, or refused with a counterexample.

In: a name, a NumPy callable, and what is claimed about it.  Out: an object that is called on expressions.  What is
declared is good for the whole process, or for one scope `with declarations():`.
"""
from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import FunctionType

import numpy as np

from redfuser_algebra.algebra import functions, monoids, registry
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.laws import Law
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import LEAVES, Expr, call
from redfuser_algebra.language.formula import WORDS, parse
from redfuser_algebra.language.functions import Axes, Operand, reduce
from redfuser_algebra.language.law_text import read_law
from redfuser_algebra.language.operator import is_name
from redfuser_algebra.language.program import NUMBERS
from redfuser_algebra.prove.declaring.properties import DOMAINS, check_derivative, check_function, check_law, check_monoid, nan_behaviour
from redfuser_algebra.prove.declaring.testing import Examiner, Record

EXAMPLES = 100
"""Examples on which each claim is tried."""

_MARKS = ("", "s", "+", "-")
_SIGNS = ("", "nonnegative", "positive")
_RESERVED = {*WORDS, *NUMBERS, *LEAVES, "reduce", "cast", "assume", "contract", "largest", "smallest", "some", "rounded", "Add", "Mul"}
"""Words with a meaning of their own in formulas, laws or the e-graph."""


@dataclass(frozen=True)
class Declared:
    """Something a user declared: its row, its laws, and what was tested."""

    row: functions.Function | monoids.Monoid
    laws: tuple[Law, ...]
    tested: tuple[Record, ...]

    @property
    def name(self) -> str:
        """What formulas call it."""
        return self.row.name

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.row.source}", *map(str, self.laws), *map(str, self.tested)])


class Monoid(Declared):
    """⊕ declared by a callable of two arrays; call it on (expr, axis, where=) for the reduction.

    `identity` is e with e ⊕ a = a, and the value of nothing.  `domain` is what it is a monoid on: "real" (default),
    "nonnegative", "positive", "unit" (0 to 1), "integer" or "natural".  Without `commutative` parts are only merged in
    their order.  A law is a text such as `logaddexp(a + c) = logaddexp(a) + c where invariant(c)`, in the language of
    the law table; it is tried on numbers of any sign that meet its conditions, since elements may have any.

    Each claim is tried on `examples` values.  Raises FalseDeclaration with a counterexample, and OperatorError for a
    name that is taken, a law that cannot be read, or a callable that does not work on arrays; then nothing is added.

    >>> import numpy as np, redfuser_algebra as ra
    >>> with ra.declarations():
    ...     gcd = ra.Monoid("gcd", np.gcd, identity=0, domain="natural")
    ...     print(gcd(ra.parse("x[l]"), "l"))
    gcd(x[l], l)
    """

    def __init__(self, name: str, apply: Callable, *, identity: float, domain: str = "real", commutative: bool = True,
                 laws: Iterable[str] = (), symbol: str = "", examples: int = EXAMPLES, seed: int = 0) -> None:
        about = f"the monoid {name}"
        _check_name(about, name)
        _check_choice(about, "domain", domain, DOMAINS)
        whole = domain in ("integer", "natural")
        identity = _identity(about, identity, whole)
        _check_binary(about, apply)
        _result_type(about, apply, 2, np.int64 if whole else np.float64)
        nan = "propagates" if whole else nan_behaviour(apply)
        row = monoids.Monoid(name, symbol or name, identity, "declared", apply=apply, commutative=commutative, nan=nan,
                             whole=whole, source=_source(name, examples, seed))
        examiner = Examiner(about, examples, seed)
        check_monoid(examiner, row, domain)
        super().__init__(row, _added(row, laws, examiner), tuple(examiner.tested))

    def __call__(self, expr: Operand, axis: Axes, where: Operand | None = None) -> Expr:
        """⊕ over `axis` of the elements where the mask holds; the identity if there are none."""
        return reduce(self.name, expr, axis, where)


class Function(Declared):
    """An elementwise function that was declared; call it on expressions."""

    def __call__(self, *operands: Operand) -> Expr:
        """The function of expressions."""
        if len(operands) != self.row.arity:
            raise OperatorError(f"{self.name} of {len(operands)} operands", f"it takes {self.row.arity}",
                                f"write {self.name}({', '.join('abc'[:self.row.arity])})")
        return call(self.name, *operands)


def function(name: str, apply: Callable, *, monotone: str | Sequence[str] = "", sign: str = "", laws: Iterable[str] = (),
             latex: str = "", derivative: str | Sequence[str] = "", examples: int = EXAMPLES, seed: int = 0) -> Function:
    """An elementwise function declared by a callable of one to three arrays.

    `monotone` has one mark per argument: "s" strictly increasing, "+" nondecreasing, "-" nonincreasing, "" neither; what
    a mark says about max, min, argmax and topk becomes laws.  `sign` is "positive", "nonnegative" or "".  `laws` are
    texts such as `cube(a * b) = cube(a) * cube(b)`: say what becomes of a + b and a * b, which is how a pivot enters.
    `latex` is a template with one %s per argument.  `derivative` has one formula per argument, in a, b and c, which may
    use the function itself: `derivative="1 - exp(-softplus(a))"`; without it there is no gradient.

    Each claim is tried on `examples` values.  Raises FalseDeclaration with a counterexample, and OperatorError for a
    name that is taken, a law that cannot be read, or a callable that does not work on arrays; then nothing is added.
    """
    about = f"the function {name}"
    _check_name(about, name)
    _check_choice(about, "sign", sign, _SIGNS)
    arity = _arity(about, apply)
    marks = _marks(about, monotone, arity)
    if latex and latex.count("%s") != arity:
        raise OperatorError(f"declaring {about} with latex={latex!r:.40}", f"it takes {arity} arguments", "write %s for each")
    whole = _gives(about, apply, arity, np.float64) is None
    given = _result_type(about, apply, arity, np.int64 if whole else np.float64)
    row = functions.Function(name, arity, apply, marks, sign, boolean=given == np.bool_, latex=latex, whole=whole,
                             source=_source(name, examples, seed), derivative=_derivatives(about, derivative, arity))
    examiner = Examiner(about, examples, seed)
    check_function(examiner, row)
    return Function(row, _added(row, laws, examiner), tuple(examiner.tested))


def forget(name: str) -> None:
    """Undo a declaration, and every declared law that speaks of it.  Raises OperatorError if there is none."""
    if registry.declared(name) is None:
        raise OperatorError(f"forgetting {name!r:.40}", "nothing of this name was declared",
                            "only what ra.Monoid and ra.function declared can be forgotten")
    registry.forget(name)


def _source(name: str, examples: int, seed: int) -> str:
    return f"declared with {name}, tested on {examples} examples (seed {seed})"


def _added(row: functions.Function | monoids.Monoid, laws: Iterable[str], examiner: Examiner) -> tuple[Law, ...]:
    """The laws of a row, after they were tested and all were added to the tables."""
    register = registry.register_function if isinstance(row, functions.Function) else registry.register_monoid
    before = registry.declared(row.name)
    known = registry.declared_with(before) if before else {}
    with registry.declarations():
        if before:
            registry.forget(row.name)
        register(row)
        implied = registry.declared_with(row)
        for place, formula in enumerate(getattr(row, "derivative", None) or ()):
            check_derivative(examiner, row, place, parse(formula, dict.fromkeys("abc"[:row.arity], ("l",)), ()))
        for text in [laws] if isinstance(laws, str) else laws:
            statement = read_law(text, row.name, row.source)
            check_law(examiner, statement)
            registry.register_law(statement.law)
        found = registry.declared_with(row)
    if before is None:
        register(row)
        for law in found.values():
            if law.name not in implied:
                registry.register_law(law)
    elif known == found and _same(before, row):
        registry.renew(row)
    else:
        raise OperatorError(f"declaring {examiner.about}", "it was declared before, and otherwise",
                            f"call ra.forget({row.name!r}) first, or take another name")
    return tuple(found.values())


def _same(a: functions.Function | monoids.Monoid, b: functions.Function | monoids.Monoid) -> bool:
    """Whether two rows say the same, as when a notebook's cell is run twice."""
    if type(a) is not type(b) or replace(a, apply=b.apply) != b:
        return False
    plain = isinstance(a.apply, FunctionType) and isinstance(b.apply, FunctionType)
    return a.apply is b.apply or plain and _content(a.apply) == _content(b.apply)


def _content(apply: FunctionType) -> tuple:
    cells = [cell.cell_contents for cell in apply.__closure__ or ()]
    return apply.__code__, apply.__defaults__, tuple(map(id, cells))


# what is given

def _check_name(about: str, name: object) -> None:
    table = {**FUNCTIONS, **MONOIDS}
    if not is_name(name) or not name.isascii() or len(name) < 2:
        raise OperatorError(f"declaring {about}", f"{name!r:.40} is not a name that formulas can use",
                            "use at least two letters, digits or _, and no Python keyword")
    if name in _RESERVED or name in table and not table[name].source:
        raise OperatorError(f"declaring {about}", "the name has a meaning already", "take another name")


def _check_choice(about: str, what: str, given: object, allowed: Iterable[str]) -> None:
    if given not in tuple(allowed):
        raise OperatorError(f"declaring {about} with {what}={given!r:.40}", f"there is no such {what}",
                            f"choose one of {', '.join(map(repr, allowed))}")


def _identity(about: str, identity: object, whole: bool) -> int | float:
    number = isinstance(identity, bool | int | float | np.number) and identity == identity
    if not number or whole and (math.isinf(identity) or int(identity) != identity):
        raise OperatorError(f"declaring {about} with identity={identity!r:.40}",
                            "it is not a whole number" if whole else "it is not a number", "give the e with e ⊕ a = a for all a")
    return int(identity) if whole else float(identity)


def _marks(about: str, monotone: str | Sequence[str], arity: int) -> tuple[str, ...]:
    marks = (monotone,) if isinstance(monotone, str) and arity == 1 else tuple(monotone)
    if not marks or not any(marks):
        return ()
    for mark in marks:
        _check_choice(about, "mark", mark, _MARKS)
    if len(marks) != arity:
        raise OperatorError(f"declaring {about} with {len(marks)} marks", f"it takes {arity} arguments",
                            'give one mark for each: monotone=("s", "-")')
    return marks


def _derivatives(about: str, derivative: str | Sequence[str], arity: int) -> tuple[str, ...] | None:
    formulas = (derivative,) if isinstance(derivative, str) else tuple(derivative)
    if formulas in ((), ("",)):
        return None
    if len(formulas) != arity or not all(isinstance(formula, str) for formula in formulas):
        raise OperatorError(f"declaring {about} with derivative={derivative!r:.60}", f"it takes {arity} arguments",
                            'give one formula for each, in a, b and c: derivative=("b", "a")')
    return formulas


def _arity(about: str, apply: Callable) -> int:
    """How many arrays a callable takes."""
    if isinstance(apply, np.ufunc):
        number = apply.nin
    else:
        try:
            parameters = inspect.signature(getattr(apply, "pyfunc", apply)).parameters.values()
        except (TypeError, ValueError):
            parameters = ()
        number = len([each for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD and each.default is each.empty])
    if not 1 <= number <= 3:
        raise OperatorError(f"declaring {about}", f"its callable takes {number} arrays, as far as can be seen",
                            "give a function of one to three arrays, such as lambda a: np.log1p(np.exp(a))")
    return number


def _check_binary(about: str, apply: Callable) -> None:
    if _arity(about, apply) != 2:
        raise OperatorError(f"declaring {about}", "its callable does not take two arrays", "give a ⊕ b as a function of a and b")


def _result_type(about: str, apply: Callable, arity: int, dtype: type) -> np.dtype:
    """The type of numbers a callable gives.  Raises OperatorError if it does not take arrays of `dtype`."""
    given = _gives(about, apply, arity, dtype)
    if given is None:
        raise OperatorError(f"declaring {about}", f"its callable does not take arrays of {np.dtype(dtype)}",
                            "write it with NumPy functions; a monoid on whole numbers is declared with domain=\"integer\"")
    return given


def _gives(about: str, apply: Callable, arity: int, dtype: type) -> np.dtype | None:
    """What a callable gives for arrays that broadcast to two rows of three; None if it does not take them."""
    operands = [np.array([[1], [2]], dtype), np.array([1, 3, 4], dtype), np.array([[2]], dtype)][:arity]
    if arity == 1:
        operands = [np.array([[1, 2, 3], [4, 5, 6]], dtype)]
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(apply(*operands))
            single = [np.asarray(apply(*each)) for each in zip(*(np.split(np.ravel(o), 6) for o in
                      np.broadcast_arrays(np.zeros((2, 3)), *operands)[1:]), strict=True)]
    except TypeError:
        return None
    except Exception as error:
        raise OperatorError(f"declaring {about}", f"its callable raised {type(error).__name__}: {error}",
                            "it must take whole arrays: write it with NumPy functions, or wrap it in np.vectorize") from error
    if result.shape != (2, 3) or result.dtype.kind not in "biuf" or not np.array_equal(
            np.ravel(result), np.ravel(single), equal_nan=True):
        raise OperatorError(f"declaring {about}", f"its callable gives {result.dtype} of shape {result.shape} for (2, 3)",
                            "it must give one number for each element of its arrays, whatever the others are")
    return result.dtype
