"""Tile programs of catalogue operators, made once, and calls of them: what the tests of lowering and kernels share."""

import math
import types
from functools import cache
from unittest.mock import MagicMock

import numpy as np

from redfuser_algebra.catalogue import operators
from redfuser_algebra.fused import decide
from redfuser_algebra.lower.interpret import interpret
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.run.rounding import rounded

ORDERED = [name for name in operators if operators.entry(name).reason == "scan"]
FUSABLE = [name for name in operators if operators.entry(name).verdict != "not fusable" and operators.entry(name).reason != "scan"]
EXACT = [name for name in (*FUSABLE, *ORDERED) if operators.entry(name).reason != "rounding"]


@cache
def verdict(name, prefer="centred"):
    return decide(operators[name], prefer=prefer)


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


def plain_module(text, name):
    """The module as plain Python: what only a compiler understands (intrinsics, bits of a float) is NumPy's instead."""
    def as_it_is(*given, **flags):
        return given[0] if given and callable(given[0]) else lambda function: function

    _, _, body = text.partition("inf, nan = np.inf, np.nan\n")
    names = {"math": math, "np": np, "njit": as_it_is, "intrinsic": as_it_is, "prange": range, "ir": MagicMock(), "binding": MagicMock(),
             "types": None, "inf": np.inf, "nan": np.nan,
             "f4": np.float32, "f8": np.float64, "i4": np.int32, "i8": np.int64, "b1": np.bool_}
    exec(compile(body, name, "exec"), names)
    names |= {
        "PART": {}, "LOOP": {}, "wide_vectors": lambda: None, "seldom": lambda: None, "touch": lambda array, place: None,
        "empty": np.empty, "shaped": lambda array, shape: array.reshape(-1)[:math.prod(shape)].reshape(shape),
        "fill": np.ndarray.fill, "copy": lambda source, target: np.copyto(target, source), "multiply": multiplied,
        "larger": np.maximum, "smaller": np.minimum, **dict.fromkeys(("exp4", "exp8", "decay4", "decay8"), np.exp),
        "finite": np.isfinite, "anchored": lambda x: x if np.isfinite(x) else type(x)(0),
        "times": lambda factor, x: type(x)(0) if x == 0 else factor * x,
        "comes_first": comes_first, "precedes": precedes, "ordered": ordered, "ranked": ranked, "left_over": left_over}
    return types.SimpleNamespace(**names)


def comes_first(value, best, at):
    return at < 0 or value > best or (value != value and best == best)


def precedes(value, position, best, at):
    return comes_first(value, best, at) or (position < at and (value == best or (value != value and best != best)))


def ordered(lanes, keys):
    bits, most = lanes.view(keys.dtype), np.iinfo(keys.dtype).max
    order = np.where(bits < 0, bits ^ most, bits)
    keys[:] = np.where(np.isnan(lanes), most - 127, np.where(lanes == 0, 0, order))


def ranks_of(keys):
    return (keys & -64) | np.arange(63, -1, -1)


def ranked(keys, count, ranks):
    ranks[:count + 1] = [*sorted(ranks_of(keys), reverse=True), -np.iinfo(keys.dtype).max][:count + 1]


def left_over(keys, below, best, at, start):
    least = np.empty(1, keys.dtype)
    ordered(best[-1:].astype(f"f{keys.itemsize}"), least)
    wanted, ranks = (at[-1] < 0) | (keys > least) | ((keys == least) & (np.arange(64) < at[-1] - start)), ranks_of(keys)
    return max(ranks[wanted & (ranks < below)], default=-np.iinfo(keys.dtype).max)


def multiplied(left, right, turns, panel, into):
    assert len(panel) >= left.shape[1], "a strip of the right factor has its place"
    into[...] = left @ (right.T if turns else right) + (0 if turns else into)
