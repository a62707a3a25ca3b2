"""Formulas of a tile program over what a lane holds of a tile: two rows, and two columns in every eight.

In: a tile program, and what its formulas read.  Out: the loops of the device functions `fold`, which takes a tile into the
state of the rows, and `finish`, which ends it.  Statistics of rows are numbers in registers that four lanes share.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, stem, symbol_names
from redfuser_algebra.lower.device_code import UNROLLED, in_dialect
from redfuser_algebra.lower.device_functions import over_lanes
from redfuser_algebra.lower.functions import Accumulator, Function, Leaf, Scope, indented, joined
from redfuser_algebra.lower.inlining import inlined
from redfuser_algebra.lower.operands_cuda import Products, Weighted
from redfuser_algebra.lower.scalar_code import Code, constant, is_finite_shift
from redfuser_algebra.lower.storage import Signature, Storage
from redfuser_algebra.lower.tile import Update

LOG2E = 1.4426950408889634
OLD, PART, SEEN = "_old", "_part", "seen"


class FragmentCode(Function):
    """A device function that goes over the fragments of a warp; `wholes` are the variables of the rows' state.

    Its loops: over the block's axis the lane's two rows, over others the columns that it has of each.  `there` are
    conditions of whatever is loaded.  What a row has once is `hoisted`, if that is wanted: read from variables of these names and types.
    """

    there: tuple[str, ...] = ()
    picks, instructions = False, MappingProxyType({})

    def __init__(self, name: str, parts: Products, signature: Signature, storage: Storage, fast: bool) -> None:
        self.parts, self.program, self.signature, self.storage, self.fast = parts, parts.program, signature, storage, fast
        self.hoisted: dict[Expr, tuple[str, str]] | None = None
        super().__init__(name, Scope(self._leaf, {copy: f"n_{axis}" for copy, axis in self.program.copies.items()}), "f4")
        self.produced = set(parts.produced)
        self.columned = {w.update.name for w in parts.weighted}
        self.elements = {o.name for o in parts.elements}

    def type_of(self, name: str) -> str:
        """The type of a component or value in registers."""
        return {"f8": "f4"}.get(self.storage.held[name].type, self.storage.held[name].type)

    # what formulas read

    def code(self, term: Expr) -> Code:
        if self.hoisted is None or not self._is_of_rows(term):
            return super().code(term)
        self._learn_types(term)
        self.hoisted.setdefault(term, (f"once_{len(self.hoisted) + 1}", self._type(term, 1)))
        name, type_ = self.hoisted[term]
        return Code(f"{self._given(name)}[r]", type_)

    def _is_of_rows(self, term: Expr) -> bool:
        """Whether a term is read from memory for a row, and no tile changes it."""
        read = any(each.op == "input" for each in subterms(term)) and not symbol_names(term)
        return read and set(term.axes) <= {self.program.block, *self.program.joined}

    def _leaf(self, term: Expr) -> Leaf:
        if term.op == "param":
            name = self.storage.names[term.name]
            return Leaf(name, (), self.signature.params[term.name], name)
        if term.op == "input":
            return Leaf(self.storage.names[term.name], term.axes, self.signature.arrays[term.name], "")
        name = term.name.removesuffix(OLD).removesuffix(PART)
        if name == SEEN:
            return Leaf(term.name, (), "i8", term.name)
        type_ = "f4" if name in self.produced else self.type_of(name)
        return Leaf(term.name if name in self.produced else self.storage.held[name].name + term.name[len(name):], term.axes, type_, "")

    def _read(self, term: Expr) -> Code:
        leaf = self._leaf(term)
        if term.op == "param":
            return Code(self.argument(leaf.variable, leaf.variable), leaf.type)
        if term.op == "symbol":
            return self._symbol(term, leaf)
        if term.name in self.elements:
            return Code(f"{self._given(f'x_{term.name}')}[r, {self.index(self.program.axis)}]", "f4")
        return self._loaded(term, leaf)

    def _symbol(self, term: Expr, leaf: Leaf) -> Code:
        if term.name in self.produced:
            return Code(f"{self._given(leaf.variable)}[r, {self.index(self.program.axis)}]", "f4")
        if term.name.removesuffix(OLD).removesuffix(PART) in self.columned:
            axis, = self.program.columns(term.axes)
            if term.name.endswith(PART):
                return Code(f"{self._given(left_of(leaf.variable.removesuffix(PART)))}[{self.index(axis)} % 2]", "f4")
            return Code(f"{self._given(f'o_{leaf.variable.removesuffix(OLD)}')}[r, {self.index(axis)}]", "f4")
        return Code(self._given(leaf.variable) if term.name in (SEEN, SEEN + OLD, SEEN + PART) else leaf.variable, leaf.type)

    def _given(self, name: str) -> str:
        return self.argument(name, name)

    def _loaded(self, term: Expr, leaf: Leaf) -> Code:
        """A number from global memory: of the row, of the column, or of both."""
        name, place, inside = term.name, "", [*self.there]
        for axis in self.program.inputs[name]:
            if axis in self.program.rows and axis != self.program.block:
                continue
            at = self.position(axis).text
            place = f"({place}) * {self._given(f'n_{axis}')} + {at}" if place else at
            inside.append(f"({at} < {self._given(f'n_{axis}')})")
        there = " & ".join(inside) or "True"
        if leaf.type in ("f4", "f8"):
            return self._named(Code(f"load_one{self._kind(name)}({self._given(f'p_{name}')} + ({place or 0}){self._size(name)}, {there})", "f4"))
        return self._named(Code(f"{self._given(leaf.variable)}[{self._given(f'o_{name}')} + sel({there}, i8({place or 0}), i8(0))]", leaf.type))

    def _kind(self, name: str) -> str:
        """How names of functions end that load an input's numbers."""
        kind = self.parts.float8.kind(name)
        return f"_{kind}" if kind else ""

    def _size(self, name: str) -> str:
        return "" if name in self.parts.float8.formats else " * SIZE"

    def position(self, axis: str) -> Code:
        """A place along an axis, counted from its beginning."""
        if axis in self.program.joined:
            return self._joined_position(axis)
        if axis in [loop.axis for loop in self.nest]:
            return Code(f"at_{axis}", "i8")
        return Code(self._given(f"at_{axis}"), "i8")

    def _joined_position(self, axis: str) -> Code:
        """Of the axes that number the rows: what is left of a row's number by those before, over what those behind take."""
        joined = self.program.joined
        sizes = [self._given(f"n_{each}") for each in joined]
        here, row = joined.index(axis), self.position(self.program.block).text
        whole = f"i4({' * '.join(sizes[here + 1:])})"
        place = row if here == len(joined) - 1 else f"i4({row} // {whole})"
        return Code(place if here == 0 else f"i4({place} % i4({sizes[here]}))", "i8")

    def _position(self, axis: str) -> Code:
        return self.position(axis)

    def open(self, axis: str) -> None:
        """Open a loop."""
        super().open(axis)
        self.taken: dict[Expr | None, str] = {}

    def index(self, axis: str) -> str:
        """The variable of a loop."""
        return "r" if axis == self.program.block else f"i_{axis}"

    def close(self) -> None:
        """Close the innermost loop; where its position is read, it is computed."""
        loop = self.nest.pop()
        place, i = f"at_{loop.axis}", self.index(loop.axis)
        if loop.axis == self.program.block:
            head, step = "for r in range(2):", "8 * r"
        elif loop.axis not in (self.program.axis, *self.parts.columns):
            self.nest[-1].lines += [f"for {place} in range({self._given(f'n_{loop.axis}')}):", *(f"    {line}" for line in loop.lines)]
            return
        else:
            many, near = ("COLUMNS", 2) if loop.axis == self.program.axis else (f"SPAN_{loop.axis} // 4", self.parts.near)
            head, step = f"for {i} in range({many}):", f"{i} // {near} * {4 * near} + {i} % {near}"
        self.line(head)
        if any(re.search(rf"\b{place}\b", line) for line in loop.lines):
            self.nest[-1].lines.append(f"    {place} = i4({self._given(f'first_{loop.axis}')} + {step})")
        self.nest[-1].lines += [f"    {line}" for line in (*loop.lines, UNROLLED)]

    # how they are written

    def line(self, text: str) -> None:
        """A statement, in the dialect of CUDA kernels; angles are made small in float64, which takes no memory."""
        super().line(in_dialect(re.sub(r"\bnp\.(cos|sin)\(", r"\1(", text)))

    def _depth(self, term: Expr) -> int:
        """What a row's state enters into is computed for each row, be the component without rows."""
        own = max((place for place, loop in enumerate(self.nest) if loop.axis in term.axes or loop.axis == self.program.block and set(self.program.joined) & set(term.axes)), default=0)
        return max(own, 1 if len(self.nest) > 1 and symbol_names(term) else 0)

    def _type(self, term: Expr, depth: int) -> str:
        return {"i": "i8", "b": "b1"}.get(self.types[term], "f4")

    def _divides_by_invariant(self, term: Expr, depth: int) -> bool:
        return term.op == "divide" and self.types[term] == "f" and term.args[0].op != "const" and bool(set(term.axes) - set(term.args[1].axes))

    def _computed(self, term: Expr, depth: int) -> Code:
        if term.op == "const":
            return constant(term.value, self._type(term, depth))
        if term.op == "cast" and term.attrs[0] == "float8_e4m3" and self.parts.float8.native:
            return self._named(Code(f"to_e4m3({self.code(term.args[0]).to('f4').text})", "f4"))
        if term.op == "exp" and self.fast:
            if is_finite_shift(term.args[0]) and set(term.axes) - set(term.args[0].args[1].axes):
                value, pivot = term.args[0].args
                base = self._named_outside(f"{self.code(pivot).to('f4').text} * f4({LOG2E})", pivot)
                return self._named(Code(f"two_to_the({self.code(value).to('f4').text} * f4({LOG2E}) - {base})", "f4"))
            return self._named(Code(f"two_to_the({self.code(term.args[0]).to('f4').text} * f4({LOG2E}))", "f4"))
        if term.op == "scale" and set(term.axes) - set(term.args[0].axes):
            factor, held = (self.code(arg).to("f4").text for arg in term.args)
            known = self._named_outside(f"bounded({factor})", term.args[0])
            return self._named(Code(f"{known} * {held}", "f4"))
        return super()._computed(term, depth)

    def _named_outside(self, text: str, term: Expr) -> str:
        """A name for code over a term, given in the loop where the term is computed."""
        outer, self.nest = self.nest, self.nest[: self._depth(term) + 1]
        name = self._named(Code(text, "f4")).text
        self.nest = outer
        return name

    def _named(self, code: Code) -> Code:
        found = re.fullmatch(r"(.+?) if (.+) else (.+)", code.text)
        return super()._named(Code(f"sel({found[2]}, {found[1]}, {found[3]})", code.type) if found else code)

    def text(self, loop: bool = False) -> str:
        """The definition."""
        lines = ["@cuda.jit(device=True, forceinline=True)", f"def {self.name}({', '.join(self.arguments)}):", *indented(self.nest[0].lines or ["pass"])]
        return inlined("\n".join(lines))


