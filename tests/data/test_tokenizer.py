"""Trained or loaded: nothing added, cut or unknown, and an EOS that only documents' ends have."""

import random

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from dares.data.tokenizer import EOS, load_tokenizer, train_tokenizer
from tests.data.texts import stories, word_tokenizer


@pytest.fixture(scope="module")
def trained():
    return train_tokenizer(stories(200), 400)


def test_any_text_comes_back(trained, tmp_path):
    trained.save(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    odd = random.Random(0)
    texts = [
        "plain words",
        "  leading, trailing \n\t ",
        "größer 🙂 \x00\x7f \r\n",
        f"a text about {EOS} itself",
        "".join(chr(odd.randrange(1, 0xD800)) for _ in range(500)),
    ]
    for text, ids in zip(texts, trained.encode(texts), strict=True):
        assert again.decode(ids, clean_up_tokenization_spaces=False) == text
        assert trained.eos_id not in ids
    assert again.eos_token == EOS
    assert again.eos_token_id == trained.eos_id


def test_vocabulary_size(trained):
    assert trained.vocabulary == 400
    assert 257 <= train_tokenizer(["ab"], 4096).vocabulary < 300  # there is no more to learn
    with pytest.raises(ValueError, match="vocabulary must be at least 257 .*, got 256"):
        train_tokenizer(["ab"], 256)


def test_training_is_deterministic_and_reads_a_bounded_sample(trained, monkeypatch):
    assert train_tokenizer(stories(200), 400).fingerprint == trained.fingerprint
    monkeypatch.setattr("dares.data.tokenizer.SAMPLE_BYTES", 1000)
    drawn = iter(stories(200))
    train_tokenizer(drawn, 300)
    assert 0 < len(list(drawn)) < 200


def test_a_saved_one_is_the_same_loaded_from_folder_or_file(trained, tmp_path):
    trained.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == trained.fingerprint
    file = tmp_path / "tokenizer.json"
    assert load_tokenizer(file, eos=EOS).fingerprint == trained.fingerprint
    with pytest.raises(ValueError, match="has no end-of-sequence token .*: name one with eos"):
        load_tokenizer(file)


def test_truncation_and_padding_of_a_loaded_one_are_off(tmp_path):
    path = word_tokenizer(tmp_path / "words.json")
    loaded = load_tokenizer(path, eos="<end>")
    assert Tokenizer.from_file(str(path)).truncation is not None
    assert loaded.encode(["layer reads", "layer " * 9]) == [[1, 2], [1] * 9]
    assert (loaded.eos_id, loaded.vocabulary) == (0, 20)
    loaded.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").eos_id == 0


def test_wrong_names(tmp_path):
    path = word_tokenizer(tmp_path / "words.json")
    with pytest.raises(ValueError, match="'</s>' is not a token of"):
        load_tokenizer(path, eos="</s>")
    with pytest.raises(ValueError, match="no such tokenizer file or folder: ./no.json"):
        load_tokenizer("./no.json")
    with pytest.raises(ValueError, match="no tokenizer 'no/such' on this disk or the Hugging Fac"):
        load_tokenizer("no/such")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no tokenizer .* in the folder"):
        load_tokenizer(tmp_path / "empty")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match="bad.json is not a tokenizer.json"):
        load_tokenizer(tmp_path / "bad.json")
    (tmp_path / "model.bin").touch()
    with pytest.raises(ValueError, match="unknown kind of file '.bin'; choose from: .json"):
        load_tokenizer(tmp_path / "model.bin")
