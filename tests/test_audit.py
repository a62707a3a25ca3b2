"""The audit: what it says of a sound kernel, that it fails an unsound one, and its figures for cards."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from cuda_kernels import drawn_case, error, kernel, limit, needs_toolchain

import redfuser_algebra as ra
from redfuser_algebra.bench.audits import Asked, declared_draws, markdown, nameless, recorded, several
from redfuser_algebra.cli import status_of
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import const, subterms
from redfuser_algebra.ptx.cards import CARDS, card_named, estimate, occupancy
from redfuser_algebra.run import evaluate
from redfuser_algebra.run.audit import audited, case, sizes_of
from redfuser_algebra.run.cuda import CudaKernel
from redfuser_algebra.run.export import draws
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.settled import settled

KERNELS = Path(ra.__file__).parent.parent / "kernels"
A100, H100 = CARDS["A100"], CARDS["H100"]


@pytest.mark.parametrize(("card", "registers", "shared", "threads", "expected"), [
    (A100, 32, 0, 256, 1.0), (A100, 64, 0, 256, 0.5), (A100, 255, 0, 256, 0.125), (H100, 128, 0, 1024, 0.0),
    (A100, 32, 80 * 1024, 128, 2 * 4 / 64), (H100, 32, 0, 32, 0.5)])
def test_occupancy(card, registers, shared, threads, expected):
    """65536 registers, 32 blocks and 64 warps per multiprocessor; a block costs 1 KB of shared memory besides its own."""
    assert occupancy(card, registers, shared, threads).part == expected


def test_the_slowest_resource_binds():
    copied = estimate(A100, 2039e3, Counter())
    assert copied.bound == "memory" and copied.memory == pytest.approx(1.0) and copied.roofline == 1.0
    busy = estimate(A100, 2039e3, Counter({"fma.rn.f64": 108 * 1410 * 4, "mov.f64": 10**9}))
    assert busy.bound == "double" and busy.double == pytest.approx(4.0) and busy.roofline == pytest.approx(0.25)
    assert estimate(A100, 1.0, Counter({"ex2.approx.ftz.f32": 108 * 1410})).bound == "special"


def test_an_unknown_card_is_refused():
    with pytest.raises(OperatorError, match="choose one of A100"):
        card_named("abacus")


@needs_toolchain
def test_a_sound_kernel_passes():
    heard = []
    found = kernel("logsumexp").audit(sizes=(3, 2500), card="A100", progress=lambda done, of: heard.append((done, of)))
    assert found.passed and {b.architecture for b in found.binaries} == {"sm_80", "sm_90a"}
    assert [(c.length, c.mode) for c in found.cases] == [(3, "in step"), (3, "random warps"), (2500, "in step")]
    assert all(b.registers > 0 and b.occupancy > 0 and b.instructions > 0 for b in found.binaries)
    assert found.estimate.bound in ("memory", "issue") and heard[-1][0] <= heard[-1][1]
    assert not any(replace(found.binaries[0], **fault).passed for fault in ({"stack": 8}, {"spilled": 8}, {"fits": replace(found.binaries[0].fits, part=0.0)}))
    told = json.loads(json.dumps(found.to_json()))
    assert told["passed"] and told["operator"] == "logsumexp" and "2500, in step: ok" in str(found)


def test_inputs_are_drawn_as_the_catalogue_declares():
    """Masses are positive: about 0 their sum, of which a centre is a quotient, is next to nothing for some seeds."""
    made = kernel("moment_of_inertia")
    arrays = case(made, draws(made.operator) | declared_draws(made.operator), 255, 0).arrays
    assert arrays["m"].shape == (2, 255) and arrays["m"].min() >= 0.5 and arrays["r"].min() < 0


@needs_toolchain
def test_sizes_have_as_many_elements_as_are_wanted():
    """The 5 largest of 3 are nothing to audit; asked for all the same, they are refused in words."""
    @ra.operator
    def largest(x: "l", some: int = 5):
        return ra.sum(ra.topk(x, "l", some)[0], "top")

    made = ra.fuse(largest).kernel("cuda")
    assert min(sizes_of(made, "quick")) == 31 and sizes_of(kernel("logsumexp"), "quick")[0] == 1
    with pytest.raises(OperatorError, match="auditing largest at length 2.*list other lengths"):
        made.audit(sizes=(2,))
    wider = replace(made, program=replace(made.program, stages=tuple(tuple(replace(u, count=const(10**4)) for u in stage) for stage in made.program.stages)))
    with pytest.raises(OperatorError, match="all are shorter"):
        sizes_of(wider, "full")


@needs_toolchain
def test_unsound_kernels_fail():
    made = kernel("logsumexp")
    wrong = replace(made, printed=replace(made.printed, body=made.printed.body.replace("number < vectors", "number + 1 < vectors")))
    beyond = replace(made, printed=replace(made.printed, body=made.printed.body.replace("number < vectors", "number < vectors + 1")))
    wasteful = replace(made, printed=replace(made.printed, body=made.printed.body.replace("& 31) // SIZE", "& 15) // SIZE")))
    for bad, said in ((wrong, "error"), (beyond, "out-of-bounds"), (wasteful, "FAILED")):
        found = bad.audit(sizes=(2500,))
        assert not found.passed and said in str(found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_rounding_on_either_side_is_no_error_and_all_else_is(dtype):
    """The moment of inertia of one body is 0, whatever its place: what is left of it is the square of a rounding."""
    made = kernel("moment_of_inertia", dtype)
    rounding, one, some = np.finfo(dtype).eps, drawn_case(made, 1), drawn_case(made, 3)
    exact = np.broadcast_to(reference(made.operator, some), (2,))
    for binding, value, right in ((one, np.zeros(2), True), (one, np.full(2, rounding**2 / 4), True), (one, np.full(2, rounding), False),
                                  (some, exact * (1 + rounding), True), (some, exact * (1 + 9 * limit(made)), False)):
        assert (error(made, binding, [value]) <= limit(made)) == right
    assert error(made, one, [np.full(2, np.nan)]) == np.inf


@pytest.mark.parametrize("dtype, power, value, right", [
    ("float32", 50, np.inf, True), ("float32", 50, -np.inf, False), ("float32", 50, 3.4e38, False), ("float32", 50, np.nan, False),
    ("float16", -9, 0.0, True), ("float16", -9, 2.0**-24, False), ("float16", -7.2, 5 * 2.0**-24, True), ("float16", -7.2, 6 * 2.0**-24, False)])
def test_results_beyond_the_range_of_a_kernels_numbers_are_the_nearest_there_are(dtype, power, value, right):
    """The product of three times 2^50 is no number of float32, and 2^−27 none of float16, which has few digits for 2^−21.6; the other results are."""
    made = kernel("sample_summary", dtype)
    binding = made.operator.bind(x=np.full((2, 3), 2.0**power))
    total, _, *rest = reference(made.operator, binding)
    outputs = [np.asarray(each, dtype) for each in (total, np.full(2, value), *rest)]
    assert (error(made, binding, outputs) <= limit(made)) == right


def test_a_number_that_the_catalogue_states_for_an_array_is_what_an_audit_draws():
    drawn = {name: draw(np.random.default_rng(0), (2,)).tolist() for name, draw in ra.operators.entry("rwkv_wkv").draws.items()}
    assert drawn == {"w": [0.2, 0.2], "u": [0.3, 0.3]}


def log_forward(E, A, pi):
    """The log of the sum of α after the last element, never left."""
    a = pi + E[0]
    for e in E[1:]:
        a = np.logaddexp.reduce(a[:, None] + A, axis=0) + e
    return np.logaddexp.reduce(a)


@pytest.mark.parametrize(("about", "told"), [(0.0, True), (50.0, True), (-50.0, True), (400.0, False), (-400.0, False)])
def test_what_leaves_the_range_of_float64_on_the_way_is_told_as_far_as_anything_can(about, told):
    """α is e^±2000 after 40 elements about ±50, which is no number of float64, and e^±16000 about ±400, which is none at all."""
    entry = ra.operators.entry("hmm_forward")
    inputs = entry.inputs(np.random.default_rng(0), 40)
    inputs["E"] += about
    found = settled(entry.operator, entry.operator.bind(**inputs))
    assert found[0] == pytest.approx(log_forward(**inputs), rel=1e-12) if told else found is None


@ra.operator
def weighted_by_softmax(x: "l", v: "l"):
    p = ra.exp(x - ra.max(x, "l"))
    return ra.sum(p * v, "l") / ra.sum(p, "l")


@ra.operator
def log_of_sum(x: "l"):
    return ra.log(ra.sum(ra.exp(x), "l"))


@pytest.mark.parametrize(("operator", "inputs", "told"), [
    (weighted_by_softmax, {"x": np.array([0, -20000, -11300, -np.inf, 1]), "v": np.array([1, 2, 1e-200, 4, 5])}, (1 + 5 * np.e) / (1 + np.e)),
    (log_of_sum, {"x": np.array([-20000.0, 1])}, 1.0), (log_of_sum, {"x": np.array([-20000.0, -20001])}, None)])
def test_exponentials_too_small_for_any_number_are_told_where_they_do_not_matter(operator, inputs, told):
    found = settled(operator, operator.bind(**inputs))
    assert found[0] == pytest.approx(told, rel=1e-15) if told else found is None


def test_kernels_are_compared_with_the_logarithm_of_a_product_that_float64_has_none_of():
    """In float64 the product of 8192 sticks at the least number, and its logarithm is finite, and wrong."""
    made, entry = kernel("prod_scaled"), ra.operators.entry("prod_scaled")
    inputs = entry.inputs(np.random.default_rng(0), 8192)
    binding, (product, log) = made.operator.bind(**inputs), entry.reference(**inputs)
    wrong = reference(made.operator, binding)[1]
    assert np.isfinite(wrong) and abs(wrong - log) > 100
    for value, right in ((log, True), (1.001 * log, False), (wrong, False), (-np.inf, False)):
        assert (error(made, binding, [np.float32(product), np.float32(value)]) <= limit(made)) == right


def test_recurrences_are_evaluated_once_for_all_their_states_and_what_is_the_same_at_every_element_once(monkeypatch):
    """Otherwise most of an audit is spent on what is right: the three states of a chain take nine moves, at 5 elements as at 50."""
    entry, seen = ra.operators.entry("hmm_forward"), []
    for op in ("reduce", "scan"):
        monkeypatch.setitem(evaluate._RULES, op, lambda evaluation, term, own=evaluate._RULES[op]: (seen.append(id(term)), own(evaluation, term))[1])
    for length in (5, 50):
        settled(entry.operator, entry.operator.bind(**entry.inputs(np.random.default_rng(0), length)))
    scans = {id(term) for term in subterms(*entry.operator.outputs) if term.op == "scan"}
    each = seen[:len(seen) // 2]
    assert seen == 2 * each and len(set(each)) == len(each) and len(scans) == 3 and len(scans & set(each)) == 1


@needs_toolchain
def test_results_without_a_reference_are_said_not_to_be_compared():
    """Σ e^x about 20000 is no number of anything: the kernel's inf may be right or wrong, and says nothing."""
    @ra.operator
    def naive(x: "l"):
        return ra.log(ra.sum(ra.exp(x), "l"))

    made, draw = ra.fuse(naive).kernel("cuda"), {"x": lambda rng, shape: np.full(shape, 2e4 if shape[-1] == 31 else 1.0)}
    found = made.audit(sizes=(3, 31), drawn_by=draw)
    assert found.passed and "not compared at length 31: " in str(found) and "length 3, in step: ok: error" in str(found)
    assert [case["compared"] for case in json.loads(json.dumps(found.to_json()))["cases"]] == [True, True, False, False]
    alone = made.audit(sizes=(31,), drawn_by=draw)
    assert not alone.passed and "naive (float32): FAILED" in str(alone)


