"""Compiled kernels are kept on disk, each under the hash of all that decides what the compilers make of it: data, no code of Python's.

In: a kernel file's text, the choice of its plan, types and an architecture.  Out: what was made of them before, if anything.
"""
from __future__ import annotations

import hashlib
import json
import platform
import zlib
from base64 import b64decode, b64encode
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from redfuser_algebra.lower.cache import cache_folder, written_whole
from redfuser_algebra.ptx import compile as compiling
from redfuser_algebra.ptx.compile import Compiled, toolchain_missing

PACKAGES = ("numba", "numba-cuda", "llvmlite", "numpy")
MOST = 3000
"""So many compiled kernels are kept, of 10 KB or so; the oldest are deleted."""


def kept(text: str, *chosen: object) -> Compiled | None:
    """What this text became with these choices; None if that is not known, its file cannot be read, or nothing can compile here."""
    if toolchain_missing():
        return None
    try:
        record = json.loads(zlib.decompress(_place(text, chosen).read_bytes()))
        return Compiled(**record | {"cubin": b64decode(record["cubin"])})
    except (OSError, zlib.error, ValueError, KeyError, TypeError):
        return None


def keep(compiled: Compiled, text: str, *chosen: object) -> None:
    """Remember what this text became with these choices, if the folder can be written."""
    place, record = _place(text, chosen), asdict(compiled) | {"cubin": b64encode(compiled.cubin).decode()}
    try:
        written_whole(place, zlib.compress(json.dumps(record).encode()))
        files = sorted(place.parent.glob(f"*{place.suffix}"), key=lambda path: path.stat().st_mtime)
        for old in files[:-MOST]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def _place(text: str, chosen: tuple[object, ...]) -> Path:
    return cache_folder() / (hashlib.sha256(repr((text, chosen, _compilers())).encode()).hexdigest()[:40] + ".cuda")


@cache
def _compilers() -> tuple[object, ...]:
    """Versions of what compiles, how it is called, and which files the two compilers of NVIDIA are."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    libraries = [Path(load_nvidia_dynamic_lib(name).abs_path) for name in ("nvvm", "nvJitLink")]
    return (platform.python_version(), *map(version, PACKAGES), Path(compiling.__file__).read_text(encoding="utf-8"),
            *((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in libraries))
