"""The notebooks run from top to bottom without an error or a warning, and what they show is what they are said to show.

Cells tagged `varies` (times, widgets) are run and not compared.  REDFUSER_WRITE_NOTEBOOKS=1 keeps the new outputs.
What reads and runs notebooks is imported where it is used: that takes seconds, and every process of a test run collects all modules.
"""

import os
import re
from base64 import b64decode
from importlib.util import find_spec
from pathlib import Path

import pytest

from redfuser_algebra.cli.tours import notebooks

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"
LINES, OUTPUT, SECONDS = 15, 60_000, 600
"""A cell's most lines, an output's most letters, and when a cell that hangs is given up."""


def read(path):
    import nbformat

    return nbformat.read(path, as_version=4)


def executed(notebook, folder):
    """The notebook with new outputs; a kernel of its own is started in a folder."""
    from nbclient import NotebookClient

    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}},
                            record_timing=False, store_widget_state=False, coalesce_streams=True)
    return client.execute()


def shown(cell):
    """What a cell shows, as text by kind: the display of an object, and the lines it prints."""
    outputs = [output.get("data", {}) if output["output_type"] != "stream" else {"stream": output["text"]} for output in cell.get("outputs", ())]
    return [{kind: "".join(text) for kind, text in data.items()} for data in outputs]


def compared(cell):
    return cell["cell_type"] == "code" and "varies" not in cell["metadata"].get("tags", ())


def kept(notebook):
    """The notebook as it is kept: without widgets' ids, and without counts that say nothing."""
    for cell in notebook["cells"]:
        cell["metadata"] = {key: value for key, value in cell["metadata"].items() if key == "tags"}
        if cell["cell_type"] == "code":
            cell["execution_count"] = None
            cell["outputs"] = [output for output in cell["outputs"] if WIDGET not in output.get("data", {})]
            for output in cell["outputs"]:
                output.pop("execution_count", None)
                if output["output_type"] == "execute_result":
                    output["execution_count"] = None
    notebook["metadata"] = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    return notebook


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_shows(path, tmp_path, monkeypatch):
    if "cuda" in path.read_text(encoding="utf-8") and find_spec("numba_cuda") is None:
        pytest.skip("it prints kernels for GPUs, and numba-cuda is for Linux alone")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("PYTHONWARNINGS", "always::UserWarning,always::RuntimeWarning")
    stored, run = read(path), executed(read(path), tmp_path)
    errors = [output for cell in run["cells"] for output in cell.get("outputs", ()) if output.get("name") == "stderr"]
    assert errors == []
    if os.environ.get("REDFUSER_WRITE_NOTEBOOKS"):
        import nbformat

        nbformat.write(kept(run), path)
        return
    for before, after in zip(stored["cells"], run["cells"], strict=True):
        if compared(before):
            assert shown(before) == shown(after), before["source"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_says_what_it_is_for(path):
    import nbformat

    notebook = read(path)
    nbformat.validate(notebook)
    first, *rest = notebook["cells"]
    assert first["cell_type"] == "markdown" and "**Purpose:**" in first["source"] and first["source"].startswith(f"# {int(path.name[:2])}.")
    assert all(cell["source"].count("\n") < LINES for cell in notebook["cells"])
    assert all(len(text) <= OUTPUT for cell in rest for data in shown(cell) for text in data.values())
    displays = [cell for cell in rest if compared(cell) and not cell["outputs"] and re.search(r"print\(|^\w+$", cell["source"].splitlines()[-1])]
    assert displays == [], "a cell that should show something has not been run"


def test_a_static_export_shows_the_pictures():
    from nbconvert import HTMLExporter

    picture = re.compile(r'<img [^>]*src="data:image/svg\+xml;base64,([^"]+)"')
    for path in NOTEBOOKS:
        kept = [drawn for cell in read(path)["cells"] for data in shown(cell) for drawn in picture.findall(data.get("text/html", ""))]
        page, _ = HTMLExporter().from_filename(str(path))
        assert [drawn for drawn in picture.findall(page) if drawn in kept] == kept and (kept or path.name[:2] not in ("01", "02", "03", "04", "07")), path.name
        assert all(b64decode(drawn).decode().startswith("<svg") for drawn in kept)


def test_notebooks_are_numbered_without_doubles():
    numbers = [path.name[:2] for path in NOTEBOOKS]
    assert NOTEBOOKS and numbers == sorted(set(numbers)) and all(re.fullmatch(r"\d\d_[a-z_]+", path.stem) for path in NOTEBOOKS)


def test_the_readme_lists_every_notebook():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS] == re.findall(r"`notebooks/(\w+\.ipynb)`", readme)


@pytest.mark.slow
@pytest.mark.parametrize("source, said", [("import warnings; warnings.warn('careful')", "careful"), ("import sys; print('no', file=sys.stderr)", "no")])
def test_a_warning_is_seen(source, said, tmp_path):
    import nbformat

    run = executed(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]), tmp_path)
    assert said in "".join(output["text"] for output in run["cells"][0]["outputs"] if output.get("name") == "stderr")


def test_the_command_opens_the_tree_or_copies_what_is_installed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert notebooks() == ROOT / "notebooks"
    packed = tmp_path / "site" / "redfuser_algebra"
    (packed / "notebooks").mkdir(parents=True)
    for name in ("01_a.ipynb", "02_b.ipynb"):
        (packed / "notebooks" / name).write_text("new")
    (tmp_path / "redfuser-notebooks").mkdir()
    (tmp_path / "redfuser-notebooks" / "01_a.ipynb").write_text("mine")
    assert notebooks(packed) == tmp_path / "redfuser-notebooks"
    assert {path.name: path.read_text() for path in notebooks(packed).iterdir()} == {"01_a.ipynb": "mine", "02_b.ipynb": "new"}
    assert notebooks(tmp_path / "elsewhere" / "redfuser_algebra") == tmp_path
