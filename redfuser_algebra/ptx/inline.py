"""Calls of PTX functions, written out where they stand: an interpreter of one body needs no stack then.

In: the text of a module.  Out: the same with every call of a function that the module defines replaced by its body.
"""
from __future__ import annotations

import re

from redfuser_algebra.ptx.text import PtxError, braced

_FUNCTION = re.compile(r"\.func\s*(?:\(\s*\.param\s+[^)]*?(?P<result>[\w$]+)(?:\[\d+\])?\s*\))?\s*(?P<name>[\w$]+)\s*\((?P<parameters>[^)]*)\)[^{;]*\{")
_CALL = re.compile(r"call(?:\.uni)?\s*(?:\(\s*(?P<result>[\w$]+)\s*\)\s*,)?\s*(?P<name>[\w$]+)\s*,?\s*(?:\((?P<given>[^)]*)\))?\s*;")
_REGISTER = re.compile(r"%(?!(?:tid|ntid|ctaid|nctaid|laneid|warpid|dynamic_smem_size)\b)([A-Za-z_]\w*)")
MOST = 1000
"""Calls after which functions are taken to call one another without end."""


def without_calls(text: str) -> str:
    """The module's text with the bodies of functions in place of calls.  Raises PtxError for recursion."""
    functions = {}
    for found in _FUNCTION.finditer(text):
        names = re.findall(r"([\w$]+)(?:\[\d+\])?\s*(?:,|$)", found["parameters"].strip())
        functions[found["name"]] = (names, found["result"], braced(text, found.end()))
    for number in range(MOST):
        call = next((each for each in _CALL.finditer(text) if each["name"] in functions), None)
        if call is None:
            return text
        text = text[:call.start()] + _written_out(call, *functions[call["name"]], number) + text[call.end():]
    raise PtxError("functions that call one another without end", "only functions that end can be executed")


def _written_out(call: re.Match, parameters: list[str], result: str | None, body: str, number: int) -> str:
    given = [name.strip() for name in (call["given"] or "").split(",") if name.strip()]
    body = _REGISTER.sub(rf"%call{number}_\1", body)
    body = re.sub(r"(\$L_\w+|__local_depot\w+)", rf"\1_call{number}", body)
    body = re.sub(r"\bret(?:\.uni)?\s*;", f"bra $L_end_call{number};", body)
    for name, own in [*zip(parameters, given, strict=True), *([(result, call["result"])] if result else [])]:
        body = re.sub(rf"(?<![\w$]){re.escape(name)}(?![\w$])", own, body)
    return f"{{ {body}\n$L_end_call{number}: }}"
