"""The explorer's tabs Proof and Kernel, its pictures, and the app as a whole, driven without a browser."""

import base64
import dataclasses
import re
import threading
import time
import xml.etree.ElementTree as ElementTree

import ipywidgets as widgets
import numpy as np
import pytest
from explored import explorer, sessions, work  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from pages import Page

import redfuser_algebra as ra
from redfuser_algebra.explorer import app, cascade_tab, discovery_tab, fields, kernel_tab, pictures, proof_tab, session, update_tab
from redfuser_algebra.prove.certificate import Stopped


# --- proof --------------------------------------------------------------------------------------------------------


def test_evidence_comes_in_and_adds_up_to_the_certificate(explorer):
    explorer.front.selected_index = 4
    tab = explorer.tabs[4]
    tab.examples.value = 5
    tab.prove()
    explorer.work.wait()
    assert tab.certificate.examples == 5 and tab.certificate.status == "proved and tested"
    assert {id: tuple(found) for id, found in tab.board.evidence.items()} == {
        row.id: row.evidence for row in tab.certificate.rows if row.id in tab.board.evidence}
    assert Page(tab.board.html()).well_formed
    laws = Page(tab.laws.value)
    assert laws.well_formed and laws.tags.count("summary") == len(tab.certificate.laws) and "exp(a + b) = exp(a) * exp(b)" in laws.text


def test_a_proof_is_stopped_and_what_was_found_is_kept(explorer):
    explorer.front.selected_index = 4
    tab = explorer.tabs[4]
    tab.examples.value = 100_000
    tab.prove()
    while tab.progress.bar.value < 50:
        time.sleep(0.01)
    assert tab.run.disabled and tab.progress.box.layout.display == ""
    tab.progress.stop.click()
    explorer.work.wait()
    assert "Stopped" in tab.said.value and tab.certificate.status == "incomplete" and tab.certificate.proved
    assert not tab.run.disabled and tab.progress.box.layout.display == "none"


def test_what_is_heard_survives_a_stop():
    heard = []

    def told(done, whole):
        if heard:
            raise KeyboardInterrupt

    with pytest.raises(Stopped) as stopped:
        ra.fuse(ra.operators["variance"]).certify(progress=told, heard=lambda id, evidence: heard.append((id, evidence)))
    kept = [(row.id, evidence) for row in stopped.value.certificate.rows for evidence in row.evidence]
    assert heard and set(map(repr, heard)) <= set(map(repr, kept))


def test_a_refusal_shows_its_witness_and_computes_it_again(explorer):
    explorer.operator_tab.names.value = "mean_absolute_deviation"
    explorer.work.wait()
    explorer.front.selected_index = 4
    explorer.work.wait()
    tab = explorer.tabs[4]
    assert "<svg" in tab.drawing.value and "unbounded-rank" in tab.text.value and tab.proving.layout.display == "none"
    tab.recheck()
    explorer.work.wait()
    assert "the numbers prove it" in tab.said.value


@given(st.fractions().filter(bool))
def test_the_magnitude_of_a_rational(x):
    assert 10.0 ** proof_tab.magnitude(str(x)) == pytest.approx(abs(float(x)), rel=1e-6)


@pytest.mark.parametrize("written, power", [("1/" + "1" + "0" * 400, -400), ("[1.5e-500 +/- 1e-510]", -499.8239), ("[-2.00 +/- 0.01]", 0.30103), ("7", 0.845098)])
def test_the_magnitude_of_numbers_that_no_float_holds(written, power):
    assert proof_tab.magnitude(written) == pytest.approx(power, abs=1e-4)


@pytest.mark.parametrize("name", ["mean_absolute_deviation", "quant_gemm", "count_above_mean", "kmeans_second_step", "n_unique"])
def test_witnesses_are_drawn(name):
    witness = ra.decide(ra.operators[name]).refusal.witness
    ElementTree.fromstring(proof_tab.witness_picture(witness))


# --- kernel -------------------------------------------------------------------------------------------------------


def test_the_marked_lines_are_those_that_rebase_or_guard(sessions):
    source = sessions["softmax"].verdict.fused.kernel().source
    lines = source.split("\n")
    marked = {lines[number - 1] for number in kernel_tab.marked_lines(source)}
    assert any(line.startswith("def rebase_") for line in marked) and any("anchored(" in line for line in marked)
    assert not [line for line in lines if "rebase_" in line and line not in marked]
    assert not [line for line in marked if line.startswith(("import", "@", "def fold"))]
    assert kernel_tab.marked_lines(ra.fuse(ra.operators["gemv_dot"]).kernel().source) == set()


def test_traffic_counts_bytes(sessions):
    found = sessions["attention"].verdict
    lengths = kernel_tab.usual_lengths(found.operator, "l", 1000)
    assert kernel_tab.traffic(found, lengths, 4) == {"K": (3 * 4 * 64_000, 4 * 64_000), "V": (4 * 64_000, 4 * 64_000)}


