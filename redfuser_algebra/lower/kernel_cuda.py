"""What every printed CUDA kernel has: its arguments, and where the numbers of a row begin in each array.

In: a tile program, and what its arrays are called.  Out: lines of source.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from redfuser_algebra.lower.storage import Signature, Variable
from redfuser_algebra.lower.tile import TileProgram


class KernelPrinter:
    """A printer of kernels: `names` of arrays and scalars, `sizes` and `counts` that it is given, and the types of its `outputs`."""

    program: TileProgram
    signature: Signature
    names: Mapping[str, str]
    sizes: Sequence[str]
    counts: Sequence[str]
    outputs: Sequence[str]

    def _held(self) -> list[Variable]:
        """What a part of a row leaves in memory."""
        raise NotImplementedError

    def _real(self, name: str) -> bool:
        return self.signature.arrays[name] in ("f4", "f8")

    def _scale(self, name: str) -> str:
        """Code that makes bytes of a number of places in an array of real numbers."""
        return " * SIZE"

    def _arguments(self) -> list[str]:
        arrays = [part for name in self.program.inputs for part in (self.names[name], f"s_{name}")]
        return [*arrays, *(self.names[p] for p in self.program.params), *(f"n_{a}" for a in self.sizes), *self.counts,
                *(f"part_{v.name}" for v in self._held()), *(f"out_{place}" for place in range(len(self.outputs)))]

    def _begins(self, rows: Sequence[str], index: str) -> list[str]:
        """Where `rest` is along axes of rows, as `index` calls it, and in which part of the batch; and where each array begins there."""
        lines = [line for each in reversed(rows) for line in (f"{index}_{each} = rest % n_{each}", f"rest //= n_{each}")]
        for name, axes in self.program.inputs.items():
            place, inner = "", [f"n_{self.program.copies.get(a, a)}" for a in axes if a not in rows]
            for each in (a for a in axes if a in rows):
                place = f"({place}) * n_{each} + {index}_{each}" if place else f"{index}_{each}"
            lines.append(f"o_{name} = rest * s_{name}" + (f" + {' * '.join([f'({place})', *inner])}" if place else ""))
            if self._real(name):
                lines.append(f"p_{name} = address({self.names[name]}) + o_{name}{self._scale(name)}")
        return lines
