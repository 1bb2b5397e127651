"""Every scheme trains: 200 steps of `tiny`, and its loss falls as far as the standard model's."""

import dataclasses
import functools

import pytest

from dares.data.loader import Loader
from dares.train.engine import Engine
from dares.train.loop import prepare_data
from dares.train.parallel import joined
from dares.train.recipes import SCHEMES, recipe

STEPS = 200


@functools.cache
def fall(scheme: str) -> float:
    """How far the training loss falls from the first step to the mean of the last ten."""
    made = recipe(f"tiny-{scheme}")
    made = dataclasses.replace(made, run=dataclasses.replace(made.run, steps=STEPS))
    with joined(None) as ranks:
        rows = prepare_data(made).train
        loader = Loader(rows, rows_per_step=made.batch.rows, seed=0, rank=0, world=1)
        engine = Engine(made, ranks)
        losses = [engine.step(loader, step).loss for step in range(STEPS)]
    return losses[0] - sum(losses[-10:]) / 10


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "standard"])
def test_falls_as_far_as_standard(scheme):
    assert fall(scheme) > 0.9 * fall("standard")
