"""Batches: rows that are shared, logits that are not made, memory that is not there."""

import numpy as np
import pytest
import torch

from dares.evals.scoring import Passage, Scorer
from tests.models.families import VOCABULARY, tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama").double()


def passages(count=9, seed=0):
    random = np.random.default_rng(seed)
    return [
        Passage(random.integers(3, VOCABULARY, 4 + 3 * number), 1 + number % 3)
        for number in range(count)
    ]


class Watched(torch.nn.Module):
    """A model that keeps what it was called with, and refuses what is too large."""

    def __init__(self, model, most=10**9, error=None):
        super().__init__()
        self.inner, self.most, self.calls = model, most, []
        self.error = error or torch.OutOfMemoryError("CUDA out of memory")
        self.device = model.device

    def forward(self, input_ids, use_cache=None, logits_to_keep=0):
        if input_ids.numel() > self.most:
            raise self.error
        self.calls.append((tuple(input_ids.shape), len(logits_to_keep)))
        return self.inner(input_ids, use_cache=use_cache, logits_to_keep=logits_to_keep)


def assert_same(scores, expected):
    for one, other in zip(scores, expected, strict=True):
        assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-12)
        assert (one.likeliest == other.likeliest).all()


def test_answers_come_in_the_order_of_the_requests(model):
    asked = passages()
    alone = [Scorer(model).score([passage])[0] for passage in asked]
    assert_same(Scorer(model, rows=4).score(asked), alone)


def test_a_family_without_logits_to_keep(model):
    class Plain(torch.nn.Module):
        device = model.device

        def forward(self, input_ids, use_cache=None):
            return model(input_ids)

    assert_same(Scorer(Plain()).score(passages()), Scorer(model).score(passages()))


def test_choices_of_one_token_share_a_row(model):
    watched = Watched(model)
    context = np.arange(3, 15)
    asked = [Passage(np.append(context, choice), 1) for choice in (20, 21, 22, 23)]
    scores = Scorer(watched).score(asked)
    assert watched.calls == [((1, 12), 1)]
    logits = model(torch.tensor(context)[None]).logits[0, -1].log_softmax(-1)
    assert [s.log_probabilities[0] for s in scores] == pytest.approx(logits[20:24].tolist())


def test_a_shared_row_is_scored_as_far_back_as_anyone_asks(model):
    ids = np.arange(3, 15)
    asked = [Passage(np.append(ids, 20), 4), Passage(np.append(ids, 21), 1)]
    alone = [Scorer(model).score([passage])[0] for passage in asked]
    assert_same(Scorer(model).score(asked), alone)


def test_likeliest_is_the_argmax(model):
    context = torch.arange(3, 15)
    best = model(context[None]).logits[0, -1].argmax().item()
    right, wrong = Scorer(model).score(
        [Passage(np.append(context.numpy(), token), 1) for token in (best, (best + 1) % 90)]
    )
    assert right.likeliest.all()
    assert not wrong.likeliest.any()


def test_logits_only_where_needed(model):
    watched = Watched(model)
    Scorer(watched).score([Passage(np.arange(3, 43), 2)])
    assert watched.calls == [((1, 39), 2)]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_batches_are_halved_until_they_fit(model, error):
    watched = Watched(model, most=60, error=error)
    asked = passages()
    assert_same(Scorer(watched).score(asked), Scorer(model).score(asked))
    assert max(rows for (rows, _), _ in watched.calls) > 1


def test_what_never_fits_is_told(model):
    asked = passages()
    with pytest.raises(ValueError, match="not even a batch of 1 rows of 27 tokens fits"):
        Scorer(Watched(model, most=20)).score(asked)
    with pytest.raises(ValueError, match="a batch of 4 rows of 27 tokens .* use --batch auto"):
        Scorer(Watched(model, most=60), rows=4).score(asked)


def test_other_errors_are_not_taken_for_memory(model):
    with pytest.raises(RuntimeError, match="shapes"):
        Scorer(Watched(model, most=1, error=RuntimeError("shapes differ"))).score(passages())
