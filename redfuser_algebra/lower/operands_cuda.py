"""What the matrix products of a tile program are made of, so that tensor cores can take them.

In: a tile program.  Out: Products, which names the tiles that lie in shared memory, the scores that are made of them, and
the components that add weighted rows up.  Raises LoweringError for a program that has no such products, or more than that.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, const, subterms
from redfuser_algebra.language.names import symbol_names
from redfuser_algebra.lower.float8 import FORMATS, Float8
from redfuser_algebra.lower.float8_cuda import NEAR
from redfuser_algebra.lower.gathers import is_looked_up, looked_up, sums
from redfuser_algebra.lower.lowering import factors
from redfuser_algebra.lower.row_blocks import in_blocks, rows_together
from redfuser_algebra.lower.storage import Signature, Storage
from redfuser_algebra.lower.tile import LoweringError, Producer, TileProgram, Update, new_reads

INSTEAD = 'run it with backend="cpu"'


@dataclass(frozen=True)
class Operand:
    """A tile in shared memory: `value` at places of the axis `rows` and of the axis `columns`, which is contiguous.

    `kind` says which floats of eight bits it holds; "" stands for numbers of the kernel's dtype.
    """

    name: str
    value: Expr
    rows: str
    columns: str
    kind: str = ""


@dataclass(frozen=True)
class Scores:
    """A producer, or one of what it adds up, as left · rightᵀ: both have rows of the axis that is summed over."""

    name: str
    left: Operand
    right: Operand


@dataclass(frozen=True)
class Weighted:
    """A component with columns as weights · right: the weights are elements, made from fragments in registers."""

    update: Update
    weights: Expr
    right: Operand

    @property
    def columns(self) -> str:
        """The axis of its columns."""
        return self.right.columns

    @property
    def kind(self) -> str:
        """Which floats of eight bits the weights are rounded to; "" if they are not."""
        return FORMATS.get(self.weights.attrs[0], "") if self.weights.op == "cast" else ""

    @property
    def rounded_later(self) -> Expr:
        """The weights before a rounding that their conversion to bytes of e4m3 makes as well."""
        return self.weights.args[0] if self.right.kind and self.kind == "e4m3" else self.weights


@dataclass(frozen=True)
class Products:
    """The parts of a program.  `elements` are inputs with a number per row and element, `vectors` those with one per element that all rows
    of a block share, `wholes` those of them that are whole numbers; `numbers` are the other components.  `kept` are inputs of which all tiles
    need the same numbers.
    """

    program: TileProgram
    scores: tuple[Scores, ...]
    weighted: tuple[Weighted, ...]
    elements: tuple[Operand, ...]
    vectors: tuple[str, ...]
    numbers: tuple[Update, ...]
    float8: Float8 = Float8()
    kept: tuple[str, ...] = ()
    wholes: frozenset[str] = frozenset()

    @property
    def lefts(self) -> tuple[Operand, ...]:
        """The tiles that stay while a block of rows is worked on."""
        return _once(s.left for s in self.scores)

    @property
    def produced(self) -> tuple[str, ...]:
        """The names of the producers."""
        return tuple(dict.fromkeys(s.name for s in self.scores))

    @property
    def alike(self) -> tuple[tuple[Operand, ...], ...]:
        """The tiles that come, those together that are made of one input in the same places, so that it is read once."""
        groups: list[list[Operand]] = []
        for operand in self.streamed:
            alike = [group for group in groups if _inputs(group[0]) & _inputs(operand) and all(
                (each.rows, each.columns, self.width(each), each.kind) == (operand.rows, operand.columns, self.width(operand), "") for each in group)]
            if alike:
                alike[0].append(operand)
            else:
                groups.append([operand])
        return tuple(map(tuple, groups))

    @property
    def streamed(self) -> tuple[Operand, ...]:
        """The tiles that come anew with every tile of the reduced axis."""
        return _once((*(s.right for s in self.scores), *self.elements, *(w.right for w in self.weighted)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The axes of columns that components have."""
        return tuple(dict.fromkeys(w.columns for w in self.weighted))

    @property
    def contiguous(self) -> tuple[str, ...]:
        """The axes along which tiles lie in memory."""
        return tuple(dict.fromkeys(o.columns for o in (*self.lefts, *self.streamed)))

    @property
    def divided(self) -> str:
        """The axis of columns that blocks may share out: one that nothing else depends on; "" if there is none."""
        summed = [s.left.columns for s in self.scores]
        return self.columns[0] if len(self.columns) == 1 and self.columns[0] not in summed else ""

    @property
    def lengths(self) -> tuple[str, ...]:
        """The axes whose lengths a kernel is made for: those that are summed over, columns, and tails of what tiles are made of."""
        tails = [tail for operand in (*self.lefts, *self.streamed) if (tail := tail_of(self.program, operand))]
        return tuple(dict.fromkeys((*(s.left.columns for s in self.scores), *self.columns, *tails)))

    @property
    def near(self) -> int:
        """How many columns of a sum lie side by side in a lane: two of every eight, or four of every sixteen."""
        return NEAR if any(w.right.kind for w in self.weighted) else 2

    def width(self, operand: Operand) -> str:
        """Code for how many bytes of a row of an operand lie in shared memory."""
        count = "TILE" if operand in self.elements else f"n_{operand.columns}"
        count = f"SPAN_{operand.columns}" if operand in [w.right for w in self.weighted] else count
        return f"{'width_of_bytes' if operand.kind else 'width_of'}({count})"

    def height(self, operand: Operand) -> str:
        """Code for how many rows of it."""
        return "TILE" if operand.rows == self.program.axis else "ROWS"


