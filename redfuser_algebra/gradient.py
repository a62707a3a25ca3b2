"""`fused.gradient()`: the vector–Jacobian product of an operator, each of its operators decided and fused by itself.

In: an operator with a fused form.  Out: a `Gradient`, which holds the operators and is called with arrays.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.discover.display import verdict_line
from redfuser_algebra.language.binding import Binding, Signature, bind
from redfuser_algebra.language.cascade import cascades
from redfuser_algebra.language.differentiation import Backward, differentiated
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.html import Fragment, displayed, joined
from redfuser_algebra.language.latex import operator_latex
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.dtypes import result_dtypes
from redfuser_algebra.run.reference import as_written

if TYPE_CHECKING:
    from redfuser_algebra.fused import Verdict

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Gradient:
    """x̄ = Σ ȳ·∂y/∂x for every input x that the outputs y depend on smoothly; call it with the inputs and the ȳ.

    `saved` is the operator of what the forward pass leaves of each row (None: nothing is needed); what varies along the
    swept axis is computed again from it.  `cotangents` names each ȳ, with the axes of its output.  `verdicts` tells of
    each operator that reduces something, by its name, whether it is fused; the others are computed as written.  Operators
    whose names end in `_reversed` go back along a recurrence: they take, and give, arrays with the swept axis reversed.
    """

    operator: Operator
    backward: Backward
    verdicts: dict[str, Verdict]

    @property
    def saved(self) -> Operator | None:
        """The operator that gives the results of each row by name, all in one sweep."""
        return self.backward.saved

    @property
    def cotangents(self) -> dict[str, tuple[str, ...]]:
        """The name of each output's derivative, with its axes."""
        return self.backward.cotangents

    @property
    def operators(self) -> dict[str, Operator]:
        """By each input, the operator that gives the derivative by it; one operator may give several."""
        return {name: operator for names, operator in self.backward.operators.items() for name in names}

    @property
    def parts(self) -> tuple[Operator, ...]:
        """Every operator once, what is saved first."""
        return (*filter(None, [self.saved]), *self.backward.operators.values())

    def __call__(self, /, *arrays: object, saved: Arrays | None = None, backend: str = "auto", **named: object) -> dict[str, np.ndarray]:
        """The derivatives by input name, each with the shape of its input.

        Arrays are the operator's inputs and then one ȳ for each real output (without dimensions of length one that it keeps),
        by position or by name; scalars by name.  An input that is read twice has one derivative, unless both are given.
        Leading extra dimensions are batch; an input that lacks some of them has its derivatives added up.  `saved` are
        the results of `saved`, if they are known already.  `backend` is as for a fused operator.  Raises OperatorError
        for arrays that do not fit.
        """
        binding = bind(self._signature, arrays, named)
        given = binding.arrays | binding.params
        if self.saved is not None:
            given |= self._run(self.saved, given, backend) if saved is None else self._checked(saved)
        length = binding.sizes[self.backward.axis]
        given |= {self.backward.position: np.arange(length), self.backward.length: np.asarray(length)}
        found = {}
        for names, operator in self.backward.operators.items():
            turned = names in self.backward.reversed
            own = {name: self._turned(array, operator.inputs.get(name, ())) for name, array in given.items()} if turned else given
            result = self._run(operator, own, backend)
            parts = result.values() if len(names) > 1 else [result]
            for name, part, axes in zip(names, parts, operator.output_axes, strict=True):
                part = self._turned(part, axes) if turned else part
                found[name] = self._like_input(name, part, axes, binding)
        for name, source in self.operator.again.items():
            if name in found and name not in named and len(arrays) <= [*self._signature.inputs].index(name):
                found[source] = found.pop(name) + found.get(source, 0)
        return {name: found[name] for name in self.operator.inputs if name in found}

    def _turned(self, array: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
        """An array with the swept axis reversed, where it has it."""
        return np.flip(array, axes.index(self.backward.axis) - len(axes)) if self.backward.axis in axes else array

    @property
    def _signature(self) -> Signature:
        """The inputs, the ȳ, and inputs that are another one once more."""
        own = self.operator.signature
        given = {name: axes for name, axes in own.inputs.items() if name not in own.again}
        again = {name: own.inputs[name] for name in own.again}
        return Signature(f"the gradient of {own.name}", given | self.cotangents | again, own.params, own.tops, own.again, constants=own.constants)

    def _checked(self, saved: Arrays) -> Arrays:
        missing = [name for name in self.saved.structure if name not in saved]
        if missing:
            raise OperatorError(f"the gradient of {self.operator.name} with saved=", f"{', '.join(missing)} is not in it",
                                f"pass what {self.saved.name} gives for the same inputs, or leave it out")
        return {name: saved[name] for name in self.saved.structure}

    def _run(self, operator: Operator, given: Mapping[str, object], backend: str) -> object:
        operands = {name: given[name] for name in (*operator.inputs, *operator.params)}
        verdict = self.verdicts.get(operator.name)
        if verdict is not None and verdict.fused is not None:
            return verdict.fused(**operands, backend=backend)
        [output, *others] = operator.outputs
        if output.op == "input" and not others and operator.output_axes == (output.axes,):
            array = operator.bind(**operands).arrays[output.name]
            return array.astype(*result_dtypes(operator, {output.name: array.dtype}, {}))
        return as_written(operator, operands)

    def _like_input(self, name: str, part: np.ndarray, axes: tuple[str, ...], binding: Binding) -> np.ndarray:
        """A derivative with the shape of its input: the same along axes it lacks, added up over batch that the input lacks."""
        part, own, given = np.asarray(part), self.operator.inputs[name], binding.arrays[name].shape
        whole = (*binding.batch, *(binding.sizes[axis] for axis in own))
        if part.shape != whole:
            batch = part.shape[:part.ndim - len(axes)]
            part = np.broadcast_to(part.reshape((*batch, *(binding.sizes[axis] if axis in axes else 1 for axis in own))), whole)
        missing = part.ndim - len(given)
        alone = tuple(dim for dim, length in enumerate(given, missing) if length == 1 != part.shape[dim])
        if missing or alone:
            return part.sum(axis=(*range(missing), *alone), dtype=np.float64).astype(part.dtype).reshape(given)
        return part if part.flags.owndata else part.copy()

    def __str__(self) -> str:
        return "\n\n".join(f"{self._line(operator)}\n{operator}" for operator in self.parts)

    __repr__ = __str__

    def _line(self, operator: Operator) -> str:
        verdict = self.verdicts.get(operator.name)
        told = f"{verdict.status} ({verdict.reason})" if verdict else "nothing to reduce"
        turned = any(names in self.backward.reversed for names, each in self.backward.operators.items() if each is operator)
        return (f"{operator.name}: {told}" + (", saved by the forward pass" if operator is self.saved else "")
                + (f", from the last element along {self.backward.axis} to the first" if turned else ""))

    def _repr_latex_(self) -> str:
        return "\n\n".join(operator._repr_latex_() for operator in self.parts)

    def _repr_html_(self) -> str:
        verdicts = [self.verdicts.get(operator.name) for operator in self.parts]
        lines = [verdict_line(verdict) if verdict else Fragment(self._line(operator)) for verdict, operator in zip(verdicts, self.parts, strict=True)]
        return joined(*(joined(line, displayed(operator_latex(operator))) for line, operator in zip(lines, self.parts, strict=True)))


def gradient_of(operator: Operator, axis: str, decide: Callable[[Operator], Verdict]) -> Gradient:
    """The gradient of an operator that is swept along an axis; `decide` says of each of its operators how it is run.

    Raises OperatorError, which names the term, where the operator is not differentiable.
    """
    gradient = Gradient(operator, differentiated(operator, axis), {})
    return replace(gradient, verdicts={each.name: decide(each) for each in gradient.parts if cascades(each)})
