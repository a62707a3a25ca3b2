"""The law table: every rewrite the engine may use is one row here, and every row is tested on values.

A row reads `lhs = rhs` under `requires`.  One-letter names are pattern variables.  Reductions take one argument
and run over the reduced axis l; the other functions are elementwise.  Conditions:

| condition | meaning |
|---|---|
| invariant(c) | c does not vary along l |
| varying(a) | a varies along l |
| moving(c) | c does not vary along l, and sees the new pivot |
| pivot(p, q) | p and q are the old and the new value of one pivot |
| element(a) | a does not see the new pivot |
| positive(a), nonnegative(a), nonpositive(a) | the sign, known from the terms' construction |
| bounded(a, p) | p is 0 only where every element a is, as when abs(a) is at most a multiple of p |
| below(a, q), above(a, q) | a <= q, or a >= q, for every element |
| settled(a, p, q) | a = q happens only where a = p and p = q (as when a <= p <= q) |
| distinct(a, q) | no element a has two of the values q over the contracted axis |
| follows(a, p, q) | if any element has a = q_i, then q_i is one of the positions p |

`contract`, `largest`, `smallest` and `some` are a sum, max, min and any over another axis than l; `rounded` is a rounding
declared reassociable.  A max, min, argmax, topk or one of their twins is of at least one element.

Tags: `exact` holds over the reals wherever the left side is defined; `ieee` on NumPy's floats as well, with ±inf and
NaN (0 and -0 count as one: NumPy's max leaves the sign of a zero open); `rounding` only if roundings may be moved,
which the user must ask for.  `role` says when the search may apply the row: always, only where centred states are
wanted, only where raw ones are, only under other monoids than sum (`ordered`), by the normal form of terms, or never
(`disabled`: false or harmful, with the counterexample that shows it).
"""
from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Law:
    """One row: `lhs = rhs` wherever `requires` holds.  `source` is what a user declared it with; "" for this table's own."""

    name: str
    lhs: str
    rhs: str
    requires: str = ""
    tag: str = "exact"
    role: str = "always"
    counterexample: dict[str, float | list[float]] = field(default_factory=dict, hash=False)
    source: str = ""

    def __str__(self) -> str:
        condition = f"  where {self.requires}" if self.requires else ""
        return f"{self.name}: {self.lhs} = {self.rhs}{condition}  [{self.tag}]"


@dataclass(frozen=True)
class SignRule:
    """`term` has the sign `sign` wherever it is defined and `requires` holds."""

    name: str
    term: str
    sign: str
    requires: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.term} is {self.sign}" + (f"  where {self.requires}" if self.requires else "")


SIGNS = (
    SignRule("exp_is_positive", "exp(a)", "positive"),
    SignRule("exp2_is_positive", "exp2(a)", "positive"),
    SignRule("reciprocal_of_nonnegative", "reciprocal(a)", "positive", "nonnegative(a)"),
    SignRule("abs_is_nonnegative", "abs(a)", "nonnegative"),
    SignRule("sqrt_is_nonnegative", "sqrt(a)", "nonnegative"),
    SignRule("square_is_nonnegative", "a * a", "nonnegative"),
    SignRule("product_of_nonnegatives", "a * b", "nonnegative", "nonnegative(a), nonnegative(b)"),
    SignRule("product_of_positives", "a * b", "positive", "positive(a), positive(b)"),
    SignRule("scaled_is_nonnegative", "scaled(a, b)", "nonnegative", "nonnegative(a), nonnegative(b)"),
    SignRule("ratio_is_nonnegative", "ratio(a, b)", "nonnegative", "nonnegative(a), nonnegative(b)"),
    SignRule("sum_of_nonnegatives", "a + b", "nonnegative", "nonnegative(a), nonnegative(b)"),
    SignRule("positive_is_nonnegative", "a", "nonnegative", "positive(a)"),
)
"""How signs spread to the terms that laws make; the signs of an operator's own terms are known beforehand."""