def test_schedules_are_ranked_and_can_be_chosen(explorer):
    explorer.front.selected_index = 5
    explorer.work.wait()
    tab = explorer.tabs[5]
    chosen = [schedule for _, schedule in tab.schedule.options]
    assert (chosen[0], tab.schedule.index) == (kernel_tab.CHOSEN[1], 0) and len(chosen) > 2
    ranked = kernel_tab.schedules(tab.kernel, tab.lengths())
    assert [seconds for _, seconds in ranked] == sorted(seconds for _, seconds in ranked)
    tab.schedule.value = chosen[2]
    explorer.work.wait()
    assert tab.kernel.schedule == chosen[2] and "<pre" in tab.source.value and "<svg" in tab.drawing.value
    tab.target.value = "cuda"
    tab.target.value = "cpu"
    explorer.work.wait()
    assert tab.schedule.index == 0, "a list of choices that shows none"


def test_a_kernel_is_run_compared_and_written(explorer, tmp_path):
    explorer.front.selected_index = 5
    tab = explorer.tabs[5]
    tab.length.value, tab.path.value = 300, str(tmp_path / "kernel.py")
    tab.compare()
    explorer.work.wait()
    shown = Page(tab.figures.value)
    assert shown.well_formed and "l = 300" in shown.text
    found = kernel_tab.compared(explorer.session.verdict.fused, tab.kernel, tab.lengths(), {}, "float32", lambda done, whole: None)
    assert 0 <= found.apart < 1e-5
    tab.export()
    explorer.work.wait()
    (content,) = re.findall(r"base64,([\w+/=]+)", tab.link.value)
    assert base64.b64decode(content).decode() == (tmp_path / "kernel.py").read_text(encoding="utf-8")


def test_a_kernel_for_gpus_is_shown_audited_and_written(explorer, tmp_path, monkeypatch):
    explorer.front.selected_index = 5
    tab = explorer.tabs[5]
    tab.dtype.value = "float64"
    tab.target.value = "cuda"
    tab.dtype.value, tab.architecture.value = "bfloat16", "sm_80"
    explorer.work.wait()
    assert (tab.kernel.dtype, tab.kernel.architecture) == ("bfloat16", "sm_80") and "rebase_s" in Page(tab.source.value).text
    assert tab.run.layout.display == "none" and tab.audit.layout.display == "" and tab.path.value == "softmax_cuda.py"
    looked = []
    monkeypatch.setattr(kernel_tab, "find_spec", lambda name: name)
    monkeypatch.setattr(type(tab.kernel), "audit", lambda kernel, *, sizes, progress: looked.append(sizes) or type("A", (), {"passed": True, "picture": ""})())
    tab.look()
    explorer.work.wait()
    assert looked == [kernel_tab.AUDITED] and "passed" in tab.figures.value
    monkeypatch.setattr(kernel_tab, "find_spec", lambda name: None)
    tab.look()
    explorer.work.wait()
    assert "numba-cuda is not installed" in tab.figures.value and "fault" not in tab.figures.value
    tab.path.value = str(tmp_path / "gpu.py")
    tab.export()
    explorer.work.wait()
    assert "bfloat16" in (tmp_path / "gpu.py").read_text(encoding="utf-8") and "Download gpu.py" in tab.link.value
    tab.dtype.value = "float16"
    tab.export()
    explorer.work.wait()
    assert "float16" in (tmp_path / "gpu.py").read_text(encoding="utf-8") and "Download gpu.py" in tab.link.value
    tab.target.value = "cpu"
    explorer.work.wait()
    assert tab.dtype.value == "float32" and tab.run.layout.display == "" and tab.kernel.source.startswith("import math")


