"""What torch's functions and methods are to traced arrays: one entry per name, in terms of what NumPy's are.

In: traced arrays, numbers and torch's own arguments (`dim`, `keepdim`, …).  Out: traced arrays.  Torch is not imported.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.tracing.array import Traced, lifted
from redfuser_algebra.language.tracing.elementwise import is_boolean
from redfuser_algebra.language.tracing.place import refused
from redfuser_algebra.language.tracing.reductions import LARGEST, SMALLEST, reduced, variance
from redfuser_algebra.language.tracing.shapes import Sorted

TORCH: dict[str, Callable] = {}
"""A meaning for each name that a function or method of torch may have, without underscores around it."""

WHY = {name: reason for reason, names in {
    "every element of the result needs all elements before it; that is a scan": "cummax cummin",
    "neighbours along an axis meet": "diff conv1d conv2d conv3d convolution avg_pool1d avg_pool2d max_pool1d max_pool2d unfold",
    "an order statistic needs all elements at once": "nanmedian quantile kthvalue mode sort argsort unique",
    "arrays are joined or cut": "cat concat stack hstack vstack split split_with_sizes chunk unbind pad constant_pad_nd roll repeat repeat_interleave",
    "one piece of an axis is read": "select narrow index_select slice",
    "each result may need any element": "embedding one_hot scatter scatter_add index_put index_add flip",
    "it draws random numbers": "rand rand_like randn randn_like bernoulli multinomial alpha_dropout feature_dropout",
}.items() for name in names.split()}
"""Why some names have none."""


class Pair(NamedTuple):
    """Values, and where they were found."""

    values: Traced
    indices: Traced


def means(*names: str) -> Callable[[Callable], Callable]:
    """Enter the meaning of some names."""
    def enter(handler: Callable) -> Callable:
        TORCH.update(dict.fromkeys(names, handler))
        return handler

    return enter


# elementwise

_AS_IN_NUMPY = {
    "multiply": "mul rmul multiply", "negative": "neg negative", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log2": "log2", "log10": "log10", "log1p": "log1p", "sqrt": "sqrt", "square": "square", "absolute": "abs absolute",
    "sign": "sign sgn", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh",
    "arctan": "atan arctan", "arctan2": "atan2 arctan2", "floor": "floor", "ceil": "ceil", "trunc": "trunc fix",
    "reciprocal": "reciprocal", "maximum": "maximum", "minimum": "minimum", "remainder": "remainder mod",
    "floor_divide": "floor_divide floordiv", "equal": "eq", "not_equal": "ne", "less": "lt less", "less_equal": "le less_equal",
    "greater": "gt greater", "greater_equal": "ge greater_equal", "logical_and": "logical_and bitwise_and and rand",
    "logical_or": "logical_or bitwise_or or ror", "logical_not": "logical_not bitwise_not invert", "isnan": "isnan", "isinf": "isinf",
    "isfinite": "isfinite", "logaddexp": "logaddexp", "hypot": "hypot", "matmul": "matmul mm bmm mv dot",
}
for _function, _names in _AS_IN_NUMPY.items():
    TORCH.update(dict.fromkeys(_names.split(), getattr(np, _function)))

TORCH |= {
    "add": lambda a, b, alpha=1: np.add(a, b if alpha == 1 else np.multiply(b, alpha)),
    "sub": lambda a, b, alpha=1: np.subtract(a, b if alpha == 1 else np.multiply(b, alpha)),
    "rsub": lambda a, b: np.subtract(b, a), "rtruediv": lambda a, b: np.divide(b, a), "rdiv": lambda a, b: np.divide(b, a),
    "pow": lambda a, b: np.power(a, b), "rpow": lambda a, b: np.power(b, a), "rmatmul": lambda a, b: np.matmul(b, a),
    "rsqrt": lambda a: 1 / np.sqrt(a), "round": lambda a, decimals=0: np.round(a, decimals),
    "sigmoid": lambda a: Traced(ra.sigmoid(lifted(a).expr), lifted(a).dims),
    "erf": lambda a: Traced(ra.erf(lifted(a).expr), lifted(a).dims), "erfc": lambda a: 1 - TORCH["erf"](a),
    "logcumsumexp": lambda a, dim: np.logaddexp.accumulate(a, axis=dim),
    "cumsum": lambda a, dim, dtype=None: np.cumsum(a, axis=dim), "cumprod": lambda a, dim, dtype=None: np.cumprod(a, axis=dim),
    "relu": lambda a, inplace=False: np.maximum(a, 0), "relu6": lambda a, inplace=False: np.clip(a, 0, 6),
    "silu": lambda a, inplace=False: a * TORCH["sigmoid"](a),
    "hardtanh": lambda a, min_val=-1.0, max_val=1.0, inplace=False: np.clip(a, min_val, max_val),
    "leaky_relu": lambda a, negative_slope=0.01, inplace=False: np.where(a >= 0, a, a * negative_slope),
    "elu": lambda a, alpha=1.0, scale=1.0, input_scale=1.0, inplace=False: scale * np.where(a > 0, a, alpha * np.expm1(np.minimum(a, 0) * input_scale)),
    "hardsigmoid": lambda a, inplace=False: np.clip(a / 6 + 0.5, 0, 1), "hardswish": lambda a, inplace=False: a * np.clip(a / 6 + 0.5, 0, 1),
    "mish": lambda a, inplace=False: a * np.tanh(np.logaddexp(a, 0)), "softsign": lambda a: a / (1 + np.absolute(a)),
    "softplus": lambda a, beta=1, threshold=20: np.logaddexp(a * beta, 0) / beta,
    **dict.fromkeys(("logsigmoid", "log_sigmoid"), lambda a: -np.logaddexp(-a, 0)),
    "clamp": lambda a, min=None, max=None: np.clip(a, min, max), "clip": lambda a, min=None, max=None: np.clip(a, min, max),
    "clamp_min": lambda a, min: np.maximum(a, min), "clamp_max": lambda a, max: np.minimum(a, max),
    "masked_fill": lambda a, mask, value: np.where(mask, value, a),
    "nan_to_num": lambda a, nan=0.0, posinf=None, neginf=None: np.nan_to_num(a, nan=nan, posinf=posinf, neginf=neginf),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), lambda c, a, b, *, beta=1, alpha=1: c * beta + np.matmul(a, b) * alpha),
    "einsum": lambda text, *arrays: np.einsum(text, *(arrays[0] if isinstance(arrays[0], list | tuple) else arrays)),
    "outer": np.outer, "tensordot": lambda a, b, dims=2: np.tensordot(a, b, dims),
}
TORCH |= {"radd": TORCH["add"], "subtract": TORCH["sub"], "linalg_vecdot": lambda a, b, dim=-1: np.sum(a * b, axis=dim)}


@means("div", "divide", "true_divide", "truediv")
def _div(a, b, rounding_mode=None):
    quotient = np.divide(a, b)
    return quotient if rounding_mode is None else np.floor(quotient) if rounding_mode == "floor" else np.trunc(quotient)


@means("gelu")
def _gelu(a, approximate="none"):
    if approximate != "tanh":
        return 0.5 * a * (1 + TORCH["erf"](a / math.sqrt(2)))
    return 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


@means("where")
def _where(condition, a=None, b=None):
    return np.where(condition, a, b)


@means("dropout")
def _dropout(a, p=0.5, training=True, inplace=False):
    if training and p:
        raise refused("dropout", "it draws random numbers", "call .eval() on the module, or pass the mask as an input")
    return a


# reductions

def _reduction(function: Callable) -> Callable:
    def handler(a, dim=None, keepdim=False, *, dtype=None):
        return function(a, axis=tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim)

    return handler


for _names, _function in {"sum nansum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min, "all": np.all,
                          "any": np.any, "argmax": np.argmax, "argmin": np.argmin, "count_nonzero": np.count_nonzero}.items():
    TORCH.update(dict.fromkeys(_names.split(), _reduction(_function)))
TORCH["nansum"], TORCH["nanmean"] = _reduction(np.nansum), _reduction(np.nanmean)


def _extreme(chosen, position, both):
    """The extreme of everything, along a dimension with its position, or of two arrays."""
    def handler(a, dim=None, keepdim=False, *, other=None):
        other = dim if isinstance(dim, Traced | np.ndarray) else other
        if other is not None:
            return both(a, other)
        if dim is None:
            return reduced(a, None, False, chosen)
        return Pair(reduced(a, dim, keepdim, chosen), position(a, axis=dim, keepdims=keepdim))

    return handler


TORCH["max"], TORCH["min"] = _extreme(LARGEST, np.argmax, np.maximum), _extreme(SMALLEST, np.argmin, np.minimum)


@means("var")
def _var(a, dim=None, unbiased=None, keepdim=False, *, correction=None):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    ddof = correction if correction is not None else 1 if unbiased is None or unbiased else 0
    return reduced(a, tuple(dim) if isinstance(dim, list) else dim, keepdim, variance(ddof))


@means("std")
def _std(a, *args, **options):
    return np.sqrt(_var(a, *args, **options))


@means("var_mean")
def _var_mean(a, dim=None, *args, keepdim=False, **options):
    return _var(a, dim, *args, keepdim=keepdim, **options), np.mean(a, axis=dim, keepdims=keepdim)


@means("norm", "linalg_vector_norm", "linalg_norm")
def norm(a, p=2, dim=None, keepdim=False, *, ord=None, dtype=None):
    order = p if ord is None else ord
    if dim is None:
        a = np.ravel(a)
    return np.linalg.norm(a, None if order == "fro" else order, axis=dim, keepdims=keepdim)


@means("softmax")
def _softmax(a, dim=-1, dtype=None, _stacklevel=3):
    e = np.exp(a - np.max(a, axis=dim, keepdims=True))
    return e / np.sum(e, axis=dim, keepdims=True)


@means("softmin")
def _softmin(a, dim=-1, _stacklevel=3, dtype=None):
    return _softmax(-a, dim)


def logsumexp(a, dim=-1, keepdim=False):
    """log Σ eˣ about the largest element: not a number where that is infinite, as in torch's log_softmax."""
    dim = tuple(dim) if isinstance(dim, list) else dim
    m = np.max(a, axis=dim, keepdims=True)
    total = m + np.log(np.sum(np.exp(a - m), axis=dim, keepdims=True))
    return total if keepdim else np.squeeze(total, axis=dim)


