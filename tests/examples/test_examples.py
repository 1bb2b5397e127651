"""The example scripts run as a reader would run them, offline, on a model made here."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import dares
from dares.data.tokenizer import train_tokenizer
from tests.data.texts import stories
from tests.models.families import lively_llama
from tests.train.runs import ROOT, python


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples") / "base"
    lively_llama(300).save_pretrained(folder)
    train_tokenizer(stories(40), 300).save(folder)
    return folder


def run(name, *arguments, cache):
    done = python(
        str(ROOT / "examples" / name),
        *map(str, arguments),
        HF_HUB_OFFLINE="1",
        HF_DATASETS_CACHE=str(cache),
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.returncode == 0, done.stderr[-4000:]


@torch.no_grad()
def logits(model):
    return model.eval()(torch.arange(40).reshape(2, 20)).logits


def test_trainer(base, tmp_path):
    text = tmp_path / "stories.txt"
    text.write_text("\n\n".join(stories(24)))
    arguments = ["--model", base, "--data", text, "--out", tmp_path / "tuned", "--steps", 3]
    run("trainer.py", *arguments, cache=tmp_path)
    tuned = AutoModelForCausalLM.from_pretrained(tmp_path / "tuned")
    assert type(tuned).__name__ == "DaresLlamaForCausalLM"
    assert AutoTokenizer.from_pretrained(tmp_path / "tuned").eos_token_id is not None
    # AdamW's steps are about as long as the rate: the two groups had their own
    before, after = load_file(base / "model.safetensors"), tuned.state_dict()
    moved = max((after[name] - tensor).abs().max().item() for name, tensor in before.items())
    assert 5e-6 < moved < 5e-4
    assert 5e-4 < tuned.model.depth.query.abs().max().item() < 5e-2
    tuned.save_pretrained(tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    assert torch.equal(logits(again), logits(tuned))


def test_sft(base, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    lines = [{"prompt": text[:10], "completion": text[10:]} for text in stories(24)]
    pairs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["--model", base, "--data", pairs, "--out", tmp_path / "tuned", "--steps", 3]
    run("sft.py", *arguments, cache=tmp_path)
    untouched = AutoModelForCausalLM.from_pretrained(base)
    tuned = dares.load_routers(untouched, tmp_path / "tuned")
    assert tuned.model.depth.query.abs().max().item() > 5e-4
    assert not torch.equal(logits(tuned), logits(untouched))
    tuned.save_pretrained(tmp_path / "whole")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    assert torch.equal(logits(whole), logits(tuned))
