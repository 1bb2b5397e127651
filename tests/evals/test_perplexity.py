"""Perplexity against brute force: each token's log-probability by a forward of its own."""

import math

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from dares.evals import texts
from dares.evals.perplexity import choose_window, measure, start_token, windows
from dares.evals.scoring import Passage, Scorer
from dares.evals.texts import Document, Text, piece_ends
from tests.evals.models import tiny_subject, tiny_tokenizer
from tests.models.families import tiny_config

TEXT = "a layer reads the delta of an earlier site, naïvely; 深 is three bytes. " * 3


@pytest.fixture(scope="module")
def subject():
    torch.manual_seed(0)
    config = tiny_config("llama", vocab_size=300, max_position_embeddings=512)
    model = LlamaForCausalLM(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return tiny_subject(model, positions=512)


def as_text(*documents, name="t"):
    return Text(name, tuple(Document(text, piece_ends(text)) for text in documents))


def ids_of(subject, text):
    return [start_token(subject), *tiny_tokenizer().encode([text])[0]]


def first_in_view(token, tokens, window, stride):
    """Where the context of a token begins: written out, not generated."""
    if token <= window:
        return 0
    block = (token - window - 1) // stride
    last_of_block = min(window + (block + 1) * stride, tokens - 1)
    return last_of_block - window


def brute_force(subject, ids, window, stride):
    nats = []
    for token in range(1, len(ids)):
        begin = first_in_view(token, len(ids), window, stride)
        assert token - begin <= window
        with torch.no_grad():
            logits = subject.model(torch.tensor([ids[begin:token]])).logits[0, -1]
        nats.append(-logits.log_softmax(-1)[ids[token]].item())
    return nats


@pytest.mark.parametrize(
    ("window", "stride"), [(512, 256), (16, 1), (16, 16), (16, 5), (16, 8), (7, 3), (1, 1)]
)
def test_sum_is_brute_force(subject, window, stride):
    ids = ids_of(subject, TEXT)
    expected = brute_force(subject, ids, window, stride)
    found = measure(
        subject, as_text(TEXT), window=window, stride=stride, scorer=Scorer(subject.model)
    )
    assert found["tokens"] == len(ids) - 1 == len(expected)
    assert found["bytes"] == len(TEXT.encode())
    assert found["nats"] == pytest.approx(sum(expected), rel=1e-12)
    assert found["perplexity"] == pytest.approx(math.exp(sum(expected) / len(expected)), rel=1e-12)
    bits = sum(expected) / math.log(2) / len(TEXT.encode())
    assert found["bits_per_byte"] == pytest.approx(bits, rel=1e-12)


def test_each_score_is_brute_force(subject):
    ids = ids_of(subject, TEXT)
    (score,) = Scorer(subject.model).score([Passage(np.array(ids), len(ids) - 1)])
    expected = brute_force(subject, ids, 512, 512)
    assert -score.log_probabilities == pytest.approx(np.array(expected), abs=1e-11)


@pytest.mark.parametrize("rows", [1, 8, None])
def test_batches_do_not_matter(subject, rows):
    documents = [TEXT[: 5 + 11 * number] for number in range(12)]
    alone = [
        measure(subject, as_text(text), window=16, stride=4, scorer=Scorer(subject.model, 1))
        for text in documents
    ]
    together = measure(
        subject, as_text(*documents), window=16, stride=4, scorer=Scorer(subject.model, rows)
    )
    for one, other in zip(alone, together["documents"], strict=True):
        assert one["nats"] == pytest.approx(other["nats"], rel=1e-12)
        assert one["tokens"] == other["tokens"]


def test_a_text_of_one_token(subject):
    found = measure(subject, as_text("a"), window=8, stride=4, scorer=Scorer(subject.model))
    assert found["tokens"] == 1
    assert found["nats"] == pytest.approx(brute_force(subject, ids_of(subject, "a"), 8, 4)[0])


def test_without_a_start_token_the_first_is_not_predicted():
    tokenizer = tiny_tokenizer()
    tokenizer._tokenizer.eos_token = None
    model = LlamaForCausalLM(tiny_config("llama", vocab_size=300)).double().eval()
    subject = tiny_subject(model, tokenizer)
    scorer = Scorer(model)
    found = measure(subject, as_text(TEXT, "a"), window=16, stride=16, scorer=scorer)
    ids = tokenizer.encode([TEXT])[0]
    assert [each["tokens"] for each in found["documents"]] == [len(ids) - 1, 0]
    assert found["nats"] == pytest.approx(sum(brute_force(subject, ids, 16, 16)), rel=1e-12)
    assert found["bits_per_byte"] is None
    with pytest.raises(ValueError, match="t has no token to predict: give a longer text"):
        measure(subject, as_text("a"), window=16, stride=16, scorer=scorer)


def test_a_special_token_in_the_text_is_text(subject):
    found = measure(
        subject, as_text("<|endoftext|>"), window=16, stride=16, scorer=Scorer(subject.model)
    )
    assert found["tokens"] > 1


@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9, 30])
@pytest.mark.parametrize(("window", "stride"), [(1, 1), (8, 1), (8, 3), (8, 8)])
def test_windows_predict_every_token_once(tokens, window, stride):
    predicted = []
    for place in windows(tokens, window, stride):
        assert place.end - place.begin - 1 <= window
        assert place.begin >= 0
        predicted += range(place.end - place.predicted, place.end)
    assert predicted == list(range(1, tokens))


