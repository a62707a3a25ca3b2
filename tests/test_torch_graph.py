"""Graphs of torch in parts: what is found in real blocks, that it runs in their place, and what is left to torch."""

import math

import numpy as np
import pytest
import redfuser_algebra as ra

torch = pytest.importorskip("torch")
functional, nn = torch.nn.functional, torch.nn


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def rotated(x):
    half = x.shape[-1] // 2
    turns = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = torch.cat([turns.cos()] * 2, -1), torch.cat([turns.sin()] * 2, -1)
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Decoder(nn.Module):
    """RMSNorm, RoPE, heads that share keys, a causal mask, SwiGLU."""

    def __init__(self, d=16, heads=4, groups=2, f=24):
        super().__init__()
        self.k, linear = d // heads, lambda a, b: nn.Linear(a, b, bias=False)
        self.before, self.between = nn.Parameter(torch.rand(d)), nn.Parameter(torch.rand(d))
        self.q, self.keys, self.values, self.out = linear(d, d), linear(d, groups * self.k), linear(d, groups * self.k), linear(d, d)
        self.gate, self.up, self.down = linear(d, f), linear(d, f), linear(f, d)

    def forward(self, x):
        b, n, _ = x.shape
        y = rms_norm(x, self.before)
        q, k, v = (project(y).view(b, n, -1, self.k).transpose(1, 2) for project in (self.q, self.keys, self.values))
        mixed = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, -1))
        y = rms_norm(x, self.between)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Vision(nn.Module):
    """Attention written out, with scores that no one else reads."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q * 8**-0.5 @ k.transpose(-2, -1)).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, n, c))


def masked(q, k, v):
    n = q.shape[-2]
    s = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    s = s.masked_fill(~torch.tril(torch.ones(n, n, dtype=torch.bool)), -math.inf)
    return torch.softmax(s, -1) @ v


def contrastive(a, b):
    scores = functional.normalize(a, dim=-1) @ functional.normalize(b, dim=-1).T / 0.07
    return functional.cross_entropy(scores, torch.arange(a.shape[0]))


def routed(x, w):
    shares = functional.linear(x, w).softmax(-1)
    values, places = torch.topk(shares, 2, dim=-1)
    return values / values.sum(-1, keepdim=True), places, shares.mean(0)


def autoencoded(x, y, mean, log_variance):
    return functional.mse_loss(x, y, reduction="sum") - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp(), -1).mean()


class Square(nn.Module):
    """A residual around a square layer: its axis is reduced and kept."""

    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return x + torch.tanh(self.a(self.norm(x)))


def gated(x, a):
    decay = torch.exp(torch.cumsum(functional.logsigmoid(a), 1))
    return (torch.cumsum(x / decay, 1) * decay).amax(1)


def around(x):
    """What is summed waits for the sort, and the sort for the statistics: no single part may hold both."""
    y = functional.layer_norm(x, x.shape[-1:])
    return (y * torch.sort(y, -1).values).sum(-1)


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


GRAPHS = {
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, norm_first=True, activation="gelu").eval(), [normal(2, 9, 16)],
                {"layer_norm_linear": "rank-R 3", "scaled_dot_product_attention": "rank-1", "layer_norm_linear_2": "rank-R 3"}),
    "decoder": (Decoder, [normal(2, 9, 16)], {"mean_linear": "rank-1", "scaled_dot_product_attention": "rank-1", "mean_linear_2": "rank-1"}),
    "vision": (Vision, [normal(2, 9, 16)], {"layer_norm_linear": "rank-R 3", "matmul_softmax": "rank-1"}),
    "masked": (lambda: masked, [normal(2, 3, 9, 8), normal(2, 3, 9, 8), normal(2, 3, 9, 5)], {"matmul_softmax": "rank-1"}),
    "contrastive": (lambda: contrastive, [normal(6, 8), normal(6, 8)], {"linalg_vector_norm_matmul": "rank-1", "cross_entropy_loss": "rank-1"}),
    "routed": (lambda: routed, [normal(7, 8), normal(5, 8)], {"softmax_topk": "rank-1"}),
    "autoencoded": (lambda: autoencoded, [normal(7, 8), normal(7, 8), normal(7, 3), normal(7, 3)], {}),
    "square": (Square, [normal(5, 8)], {"layer_norm_linear": "rank-R 3"}),
    "around": (lambda: around, [normal(5, 8)], {"layer_norm": "rank-R 3"}),
    "gated": (lambda: gated, [normal(2, 9, 3), normal(2, 9, 3)], None),
}


def longer(example, by=3):
    """The same kind of input, with other lengths where the graph leaves them open."""
    return torch.cat([example, example[..., :by, :] * 0.5], -2)


@pytest.mark.parametrize("name", GRAPHS)
def test_fused_parts_compute_what_torch_does(name):
    make, inputs, expected = GRAPHS[name]
    torch.manual_seed(0)
    graph = ra.from_torch(make(), *inputs, parts=True)
    if expected is not None:
        assert {part.name: part.verdict.reason for part in graph.parts} == expected
    for given in (inputs, [longer(each) for each in inputs] if name in ("encoder", "decoder", "vision", "masked") else inputs):
        differences = graph.compare(*given)
        assert {*differences} == {part.name for part in graph.parts if part.fused} | {"whole"}
        assert all(relative < 2e-6 for _, relative in differences.values()), differences


def test_a_graph_shows_its_parts_and_why_the_rest_is_left():
    graph = ra.from_torch(Vision().eval(), normal(2, 9, 16))
    for text in (str(graph), graph._repr_html_()):
        for said in ("matmul_softmax", "fusable (rank-1)", "test_torch_graph.py, line", "arrays are joined or cut", "one reduction"):
            assert said in text
    part = graph.parts[1]
    assert part.operator.inputs and part.fused.form.axis == "l" and "softmax" in part.nodes


def test_one_operator_stays_an_operator_and_parts_can_be_asked_for():
    module, example = Square(), normal(5, 8)
    assert isinstance(ra.from_torch(contrastive, normal(6, 8), normal(6, 8)), ra.Operator)
    assert isinstance(ra.from_torch(module, example, parts=True), ra.TorchGraph)
    with pytest.raises(ra.OperatorError):
        ra.from_torch(Vision(), normal(2, 9, 16), parts=False)


def test_what_cannot_be_exported_is_refused_with_its_line():
    with pytest.raises(ra.OperatorError, match="torch.export refuses it") as raised:
        ra.from_torch(lambda x: x.max() if x.sum() > 0 else x.min(), normal(4, 8), parts=True)
    assert "test_torch_graph.py, line" in raised.value.excerpt


def test_inputs_of_other_lengths_than_the_graph_holds_for_are_refused():
    graph = ra.from_torch(Vision().eval(), normal(2, 9, 16))
    with pytest.raises(ra.OperatorError, match="the graph holds for"):
        graph.run(normal(2, 9, 8))
    with pytest.raises(ra.OperatorError, match="as its examples were"):
        graph.run(normal(2, 9, 16), normal(2, 9, 16))


def test_bfloat16_comes_and_goes():
    graph = ra.from_torch(masked, *[normal(1, 2, 4, 8).bfloat16() for _ in range(3)], parts=True)
    got = graph.run(*[normal(1, 2, 4, 8).bfloat16() for _ in range(3)])
    assert got.dtype is torch.bfloat16 and bool(np.isfinite(got.float().numpy()).all())