@needs_toolchain
def test_a_kernel_that_does_not_compile_has_failed_and_stops_no_other(monkeypatch, capsys, tmp_path):
    made, sound = kernel("logsumexp"), audited(kernel("logsumexp"), (3,))
    broken = replace(made, printed=replace(made.printed, body=made.printed.body.replace("number < vectors", "number < nothing")))
    monkeypatch.setattr(CudaKernel, "audit", lambda kernel, **asked: audited(broken, (3,)) if kernel.operator.name == "logsumexp" else replace(sound, operator="softmax"))
    monkeypatch.setattr(type(ra.operators), "values", lambda catalogue: [catalogue[name] for name in ("logsumexp", "softmax")])
    assert status_of(["audit", "--all", "--jobs", "1", "--table", str(tmp_path / "table.md")]) == 4
    assert "1 of 2 kernels passed" in capsys.readouterr().out
    assert re.search(r"\n- logsumexp, float32: compiling .*'nothing'.*\.\n", (tmp_path / "table.md").read_text())
    assert status_of(["audit", "logsumexp"]) == 4 and "compiling" in capsys.readouterr().out


@needs_toolchain
def test_the_command_audits_draws_and_tells_by_its_exit_code(monkeypatch, capsys, tmp_path):
    found = audited(kernel("logsumexp"), (3,))
    monkeypatch.setattr(CudaKernel, "audit", lambda kernel, **asked: found)
    assert status_of(["audit", "logsumexp", "--plot", str(tmp_path / "p.svg")]) == 0
    assert "logsumexp (float32): passed" in capsys.readouterr().out
    drawing = ElementTree.parse(tmp_path / "p.svg").getroot()
    said = [each.text for each in drawing.iter() if each.tag.endswith("text")]
    assert "memory 3.35 TB/s" in said and "tensor cores 989" in said and len([each for each in said if each.startswith("sm_")]) == 2
    point, = (each for each in drawing.iter() if each.tag.endswith("circle"))
    assert 0 < float(point.get("cx")) < 400 and 0 < float(point.get("cy")) < 300
    found = replace(found, cases=(replace(found.cases[0], fault="a fault"),))
    assert status_of(["audit", "logsumexp", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["passed"] is False


@needs_toolchain
def test_all_audits_are_kept_and_none_is_made_twice(monkeypatch, capsys, tmp_path):
    """Stopped at the third kernel, what was found is shown, kept and put into a table; the next run makes the rest, and what failed again."""
    sound, made, table = audited(kernel("logsumexp"), (3,)), [], tmp_path / "table.md"
    asking = ["audit", "--all", "--jobs", "1", "--table", str(table)]

    def audit(kernel, *, sizes, card, drawn_by):
        assert sizes == [1, 3, 31, 255, 1000, 8191, 8192]
        made.append(kernel.operator.name)
        if len(made) == 3:
            raise KeyboardInterrupt
        wrong = replace(sound.cases[0], error=2 * sound.cases[0].limit, length=8192, traffic=1.5), replace(sound.cases[0], fault="a race")
        return replace(sound, operator=kernel.operator.name, cases=wrong if len(made) == 2 else sound.cases)

    monkeypatch.setattr(CudaKernel, "audit", audit)
    monkeypatch.setattr(type(ra.operators), "values", lambda catalogue: [catalogue[name] for name in ("softmax", "logsumexp", "variance")])
    assert status_of(asking) == 130
    assert "1 of 2 kernels passed" in capsys.readouterr().out
    assert "| float32 | 1 | 1 | 0 |" in table.read_text() and "\n- logsumexp, float32: 8192: error 2.0e-04, limit 1e-04, 1.500 of the ideal bytes; 3: a race.\n" in table.read_text()
    assert "| softmax | float32 | yes | 3 | 1, 31, 255, 1000, 8191, 8192 |" in table.read_text() and "\nfloat32: variance.\n" in table.read_text()
    assert status_of([*asking, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert made == ["softmax", "logsumexp", "variance", "logsumexp", "variance"]
    assert [each["kernel"] for each in told] == made[:1] + made[3:] and all(each["passed"] for each in told)
    assert "| float32 | 3 | 0 | 0 |" in table.read_text() and "## What failed" not in table.read_text()
    table.write_text("# Notes\n")
    assert status_of(asking) == 2 and "something else" in capsys.readouterr().err
    assert status_of(["audit"]) == 2 and status_of(["audit", "softmax", "--all"]) == 2 and status_of(["audit", "softmax", "--table", "x.md"]) == 2


def test_the_table_is_the_record():
    """Nothing is lost when the table of the kernels is read and written again."""
    table = KERNELS / "AUDIT.md"
    assert markdown(Asked([], ["float32", "float16", "bfloat16"], "full", "H100"), recorded(table)) == table.read_text()


@pytest.mark.parametrize("jobs", [1, 2])
def test_several_audits_at_a_time(jobs):
    with several(jobs, abs) as results:
        assert sorted(results([-3, 1, -2])) == [1, 2, 3]


@pytest.mark.parametrize(("other", "same"), [
    ('def g(q):\n    """Less y."""\n    p = q - y  # one step\n    return p', True), ("def f(x):\n    z = y - x\n    return z", False),
    ("def f(x):\n    z = x - w\n    return z", False), ("def f(x):\n    z = x - y\n    return x", False), ("def f(y):\n    z = y - y\n    return z", False)])
def test_a_record_knows_a_kernel_whatever_its_variables_are_called(other, same):
    assert (nameless(other) == nameless("def f(x):\n    z = x - y\n    return z")) == same


def test_bad_words_are_told_in_one_message(capsys):
    for words, said in ((["audit", "softmax", "--dtype", "int9"], "choose one of float32"), (["audit", "softmax", "--plot", "/nowhere/x.svg"], "choose another")):
        assert status_of(words) == 2
        assert said in capsys.readouterr().err
