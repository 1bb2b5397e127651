"""Tokenizers for whole documents: trained on the data, or any of Hugging Face's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dares.names import unknown_name

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EOS = "<|endoftext|>"
SAMPLE_BYTES = 16 << 20  # a vocabulary of thousands is settled long before; its cost is not
_BYTES = 256


class DocumentTokenizer:
    """A tokenizer as packing needs it: documents in, ids out, nothing added, cut or padded."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = tokenizer
        # a copy: what is set below is for packing, not for those who load the saved tokenizer
        self._encoder = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._encoder.no_truncation()
        self._encoder.no_padding()
        # a text that speaks of "<|endoftext|>" must not end its document there
        self._encoder.encode_special_tokens = True
        self.eos_id: int = tokenizer.eos_token_id
        self.vocabulary: int = 1 + max(tokenizer.get_vocab().values())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Each document's ids."""
        encodings = self._encoder.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    @property
    def fingerprint(self) -> str:
        """What the ids follow from."""
        return f"eos {self.eos_id} {self._encoder.to_str()}"

    def save(self, folder: Path) -> None:
        """Write a folder that `AutoTokenizer.from_pretrained` reads."""
        self._tokenizer.save_pretrained(folder)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> DocumentTokenizer:
    """A byte-level BPE of the first texts: every byte is in it, so that no text is unknown.

    A short text may give fewer ids than the vocabulary asked for, never more.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    check_vocabulary(vocabulary)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(_sample(texts), trainer)
    return DocumentTokenizer(PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=EOS))


def check_vocabulary(vocabulary: int) -> None:
    """An error if there is no room for every byte and the end of a document."""
    if vocabulary <= _BYTES:
        raise ValueError(
            f"vocabulary must be at least {_BYTES + 1} (every byte, and the end of a document), "
            f"got {vocabulary}"
        )


def load_tokenizer(name: str | Path, eos: str | None = None) -> DocumentTokenizer:
    """The tokenizer in a folder, in a tokenizer.json, or of a model on the Hugging Face Hub."""
    tokenizer = _load(str(name))
    if not tokenizer.is_fast:
        raise ValueError(
            f"tokenizer {str(name)!r} is not one of the tokenizers library: convert it to a "
            "tokenizer.json"
        )
    if eos is not None:
        if eos not in tokenizer.get_vocab():
            raise ValueError(
                f"{eos!r} is not a token of {str(name)!r}: name one that ends a document"
            )
        tokenizer.add_special_tokens({"eos_token": eos})
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"tokenizer {str(name)!r} has no end-of-sequence token to put between documents: "
            "name one with eos"
        )
    return DocumentTokenizer(tokenizer)


def _load(name: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".json":
            raise ValueError(
                f"tokenizer {name}: {unknown_name('kind of file', path.suffix, ['.json'])}"
            )
        try:
            return PreTrainedTokenizerFast(tokenizer_file=str(path))
        except Exception as error:  # the tokenizers library raises no narrower class
            raise ValueError(f"{name} is not a tokenizer.json ({error})") from error
    if not path.is_dir() and (name.startswith((".", "/", "~")) or name.endswith(".json")):
        raise ValueError(f"no such tokenizer file or folder: {name}")
    try:
        return AutoTokenizer.from_pretrained(str(path) if path.is_dir() else name)
    except (OSError, ValueError) as error:  # nothing there, or nothing that is a tokenizer
        where = "in the folder" if path.is_dir() else "on this disk or the Hugging Face Hub"
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"no tokenizer {name!r} {where} ({reason})") from error


def _sample(texts: Iterable[str]) -> Iterator[str]:
    taken = 0
    for text in texts:
        yield text
        taken += len(text.encode())
        if taken >= SAMPLE_BYTES:
            return
