"""Hyper-Connections and their constrained kind: the start, the equations, the mixing matrix."""

import pytest
import torch

import dares
from dares.schemes.sinkhorn import sinkhorn
from tests.schemes.passes import branches, jolt, run, standard

WIDTH, SITES = 6, 6
NAMES = ["hyper", "mhc"]


def build(name, dtype=torch.float64, **changes):
    return dares.build_scheme(dares.preset(name, **changes), width=WIDTH, sites=SITES).to(dtype)


def embeddings():
    torch.manual_seed(2)
    return torch.randn(2, 3, WIDTH).double()


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("streams", [1, 2, 3, 4])
def test_hyper_starts_as_the_residual_to_the_last_bit(streams, dynamic):
    ours = build("hyper", torch.float32, streams=streams, dynamic=dynamic)
    start, matrices = embeddings().float(), branches(SITES, WIDTH, dtype=torch.float32)
    assert torch.equal(run(ours, start, matrices), standard(start, matrices))
    assert ours.identity_obstacle() is None
    assert jolt(ours).identity_obstacle() is not None


@pytest.mark.parametrize("streams", [2, 3, 4])
def test_mhc_starts_as_the_residual(streams):
    ours, start, matrices = build("mhc", streams=streams), embeddings(), branches(SITES, WIDTH)
    assert torch.allclose(run(ours, start, matrices), standard(start, matrices), atol=1e-6)
    assert ours.identity_obstacle() is None
    assert jolt(ours).identity_obstacle() is not None


def hyper_written_out(ours, start, matrices):
    n = ours.streams
    streams = start.unsqueeze(-2).repeat_interleave(n, -2)
    for site, matrix in enumerate(matrices):
        normed = streams / (streams.pow(2).mean(-1, keepdim=True) + ours.config.eps).sqrt()
        own = torch.tanh(normed @ ours.projection[site])  # [..., n, n + 2]
        m = ours.weights[site, :, 0] + ours.scale[site, 0] * own[..., 0]
        mixing = ours.weights[site, :, 1:-1] + ours.scale[site, 0] * own[..., 1:-1]
        b = ours.weights[site, :, -1] + ours.scale[site, 1] * own[..., -1]
        y = torch.tanh(torch.einsum("...n,...nd->...d", m, streams) @ matrix)
        streams = torch.einsum("...nm,...nd->...md", mixing, streams) + torch.einsum(
            "...n,...d->...nd", b, y
        )
    return streams.mean(-2)


def mhc_written_out(ours, start, matrices):
    n = ours.streams
    streams = start.unsqueeze(-2).repeat_interleave(n, -2)
    for site, matrix in enumerate(matrices):
        x = streams.flatten(-2)
        x = x / (x.pow(2).mean(-1, keepdim=True) + ours.config.eps).sqrt()
        z = x @ ours.projection[site]
        read, write, mix = ours.scale[site]
        m = torch.sigmoid(read * z[..., :n] + ours.bias[site, :n])
        b = 2 * torch.sigmoid(write * z[..., n : 2 * n] + ours.bias[site, n : 2 * n])
        mixing = torch.exp((mix * z[..., 2 * n :] + ours.bias[site, 2 * n :]).unflatten(-1, (n, n)))
        for _ in range(ours.config.sinkhorn_steps):
            mixing = mixing / mixing.sum(-1, keepdim=True)
            mixing = mixing / mixing.sum(-2, keepdim=True)
        y = torch.tanh(torch.einsum("...n,...nd->...d", m, streams) @ matrix)
        streams = mixing @ streams + torch.einsum("...n,...d->...nd", b, y)
    return streams.mean(-2)


@pytest.mark.parametrize("streams", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_equals_the_equations(name, streams):
    ours = jolt(build(name, streams=streams))
    start = embeddings().requires_grad_()
    matrices = branches(SITES, WIDTH).requires_grad_()
    pull = torch.randn(2, 3, WIDTH).double()
    written_out = {"hyper": hyper_written_out, "mhc": mhc_written_out}[name]
    leaves = [start, matrices, *ours.parameters()]
    outputs = [run(ours, start, matrices), written_out(ours, start, matrices)]
    assert torch.allclose(*outputs, atol=1e-9)
    for mine, theirs in zip(
        *(torch.autograd.grad(output, leaves, pull) for output in outputs), strict=True
    ):
        assert torch.allclose(mine, theirs, atol=1e-9)


def test_permuted_streams_permute_the_state():
    one, other = jolt(build("hyper")), build("hyper")
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        other.load_state_dict(one.state_dict())
        n = one.streams
        columns = torch.cat([torch.tensor([0]), 1 + order, torch.tensor([n + 1])])
        other.weights.copy_(one.weights[:, order][:, :, columns])
        other.projection.copy_(one.projection[:, :, columns])
    states = []
    for scheme in (one, other):
        state = scheme.start(embeddings())
        for site, matrix in enumerate(branches(SITES, WIDTH)):
            scheme.write(state, site, torch.tanh(scheme.read(state, site) @ matrix))
        states.append(state.streams)
    assert torch.allclose(states[0][..., order, :], states[1], atol=1e-9)


def test_mixing_matrices_are_doubly_stochastic():
    ours = jolt(build("mhc"), size=0.5)
    torch.nn.init.constant_(ours.scale, 0.05)
    _, _, matrix = ours.weights(torch.randn(50, 4, WIDTH).double(), 3)
    ones = torch.ones(50, 4, dtype=torch.float64)
    assert (matrix >= 0).all()
    assert torch.allclose(matrix.sum(-1), ones, atol=1e-4)
    assert torch.allclose(matrix.sum(-2), ones, atol=1e-4)
    assert (torch.linalg.matrix_norm(matrix, 2) <= 1 + 1e-4).all()


def test_gradients_through_sinkhorn():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: sinkhorn(z, 20), (logits,))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_hook_adds_reaches_every_stream(name):
    ours = build(name)
    state = ours.start(embeddings())
    changed = state.stream + 1
    ours.resume(state, changed)
    assert torch.equal(state.stream, changed)
    assert torch.allclose(state.streams, changed.unsqueeze(-2).expand(2, 3, 4, WIDTH))


def test_one_stream_has_nothing_to_mix():
    with pytest.raises(ValueError, match="streams must be a whole number, at least 2, got 1"):
        dares.preset("mhc", streams=1)
