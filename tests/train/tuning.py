"""A tiny pretrained model on disk, and fine-tuning runs of a second or two that start from it."""

import json
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import dares
from dares.train.loop import prepare_data, train
from dares.train.overrides import apply_overrides
from dares.train.parallel import joined
from dares.train.recipes.finetune import finetune
from tests.models.families import lively_llama

SMALL = (
    *("data.row_tokens=32", "data.validation=0.15", "optim.lr=1e-2", "optim.router_lr=5e-2"),
    *("batch.rows=8", "batch.micro_rows=4", "run.log_every=1", "run.eval_every=3"),
    *("run.eval_rows=99", "run.checkpoint_every=2"),
)


class Tuning:
    """A base of random weights with a tokenizer, its routed twin, and runs in the same folder."""

    def __init__(self, workshop):
        self.workshop, self.folder, self.cache = workshop, workshop.folder, workshop.cache
        self.base, self.routed = self.folder / "base", self.folder / "routed"
        if not self.base.exists():
            self._make()

    def _make(self):
        model = lively_llama(320, tie_word_embeddings=True)
        model.generation_config.temperature, model.generation_config.do_sample = 0.7, True
        tokenizer = prepare_data(self.workshop.recipe(), self.cache).tokenizer
        for folder, saved in (
            (self.base, model),
            (self.routed, dares.convert(model, dares.preset("delta_block", block=2))),
        ):
            saved.save_pretrained(folder)
            shutil.copytree(tokenizer, folder, dirs_exist_ok=True)

    def recipe(self, *changes, start=None, steps=6):
        recipe = finetune(str(start or self.routed), [str(self.workshop.text)], steps=steps)
        return apply_overrides(recipe, [*SMALL, *changes])

    def train(self, name, *changes, start=None, steps=6, **options):
        """A run in this process, in a folder of that name."""
        with joined(None) as ranks:
            return train(
                self.recipe(*changes, start=start, steps=steps),
                self.folder / name,
                ranks=ranks,
                cache=self.cache,
                **options,
            )

    def arguments(self, name, *flags, start=None, data=None):
        """The command line of a run."""
        said = ["finetune", str(start or self.routed), str(self.folder / name)]
        said += ["--data", str(data or self.workshop.text), "--cache", str(self.cache)]
        for change in SMALL:
            if not change.startswith("optim."):  # which has flags of its own
                said += ["--set", change]
        return [*said, *flags]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@torch.no_grad()
def logits(model):
    ids = torch.arange(40).reshape(2, 20)
    return model(ids).logits


def model_type(folder):
    return json.loads((Path(folder) / "config.json").read_text())["model_type"]