class Folding:
    """Prints `fold` and `finish` for the parts of a program."""

    def __init__(self, parts: Products, signature: Signature, storage: Storage, fast: bool) -> None:
        self.parts, self.signature, self.storage, self.fast = parts, signature, storage, fast
        self.program = parts.program

    def _function(self, name: str) -> FragmentCode:
        return FragmentCode(name, self.parts, self.signature, self.storage, self.fast)

    def held(self, name: str) -> str:
        """The variable of a component or value."""
        return self.storage.held[name].name

    def _aged(self, expr: Expr, suffix: str = OLD) -> Expr:
        """A rule over old and, primed, new values, with the names that `fold` and `merge` have for them."""
        own = {t: symbol(t.name.removesuffix(PRIME) if t.name.endswith(PRIME) else t.name + suffix, t.axes) for t in subterms(expr) if t.op == "symbol"}
        return substitute(self._counted(expr, SEEN + suffix), own)

    def _counted(self, expr: Expr, seen: str) -> Expr:
        """A formula in which the length is the number of elements seen."""
        return substitute(expr, {t: symbol(seen) for t in subterms(expr) if t.op == "size" and t.axis == self.program.axis})

    def fold(self) -> FragmentCode:
        """The state of the block's rows after a tile, and the weights of its elements; `full` says that all take part."""
        f = self._function("fold")
        f.hoisted = {}
        f.argument("full", "full")
        f.open(self.program.block)
        for update in self.parts.numbers:
            name = self.held(update.name)
            f.line(f"{name}_old = {f.argument(f'held_{name}', f'held_{name}')}[r]")
        self._old_values(f, OLD)
        for place, stage in enumerate(self.program.stages):
            for value in self.storage.moving_values(place):
                f.line(f"{self.held(value.name)} = {self._as(f, self._counted(value.value, SEEN), value.name)}")
            self._stage(f, stage)
        self._move_columns(f)
        for update in self.parts.numbers:
            f.line(f"held_{self.held(update.name)}[r] = {self.held(update.name)}")
        f.close()
        return f

    def once(self, hoisted: Mapping[Expr, tuple[str, str]]) -> FragmentCode:
        """What `fold` reads of the block's rows in every tile."""
        f = self._function("once")
        f.open(self.program.block)
        for term, (name, type_) in hoisted.items():
            f.line(f"{f.argument(name, name)}[r] = {f.code(term).to(type_).text}")
        f.close()
        return f

    def _old_values(self, f: FragmentCode, suffix: str) -> None:
        """Values of a state as it was; of no elements they may be no numbers, as a logarithm of −∞ is, and are 0 instead."""
        for value in self.storage.old_values():
            known = self._as(f, self._aged(value.value, suffix), value.name)
            f.line(f"{self.held(value.name)}{suffix} = sel({f.argument(SEEN + suffix, '')} > 0, {known}, {f.type_of(value.name)}(0))")

    def _as(self, f: FragmentCode, expr: Expr, name: str) -> str:
        return f.code(expr).to(f.type_of(name)).text

    def _stage(self, f: FragmentCode, stage: Iterable[Update]) -> None:
        axis, joins = self.program.axis, []
        numbers = [u for u in stage if u in self.parts.numbers]
        weighted = [w for w in self.parts.weighted if w.update in stage]
        folded = [u for u in numbers if not u.counts]
        for update in numbers:
            self._rebase(f, update)
        for update in folded:
            name, type_ = self.held(update.name), f.type_of(update.name)
            f.line(f"{name}_it = {Accumulator('', update.monoid, type_).identity()}")
            joins.append(f"{name} = {joined(update.monoid, name, over_lanes(update.monoid, f'{name}_it', type_, '4'), type_)}")
        if folded or weighted:
            f.open(axis)
            for update in folded:
                self._add(f, update)
            for each in weighted:
                f.line(f"{f.argument(weights_of(each), '')}[r, {f.index(axis)}] = {self._weight(f, each)}")
            f.close()
        for line in joins:
            f.line(line)

    def _weight(self, f: FragmentCode, each: Weighted) -> str:
        """An element's weight; what a mask leaves out has the weight −0, which no other has."""
        value, taken = f.code(each.rounded_later).to("f4").text, self._taken(f, each.update.mask)
        return f"sel({taken}, {value}, f4(0))" if each.update.mask is None else f"sel(full, {value}, sel({taken}, {value} + f4(0), f4(-0.0)))"

    def _rebase(self, f: FragmentCode, update: Update) -> None:
        f.line(f"{self.held(update.name)} = {self._moved(f, update, OLD)}")
        if update.counts:
            f.line(f"{self.held(update.name)} += {int(update.lift.value)} * {f.argument('many', 'many')}")

    def _moved(self, f: FragmentCode, update: Update, suffix: str) -> str:
        """A component with a suffix at the pivots without one; what nothing was added to stays as it is."""
        name = self.held(update.name) + suffix
        if update.fixed:
            return name
        moved_ = self._as(f, self._aged(update.rebase, suffix), update.name)
        if update.rebase.op == "scale" and update.rebase.args[1] is update.symbol:
            return moved_
        return f"sel({f.argument(SEEN + suffix, '')} > 0, {moved_}, {name})"

    def merge(self) -> FragmentCode:
        """The state of the rows and what another part of their elements left in memory as one, pair by pair of columns."""
        f, block = self._function("merge"), self.program.block
        f.open(block)
        item, part, parts, size = (f.argument(name, name) for name in ("item", "part", "parts", f"n_{block}"))
        f.line(f"if {f.position(block).text} >= {size}:")
        f.line("    break")
        f.line(f"place = ({item} * {size} + {f.position(block).text}) * {parts} + {part}")
        for update in self.parts.numbers:
            name = self.held(update.name)
            f.line(f"{name}_old, {name}_part = {f.argument(f'held_{name}', '')}[r], {f.argument(f'part_{name}', '')}[place]")
        for suffix in (OLD, PART):
            self._old_values(f, suffix)
        for place, stage in enumerate(self.program.stages):
            for value in self.storage.moving_values(place):
                f.line(f"{self.held(value.name)} = {self._as(f, self._counted(value.value, SEEN), value.name)}")
            for update in (u for u in stage if u in self.parts.numbers):
                both = [self._moved(f, update, suffix) for suffix in (OLD, PART)]
                f.line(f"{self.held(update.name)} = {joined(update.monoid, *both, f.type_of(update.name))}")
        for axis in self.parts.columns:
            own = [w for w in self.parts.weighted if w.columns == axis]
            f.open(axis)
            f.line(f"if {f.index(axis)} % 2 == 0:")
            for name in (self.held(w.update.name) for w in own):
                many = f.argument(f"n_{axis}", "")
                source = f"address({f.argument(f'part_{name}', '')}) + place * {many} * 4"
                f.line(f"    take_left({source}, {f.position(axis).text}, {many}, {f.argument(left_of(name), '')})")
            codes = [" + ".join(f.code(self._aged(w.update.rebase, suffix)).to("f4").text for suffix in (OLD, PART)) for w in own]
            for number, code in enumerate(codes):
                f.line(f"both{number} = {code}")
            for number, each in enumerate(own):
                f.line(f"{sums_of(each, self.storage)}[r, {f.index(axis)}] = both{number}")
            f.close()
        for update in self.parts.numbers:
            f.line(f"held_{self.held(update.name)}[r] = {self.held(update.name)}")
        f.close()
        return f

    def _taken(self, f: FragmentCode, mask: Expr | None) -> str:
        """Whether an element takes part: it is inside, and the mask holds."""
        if mask not in f.taken:
            inside = f"({f.position(self.program.axis).text} < {f.argument(f'n_{self.program.axis}', '')})"
            holds = "" if mask is None else f" & {f.code(mask).to('b1').text}"
            f.taken[mask] = name = f"ok{len(f.taken) or ''}"
            f.line(f"{name} = full | {inside}{holds}")
        return f.taken[mask]

    def _add(self, f: FragmentCode, update: Update) -> None:
        type_, name = f.type_of(update.name), f"{self.held(update.name)}_it"
        if update.monoid == "any" and update.mask is None and update.lift in {each.mask for each in self.program.updates}:
            f.line(f"{name} = {name} | {self._taken(f, update.lift)}")
            return
        value, nothing = f.code(update.lift).to(type_).text, Accumulator("", update.monoid, type_).identity()
        f.line(f"{name} = {joined(update.monoid, name, f'sel({self._taken(f, update.mask)}, {value}, {nothing})', type_)}")

    def _move_columns(self, f: FragmentCode) -> None:
        """Sums with columns go to the new pivots: factors once per row, then each number; all rules read old ones."""
        for axis in self.parts.columns:
            moving = [w for w in self.parts.weighted if w.columns == axis and not w.update.fixed]
            if moving:
                f.open(axis)
                codes = [f.code(self._aged(w.update.rebase)).to("f4").text for w in moving]
                for each, code in zip(moving, codes, strict=True):
                    f.line(f"{sums_of(each, self.storage)}[r, {f.index(axis)}] = {code}")
                f.close()

    # the end of the rows

    def finish(self) -> FragmentCode:
        """The results of the block's rows: components at their pivots as they ended, values, outputs."""
        f = self._function("finish")
        f.open(self.program.block)
        for update in self.parts.numbers:
            name = self.held(update.name)
            f.line(f"{name} = {f.argument(f'held_{name}', '')}[r]")
        done: set[str] = set()
        for update in self.program.updates:
            end = self.program.ended(update)
            if end is not None:
                self._final_values(f, symbol_names(end), done)
                self._end(f, update, end)
        for place, output in enumerate(self.program.outputs):
            output = self._with_columns(output)
            self._final_values(f, symbol_names(output), done)
            columns = self.program.columns(self.program.output_axes[place])
            for axis in columns:
                f.open(axis)
            at = f"r, {f.index(columns[0])}" if columns else "r"
            f.line(f"{f.argument(f'y_{place}', '')}[{at}] = {f.code(output).to(self.output_type(place)).text}")
            for _ in columns:
                f.close()
        f.close()
        return f

    def output_type(self, place: int) -> str:
        """The type of an output in registers."""
        return {"i": "i8", "b": "b1"}.get(self.storage.kind(self.program.outputs[place]), "f4")

    def _end(self, f: FragmentCode, update: Update, end: Expr) -> None:
        f.partial = True
        each = next((w for w in self.parts.weighted if w.update is update), None)
        if each is not None:
            f.open(each.columns)
            f.line(f"{sums_of(each, self.storage)}[r, {f.index(each.columns)}] = {f.code(end).to('f4').text}")
            f.close()
        else:
            f.line(f"{self.held(update.name)} = {self._as(f, end, update.name)}")
        f.partial = False
        f.forget(update.name)

    def _with_columns(self, expr: Expr) -> Expr:
        """An expression with the values that have columns written out."""
        values = {v.name: v.value for v in self.program.values if self.program.columns(v.axes)}
        while found := {t: values[t.name] for t in subterms(expr) if t.op == "symbol" and t.name in values}:
            expr = substitute(expr, found)
        return expr

    def _final_values(self, f: FragmentCode, names: Iterable[str], done: set[str]) -> None:
        for value in self.program.values:
            if value.name in set(map(stem, names)) and value.name not in done and not self.program.columns(value.axes):
                done.add(value.name)
                self._final_values(f, symbol_names(value.value), done)
                f.line(f"{self.held(value.name)} = {self._as(f, value.value, value.name)}")


def weights_of(each: Weighted) -> str:
    """The variable of a component's weights."""
    return f"p_{each.update.name}"


def left_of(held: str) -> str:
    """The variable of two neighbouring columns of what a part left of a component."""
    return f"b_{held}"


def sums_of(each: Weighted, storage: Storage) -> str:
    """The variable of a component with columns."""
    return f"o_{storage.held[each.update.name].name}"
