"""The explorer as a person meets it: JupyterLab in Chromium, every tab, a mistake, sliders, a proof stopped, a file written.

Screenshots of every tab in both themes are kept in the folder that REDFUSER_SCREENSHOTS names, if it names one.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
expect = sync_api.expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ROOT = Path(__file__).resolve().parent.parent
TABS = ("Operator", "Cascade", "Discovery", "Update rule", "Proof", "Kernel")
CONTRAST = """text => {
    const light = colour => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number); return (r + g + b) / 3 }
    let box = text
    while (getComputedStyle(box).backgroundColor === "rgba(0, 0, 0, 0)") box = box.parentElement
    return Math.abs(light(getComputedStyle(text).color) - light(getComputedStyle(box).backgroundColor)) }"""
"""How far the colour of a text lies from that of what it stands on, of 255."""
WIDTH, HEIGHT = 1280, 800
PATIENCE = 60_000
"""Milliseconds that anything may take on a slow machine."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab of its own, with one notebook that opens the explorer; its address."""
    folder = tmp_path_factory.mktemp("lab")
    cell = {"cell_type": "code", "source": "import redfuser_algebra as ra\n\nra.explore()", "metadata": {}, "outputs": [], "execution_count": None, "id": "explore"}
    notebook = {"cells": [cell], "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "explorer.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = {name: str(folder / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR",
                                                  "JUPYTERLAB_WORKSPACES_DIR")}
    quiet = Path(home["JUPYTERLAB_SETTINGS_DIR"]) / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    quiet.parent.mkdir(parents=True)
    quiet.write_text('{"fetchNews": "false"}', encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token=", "--ServerApp.password=",
         f"--ServerApp.root_dir={folder}"],
        env=os.environ | home | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/lab/tree/explorer.ipynb"
    try:
        _wait_for(address, server)
        yield address
    finally:
        server.terminate()
        server.wait(20)


def _wait_for(address, server):
    for _ in range(600):
        assert server.poll() is None, "JupyterLab ended by itself"
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("JupyterLab did not start")


class Explorer:
    """The explorer on a page, by what a person sees."""

    def __init__(self, page, shots):
        self.page, self.shots = page, shots
        self.root = page.locator(".jp-OutputArea-output").filter(has=page.get_by_role("tab", name="Cascade")).last

    def run(self):
        self.page.locator(".jp-Notebook .jp-Cell").first.click()
        self.page.keyboard.press("Control+Enter")
        expect(self.root).to_be_visible(timeout=PATIENCE)

    def says(self, words):
        expect(self.root).to_contain_text(words, timeout=PATIENCE)

    def open(self, tab):
        self.root.get_by_role("tab", name=tab).click()

    @property
    def shown(self):
        """The tab in front."""
        return self.root.locator(".widget-tab-contents > .lm-Widget:not(.lm-mod-hidden)")

    def field(self, label):
        return self.shown.get_by_label(label, exact=True)

    def press(self, label):
        self.shown.get_by_role("button", name=label, exact=True).click()

    def settled(self):
        """Wait until nothing is going on in the tab in front."""
        expect(self.shown.locator(".widget-hprogress:visible")).to_have_count(0, timeout=PATIENCE)

    def choose(self, name):
        self.open("Operator")
        self.field("Search").fill(name)
        self.field("Search").press("Enter")
        self.field("Catalogue").select_option(name)
        self.says(f"{name}: ")

    def picture(self, name):
        """Keep all of the app as a person would see it by scrolling."""
        if self.shots:
            for _ in range(2):
                self.page.set_viewport_size({"width": WIDTH, "height": int(self.root.bounding_box()["height"]) + 250})
                self.page.wait_for_timeout(200)
            self.root.scroll_into_view_if_needed()
            self.root.screenshot(path=self.shots / f"{name}.png", animations="disabled")
            self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})

    def wrong(self):
        """What a person would complain of: clipped or sideways, without a label, a list without a choice."""
        return self.clipped() + self.unlabelled() + self.empty()

    def clipped(self):
        """What is seen and does not fit where it is: labels, buttons, choices, and whatever sticks out of the app."""
        return self.root.evaluate("""root => {
            const right = root.getBoundingClientRect().right + 1
            const seen = [...root.querySelectorAll("*")].filter(each => each.getClientRects().length)
            const tight = seen.filter(each => each.matches(".widget-label, button, .lm-TabBar-tabLabel") && each.scrollWidth > each.clientWidth + 1)
            const scrolls = each => ["auto", "scroll"].includes(getComputedStyle(each).overflowX)
            const within = each => { for (let box = each; box && box !== root; box = box.parentElement) if (scrolls(box)) return box; }
            const out = seen.filter(each => each.getBoundingClientRect().right > right && !within(each)?.closest("pre, .redfuser-wide"))
            const sideways = [root, ...seen].filter(each => scrolls(each) && each.scrollWidth > each.clientWidth + 1 && !each.closest("pre, .redfuser-wide"))
            return [...tight, ...out, ...sideways].map(each => each.className + ": " + each.textContent.slice(0, 60)) }""")

    def empty(self):
        """Lists of choices that are seen and show no choice."""
        return self.root.evaluate("""root => [...root.querySelectorAll("select:not([size])")]
            .filter(each => each.getClientRects().length && each.selectedIndex < 0).map(each => each.outerHTML.slice(0, 120))""")

    def unlabelled(self):
        """Controls that are seen and have no name for those who do not see them."""
        return self.root.evaluate("""root => [...root.querySelectorAll("input, select, textarea, button")]
            .filter(each => each.getClientRects().length && ![...each.labels ?? []].some(label => label.textContent.trim())
                             && !each.getAttribute("aria-label") && !(each.matches("button") && each.textContent.trim()))
            .map(each => each.outerHTML.slice(0, 120))""")


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def complaints():
    """What the browser's console complained of."""
    return []