@means("logsumexp")
def _logsumexp(a, dim=-1, keepdim=False):
    dim = tuple(dim) if isinstance(dim, list) else dim
    m = np.max(a, axis=dim, keepdims=keepdim)
    return np.where(np.isfinite(m), logsumexp(a, dim, keepdim), m)


@means("log_softmax")
def log_softmax(a, dim=-1, dtype=None, _stacklevel=3):
    return a - logsumexp(a, dim, keepdim=True)


@means("topk")
def _topk(a, k, dim=-1, largest=True, sorted=True):
    place = dim % a.ndim
    key = (slice(None),) * place + (slice(None, int(k)),)
    return Pair(*(Sorted(a, place, positions, False, descending=largest)[key] for positions in (False, True)))


# layers and losses

def _last(shape) -> tuple[int, ...]:
    return tuple(range(-len(shape if isinstance(shape, tuple | list) else (shape,)), 0))


def _affine(a, weight, bias):
    a = a if weight is None else a * weight
    return a if bias is None else a + bias


@means("layer_norm")
def _layer_norm(a, normalized_shape, weight=None, bias=None, eps=1e-5):
    deviation = a - np.mean(a, axis=_last(normalized_shape), keepdims=True)
    spread = np.sqrt(np.mean(deviation * deviation, axis=_last(normalized_shape), keepdims=True) + eps)
    return _affine(deviation / spread, weight, bias)


