"""What every test shares: Hypothesis profiles, seeds, and caches that stay outside the tree.

HYPOTHESIS_PROFILE picks `dev`, `ci` or `deep` (default: `ci` where CI is set, else `dev`); REDFUSER_SEED moves `rng`.
"""

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

SEED = int(os.environ.get("REDFUSER_SEED", "0"))
# Kernels are compiled inside examples, so the first one is slow and its time says nothing about the property.
SHARED = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}


def in_ci(environ):
    return environ.get("CI", "").lower() not in ("", "0", "false")


def profile_name(environ):
    return environ.get("HYPOTHESIS_PROFILE") or ("ci" if in_ci(environ) else "dev")


def user_cache():
    """A folder that outlives the session (failing examples are replayed from it), never inside the tree."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "redfuser"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / "redfuser"
        folder.mkdir(exist_ok=True)
    return folder


def place_caches():
    """Compile caches are fresh in each session; xdist workers inherit all settings through the environment.

    Numba's index looks at the file of the compiled function only, not at what it calls: a cache kept from an
    earlier session could answer for code that has changed since.
    """
    if "NUMBA_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="redfuser-tests-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["NUMBA_CACHE_DIR"] = folder
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(user_cache() / "hypothesis"))
    os.environ.setdefault("MPLBACKEND", "agg")


def register_profiles():
    database = DirectoryBasedExampleDatabase(Path(os.environ["HYPOTHESIS_STORAGE_DIRECTORY"]) / "examples")
    settings.register_profile("dev", max_examples=50, database=database, **SHARED)
    settings.register_profile("ci", max_examples=100, derandomize=True, database=None, **SHARED)
    settings.register_profile("deep", max_examples=2000, database=database, **SHARED)


place_caches()
register_profiles()
settings.load_profile(profile_name(os.environ))


def pytest_report_header(config):
    return f"redfuser: hypothesis profile {profile_name(os.environ)}, REDFUSER_SEED={SEED}"


def pytest_collection_finish():
    """Modules and tests stay to the end: no collection of garbage walks through them, and compilers' short-lived objects start none."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_sessionfinish():
    """pytest ends with collections of garbage, and each would walk through all that the tests have made."""
    gc.freeze()


@pytest.fixture
def rng():
    """A generator that starts from REDFUSER_SEED in every test, whatever ran before it."""
    return np.random.default_rng(SEED)


@pytest.fixture
def plain_kernels(monkeypatch):
    """CPU kernels as plain Python: printed, not compiled, and none kept from other tests."""
    from lowered import plain_module
    monkeypatch.setattr("redfuser_algebra.run.kernels.load", plain_module)
    monkeypatch.setattr("redfuser_algebra.run.kernels._kernels", {})
