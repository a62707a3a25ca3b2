"""What the NumPy definition in an exported file is written with; these functions are copied into the file as they are.

Every value has one dimension per axis of AXES, of length 1 where it does not vary, behind the batch dimensions.
"""
from __future__ import annotations

import numpy as np

AXES = ()


def along(axis):
    """The dimension of an axis, counted from the end."""
    return AXES.index(axis) - len(AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(AXES) - len(own)))]
    return np.moveaxis(array, range(-len(AXES), len(own) - len(AXES)), own)


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in AXES])


def position_of(function, body, axis, where):
    """Where argmax or argmin finds an element of those that take part; −1 if none does."""
    found = np.any(np.broadcast_to(where, body.shape), axis, keepdims=True)
    return np.where(found, function(body, axis, keepdims=True), -1)


def largest(body, axis, k, out, where=None):
    """The positions of the k largest elements along an axis, as an axis `out`; of equals the first comes first."""
    order = np.argsort(-body if where is None else np.where(where, -body, np.inf), axis=along(axis), kind="stable")
    return np.swapaxes(np.take(order, range(k), along(axis)), along(axis), along(out))


def chosen(body, axis, at, out):
    """The elements at positions that `largest` found."""
    return np.swapaxes(np.take_along_axis(body, np.swapaxes(at, along(axis), along(out)), along(axis)), along(axis), along(out))


def stepped(axis, length, place, every, states, elements, step):
    """A recurrence, one element after the other: the last of state number `place`, or that after or before every element."""
    seen, dim = [], along(axis)
    states = tuple(np.reshape(np.asarray(state, np.float64), (1,) * (len(AXES) - np.ndim(state)) + np.shape(state)) for state in states)
    for at in range(length):
        here = [np.take(element, [at if element.shape[dim] > 1 else 0], dim) for element in elements]
        after = step(*states, *here)
        seen += [(after if every == "after" else states)[place]] if every else []
        states = after
    return np.concatenate(np.broadcast_arrays(*seen), dim) if every else states[place]


FORMATS = {"bfloat16": (7, -126, (2 - 2.0**-7) * 2.0**127, np.inf), "float8_e4m3": (3, -6, 448.0, 448.0),
           "float8_e5m2": (2, -14, 57344.0, np.inf)}


def cast_to(values, dtype):
    """Values rounded to a number format and kept wide: to nearest, ties to even; whole numbers stay within their limits."""
    if dtype in FORMATS:
        mantissa, smallest, most, beyond = FORMATS[dtype]
        exponent = np.maximum(np.frexp(values)[1] - 1, smallest) - mantissa
        near = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)
        return np.where(np.abs(near) > most, np.copysign(beyond, values), near)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return np.clip(np.rint(np.nan_to_num(values, nan=0.0)), limits.min, limits.max)
    return values.astype(dtype).astype(np.float64)


def taken_out(value, axes, lengths):
    """A value with dimensions (batch…, its axes…)."""
    own = axes.split()
    full = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), tuple(lengths[axis] if axis in own else 1 for axis in AXES)))
    moved = np.moveaxis(full, [along(axis) for axis in own], range(-len(own), 0))
    return moved.reshape(full.shape[:full.ndim - len(AXES)] + tuple(lengths[axis] for axis in own))
