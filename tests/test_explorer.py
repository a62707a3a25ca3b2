"""The explorer's models and widgets, driven without a browser: work, and the tabs from Operator to Update rule."""

import json
import re
import threading

import numpy as np
import pytest
from explored import FUSED, explorer, sessions, work  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from pages import Page

import redfuser_algebra as ra
from redfuser_algebra.discover import egraph
from redfuser_algebra.explorer import cascade_tab, discovery_tab, operator_tab, session, update_tab
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.run.laid_out import environment_of
from redfuser_algebra.run.environment import Environment
from redfuser_algebra.run.evaluate import evaluate
from redfuser_algebra.run.state import lift

# --- work ---------------------------------------------------------------------------------------------------------


def test_of_many_jobs_of_a_name_the_last_one_is_told(work):
    begun, ran, told, gate = threading.Event(), [], [], threading.Event()

    def job(number):
        ran.append(number)
        begun.set()
        gate.wait(30)
        return number

    work.start("slider", lambda tell: job(0), told.append, told.append)
    begun.wait(30)
    for number in range(1, 20):
        work.start("slider", lambda tell, number=number: job(number), told.append, told.append)
    gate.set()
    work.wait()
    assert told == [19] and ran == [0, 19]


def test_jobs_of_different_names_are_all_done(work):
    told = []
    for name in "abc":
        work.start(name, lambda tell, name=name: name, told.append, told.append)
    work.wait()
    assert told == ["a", "b", "c"] and len([t for t in threading.enumerate() if t is work._thread]) == 1


def test_a_stopped_job_ends_where_it_tells_how_far_it_is(work):
    begun, done, failed, gate = threading.Event(), [], [], threading.Event()

    def job(tell):
        tell(0, 2)
        begun.set()
        gate.wait(30)
        tell(1, 2)
        done.append("went on")

    work.start("job", job, done.append, failed.append)
    begun.wait(30)
    work.stop("job")
    gate.set()
    work.wait()
    assert (done, failed) == ([], ["stopped"])


def test_a_forgotten_job_is_not_told(work):
    told, begun, gate = [], threading.Event(), threading.Event()
    work.start("job", lambda tell: (begun.set(), gate.wait(30)), told.append, told.append)
    begun.wait(30)
    work.forget("job")
    gate.set()
    work.wait()
    assert told == []


@pytest.mark.parametrize("error, said", [
    (ra.OperatorError("reading", "it is wrong", "try again"), "reading: it is wrong; try again"),
    (ZeroDivisionError("division by zero"), "fault of redfuser_algebra"),
])
def test_what_a_job_raises_is_told_in_a_sentence(work, error, said):
    def job(tell):
        raise error

    failed = []
    work.start("job", job, failed.append, failed.append)
    work.wait()
    assert len(failed) == 1 and said in failed[0] and "Traceback" not in failed[0]
    work.start("job", lambda tell: "well", failed.append, failed.append)
    work.wait()
    assert failed[1] == "well"


# --- operator -----------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["softmax", "Welford", "physics", "GEMM", "zzz", "ATTENTION", ""]), max_size=2))
def test_every_word_of_a_search_counts(words):
    found, both = set(operator_tab.matches(" ".join(words))), set(ra.operators)
    for word in words:
        both &= set(operator_tab.matches(word))
    assert found == both
    assert all(word.lower() in str(vars(ra.operators.entry(name))).lower() for name in found for word in words)


def test_a_search_narrows_the_list_and_choosing_decides(explorer):
    tab = explorer.operator_tab
    tab.search.value = "kurtosis"
    assert "kurtosis" in tab.names.options and len(tab.names.options) < len(ra.operators)
    assert explorer.session.operator is ra.operators["softmax"]
    tab.names.value = "kurtosis"
    explorer.work.wait()
    assert explorer.session.verdict.operator is ra.operators["kurtosis"] and "kurtosis" in explorer.said.value


@pytest.mark.parametrize("text, said", [
    ("sum(exq(x), l)", "exq"), ("sum(x", "("), ("import os", "not a formula"), ("__import__('os').system('ls')", "not a function"),
    ("x + 1", None), ("", "Nothing is written"), ("<script>alert(1)</script>", ""), ("sum(x, l) +", ""),
])
def test_a_mistake_is_said_under_the_field_with_its_place(explorer, text, said):
    tab, before = explorer.operator_tab, explorer.session.number
    tab.formula.value = text
    tab.use_formula()
    explorer.work.wait()
    shown = Page(tab.mistake.value + explorer.said.value)
    assert shown.well_formed and "script" not in shown.tags and "Traceback" not in shown.text
    if said is None:
        assert "no reduction" in shown.text
    else:
        assert said in shown.text and explorer.session.number == before
    if text in ("sum(exq(x), l)", "sum(x"):
        assert "^" in shown.text and text in shown.text


