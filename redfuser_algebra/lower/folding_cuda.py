"""What becomes of the state of a block's rows: the device functions `fold`, which takes a tile into it, `merge`, and `finish`, which ends it.

In: the parts of a tile program.  Out: the functions.  Statistics of rows are numbers in registers that four lanes share.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, stem, symbol_names
from redfuser_algebra.lower.device_functions import over_lanes
from redfuser_algebra.lower.fragment_code import OLD, PART, SEEN, FragmentCode, left_of
from redfuser_algebra.lower.functions import Accumulator, joined
from redfuser_algebra.lower.operands_cuda import Products, Weighted
from redfuser_algebra.lower.storage import Signature, Storage
from redfuser_algebra.lower.tile import Update


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


def sums_of(each: Weighted, storage: Storage) -> str:
    """The variable of a component with columns."""
    return f"o_{storage.held[each.update.name].name}"
