"""Print a tile program as Numba source for GPUs: the family of kernels that fits the program.

In: a tile program and the dtypes of its arrays.  Out: a module that needs NumPy and numba-cuda.
"""
from __future__ import annotations

from redfuser_algebra.lower.arithmetic_cuda import BYTES, CudaSource
from redfuser_algebra.lower.columns_cuda import ColumnPrinter, has_columns
from redfuser_algebra.lower.elements import with_elements
from redfuser_algebra.lower.float8 import Float8
from redfuser_algebra.lower.operands_cuda import has_products
from redfuser_algebra.lower.ordered_cuda import OrderedRowPrinter, has_order, is_walked
from redfuser_algebra.lower.rows_cuda import RowPrinter
from redfuser_algebra.lower.scan_cuda import ScanPrinter, scans
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import LoweringError, TileProgram
from redfuser_algebra.lower.tiles_cuda import print_tiles
from redfuser_algebra.lower.walk_cuda import WalkPrinter
from redfuser_algebra.lower.warpgroups_cuda import print_warpgroups


def print_cuda(program: TileProgram, signature: Signature, dtype: str, wgmma: bool = False, float8: Float8 = Float8()) -> CudaSource:
    """The kernel of a program for real numbers of a dtype, with the products of sm_90a if `wgmma`.

    Raises LoweringError where there is no kernel yet.
    """
    if dtype not in BYTES:
        raise LoweringError(f"a CUDA kernel with {dtype}", "kernels have no such numbers", f"choose one of {', '.join(BYTES)}")
    if wgmma or float8.formats:
        if not has_products(program):
            asked = "by wgmma" if wgmma else "with factors of eight bits"
            raise LoweringError(f"a CUDA kernel of {program.name} {asked}", "it multiplies no matrices", f"leave {'wgmma' if wgmma else 'them'} out")
        return print_warpgroups(program, signature, dtype, float8) if wgmma else print_tiles(program, signature, dtype, float8)
    if scans(program):
        return ScanPrinter(program, signature, dtype).source()
    if is_walked(program):
        return WalkPrinter(program, signature, dtype).source()
    if has_order(program):
        return OrderedRowPrinter(program, signature, dtype).source()
    if has_products(program):
        try:
            return print_tiles(program, signature, dtype)
        except LoweringError:
            pass  # what tensor cores cannot take, threads do by themselves
    if has_columns(program):
        return ColumnPrinter(program, signature, dtype).source()
    return RowPrinter(with_elements(program), signature, dtype).source()
