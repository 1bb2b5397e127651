"""Who decays, who has a rate of its own, and the rate of every step."""

import dataclasses

import pytest
import torch

from dares.train.optim import build_optimizer, schedule, set_learning_rate
from dares.train.recipe import OptimSettings, build_model
from dares.train.recipes import recipe

SETTINGS = OptimSettings(lr=1e-2, router_lr=5e-2, weight_decay=0.3, warmup=2, final_lr=0.2)


def groups_by_parameter(model, settings):
    optimizer = build_optimizer(model, settings)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return optimizer, {
        names[id(parameter)]: group
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


@pytest.fixture
def model():
    tiny = recipe("tiny")
    small = dataclasses.replace(tiny.model, width=16, layers=2, mlp=16, vocabulary=300)
    data = dataclasses.replace(tiny.data, vocabulary=300)
    return build_model(dataclasses.replace(tiny, model=small, data=data))


def test_groups(model):
    _, groups = groups_by_parameter(model, SETTINGS)
    parameters = dict(model.named_parameters())
    assert groups.keys() == parameters.keys()
    for name, group in groups.items():
        router, matrix = ".depth." in name, parameters[name].ndim > 1
        assert group["peak"] == (5e-2 if router else 1e-2), name
        assert group["weight_decay"] == (0.3 if matrix and not router else 0.0), name


def test_routers_follow_the_others_unless_told(model):
    _, groups = groups_by_parameter(model, dataclasses.replace(SETTINGS, router_lr=None))
    assert {group["peak"] for group in groups.values()} == {1e-2}


def test_first_step_is_that_of_a_plain_adamw(model):
    """The state made at once, for exact resume, is the one that a first step would make."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer, groups = groups_by_parameter(model, SETTINGS)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=0, atol=0)
        parameter.grad = torch.randn_like(parameter)
    set_learning_rate(optimizer, 5, 10, SETTINGS)
    optimizer.step()
    for name, parameter in model.named_parameters():
        own = before[name].clone().requires_grad_()
        own.grad = parameter.grad
        group = groups[name]
        plain = torch.optim.AdamW(
            [own], lr=group["lr"], betas=SETTINGS.betas, weight_decay=group["weight_decay"]
        )
        plain.step()
        torch.testing.assert_close(parameter.detach(), own.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("step", "share"),
    [(0, 0.5), (1, 1.0), (2, 1.0), (6, 0.6), (10, 0.2), (11, 0.2)],
)
def test_schedule(step, share):
    """Two steps up, then half a cosine over steps 2 ... 10, its middle at 6, from 1 to 0.2."""
    assert schedule(step, 11, SETTINGS) == pytest.approx(share)


def test_schedule_without_warmup_and_of_one_step():
    settings = dataclasses.replace(SETTINGS, warmup=0)
    assert schedule(0, 1, settings) == 1.0
    assert schedule(0, 2, settings) == 1.0
    assert schedule(1, 2, settings) == pytest.approx(0.2)
