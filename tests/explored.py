"""Explorers and what they are about, shared by the tests of their tabs."""

import pytest

import redfuser_algebra as ra
from redfuser_algebra.explorer import app, session
from redfuser_algebra.explorer.work import Work

FUSED = ("softmax", "attention", "variance", "moe_routing", "count_max", "layernorm_gemm")


def about(name):
    found = session.Session()
    found.choose(ra.operators[name])
    found.decided(*session.decide_both(found.operator, lambda done, whole: None))
    return found


@pytest.fixture(scope="module")
def sessions():
    return {name: about(name) for name in (*FUSED, "mean_absolute_deviation")}


@pytest.fixture
def work():
    return Work()


@pytest.fixture
def explorer(work):
    made = app.Explorer(ra.operators["softmax"], work, work)
    work.wait()
    yield made
    made.close()
