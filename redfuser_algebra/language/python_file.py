"""Operators found in a Python file.

In: the path of a file of the user's own; it is executed, as `python file.py` would.  Out: the operators it defines.
"""
from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.operator import Operator


def operators_in(path: Path) -> tuple[Operator, ...]:
    """The operators that a file holds in its global names, each once, in order of definition.

    Raises OperatorError for a file that cannot be read or run, or that holds none.
    """
    held = [value for value in _executed(path).values() if isinstance(value, Operator)]
    found = tuple(dict.fromkeys(held))
    if not found:
        raise OperatorError(f"operators in {path}", "the file defines none",
                            "write @ra.operator above a function whose annotations name axes")
    return found


def _executed(path: Path) -> dict[str, object]:
    if not path.is_file():
        raise OperatorError(f"operators in {path}", "there is no such file", "check the path")
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)
    try:
        return runpy.run_path(str(path), run_name="redfuser_operators")
    except RedfuserError as error:
        raise OperatorError(f"{error.asked}, in {_place(error, path)}", error.failed, error.remedy, error.excerpt) from error
    except (Exception, SystemExit) as error:
        raise OperatorError(f"operators in {_place(error, path)}", f"{type(error).__name__}: {getattr(error, 'msg', error)}",
                            f"make `python {path}` work first") from error
    finally:
        sys.path.remove(beside)


def _place(error: BaseException, path: Path) -> str:
    """The file, and the last of its lines that took part in an error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f"{path}, line {lines[-1]}" if lines else str(path)
