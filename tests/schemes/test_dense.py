"""DenseFormer: the identity at the start, which layers are read, and the equations."""

import pytest
import torch

import dares
from tests.schemes.passes import branches, jolt, run, standard

WIDTH, LAYERS = 5, 6


def build(dtype=torch.float64, **changes):
    config = dares.preset("dense", **changes)
    return dares.build_scheme(config, width=WIDTH, sites=2 * LAYERS).to(dtype)


def embeddings(dtype=torch.float64):
    torch.manual_seed(2)
    return torch.randn(2, 3, WIDTH, dtype=dtype)


def test_starts_as_the_residual_to_the_last_bit():
    ours, start = build(torch.float32), embeddings(torch.float32)
    matrices = branches(2 * LAYERS, WIDTH, dtype=torch.float32)
    assert torch.equal(run(ours, start, matrices), standard(start, matrices))
    assert ours.identity_obstacle() is None
    assert "have been trained" in jolt(ours).identity_obstacle()


def test_dilation_and_period_name_the_layers_that_are_read():
    assert build().read_layers[3] == [3, 2, 1, 0]
    ours = build(dilation=2, period=3)
    assert ours.read_layers == {3: [3, 1], 6: [6, 4, 2, 0]}
    assert ours.alpha.numel() == 6


def written_out(ours, start, matrices, dilation, period):
    outputs, y, at = [start], start, 0
    for layer in range(1, LAYERS + 1):
        for matrix in matrices[2 * layer - 2 : 2 * layer]:
            y = y + torch.tanh(y @ matrix)
        outputs.append(y)
        if layer % period == 0:
            y = 0
            for j in range(layer, -1, -dilation):
                y = y + ours.alpha[at] * outputs[j]
                at += 1
    return y


@pytest.mark.parametrize(("dilation", "period"), [(1, 1), (2, 1), (1, 4), (3, 2)])
def test_equals_the_equations(dilation, period):
    ours = jolt(build(dilation=dilation, period=period))
    start = embeddings().requires_grad_()
    matrices = branches(2 * LAYERS, WIDTH).requires_grad_()
    pull = torch.randn(2, 3, WIDTH).double()
    leaves = [start, matrices, *ours.parameters()]
    outputs = [
        run(ours, start, matrices),
        written_out(ours, start, matrices, dilation, period),
    ]
    assert torch.allclose(*outputs, atol=1e-9)
    for mine, theirs in zip(
        *(torch.autograd.grad(output, leaves, pull) for output in outputs), strict=True
    ):
        assert torch.allclose(mine, theirs, atol=1e-9)


def test_a_period_longer_than_the_model():
    with pytest.raises(ValueError, match="period must be between 1 and 6 .* got 7"):
        build(period=7)
