"""Generated text that is made from other generated text."""
from __future__ import annotations


def variant(text: str, *changes: tuple[str, str]) -> str:
    """A text with parts replaced.  Raises ValueError for a part that is not in it: then the two texts have come apart."""
    for old, new in changes:
        if old not in text:
            raise ValueError(f"the text to vary has no {old!r}")
        text = text.replace(old, new)
    return text