def test_products_by_wgmma_are_offered_where_there_are_any_and_followed(explorer, tmp_path, monkeypatch):
    explorer.operator_tab.names.value = "attention"
    explorer.front.selected_index = 5
    explorer.work.wait()
    tab = explorer.tabs[5]

    def asked(**controls):
        for name, value in controls.items():
            getattr(tab, name).value = value
        explorer.work.wait()
        return [label for label, _ in tab.schedule.options][1:], Page(tab.note.value).text

    assert "16 bits" in asked(target="cuda")[1] and tab.schedule.disabled
    assert asked(dtype="float16") == (["products by wgmma"], "Products by wgmma and copies by TMA: compiled for sm_90a and executed on the CPU; no GPU has run them yet.")
    assert not tab.schedule.disabled and "wgmma" not in Page(tab.source.value).text
    tab.figures.value = "the audit of the kernel before"
    asked(schedule=kernel_tab.WARPGROUPS)
    assert "wgmma" in Page(tab.source.value).text and tab.kernel.printed.wgmma and not tab.figures.value
    monkeypatch.setattr(ra.Fused, "certify", lambda fused, progress: "of-no-account")
    tab.path.value = str(tmp_path / "wgmma.py")
    tab.export()
    explorer.work.wait()
    assert "Products by wgmma" in (tmp_path / "wgmma.py").read_text(encoding="utf-8") and "Download" in tab.link.value
    assert asked(architecture="sm_80") == ([], "Not offered is a CUDA kernel of attention by wgmma for sm_80: only sm_90a has that instruction; choose sm_90a, or leave wgmma out.")
    assert tab.schedule.index == 0 and tab.schedule.disabled and not tab.kernel.printed.wgmma and tab.kernel.architecture == "sm_80"
    asked(target="cpu", architecture="sm_90a")
    assert len(tab.schedule.options) > 2 and not tab.schedule.disabled and not tab.note.value
    explorer.operator_tab.names.value = "softmax"
    explorer.work.wait()
    assert "it multiplies no matrices" in asked(target="cuda", dtype="float16")[1] and tab.schedule.disabled and "<pre" in tab.source.value


def test_a_file_that_cannot_be_written_is_a_sentence(explorer, tmp_path):
    explorer.front.selected_index = 5
    tab = explorer.tabs[5]
    tab.path.value = str(tmp_path / "none" / "kernel.py")
    tab.export()
    explorer.work.wait()
    shown = Page(tab.link.value).text
    assert shown and "fault" not in shown and "Download" not in shown


# --- the app ------------------------------------------------------------------------------------------------------


