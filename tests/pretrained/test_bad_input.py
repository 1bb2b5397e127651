"""What cannot be converted: one sentence that says what to do, and nothing half-written."""

import json
import sys

import pytest
from safetensors.torch import load_file, save_file

from dares.cli import main
from tests.pretrained.checkpoints import tiny_checkpoint, tokenizer, write_text


@pytest.fixture
def source(tmp_path):
    return tiny_checkpoint(tmp_path / "base", shards="20KB")


@pytest.fixture
def refused(tmp_path, capsys, monkeypatch):
    """The sentence with which a conversion is refused; OUT and what lies beside it stay away."""
    text = write_text(tmp_path)

    def run(source, *flags, out=None, text=text):
        before = sorted(tmp_path.iterdir())
        words = ["dares", "convert", str(source), str(out or tmp_path / "out"), *flags]
        words += ["--text", str(text)] if text is not None else []
        words += ["--block", "2"] if not flags else []
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert sorted(tmp_path.iterdir()) == before
        return line.removeprefix("error: ")

    return run


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_quantised(source, refused):
    change_config(source, quantization_config={"quant_method": "gptq", "bits": 4})
    assert refused(source) == (
        f"{source} is quantized, so that its routers could not be trained with it: "
        "convert the checkpoint that it was quantized from"
    )


@pytest.mark.parametrize("model_type", ["bert", "a_new_one", "t5"])
def test_other_architectures(source, refused, model_type):
    change_config(source, model_type=model_type)
    line = refused(source)
    assert line.startswith(
        f"no routed family for model_type '{model_type}'; there are: gemma3_text"
    )


def test_routed_already(source, refused):
    change_config(source, model_type="dares_llama")
    assert refused(source).endswith(
        "is routed already (dares_llama): convert the model that it was made from"
    )


def test_missing_shard(source, refused):
    shard = sorted(source.glob("*.safetensors"))[1]
    shard.unlink()
    assert refused(source) == f"the shard {shard} is missing: copy or download it again"


def test_damaged_shard(source, refused):
    shard = sorted(source.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    assert refused(source).startswith(f"the weights file {shard} is damaged (")


def test_a_shard_of_another_model(source, refused):
    shard = sorted(source.glob("*.safetensors"))[1]
    tensors = load_file(shard)
    name = sorted(tensors)[0]
    save_file({"other": tensors.pop(name), **tensors}, shard, metadata={"format": "pt"})
    assert refused(source).startswith(f"{shard} lacks {name!r}, which the index puts there")


def test_a_tensor_too_few(tmp_path, refused):
    source = tiny_checkpoint(tmp_path / "base")
    tensors = load_file(source / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    assert refused(source) == (
        f"{source} lacks 1 weights of a LlamaForCausalLM, 'lm_head.weight' among them: "
        "it is damaged, or not a language model"
    )


def test_weights_that_do_not_fit(source, refused):
    change_config(source, intermediate_size=40)
    assert refused(source).startswith(f"the model in {source} cannot be loaded (")


def test_not_finite(tmp_path, refused):
    source = tiny_checkpoint(tmp_path / "base")
    tensors = load_file(source / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    assert "logits that are not finite" in refused(source)


def test_no_weights(source, refused):
    for path in (*source.glob("*.safetensors"), source / "model.safetensors.index.json"):
        path.unlink()
    assert f"{source} has no weights" in refused(source)
    (source / "pytorch_model.bin").write_bytes(b"pickled")
    assert "only safetensors are read: load it with AutoModelForCausalLM" in refused(source)


def test_a_damaged_index(source, refused):
    (source / "model.safetensors.index.json").write_text("{")
    assert refused(source).endswith("is not an index of shards: copy or download it again")


def test_no_tokenizer(source, refused):
    for path in source.glob("tokenizer*"):
        path.unlink()
    line = refused(source)
    assert line.startswith(f"{source} has no tokenizer")
    assert line.endswith("copy the base model's tokenizer files into it")


def test_a_larger_tokenizer(tmp_path, refused):
    source = tiny_checkpoint(tmp_path / "base", vocab_size=200)
    largest = tokenizer().vocabulary - 1
    assert refused(source) == (
        f"the tokenizer in {source} gives ids up to {largest}, the model has only 200 embeddings: "
        "it is another model's tokenizer"
    )


def test_text_in_another_encoding(source, refused, tmp_path):
    text = tmp_path / "latin.txt"
    text.write_bytes("Ein schöner Tag. ".encode("latin-1") * 2000)
    assert refused(source, text=text).startswith(f"{text} is not UTF-8 text")


@pytest.mark.parametrize("content", ["", "A short text.\n"])
def test_too_little_text(source, refused, tmp_path, content):
    text = tmp_path / "short.txt"
    text.write_text(content)
    line = refused(source, text=text)
    assert line.startswith(f"{text} gives ")
    assert line.endswith("identity is measured on at least 2,000, so use a longer text")


def test_no_such_text(source, refused, tmp_path):
    assert "no such file or folder" in refused(source, text=tmp_path / "absent.txt")


def test_out_that_is_there(source, refused, tmp_path):
    out = tmp_path / "taken"
    out.mkdir()
    (out / "mine").write_text("keep")
    assert refused(source, out=out) == (
        f"OUT {out} is there and not empty: name another, or remove it"
    )
    assert (out / "mine").read_text() == "keep"
    file = out / "mine"
    assert refused(source, out=file) == f"OUT {file} is a file: name a folder that is not there yet"


@pytest.mark.parametrize("inside", [".", "routed", "deep/er"])
def test_out_inside_the_source(source, refused, inside):
    names = sorted(path.name for path in source.iterdir())
    assert "choose a folder outside of it" in refused(source, out=source / inside)
    assert sorted(path.name for path in source.iterdir()) == names


def test_no_such_source(refused, tmp_path):
    absent = tmp_path / "absent"
    assert refused(absent).startswith(f"no such folder: {str(absent)!r}")
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in refused(tmp_path / "empty")
    (tmp_path / "weights.ckpt").write_text("x")
    assert "is a file: a model is a folder or a name on the Hub" in refused(
        tmp_path / "weights.ckpt"
    )
    assert "no model that can be reached on the Hugging Face Hub" in refused("someone/absent")


def test_a_damaged_config(source, refused):
    (source / "config.json").write_text("{")
    assert "is not JSON" in refused(source)
    (source / "config.json").write_text("{}")
    assert "names no model_type" in refused(source)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--scheme", "delt"], "unknown preset 'delt'; did you mean 'delta'?"),
        (["--block", "40"], "block must be between 1 and 3 (the model's layers), got 40"),
        (["--scheme", "delta", "--block", "2"], "block=2 needs sources='block'"),
        (["--set", "merge"], "a change of a scheme's field is written field=value, got 'merge'"),
        (["--set", "marge=gate"], "unknown DepthConfig field 'marge'; did you mean 'merge'?"),
        (["--set", "block=two"], "block must be a whole number or none, got 'two'"),
        (["--dtype", "int8"], "unknown --dtype 'int8'; choose from: float32, bfloat16, float16"),
    ],
)
def test_wrong_flags(source, refused, flags, said):
    assert refused(source, *flags).startswith(said)
