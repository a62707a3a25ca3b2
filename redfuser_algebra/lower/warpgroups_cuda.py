"""Print a tile program for GPUs of sm_90a: products of four warps that are under way while something else is done, bulk copies.

Out: a module that needs NumPy and numba-cuda.  Tiles of matrices that lie in memory as they are come by TMA, others by threads.
While weights are multiplied with a tile's rows, the scores of the next tile begin; when the former have landed, what comes after is
sent for.  Two places hold what scores are made of, one what only weights are multiplied with.
"""
from __future__ import annotations

from dataclasses import replace

from redfuser_algebra.lower.arithmetic_cuda import BYTES, CudaSource
from redfuser_algebra.lower.float8 import Float8
from redfuser_algebra.lower.folding_cuda import sums_of, weights_of
from redfuser_algebra.lower.functions import indented
from redfuser_algebra.lower.host_cuda import Host
from redfuser_algebra.lower.operands_cuda import Operand, Products, Scores, Weighted, products
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import LoweringError, TileProgram
from redfuser_algebra.lower.tiles_cuda import TilePrinter
from redfuser_algebra.lower.tiles_host_cuda import WARPGROUPS, tiles_host
from redfuser_algebra.lower.variants import variant

ROOM = 32
"""Bytes of shared memory for barriers: of two stages, and of what has one place."""


def print_warpgroups(program: TileProgram, signature: Signature, dtype: str, float8: Float8 = Float8()) -> CudaSource:
    """The kernel of a program with matrix products for real numbers of a dtype, by wgmma.  Raises LoweringError where there is none.

    Of floats of eight bits wgmma turns no matrix, so that it takes those of scores alone as they are.
    """
    if BYTES.get(dtype) != 2:
        raise LoweringError(f"a CUDA kernel of {program.name} by wgmma with {dtype}", "its factors have 16 bits",
                            "choose float16 or bfloat16, or leave wgmma out")
    return WarpgroupPrinter(program, signature, dtype, float8).source()


