"""Certificates: every obligation of a fused form with the evidence for it, and nothing claimed beyond that.

In: an operator, its cascade and its form.  Out: a Certificate, which prints, goes to JSON and comes back; reading one
executes nothing.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import metadata
from itertools import chain

from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.discover.length_given import length_given
from redfuser_algebra.discover.show import summary
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.by_distribution import DISTRIBUTED, distributed
from redfuser_algebra.prove.by_egraph import derived
from redfuser_algebra.prove.by_examples import tested
from redfuser_algebra.prove.by_floats import centred_inputs, measured
from redfuser_algebra.prove.by_sympy import simplified
from redfuser_algebra.prove.certificate_text import html, markdown
from redfuser_algebra.prove.evidence import CANNOT, PROVED, REFUTED, TESTED, VERDICTS, Evidence, Row
from redfuser_algebra.prove.obligations import Obligation, obligations
from redfuser_algebra.prove.trials.float_trial import Interpreter
from redfuser_algebra.prove.trials.sampling import space

EXAMPLES, DEEP_EXAMPLES = 40, 1000
SCHEMA = 1
OPTIONAL = ("infinities", "floats")
"""Kinds of obligation that may stay undecided: they speak of what lies outside the reals."""

PACKAGES = ("redfuser-algebra", "numpy", "egglog", "sympy", "hypothesis", "python-flint")
Progress = Callable[[int, int], None]
Heard = Callable[[str, Evidence], None]


@dataclass(frozen=True)
class Certificate:
    """The evidence that a fused form computes its operator.

    `status` is "proved" or "tested" if every obligation is, "proved and tested" if each is one of both, "refuted" if
    some is, "incomplete" if some is neither or was not looked at.  `laws` are the rows of the law table that the e-graph needed.  `hash`
    is of the content without versions and measured figures.
    """

    operator: str
    axis: str
    form: str
    rows: tuple[Row, ...]
    laws: tuple[str, ...]
    guards: tuple[str, ...]
    facts: tuple[str, ...]
    dangers: tuple[str, ...]
    examples: int
    seed: int
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def obligations(self) -> tuple[Row, ...]:
        """Every obligation with its evidence."""
        return self.rows

    def row(self, id: str) -> Row:
        """The obligation of that id.  Raises KeyError."""
        return {row.id: row for row in self.rows}[id]

    @cached_property
    def proved(self) -> frozenset[str]:
        """The obligations that are proved by a checker, or follow from obligations that are."""
        found = {row.id for row in self.rows if row.verdict == PROVED}
        while fresh := {row.id for row in self.rows if row.id not in found and row.verdict != REFUTED and row.follows_from
                        and set(row.follows_from) <= found}:
            found |= fresh
        return frozenset(found)

    @property
    def refuted(self) -> tuple[Row, ...]:
        """The obligations that some example refutes, limits aside."""
        return tuple(row for row in self.rows if row.verdict == REFUTED and not row.limit)

    @property
    def limits(self) -> tuple[Row, ...]:
        """Where the form stops doing what the operator as written does, with an example."""
        return tuple(row for row in self.rows if row.verdict == REFUTED and row.limit)

    @property
    def unseen(self) -> tuple[Row, ...]:
        """The obligations that no checker has looked at, because it was stopped."""
        return tuple(row for row in self.rows if not row.evidence and row.id not in self.proved)

    @cached_property
    def status(self) -> str:
        """In one or three words, what is known."""
        if self.refuted:
            return REFUTED
        needed = [row for row in self.rows if not row.limit and row.kind not in OPTIONAL]
        verdicts = {PROVED if row.id in self.proved else row.verdict for row in needed}
        if CANNOT in verdicts or self.unseen:
            return "incomplete"
        return f"{PROVED} and {TESTED}" if len(verdicts) > 1 else verdicts.pop()

    @cached_property
    def hash(self) -> str:
        """sha256 of the content, without versions and measured figures."""
        content = self.record()
        del content["versions"]
        for row in content["rows"]:
            for evidence in row["evidence"]:
                del evidence["measured"]
        written = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(written.encode()).hexdigest()

    def speaks_of(self, operator: Operator, form: FusedForm) -> bool:
        """Whether it was made for this operator and form."""
        return (self.operator, self.axis, self.form) == (str(operator), form.axis, _told(form))

    def record(self) -> dict[str, object]:
        """The content as data."""
        return {"schema": SCHEMA, **asdict(self)}

    def to_json(self) -> str:
        """The content with its status and hash, as text."""
        return json.dumps({**self.record(), "status": self.status, "hash": self.hash}, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> Certificate:
        """A certificate from the text of `to_json`.  Raises OperatorError for anything else, and for one that was changed."""
        return _read(text)

    def to_markdown(self) -> str:
        """The certificate for people: obligations and evidence, laws, guards, facts, what floats lose."""
        return markdown(self)

    def __str__(self) -> str:
        return (f"{self.operator.splitlines()[0]} {self.status}: {len(self.proved)} of {len(self.rows)} obligations proved, "
                f"{sum(bool(row.by(TESTED)) for row in self.rows)} tested, hash {self.hash[:12]}")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html(self)


def certify(operator: Operator, cascade: Cascade, form: FusedForm, *, examples: int | None = None, seed: int = 0,
            deep: bool = False, interpreter: Interpreter | None = None, progress: Progress | None = None,
            heard: Heard = lambda id, evidence: None) -> Certificate:
    """The certificate of a form.

    Exact experiments are made on `examples` examples (40; 1000 if `deep`), drawn from `seed`.  `interpreter` runs the
    form as the product does, so that it is measured, too.  `progress` is told (done, of how many), `heard` each piece of
    evidence as it is found, with the obligation's id.  Raises Stopped, a KeyboardInterrupt that holds what was
    established, on Ctrl-C.
    """
    examples = examples or (DEEP_EXAMPLES if deep else EXAMPLES)
    cascade = length_given(cascade) or cascade if form.length_given else cascade
    asked, trials = obligations(operator, cascade, form), space(operator, cascade, form)
    told = _stages(progress)
    about = {o.id: o for o in (*asked, _FLOATS, *([_FAR] if centred_inputs(form) else []))}
    found: dict[str, list[Evidence]] = {id: [] for id in about}
    laws: list[str] = []
    stopped = False
    try:
        for id, evidence in chain(
            derived(cascade, operator.assume, form, asked, laws, told(0, 30)), simplified(operator, form, asked, told(30, 50)),
            distributed(form, asked),
            tested(trials, [o for o in asked if o.kind not in DISTRIBUTED], examples, seed, told(50, 95)), measured(trials, cascade, interpreter, seed),
        ):
            found[id].append(evidence)
            heard(id, evidence)
        told(95, 100)(1, 1)
    except KeyboardInterrupt:
        stopped = True
    facts = tuple(str(fact) for fact in dict.fromkeys(form.facts) if fact.kind != "danger")
    certificate = Certificate(
        str(operator), form.axis, _told(form), tuple(_row(about[id], found[id]) for id in about),
        tuple(laws), tuple(map(str, form.guards)), facts, tuple(map(str, dict.fromkeys(form.dangers))), examples, seed, versions())
    if stopped:
        raise Stopped(certificate)
    return certificate


class Stopped(KeyboardInterrupt):
    """Ctrl-C while a certificate was made; `certificate` holds what was established until then."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__()
        self.certificate = certificate