SEMIRING = (
    Law("multiply_commutes", "a * b", "b * a", tag="ieee", role="normal form"),
    Law("multiply_associates", "(a * b) * c", "a * (b * c)", role="normal form"),
    Law("multiply_one", "a * 1", "a", tag="ieee", role="normal form"),
    Law("distribute", "(a + b) * c", "a * c + b * c"),
    Law("difference", "a - b", "a + (-1) * b", tag="ieee", role="raw"),
    Law("negate", "-a", "(-1) * a", tag="ieee", role="normal form"),
    Law("divide", "a / b", "a * reciprocal(b)", role="raw"),
    Law("gather_invariants", "(a * c) * d", "a * (c * d)", "varying(a), invariant(c), invariant(d)",
        role="ordered"),
    Law("gather_varying", "(a * c) * b", "(a * b) * c", "varying(a), varying(b), invariant(c)", role="ordered"),
)

LINEARITY = (
    Law("sum_adds", "sum(a + b)", "sum(a) + sum(b)"),
    Law("sum_pulls_invariant", "sum(c * a)", "c * sum(a)", "invariant(c)", role="normal form"),
    Law("sum_of_invariant", "sum(c)", "c * sum(1)", "invariant(c)", role="normal form"),
    Law("contract_adds", "contract(a + b)", "contract(a) + contract(b)"),
    Law("contract_absorbs_factor", "contract(a) * b", "contract(a * b)"),
    Law("some_of_distinct", "some(a == q)", "contract(a == q)", "distinct(a, q)", tag="ieee", role="normal form"),
    Law("sum_of_choice", "sum(where(c, a, b))", "where(c, sum(a), sum(b))", "invariant(c)", tag="ieee", role="normal form"),
    Law("equal_to_choice", "where(a == where(c, p, q), b, d)", "where(c, where(a == p, b, d), where(a == q, b, d))",
        tag="ieee", role="normal form"),
    Law("sum_enters_contract", "sum(contract(a))", "contract(sum(a))"),
    Law("cancel", "a + (-1) * a", "0"),
)

RECENTRE = (
    Law("recentre_difference", "a - q", "shift(a, p) + shift(p, q)", "pivot(p, q), element(a)", role="centred"),
    Law("recentre_ratio", "a / q", "scaled(a, p) * ratio(p, q)", "pivot(p, q), element(a), bounded(a, p)",
        role="centred"),
    Law("reset", "a == q", "(a == p) * (p == q)", "pivot(p, q), element(a), settled(a, p, q)", tag="ieee"),
    Law("reset_unequal", "a != q", "(a != p) * (p == q) + (p != q)", "pivot(p, q), element(a), settled(a, p, q)",
        tag="ieee"),
    *(Law(f"{name}_by_difference", f"a - q {sign} 0", f"a {sign} q")
      for name, sign in (("equal", "=="), ("unequal", "!="), ("above", ">"), ("reaching", ">="), ("below", "<"),
                         ("down_to", "<="))),
    Law("reset_choice", "where(a == q, b, c)", "where(p == q, where(a == p, b, c), c)", "pivot(p, q), element(a), settled(a, p, q)",
        tag="ieee", role="ordered"),
    Law("reset_choice_unequal", "where(a != q, b, c)", "where(p == q, where(a != p, b, c), b)", "pivot(p, q), element(a), settled(a, p, q)",
        tag="ieee", role="ordered"),
    Law("reset_among", "a == q", "contract((a == p) * (p == q))", "follows(a, p, q)", tag="ieee"),
)

AT_A_BOUND = (
    Law("reaching_from_below", "a >= q", "a == q", "below(a, q)"),
    Law("reaching_from_above", "a <= q", "a == q", "above(a, q)"),
    Law("staying_below", "a < q", "a != q", "below(a, q)"),
    Law("staying_above", "a > q", "a != q", "above(a, q)"),
    Law("never_above", "a > q", "0", "below(a, q)", tag="ieee"),
    Law("never_below", "a < q", "0", "above(a, q)", tag="ieee"),
    Law("maximum_with_upper_bound", "maximum(a, q)", "q", "below(a, q)"),
    Law("maximum_with_lower_bound", "maximum(a, q)", "a", "above(a, q)"),
    Law("minimum_with_upper_bound", "minimum(a, q)", "a", "below(a, q)"),
    Law("minimum_with_lower_bound", "minimum(a, q)", "q", "above(a, q)"),
)

