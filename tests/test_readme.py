"""The README is true: its Python runs, its commands work, and what it shows is what is printed."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

import redfuser_algebra as ra
from redfuser_algebra import cli

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
COMMANDS = ("redfuser", "make")


def blocks(text):
    """(language, content) of every fenced block, in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def shows(pattern, printed):
    """Whether printed lines are those of the pattern, where a line … stands for any number of lines."""
    expected, lines = pattern.strip("\n").split("\n"), printed.strip("\n").split("\n")
    if "…" not in expected:
        return expected == lines
    head, tail = expected[:expected.index("…")], expected[expected.index("…") + 1:]
    rest = lines[len(head):]
    return lines[:len(head)] == head and (
        not tail or any(shows("\n".join(tail), "\n".join(rest[start:])) for start in range(len(rest))))


def commands(script):
    """The words of every command of a shell block."""
    return [shlex.split(line, comments=True) for line in script.splitlines() if line.strip()]


def run(text):
    """What the blocks print, next to what they are said to print; code runs in one namespace."""
    namespace, printed, compared = {}, "", []
    for language, content in blocks(text):
        if language == "text":
            compared.append((content, printed))
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            if language == "python":
                exec(compile(content, "README.md", "exec"), namespace)
            for words in commands(content) if language == "sh" else ():
                assert words[0] in COMMANDS, words
                if words[0] == "redfuser":
                    assert cli.status_of(words[1:]) == 0, words
        printed = out.getvalue()
    return compared


def test_the_readme_does_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ra.declarations():
        compared = run(README)
    assert len(compared) >= 3
    for pattern, printed in compared:
        assert shows(pattern, printed), printed


def test_every_command_of_the_table_exists():
    named = set(re.findall(r"^\| `redfuser (\w+)", README, re.MULTILINE))
    known = {command.name or command.callback.__name__ for command in cli.app.registered_commands}
    assert named == known | {group.name for group in cli.app.registered_groups}


def test_the_layout_is_the_one_on_disk():
    listed = set(re.findall(r"`(\w+)/`", README[README.index("## Layout"):README.index("## How to add")]))
    package = Path(ra.__file__).parent
    folders = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert listed <= folders | {"prove"} and folders - listed <= {"lower", "ptx", "explorer"}


@pytest.mark.parametrize("text", [
    "```python\nassert 1 == 2\n```", "```python\nra.fuse\n```", "```sh\nredfuser fuse nothing\n```", "```sh\nrm x\n```",
])
def test_a_false_readme_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AssertionError, NameError)):
        run(text)


@pytest.mark.parametrize("pattern, printed, same", [
    ("a\nb\n", "a\nb\n", True), ("a\nb\n", "a\nc\n", False), ("a\n", "a\nb\n", False), ("a\n…\nd\n", "a\nb\nc\nd\n", True),
    ("a\n…\nd\n", "a\nd\n", True), ("a\n…\n", "a\nb\nc\n", True), ("a\n…\nd\n", "a\nb\n", False), ("a.c\n", "abc\n", False),
    ("a\n…\nc\n…\ne\n", "a\nb\nc\nd\ne\n", True), ("a\n…\nc\n…\ne\n", "a\nb\nd\ne\n", False), ("b\n…\n", "a\nb\nc\n", False),
])
def test_shown_output_is_compared(pattern, printed, same):
    assert shows(pattern, printed) is same
