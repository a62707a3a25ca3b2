"""One question to a fresh e-graph: program text in, the cheapest equal term out.  The only importer of egglog."""
from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

import egglog.bindings as egglog

from redfuser_algebra.discover.rulesets import STUCK, law_of, program

Sexp = tuple | str | int

_TOKEN = re.compile(r'[()]|"(?:[^"\\]|\\.)*"|[^\s()]+')
_ENOUGH = 1_000
"""An e-graph of this size that has an answer is not grown further in the hope of a better one."""


@dataclass(frozen=True)
class Limits:
    """When to give up: a limit that is hit makes the verdict `undecided`, never `not fusable`."""

    nodes: int = 50_000
    iterations: int = 60


@dataclass(frozen=True)
class Answer:
    """The cheapest term equal to the question, and what it took to find it.

    `fired` counts the matches of each law.  `saturated` tells whether the rules had nothing more to say;
    `nodes` is the size of the e-graph at the end.
    """

    term: Sexp
    cost: int
    nodes: int
    iterations: int
    saturated: bool
    fired: Counter[str] = field(default_factory=Counter)

    @property
    def finite(self) -> bool:
        """No reduction was left that the laws could not take apart."""
        return self.cost < STUCK


class UnsoundLaws(RuntimeError):
    """Two different constants became equal: some enabled law is false, and nothing found with it may be used."""


class _Loaded(threading.local):
    """One e-graph per thread with the whole law table loaded; each question gets a copy of it (push, then pop).

    Loading checks every rule's types and takes a hundred times as long as a question.
    """

    def __init__(self) -> None:
        self.graph = egglog.EGraph()
        self.run(program())

    def run(self, text: str) -> list:
        return self.graph.run_program(*self.graph.parse_program(text))


@cache
def _loaded() -> _Loaded:
    return _Loaded()


def ask(lines: Iterable[str], question: str, laws: Iterable[str], limits: Limits) -> Answer:
    """Define the terms in `lines`, let `laws` work until they are done or a limit is hit, extract `question`."""
    run = _loaded().run
    run("(push)")
    try:
        run("\n".join((*lines, f"(unstable-combined-ruleset asked structure {' '.join(laws)})",
                       f"(let $question {question})",
                       "(let $zero (Num (rational 0 1)))", "(let $one (Num (rational 1 1)))")))
        return _saturated(run, limits)
    finally:
        run("(pop)")


def _saturated(run: Callable[[str], list], limits: Limits) -> Answer:
    fired: Counter[str] = Counter()
    iterations, nodes, saturated = 0, 0, False
    while iterations < limits.iterations and nodes <= limits.nodes and not saturated:
        if nodes > _ENOUGH and run("(extract $question)")[0].cost < STUCK:
            break
        report = run("(run-schedule (run asked))")[0].report
        iterations += 1
        saturated = not report.updated
        nodes = sum(size for _, size in run("(print-size)")[0].sizes)
        for name, matches in report.num_matches_per_rule.items():
            fired.update({law: matches for law in law_of(name) if matches})
    _canary(run)
    best = run("(extract $question)")[0]
    return Answer(parse(best.termdag.to_string(best.term)), best.cost, nodes, iterations, saturated, fired)


def _canary(run) -> None:
    try:
        run("(fail (check (= $zero $one)))")
    except egglog.EggSmolError as error:
        raise UnsoundLaws("0 = 1 became derivable") from error


def parse(text: str) -> Sexp:
    """An s-expression as nested tuples; numbers become ints, quoted strings keep their quotes off."""
    tokens = iter(_TOKEN.findall(text))

    def read(token: str) -> Sexp:
        if token == "(":
            items = []
            while (inner := next(tokens)) != ")":
                items.append(read(inner))
            return tuple(items)
        if token.startswith('"'):
            return token[1:-1]
        return int(token) if re.fullmatch(r"-?\d+", token) else token

    return read(next(tokens))
