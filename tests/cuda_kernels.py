"""CUDA kernels of catalogue operators and how far their execution is from the operator: what the tests of CUDA share."""

from functools import cache

import pytest
from lowered import verdict

from redfuser_algebra.ptx.compile import toolchain_missing
from redfuser_algebra.ptx.execute import KernelFile
from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.run.audit import case, error_of, limit_of
from redfuser_algebra.run.cuda import made_cuda
from redfuser_algebra.run.export import draws
from redfuser_algebra.run.settled import settled

limit = limit_of
needs_toolchain = pytest.mark.skipif(toolchain_missing() != "", reason=f"not installed: {toolchain_missing()}")


@cache
def kernel(name, dtype="float32"):
    fused = verdict(name).fused
    return made_cuda(fused.operator, fused.form, dtype)


@cache
def kinds(name):
    return draws(kernel(name).operator)


def drawn_case(made, length, seed=0):
    return case(made, kinds(made.operator.name), length, seed)


def run(made, binding, mode=None, shifts=(), file=None):
    """The executed kernel and its distance from what is right."""
    ran = (file or made.file).run(made.given(binding), made.architecture, mode or Mode(), shifts)
    return ran, error(made, binding, ran.outputs)


def error(made, binding, outputs):
    """How far outputs are from the operator as written."""
    return error_of(made, binding, outputs, settled(made.operator, binding))


def changed(made, old, new, times=1):
    """The kernel's file with a fault put in."""
    assert made.source.count(old) >= times, old
    return KernelFile(made.source.replace(old, new))
