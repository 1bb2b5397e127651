"""Checkpoints of the authors' release, against their formulas written out plainly."""

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen3ForCausalLM
from typer.testing import CliRunner

from dares.cli import app
from tests.models.families import tiny_config
from tests.pretrained.checkpoints import VOCABULARY, logits, tokenizer, write_text

runner = CliRunner()
LAYERS, WIDTH = 5, 32
EPS = 1e-3  # large, so that a wrong eps shows


def base_model():
    torch.manual_seed(3)
    settings = {"vocab_size": VOCABULARY, "max_position_embeddings": 256, "rms_norm_eps": EPS}
    model = Qwen3ForCausalLM(tiny_config("qwen3", num_hidden_layers=LAYERS, **settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def random_routers(final):
    stems = [f"model.layers.{n}.{part}_res" for n in range(LAYERS) for part in ("attn", "mlp")]
    routers = {}
    for stem in stems + ["model.final_res"] * final:
        routers[f"{stem}_proj.weight"] = 0.5 * torch.randn(1, WIDTH)
        routers[f"{stem}_norm.weight"] = 1 + 0.3 * torch.randn(WIDTH)
    return routers


def authors_checkpoint(folder, mode, *, blocks=2, extra=None, **fields):
    """What their save_pretrained leaves, in two shards."""
    model = base_model()
    routers = random_routers(mode in ("block", "full"))
    weights = {n: t.clone() for n, t in model.state_dict().items() if n != "lm_head.weight"}
    weights |= routers | (extra or {})
    names = sorted(weights)
    shards = {"model-00001-of-00002.safetensors": names[::2]}
    shards["model-00002-of-00002.safetensors"] = names[1::2]
    folder.mkdir()
    for file, held in shards.items():
        save_file({name: weights[name] for name in held}, folder / file, metadata={"format": "pt"})
    places = {name: file for file, held in shards.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    config = model.config.to_dict() | {
        "model_type": "qwen3_attnres",
        "architectures": ["Qwen3AttnResForCausalLM"],
        "attnres_mode": mode,
        "attnres_num_blocks": blocks,
        "attnres_gate_type": "bias",
        "attnres_use_null_source": False,
    }
    (folder / "config.json").write_text(json.dumps(config | fields))
    tokenizer().save(folder)
    return model, routers


def mix(sources, routers, stem):
    bank = torch.stack(sources)
    keys = bank / (bank.pow(2).mean(-1, keepdim=True) + EPS).sqrt()
    keys = keys * routers[f"{stem}_norm.weight"]
    scores = keys @ routers[f"{stem}_proj.weight"].view(-1)
    return (scores.softmax(0)[..., None] * bank).sum(0)


@torch.no_grad()
def plain_logits(model, routers, mode, layers_a_block):
    """The papers' formulas: no constants, no telescoping, one list of sources."""
    ids = torch.arange(3, 43).view(2, 20)
    hidden = model.model.embed_tokens(ids)
    positions = model.model.rotary_emb(hidden, torch.arange(20)[None])
    bank, running = [hidden], None
    stream = hidden
    for number, layer in enumerate(model.model.layers):
        for part in ("attn", "mlp"):
            sources = bank + ([running] if running is not None else [])
            read = stream
            if len(sources) > 1:
                mixed = mix(sources, routers, f"model.layers.{number}.{part}_res")
                read = stream + mixed if mode == "delta" else mixed
            if part == "attn":
                normed = layer.input_layernorm(read)
                delta = layer.self_attn(
                    hidden_states=normed, position_embeddings=positions, attention_mask=None
                )[0]
            else:
                delta = layer.mlp(layer.post_attention_layernorm(read))
            stream = stream + delta
            if mode == "block":
                running = delta if running is None else running + delta
            else:
                bank.append(delta)
        if mode == "block" and (number + 1) % layers_a_block == 0:
            bank.append(running)
            running = None
    if mode != "delta":
        sources = bank + ([running] if running is not None else [])
        stream = mix(sources, routers, "model.final_res")
    return model.lm_head(model.model.norm(stream))


@pytest.mark.parametrize(
    ("mode", "blocks"), [("delta", 8), ("full", 8), ("block", 2), ("block", 5)]
)
def test_equal_logits(mode, blocks, tmp_path):
    source, out = tmp_path / "theirs", tmp_path / "ours"
    model, routers = authors_checkpoint(source, mode, blocks=blocks)
    arguments = ["convert", str(source), str(out), "--text", str(write_text(tmp_path))]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "loss " in result.output
    # in float64: two ways to write a read round differently, and sharp routers magnify that
    model.double()
    routers = {name: tensor.double() for name, tensor in routers.items()}
    expected = plain_logits(model, routers, mode, -(-LAYERS // blocks))
    converted = logits(out, exact=True)
    torch.testing.assert_close(converted, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():  # and the routers matter
        assert not torch.allclose(
            model(torch.arange(3, 43).view(2, 20)).logits, converted, atol=0.1
        )
    depth = json.loads((out / "config.json").read_text())["depth"]
    assert depth["read_scale"] == "none"
    assert depth["eps"] == EPS
    places = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    assert "model.depth.query" in places
    assert not any("_res_" in name for name in places)


@pytest.mark.parametrize(
    ("mode", "settings", "said"),
    [
        ("delta_block", {}, "appends the stream minus the last source"),
        ("delta_v", {}, "unknown attnres_mode 'delta_v'; did you mean 'delta'?"),
        ("delta", {"attnres_gate_type": "sigmoid_scalar"}, "only 'bias' converts"),
        ("delta", {"attnres_use_null_source": True}, "only False converts"),
        ("full", {"attnres_recency_bias_init": 3.0}, "belongs to another release"),
        ("full", {"extra": {"model.layers.0.attn_res_bias": torch.zeros(1)}}, "attn_res_bias"),
        ("delta", {"extra": {"model.final_res_proj.weight": torch.zeros(1, 32)}}, "final_res_proj"),
    ],
)
def test_what_differs_is_refused(mode, settings, said, tmp_path):
    source, out = tmp_path / "theirs", tmp_path / "ours"
    authors_checkpoint(source, mode, **settings)
    arguments = ["convert", str(source), str(out), "--text", str(write_text(tmp_path))]
    result = runner.invoke(app, arguments)
    assert isinstance(result.exception, ValueError)
    assert said in str(result.exception)
    assert not out.exists()


def test_it_has_its_own_scheme(tmp_path):
    authors_checkpoint(tmp_path / "theirs", "delta")
    arguments = ["convert", str(tmp_path / "theirs"), str(tmp_path / "ours"), "--scheme", "delta"]
    result = runner.invoke(app, arguments)
    assert str(result.exception) == ("theirs was trained with a scheme of its own: name no other")
