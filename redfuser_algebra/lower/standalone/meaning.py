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
    array, axes = np.asarray(array, np.float64), axes.split()
    batch, order = array.ndim - len(axes), sorted(axes, key=AXES.index)
    moved = array.transpose(*range(batch), *(batch + axes.index(axis) for axis in order))
    lengths = dict(zip(order, moved.shape[batch:]))
    return moved.reshape(*moved.shape[:batch], *(lengths.get(axis, 1) for axis in AXES))


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in AXES])


REDUCTIONS = {"sum": (np.sum, 0), "prod": (np.prod, 1), "max": (np.max, -np.inf), "min": (np.min, np.inf), "any": (np.any, False),
              "all": (np.all, True), "fmax": (np.fmax.reduce, -np.inf), "fmin": (np.fmin.reduce, np.inf),
              "argmax": (np.argmax, -np.inf), "argmin": (np.argmin, np.inf)}


def reduced(monoid, body, axis, where=None):
    """⊕ over an axis, which keeps a dimension of length 1; elements outside the mask do not take part."""
    function, nothing = REDUCTIONS[monoid]
    masked = body if where is None else np.where(where, body, nothing)
    result = function(masked, axis=along(axis), keepdims=True)
    if where is None or not monoid.startswith("arg"):
        return result
    return np.where(np.any(np.broadcast_to(where, masked.shape), axis=along(axis), keepdims=True), result, -1)


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
        seen.append((after if every == "after" else states)[place])
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
    value = value if np.ndim(value) else np.full((1,) * len(AXES), value)
    axes, batch = axes.split(), value.ndim - len(AXES)
    full = np.broadcast_to(value, value.shape[:batch] + tuple(lengths[axis] if axis in axes else 1 for axis in AXES))
    kept = sorted(axes, key=AXES.index)
    full = full.reshape(value.shape[:batch] + tuple(lengths[axis] for axis in kept))
    return full.transpose(*range(batch), *(batch + kept.index(axis) for axis in axes))