EXPONENTIALS = (
    Law("exp_of_sum", "exp(a + b)", "exp(a) * exp(b)"),
    Law("exp_of_log", "exp(log(a))", "a", "positive(a)"),
    Law("exp2_of_sum", "exp2(a + b)", "exp2(a) * exp2(b)"),
    Law("log_of_product", "log(a * b)", "log(a) + log(b)", "positive(a), positive(b)"),
    Law("log_of_exp", "log(exp(a))", "a"),
    Law("log_of_reciprocal", "log(reciprocal(a))", "(-1) * log(a)", "positive(a)"),
    Law("log2_of_product", "log2(a * b)", "log2(a) + log2(b)", "positive(a), positive(b)"),
    Law("log2_of_reciprocal", "log2(reciprocal(a))", "(-1) * log2(a)", "positive(a)"),
    Law("log2_of_exp2", "log2(exp2(a))", "a"),
    Law("sin_of_sum", "sin(a + b)", "sin(a) * cos(b) + cos(a) * sin(b)"),
    Law("cos_of_sum", "cos(a + b)", "cos(a) * cos(b) + (-1) * (sin(a) * sin(b))"),
)

POWERS = (
    Law("reciprocal_of_product", "reciprocal(a * b)", "reciprocal(a) * reciprocal(b)"),
    Law("reciprocal_of_reciprocal", "reciprocal(reciprocal(a))", "a"),
    Law("reciprocal_of_exp", "reciprocal(exp(a))", "exp((-1) * a)"),
    Law("sqrt_of_exp", "sqrt(exp(a))", "exp(a * 0.5)"),
    Law("sqrt_of_product", "sqrt(a * b)", "sqrt(a) * sqrt(b)", "nonnegative(a), nonnegative(b)"),
    Law("power_of_product", "power(a * b, r)", "power(a, r) * power(b, r)", "positive(a), positive(b), invariant(r)"),
    Law("positive_power_of_product", "power(a * b, r)", "power(a, r) * power(b, r)",
        "nonnegative(a), nonnegative(b), positive(r), invariant(r)"),
    Law("power_of_sum", "power(c, a + b)", "power(c, a) * power(c, b)", "positive(c)"),
    Law("power_of_exp", "power(exp(a), r)", "exp(a * r)", "invariant(r)"),
    Law("power_of_reciprocal", "power(reciprocal(a), r)", "reciprocal(power(a, r))", "positive(a), invariant(r)"),
    Law("abs_of_product", "abs(a * b)", "abs(a) * abs(b)", tag="ieee"),
    Law("abs_of_nonnegative", "abs(a)", "a", "nonnegative(a)", tag="ieee"),
    Law("abs_of_nonpositive", "abs(a)", "(-1) * a", "nonpositive(a)", tag="ieee"),
    Law("abs_squared", "abs(a) * abs(a)", "a * a", tag="ieee"),
    Law("abs_is_maximum", "abs(a)", "maximum(a, (-1) * a)", tag="ieee"),
    Law("maximum_scales", "maximum(a * c, b * c)", "maximum(a, b) * c", "moving(c), nonnegative(c)"),
    Law("maximum_with_zero_scales", "maximum(a * c, 0)", "maximum(a, 0) * c", "moving(c), nonnegative(c)"),
    Law("maximum_of_difference_scales", "maximum(a * c + (-1) * (b * c), 0)", "maximum(a + (-1) * b, 0) * c",
        "moving(c), nonnegative(c)"),
    Law("abs_of_difference_scales", "abs(a * c + (-1) * (b * c))", "abs(a + (-1) * b) * c", "moving(c), nonnegative(c)"),
    Law("maximum_of_nonnegative", "maximum(a, 0)", "a", "nonnegative(a)"),
    Law("minimum_of_nonpositive", "minimum(a, 0)", "a", "nonpositive(a)"),
    Law("minimum_scales", "minimum(a * c, b * c)", "minimum(a, b) * c", "moving(c), nonnegative(c)"),
    Law("sign_of_product", "sign(a * b)", "sign(a) * sign(b)"),
    Law("sign_of_positive", "sign(a)", "1", "positive(a)"),
)


