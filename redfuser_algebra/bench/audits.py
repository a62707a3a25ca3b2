"""Audits of many CUDA kernels, each kept as soon as it is made.

In: operators, and a file of JSON lines.  Out: for each kernel what its audit found, as plain data.  What the file holds
of the same source is not made again, so that a run that was stopped goes on where it was.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import redfuser_algebra as ra
from redfuser_algebra.console import print_json, progress, show_lines, show_table
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.tile import LoweringError

HEAD = ("kernel", "passed", "registers", "spilled", "error of limit", "of ideal bytes", "bank passes", "bound", "roofline", "s")


def audits(operators: Sequence[ra.Operator], dtype: str, card: str, record: Path, told: Callable[[int, int], None]) -> Iterator[dict]:
    """What each audit found, with its `source`, a hash, and its `seconds`; operators that have no kernel are passed over.

    Raises OperatorError for a file that holds something else.
    """
    known = recorded(record)
    for done, operator in enumerate(operators):
        told(done, len(operators))
        try:
            kernel = ra.fuse(operator).kernel("cuda", dtype=dtype)
        except (ra.NotFusable, LoweringError):
            continue
        source, begun = sha256(f"{card}\n{kernel.source}".encode()).hexdigest(), perf_counter()
        if source not in known:
            known[source] = kernel.audit(card=card).to_json() | {"source": source, "seconds": perf_counter() - begun}
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[source]) + "\n")
        yield known[source]


def recorded(record: Path) -> dict[str, dict]:
    """The audits in a file, by source; none if there is no file."""
    try:
        found = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()] if record.exists() else []
        return {each["source"]: each for each in found}
    except (ValueError, TypeError, KeyError) as error:
        raise OperatorError(f"going on with the audits in {record}", "the file holds something else", "name another one, or a new one") from error


def cells(found: dict) -> list[str]:
    """An audit in the words of HEAD: the worst of its binaries and cases."""
    cases, binaries = found["cases"], found["binaries"]
    worst = max(("inf" if case["fault"] else case["error"] / case["limit"] for case in cases), key=float, default=0.0)
    part = {name: max((case[name] for case in cases[-1:] if case[name]), default=0.0) for name in ("traffic", "conflicts")}
    return [found["operator"], "yes" if found["passed"] else "NO", str(max(b["registers"] for b in binaries)), str(max(b["spilled"] for b in binaries)),
            f"{float(worst):.2f}", f"{part['traffic']:.3f}", f"{part['conflicts']:.2f}", found.get("bound", ""), f"{found['roofline']:.0%}" if "roofline" in found else "", f"{found['seconds']:.0f}"]


def shown(operators: Sequence[ra.Operator], dtype: str, card: str, record: Path, as_json: bool) -> bool:
    """Print a table or data of all audits, also of those so far if it is stopped; whether every kernel passed."""
    found = []
    try:
        with progress("auditing") as told:
            for each in audits(operators, dtype, card, record, told):
                found.append(each)
    finally:
        if as_json:
            print_json(found)
        else:
            show_table(list(HEAD), [cells(each) for each in found])
            show_lines([f"{sum(each['passed'] for each in found)} of {len(found)} kernels passed; all audits are in {record}"])
    return all(each["passed"] for each in found)