def test_a_formula_is_decided_and_its_fields_appear(explorer):
    tab = explorer.operator_tab
    tab.formula.value = "m = max(x, l)\nt * sum(exp(x - m), l)"
    tab.use_formula()
    explorer.work.wait()
    assert explorer.session.verdict.status == "fusable" and not tab.mistake.value
    assert [field.description for field in (*tab.lengths.children, *tab.params.children)] == ["Length of l", "t"]
    tab.lengths.children[0].value, tab.params.children[0].value = 5, 2.5
    arrays = explorer.session.arrays()
    assert arrays["x"].shape == (5,) and arrays["t"] == 2.5


@pytest.mark.parametrize("name", [*FUSED, "mean_absolute_deviation", "linear_regression", "kb_gn_affine_min", "ece_fixed_bins"])
def test_arrays_fit_and_the_seed_decides(name):
    found = session.Session()
    found.choose(ra.operators[name])
    first, again = found.arrays(), found.arrays()
    found.operator.bind(**first)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    found.seed = 1
    assert any(not np.array_equal(value, found.arrays()[key]) for key, value in first.items())
    found.lengths["l"] = 23
    assert all(23 in found.arrays()[key].shape for key, axes in found.operator.inputs.items() if "l" in axes)


# --- cascade ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, written, fused", [
    ("softmax", {"x": 3}, {"x": 2}), ("attention", {"K": 3, "V": 1}, {"K": 1, "V": 1}), ("variance", {"x": 2}, {"x": 1})])
def test_who_loads_what_how_often(sessions, name, written, fused):
    (found,) = sessions[name].verdict.discoveries
    assert cascade_tab.loads(cascade_tab.as_written(found)) == written and cascade_tab.loads(cascade_tab.as_fused(found)) == fused


@pytest.mark.parametrize("name", [*FUSED, "mean_absolute_deviation"])
def test_fusing_loads_nothing_new_and_nothing_more_often(sessions, name):
    for found in sessions[name].verdict.discoveries:
        written, fused = cascade_tab.as_written(found), cascade_tab.as_fused(found)
        assert all(count <= cascade_tab.loads(written)[each] for each, count in cascade_tab.loads(fused).items())
        assert all(other < place for sweeps in (written, fused) for place, sweep in enumerate(sweeps) for other in sweep.waits)
        assert len(fused) <= len(written) or not found.form


# --- discovery ----------------------------------------------------------------------------------------------------


def value_of(term, rng_seed, axis):
    """A term at random numbers: the same name has the same numbers in every term."""
    leaves = sorted((t for t in subterms(term) if t.op in ("input", "symbol", "param")), key=str)
    axes = ("m", "n", "k", "j", "d", "e", "c", axis)
    values = {}
    for leaf in leaves:
        own = leaf.axes if leaf.op != "param" else ()
        rng = np.random.default_rng([rng_seed, *leaf.name.encode()])
        values[leaf.name] = rng.uniform(0.5, 2, [3 if a in own else 1 for a in axes])
    symbols = {leaf.name: values[leaf.name] for leaf in leaves if leaf.op == "symbol"}
    environment = Environment(axes, dict.fromkeys(axes, 3), {k: v for k, v in values.items() if k not in symbols}, symbols)
    return np.broadcast_to(evaluate(term, environment), [3] * len(axes))


@pytest.mark.parametrize("name", ["softmax", "attention", "variance", "layernorm_gemm"])
def test_every_step_of_the_search_keeps_the_value_of_the_question(sessions, name):
    compared, starts, discoveries = 0, {}, sessions[name].verdict.discoveries
    asked = [question for found in discoveries for question in found.trace]
    for step in discovery_tab.steps(discoveries):
        given_more = any(line.startswith("(union") for line in asked[step.question - 1].lines)
        if step.term is not None and step.axis == "l" and not given_more and not any(t.op == "reduce" and t.monoid != "sum" for t in subterms(step.term)):
            value = value_of(step.term, 0, step.axis)
            start = starts.setdefault(step.question, value)
            assert np.allclose(value, start, rtol=1e-9), (step, step.term)
            compared += start is not value
    assert compared >= 10


@pytest.mark.parametrize("name", [*FUSED, "mean_absolute_deviation"])
def test_the_last_step_of_a_question_is_its_answer(sessions, name):
    discoveries = sessions[name].verdict.discoveries
    steps, asked = discovery_tab.steps(discoveries), [q for found in discoveries for q in found.trace]
    last = {step.question: step for step in steps}
    for number, question in enumerate(asked, 1):
        assert (last[number].nodes, last[number].finite, last[number].iteration) == (
            question.answer.nodes, question.answer.finite, question.answer.iterations)
        sizes = [step.nodes for step in steps if step.question == number]
        assert sizes[0] == 0 and len(sizes) == question.answer.iterations + 1
    assert all(Page(discovery_tab.step_html(step)).well_formed for step in steps)