_PARTIAL = ("log", "log2", "sqrt")
"""NaN at some floats: a max over such elements is NaN, while the function of their max need not be."""


def _ordered(larger: str, smaller: str, pick: str, drop: str) -> tuple[Law, ...]:
    """max and its twins: increasing maps go through, decreasing ones turn it into the dual."""
    rows = (
        Law(f"{larger}_shifts", f"{larger}(a + c)", f"{larger}(a) + c", "invariant(c)"),
        Law(f"{larger}_scales_by_nonnegative", f"{larger}(a * c)", f"{larger}(a) * c",
            "invariant(c), nonnegative(c)"),
        Law(f"{larger}_scales_by_nonpositive", f"{larger}(a * c)", f"{smaller}(a) * c",
            "invariant(c), nonpositive(c)"),
        Law(f"{larger}_scales_by_any_sign", f"{larger}(a * c)", f"{pick}({larger}(a) * c, {smaller}(a) * c)",
            "invariant(c)"),
        # fmax skips a NaN that maximum has already spread to the other operand.
        Law(f"{larger}_of_{pick}", f"{larger}({pick}(a, b))", f"{pick}({larger}(a), {larger}(b))",
            tag="exact" if larger.startswith("f") else "ieee"),
        Law(f"{larger}_of_{drop}", f"{larger}({drop}(a, c))", f"{drop}({larger}(a), c)", "invariant(c)", tag="ieee"),
        Law(f"{larger}_of_choice", f"{larger}(where(c, a, b))", f"where(c, {larger}(a), {larger}(b))", "invariant(c)",
            tag="ieee"),
        Law(f"{larger}_of_reciprocal", f"{larger}(reciprocal(a))", f"reciprocal({smaller}(a))", "positive(a)",
            tag="ieee"),
        Law(f"{larger}_of_invariant", f"{larger}(c)", "c", "invariant(c)", tag="ieee"),
    )
    return rows + tuple(
        Law(f"{larger}_of_{f}", f"{larger}({f}(a))", f"{f}({larger}(a))", tag="exact" if f in _PARTIAL else "ieee")
        for f in ("exp", "exp2", "log", "log2", "sqrt", "tanh", "arctan", "floor", "ceil", "round", "sign"))


ORDER = (
    *_ordered("max", "min", "maximum", "minimum"),
    *_ordered("min", "max", "minimum", "maximum"),
    *_ordered("fmax", "fmin", "maximum", "minimum"),
    *_ordered("fmin", "fmax", "minimum", "maximum"),
    Law("max_enters_largest", "max(largest(a))", "largest(max(a))", tag="ieee"),
    Law("min_enters_smallest", "min(smallest(a))", "smallest(min(a))", tag="ieee"),
    Law("max_of_square", "max(a * a)", "max(abs(a)) * max(abs(a))", tag="ieee"),
    Law("topk_shifts", "topk(a + c)", "topk(a) + c", "invariant(c)"),
    Law("topk_scales_by_nonnegative", "topk(a * c)", "topk(a) * c", "invariant(c), nonnegative(c)"),
    *(Law(f"topk_of_{f}", f"topk({f}(a))", f"{f}(topk(a))", tag="exact" if f in _PARTIAL else "ieee")
      for f in ("exp", "exp2", "log", "log2", "sqrt", "tanh", "arctan")),
)


