"""What torch's losses are to traced arrays: one entry per name, like those of `torch_functions`."""
from __future__ import annotations

import math

import numpy as np

from redfuser_algebra.language.tracing.array import lifted
from redfuser_algebra.language.tracing.place import refused
from redfuser_algebra.language.tracing.torch_functions import log_softmax, logsumexp, means, norm


def _averaged(losses, reduction):
    if reduction == "batchmean":
        return np.sum(losses) / losses.shape[0]
    return losses if reduction == "none" else np.sum(losses) if reduction == "sum" else np.mean(losses)


def _at_class(a, target, dim):
    """The element at the number of the class."""
    return np.squeeze(np.take_along_axis(a, np.expand_dims(target, dim), dim), axis=dim)


def _over_classes(losses, target, weight, ignore_index, reduction):
    """The losses of those that take part, all but the ones with the number ignore_index, by the weights of their classes."""
    taking_part = np.not_equal(target, ignore_index)
    weights = 1 if weight is None else np.take(lifted(weight), target)
    losses = np.where(taking_part, losses * weights, 0)
    return np.sum(losses) / np.sum(np.where(taking_part, weights, 0)) if reduction == "mean" else _averaged(losses, reduction)


@means("nll_loss", "nll_loss_nd")
def _nll(a, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """−a at the number of the class, along dimension 1 (0 of a vector)."""
    return _over_classes(-_at_class(a, target, min(a.ndim - 1, 1)), target, weight, ignore_index, reduction)


@means("cross_entropy")
def _cross_entropy(a, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    """−log of the probability of a class (its number), or against probabilities of the classes."""
    dim = min(a.ndim - 1, 1)
    if label_smoothing and weight is not None:
        raise refused("cross_entropy with label_smoothing and weights of the classes", "each alone is read", "write the weighted sum out")
    if target.ndim < a.ndim:
        hit = _at_class(a, target, dim)
        likely = hit if not label_smoothing else (1 - label_smoothing) * hit + label_smoothing * np.mean(a, axis=dim)
        return _over_classes(logsumexp(a, dim) - likely, target, weight, ignore_index, reduction)
    weights = 1 if weight is None else weight[(slice(None), *(None,) * (a.ndim - 1 - dim))]
    target = target if not label_smoothing else (1 - label_smoothing) * target + label_smoothing / a.shape[dim]
    losses = -np.sum(target * log_softmax(a, dim) * weights, axis=dim)
    return np.sum(losses) / losses.size if reduction == "mean" else _averaged(losses, reduction)


@means("kl_div")
def _kl_div(a, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    losses = np.exp(target) * (target - a) if log_target else np.where(target == 0, 0, target * (np.log(target) - a))
    return _averaged(losses, reduction)


@means("binary_cross_entropy_with_logits")
def _binary(a, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
    rest = np.log1p(np.exp(-np.absolute(a))) + np.maximum(-a, 0)
    losses = (1 - target) * a + (rest if pos_weight is None else rest * (1 + (pos_weight - 1) * target))
    return _averaged(losses if weight is None else losses * weight, reduction)


@means("triplet_margin_loss")
def _triplet(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"):
    near, far, other = (norm(one - two + eps, p, -1) for one, two in ((anchor, positive), (anchor, negative), (positive, negative)))
    return _averaged(np.maximum(near - (np.minimum(far, other) if swap else far) + margin, 0), reduction)


@means("pairwise_distance")
def _distance(a, b, p=2.0, eps=1e-6, keepdim=False):
    return norm(a - b + eps, p, -1, keepdim)


@means("cosine_embedding_loss")
def _cosine_loss(a, b, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    cosine = np.sum(a * b, axis=-1) / np.sqrt((np.sum(a * a, axis=-1) + 1e-12) * (np.sum(b * b, axis=-1) + 1e-12))
    return _averaged(np.where(target > 0, 1 - cosine, np.maximum(cosine - margin, 0)), reduction)


@means("margin_ranking_loss")
def _ranking(a, b, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    return _averaged(np.maximum(margin - target * (a - b), 0), reduction)


@means("gaussian_nll_loss")
def _gaussian_nll(a, target, var, full=False, eps=1e-6, reduction="mean"):
    var = np.maximum(var, eps)
    return _averaged(0.5 * (np.log(var) + (a - target) ** 2 / var) + (0.5 * math.log(2 * math.pi) if full else 0), reduction)


@means("poisson_nll_loss")
def _poisson_nll(a, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    if full:
        raise refused("poisson_nll_loss with full=True", "Stirling's formula is not read", "leave it out, or write it")
    return _averaged(np.exp(a) - target * a if log_input else a - target * np.log(a + eps), reduction)


@means("huber_loss")
def _huber(a, b, reduction="mean", delta=1.0, weight=None):
    gap = np.absolute(a - b)
    losses = np.where(gap <= delta, 0.5 * gap * gap, delta * (gap - 0.5 * delta))
    return _averaged(losses if weight is None else losses * weight, reduction)


@means("smooth_l1_loss")
def _smooth_l1(a, b, size_average=None, reduce=None, reduction="mean", beta=1.0):
    gap = np.absolute(a - b)
    return _averaged(np.where(gap < beta, gap * gap / (2 * beta), gap - beta / 2) if beta else gap, reduction)


@means("mse_loss")
def _mse(a, b, size_average=None, reduce=None, reduction="mean", weight=None):
    return _averaged((a - b) ** 2, reduction)


@means("l1_loss")
def _l1(a, b, size_average=None, reduce=None, reduction="mean", weight=None):
    return _averaged(np.absolute(a - b), reduction)