def has_products(program: TileProgram) -> bool:
    """Whether a program multiplies matrices, so that its kernel works on blocks of rows."""
    if not program.block:
        return any(update.contraction for update in program.updates)
    return any(program.columns(update.axes) for update in program.updates) or any(p.contraction for p in program.producers)


def blocks(program: TileProgram, signature: Signature) -> TileProgram:
    """The program as one of blocks of rows, which go on along every axis that no matrix with elements has.  Raises LoweringError as `products` does."""
    program = in_blocks(looked_up(program, Storage(program, signature).kind))
    found = products(program, signature)
    return rows_together(program, {axis for operand in found.streamed if operand not in found.elements for axis in operand.value.axes})


def products(program: TileProgram, signature: Signature, float8: Float8 = Float8(), turns: bool = True) -> Products:
    """The parts of a program; `turns`: native instructions take matrices of bytes whose rows are summed, too."""
    found = _Reading(program, signature).products()
    vectors, kept = (tuple(name for name in names if name not in float8.formats) for names in (found.vectors, _kept(found, signature)))
    found = replace(found, float8=float8, vectors=vectors, kept=kept, wholes=frozenset(name for name in vectors if signature.arrays[name] == "i8"))
    return _in_bytes(found, turns) if float8.native else found


def lies(program: TileProgram, operand: Operand) -> bool:
    """Whether an operand is a piece of an input as it lies in memory."""
    return operand.value.op == "input" and program.inputs[operand.value.name][-2:] == (operand.rows, operand.columns)


def tail_of(program: TileProgram, operand: Operand) -> str:
    """The axis of an input that an operand is made of which lies behind its columns, so that there are several numbers for each; "" if none has one."""
    own = [program.inputs[term.name] for term in subterms(operand.value) if term.op == "input"]
    return next((axes[-1] for axes in own if axes[-2:-1] == (operand.columns,)), "")


def matrices(program: TileProgram, signature: Signature) -> list[str]:
    """The inputs that matrix products take as they lie in memory; none of a program without such products.  Raises LoweringError as `products` does."""
    if not has_products(program):
        return []
    found = products(blocks(program, signature), signature)
    return [o.value.name for o in (*found.lefts, *found.streamed) if lies(found.program, o) and o not in found.elements]


def _kept(found: Products, signature: Signature) -> tuple[str, ...]:
    """Real inputs with one number per place of the axis that scores sum over, of which tiles that come are made."""
    program, kept = found.program, dict[str, None]()
    for operand in (s.right for s in found.scores if not lies(program, s.right) and s.right.columns not in found.columns):
        names = [t.name for t in subterms(operand.value) if t.op == "input" and t.axes[-1:] == (operand.columns,)]
        alone = [n for n in names if program.inputs[n][-1] == operand.columns and {*program.inputs[n][:-1]} <= {*program.rows} - {program.block, *program.joined}]
        kept |= dict.fromkeys(n for n in alone if signature.arrays[n] in ("f4", "f8"))
    return tuple(kept)


