"""Deep Delta Learning: what the gate does, and the equations written out."""

import math

import pytest
import torch

import dares
from tests.schemes.passes import branches, jolt, run

WIDTH, SITES = 6, 4


def scheme(**changes):
    config = dares.preset("ddl", **changes)
    return dares.build_scheme(config, width=WIDTH, sites=SITES).double()


def one_write(gate: float, *, erase: bool = True, value: float = 0.7):
    """One site with a given beta and v, whatever it reads; returns before, k and after."""
    ours = scheme(erase=erase)
    torch.manual_seed(0)
    before, delta = torch.randn(WIDTH).double(), torch.randn(WIDTH).double()
    with torch.no_grad():
        ours.projection.zero_()
        ours.gate.fill_(math.log(gate / (2 - gate)) if 0 < gate < 2 else 40.0 * (gate - 1))
        # v is linear in c: choose the row along c that gives the value
        c = before / before.square().mean().sqrt()
        ours.projection[0, :, 1] = value * c / c.square().sum()
    state = ours.start(before)
    ours.read(state, 0)
    ours.write(state, 0, delta)
    return before, delta / delta.norm(), state.stream.detach()


@pytest.mark.parametrize("gate", [0.3, 1.0, 1.7])
def test_along_the_direction_the_state_goes_from_its_value_to_v(gate):
    before, k, after = one_write(gate)
    assert torch.allclose(k @ after, (1 - gate) * (k @ before) + gate * 0.7, atol=1e-5)
    across = torch.eye(WIDTH, dtype=torch.float64) - torch.outer(k, k)
    assert torch.allclose(across @ after, across @ before, atol=1e-5)


def test_gate_zero_keeps_one_overwrites_two_reflects():
    before, _, after = one_write(0.0)
    assert torch.equal(after, before)
    _, k, after = one_write(1.0)
    assert (k @ after).item() == pytest.approx(0.7, abs=1e-5)
    before, k, after = one_write(2.0, value=0.0)
    assert torch.allclose(after, before - 2 * k * (k @ before), atol=1e-5)


@pytest.mark.parametrize("gate", [0.3, 1.0, 1.7])
def test_eigenvalues_of_the_update(gate):
    """With v = 0 the update is the matrix I - beta k k^T: eigenvalues 1 and 1 - beta."""
    ours = scheme()
    with torch.no_grad():
        ours.projection.zero_()
        ours.gate.fill_(math.log(gate / (2 - gate)))
    torch.manual_seed(0)
    delta = torch.randn(WIDTH).double()
    state = ours.start(torch.eye(WIDTH).double())
    ours.read(state, 0)
    ours.write(state, 0, delta.expand(WIDTH, WIDTH))
    values = torch.linalg.eigvalsh(state.stream.detach())
    expected = torch.tensor([1 - gate] + [1.0] * (WIDTH - 1)).double().sort().values
    assert torch.allclose(values, expected, atol=1e-5)


def written_out(ours, embeddings, matrices, *, columns: int, erase: bool):
    """The paper's equations, one line each; X is [..., D, d_v] here."""
    eps = ours.config.eps
    columns_now = embeddings.unsqueeze(-1).repeat_interleave(columns, -1)
    for site, matrix in enumerate(matrices):
        x = columns_now[..., 0] if columns == 1 else (columns_now * ours.columns[site]).sum(-1)
        y = torch.tanh(x @ matrix)
        c = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
        beta = 2 / (1 + torch.exp(-(c @ ours.projection[site, :, 0] + ours.gate[site])))
        v = c @ ours.projection[site, :, 1:]
        k = y / (y.pow(2).sum(-1, keepdim=True) + eps**2).sqrt()
        wanted = v
        if erase:
            wanted = v - torch.einsum("...d,...dv->...v", k, columns_now)
        columns_now = columns_now + beta[..., None, None] * k.unsqueeze(-1) * wanted.unsqueeze(-2)
    return columns_now[..., 0] if columns == 1 else (columns_now * ours.columns[-1]).sum(-1)


@pytest.mark.parametrize("erase", [True, False])
@pytest.mark.parametrize("columns", [1, 4])
def test_equals_the_equations(columns, erase):
    ours = jolt(scheme(columns=columns, erase=erase))
    torch.manual_seed(2)
    embeddings = torch.randn(2, 3, WIDTH).double().requires_grad_()
    matrices = branches(SITES, WIDTH).requires_grad_()
    pull = torch.randn(2, 3, WIDTH).double()
    leaves = [embeddings, matrices, *ours.parameters()]
    outputs = [
        run(ours, embeddings, matrices),
        written_out(ours, embeddings, matrices, columns=columns, erase=erase),
    ]
    assert torch.allclose(*outputs, atol=1e-9)
    for mine, theirs in zip(
        *(torch.autograd.grad(output, leaves, pull) for output in outputs), strict=True
    ):
        assert torch.allclose(mine, theirs, atol=1e-9)


def test_conversion_is_refused_with_the_reason():
    assert "never adds it" in scheme().identity_obstacle()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": 0}, "columns must be a whole number, at least 1, got 0"),
        ({"gate_start": 2.0}, "gate_start must be between 0 and 2, got 2.0"),
        ({"erase": 1}, "erase must be true or false, got 1"),
    ],
)
def test_bad_options(changes, message):
    with pytest.raises(ValueError, match=message):
        dares.preset("ddl", **changes)
