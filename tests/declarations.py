"""Declarations that several tests make, and the fixture that ends them."""

import numpy as np
import pytest
import redfuser_algebra as ra
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.laws import LAWS
from redfuser_algebra.algebra.monoids import MONOIDS

TABLES = FUNCTIONS, MONOIDS, LAWS
SHIFTS = "logaddexp(a + c) = logaddexp(a) + c  where invariant(c)"
MULTIPLIES = "cube(a * b) = cube(a) * cube(b)"


@pytest.fixture(autouse=True)
def tables():
    """What is declared in a test ends with it; and nothing but declarations is there to end."""
    before = [list(table.items()) for table in TABLES]
    with ra.declarations():
        yield
    assert [list(table.items()) for table in TABLES] == before


def rows():
    return [dict(table) for table in TABLES]


def logaddexp(laws=(SHIFTS,)):
    return ra.Monoid("logaddexp", np.logaddexp, identity=-np.inf, laws=laws)


def cube(laws=(MULTIPLIES,), monotone=""):
    return ra.function("cube", lambda a: a**3, monotone=monotone, laws=laws)
