"""Tile programs of catalogue operators, made once, and calls of them: what the tests of lowering and kernels share."""

from functools import cache

import numpy as np

from redfuser_algebra.catalogue import operators
from redfuser_algebra.fused import decide
from redfuser_algebra.lower.interpret import interpret
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.run.rounding import rounded

# Ordered states have no loops yet: tests/test_recurrences.py
FUSABLE = [name for name in operators if operators.entry(name).verdict != "not fusable" and operators.entry(name).reason != "scan"]
EXACT = [name for name in FUSABLE if operators.entry(name).reason != "rounding"]


@cache
def verdict(name):
    return decide(operators[name])


@cache
def program(name):
    """The tile program; None if the search finds no form."""
    fused = verdict(name).fused
    return lower(fused.operator, fused.form) if fused else None


def parts(value):
    return list(value) if isinstance(value, tuple) else list(value.values()) if isinstance(value, dict) else [value]


def in_program_order(program, operator, binding):
    arrays = {}
    for name, array in binding.arrays.items():
        own, leading = operator.inputs[name], array.ndim - len(operator.inputs[name])
        arrays[name] = array.transpose(*range(leading), *(leading + own.index(axis) for axis in program.inputs[name]))
    return arrays


def interpreted(program, operator, binding, tile):
    arrays = in_program_order(program, operator, binding)
    return interpret(program, arrays, binding.params, binding.sizes, binding.batch, tile, rounded)


def inputs(name, length, seed=0):
    return operators.entry(name).inputs(np.random.default_rng(seed), length)