def below(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from below(child)


def test_every_control_has_a_label(explorer):
    controls = [w for w in below(explorer.root) if isinstance(w, widgets.widget_description.DescriptionWidget | widgets.Button)
                and not isinstance(w, widgets.HTML | widgets.HTMLMath)]
    assert len(controls) > 20 and not [control for control in controls if not control.description]
    assert not [control for control in controls if isinstance(control, widgets.Button) and not control.tooltip]
    assert list(explorer.front.titles) == ["Operator", "Cascade", "Discovery", "Update rule", "Proof", "Kernel"]


@pytest.mark.parametrize("name", ["quant_gemm", "softmax_then_layernorm", "topk_mean_fixed", "gemv_dot", "argmax_argmin"])
def test_all_tabs_show_any_operator(explorer, name):
    explorer.operator_tab.names.value = name
    explorer.work.wait()
    for place in range(6):
        explorer.front.selected_index = place
        explorer.work.wait()
    pages = [w.value for w in below(explorer.root) if isinstance(w, widgets.HTML | widgets.HTMLMath)]
    shown = [Page(page) for page in pages]
    assert all(page.well_formed for page in shown) and "This is a fault" not in "".join(page.text for page in shown)


def test_running_a_cell_again_closes_what_it_showed(monkeypatch):
    monkeypatch.setattr(app, "_cell", lambda: "cell 1")
    first = ra.explore()
    again = ra.explore("variance")
    first.work.wait()
    assert again.session.operator is ra.operators["variance"] and not first.session.listeners
    assert first.operator_tab.names.comm is None and again.operator_tab.names.comm is not None
    monkeypatch.setattr(app, "_cell", lambda: "cell 2")
    other = ra.explore("sum(x, l)")
    assert again.session.listeners and other.session.operator.name == "formula"
    for each in (again, other):
        each.close()


def test_a_choice_is_decided_once(explorer, monkeypatch):
    decided = []
    monkeypatch.setattr(app, "decide_both", lambda operator, told: decided.append(operator.name) or session.decide_both(operator, told))
    explorer.operator_tab.names.value = "variance"
    explorer.work.wait()
    explorer.front.selected_index = 1
    explorer.front.selected_index = 0
    explorer.operator_tab.search.value = "vari"
    explorer.operator_tab.search.value = ""
    explorer.work.wait()
    assert decided == ["variance"]


def test_the_operator_is_marked_anew_when_its_tab_is_opened(explorer):
    names, number, marked = explorer.operator_tab.names, explorer.session.number, []
    explorer.front.selected_index = 1
    names.observe(lambda change: marked.append(change.new), "value")
    explorer.front.selected_index = 0
    assert marked == [None, "softmax"] and explorer.session.number == number


def test_what_can_be_explored(work):
    def scaled(x: "l", w: "l"):
        return ra.sum(w * x, "l") / ra.sum(w, "l")

    fused = ra.fuse(scaled)
    for about_, name in ((scaled, "scaled"), (fused, "scaled"), (ra.decide(scaled), "scaled"), (fused.operator, "scaled"), ("softmax", "softmax")):
        assert app._operator(about_).name == name
    for wrong in (3, "sofmax", "sum(x, l"):
        with pytest.raises(ra.OperatorError):
            app._operator(wrong)
    assert "redfuser lab" in repr(app.Explorer(work=work))


def test_a_notebook_is_given_the_widgets(explorer):
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in (bundle[0] if isinstance(bundle, tuple) else bundle)


def test_pictures_are_the_same_bytes_in_the_colour_of_the_page(sessions):
    (found,) = sessions["attention"].verdict.discoveries
    one, other = cascade_tab.cascade_picture(found), cascade_tab.cascade_picture(found)
    root = ElementTree.fromstring(one)
    assert one == other and pictures.INK not in one and "currentColor" in one and len(one) < 60_000
    assert root.get("role") == "img" and "3 sweeps as written, 1 fused" in root.get("aria-label")


@pytest.mark.parametrize("number, written", [(0.0, "0"), (-1.5, "−1.5"), (1e8, "1e8"), (float("nan"), "NaN"), (-np.inf, "−∞"), (1.23456e-7, "1.235e−7")])
def test_numbers_in_few_letters(number, written):
    assert pictures.short(number) == written


# --- what takes long ----------------------------------------------------------------------------------------------


def test_nothing_that_takes_long_holds_a_control(explorer, monkeypatch):
    """Whatever a control asks for is done in a thread; the thread of the notebook never waits for it."""
    where = {}
    for module, name in ((cascade_tab, "cascades_html"), (discovery_tab, "choice_html"), (discovery_tab, "steps"), (update_tab, "computed"),
                         (proof_tab, "Board"), (proof_tab, "refusal_html"), (proof_tab, "witness_picture"), (kernel_tab, "prepared"),
                         (app, "decide_both")):
        def noted(*given, done=getattr(module, name), name=name):
            where.setdefault(name, set()).add(threading.current_thread())
            return done(*given)

        monkeypatch.setattr(module, name, noted)
    for chosen in ("variance", "mean_absolute_deviation"):
        explorer.operator_tab.names.value = chosen
        explorer.work.wait()
        for place in (*range(1, 6), 0):
            explorer.front.selected_index = place
            explorer.work.wait()
    explorer.operator_tab.names.value = "softmax"
    explorer.work.wait()
    for place, change in ((3, ("offset", 1e4)), (3, ("kind", "raw")), (5, ("dtype", "float64")), (5, ("length", 100)), (5, ("target", "cuda"))):
        explorer.front.selected_index = place
        setattr(getattr(explorer.tabs[place], change[0]), "value", change[1])
        explorer.work.wait()
    assert len(where) == 9 and set().union(*where.values()) == {explorer.work._thread}


def test_a_bar_is_seen_while_something_goes_on_and_not_for_what_is_quick(work):
    gate, seen = threading.Event(), threading.Event()
    running, told = fields.Running("Working", work, "job"), []
    running.box.layout.observe(lambda change: seen.set() if change.new == "" else None, "display")
    running.start(lambda tell: tell(1, 2) or gate.wait(30), told.append, told.append)
    assert seen.wait(30) and running.bar.value == 50
    gate.set()
    work.wait()
    assert told == [True] and running.box.layout.display == "none"
    seen.clear()
    quick = fields.Running("Working", work, "quick", patience=30)
    quick.start(lambda tell: 1, told.append, told.append)
    work.wait()
    assert told == [True, 1] and quick.box.layout.display == "none" and quick._timer is None


def test_another_operator_does_not_wait_for_a_proof(explorer):
    explorer.front.selected_index = 4
    explorer.work.wait()
    tab = explorer.tabs[4]
    tab.examples.value = 100_000
    tab.prove()
    while tab.progress.bar.value < 50:
        time.sleep(0.01)
    explorer.operator_tab.names.value = "variance"
    waited = time.monotonic()
    while explorer.session.verdict is None and time.monotonic() < waited + 30:
        time.sleep(0.01)
    assert explorer.session.verdict.operator is ra.operators["variance"] and tab.certificate is None
    explorer.work.wait()
    assert not tab.run.disabled and tab.progress.box.layout.display == "none" and "0 proved" in Page(tab.text.value).text


def test_of_twenty_changes_the_last_one_wins(explorer, monkeypatch):
    explorer.front.selected_index = 5
    explorer.work.wait()
    tab, made, gate = explorer.tabs[5], [], threading.Event()
    prepared = kernel_tab.prepared

    def slowly(verdict, lengths, params, how):
        made.append(lengths["l"])
        gate.wait(1)
        return dataclasses.replace(prepared(verdict, lengths, params, how), launches=f"l = {lengths['l']}")

    monkeypatch.setattr(kernel_tab, "prepared", slowly)
    for length in range(1001, 1021):
        tab.length.value = length
    gate.set()
    explorer.work.wait()
    assert len(made) <= 20 and made[-1] == 1020 and tab.launches.value == "l = 1020"