def test_window_and_stride():
    assert choose_window(8192, None, None) == (2048, 1024)
    assert choose_window(64, None, None) == (64, 32)
    assert choose_window(64, 1, None) == (1, 1)
    with pytest.raises(ValueError, match=r"between 1 and 64 \(the model's positions\), got 65"):
        choose_window(64, 65, None)
    with pytest.raises(ValueError, match="stride must be between 1 and 16 .*, got 17"):
        choose_window(64, 16, 17)
    with pytest.raises(ValueError, match="stride must be between 1 and 16 .*, got 0"):
        choose_window(64, 16, 0)


def test_pieces_make_up_the_document(subject, monkeypatch):
    monkeypatch.setattr(texts, "PIECE", 20)
    text = "".join(f"line {number} says ü\n" for number in range(30)) + "x" * 90
    ends = piece_ends(text)
    assert ends[-1] == len(text)
    assert len(ends) > 10
    lines_end = [text[end - 1] == "\n" for end in ends]
    assert all(lines_end[:8])
    assert all(size <= 40 for size in np.diff((0, *ends)))
    document = Document(text, ends)
    found = measure(
        subject, Text("t", (document,)), window=16, stride=8, scorer=Scorer(subject.model)
    )
    (sums,) = found["documents"]
    columns = list(zip(*sums["pieces"], strict=True))
    assert [sum(columns[0]), sum(columns[1])] == [sums["bytes"], sums["tokens"]]
    assert sum(columns[2]) == pytest.approx(sums["nats"])
    assert columns[0][0] == len(text[: ends[0]].encode())
    assert columns[1][0] == len(tiny_tokenizer().encode([text[: ends[0]]])[0])


def test_short_text_is_one_piece():
    assert piece_ends("a\nb") == (3,)
    assert piece_ends("") == ()


def test_progress_reaches_the_end(subject):
    seen = []
    measure(
        subject,
        as_text(TEXT, TEXT),
        window=16,
        stride=8,
        scorer=Scorer(subject.model),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_weights_that_are_not_numbers_are_told():
    model = LlamaForCausalLM(tiny_config("llama", vocab_size=300)).eval()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="probabilities that are not numbers"):
        measure(tiny_subject(model), as_text(TEXT), window=16, stride=8, scorer=Scorer(model))