def _in_bytes(found: Products, turns: bool) -> Products:
    """Products of floats of eight bits where both factors are such as they are: inputs stored so, and weights rounded so.

    A tile that anything else reads is widened, and then so is what it is multiplied with.
    """
    own = {o: kind for o in (*found.lefts, *found.streamed) if lies(found.program, o) and (kind := found.float8.kind(o.value.name))}
    before: dict[Operand, str] = {}
    while own != before:
        before, wide = own, [*found.elements]
        wide += [o for s in found.scores for o in (s.left, s.right) if not {s.left, s.right} <= own.keys()]
        wide += [] if turns and all(w.kind and w.right in own for w in found.weighted) else [w.right for w in found.weighted]
        own = {o: kind for o, kind in own.items() if o not in wide}
    told = {o: replace(o, kind=kind) for o, kind in own.items()}
    return replace(found, scores=tuple(replace(s, left=told.get(s.left, s.left), right=told.get(s.right, s.right)) for s in found.scores),
                   weighted=tuple(replace(w, right=told.get(w.right, w.right)) for w in found.weighted))


class _Reading:
    """Operands found so far, by value and place."""

    def __init__(self, program: TileProgram, signature: Signature) -> None:
        self.program, self.signature, self.kind = program, signature, Storage(program, signature).kind
        self.operands: dict[tuple[Expr, str, str], Operand] = {}

    def products(self) -> Products:
        """All parts, each checked."""
        program = self.program
        scores = tuple(score for producer in program.producers for score in self._scores(producer))
        weighted = tuple(self._weighted(update) for update in program.updates if program.columns(update.axes))
        numbers = tuple(update for update in program.updates if not program.columns(update.axes))
        leaves = self._leaves(weighted, numbers)
        found = Products(program, scores, weighted, self._elements(leaves), self._vectors(leaves), numbers)
        for complaint in self._complaints(found):
            raise self._refused(complaint)
        return found

    def _refused(self, why: str) -> LoweringError:
        return LoweringError(f"a CUDA kernel for {self.program.name}", why, INSTEAD)

    def _operand(self, name: str, value: Expr, rows: str, columns: str) -> Operand:
        names = {o.name for o in self.operands.values()}
        name = value.name if value.op == "input" and value.name not in names else name
        return self.operands.setdefault((value, rows, columns), Operand(name, value, rows, columns))

    def _scores(self, producer: Producer) -> Iterator[Scores]:
        """Σ_k of factors that no element has, times factors that no row of the block has; of a sum of such, a product for each left factor."""
        axis, block, value = self.program.axis, self.program.block, producer.value
        if value.op != "reduce" or value.monoid != "sum" or value.mask is not None:
            raise self._refused(f"{producer.name} = {value} is no sum of products")
        rights: dict[Expr, list[Expr]] = {}
        for term in _terms(value.body):
            left = _product([factor for factor in factors(term) if axis not in factor.axes])
            rights.setdefault(left, []).append(_product([factor for factor in factors(term) if axis in factor.axes]))
        for place, (left, parts) in enumerate(rights.items()):
            right = value.body if left.op == "const" and left.value == 1 and len(rights) == 1 else reduce(lambda a, b: a + b, parts)
            if block in right.axes:
                raise self._refused(f"{producer.name} = {value} is no product of a matrix with rows and one with elements")
            name = f"{producer.name}_{place}" if place else producer.name
            yield Scores(producer.name, self._operand(f"left_{name}", left, block, value.axis), self._operand(f"right_{name}", right, axis, value.axis))

    def _weighted(self, update: Update) -> Weighted:
        """Σ over elements of factors without columns, the weights, times factors with columns that no row has."""
        columns = self.program.columns(update.axes)
        if update.monoid != "sum" or len(columns) != 1 or update.mask is not None and columns[0] in update.mask.axes:
            raise self._refused(f"its component {update.name} is no sum of rows with one axis of columns")
        own = [factor for factor in factors(update.lift) if columns[0] in factor.axes]
        rest = [factor for factor in factors(update.lift) if columns[0] not in factor.axes]
        right, weights = _product(own), _product(rest)
        if self.program.axis not in right.axes or self.program.block in right.axes or symbol_names(right):
            raise self._refused(f"its component {update.name} does not add up weights times rows of a matrix: {update.lift}")
        return Weighted(update, weights, self._operand(f"right_{update.name}", right, self.program.axis, columns[0]))

    def _leaves(self, weighted: tuple[Weighted, ...], numbers: tuple[Update, ...]) -> list[Expr]:
        """Inputs with a number per element that enter into the state, and real ones that are looked up for rows and elements."""
        exprs = [e for u in numbers for e in u.elements] + [w.weights for w in weighted]
        exprs += [w.update.mask for w in weighted if w.update.mask is not None]
        return list(dict.fromkeys(leaf for expr in exprs for leaf in self._read_in(expr)))

    def _read_in(self, term: Expr) -> Iterator[Expr]:
        program = self.program
        if term.op == "input" and program.axis in term.axes and self._comes_in_tiles(term):
            yield term
        elif is_looked_up(term, self.kind) and program.axis in term.axes and {program.block, *program.joined} & {*term.axes}:
            yield term
        else:
            for arg in term.args:
                yield from self._read_in(arg)

    def _comes_in_tiles(self, term: Expr) -> bool:
        """Real numbers do, and whole ones that the rows of a block share."""
        type_, program = self.signature.arrays[term.name], self.program
        return type_ in ("f4", "f8") or type_ == "i8" and not {program.block, *program.joined} & {*term.axes}

    def _elements(self, leaves: list[Expr]) -> tuple[Operand, ...]:
        """Those with a number per row, too."""
        program, names = self.program, (f"looked_up_{n}" for n in count(1))
        return tuple(self._operand(t.name if t.op == "input" else next(names), t, program.block, program.axis)
                     for t in leaves if t.op != "input" or program.block in t.axes)

    def _vectors(self, leaves: list[Expr]) -> tuple[str, ...]:
        """Those whose numbers lie side by side in memory, the same for all rows of a block."""
        program = self.program
        own = {t.name: program.inputs[t.name] for t in leaves if t.op == "input" and program.block not in t.axes}
        return tuple(name for name, axes in own.items() if axes[-1] == program.axis and set(axes[:-1]) <= {*program.rows} - {program.block})

    def _complaints(self, found: Products) -> Iterator[str]:
        program = self.program
        for update in found.numbers:
            if MONOIDS[update.monoid].indexed or MONOIDS[update.monoid].counted:
                yield f"its component {update.name} keeps positions, which kernels with matrix products do not"
        columned = {w.update.name for w in found.weighted} | {v.name for v in program.values if program.columns(v.axes)}
        for update in program.updates:
            if columned & {*new_reads(update)}:
                yield f"the pivot of its component {update.name} has columns"
        for place, axes in enumerate(program.output_axes):
            if program.axis in axes:
                yield f"its output {place} keeps the axis {program.axis}"
            if len(program.columns(axes)) > 1 or not set(program.columns(axes)) <= set(found.columns):
                yield f"its output {place} has the axes {', '.join(axes)}"
        if [t for t in subterms(*program.outputs, *(v.value for v in program.values)) if t.op == "reduce"]:
            yield "its outputs sum over columns"
        elements = [e for u in found.numbers for e in u.elements] + [w.weights for w in found.weighted]
        if [t for t in subterms(*elements) if t.op == "reduce" and t.axis in (*found.columns, *program.rows)]:
            yield "its elements are made of sums over columns"
        if [t for o in (*found.lefts, *found.streamed) for t in subterms(o.value) if t.op == "symbol" or t in sums(o.value, self.kind)]:
            yield "a matrix in it is made of sums"
        if [a for o in (*found.lefts, *found.streamed) for a in o.value.axes if a not in (*program.rows, *program.joined, o.rows, o.columns)]:
            yield "a matrix in it has more than two axes beside those of rows"


def _terms(expr: Expr) -> list[Expr]:
    """What is added up."""
    if expr.op == "subtract":
        return [*_terms(expr.args[0]), *(-term for term in _terms(expr.args[1]))]
    return [*_terms(expr.args[0]), *_terms(expr.args[1])] if expr.op == "add" else [expr]


def _product(found: list[Expr]) -> Expr:
    return reduce(lambda a, b: a * b, found) if found else const(1.0)


def _inputs(operand: Operand) -> set[str]:
    return {term.name for term in subterms(operand.value) if term.op == "input"}


def _once(operands: Iterator[Operand]) -> tuple[Operand, ...]:
    return tuple(dict.fromkeys(operands))
