"""How the inputs of catalogue entries are drawn: a Draw maps a generator and a shape to an array."""
from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from redfuser_algebra.language.operator import Operator

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

SIZES = {"m": 3, "n": 5, "k": 4, "d": 4, "e": 4, "b": 5, "c": 3, "r": 2, "h": 2, "plane": 2}
"""Lengths of the axes that are not reduced (3 for any other name); `c` is space, `plane` the plane."""


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Mean 0, deviation 1."""
    return rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform between ½ and 2."""
    return rng.uniform(0.5, 2.0, shape)


def unit(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Inside (0, 1), away from both ends."""
    return rng.uniform(0.01, 0.99, shape)


def bits(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """0 or 1."""
    return rng.integers(0, 2, shape).astype(float)


def signs(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """−1 or 1."""
    return 2.0 * rng.integers(0, 2, shape) - 1.0


def whole(below: int) -> Draw:
    """Whole numbers 0 … below − 1."""
    return lambda rng, shape: rng.integers(0, below, shape).astype(float)


def between(low: float, high: float) -> Draw:
    """Uniform between two numbers."""
    return lambda rng, shape: rng.uniform(low, high, shape)


def spread(centre: float, deviation: float) -> Draw:
    """Normal about a centre."""
    return lambda rng, shape: centre + deviation * rng.standard_normal(shape)


def simplex(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Positive, with sum 1 along the last axis."""
    x = rng.uniform(0.5, 2.0, shape)
    return x / x.sum(-1, keepdims=True)


def constant(value: float) -> Draw:
    """The same number everywhere."""
    return lambda rng, shape: np.full(shape, float(value))


def one_hot(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A single 1 on a line of zeros."""
    return np.eye(shape[-1])[rng.integers(shape[-1])]


def identity(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """1 on the diagonal, 0 elsewhere."""
    return np.eye(*shape)


def drawn(operator: Operator, kinds: Mapping[str, Draw | float] | Callable) -> Callable:
    """inputs(rng, L) → {name: array or number} for `operator`: normal, except for what `kinds` says."""

    def inputs(rng: np.random.Generator, length: int) -> dict[str, np.ndarray | float]:
        given = kinds(rng, length) if callable(kinds) else kinds
        sizes = SIZES | {"l": length}
        shapes = {name: tuple(sizes.get(axis, 3) for axis in axes) for name, axes in operator.inputs.items() if name not in operator.again}
        arrays = {name: _value(given.get(name, normal), rng, shape) for name, shape in shapes.items()}
        return arrays | {name: given[name] for name in operator.params if name in given}

    return inputs


def alone(operator: Operator, kinds: Mapping[str, Draw | float] | Callable) -> dict[str, Draw]:
    """The arrays that are drawn each by itself, and how; none where they depend on one another."""
    stated = {} if callable(kinds) else {name: kind for name, kind in kinds.items() if name in operator.inputs}
    return {name: kind if callable(kind) else constant(kind) for name, kind in stated.items()}


def _value(kind: Draw | np.ndarray | float, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(kind(rng, shape) if callable(kind) else kind, dtype=float)
