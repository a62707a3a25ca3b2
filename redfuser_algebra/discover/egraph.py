"""One question to a fresh e-graph: program text in, the cheapest equal term out.  The only importer of egglog."""
from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache

import egglog.bindings as egglog

from redfuser_algebra.discover.rulesets import STUCK, Content, content, foundation, law_of, law_program

Sexp = tuple | str | int

_ENOUGH = 1_000
"""An e-graph of this size that has an answer is not grown further in the hope of a better one."""

LOOKED_AT = 150
"""An e-graph of more nodes is nothing to look at."""

_EXPLOSION = 6
"""An e-graph that grows by this factor in one iteration is not iterated again: the next one might not end."""


@dataclass(frozen=True)
class Limits:
    """When to give up: a limit that is hit makes the verdict `undecided`, never `not fusable`."""

    nodes: int = 50_000
    iterations: int = 60


@dataclass(frozen=True)
class Answer:
    """The cheapest term equal to the question, and what it took to find it.

    `fired` counts the matches of each law.  `saturated` tells whether the rules had nothing more to say;
    `nodes` is the size of the e-graph at the end; `graph` the e-graph itself, if it was to be looked at and is small.
    """

    term: Sexp
    cost: int
    nodes: int
    iterations: int
    saturated: bool
    fired: Counter[str] = field(default_factory=Counter)
    graph: str = field(default="", compare=False, repr=False)

    @property
    def finite(self) -> bool:
        """No reduction was left that the laws could not take apart."""
        return self.cost < STUCK


class UnsoundLaws(RuntimeError):
    """Two different constants became equal: some enabled law is false, and nothing found with it may be used."""


class _Loaded(threading.local):
    """One e-graph per thread with the laws that were asked for; each question gets a copy of it (push, then pop).

    Loading a law checks its rules' types, which takes longer than most questions: so each is loaded once.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.graph = egglog.EGraph()
        self.laws: dict[str, Content] = {}
        self.run(foundation())

    def load(self, laws: Iterable[str]) -> None:
        """Load the laws that are not there yet; begin again if one of them has been declared anew and says otherwise."""
        contents = {name: content(name) for name in laws}
        if any(self.laws.get(name, law) != law for name, law in contents.items()):
            self._begin()
        self.run(_programs(name for name in contents if name not in self.laws))
        self.laws.update(contents)

    def run(self, text: str) -> list:
        return self.graph.run_program(*self.graph.parse_program(text))


@cache
def _loaded() -> _Loaded:
    return _Loaded()


@cache
def _bare() -> _Loaded:
    """E-graphs that hold no law between questions."""
    return _Loaded()


def _programs(laws: Iterable[str]) -> str:
    return "\n".join(law_program(content(name)[0]) for name in laws)


def ask(lines: Iterable[str], question: str, laws: Iterable[str], limits: Limits, fresh: bool = False, look: bool = False) -> Answer:
    """Define the terms in `lines`, let `laws` work until they are done or a limit is hit, extract `question`.

    Exact numbers that leave 64 bits are a limit, too.  A `fresh` e-graph holds these laws and no others.  With `look`
    the answer has the e-graph as JSON.
    """
    laws, loaded = list(laws), _bare() if fresh else _loaded()
    if not fresh:
        loaded.load(laws)
    run = loaded.run
    run("(push)")
    try:
        run("\n".join((_programs(laws) if fresh else "", *lines, f"(unstable-combined-ruleset asked structure {' '.join(laws)})",
                       f"(let $question {question})",
                       "(let $zero (Num (rational 0 1)))", "(let $one (Num (rational 1 1)))")))
        answer = _saturated(run, limits)
        return replace(answer, graph=loaded.graph.serialize([]).to_json()) if look and answer.nodes <= LOOKED_AT else answer
    except egglog.EggSmolError as error:
        if "primitive" not in str(error):
            raise
        return Answer(("Num", ("rational", 0, 1)), STUCK, 0, 0, saturated=False)
    finally:
        run("(pop)")


def _saturated(run: Callable[[str], list], limits: Limits) -> Answer:
    fired: Counter[str] = Counter()
    iterations, nodes, saturated = 0, 0, False
    while iterations < limits.iterations and nodes <= limits.nodes and not saturated:
        if nodes > _ENOUGH and run("(extract $question)")[0].cost < STUCK:
            break
        report = run("(run-schedule (saturate (run arithmetic)) (run asked))")[0].report
        iterations += 1
        saturated = not report.updated
        before, nodes = nodes, sum(size for _, size in run("(print-size)")[0].sizes)
        if nodes > _ENOUGH and nodes > _EXPLOSION * before and not saturated:
            break
        for name, matches in report.num_matches_per_rule.items():
            fired.update({law: matches for law in law_of(name) if matches})
    _canary(run)
    best = run("(extract $question)")[0]
    return Answer(_read(best.termdag, best.term), best.cost, nodes, iterations, saturated, fired)


def _canary(run) -> None:
    try:
        run("(fail (check (= $zero $one)))")
    except egglog.EggSmolError as error:
        raise UnsoundLaws("0 = 1 became derivable") from error


def _read(dag: egglog.TermDag, root: int) -> Sexp:
    """A term of the e-graph's answer as nested tuples, shared where the answer shares."""
    done: dict[int, Sexp] = {}

    def read(index: int) -> Sexp:
        if index not in done:
            node = dag.get(index)
            is_leaf = isinstance(node, egglog.TermLit)
            done[index] = node.value.value if is_leaf else (node.name, *map(read, node.args))
        return done[index]

    return read(root)
