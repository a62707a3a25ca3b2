"""The command `redfuser` as a process: its exit codes, plain text where nobody watches, and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest
from test_cli import BAD, OPS, REFUSED

import redfuser_algebra as ra
from redfuser_algebra.cli import heard_again


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").write_text(OPS)
    return tmp_path


def process(*words, start=("-m", "redfuser_algebra")):
    """The command as a process that hears Ctrl-C, also where the tests themselves were told not to."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONPATH": str(Path(ra.__file__).parent.parent)}
    return subprocess.Popen([sys.executable, *start, *words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def test_a_process_exits_with_the_code_and_plain_text(folder):
    started = [process("fuse", "ops.py"), process("fuse", "nothing")]
    (out, err), (_, complaint) = (each.communicate(timeout=60) for each in started)
    assert [each.returncode for each in started] == [REFUSED, BAD], err
    assert "\x1b" not in out and "max(m, x[l])" in out and complaint.startswith("redfuser: ")


READY = "import sys; from redfuser_algebra import cli, fused; print('ready', flush=True); cli.main()"


def test_ctrl_c_stops_cleanly(folder):
    running = process("bench", "discovery", "--runs", "1000", "--json", "b.json", start=("-c", READY))
    try:
        assert running.stdout.readline() == "ready\n"
        time.sleep(2)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130 and "Traceback" not in err
    kept = [name for name in os.listdir() if "b.json" in name]
    assert kept in ([], ["b.json"]) and all(json.loads((folder / name).read_text()) for name in kept)


def test_ctrl_c_is_heard_inside_a_callback(monkeypatch):
    """Python ignores what is raised there, and terms that are let go of call such callbacks."""
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "unraisablehook", heard_again)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            thing = set()
            kept = weakref.ref(thing, interrupted)
            del thing
            assert kept() is None
            time.sleep(5)
    finally:
        signal.signal(signal.SIGINT, before)
