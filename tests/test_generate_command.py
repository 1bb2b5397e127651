"""dares generate: streams, stops, and refuses in a sentence."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from dares.cli import app
from tests.pretrained.checkpoints import tiny_checkpoint, write_text

runner = CliRunner()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A base model and its routed one."""
    folder = tmp_path_factory.mktemp("generate")
    base = tiny_checkpoint(folder / "base", pad_token_id=None)
    text = write_text(folder)
    done = runner.invoke(
        app, ["convert", str(base), str(folder / "routed"), "--block", "2", "--text", str(text)]
    )
    assert done.exit_code == 0, done.output
    return folder


def generate(folder, *flags, prompt="The cat"):
    return runner.invoke(app, ["generate", str(folder), "--prompt", prompt, *map(str, flags)])


def test_greedy_by_default_for_base_and_routed(folders):
    base, routed = (generate(folders / name, "--max-tokens", 12) for name in ("base", "routed"))
    assert base.exit_code == routed.exit_code == 0, base.output + repr(routed.exception)
    tokenizer = AutoTokenizer.from_pretrained(folders / "base")
    model = AutoModelForCausalLM.from_pretrained(folders / "base").eval()
    ids = tokenizer("The cat", return_tensors="pt").input_ids
    with torch.no_grad():
        for _ in range(12):
            following = model(ids).logits[0, -1].argmax().view(1, 1)
            if following.item() == model.config.eos_token_id:
                break
            ids = torch.cat([ids, following], 1)
    assert base.stdout.rstrip("\n") == tokenizer.decode(ids[0], skip_special_tokens=True)
    assert routed.stdout == base.stdout


def test_draws_follow_the_seed(folders):
    def drawn(seed):
        flags = ("--temperature", 1.5, "--top-p", 0.95, "--seed", seed, "--max-tokens", 12)
        result = generate(folders / "routed", *flags)
        assert result.exit_code == 0, repr(result.exception)
        return result.stdout

    assert drawn(1) == drawn(1)
    assert len({drawn(seed) for seed in range(4)}) > 1


def test_the_models_own_settings_do_not_draw(folders, tmp_path):
    base = tiny_checkpoint(tmp_path / "base", pad_token_id=None)
    plain = generate(base, "--max-tokens", 8).stdout
    settings = {"do_sample": True, "temperature": 5.0, "top_k": 3, "eos_token_id": 2}
    (base / "generation_config.json").write_text(json.dumps(settings))
    assert generate(base, "--max-tokens", 8).stdout == plain


def test_end_of_text(folders, tmp_path):
    """Whatever comes third is declared the end."""
    base = tiny_checkpoint(tmp_path / "base", pad_token_id=None)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base)
    ids = tokenizer("The cat", return_tensors="pt").input_ids
    made = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[0]
    end = made[ids.shape[1] + 2].item()
    stop = made.tolist().index(end, ids.shape[1])
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    shown = generate(base, "--max-tokens", 50).stdout.rstrip("\n")
    assert shown == tokenizer.decode(made[: stop + 1], skip_special_tokens=True)


def test_a_runs_folder(folders, tmp_path):
    (tmp_path / "model").symlink_to(folders / "routed")
    assert generate(tmp_path, "--max-tokens", 3).exit_code == 0


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_empty_prompt(folders, prompt):
    result = generate(folders / "base", prompt=prompt)
    assert str(result.exception).startswith("the prompt is empty")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--max-tokens", 1000), "do not fit the model's context of 256"),
        (("--top-p", 0.9), "--top-p 0.9 needs --temperature above 0"),
        (("--top-p", 1.5, "--temperature", 1), "--top-p must be above 0 and at most 1, got 1.5"),
    ],
)
def test_wrong_flags(folders, flags, said):
    assert said in str(generate(folders / "base", *flags).exception)


def test_no_such_model(tmp_path):
    assert "no such folder" in str(generate(tmp_path / "absent").exception)
    assert "has no config.json" in str(generate(tmp_path).exception)
