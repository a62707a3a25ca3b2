"""Functions and modules of torch as operators: they mean what torch computes, and so do their gradients."""

import math
import sys

import numpy as np
import pytest
import redfuser_algebra as ra

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def attention(q, k, v):
    s = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    s = s.masked_fill(torch.tril(torch.ones(q.shape[0], k.shape[0])) == 0, float("-inf"))
    return s.softmax(-1) @ v


def routed(x):
    values, places = torch.topk(x.softmax(-1), 3)
    return values / values.sum(-1, keepdim=True), places


def statistics(x):
    return {"mean": x.mean(-1), "var": x.var(-1), "amax": x.amax(dim=-1), "best": x.argmax(-1), "least": x.min(-1).values}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.project, self.unused = torch.nn.LayerNorm(8), torch.nn.Linear(8, 4), torch.nn.Linear(2, 2)
        self.scale, self.gate = torch.nn.Parameter(torch.tensor(0.7)), torch.nn.Parameter(torch.tensor([1.3]))

    def forward(self, x):
        return (self.project(self.norm(x)) * self.scale).softmax(-1) * self.gate


QKV, TABLE = {"q": "m d", "k": "l d", "v": "l j"}, {"x": "b l"}
FUNCTIONS = [
    (attention, QKV), (routed, TABLE), (statistics, TABLE), (Block(), TABLE), (torch.nn.RMSNorm(8, eps=1e-6), {"x": "b l"}), (torch.nn.Softmax(-1), {"input": "b l"}),
    (lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True), QKV),
    (lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(q.shape[0], k.shape[0]).tril(1).bool(), scale=0.3), QKV),
    (lambda x, t: functional.cross_entropy(x, t) + functional.cross_entropy(x, t, label_smoothing=0.1), {"x": "b l", "t": "b"}),
    (lambda x, t: functional.cross_entropy(x, t, weight=torch.arange(1.0, 9, dtype=torch.float64)) - functional.cross_entropy(x.T, x.T.softmax(1), label_smoothing=0.2),
     {"x": "b l", "t": "b"}),
    (lambda x, y: functional.huber_loss(x, y, delta=0.7) + functional.triplet_margin_loss(x, y, x * y) + functional.poisson_nll_loss(x, y), {"x": "b l", "y": "b l"}),
    (lambda x, y: functional.binary_cross_entropy_with_logits(x, y, pos_weight=torch.tensor(3.0)) - functional.logsigmoid(x).mean()
     + functional.gaussian_nll_loss(x, y, y * y + 1) + functional.margin_ranking_loss(x, y, torch.sign(y), margin=0.1), {"x": "b l", "y": "b l"}),
    (lambda x, y: functional.adaptive_avg_pool1d(x, 1).squeeze(-1) * functional.cosine_embedding_loss(x, y, torch.sign(y[:, 0])), {"x": "b l", "y": "b l"}),
    (lambda x, y: functional.cosine_similarity(x, y, dim=-1) + functional.mse_loss(x, y), {"x": "b l", "y": "b l"}),
    (lambda x: functional.normalize(x, dim=-1) + functional.silu(x) * torch.arange(x.shape[-1]), TABLE),
    (lambda x: torch.einsum("bl,bl->b", x, x).add_(1).clamp(min=2) - x.logsumexp(dim=1) + (2 - x.T.std(0)), TABLE),
    (lambda x: torch.logcumsumexp(x, -1).sum(1) * x.ndimension(), TABLE),
    (lambda x: torch.where(x > 0, x, 0.1 * x).flatten().norm() + x.unsqueeze(1).squeeze(1).prod(-1).sum(), TABLE),
]
SIZES = {"m": 5, "l": 8, "d": 6, "j": 3, "b": 4}


def drawn(axes, rng):
    shape = [SIZES[axis] for axis in axes.split()]
    return torch.tensor(rng.integers(0, 8, shape)) if axes == "b" else torch.tensor(rng.standard_normal(shape), dtype=torch.float64)


def listed(result):
    return list(result.values()) if isinstance(result, dict) else list(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.parametrize("function, axes", FUNCTIONS)
def test_an_operator_and_its_gradient_are_those_of_torch(function, axes, rng):
    operator, tensors = ra.from_torch(function, **axes), {name: drawn(own, rng) for name, own in axes.items()}
    if isinstance(function, torch.nn.Module):
        function.double()
    own = {path.replace(".", "_"): tensor for path, tensor in getattr(function, "named_parameters", list)()}
    given = tensors | {name: own[name] for name in operator.inputs if name in own}
    for tensor in given.values():
        tensor.requires_grad_(tensor.is_floating_point())
    wanted = listed(function(*tensors.values()))
    fused, arrays = ra.fuse(operator), {name: tensor.detach().numpy() for name, tensor in given.items()}
    for got, want in zip(listed(fused(**arrays)), wanted, strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), 1e-10, 1e-10)
    gradient, smooth = fused.gradient(), [want for want in wanted if want.is_floating_point()]
    cotangents = [torch.tensor(rng.standard_normal(want.shape)) for want in smooth]
    found = gradient(**arrays, **{name: each.numpy() for name, each in zip(gradient.cotangents, cotangents, strict=True)})
    expected = torch.autograd.grad(smooth, [given[name] for name in found], cotangents)
    for name, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(found[name], want.numpy(), 1e-8, 1e-8, err_msg=name)


def test_modules_by_example():
    operator = ra.from_torch(Block(), torch.zeros(4, 8))
    assert operator.name == "block" and [*operator.inputs] == ["x", "scale", "gate", "norm_weight", "norm_bias", "project_weight", "project_bias"]
    assert operator.inputs["norm_weight"] == operator.inputs["x"][1:] and operator.inputs["scale"] == ()


@pytest.mark.parametrize("function, failed", [
    (lambda x: torch.cummax(x, -1), "scan"), (lambda x: x.max() if x.sum() > 0 else x.min(), "known only when"),
    (lambda x: functional.dropout(x), "random"), (lambda x: torch.fft.fft(x), "no meaning"),
    (lambda x: x.view(2, 2, 8).sum(-1), "cuts an axis"), (lambda x: x.sum(7), "2 dimensions"),
])
def test_what_has_no_meaning_is_refused_with_its_line(function, failed):
    with pytest.raises(ra.OperatorError, match=failed) as raised:
        ra.from_torch(function, torch.zeros(4, 8))
    assert "test_torch_trace.py, line" in raised.value.excerpt


def test_what_is_no_function_is_refused():
    with pytest.raises(ra.OperatorError, match="neither a function nor a module"):
        ra.from_torch(3)


def test_without_torch_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ra.OperatorError, match="not installed"):
        ra.from_torch(lambda x: x, x="l")


def test_the_log_of_a_sum_of_exponentials_is_infinite_where_its_largest_element_is():
    fused = ra.fuse(ra.from_torch(lambda x: torch.logsumexp(x, -1), x="b l"))
    rows = torch.tensor([[-torch.inf, -torch.inf], [1.0, torch.inf], [0.0, 0.0], [torch.nan, 1.0]], dtype=torch.float64)
    np.testing.assert_allclose(fused(rows.numpy()), torch.logsumexp(rows, -1).numpy(), 1e-12)