@means("batch_norm")
def _batch_norm(a, mean, variance, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """With the statistics that were kept; along dimension 1."""
    if training:
        raise refused("batch_norm in training", "it changes the statistics that it keeps", "call .eval() on the module")
    column = (slice(None), *(None,) * (a.ndim - 2))
    kept = [each if each is None else each[column] for each in (weight, bias)]
    return _affine((a - mean[column]) / np.sqrt(variance[column] + eps), *kept)


@means("rms_norm")
def _rms_norm(a, normalized_shape, weight=None, eps=None):
    eps = float(np.finfo(np.float32).eps) if eps is None else eps  # of the format that torch computes in by default
    return _affine(a / np.sqrt(np.mean(a * a, axis=_last(normalized_shape), keepdims=True) + eps), weight, None)


@means("linear")
def _linear(a, weight, bias=None):
    return _affine(np.matmul(a, np.transpose(weight)), None, bias)


@means("scaled_dot_product_attention")
def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p or enable_gqa:
        raise refused("scaled_dot_product_attention with dropout_p or enable_gqa", "heads are shared, or chance decides",
                      "give the groups a dimension of their own, and no dropout")
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        row, column = (Traced(ra.index(array.dims[-2][0]), (array.dims[-2],)) for array in (q, k))
        scores = np.where(column <= row[:, None], scores, -math.inf)
    if attn_mask is not None:
        boolean = attn_mask.dtype == bool or isinstance(attn_mask, Traced) and is_boolean(attn_mask.expr)
        scores = np.where(attn_mask, scores, -math.inf) if boolean else scores + attn_mask
    return np.matmul(_softmax(scores), v)


@means("normalize")
def _normalize(a, p=2.0, dim=1, eps=1e-12, out=None):
    return a / np.maximum(norm(a, p, dim, True), eps)


@means("cosine_similarity")
def _cosine(a, b, dim=1, eps=1e-8):
    norms = [np.maximum(norm(each, 2, dim), eps) for each in (a, b)]
    return np.sum(a * b, axis=dim) / (norms[0] * norms[1])


def _pooled(dimensions: int) -> Callable:
    """The mean over the last so many dimensions."""
    def handler(a, output_size):
        if any(size != 1 for size in (output_size if isinstance(output_size, tuple | list) else (output_size,))):
            raise refused("an adaptive pool of several places", "neighbours along an axis meet", "pool to one place, or write that part by itself")
        return np.mean(a, axis=tuple(range(-dimensions, 0)), keepdims=True)

    return handler


TORCH |= {f"adaptive_avg_pool{n}d": _pooled(n) for n in (1, 2, 3)}


@means("median")
def _median(a, dim=None, keepdim=False):
    """The lower of two in the middle, as torch has it."""
    def lower(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
        if len(names) > 1:
            raise refused("the median of all dimensions", "its elements are ordered along one axis", "give dim=")
        out = ra.fresh_axis(f"sorted_{names[0]}", expr)
        return ra.take(ra.sort(expr, names[0], out), (ra.size(names[0]) - 1) // 2, out)

    middle = reduced(a, dim, keepdim, lower)
    return middle if dim is None else Pair(middle, None)


# dimensions

def _listed(sizes: tuple) -> tuple:
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes


TORCH |= {
    "transpose": np.swapaxes, "swapaxes": np.swapaxes, "swapdims": np.swapaxes, "t": np.transpose,
    "permute": lambda a, *dims: np.transpose(a, _listed(dims)), "movedim": np.moveaxis, "moveaxis": np.moveaxis,
    "unsqueeze": np.expand_dims, "squeeze": lambda a, dim=None: np.squeeze(a, axis=dim),
    "reshape": lambda a, *shape: np.reshape(a, _listed(shape)), "view": lambda a, *shape: np.reshape(a, _listed(shape)),
    "ravel": np.ravel, "size": lambda a, dim=None: a.shape if dim is None else a.shape[dim], **dict.fromkeys(("dim", "ndimension"), lambda a: a.ndim),
    "numel": lambda a: a.size, "expand_as": lambda a, b: np.broadcast_to(a, b.shape), "view_as": lambda a, b: np.reshape(a, b.shape),
    "getitem": lambda a, key: a[key], "gather": lambda a, dim, index: np.take_along_axis(a, index, dim),
    "index_select": lambda a, dim, index: np.take(a, index, axis=dim), "select": lambda a, dim, place: np.take(a, place, axis=dim),
    "tril": lambda a, diagonal=0: np.tril(a, diagonal), "triu": lambda a, diagonal=0: np.triu(a, diagonal),
    "zeros_like": lambda a, **options: np.zeros_like(a), "ones_like": lambda a, **options: np.ones_like(a),
    "full_like": lambda a, value, **options: np.full_like(a, value), "clone": lambda a, **options: a.copy(),
} | {name: lambda a, *ignored, **options: a for name in "contiguous detach float double cpu cuda type_as requires_grad alias".split()}


@means("expand")
def _expand(a, *sizes):
    sizes = _listed(sizes)
    lead = len(sizes) - a.ndim
    shape = [own if size == -1 else size for size, own in zip(sizes[lead:], a.shape, strict=True)]
    return np.broadcast_to(a, (*sizes[:lead], *shape))


@means("flatten")
def _flatten(a, start_dim=0, end_dim=-1):
    start, end = start_dim % a.ndim, end_dim % a.ndim
    return np.reshape(a, (*a.shape[:start], math.prod(map(int, a.shape[start:end + 1])), *a.shape[end + 1:]))


@means("to", "type")
def _to(a, *target, **options):
    """Another format: float32 and wider are those that is computed in; a narrower one rounds."""
    names = [str(each).removeprefix("torch.") for each in (*target, options.get("dtype")) if type(each).__name__ == "dtype"]
    return a if not names else cast_to(a, names[0])


def cast_to(a: Traced, name: str) -> Traced:
    """An array rounded to one of torch's formats."""
    return a if name in ("float32", "float64") else Traced(ra.cast(a.expr, name), a.dims) if name == "bfloat16" else a.astype(name)


TORCH |= {torch: lambda a, name=name: cast_to(a, name) for torch, name in
          {"half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int64", "bool": "bool"}.items()}
