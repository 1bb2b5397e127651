"""Tokens as people can read them, whatever bytes they are."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from transformers import PreTrainedTokenizerFast

from dares.explore.words import name_after, split
from tests.evals.models import tiny_tokenizer

BYTES = tiny_tokenizer()._tokenizer


@pytest.fixture(scope="module")
def pieces():
    """A SentencePiece-like tokenizer with byte fallback and a first token."""
    words = ["<unk>", "<s>", "▁", "▁Once", "▁upon", "<", "img"]
    vocabulary = {word: number for number, word in enumerate(words)}
    vocabulary |= {f"<0x{byte:02X}>": len(words) + byte for byte in range(256)}
    bare = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    bare.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    bare.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    bare.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=bare, bos_token="<s>", unk_token="<unk>")


@pytest.mark.parametrize(
    "text", ["reads a token", "<img src=x onerror=alert(1)>", "two\nlines\t\0 end", " "]
)
def test_a_text_is_shown_as_it_is(text):
    words = split(BYTES, text)
    assert "".join(word.text for word in words) == text
    assert [word.id for word in words] == BYTES(text)["input_ids"]


def test_pieces_of_a_character_are_named_as_the_tokenizer_does():
    words = split(BYTES, "a 🦊!")
    fox = [word for word in words if word.start == 2]
    assert [word.text for word in fox] == ["ð", "Ł", "¦", "Ĭ"]
    assert {(word.start, word.end) for word in fox} == {(2, 3)}
    assert words[0].text == "a"
    assert words[-1].text == "!"


def test_byte_fallback_and_special_tokens(pieces):
    words = split(pieces, "🦊")
    assert words[0].text == "<s>"
    assert [word.text for word in words[-4:]] == ["<0xF0>", "<0x9F>", "<0xA6>", "<0x8A>"]


def test_what_follows_keeps_its_space(pieces):
    once, upon = (pieces.convert_tokens_to_ids(word) for word in ("▁Once", "▁upon"))
    assert name_after(pieces, once, upon) == " upon"
    assert name_after(pieces, once, pieces.convert_tokens_to_ids("img")) == "img"
    assert name_after(pieces, once, pieces.convert_tokens_to_ids("<0xF0>")) == "<0xF0>"
    assert name_after(pieces, once, 10_000) == "token 10000"
    byte, letter = (BYTES.convert_tokens_to_ids(word) for word in ("ð", "a"))
    assert name_after(BYTES, letter, byte) == "ð"
    assert name_after(BYTES, byte, letter) == "a"
