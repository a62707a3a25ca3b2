"""Neighbours about a mean: what parts hold is about an element of their own, so that a large offset costs no digits.

Every statistic is compared with NumPy about the offset, in random splits; the certificate proves the equations of centres,
and neither a centre that is not moved nor wrong functions of moved states pass.
"""

from dataclasses import replace

import numpy as np
import pytest

from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.fused import fuse
from redfuser_algebra.language.expr import const
from redfuser_algebra.language.numpy_trace import trace
from redfuser_algebra.prove.by_distribution import equal
from redfuser_algebra.prove.certificate import certify
from redfuser_algebra.prove.recurrences import equations
from redfuser_algebra.run.cpu import run_cpu
from redfuser_algebra.run.reference import fused_by_chunks


def autocorrelation(x):
    """Σ (x_i − μ)(x_(i−1) − μ) / Σ (x − μ)²."""
    d = x - x.mean()
    return (d[1:] * d[:-1]).sum() / (d * d).sum()


def distant(x):
    """The same for elements three apart."""
    m = x.mean()
    return ((x[3:] - m) * (x[:-3] - m)).sum() / ((x - m) ** 2).sum()


def ratio_of_variances(x):
    """Of sums of two neighbours and of elements."""
    m = x.mean()
    return ((x[1:] + x[:-1] - 2 * m) ** 2).mean() / (2 * ((x - m) ** 2).mean())


def of_changes(x):
    """Changes over two steps about twice the mean change."""
    m = np.diff(x).mean()
    return ((x[2:] - x[:-2] - 2 * m) ** 2).sum() / ((np.diff(x) - m) ** 2).sum()


def complexity(x):
    """The length of the path of standardised elements."""
    z = np.diff((x - x.mean()) / x.std())
    return np.sqrt((z * z).sum())


def excursions(x):
    """Σ of squares of running sums about the mean."""
    return (np.cumsum(x - x.mean()) ** 2).sum() / ((x - x.mean()) ** 2).sum()


def of_another(x, y):
    """About the mean of each."""
    return ((x[1:] - x.mean()) * (y[:-1] - y.mean())).sum() / (x.std() * y.std())


EACH = (autocorrelation, distant, ratio_of_variances, of_changes, complexity, excursions, of_another)


def traced(function):
    names = function.__code__.co_varnames[:function.__code__.co_argcount]
    return trace(function, **dict.fromkeys(names, "l"))


def drawn(op, rng, n, offset):
    return {name: np.where(np.arange(n) == 0, 5, rng.normal(size=n)) + offset for name in op.inputs}


@pytest.mark.parametrize("function", EACH, ids=lambda function: function.__name__)
@pytest.mark.parametrize("offset", [0, -1e8])
def test_an_offset_costs_no_digits_however_the_elements_are_split(function, offset, rng, plain_kernels):
    op = traced(function)
    form, inputs = fuse(op).form, drawn(op, rng, 40, offset)
    want, whole = function(**inputs), op.bind(**inputs)
    for sizes in ([40], [1, 2, 37], [20, 20], [13, 1, 1, 25]):
        np.testing.assert_allclose(fused_by_chunks(op, form, whole, sizes), want, 1e-6 if offset else 1e-11, 1e-7 if offset else 1e-12)
    np.testing.assert_allclose(run_cpu(op, form, whole), want, 1e-6 if offset else 1e-11, 1e-7 if offset else 1e-12)


@pytest.mark.parametrize("function", [autocorrelation, of_changes, of_another], ids=lambda function: function.__name__)
def test_a_certificate_proves_what_moves_with_a_centre(function):
    fused = fuse(traced(function))
    certificate = fused.certify(examples=5)
    recurred = [each for each in fused.form.recurrences if each.moves]
    assert recurred and {f"recurrence:{each.name}" for each in recurred} <= {row.id for row in certificate.rows if row.verdict == "proved"}
    assert certificate.status in ("proved", "proved and tested")


def _proved(form: FusedForm, recurred) -> bool:
    return all(equal(recurred.semiring, left, right) for _, left, right in equations(form, recurred))


@pytest.mark.parametrize("wrong", ["moves", "turned"])
def test_wrong_moves_of_a_centre_are_found_out(wrong):
    form = fuse(traced(autocorrelation)).form
    [recurred] = form.recurrences
    others = {"moves": tuple((state, state + const(0) * moved) for state, moved in recurred.moves),
              "turned": tuple(tuple(const(float(k == j)) for j in range(len(row))) for k, row in enumerate(recurred.turned))}
    assert _proved(form, recurred) and not _proved(form, replace(recurred, **{wrong: others[wrong]}))


def test_a_certificate_of_a_join_that_forgets_the_later_part_is_refuted():
    """What the later part holds is left out."""
    fused = fuse(traced(autocorrelation))
    state = tuple(c if c.joined is None or c.joined is c.symbol else replace(c, joined=c.symbol) for c in fused.form.state)
    broken = certify(fused.operator, fused.decision.main.cascade, replace(fused.form, state=state), examples=10)
    assert broken.status == "refuted"


def test_of_too_few_elements_a_sum_is_zero_and_not_that_of_nothing_over_nothing():
    op = traced(complexity)
    np.testing.assert_allclose(fuse(op)(x=[3.0], backend="numpy"), 0.0)
