"""Which inputs of a CUDA kernel are floats of eight bits."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FORMATS = {"float8_e4m3": "e4m3", "float8_e5m2": "e5m2"}
"""Formats of eight bits, and what machine instructions call them: their kinds."""


@dataclass(frozen=True)
class Float8:
    """Inputs that lie in memory as floats of eight bits, by their formats; `native`: the instructions of sm_89 take them."""

    formats: Mapping[str, str] = field(default_factory=dict)
    native: bool = False

    def kind(self, name: str) -> str:
        """What instructions call the format of an input; "" for one of the kernel's dtype."""
        return FORMATS[self.formats[name]] if name in self.formats else ""
