"""Small inputs for the tests of data."""

import json

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["layer", "reads", "delta", "stream", "token", "site", "bank", "query", "norm", "sum"]


def stories(count, seed=0, words=(5, 60)):
    """Distinct documents of a few words each."""
    random = np.random.default_rng(seed)
    return [
        f"{seed}.{number} " + " ".join(random.choice(WORDS, random.integers(*words)))
        for number in range(count)
    ]


def write_jsonl(path, texts, field="text"):
    path.write_text("".join(json.dumps({field: text}) + "\n" for text in texts))
    return path


def word_tokenizer(path, size=20, eos="<end>"):
    """A tokenizer.json of whole words that, as it stands, would cut and pad what it is given."""
    vocabulary = {eos: 0, **{word: 1 + number for number, word in enumerate(WORDS)}}
    vocabulary |= {f"w{number}": number for number in range(len(vocabulary), size)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="sum"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=7, pad_token=eos)
    tokenizer.save(str(path))
    return path
