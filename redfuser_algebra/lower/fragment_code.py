"""Formulas of a tile program over what a lane holds of a tile: two rows, and two columns in every eight.

In: a tile program, and what its formulas read.  Out: a device function under construction, whose loops go over those.
"""
from __future__ import annotations

import re
from types import MappingProxyType

from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import symbol_names
from redfuser_algebra.lower.device_code import UNROLLED, in_dialect
from redfuser_algebra.lower.functions import Function, Leaf, Loop, Scope, indented
from redfuser_algebra.lower.gathers import gather
from redfuser_algebra.lower.inlining import inlined
from redfuser_algebra.lower.operands_cuda import Products
from redfuser_algebra.lower.scalar_code import Code, constant, is_finite_shift
from redfuser_algebra.lower.storage import Signature, Storage

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
        self.elements, self.vectors = {o.name for o in parts.elements}, {*parts.vectors}
        self.looked_up = {o.value: o.name for o in parts.elements if o.value.op == "reduce"}

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
        if term.name in self.vectors and leaf.type == "i8":
            place = f"{self._given('tile')} + AT_x_{term.name} + i4({self.position(self.program.axis).text} - {self._given('t0')}) * 8"
            return self._named(Code(f"take_whole(i4({place}))", "i8"))
        if term.name in self.vectors and self.program.axis in term.axes:
            return Code(f"{self._given(f'x_{term.name}')}[{self.index(self.program.axis)}]", "f4")
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
        axes = {*term.axes, *([self.program.block] if set(self.program.joined) & set(term.axes) else [])}
        own = max((place for place, loop in enumerate(self.nest) if loop.axis in axes), default=0)
        return max(own, 1 if len(self.nest) > 1 and symbol_names(term) else 0)

    def _type(self, term: Expr, depth: int) -> str:
        return {"i": "i8", "b": "b1"}.get(self.types[term], "f4")

    def _sum(self, term: Expr, type_: str) -> Code:
        """A sum inside a formula: one of an element at a place that is computed reads that alone, if it is there."""
        tile, found = self.looked_up.get(term), gather(term, self.storage.kind)
        if tile:
            return Code(f"{self._given(f'x_{tile}')}[r, {self.index(self.program.axis)}]", "f4")
        if found is None:
            return super()._sum(term, type_)
        axis, size = term.axis, self._given(f"n_{term.axis}")
        place = self._named(self.code(found[0]).to("i8")).text
        inside = self._named(Code(f"({place} >= 0) & ({place} < {size})", "b1")).text
        self.nest.append(Loop(axis, [f"at_{axis} = sel({inside}, i4({place}), i4(0))"]))
        value = self._named(self.code(found[1]).to(type_)).text
        self.nest[-2].lines += self.nest.pop().lines
        zero = constant(0, type_).text
        return self._named(Code(f"{zero} + sel({inside}, {value}, {zero})", type_))

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


def left_of(held: str) -> str:
    """The variable of two neighbouring columns of what a part left of a component."""
    return f"b_{held}"
