"""Monoids and functions of a user's own, truly declared: they work everywhere, and end with their scope.

What is refused is in test_declared_falsely.
"""

import numpy as np
import pytest
import redfuser_algebra as ra
from declarations import MULTIPLIES, SHIFTS, cube, logaddexp, rows, tables  # noqa: F401
from redfuser_algebra import cli
from redfuser_algebra.algebra import registry
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.laws import LAWS, Law
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover import rulesets
from redfuser_algebra.language import law_text
from redfuser_algebra.prove.declaring.law_values import FLOATS, RATIONALS, WHOLE
from redfuser_algebra.run.conditioning import error_bounds
from redfuser_algebra.run.law_examples import example
from redfuser_algebra.run.reductions import reduced

SCALES = "gcd(a * c) = gcd(a) * c  where invariant(c), nonnegative(c)"


def streamed(fused, cuts, **arrays):
    """The result of two streams over parts of the axis l, merged."""
    parts = [fused.stream() for _ in range(2)]
    pieces = {name: np.split(array, cuts, axis=-1) for name, array in arrays.items()}
    for place in range(len(cuts) + 1):
        parts[place * 2 // (len(cuts) + 1)].update(**{name: piece[place] for name, piece in pieces.items()})
    return parts[0].merge(parts[1]).result()


# true declarations


def test_a_declared_monoid_with_its_law_runs_in_one_pass(rng):
    lae = logaddexp()

    @ra.operator
    def shifted(x: "l"):
        m = ra.max(x, "l")
        return lae(x - m, "l"), m

    fused, x = ra.fuse(shifted), rng.standard_normal((3, 100)) * 20
    expected = np.logaddexp.reduce(x, axis=-1) - x.max(-1)
    assert "logaddexp_of_add" in fused.form.laws and fused.form.words == 2
    for got in (fused(x), fused(x, backend="reference"), streamed(fused, [7, 7, 60], x=x)):
        assert np.allclose(got[0], expected) and (got[1] == x.max(-1)).all()


def test_without_its_law_it_does_not():
    logaddexp(laws=())
    assert ra.decide(ra.parse_operator("logaddexp(x - max(x, l), l)")).status == "undecided"
    assert ra.decide(ra.parse_operator("logaddexp(x, l)")).fusable


def test_a_declared_monoid_can_be_a_pivot(rng):
    logaddexp()
    softmax = ra.parse_operator("sum(exp(x - logaddexp(x, l)) * y, l)")
    fused, (x, y) = ra.fuse(softmax), rng.standard_normal((2, 50)) * 3
    weights = np.exp(x - x.max())
    for got in (fused(x, y), streamed(fused, [11, 30], x=x, y=y)):
        assert np.allclose(got, (weights * y).sum() / weights.sum())


def test_whole_numbers_stay_whole(rng):
    gcd = ra.Monoid("gcd", np.gcd, identity=0, domain="natural", laws=[SCALES])

    @ra.operator(assume="m > 0")
    def scaled(x: "l", m: int):
        return gcd(x * (ra.max(x, "l") * 0 + m), "l")

    fused, x = ra.fuse(scaled), rng.integers(1, 50, 40) * 6
    assert fused(x, m=5) == 5 * np.gcd.reduce(x) and streamed_with(fused, x, m=5) == 5 * np.gcd.reduce(x)
    assert fused(x.astype(np.int8), m=1) == np.gcd.reduce(x.astype(np.int8).astype(int))
    with pytest.raises(ra.OperatorError, match="gcd of float64"):
        fused(x / 2, m=1)


def streamed_with(fused, x, **given):
    return fused.stream(**given).update(x[:9]).update(x[9:]).result()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 64])
def test_a_callable_that_is_no_ufunc_is_folded_in_halves(length, rng):
    ra.Monoid("orr", lambda a, b: a + b - a * b, identity=0, domain="unit")
    values, mask = rng.random((2, length, 3)), rng.random((2, length, 3)) < 0.5
    assert np.allclose(reduced("orr", values, 1), 1 - np.prod(1 - values, axis=1, keepdims=True))
    masked = 1 - np.prod(1 - values, axis=1, keepdims=True, where=mask)
    assert np.allclose(reduced("orr", values, -2, mask), masked)


