"""Where in the user's code a trace is, so that an error can name the line."""
from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType

import numpy as np

from redfuser_algebra.language.errors import OperatorError

_OURS = tuple(str(Path(module).resolve().parent) for module in (__file__, np.__file__)) + (str(Path(__file__).resolve().parents[2]),)

_INSTALLED = str(Path(np.__file__).resolve().parents[1])


def refused(asked: str, failed: str, remedy: str) -> OperatorError:
    """An error of traced code, with the line it happened in."""
    return OperatorError(asked, failed, remedy, excerpt())


def excerpt(frame: FrameType | None = None) -> str:
    """The innermost line, from a frame outwards, that is neither NumPy's, torch's nor ours; "" if there is none.

    A line of another installed package comes after the user's line that led there.
    """
    places = []
    frame = frame or sys._getframe(1)
    while frame is not None:
        if not _inside(frame.f_code.co_filename):
            places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    own = next((place for place in places if not place[0].startswith(_INSTALLED)), None)
    return "\n".join("    " + line_of(*place) for place in dict.fromkeys(filter(None, (own, *places[:1]))))


def line_of(name: str, number: int) -> str:
    """A line of a file, with its name and number; "" for NumPy's, torch's and our own files."""
    return "" if _inside(name) else f"{Path(name).name}, line {number}: {linecache.getline(name, number).strip()}".rstrip(": ")


def _inside(filename: str) -> bool:
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    folders = _OURS if torch is None else (*_OURS, str(Path(torch).resolve().parent))
    return filename.startswith("<frozen") or str(Path(filename)).startswith(folders)