def _positions(larger: str, smaller: str) -> tuple[Law, ...]:
    """argmax and its twins see only the order: strictly increasing maps drop out, decreasing ones turn it."""
    return (
        Law(f"{larger}_ignores_shift", f"{larger}(a + c)", f"{larger}(a)", "invariant(c)"),
        Law(f"{larger}_ignores_positive_scale", f"{larger}(a * c)", f"{larger}(a)", "invariant(c), positive(c)"),
        *(Law(f"{larger}_ignores_{f}", f"{larger}({f}(a))", f"{larger}(a)")
          for f in ("exp", "exp2", "log", "log2", "sqrt", "tanh", "arctan")),
        *((Law(f"{larger}_of_negated", f"{larger}((-1) * a)", f"{smaller}(a)", tag="ieee"),) if smaller else ()),
    )


POSITIONS = (
    *_positions("argmax", "argmin"),
    *_positions("argmin", "argmax"),
    *_positions("argtopk", ""),
    Law("argmax_of_maximum", "argmax(maximum(a, b))",
        "where(max(a) > max(b), argmax(a), where(max(b) > max(a), argmax(b), minimum(argmax(a), argmax(b))))"),
    Law("argmin_of_minimum", "argmin(minimum(a, b))",
        "where(min(a) < min(b), argmin(a), where(min(b) < min(a), argmin(b), minimum(argmin(a), argmin(b))))"),
)

THRESHOLDS = (
    *(Law(f"any_{name}", f"any(a {sign} c)", f"{best}(a) {sign} c", "invariant(c)", tag="ieee")
      for name, sign, best in (("above", ">", "fmax"), ("reaching", ">=", "fmax"),
                               ("below", "<", "fmin"), ("down_to", "<=", "fmin"))),
    *(Law(f"all_{name}", f"all(a {sign} c)", f"{worst}(a) {sign} c", "invariant(c)", tag="ieee")
      for name, sign, worst in (("above", ">", "min"), ("reaching", ">=", "min"),
                                ("below", "<", "max"), ("down_to", "<=", "max"))),
    *(Law(f"all_equal{where}", f"all({left} == {right})", "(max(a) <= c) & (min(a) >= c)", "invariant(c)", tag="ieee")
      for where, left, right in (("", "a", "c"), ("_mirrored", "c", "a"))),
    *(Law(f"any_unequal{where}", f"any({left} != {right})", "~((max(a) <= c) & (min(a) >= c))", "invariant(c)", tag="ieee")
      for where, left, right in (("", "a", "c"), ("_mirrored", "c", "a"))),
    *(Law(f"swap_{name}", f"c {sign} a", f"a {mirrored} c", "invariant(c)", tag="ieee")
      for name, sign, mirrored in (("above", ">", "<"), ("reaching", ">=", "<="),
                                   ("below", "<", ">"), ("down_to", "<=", ">="))),
    Law("any_or", "any(a | b)", "any(a) | any(b)", tag="ieee"),
    Law("all_and", "all(a & b)", "all(a) & all(b)", tag="ieee"),
    Law("any_of_choice", "any(where(c, a, b))", "where(c, any(a), any(b))", "invariant(c)", tag="ieee"),
    Law("all_of_choice", "all(where(c, a, b))", "where(c, all(a), all(b))", "invariant(c)", tag="ieee"),
    *(Law(f"{name}{order}", f"{left.replace('and', sign)}", right, "element(b)", tag="ieee", role="ordered")
      for order, pair in (("", "a and b"), ("_mirrored", "b and a"))
      for name, left, sign, right in (("any_of_both", f"any({pair})", "&", "any(where(a, b, 0))"),
                                      ("all_of_either", f"all({pair})", "|", "all(where(a, 1, b))"),
                                      ("choice_of_both", f"where({pair}, c, d)", "&", "where(a, where(b, c, d), d)"))),
    Law("any_not", "any(~a)", "~all(a)", tag="ieee"),
    Law("all_not", "all(~a)", "~any(a)", tag="ieee"),
)

