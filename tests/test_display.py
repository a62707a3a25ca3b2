"""What notebooks show: whole pages of well-formed HTML, in which nothing that comes from users is markup."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from pages import Page

import redfuser_algebra as ra
from redfuser_algebra.language.html import Fragment, Picture, element, folded, highlighted, joined, listed, paragraphs, preformatted, said, table, titled
from redfuser_algebra.lower.schedule import Schedule

texts = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40) | st.sampled_from(
    ["<script>alert(1)</script>", "a & b", '"><img src=x onerror=alert(1)>', "x' onmouseover='f()", "$\\href{javascript:f()}{x}$"])


@given(texts, texts)
def test_text_stays_text(one, other):
    page = Page(joined(titled(one, other), paragraphs([one]), listed([other]), table([one], [[other]]), preformatted(one),
                       folded(one, other), element("b", one, title=other)))
    assert page.well_formed and not {"script", "img"} & set(page.tags)
    shown = [one, other] * bool(other) + [one, other, one, other, one, one, other, one]
    assert page.text == "".join(shown)


def test_a_fragment_is_markup_and_other_strings_are_not():
    assert said(Fragment("<b>")) == "<b>" and said("<b>") == "&lt;b&gt;" == said(said("<b>"))


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=30).flatmap(lambda one: st.lists(st.sampled_from(
    [one, "def f(x):", "    return '<b>' # <i>", "", '"""', "@njit", "x = 1 < 2 & 3"]), max_size=6)), st.sets(st.integers(1, 6)))
def test_highlighting_changes_no_letter(lines, marked):
    page = Page(highlighted("\n".join(lines), marked))
    assert page.well_formed and not {"script", "b", "i"} & set(page.tags)
    assert page.text == "".join(line or " " for line in lines or [""])


OPERATORS = ("attention", "variance", "quant_gemm", "quant_gemm_reassociate", "mean_absolute_deviation", "moe_routing", "count_above_mean")


@pytest.mark.parametrize("name", OPERATORS)
def test_what_was_decided_shows_itself(name):
    verdict = ra.decide(ra.operators[name])
    page = Page(verdict._repr_html_())
    assert page.well_formed and f"{name}: {verdict.status} ({verdict.reason})" in page.text
    for found in verdict.discoveries:
        cascade = Page(found.cascade._repr_html_())
        assert cascade.well_formed and cascade.text in page.text
        assert cascade.tags.count("tr") == 1 + len(found.cascade.reductions) + len(found.cascade.outputs)
        assert str(found.cascade).count("\n") >= len(found.cascade.reductions) - 1 and "Cascade(" not in str(found.cascade)
    if verdict.fused:
        fused = Page(verdict.fused._repr_html_())
        assert fused.well_formed and str(verdict.fused.form) in fused.text
        assert all(str(danger) in page.text for danger in verdict.fused.form.dangers)
    else:
        refusal = Page(verdict.refusal._repr_html_())
        assert refusal.well_formed and refusal.text in page.text and verdict.refusal.obligation in refusal.text
        assert all(line in refusal.text for line in str(verdict.refusal.witness).splitlines())
        assert all(f"{number}: {', '.join(names)}" in refusal.text for number, names in enumerate(verdict.refusal.passes, 1))


def test_a_refusal_without_witness_claims_no_proof():
    undecided = ra.decide(ra.operators["attention"], limits=ra.Limits(nodes=1, iterations=1))
    assert undecided.status == "undecided" and "not a proof" in Page(undecided._repr_html_()).text


def test_a_kernel_shows_its_arrays_schedule_loops_and_source():
    fused = ra.fuse(ra.operators["softmax"])
    kernel, chosen = fused.kernel(dtype="float64"), fused.kernel(schedule=Schedule(64, 1, 2))
    page = Page(kernel._repr_html_())
    assert page.well_formed and "float64" in page.text and "by the sizes" in page.text and str(kernel.program) in page.text
    assert page.text.endswith("".join(line or " " for line in kernel.source.split("\n")))
    assert "elements per tile64rows per block1threads2parts of the axis1" in Page(chosen._repr_html_()).text
    assert Page(kernel.program._repr_html_()).text.endswith(str(kernel.program))


def test_a_kernel_for_gpus_shows_its_loops_and_source():
    kernel = ra.fuse(ra.operators["softmax"]).kernel("cuda", dtype="bfloat16", arch="sm_80")
    page = Page(kernel._repr_html_())
    assert page.well_formed and repr(kernel) in page.text and "bfloat16 on sm_80" in page.text and str(kernel.program) in page.text
    assert page.text.endswith("".join(line or " " for line in kernel.source.split("\n")))


def test_a_terminal_shows_what_print_does():
    fused = ra.fuse(ra.operators["variance"])
    (cascade,) = ra.cascades(fused.operator)
    refused = ra.decide(ra.operators["mean_absolute_deviation"])
    for each in (fused, fused.form, cascade, refused, refused.refusal, fused.certificate, fused.kernel(), fused.kernel().program):
        assert repr(each) == str(each) and "(operator=" not in repr(each) and "object at" not in repr(each)
    assert "float32" in str(fused.kernel()) and len(repr(Fragment("<b>" * 100))) < 40


def shown_by_ipython(code, capsys):
    InteractiveShell.instance(colors="nocolor").run_cell(code)
    return capsys.readouterr().out


@pytest.mark.parametrize("code, said", [
    ('import redfuser_algebra as ra; ra.parse("sum(exq(x), l)")', "exq"),
    ('import redfuser_algebra as ra; ra.fuse(ra.operators["quant_gemm"])', "round"),
    ('import redfuser_algebra as ra; ra.operators["sofmax"]', "softmax"),
])
def test_a_mistake_in_a_notebook_is_told_without_a_traceback(code, said, capsys):
    told = shown_by_ipython(code, capsys)
    assert "Traceback" not in told and "File" not in told and said in told
    assert [line.split(":")[0] for line in told.splitlines() if line][:3] == ["asked", "failed", "try"]


def test_other_errors_keep_their_traceback(capsys):
    assert "Traceback" in shown_by_ipython("1 / 0", capsys)


def test_a_picture_is_an_image_where_it_is_kept():
    shown = Picture('<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="a &quot;b&quot;"><text fill="currentColor">c</text></svg>')._repr_html_()
    page = Page(shown)
    assert page.tags == ["img"] and page.text == "" and 'alt="a &quot;b&quot;"' in shown
    drawn = base64.b64decode(shown.partition("base64,")[2].partition('"')[0]).decode()
    assert drawn.startswith("<svg") and "currentColor" not in drawn
