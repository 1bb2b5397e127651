"""dares finetune as a newcomer types it: flags to settings, and every mistake a sentence."""

import json
import shutil
import sys

import pytest
from transformers import AutoTokenizer, BertConfig

from dares import cli
from dares.train.folder import read_recipe
from tests.data.texts import word_tokenizer
from tests.faults.test_wrong_commands import refused
from tests.train.runs import figures
from tests.train.tuning import Tuning, model_type


@pytest.fixture(scope="module")
def tuning(workshop):
    return Tuning(workshop)


def said(tuning, monkeypatch, capsys, name, *flags, **options):
    """Run the command; what it printed."""
    monkeypatch.setattr("sys.argv", ["dares", *tuning.arguments(name, *flags, **options)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr().out
    assert ended.value.code == 0, printed
    return printed


def test_flags_become_settings(tuning, monkeypatch, capsys):
    flags = ["--scheme", "delta_block", "--set", "depth.block=2", "--steps", "2"]
    flags += ["--lora", "r=2,targets=q_proj+v_proj", "--lr", "1e-3", "--router-lr", "2e-3"]
    printed = said(tuning, monkeypatch, capsys, "flags", *flags, start=tuning.base)
    run = tuning.folder / "flags"
    recipe = read_recipe(run)
    assert (recipe.optim.router_lr, recipe.run.steps) == (2e-3, 2)
    assert recipe.start.lora_targets == ("q_proj", "v_proj")
    first, last = (loss for _, loss in figures(run, "validation_loss"))
    assert f"validation loss {last:.4f} ({first:.4f} before); the model is in" in printed
    assert "parameters learn (" in printed
    assert model_type(run / "model") == "dares_llama"

    # all but the folders may be left out to go on with it
    again = [
        "dares",
        "finetune",
        str(tuning.base),
        str(run),
        "--resume",
        "--cache",
        str(tuning.cache),
    ]
    monkeypatch.setattr("sys.argv", again)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert "going on from step-00000002" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--freeze", "bse"], "unknown start.freeze 'bse'; did you mean 'base'?"),
        (["--lora", "r=0"], "start.lora_rank must be at least 1, got 0"),
        (["--lora", "r=two"], "start.lora_rank must be a whole number or none, got 'two'"),
        (["--lora", "16"], "unknown --lora setting '16'; choose from: r, alpha, targets"),
        (["--lora", "alpha=2"], "--lora needs a rank, as in r=16"),
        (["--lora", "r"], "--lora is written r=16,alpha=32,targets=q_proj+v_proj, got 'r'"),
        (["--lora", "r=2,targets=q_prj"], "unknown LoRA target 'q_prj'; did you mean 'q_proj'?"),
        (
            ["--lora", "r=2", "--freeze", "base"],
            "LoRA lets the base learn and freeze=base does not",
        ),
        (["--scheme", "delta"], "{start} is routed already, by DepthConfig(sources='block'"),
        (["--scheme", "dleta"], "unknown preset 'dleta'; did you mean 'delta'?"),
        (["--steps", "0"], "run.steps must be at least 1, got 0"),
        (["--lr", "0"], "optim.lr must be above zero, got 0.0"),
        (["--set", "model.width=8"], "unknown setting 'model.width'"),
        (["--set", "data.row_tokens=65"], "data.row_tokens=65 is more than the 64 positions of"),
        (
            ["--set", "data.tokenizer=none", "--set", "data.vocabulary=300"],
            "data.tokenizer must be the model's own, {start}, got none",
        ),
        (["--parallel", "ddp"], "--parallel ddp needs several processes"),
        (["--resume"], "there is no run in {run} to resume: check its name"),
    ],
)
def test_wrong_flags(tuning, capsys, monkeypatch, flags, sentence):
    line = refused(capsys, monkeypatch, *tuning.arguments("wrong", *flags))
    expected = sentence.format(start=tuning.routed, run=tuning.folder / "wrong")
    assert line.startswith(f"error: {expected}")
    assert not (tuning.folder / "wrong").exists()


@pytest.mark.parametrize("freeze", ["base", "routers"])
def test_a_plain_model_has_no_routers(tuning, capsys, monkeypatch, freeze):
    arguments = tuning.arguments("wrong", "--freeze", freeze, start=tuning.base)
    line = refused(capsys, monkeypatch, *arguments)
    assert line.startswith(f"error: {tuning.base} has no routers for freeze={freeze} to speak of")
    assert not (tuning.folder / "wrong").exists()


