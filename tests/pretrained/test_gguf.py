"""A .gguf file becomes an ordinary folder: what transformers reads from it, to the bit."""

import json

import numpy
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from dares.cli import app
from tests.pretrained.checkpoints import SENTENCES, logits, tiny_checkpoint, tokenizer, write_text

gguf = pytest.importorskip("gguf", reason="the gguf package writes the test's file")
runner = CliRunner()

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.weight"
    return f"{NAMES[stem]}.weight"


def rotated(weight, heads):
    """As llama.cpp orders the rows of a query or key: the two halves of a head interleaved."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def write_gguf(folder, file, kind):
    """The Llama of a folder as a .gguf file, its matrices of that kind."""
    config = json.loads((folder / "config.json").read_text())
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    bpe = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    tokens += [f"<unused{n}>" for n in range(len(tokens), config["vocab_size"])]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<") else 1 for token in tokens])
    merges = [m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]]
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for name, tensor in load_file(folder / "model.safetensors").items():
        data = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            data = rotated(data, heads if "q_proj" in name else groups)
        if data.ndim == 1:
            writer.add_tensor(gguf_name(name), data)
        elif kind == "F16":
            writer.add_tensor(gguf_name(name), data.astype(numpy.float16))
        else:
            kind_number = gguf.GGMLQuantizationType[kind]
            packed = gguf.quants.quantize(numpy.ascontiguousarray(data), kind_number)
            writer.add_tensor(gguf_name(name), packed, raw_dtype=kind_number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture
def base(tmp_path):
    return tiny_checkpoint(tmp_path / "base", intermediate_size=64)


def convert(source, out, tmp_path, *flags):
    arguments = [str(source), str(out), "--block", "2", "--text", str(write_text(tmp_path))]
    return runner.invoke(app, ["convert", *arguments, *flags])


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_dequantised(kind, base, tmp_path):
    file = write_gguf(base, tmp_path / f"tiny.{kind}.gguf", kind)
    out = tmp_path / "out"
    result = convert(file, out, tmp_path)
    assert result.exit_code == 0, result.output + repr(result.exception)
    by_transformers = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=file.name, dtype=torch.float32
    ).eval()
    with torch.no_grad():
        expected = by_transformers(torch.arange(3, 43).view(2, 20)).logits
    assert torch.equal(logits(out), expected)
    near = {"F32": 0.0, "F16": 2e-3, "Q8_0": 5e-2}[kind]  # and that is the model it was made from
    original = logits(base)
    assert (expected - original).abs().max() <= near * original.abs().max()
    config = json.loads((out / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["dtype"] == "float32"
    ids = AutoTokenizer.from_pretrained(out)(SENTENCES)["input_ids"]
    assert ids == tokenizer().encode([SENTENCES])[0]
    assert "tiny." + kind in (out / "README.md").read_text()
    assert not (tmp_path / "out.part").exists()


def test_dry_run_reads_the_header(base, tmp_path):
    file = write_gguf(base, tmp_path / "tiny.gguf", "Q8_0")
    result = convert(file, tmp_path / "out", tmp_path, "--dry-run")
    assert "model.depth.query: 5 x 32" in result.output
    assert not (tmp_path / "out").exists()


def test_damaged(base, tmp_path):
    file = write_gguf(base, tmp_path / "tiny.gguf", "F32")
    file.write_bytes(file.read_bytes()[:2000])
    result = convert(file, tmp_path / "out", tmp_path)
    assert str(result.exception).startswith(f"{file} cannot be read as GGUF (")
    assert not (tmp_path / "out").exists()


def test_absent(tmp_path):
    result = convert(tmp_path / "none.gguf", tmp_path / "out", tmp_path)
    assert str(result.exception) == f"no such file: {tmp_path / 'none.gguf'}"


def test_without_the_library(base, tmp_path, monkeypatch):
    file = write_gguf(base, tmp_path / "tiny.gguf", "F32")
    monkeypatch.setattr("dares.pretrained.gguf._NEEDS", ("a_library_that_is_not_there",))
    result = convert(file, tmp_path / "out", tmp_path)
    assert str(result.exception) == (
        "reading .gguf needs a_library_that_is_not_there: pip install 'dares[gguf]'"
    )
