"""The checker that measures: how far a form is from the truth when it is computed with floats.

In: a space of trials and an interpreter.  Out: errors in units in the last place against ball arithmetic, for inputs
that are hard on floats, next to those of the operator as written; and what is lost far from 0.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from redfuser_algebra.discover.asking import Settings
from redfuser_algebra.discover.discovery import discover
from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.prove.evidence import CANNOT, REFUTED, TESTED, Evidence
from redfuser_algebra.prove.trials import extended
from redfuser_algebra.prove.trials.arithmetic import Unsupported
from redfuser_algebra.prove.trials.float_trial import FloatTrial, Interpreter, relative, ulps
from redfuser_algebra.prove.trials.sampling import Space
from redfuser_algebra.prove.trials.sampling import space as posed_space

CHECKER = "floats"
MEASURED = ("float32", "float64")
ELEMENTS = 24
FAR, OFFSET, SPREAD = 192, 1e8, 1.0
"""With how many elements the loss far from 0 is measured, and how far."""


@dataclass(frozen=True)
class Inputs:
    """One kind of inputs, made of standard normal numbers; `plain` ones must give finite results."""

    name: str
    made: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    plain: bool = False


INPUTS = (
    Inputs("standard normal", lambda x, rng: x, plain=True),
    Inputs("up to 10⁴", lambda x, rng: 3e3 * x),
    Inputs("1000 + normal", lambda x, rng: 1e3 + x),
    Inputs("many magnitudes", lambda x, rng: x * np.exp(rng.uniform(-30, 30, x.shape))),
    Inputs("subnormal in float32", lambda x, rng: x * 1e-40),
    Inputs("zeros and ties", lambda x, rng: np.round(x)),
)


def measured(space: Space, cascade: Cascade, interpreter: Interpreter | None, seed: int) -> Iterator[tuple[str, Evidence]]:
    """The two obligations about floats with their evidence: errors near 0, and for forms with means what is lost far from it."""
    yield "floats", _near(space, interpreter, seed)
    moved = centred_inputs(space.form)
    if moved:
        yield "floats:far", _far(space, cascade, moved, seed)


def _near(space: Space, interpreter: Interpreter | None, seed: int) -> Evidence:
    """How far the form is from the truth, for each width of float and each kind of inputs."""
    figures: dict[str, object] = {}
    for dtype in MEASURED:
        for inputs in INPUTS:
            place = f"{dtype}, {inputs.name}"
            try:
                errors = _errors(space, inputs, dtype, interpreter, seed)
            except (Unsupported, extended.Undecided) as reason:
                figures[place] = f"not compared: {reason}"
                continue
            figures[place] = ", ".join(f"{how} {error:.3g} ulp" for how, error in errors.items())
            if inputs.plain and errors["as written"] < np.inf and max(errors.values()) == np.inf:
                return Evidence(CHECKER, REFUTED, {"seed": seed, "counterexample": {
                    "where": place, "got": "not finite", "expected": "finite, as the operator as written is"}}, figures)
    if not any("ulp" in str(figure) for figure in figures.values()):
        return Evidence(CHECKER, CANNOT, {"seed": seed, "reason": "no truth to compare with"}, figures)
    return Evidence(CHECKER, TESTED, {"seed": seed, "inputs": len(figures), "elements": ELEMENTS,
                                      "against": f"balls of {extended.BITS} bits"}, figures)


def _errors(space: Space, inputs: Inputs, dtype: str, interpreter: Interpreter | None, seed: int) -> dict[str, float]:
    """The largest error in ulps: of the form in parts, of the interpreter (in float64), and of the operator as written."""
    rng = np.random.default_rng(seed)
    trial = FloatTrial(space, drawn(space, rng, lambda x: inputs.made(x, rng), dtype, max(ELEMENTS, space.shortest)))
    results = {"form": trial.fused(dtype)}
    if interpreter and dtype == "float64":
        results["interpreter"] = trial.interpreted(interpreter)
    results["as written"] = trial.as_written(dtype)
    return {how: max(ulps(*pair, dtype) for pair in zip(values, trial.truth, strict=True)) for how, values in results.items()}


def drawn(space: Space, rng: np.random.Generator, made: Callable[[np.ndarray], np.ndarray], dtype: str,
          length: int) -> dict[str, np.ndarray]:
    """Arrays for the inputs, representable in `dtype`; inputs that have a sign have it."""
    sizes, arrays = {**space.sizes, space.form.axis: length}, {}
    for name, own in space.operator.inputs.items():
        x = rng.standard_normal([sizes[axis] for axis in own])
        x = made(x) if space.form.axis in own else x
        if "any" not in space.palettes[name]:
            x = np.abs(x) + float(np.finfo(dtype).tiny)
        arrays[name] = x.astype(dtype).astype(np.float64)
    return arrays


def centred_inputs(form: FusedForm) -> set[str]:
    """The inputs that some component keeps about a mean."""
    means = {pivot.name for pivot in form.pivots if pivot.value.op == "divide"}
    shifts = [term for component in form.state for term in subterms(component.lift) if term.op == "shift"]
    about = [term for term in shifts if means & {part.name for part in subterms(term.args[1]) if part.op == "symbol"}]
    return {part.name for term in about for part in subterms(term.args[0]) if part.op == "input"}


def _far(space: Space, cascade: Cascade, moved: set[str], seed: int) -> Evidence:
    """What float32 and float64 lose at a mean of 1e8 with spread 1, centred and raw."""
    rng = np.random.default_rng(seed)
    near = drawn(space, rng, lambda x: SPREAD * x, "float64", FAR)
    inputs = {name: array + OFFSET if name in moved else array for name, array in near.items()}
    form = discover(cascade, (*space.operator.assume, *space.form.assumptions), Settings(prefer="raw")).form
    raw = None if form is None else posed_space(space.operator, cascade, form)
    try:
        figures = _losses(FloatTrial(space, inputs), raw)
    except (Unsupported, extended.Undecided) as reason:
        return Evidence(CHECKER, CANNOT, {"seed": seed, "reason": f"no truth to compare with: {reason}"})
    return Evidence(CHECKER, TESTED, {"seed": seed, "elements": FAR, "mean": OFFSET, "spread": SPREAD}, figures)


def _losses(trial: FloatTrial, raw: Space | None) -> dict[str, object]:
    """Relative errors of every output against the truth for the numbers before they are rounded to float32."""
    rounded = {name: array.astype("float32").astype(np.float64) for name, array in trial.arrays.items()}
    narrow = FloatTrial(trial.space, rounded)
    figures = {"float32 inputs, everything else exact": _worst(_known(narrow.truth), trial.truth)}
    for dtype, given in (("float32", narrow), ("float64", trial)):
        figures[f"{dtype}, centred form"] = _worst(given.fused(dtype), trial.truth)
        if raw is not None:
            figures[f"{dtype}, raw form"] = _worst(FloatTrial(raw, given.arrays).fused(dtype), trial.truth)
        figures[f"{dtype}, as written"] = _worst(given.as_written(dtype), trial.truth)
    return figures


def _known(truth: list[np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(np.frompyfunc(lambda value: np.nan if value is None else float(value), 1, 1)(values), float)
            for values in truth]


def _worst(got: list[np.ndarray], true: list[np.ndarray]) -> str:
    return f"{max(relative(a, b) for a, b in zip(got, true, strict=True)):.2g}"