def test_a_mask_leaves_elements_out_and_nothing_is_the_identity():
    logaddexp()
    fused = ra.fuse(ra.parse_operator("logaddexp(x, l, where=x > 0)"))
    assert fused([np.log(2), -1.0, np.log(3), np.nan]) == pytest.approx(np.log(5))
    assert fused([-1.0, -2.0]) == -np.inf and fused(np.zeros(0)) == -np.inf


def test_a_law_of_a_function_makes_a_stuck_operator_fuse(rng):
    text = "sum(cube(x / max(abs(x), l)), l)"
    with ra.declarations():
        cube(laws=())
        assert ra.decide(ra.parse_operator(text)).fused is None
    cube()
    fused, x = ra.fuse(ra.parse_operator(text)), rng.standard_normal(100)
    assert "cube_of_multiply" in fused.form.laws
    for got in (fused(x), streamed(fused, [3, 50], x=x)):
        assert got == pytest.approx(((x / np.abs(x).max()) ** 3).sum())


def test_an_increasing_function_goes_through_max_by_its_mark(rng):
    text = "max(cube(x - max(y, l)), l)"
    with ra.declarations():
        cube(laws=())
        assert ra.decide(ra.parse_operator(text)).fused is None
    cube(laws=(), monotone="s")
    fused, (x, y) = ra.fuse(ra.parse_operator(text)), rng.standard_normal((2, 30))
    assert "max_of_cube" in fused.form.laws and fused(x, y) == pytest.approx(((x - y.max()) ** 3).max())


def test_a_decreasing_function_turns_max_into_min(rng):
    ra.function("fall", lambda a: -(a**3), monotone="-")
    fused, (x, y) = ra.fuse(ra.parse_operator("max(fall(x - max(y, l)), l)")), rng.standard_normal((2, 30))
    assert fused(x, y) == pytest.approx((-((x - y.max()) ** 3)).max())


@pytest.mark.parametrize("sign, law", [("positive", "max_scales_by_nonnegative"), ("", "max_scales_by_any_sign")])
def test_the_sign_of_a_function_is_known(sign, law, rng):
    ra.function("weight", lambda a: np.exp(a), sign=sign)
    fused, (x, y) = ra.fuse(ra.parse_operator("max(x * weight(max(y, l)), l)")), rng.standard_normal((2, 20))
    assert law in fused.form.laws and fused(x, y) == pytest.approx((x * np.exp(y.max())).max())


def test_laws_of_differences_and_quotients_meet_terms_without_a_pivot():
    """a − b and a / b are written as the e-graph writes them, or the law would never apply."""
    ra.function("grow", lambda a: np.exp2(a), laws=["grow(a - b) = grow(a) / grow(b)"])
    assert ra.decide(ra.parse_operator("sum(grow(x - max(x, l)), l)"), prefer="raw").fusable
    assert LAWS["grow_of_add_of_multiply"].rhs == "grow(a) * reciprocal(grow(b))"


# the parts of the product that meet it


def test_a_declared_name_is_read_and_printed():
    lae, f = logaddexp(), cube()
    x, mask = ra.parse("x[b, l]"), ra.parse("x[b, l] > 0")
    written = lae(f(x), "l", where=mask)
    assert str(written) == "logaddexp(cube(x[b, l]), l, where=x[b, l] > 0)" and ra.parse(str(written)) is written
    assert ra.reduce(lae, f(x), "l", where=mask) is written and ra.reduce("logaddexp", f(x), "l", mask) is written
    operator = ra.parse_operator("logaddexp(cube(x), l)")
    assert operator.inputs == {"x": ("l",)} and ra.parse_operator(str(operator)) == operator
    assert r"\operatorname*{logaddexp}" in operator._repr_latex_() and "logaddexp(d" in ra.fuse(operator).form.update


def test_any_monoid_may_be_reduced_by():
    x = ra.parse("x[l]")
    assert ra.reduce("sum", x, "l") is ra.sum(x, "l") and ra.reduce("argmax", x, "l") is ra.argmax(x, "l")
    for wrong, words in (("topk", "ra.topk"), ("cumsum", "declare it with ra.Monoid"), (np.add, "declare it")):
        with pytest.raises(ra.OperatorError, match=words):
            ra.reduce(wrong, x, "l")


