"""Where compiled kernels are kept between sessions, and how a file gets there whole."""
from __future__ import annotations

import os
import tempfile
import threading
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """REDFUSER_CACHE_DIR or the user's cache, in it `kernels`; a folder of this session's if that cannot be written."""
    folder = Path(os.environ.get("REDFUSER_CACHE_DIR") or user_cache_path("redfuser")) / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _folder_of_session()
    return folder if os.access(folder, os.W_OK) else _folder_of_session()


@cache
def _folder_of_session() -> Path:
    return Path(tempfile.mkdtemp(prefix="redfuser-kernels-"))


def written_whole(path: Path, content: bytes) -> None:
    """Write a file so that no other thread or process ever reads a part of it."""
    beside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
