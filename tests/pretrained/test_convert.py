"""dares convert: the same logits, the same files, shard by shard."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import dares
from dares.cli import app
from dares.families import FAMILY_MODULES
from dares.pretrained import convert as conversion
from tests.pretrained.checkpoints import logits, tiny_checkpoint, write_text

runner = CliRunner()
FAMILIES = sorted(set(FAMILY_MODULES.values()))


def convert(*arguments):
    result = runner.invoke(app, ["convert", *map(str, arguments)])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def tensors(folder):
    found = {}
    for file in folder.glob("*.safetensors"):
        found |= load_file(file)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_its_logits(family, tmp_path):
    source = tiny_checkpoint(tmp_path / "base", family, shards="20KB")
    printed = convert(source, tmp_path / "out", "--block", 2, "--text", write_text(tmp_path))
    assert torch.equal(logits(tmp_path / "out"), logits(source))
    assert re.search(r"largest logit difference\W+0 \(0 of the largest\)", printed)
    assert re.search(r"mean KL divergence\W+0", printed)
    before, after = re.search(r"loss before, after\W+([\d.]+), ([\d.]+)", printed).groups()
    assert before == after
    assert 5 < float(before) < 15  # random weights: about the vocabulary's logarithm


def test_shards_stay_as_they_are(tmp_path):
    source = tiny_checkpoint(tmp_path / "base", "qwen3", shards="20KB")
    old = sorted(source.glob("*.safetensors"))
    assert len(old) > 3
    out = tmp_path / "out"
    convert(source, out, "--block", 1, "--text", write_text(tmp_path))
    new = sorted(out.glob("*.safetensors"))
    assert len(new) == len(old) + 1
    for before, after in zip(old, new, strict=False):
        assert before.read_bytes() == after.read_bytes()
    routers = load_file(new[-1])
    assert {name.rpartition(".")[2] for name in routers} == {"query", "gain"}
    index = json.loads((out / "model.safetensors.index.json").read_text())
    everything = tensors(out)
    assert set(index["weight_map"]) == set(everything)
    assert "lm_head.weight" not in everything  # tied, and still so
    assert index["metadata"] == {
        "total_parameters": sum(tensor.numel() for tensor in everything.values()),
        "total_size": sum(tensor.nbytes for tensor in everything.values()),
    }


def test_other_files_are_kept(tmp_path):
    source = tiny_checkpoint(tmp_path / "base")
    (source / "chat_template.jinja").write_text("{{ messages }}")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tools.jinja").write_text("{{ tools }}")
    (source / "README.md").write_text("the base's card")
    (source / "LICENSE").write_text("its licence")
    (source / "pytorch_model.bin").write_bytes(b"the same in another format")
    generation = {"eos_token_id": [2, 5], "do_sample": True, "temperature": 0.7}
    (source / "generation_config.json").write_text(json.dumps(generation))
    out = tmp_path / "out"
    convert(source, out, "--scheme", "delta", "--text", write_text(tmp_path))
    kept = ["chat_template.jinja", "additional_chat_templates/tools.jinja", "LICENSE"]
    kept += ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    for name in kept:
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert (out / "README.base.md").read_text() == "the base's card"
    assert not (out / "pytorch_model.bin").exists()


def test_card_tells_what_was_measured(tmp_path):
    source, out = tiny_checkpoint(tmp_path / "base"), tmp_path / "routed-one"
    text = write_text(tmp_path)
    convert(source, out, "--scheme", "delta", "--set", "merge=gate", "--text", text)
    card = (out / "README.md").read_text()
    assert "# routed-one" in card
    assert "base, converted by" in card
    assert "| largest difference of a logit | 0 |" in card
    assert "on 2,048 tokens" in card
    assert "dares convert base routed-one --scheme delta --set merge=gate --text text.txt" in card
    assert '"merge": "gate"' in card
    assert str(tmp_path) not in card
    assert json.loads((out / "config.json").read_text())["depth"]["merge"] == "gate"


def test_default_text_is_the_standard_library(tmp_path):
    source = tiny_checkpoint(tmp_path / "base")
    assert re.search(r"tokens\W+2,048", convert(source, tmp_path / "out", "--scheme", "delta"))


def test_dtype_is_that_of_the_written_weights(tmp_path):
    source, out = tiny_checkpoint(tmp_path / "base", shards="20KB"), tmp_path / "out"
    arguments = ["--scheme", "delta", "--dtype", "bfloat16", "--text", write_text(tmp_path)]
    convert(source, out, *arguments)
    for name, tensor in tensors(out).items():
        assert tensor.dtype == (torch.float32 if ".depth." in name else torch.bfloat16)
    assert torch.equal(logits(out), logits(source, dtype=torch.bfloat16))
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"


def test_dtype_of_the_source_is_kept(tmp_path):
    from transformers import AutoModelForCausalLM

    source = tiny_checkpoint(tmp_path / "base")
    half = tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).save_pretrained(half)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (half / name).write_bytes((source / name).read_bytes())
    convert(half, tmp_path / "out", "--scheme", "delta", "--text", write_text(tmp_path))
    assert logits(tmp_path / "out").dtype == torch.bfloat16
    assert torch.equal(logits(tmp_path / "out"), logits(half))


def test_dry_run_needs_no_weights_and_writes_nothing(tmp_path):
    source = tiny_checkpoint(tmp_path / "base")
    (source / "model.safetensors").unlink()
    out = tmp_path / "out"
    printed = convert(source, out, "--block", 2, "--dry-run")
    # llama: 3 layers, 6 sites, all but the first route: 5 queries and gains of 32
    assert re.search(r"added\W+320 \(", printed)
    assert "model.depth.query: 5 x 32" in printed
    assert "nothing is written" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_share_is_of_the_base(tmp_path):
    from transformers import AutoModelForCausalLM

    source = tiny_checkpoint(tmp_path / "base", "qwen3")  # tied embeddings count once
    parameters = AutoModelForCausalLM.from_pretrained(source).num_parameters()
    printed = convert(source, tmp_path / "out", "--scheme", "delta", "--dry-run")
    assert re.search(rf"parameters\W+{parameters:,}", printed)
    assert f"({100 * 320 / parameters:.3g} %)" in printed


def test_drift_is_refused_unless_allowed(tmp_path):
    source, out = tiny_checkpoint(tmp_path / "base"), tmp_path / "out"
    arguments = ["convert", str(source), str(out), "--scheme", "cumulative"]
    arguments += ["--text", str(write_text(tmp_path))]
    refused = runner.invoke(app, arguments)
    assert "does not sum to the stream" in str(refused.exception)
    assert "--allow-drift" in str(refused.exception)
    assert not out.exists()
    allowed = runner.invoke(app, [*arguments, "--allow-drift"])
    assert allowed.exit_code == 0, allowed.output
    figure = re.search(r"largest logit difference\W+[\d.e-]+ \(([\d.e-]+) of", allowed.output)[1]
    before, after = logits(source), logits(out)
    assert float(figure) > 0.01
    assert not torch.allclose(before, after)


def test_measured_drift_is_refused_too(tmp_path, monkeypatch):
    """A scheme that claims identity and does not have it is found out by the measurement."""
    monkeypatch.setattr(dares.ResidualScheme, "identity_obstacle", lambda self: None)
    monkeypatch.setattr("dares.schemes.routed.RoutedScheme.identity_obstacle", lambda self: None)
    source, out = tiny_checkpoint(tmp_path / "base"), tmp_path / "out"
    arguments = ["convert", str(source), str(out), "--scheme", "cumulative"]
    refused = runner.invoke(app, [*arguments, "--text", str(write_text(tmp_path))])
    assert "the logits move by" in str(refused.exception)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["base", "text.txt"]


def test_a_copy_that_differs_is_found_out(tmp_path, monkeypatch):
    from dares.pretrained import shards

    source = tiny_checkpoint(tmp_path / "base")

    def flip_a_bit(old, new):
        content = bytearray(old.read_bytes())
        content[-1] ^= 1
        new.write_bytes(content)

    monkeypatch.setattr(shards.shutil, "copyfile", flip_a_bit)
    pieces = shards.find_shards(source)
    (tmp_path / "written").mkdir()
    with pytest.raises(ValueError, match="was not written as it is in"):
        shards.write_shards(pieces, {}, tmp_path / "written", keep=lambda name: True, dtype=None)


def test_a_killed_conversion_is_cleared_away(tmp_path):
    source, out = tiny_checkpoint(tmp_path / "base"), tmp_path / "out"
    (tmp_path / "out.part" / "model").mkdir(parents=True)
    (tmp_path / "out.part" / "model" / "half").write_text("written")
    convert(source, out, "--scheme", "delta", "--text", write_text(tmp_path))
    assert not (out / "half").exists()
    assert not (tmp_path / "out.part").exists()


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    source, out = tiny_checkpoint(tmp_path / "base"), tmp_path / "out"

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(conversion, "write_shards", full)
    result = runner.invoke(
        app, ["convert", str(source), str(out), "--text", str(write_text(tmp_path)), "--block", "2"]
    )
    assert str(result.exception) == (
        f"{out} could not be made (No space left on device); nothing was kept"
    )
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["base", "text.txt"]


def test_hub_names_come_from_the_cache(tmp_path, monkeypatch):
    """As huggingface_hub lays a model out, without a network."""
    import huggingface_hub

    commit = "1" * 40
    repository = tmp_path / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    tiny_checkpoint(repository / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub._snapshot_download.constants, "HF_HUB_OFFLINE", True)
    out = tmp_path / "out"
    printed = convert("someone/tiny", out, "--scheme", "delta", "--text", write_text(tmp_path))
    assert "someone/tiny" in printed
    card = (out / "README.md").read_text()
    assert "someone/tiny, converted by" in card
    assert "\nbase_model: someone/tiny\n---" in card
    assert torch.equal(logits(out), logits(repository / "snapshots" / commit))
