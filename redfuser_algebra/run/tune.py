"""Tuning: measure the legal schedules of a kernel on given arrays, and keep what was measured.

In: an operator, its form, and a call.  Out: the schedules tried, fastest first; later calls use the fastest.
"""
from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.cost import estimate, work_of
from redfuser_algebra.lower.kinds import natural_kinds
from redfuser_algebra.lower.schedule import Schedule, candidates
from redfuser_algebra.lower.tile import TileProgram
from redfuser_algebra.run.cpu import kernel_of_call, machine, run_cpu, signature_of
from redfuser_algebra.run.export import drawn, draws
from redfuser_algebra.run.plan import NUMPY_DTYPES
from redfuser_algebra.run.schedules import Measured, keep, key_of, measured

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

AHEAD = 16
"""How many candidates are measured: those that the cost model finds fastest."""
RUNS, SHORTEST = 5, 0.002
"""Each figure is the least of so many runs, and a run repeats the call until it takes so many seconds."""


def lengths_in(shape: str) -> dict[str, int]:
    """Axis lengths as they are written: m=4096,l=8192."""
    if not re.fullmatch(r"(\w+=[1-9]\d*(,|$))+", shape):
        raise OperatorError(f"the shape {shape!r}", "it is not a list of axes with lengths", "write it so: m=4096,l=8192")
    return {axis: int(length) for axis, length in re.findall(r"(\w+)=(\d+)", shape)}


def arrays_for(operator: Operator, sizes: Mapping[str, int], batch: int, dtype: str) -> dict[str, np.ndarray]:
    """Random arrays of these axis lengths on which the operator has finite results; `batch` of those with the longest axis.

    Raises OperatorError unless every axis has a length.
    """
    missing = [axis for own in operator.inputs.values() for axis in own if axis not in sizes]
    if missing:
        raise OperatorError(f"arrays for {operator.signature}", f"the length of axis {missing[0]} is not given",
                            f"give all: {','.join(f'{axis}=…' for axis in dict.fromkeys(a for own in operator.inputs.values() for a in own))}")
    natural, rng = natural_kinds(operator), np.random.default_rng(0)
    longest = max(operator.axes, key=lambda axis: sizes.get(axis, 0))
    shapes = {name: (*([batch] if batch > 1 and longest in own else []), *(sizes[axis] for axis in own)) for name, own in operator.inputs.items()}
    return {name: drawn(rng, kind, shapes[name]).astype(natural.get(name, dtype)) for name, kind in draws(operator).items()}


def tune(operator: Operator, form: FusedForm, binding: Binding, progress: Callable[[int, int], None] | None = None) -> Measured:
    """Seconds of each schedule, fastest first.

    What was measured before is not measured again.  `progress` hears (done, of how many).  Stopping it (Ctrl-C) keeps
    all that was measured.  Raises OperatorError where there is no kernel.
    """
    signature = signature_of(binding)
    compiled = kernel_of_call(operator, form, binding, signature)
    if compiled is None:
        raise OperatorError(f"tuning {operator.name} on shapes {[a.shape for a in binding.arrays.values()]}",
                            "there is no kernel for such a call", "give arrays without empty axes, of real or whole numbers")
    batch = math.prod(binding.batch)
    key, wanted = key_of(compiled.title, binding.sizes, batch), _wanted(compiled.program, binding, batch, NUMPY_DTYPES[signature.real].itemsize)
    known = measured(key)
    for done, schedule in enumerate(wanted):
        if progress:
            progress(done, len(wanted))
        if schedule not in known:
            known[schedule] = seconds = _seconds(lambda schedule=schedule: run_cpu(operator, form, binding, schedule))
            keep(key, schedule, seconds)
            compiled.schedules.clear()
    if progress:
        progress(len(wanted), len(wanted))
    return dict(sorted(known.items(), key=lambda item: item[1]))


def _wanted(program: TileProgram, binding: Binding, batch: int, width: int) -> Sequence[Schedule]:
    """The candidates that the cost model puts first."""
    work, block = work_of(program, binding.sizes, batch, width), binding.sizes.get(program.block, 1)
    return sorted(candidates(program, binding.sizes, batch, machine()), key=lambda each: estimate(work, each, block, width, machine()))[:AHEAD]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    if call() is None:
        raise OperatorError("tuning", "the kernel could not be compiled", "see the warning")
    once = time.perf_counter() - start
    start = time.perf_counter()
    call()
    once = min(once, time.perf_counter() - start)
    repeats = max(1, math.ceil(SHORTEST / max(once, 1e-9)))
    best = math.inf
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter() - start) / repeats)
    return best
