"""HTML for notebooks: fragments made of text, LaTeX and tables, in which nothing that comes from users is markup.

In: plain text, which is escaped here, or fragments made here.  Out: fragments.  Colours follow the notebook's theme.
"""
from __future__ import annotations

import base64
import html
import re
from collections.abc import Collection, Iterable, Sequence


class Fragment(str):
    """Markup that may stand in a page as it is; every other text is escaped."""

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self)} letters"

    def _repr_html_(self) -> str:
        return str(self)


class Picture(Fragment):
    """SVG in the colour of the page's own text.

    As the result of a cell it is an image in a colour that is read on any page: where a notebook is not trusted, JupyterLab
    and GitHub take SVG itself for text.
    """

    def _repr_html_(self) -> str:
        code = base64.b64encode(self.replace("currentColor", _ANYWHERE).encode()).decode()
        label = re.search(r'aria-label="([^"]*)"', self)
        return f'<img alt="{label[1] if label else ""}" src="data:image/svg+xml;base64,{code}" style="max-width:100%">'


_ANYWHERE = "#7a7a7a"
"""A grey that is read on white and on black."""


def said(text: object) -> Fragment:
    """A text, escaped; a fragment as it is."""
    return text if isinstance(text, Fragment) else Fragment(html.escape(str(text)))


def element(tag: str, *content: object, **attributes: str) -> Fragment:
    """<tag attributes>content</tag>; a trailing underscore of an attribute's name is dropped."""
    given = "".join(f' {name.rstrip("_")}="{html.escape(value)}"' for name, value in attributes.items())
    return Fragment(f"<{tag}{given}>{''.join(map(said, content))}</{tag}>")


def joined(*parts: object) -> Fragment:
    """Parts one after the other."""
    return Fragment("".join(map(said, parts)))


def titled(title: object, *content: object) -> Fragment:
    """A line in bold, and what belongs to it; nothing where there is nothing."""
    return joined(element("div", element("b", title)), *content) if any(content) else Fragment()


def paragraphs(lines: Iterable[object]) -> Fragment:
    """A paragraph per line."""
    return joined(*(element("p", line, style="margin:.3em 0") for line in lines))


def listed(lines: Iterable[object]) -> Fragment:
    """A list; nothing for no lines."""
    items = [element("li", line) for line in lines]
    return element("ul", *items, style="margin:.2em 0") if items else Fragment()


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> Fragment:
    """A table with its cells to the left, and room between them; one that is too wide can be scrolled."""
    left = "text-align:left;padding:.1em 1em .1em 0"
    body = [element("tr", *(element("td", cell, style=left) for cell in row)) for row in rows]
    heads = [element("tr", *(element("th", cell, style=left) for cell in head))] if any(head) else []
    return scrolled(element("table", element("thead", *heads), element("tbody", *body), style="line-height:1.4;margin:.2em 0"))


_WITHIN = "width:0;min-width:100%"
"""What is long must not make what holds it wider."""
_AS_WRITTEN = f"white-space:pre;word-break:normal;{_WITHIN}"
"""JupyterLab would break lines, and words in them."""


def scrolled(*content: object) -> Fragment:
    """Content that scrolls sideways where it is too wide."""
    return element("div", *content, class_="redfuser-wide", style=f"overflow-x:auto;{_WITHIN}")


def preformatted(text: object) -> Fragment:
    """Text as it is, in letters of equal width; lines that are too long can be scrolled to."""
    return element("pre", text, style=f"{_AS_WRITTEN};overflow-x:auto;margin:.4em 0;line-height:1.3")


def folded(title: object, *content: object, unfolded: bool = False) -> Fragment:
    """Content behind a title that opens it."""
    inside = joined(element("summary", title, style="cursor:pointer"), *content)
    return element("details", inside, **({"open": ""} if unfolded else {}))


def formula(latex: str) -> Fragment:
    """LaTeX in the line."""
    return Fragment(f"${html.escape(latex, quote=False)}$")


def displayed(latex: str) -> Fragment:
    """LaTeX on lines of its own, which can be scrolled where they are too long."""
    return scrolled(Fragment(f"$${html.escape(latex, quote=False)}$$"))


_COLOURS = {"k": ("keyword", "#008000"), "s": ("string", "#a31515"), "c": ("comment", "#607060"), "m": ("number", "#006060"),
            "nf": ("def", "#0000c0"), "nd": ("meta", "#7a3e9d"), "nb": ("builtin", "#008000"), "o": ("operator", "#7a3e9d")}
"""Classes of Pygments' tokens, the colour of a JupyterLab theme for each, and the one where there is no theme."""


def highlighted(source: str, marked: Collection[int] = ()) -> Fragment:
    """Python source in colours; the lines in `marked`, counted from 1, have a bar at their side."""
    from pygments import lex
    from pygments.lexers import PythonLexer
    from pygments.token import STANDARD_TYPES

    lines = [[]]
    for token, text in lex(source, PythonLexer(stripnl=False, ensurenl=False)):
        name = STANDARD_TYPES.get(token, "")
        kind = next((kind for kind in (name, name[:1]) if kind in _COLOURS), "")
        for number, piece in enumerate(text.split("\n")):
            if number:
                lines.append([])
            lines[-1] += [element("span", piece, style=_colour(kind)) if kind and piece.strip() else said(piece)] if piece else []
    bar = "border-left:3px solid #e08020;background:rgba(224,128,32,.14);padding-left:6px;display:block"
    plain = "border-left:3px solid transparent;padding-left:6px;display:block"
    shown = [element("span", *(line or [" "]), style=bar if number in marked else plain) for number, line in enumerate(lines, 1)]
    return element("pre", *shown, style=f"{_AS_WRITTEN};overflow:auto;max-height:32em;line-height:1.3;margin:.4em 0")


def _colour(kind: str) -> str:
    theme, plain = _COLOURS[kind]
    return f"color:var(--jp-mirror-editor-{theme}-color,{plain})"
