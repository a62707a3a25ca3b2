"""An online form, carried out on parts of a few elements: a later part goes on from the state of those before it.

In: an online form and Instances.  Out: states.  What merges nowhere is only ever continued here.
"""
from __future__ import annotations

import numpy as np

from redfuser_algebra.prove.trials.arithmetic import Evaluation, Instance
from redfuser_algebra.prove.trials.parts import Carrier, Held, Part
from redfuser_algebra.prove.trials.scans import stepped


class OnlineCarrier(Carrier):
    """The form in one arithmetic: its states before, and after, some elements."""

    def lift(self, instance: Instance, about: Part | None = None) -> Part:
        """The state of the elements of an instance that come first."""
        evaluation = Evaluation(self.arithmetic, instance)
        starts = {c.name: Held(evaluation.number(c.start), np.full((1,) * evaluation.ndim, True)) for c in self.form.state}
        return self._after(Part(starts, 0, self.values(instance, 0)), instance)

    def merge(self, a: Part, b: Part) -> Part:
        """The state of `a`, after the elements of `b`."""
        if not (a.length and b.length):
            return a if a.length else b
        return self._after(a, b.values.evaluation.instance)

    def _after(self, part: Part, instance: Instance) -> Part:
        values = {name: held.value for name, held in part.held.items()}
        for values in stepped(Evaluation(self.arithmetic, instance), self.form.axis, values, self.form.steps):
            pass
        length = part.length + len(instance.positions)
        after = self.values(instance, length)
        held = {name: Held(value, part.held[name].present) for name, value in values.items()}
        for name, each in held.items():
            after.hold(name, each)
        return Part(held, length, after)