PRODUCTS = (
    Law("prod_multiplies", "prod(a * b)", "prod(a) * prod(b)", "varying(a), varying(b)"),
    Law("prod_pulls_invariant", "prod(a * c)", "prod(a) * power(c, sum(1))", "varying(a), moving(c)"),
    Law("prod_of_choice", "prod(where(c, a, b))", "where(c, prod(a), prod(b))", "invariant(c)", tag="ieee"),
    Law("prod_of_invariant", "prod(c)", "power(c, sum(1))", "invariant(c)"),
    Law("prod_of_exp", "prod(exp(a))", "exp(sum(a))"),
    Law("prod_of_abs", "prod(abs(a))", "abs(prod(a))", tag="ieee"),
    Law("prod_of_sqrt", "prod(sqrt(a))", "sqrt(prod(a))", "nonnegative(a)"),
    Law("prod_of_power", "prod(power(a, r))", "power(prod(a), r)", "positive(a), invariant(r)"),
    Law("prod_of_reciprocal", "prod(reciprocal(a))", "reciprocal(prod(a))"),
    Law("prod_is_sign_and_log", "prod(a)", "prod(sign(a)) * exp2(sum(log2(where(a == 0, 1, abs(a)))))",
        role="alternative"),
)

ROUNDING = (
    Law("rounding_moves_ratio", "rounded(a * ratio(p, q))", "rounded(a) * ratio(p, q)", "pivot(p, q)", tag="rounding"),
    *(Law(f"rounding_moves_{f}_of_shift", f"rounded(a * {f}(shift(p, q)))", f"rounded(a) * {f}(shift(p, q))", "pivot(p, q)", tag="rounding")
      for f in ("exp", "exp2")),
    Law("rounding_moves_divisor", "rounded(a * reciprocal(q))", "rounded(a * reciprocal(p)) * ratio(p, q)",
        "pivot(p, q), positive(p)", tag="rounding"),
)

DISABLED = (
    Law("max_scales_by_any_factor", "max(a * c)", "max(a) * c", "invariant(c)", role="disabled",
        counterexample={"a": [1.0, 2.0], "c": -1.0}),
    Law("abs_of_sum", "abs(a + b)", "abs(a) + abs(b)", role="disabled", counterexample={"a": [1.0], "b": [-1.0]}),
    Law("divide_self", "a / a", "1", role="disabled", counterexample={"a": [0.0]}),
    Law("multiply_zero", "a * 0", "0", role="disabled", counterexample={"a": [float("inf")]}),
    Law("sqrt_of_square", "sqrt(a * a)", "a", role="disabled", counterexample={"a": [-1.0]}),
    Law("log_of_any_product", "log(a * b)", "log(a) + log(b)", role="disabled",
        counterexample={"a": [-1.0], "b": [-1.0]}),
    Law("sum_of_maximum", "sum(maximum(a, b))", "maximum(sum(a), sum(b))", role="disabled",
        counterexample={"a": [1.0, 0.0], "b": [0.0, 1.0]}),
    Law("round_scales", "round(a * c)", "round(a) * c", "invariant(c)", role="disabled",
        counterexample={"a": [0.4], "c": 2.0}),
    Law("max_of_sum", "max(a + b)", "max(a) + max(b)", role="disabled",
        counterexample={"a": [1.0, 0.0], "b": [0.0, 1.0]}),
    Law("prod_pulls_factor_once", "prod(c * a)", "c * prod(a)", "invariant(c)", role="disabled",
        counterexample={"a": [1.0, 1.0], "c": 2.0}),
    Law("argmax_ignores_any_scale", "argmax(a * c)", "argmax(a)", "invariant(c)", role="disabled",
        counterexample={"a": [1.0, 2.0], "c": -1.0}),
    Law("any_above_by_max", "any(a > c)", "max(a) > c", "invariant(c)", role="disabled",
        counterexample={"a": [float("nan"), 1.0], "c": 0.0}),
)

LAWS: dict[str, Law] = {
    law.name: law
    for law in (*SEMIRING, *LINEARITY, *RECENTRE, *AT_A_BOUND, *EXPONENTIALS, *POWERS, *ORDER, *POSITIONS, *THRESHOLDS,
                *PRODUCTS, *ROUNDING, *DISABLED)
}