def test_why_a_form_was_chosen_names_the_danger_of_the_other(sessions):
    shown = Page(discovery_tab.choice_html(sessions["variance"].verdict, sessions["variance"].raw)).text
    assert "with raw sums" in shown and "cancels" in shown
    assert "same form" in discovery_tab.choice_html(sessions["moe_routing"].verdict, sessions["moe_routing"].verdict)


# --- update rule --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("feed", update_tab.FEEDS)
def test_merged_numbers_are_those_of_the_whole(sessions, name, feed):
    fused, arrays = sessions[name].verdict.fused, sessions[name].arrays()
    rule = update_tab.Rule(fused, arrays)
    whole = update_tab._numbers(lift(fused.form, environment_of(fused.operator, fused.operator.bind(**arrays), fused.form)))
    for seen in (1, 5, rule.length - 1):
        merged = rule.merged(seen, feed)
        stop = {update_tab.ONE: seen + 1, update_tab.TILE: min(seen + 4, rule.length), update_tab.REST: rule.length}[feed]
        for component in fused.form.state:
            together, after = merged.together[component.name], rule.history()[component.name][stop - 1]
            assert together == pytest.approx(after, rel=1e-9, abs=1e-9)
            if stop == rule.length:
                assert together == pytest.approx(whole[component.name], rel=1e-9, abs=1e-9)
            if component.monoid == "sum":
                assert merged.moved[0][component.name] + merged.moved[1][component.name] == pytest.approx(together, rel=1e-12, abs=1e-12)
            if component.fixed:
                assert merged.moved[0][component.name] == merged.parts[0][component.name]
        assert Page(update_tab.merged_html(merged)).well_formed


def test_softmax_sums_are_moved_by_the_exponential_of_how_far_the_maximum_moved(sessions):
    rule = update_tab.Rule(sessions["softmax"].verdict.fused, sessions["softmax"].arrays())
    maxima = rule.history()["m"]
    assert np.allclose(rule.factors()["s"], np.exp(np.array(maxima[:-1]) - np.array(maxima[1:])))


def test_an_offset_shows_what_raw_sums_lose(explorer):
    explorer.operator_tab.names.value = "variance"
    explorer.work.wait()
    explorer.front.selected_index = 3
    tab = explorer.tabs[3]
    tab.offset.value = 1e8
    explorer.work.wait()

    def differences():
        return dict(re.findall(r"(centred|raw)</td><td[^>]*>[^<]*</td><td[^>]*>([^<]*)<", tab.results.value))

    far = {name: 0.0 if text == "the same" else float(text.replace("−", "-")) for name, text in differences().items()}
    assert far["raw"] > 1e-2 and far["centred"] < 1e-6
    tab.kind.value = "raw"
    explorer.work.wait()
    assert "s_{2}" in tab.latex.value or "s_{1}" in tab.latex.value


def test_sliding_does_not_draw_again(explorer, monkeypatch):
    explorer.front.selected_index = 3
    explorer.work.wait()
    tab, drawn = explorer.tabs[3], []
    monkeypatch.setattr(update_tab, "history_picture", lambda rule: drawn.append(rule))
    before = {}
    for seen in range(1, tab.seen.max + 1):
        tab.seen.value = seen
        before[seen] = tab.drawing.value
    explorer.work.wait()
    assert drawn == [] and len(set(before.values())) == tab.seen.max


def test_the_e_graph_of_a_step_can_be_looked_at(explorer):
    """At the last step the sum that saw the new pivot is in one class with what is kept, times a factor."""
    explorer.front.selected_index = 2
    explorer.work.wait()
    tab = explorer.tabs[2]
    assert tab.graph.children == ()
    tab.look.value = True
    shown, _ = tab.graph.children
    (graph,) = shown.egraphs
    nodes = json.loads(graph)["nodes"]
    assert {child for node in nodes.values() for child in node["children"]} <= set(nodes) and {"x[l]", "m", "m'"} <= {n["op"] for n in nodes.values()}
    (seen,) = (node["eclass"] for node in nodes.values() if node["op"] == "sum that sees p′")
    (moved,) = ([nodes[child]["op"] for child in node["children"]] for node in nodes.values() if node["eclass"] == seen and node["op"] == "×")
    assert sorted(moved) == ["exp", "sum kept at p"]
    tab.slider.value = 0
    assert shown.egraphs != [graph]
    tab.look.value = False
    assert tab.graph.children == ()


def test_a_large_e_graph_is_not_shown(explorer, monkeypatch):
    monkeypatch.setattr(egraph, "LOOKED_AT", 30)
    explorer.front.selected_index = 2
    explorer.work.wait()
    tab = explorer.tabs[2]
    tab.look.value = True
    assert "too many to look at" in tab.graph.children[0].value
