"""What one node of a graph means for traced arrays.

In: a node, and a value for each of its operands.  Out: its value.  Most of ATen's operators are those of torch by the same
name; here are those whose arguments differ, and those that move dimensions, which go by the shapes that export noted.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import getitem

import numpy as np

from redfuser_algebra.language.aten.capture import hint, named
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.tracing.array import Traced, lifted
from redfuser_algebra.language.tracing.lengths import Axes, Dim, current, written
from redfuser_algebra.language.tracing.place import refused
from redfuser_algebra.language.tracing.torch_functions import TORCH, WHY

REDUCTIONS = ("none", "mean", "sum")
"""How ATen numbers what becomes of a loss."""


@dataclass
class Shapes(Axes):
    """The axes of a part of a graph: made as its values need them, one where `same` says that two met in an earlier round."""

    same: dict[str, str] = field(default_factory=dict)
    made: int = 0

    def fresh(self, length: int) -> Dim:
        """The dimension of a new axis; none for a dimension of length one."""
        if length == 1:
            return ()
        name = f"a{self.made}"
        self.made += 1
        name = self.same.get(name, name)
        self.lengths[name] = length
        return (name,)

    def met(self, one: Dim, other: Dim, what: str) -> Dim:
        if one and other and self.length(one) != self.length(other):
            raise refused(f"{what}, where axis {written(one)} meets axis {written(other)}", "they differ in length", "see the shapes")
        return super().met(one, other, what)

    def axis_of(self, number: float) -> str | None:
        """None: lengths are those of an example, and may be equal to any number."""
        return None

    def dims_of(self, shape: Sequence[int], what: str) -> tuple[Dim, ...]:
        axes = iter(self.distinct(axis for length in shape for axis in self.fresh(length)))
        return tuple(() if length == 1 else (next(axes),) for length in shape)


def shape_of(node: object) -> tuple[int, ...]:
    """The lengths of a node's value in the example."""
    return tuple(map(hint, node.meta["val"].shape))


def meaning(node: object, args: tuple, kwargs: dict) -> object:
    """The value of a node for traced operands.  Raises OperatorError where there is none over named axes."""
    if node.target is getitem:
        return args[0][args[1]]
    name = named(node)
    if name in SHAPED:
        return SHAPED[name](node, lifted(args[0]))
    if name not in ATEN:
        raise refused(f"aten.{name}", WHY.get(name, "it is not followed"), "torch runs it")
    try:
        return ATEN[name](*args, **kwargs)
    except OperatorError:
        raise
    except (TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
        raise refused(f"aten.{name} with these arguments", f"{error}".partition("\n")[0], "torch runs it") from error


# what only moves dimensions

def _same_axes(node: object, a: Traced) -> Traced:
    """A view that adds and drops dimensions of length one."""
    shape, dims = shape_of(node), [dim for dim in a.dims if dim]
    if [length for length in shape if length != 1] != [current.get().length(dim) for dim in dims]:
        raise refused(f"aten.{named(node)}", "it cuts an axis into pieces, or joins axes to one", "torch runs it")
    kept = iter(dims)
    return Traced(a.expr, tuple(() if length == 1 else next(kept) for length in shape))


def _repeated(node: object, a: Traced) -> Traced:
    """A view that repeats dimensions of length one."""
    shape = shape_of(node)
    axes, own = current.get(), ((),) * (len(shape) - a.ndim) + a.dims
    more = [axes.fresh(length) if not dim else () for dim, length in zip(own, shape, strict=True)]
    kept = [axis for dim in a.dims for axis in dim]
    new = iter(axes.distinct([*kept, *(axis for dim in more for axis in dim)])[len(kept):])
    return Traced(a.expr, tuple(dim or ((next(new),) if extra else ()) for dim, extra in zip(own, more, strict=True)))


def _whole(node: object, a: Traced) -> Traced:
    if shape_of(node) != shape_of(node.args[0]):
        raise refused(f"aten.{named(node)}", "it reads a piece of an axis", "torch runs it")
    return a


SHAPED: dict[str, Callable] = (
    dict.fromkeys("view reshape unsafe_view unflatten flatten squeeze unsqueeze".split(), _same_axes)
    | dict.fromkeys("expand expand_as broadcast_to".split(), _repeated) | dict.fromkeys(("slice", "narrow"), _whole))


# losses, whose reduction is a number here, and a few others

def _loss(name: str) -> Callable:
    return lambda a, b, reduction=1, **options: TORCH[name](a, b, reduction=REDUCTIONS[reduction], **options)


def _cross_entropy(a, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    return TORCH["cross_entropy"](a, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction],
                                  label_smoothing=label_smoothing)


def _index(a, indices):
    return a[tuple(slice(None) if each is None else each for each in indices)]


ATEN: dict[str, Callable] = {name: handler for name, handler in TORCH.items() if name not in ("select", "getitem", "index_select", "gather")} | {
    "mse_loss": _loss("mse_loss"), "l1_loss": _loss("l1_loss"), "cross_entropy_loss": _cross_entropy, "index": _index,
    "kl_div": lambda a, b, reduction=1, log_target=False: TORCH["kl_div"](a, b, reduction=REDUCTIONS[reduction], log_target=log_target),
    "nll_loss": lambda a, b, weight=None, reduction=1, ignore_index=-100:
        TORCH["nll_loss"](a, b, weight, reduction=REDUCTIONS[reduction], ignore_index=ignore_index),
    "binary_cross_entropy_with_logits": lambda a, b, weight=None, pos_weight=None, reduction=1: TORCH["binary_cross_entropy_with_logits"](
        a, b, weight, pos_weight=pos_weight, reduction=REDUCTIONS[reduction]),
    "gather": lambda a, dim, index, sparse_grad=False: TORCH["gather"](a, dim, index),
    "broadcast_tensors": lambda arrays: tuple(np.broadcast_arrays(*arrays)), "log_sigmoid": TORCH["logsigmoid"],
    "to_copy": TORCH["to"], "lift_fresh_copy": lambda a: a, "numpy_T": np.transpose,
    "batch_norm": lambda a, weight, bias, mean, var, training, momentum, eps, cudnn_enabled: TORCH["batch_norm"](
        a, mean, var, weight, bias, training, momentum, eps),
    "layer_norm": lambda a, shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True: TORCH["layer_norm"](a, shape, weight, bias, eps),
    "softmax": lambda a, dim, dtype=None: TORCH["softmax"](a, dim), "log_softmax": lambda a, dim, dtype=None: TORCH["log_softmax"](a, dim),
}
"""The meaning of ATen's names that is not that of torch's functions of the same name."""
