"""(seed, step) says everything, and ranks and parts together are the single process."""

import numpy as np
import pytest
import torch

from dares.data.loader import Loader, batch_of
from dares.data.prepare import prepare
from tests.data.texts import stories, write_jsonl


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loader")
    source = write_jsonl(folder / "a.jsonl", stories(150))
    options = {"vocabulary": 300, "row_tokens": 48, "validation": 0.1, "cache": folder}
    rows = prepare(source, **options).train
    assert len(rows) % 12  # an awkward size: epochs end inside a step
    assert rows.lengths[-1] < 48
    return rows


def test_an_epoch_has_every_row_once(rows):
    loader = Loader(rows, rows_per_step=12, seed=3)
    size = len(rows)
    places = np.concatenate([loader.indices(step) for step in range(3 * size // 12 + 1)])
    epochs = [places[n * size : (n + 1) * size].tolist() for n in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(size))
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != list(range(size))


@pytest.mark.parametrize(("world", "parts"), [(1, 1), (2, 1), (1, 4), (3, 2), (4, 3), (12, 1)])
def test_ranks_and_parts_joined_are_the_single_process(rows, world, parts):
    whole = Loader(rows, rows_per_step=12, seed=7)
    ranks = [
        Loader(rows, rows_per_step=12, seed=7, rank=rank, world=world) for rank in range(world)
    ]
    for step in (0, 1, len(rows) // 12, 5000):
        pieces = [rank.batch(step, part, parts) for rank in ranks for part in range(parts)]
        for name, expected in whole.batch(step).items():
            assert len(pieces[0][name]) == 12 // world // parts
            assert torch.equal(torch.cat([piece[name] for piece in pieces]), expected)


def test_a_step_larger_than_an_epoch(rows):
    size = len(rows)
    found = Loader(rows, rows_per_step=2 * size + 5, seed=0).indices(0)
    assert np.bincount(found, minlength=size).min() == 2
    assert len(found) == 2 * size + 5
    small = Loader(rows, rows_per_step=1, seed=0)
    assert found.tolist() == [int(small.indices(step)[0]) for step in range(2 * size + 5)]


def test_only_seed_and_step_matter(rows):
    def batch(seed, step):
        return Loader(rows, rows_per_step=6, seed=seed).batch(step)["input_ids"]

    loader = Loader(rows, rows_per_step=6, seed=5)
    for step in (9, 400, 2, 9, 10_000):  # back and forth over epochs
        torch.manual_seed(step)
        np.random.seed(step)
        assert torch.equal(loader.batch(step)["input_ids"], batch(5, step))
    assert not torch.equal(batch(5, 9), batch(6, 9))
    assert not torch.equal(batch(5, 9), batch(5, 10))


def test_the_order_is_the_same_on_every_machine_and_version():
    class Ten:
        def __len__(self):
            return 10

    # written down: a change would make resumed runs see other rows
    assert Loader(Ten(), rows_per_step=10, seed=1).indices(0).tolist() == [
        9,
        2,
        4,
        7,
        5,
        0,
        8,
        6,
        3,
        1,
    ]
    assert Loader(Ten(), rows_per_step=10, seed=1).indices(7).tolist() == [
        7,
        9,
        5,
        3,
        0,
        6,
        1,
        2,
        8,
        4,
    ]


def test_padding_has_no_label(rows):
    last = len(rows) - 1
    batch = batch_of(rows, [0, last])
    assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 48)
    length = int(rows.lengths[last])
    assert torch.equal(batch["labels"][0], batch["input_ids"][0])
    assert torch.equal(batch["labels"][1, :length], batch["input_ids"][1, :length])
    assert (batch["labels"][1, length:] == -100).all()
    assert (batch["input_ids"] >= 0).all()


def test_wrong_numbers(rows):
    with pytest.raises(ValueError, match="rows_per_step must be a multiple of the 5 ranks, got 12"):
        Loader(rows, rows_per_step=12, seed=0, world=5)
    with pytest.raises(ValueError, match="rank must be between 0 and 1, got 2"):
        Loader(rows, rows_per_step=12, seed=0, rank=2, world=2)
    with pytest.raises(ValueError, match="seed must not be negative, got -1"):
        Loader(rows, rows_per_step=12, seed=-1)
    loader = Loader(rows, rows_per_step=12, seed=0, world=2)
    with pytest.raises(ValueError, match="the 6 rows of a rank cannot be cut into 4 equal parts"):
        loader.batch(0, 0, 4)
    with pytest.raises(ValueError, match="part must be between 0 and 1, got 2"):
        loader.batch(0, 2, 2)
    with pytest.raises(ValueError, match="step must not be negative, got -3"):
        loader.batch(-3)
    with pytest.raises(IndexError, match="row -1 of"):
        rows.row(-1)