def test_lora_without_peft(tuning, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    line = refused(capsys, monkeypatch, *tuning.arguments("wrong", "--lora", "r=2"))
    assert line == "error: LoRA needs PEFT, which is not installed: pip install 'dares[train]'"


def test_no_text(tuning, capsys, monkeypatch):
    line = refused(capsys, monkeypatch, "finetune", str(tuning.base), str(tuning.folder / "wrong"))
    assert line == "error: there is no text to fine-tune on: name some with --data"


@pytest.mark.parametrize(
    ("name", "contents", "sentence"),
    [
        ("empty.txt", [b""], "the inputs hold no text"),
        ("latin-1.txt", [f"{n} café".encode("latin-1") for n in range(6)], "6 bytes of the data"),
        (
            "utf-16.txt",
            [f"{n} café".encode("utf-16") for n in range(6)],
            "of the data are not UTF-8",
        ),
        ("short.txt", [b"one document"], "all text is one document"),
        ("text.pdf", [b"%PDF"], "none of a kind that is read"),
    ],
)
def test_text_that_will_not_do(tuning, tmp_path, capsys, monkeypatch, name, contents, sentence):
    for number, content in enumerate(contents):
        (tmp_path / f"{number}-{name}").write_bytes(content)
    flags = ["--set", "data.validation=0.5"]
    line = refused(capsys, monkeypatch, *tuning.arguments("wrong", *flags, data=tmp_path))
    assert sentence in line
    assert not (tuning.folder / "wrong").exists()


def test_a_folder_that_holds_a_run(tuning, capsys, monkeypatch):
    tuning.train("taken", steps=1)
    line = refused(capsys, monkeypatch, *tuning.arguments("taken"))
    assert "holds a run already: go on with --resume, or choose another folder" in line


def test_a_run_of_another_kind(tuning, capsys, monkeypatch, undisturbed):
    line = refused(capsys, monkeypatch, *tuning.arguments("undisturbed", "--resume"))
    assert line == f"error: {undisturbed} is a run of `dares train`: go on with that"


@pytest.fixture
def damaged(tuning, tmp_path):
    """A copy of the base to spoil."""
    return shutil.copytree(tuning.base, tmp_path / "damaged")


def test_models_that_will_not_do(tuning, damaged, tmp_path, capsys, monkeypatch):
    def line(start):
        return refused(capsys, monkeypatch, *tuning.arguments("wrong", start=start))

    assert "no such folder" in line(tmp_path / "nowhere")
    BertConfig().save_pretrained(tmp_path / "bert")
    assert "no routed family for model_type 'bert'" in line(tmp_path / "bert")
    config = json.loads((damaged / "config.json").read_text())
    quantized = {**config, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    (damaged / "config.json").write_text(json.dumps(quantized))
    assert "is quantized: fine-tune the model that it was quantized from" in line(damaged)
    (damaged / "config.json").write_text(json.dumps(config))
    (damaged / "model.safetensors").unlink()
    assert "cannot be loaded" in line(damaged)
    assert not (tuning.folder / "wrong").exists()


def test_a_tokenizer_that_does_not_match(tuning, damaged, tmp_path, capsys, monkeypatch):
    other = word_tokenizer(tmp_path / "tokenizer.json")
    flags = ["--set", f"data.tokenizer={other}"]
    line = refused(capsys, monkeypatch, *tuning.arguments("wrong", *flags))
    assert "tokenizer" in line

    tokenizer = AutoTokenizer.from_pretrained(tuning.base)
    tokenizer.add_tokens([f"new{number}" for number in range(40)])
    tokenizer.save_pretrained(damaged)
    line = refused(capsys, monkeypatch, *tuning.arguments("wrong", start=damaged))
    assert "ids and the model 320: it is not this model's tokenizer" in line

    flags = ["--set", f"data.tokenizer={damaged}"]
    line = refused(capsys, monkeypatch, *tuning.arguments("wrong", *flags))
    assert f"data.tokenizer={damaged} is not the tokenizer of {tuning.routed}: leave it out" in line

    for name in ("tokenizer.json", "tokenizer_config.json"):
        (damaged / name).unlink()
    line = refused(capsys, monkeypatch, *tuning.arguments("wrong", start=damaged))
    assert f"no tokenizer {str(damaged)!r} in the folder" in line
    assert not (tuning.folder / "wrong").exists()