class WarpgroupPrinter(TilePrinter):
    """The pieces that are others than those of `TilePrinter`."""

    counts = "parts", "piece", "maps"
    wgmma = True

    def _products(self) -> Products:
        found = products(self.program, self.signature, self.float8, turns=False)
        return replace(found, vectors=(), kept=())  # tiles lie at multiples of 1024 bytes

    # which tiles come how

    @property
    def late(self) -> tuple[Operand, ...]:
        """The tiles that only weights are multiplied with, which come into one place, one tile later than the others."""
        early = {*(s.right for s in self.parts.scores), *self.parts.elements}
        return tuple(o for o in self.parts.streamed if o not in early and o not in self.makers)

    @property
    def early(self) -> tuple[Operand, ...]:
        """All others that come."""
        return tuple(o for o in self.parts.streamed if o not in self.late)

    @property
    def boxes(self) -> tuple[Operand, ...]:
        """The tiles that come by bulk copies, where rows along their axis have whole vectors."""
        return tuple(o for o in self.parts.streamed if o not in self.parts.elements and self._copied(o))

    def lies(self, operand: Operand) -> str:
        return f"shared + LATE + AT_{operand.name}" if operand in self.late else f"tile + AT_{operand.name}"

    # the host

    def _imports(self) -> str:
        return variant(super()._imports(), ("import numpy as np\n", "import numpy as np\nfrom cuda.bindings import driver\n"))

    def _host(self, host: Host) -> str:
        names = list(self.program.inputs)
        rows = [f"({2 * names.index(o.value.name)}, sizes[{o.columns!r}], sizes[{o.rows!r}], tile * ({o.columns!r} in even))" for o in self.boxes]
        planned = [f"    maps = np.zeros(({max(len(rows), 1)}, 16), np.uint64)", *([f"    maps[:, :4] = {', '.join(rows)}"] if rows else []), "    arguments.append(maps)"]
        text = "\n".join(tiles_host(self.parts, host, WARPGROUPS, self.late, ROOM))
        return variant(text, ("\n    held = [items", "\n".join(["", *planned, "    held = [items"])),
                       ("\n    parts = [cuda.device_array(", "\n    flat = with_maps(flat, arguments[-1], stream)\n    parts = [cuda.device_array("))

    # sizes

    def _places(self) -> list[str]:
        lines = []
        for into, operands in (("STAGES", self.parts.lefts), ("STAGE", self.early), ("SINGLE", self.late)):
            place = "0"
            for operand in operands:
                lines.append(f"AT_{operand.name}, WIDTH_{operand.name} = {place}, {self.parts.width(operand)}")
                place = f"AT_{operand.name} + {self.parts.height(operand)} * WIDTH_{operand.name}"
            lines.append(f"{into} = {place}")
        lines.append("LATE = STAGES + 2 * STAGE")
        for name, operands in (("EARLY", self.early), ("LATE", self.late)):
            boxes = [o for o in operands if o in self.boxes]
            lines.append(f"BULK_{name} = {' + '.join(f'TILE * WIDTH_{o.name} * even_{o.columns}' for o in boxes) or '0'}")
            lines.append(f"THREADS_{name} = {' or '.join([*(f'not even_{o.columns}' for o in boxes), *['True'] * (len(boxes) < len(operands))]) or 'False'}")
        lines += [line for maker in dict.fromkeys(self.makers.values()) for line in maker.sizes]
        return [*lines, "WEIGHTS = TILE // 4", *self._instructions()]

    def _instructions(self) -> list[str]:
        """What multiplies tiles by wgmma: scores from two tiles with rows of their inner axis, sums from weights and a tile whose rows are summed."""
        lines = []
        for s in self.parts.scores:
            many, turned = (32, f"'', 'k32.f32.{s.left.kind}.{s.right.kind}'") if s.left.kind else (16, "', 0, 0'")
            left, right = (f"[k // 4 * {rows} * 128 + k % 4 * 32 for k in range(-(-n_{s.left.columns} // {many}))]" for rows in ("ROWS", "TILE"))
            lines.append(f"product_{s.name} = product_of_warps(TILE, {left}, {right}, {turned})")
        rows = "[2048 * k for k in range(TILE // 16)]"
        for w in self.parts.weighted:
            sums, span = sums_of(w, self.storage), f"SPAN_{w.columns}"
            lines += [f"product_{sums} = product_of_warps({span}, [], {rows}, ', 1')", f"landed_{sums}, last_{sums} = landed({span}, 1), landed({span}, 0)"]
        return [*lines, *(["landed_scores = landed(TILE, 0)"] if self.parts.scores else [])]

    # what comes into shared memory

    def _fetch(self) -> list[str]:
        self.fetches = {name: self._fetched(name, operands) for name, operands in (("early", self.early), ("late", self.late))}
        return [line for name, (given, lines) in self.fetches.items()
                for line in ("@cuda.jit(device=True, forceinline=True)", f"def fetch_{name}(to, t0, barrier, {given}):", *indented(lines), "")]

    def _fetched(self, name: str, operands: tuple[Operand, ...]) -> tuple[str, list[str]]:
        """Arguments and lines of what fetches tiles that begin at t0."""
        boxes, bulk = [o for o in operands if o in self.boxes], list[str]()
        for o in boxes:
            size = "1" if o.kind else "SIZE"
            column = f"i4(begin_{o.columns})" if o.columns in self.parts.columns else "i4(0)"
            bulk += [f"    if even_{o.columns}:", f"        copy_tile(i4(to + AT_{o.name}), tensors + {128 * self.boxes.index(o)}, {column}, t0, item_{o.name}, "
                     f"TILE, WIDTH_{o.name}, {size}, barrier)"]
        lines = [f"if BULK_{name.upper()} and thread == 0:", f"    announce(barrier, i4(BULK_{name.upper()}))", *bulk] if boxes else []
        for o in operands:
            load = self._load(o, "to")
            lines += [f"if not even_{o.columns}:", *indented(load)] if o in boxes else load
        names = ["tensors", *(f"item_{o.name}" for o in boxes), *(f"p_{o.value.name}" for o in operands if o not in self.makers)]
        names += [f"begin_{a}" for a in (*self.parts.columns, self.program.block)] + [f"n_{a}" for a in (self.program.axis, self.program.block)] + ["thread"]
        names += [given for o in operands if o in self.makers for given in self.makers[o].arguments if given not in ("to", "t0")]
        return ", ".join(dict.fromkeys(names)), lines or ["pass"]

    def _awaited(self, name: str, barrier: str, parity: str) -> list[str]:
        """All that was fetched is there, for products too."""
        return [f"if BULK_{name}:", f"    arrived(i4({barrier}), {parity})", f"if THREADS_{name}:", *indented(_FENCED)]

    # the kernel

    def _fragments(self) -> list[str]:
        return ["weights = cuda.local.array(WEIGHTS, i4)", *super()._fragments()]

    def _folded(self) -> list[str]:
        axis = self.program.axis
        return filled(f"""
            begin = i4(part * piece)
            end = i4(min(begin + piece, n_{axis}))
            t0, half, turn = begin, i4(0), i4(0)
            <pass_over>
            ahead = i4(t0 + TILE)
            <ahead>
            <once>
            tensors, barriers = address(maps), i4(shared + BYTES - {ROOM})
            <items>
            if thread == 0:
                for n in range(3):
                    start_barrier(i4(barriers + 8 * n), i4(1))
                for n in range({len(self.boxes)}):
                    acquire_map(tensors + 128 * n)
                async_fence()
            cuda.syncthreads()
            <lefts>
            if t0 < end:
                <first>
                if ahead < end:
                    <second>
            <fenced>
            if t0 < end:
                <scores>
                <landed>
            while t0 < end:
                <tile>
            cuda.syncthreads()
        """, pass_over=self.masks.passed_over("t0"), ahead=self.masks.passed_over("ahead"), once=self._once(), fenced=_FENCED, tile=self._tile(),
            first=[self._early("t0", "0"), *self._late("t0")], second=[self._early("ahead", "1")], scores=self._scores_begin("0", "i4(0)"), landed=self._scores_land(),
            items=[f"item_{o.name} = i4(o_{o.value.name} // (i8(n_{o.rows}) * n_{o.columns}))" for o in self.boxes],
            lefts=[line for operand in self.parts.lefts for line in self._load(operand, "shared")])

    def _early(self, start: str, stage: str) -> str:
        return f"fetch_early(i4(shared + STAGES + {stage} * STAGE), {start}, i4(barriers + 8 * {stage}), {self.fetches['early'][0]})"

    def _late(self, start: str) -> list[str]:
        return [f"fetch_late(i4(shared + LATE), {start}, i4(barriers + 16), {self.fetches['late'][0]})"] if self.late else []

    def _scores_begin(self, stage: str, parity: str) -> list[str]:
        """The scores of the tile in a stage are under way."""
        return [*self._awaited("EARLY", f"barriers + 8 * {stage}", parity), f"tile = shared + STAGES + {stage} * STAGE", *self._nothing(),
                *map(self._multiplied, self.parts.scores), "products_end()"]

    def _scores_land(self) -> list[str]:
        return [f"landed_scores({name})" for name in self.parts.produced]

    def _tile(self) -> list[str]:
        """One tile, of which there are scores: the state, weighted rows, and meanwhile the scores of the next; what comes then is sent for."""
        axis, cut = self.program.axis, [f"clean_{w.update.name}" for w in self.parts.weighted if w.update.mask is not None]
        ready = self._awaited("LATE", "barriers + 16", "half") if self.late else []
        added = [*(line for w in self.parts.weighted for line in self._adding(w)), "products_end()", *self._next()]
        taken = [line for w in self.parts.weighted for line in self._added_at_once(w)]
        return filled(f"""
            tile, after = shared + STAGES + half * STAGE, i4(ahead + TILE)
            <pass_over>
            first_{axis} = i4(t0 + lane % 4 * 2)
            many = min(i4(TILE), i4(n_{axis} - t0))
            seen, seen_old = i4(t0 - begin + many), i4(t0 - begin)
            <taken>
            <looked>
            <taken_in>
            <multiplied>
            <added>
            t0, ahead, half, turn = ahead, after, i4(1 - half), i4(turn ^ half)
        """, pass_over=self.masks.passed_over("after"), taken=self._taken(), looked=ready if cut else [], taken_in=self._taken_in(), multiplied=[] if cut else ready,
            added=[f"if {' and '.join(cut)}:", *indented(added), "else:", *indented([*taken, *self._next()])] if cut else added)

    def _next(self) -> list[str]:
        """The scores of the next tile, if there is one, begin; what has been added lands; what comes after is sent for.

        Products are under way here alone, so that the compiler, which looks no further, sees nobody touch their registers.
        """
        sums = [sums_of(w, self.storage) for w in self.parts.weighted]
        return filled("""
            if ahead < end:
                <scores>
                <landed>
                cuda.syncthreads()
                <late>
                if after < end:
                    <early>
                <told>
            else:
                <last>
        """, scores=self._scores_begin("(1 - half)", "i4(turn ^ half)"), landed=[f"landed_{each}({each})" for each in sums], late=self._late("ahead"),
            early=[self._early("after", "half")], told=self._scores_land(), last=[f"last_{each}({each})" for each in sums] or ["pass"])

    def _added_at_once(self, w: Weighted) -> list[str]:
        """Weights times rows of a tile in which not every number is finite."""
        if w.update.mask is not None:
            return [self._taken_rows(w)]
        return [*self._adding(w), "products_end()", f"last_{sums_of(w, self.storage)}({sums_of(w, self.storage)})"]

    def _multiplied(self, s: Scores) -> str:
        return f"product_{s.name}({s.name}, described(shared + AT_{s.left.name}, 16, 1024), described({self.lies(s.right)}, 16, 1024))"

    def _adding(self, w: Weighted) -> list[str]:
        sums = sums_of(w, self.storage)
        return [f"pack_weights({weights_of(w)}, TILE, weights)", f"product_{sums}({sums}, weights, described({self.lies(w.right)}, TILE * 128, 1024))"]


_FENCED = ["copies_end()", "wait_for_copies()", "async_fence()", "cuda.syncthreads()"]