def _told(form: FusedForm) -> str:
    return f"{summary(form)}\n\n{form.update}"


_FLOATS = Obligation(
    "floats", "floats", "largest errors in units in the last place of the true value: of the form, and of the operator as written",
    r"|\mathrm{fl}(y) - y| / \mathrm{ulp}(y)", limit=True)
_FAR = Obligation(
    "floats:far", "floats", "what floats lose far from 0, at a mean of 10⁸ with spread 1: the relative error of the results",
    r"\mu = 10^{8},\ \sigma = 1", ("next to 10⁸, float32 numbers are 8 apart and float64 numbers 1.5·10⁻⁸",), limit=True)


def _row(o: Obligation, evidence: list[Evidence]) -> Row:
    return Row(o.id, o.kind, o.statement, o.latex, o.conditions, o.follows_from, o.limit, tuple(evidence))


def _stages(progress: Progress | None) -> Callable[[int, int], Progress]:
    """Progress of a stage, which takes the whole from one percentage to another."""
    def stage(first: int, last: int) -> Progress:
        def told(done: int, whole: int) -> None:
            if progress:
                progress(first + (last - first) * done // max(whole, 1), 100)

        return told

    return stage


def versions() -> dict[str, str]:
    """The versions of this package and of what it proves with."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _read(text: str) -> Certificate:
    try:
        record = json.loads(text)
        rows = tuple(_read_row(row) for row in record["rows"])
        lists = {name: tuple(map(str, record[name])) for name in ("laws", "guards", "facts", "dangers")}
        found = Certificate(record["operator"], record["axis"], record["form"], rows, **lists, examples=int(record["examples"]),
                            seed=int(record["seed"]), versions=dict(record["versions"]))
        if record["schema"] == SCHEMA and record["hash"] == found.hash:
            return found
        failed = "its content and its hash do not belong together"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        failed = f"it is not the JSON of one ({type(error).__name__}: {error})"
    raise OperatorError("reading a certificate", failed, "write it again with `redfuser prove … --json FILE`")


def _read_row(row: Mapping[str, object]) -> Row:
    evidence = tuple(Evidence(e["checker"], e["verdict"], dict(e["detail"]), dict(e["measured"])) for e in row["evidence"])
    if unknown := {e.verdict for e in evidence} - set(VERDICTS):
        raise ValueError(f"the verdict {unknown.pop()!r}")
    return Row(row["id"], row["kind"], row["statement"], row["latex"], tuple(row["conditions"]), tuple(row["follows_from"]),
               bool(row["limit"]), evidence)