@pytest.fixture(scope="module")
def explorer(lab, chromium, complaints):
    page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(lab)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    shots = os.environ.get("REDFUSER_SCREENSHOTS")
    if shots:
        Path(shots).mkdir(parents=True, exist_ok=True)
    opened = Explorer(page, Path(shots) if shots else None)
    opened.run()
    opened.says("softmax: fusable")
    yield opened
    page.close()


def test_an_operator_is_chosen_from_the_catalogue(explorer):
    explorer.open("Operator")
    explorer.field("Search").fill("Welford")
    explorer.field("Search").press("Enter")
    expect(explorer.field("Catalogue")).not_to_contain_text("softmax", timeout=PATIENCE)
    explorer.field("Catalogue").select_option("variance")
    explorer.says("variance: fusable (rank-R 3)")


def test_a_mistake_in_a_formula_is_told_and_mended(explorer):
    explorer.open("Operator")
    formula = explorer.field("Or a formula")
    formula.fill("sum(exp(x - max(x, l)), l")
    formula.press("Tab")
    alert = explorer.shown.get_by_role("alert")
    expect(alert).to_contain_text("^", timeout=PATIENCE)
    explorer.picture("mistake")
    formula.fill("sum(exp(x - max(x, l)), l)")
    formula.press("Tab")
    expect(alert).to_have_count(0, timeout=PATIENCE)
    explorer.press("Use the formula")
    explorer.says("formula: fusable (rank-1)")


WALKED = {"Operator": "Catalogue", "Cascade": "loads", "Discovery": "e-nodes", "Update rule": "together", "Proof": "obligations", "Kernel": "Source"}


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_every_tab_is_whole_in_both_themes(explorer, theme, tab):
    _wear(explorer.page, theme)
    explorer.open(tab)
    expect(explorer.shown).to_contain_text(WALKED[tab], timeout=PATIENCE)
    explorer.settled()
    explorer.picture(f"{TABS.index(tab) + 1}_{tab.split()[0].lower()}_{theme.lower()}")
    assert explorer.wrong() == []


UNUSUAL = {"mean_absolute_deviation": ("Cascade", "Discovery", "Proof"), "kurtosis": TABS, "cum_scans": ("Kernel",)}
"""What is refused, large, or without a kernel, and the tabs where that is seen."""


@pytest.mark.parametrize("name", UNUSUAL)
def test_every_tab_is_whole_for_what_is_refused_or_large_or_has_no_kernel(explorer, name):
    explorer.choose(name)
    for tab in UNUSUAL[name]:
        explorer.open(tab)
        explorer.page.wait_for_timeout(200)
        explorer.settled()
        explorer.picture(f"{name}_{TABS.index(tab) + 1}")
        assert explorer.wrong() == [], tab


def _wear(page, theme):
    if page.locator("body").get_attribute("data-jp-theme-name") == f"JupyterLab {theme}":
        return
    page.locator(".lm-MenuBar-item", has_text="Settings").click()
    page.locator(".lm-Menu-item", has_text="Theme").first.hover()
    page.locator(".lm-Menu-item", has_text=f"JupyterLab {theme}").first.click()
    expect(page.locator("body")).to_have_attribute("data-jp-theme-name", f"JupyterLab {theme}", timeout=PATIENCE)


def test_sliders_are_moved_from_the_keyboard(explorer):
    explorer.choose("softmax")
    explorer.open("Update rule")
    explorer.says("together")
    slider = explorer.shown.get_by_role("slider").first
    explorer.page.wait_for_timeout(1000)
    state = explorer.shown.locator("table", has_text="together")
    before = state.text_content()
    slider.focus()
    for _ in range(20):
        slider.press("ArrowRight")
    expect(state).not_to_have_text(before, timeout=PATIENCE)
    expect(explorer.shown.locator(".widget-readout").first).to_have_text("15", timeout=PATIENCE)
    assert float(slider.get_attribute("aria-valuenow")) == 15


def test_the_e_graph_is_drawn(explorer):
    explorer.open("Discovery")
    explorer.field("Show the e-graph").check()
    explorer.shown.locator(".react-flow").scroll_into_view_if_needed()
    label = explorer.shown.get_by_text("sum kept at p").last
    expect(label).to_be_visible(timeout=PATIENCE)
    assert label.evaluate(CONTRAST) > 150
    explorer.picture("e_graph")
    explorer.field("Show the e-graph").uncheck()


def test_a_running_proof_is_stopped(explorer):
    explorer.open("Proof")
    explorer.settled()
    explorer.field("Examples").fill("100000")
    explorer.field("Examples").press("Tab")
    explorer.press("Prove")
    explorer.press("Stop")
    explorer.says("Stopped; what was found until then is kept.")
    explorer.picture("stopped")


def test_a_kernel_is_written_and_offered(explorer):
    explorer.open("Kernel")
    explorer.press("Write the file")
    link = explorer.shown.get_by_role("link", name=re.compile("Download"))
    with explorer.page.expect_download() as download:
        link.click(timeout=PATIENCE)
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert "def kernel(" in text and "Certificate: sha256" in text


def test_running_the_cell_again_leaves_one_explorer(explorer):
    explorer.run()
    explorer.says("softmax: fusable")
    expect(explorer.page.get_by_role("tab", name="Cascade")).to_have_count(1, timeout=PATIENCE)
    explorer.field("Catalogue").select_option("logsumexp")
    explorer.says("logsumexp: fusable")


def test_the_console_has_no_complaint(explorer, complaints):
    assert complaints == []