def test_a_declared_law_is_explained_on_values():
    logaddexp()
    tried = example(LAWS["logaddexp_of_add"])
    assert tried.left == pytest.approx(tried.right)
    ra.Monoid("gcd", np.gcd, identity=0, domain="natural", laws=[SCALES])
    tried = example(LAWS["gcd_of_multiply"])
    assert tried.left == tried.right and set(map(type, tried.values["a"])) == {int}


def test_the_command_explains_a_law_that_a_file_declares(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(f"""import numpy as np, redfuser_algebra as ra
lae = ra.Monoid("logaddexp", np.logaddexp, identity=-np.inf, laws=[{SHIFTS!r}])
gap = ra.parse_operator("logaddexp(x - max(x, l), l)", "gap")""")
    assert cli.status_of(["explain", "logaddexp_of_add", str(path)]) == 0
    told = capsys.readouterr().out
    for words in ("logaddexp(a + c) = logaddexp(a) + c", "tested on 100 examples (seed 0): no proof", "by gap", "example"):
        assert words in told


def test_the_command_points_at_the_line_of_a_false_declaration(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("""import numpy as np, redfuser_algebra as ra

ra.Monoid("minus", np.subtract, identity=0)""")
    assert cli.status_of(["fuse", str(path)]) == 2
    told = capsys.readouterr().err
    assert "mine.py, line 3" in told and "minus(0.0, a) = a is false for a = 1" in told


def test_how_far_rounding_goes_through_a_declared_monoid_is_not_known(rng):
    logaddexp()
    operator = ra.parse_operator("logaddexp(x, l), max(x, l)")
    assert list(error_bounds(operator, operator.bind(rng.standard_normal(5)), 1e-16)) == [np.inf, 0.0]


def test_the_record_says_what_was_tested_and_on_what():
    lae, f, gcd = logaddexp(), cube(), ra.Monoid("gcd", np.gcd, identity=0, domain="natural")
    assert {t.numbers for t in lae.tested} == {FLOATS.name} and {t.numbers for t in gcd.tested} == {WHOLE.name}
    assert [(t.claim, t.numbers) for t in f.tested] == [("cube(a * b) = cube(a) * cube(b)", RATIONALS.name)]
    claims = [t.claim for t in lae.tested]
    assert len(claims) == 6 and claims[-1] == " ".join(SHIFTS.split()) and all(t.examples > 20 for t in lae.tested)
    assert all(each in str(lae) for each in (*claims, "logaddexp_of_add"))


@pytest.mark.parametrize("apply, expected", [(np.maximum, "propagates"), (np.fmax, "skipped"),
                                             (lambda a, b: np.where(a > b, a, b), "varies")])
def test_what_nan_does_is_recorded(apply, expected):
    assert ra.Monoid("larger", apply, identity=-np.inf).row.nan == expected


def test_parts_of_an_ordered_monoid_are_merged_in_their_order():
    first = ra.Monoid("first", lambda a, b: np.where(a == 0, b, a), identity=0, commutative=False)
    fused, x = ra.fuse(ra.parse_operator("first(x, l)")), np.array([0.0, 3.0, 0.0, 4.0, 5.0])
    assert fused.form.order == "ordered" and fused(x) == 3.0 and first.row.commutative is False
    late, early = fused.stream(start=3).update(x[3:]), fused.stream(start=0).update(x[:3])
    assert late.result() == 4.0 and late.merge(early).result() == 3.0
    with pytest.raises(ra.OperatorError, match="does not commute"):
        fused.stream(start=2).update(x[2:3]).merge(fused.stream(start=0).update(x[:1]).merge(
            fused.stream(start=3).update(x[3:])))


def test_a_law_reads_as_it_prints():
    cube(laws=["cube_shrinks: cube(a * (1/2)) = cube(a) * 0.125", "cube_turns: cube(-a) = -cube(a) where positive(a)"])
    assert str(LAWS["cube_shrinks"]) == "cube_shrinks: cube(a * 0.5) = cube(a) * 0.125  [exact]"
    assert str(LAWS["cube_turns"]) == "cube_turns: cube(-1 * a) = -1 * cube(a)  where positive(a)  [exact]"
    for law in (LAWS["cube_shrinks"], LAWS["cube_turns"]):
        with ra.declarations():
            del LAWS[law.name]
            assert law_text.read_law(str(law), "cube", law.source).law == law


# scopes


def test_a_scope_ends_what_was_declared_in_it():
    before = rows()
    with ra.declarations():
        lae = logaddexp()
        operator = ra.parse_operator("logaddexp(x - max(x, l), l)")
        fused, again = ra.fuse(operator), ra.fuse(ra.parse_operator("logaddexp(x, l)"))
        assert rows() != before
    assert rows() == before
    for forgotten in (lambda: lae(ra.parse("x[l]"), "l"), lambda: again(np.ones(3)), lambda: ra.parse("logaddexp(x[l], l)"),
                      lambda: fused.form.laws, lambda: ra.fuse(operator)):
        with pytest.raises(ra.OperatorError, match="logaddexp"):
            forgotten()
    assert str(operator)


def test_an_error_in_a_scope_ends_it_too():
    with pytest.raises(KeyError), ra.declarations():
        cube()
        raise KeyError
    assert "cube" not in FUNCTIONS


def test_a_law_declared_anew_is_not_answered_from_the_old_one():
    """Same names, other content: the e-graph must not go on with what it has loaded."""
    text = "sum(bend(x * max(x, l)), l)"
    with ra.declarations():
        ra.function("bend", lambda a: a**3, laws=["bend_law: bend(a * b) = bend(a) * bend(b)"])
        assert ra.decide(ra.parse_operator(text)).fusable
    with ra.declarations():
        ra.function("bend", np.exp2, laws=["bend_law: bend(a + b) = bend(a) * bend(b)"])
        assert ra.decide(ra.parse_operator(text)).fused is None
        assert ra.decide(ra.parse_operator("sum(bend(x + max(x, l)), l)")).fusable


def test_a_name_may_be_a_function_first_and_a_monoid_later():
    law = "both_law: both(a + c) = both(a) + c  where invariant(c)"
    with ra.declarations():
        ra.function("both", lambda a: a, laws=[law])
        assert "App1" in rulesets.law_program(LAWS["both_law"]) and ra.decide(ra.parse_operator("sum(both(x + max(x, l)), l)"))
    with ra.declarations():
        ra.Monoid("both", np.maximum, identity=-np.inf, laws=[law])
        assert "Red" in rulesets.law_program(LAWS["both_law"])
        assert ra.fuse(ra.parse_operator("both(x + max(x, l), l)"))([1.0, 2.0]) == 4.0


def test_running_a_cell_twice_declares_once():
    for _ in range(2):
        logaddexp(), cube()
    with pytest.raises(ra.OperatorError, match="declared before, and otherwise"):
        logaddexp(laws=())
    with pytest.raises(ra.OperatorError, match="declared before, and otherwise"):
        ra.function("cube", lambda a: a * a * a, laws=[MULTIPLIES])
    assert "logaddexp_of_add" in LAWS
    ra.forget("logaddexp")
    logaddexp(laws=())
    assert "logaddexp_of_add" not in LAWS
    with pytest.raises(ra.OperatorError, match="forgetting 'max'"):
        ra.forget("max")


def test_forgetting_takes_every_law_along_that_speaks_of_it():
    cube()
    ra.function("root", np.cbrt, laws=["root(cube(a)) = a"])
    ra.forget("cube")
    assert "root" in FUNCTIONS and [law for law in LAWS.values() if "cube" in law.lhs + law.rhs] == []


@pytest.mark.parametrize("register, row", [
    (registry.register_law, Law("max_shifts", "max(a + c)", "max(a)", source="me")),
    (registry.register_law, Law("component", "max(a + c)", "max(a)", source="me")),
    (registry.register_law, Law("max_slips", "max(a + c)", "max(a)")),
    (registry.register_monoid, MONOIDS["sum"]), (registry.register_function, FUNCTIONS["exp"]),
])
def test_tables_take_only_new_rows_that_say_where_they_come_from(register, row):
    with pytest.raises(ValueError, match=row.name):
        register(row)
