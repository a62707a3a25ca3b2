"""Where in the user's code a trace is, so that an error can name the line."""
from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType

import numpy as np

from redfuser_algebra.language.errors import OperatorError

_OURS = tuple(str(Path(module).resolve().parent) for module in (__file__, np.__file__)) + (str(Path(__file__).resolve().parents[2]),)


def refused(asked: str, failed: str, remedy: str) -> OperatorError:
    """An error of traced code, with the line it happened in."""
    return OperatorError(asked, failed, remedy, excerpt())


def excerpt(frame: FrameType | None = None) -> str:
    """The innermost line, from a frame outwards, that is neither NumPy's, torch's nor ours; "" if there is none."""
    frame = frame or sys._getframe(1)
    while frame is not None and _inside(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ""
    return "    " + line_of(frame.f_code.co_filename, frame.f_lineno)


def line_of(name: str, number: int) -> str:
    """A line of a file, with its name and number; "" for NumPy's, torch's and our own files."""
    return "" if _inside(name) else f"{Path(name).name}, line {number}: {linecache.getline(name, number).strip()}".rstrip(": ")


def _inside(filename: str) -> bool:
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    folders = _OURS if torch is None else (*_OURS, str(Path(torch).resolve().parent))
    return filename.startswith("<frozen") or str(Path(filename)).startswith(folders)
