"""Functions that kernel files write alike are one function: what was compiled for one file serves all others.

In: a kernel, before it is compiled.  Out: the same, where device functions and intrinsics that were met before are those met first.
Most of a kernel's text is that of others, too: what loads a vector, what adds over the lanes of a warp.
"""
from __future__ import annotations

import dis
from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import CodeType, FunctionType

MOST = 1000
"""So many functions are remembered, of 1 MB or less each when they are compiled; those that were met again last the longest."""

_MET: OrderedDict[Hashable, object] = OrderedDict()
"""What was met first, by how it is written."""


def unified(function: Callable) -> Hashable:
    """How a function is written, its place aside; from now on it refers to what was met first of all that is written alike."""
    names, cells = function.__globals__, function.__closure__ or ()
    for cell in cells:
        cell.cell_contents = _first(cell.cell_contents)
    read = [name for name in _read(function.__code__) if name in names]
    names.update({name: _first(names[name]) for name in read})
    held = (*(cell.cell_contents for cell in cells), *(names[name] for name in read), *(function.__defaults__ or ()))
    return _placeless(function.__code__), *map(_identity, held)


def _first(value: object) -> object:
    """What was met first of what is written like a device function or an intrinsic; other values are what they are."""
    options = getattr(value, "targetoptions", {})
    function = value.py_func if options.get("device") else getattr(value, "_defn", None)
    if function is None:
        return value
    key = type(value), repr(sorted(options.items())), unified(function)
    first = _MET[key] = _MET.pop(key, value)
    if len(_MET) > MOST:
        _MET.popitem(last=False)
    return first


def _read(code: CodeType) -> list[str]:
    """The names that code reads from its module or from Python, that of functions in it too."""
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _read(each)]
    return list(dict.fromkeys([*(each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"), *inner]))


def _placeless(code: CodeType) -> CodeType:
    """Code without the file and the lines that it stands in."""
    constants = tuple(_placeless(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename="", co_firstlineno=1, co_linetable=b"", co_consts=constants)


def _identity(value: object) -> Hashable:
    """What tells a value from others that functions refer to: 0 is not 0.0, nor is −0.0."""
    if isinstance(value, FunctionType):
        return unified(value)
    if isinstance(value, tuple):
        return tuple(map(_identity, value))
    return type(value), value if isinstance(value, Hashable) and not isinstance(value, float) else repr(value)
