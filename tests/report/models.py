"""Folders of small models with a tokenizer, and a text, for whole reports."""

import json

from transformers import PreTrainedTokenizerFast

from tests.data.texts import stories, word_tokenizer
from tests.routing.models import routed


def save_model(folder, scheme="delta_block", **settings):
    """A random routed model as `dares train` leaves it: RUN/model."""
    model = routed(scheme, **settings)
    model.save_pretrained(folder / "model")
    file = word_tokenizer(folder / "tokenizer.json", size=90)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), eos_token="<end>")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder / "model")
    return folder


def save_text(path, count=12):
    path.write_text("\n".join(stories(count)))
    return path


def save_history(folder, sites=6):
    """Metrics as a run writes them at validation."""
    lines = [
        {
            "step": step,
            "validation_loss": 5.0,
            "site_largest_weight": [None, *([0.5 + 0.01 * step] * (sites - 1))],
            "site_entropy": [None, *([0.6 - 0.01 * step] * (sites - 1))],
        }
        for step in (0, 10, 20)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
