"""The tools people already use: Trainer, PEFT, activation offload, a full inductor compile."""

import copy

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Trainer, TrainingArguments

import dares
from tests.models.families import (
    ALL,
    OTHERS,
    SCHEMES,
    converted,
    relative_difference,
    tiny_config,
    tiny_model,
    tokens,
    trained,
)


class Rows(torch.utils.data.Dataset):
    """Rows of tokens, with a column that the model does not take."""

    def __init__(self, count=12):
        self.rows = tokens(count, 10)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return {"input_ids": row, "labels": row, "not_an_argument": index}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(
    ("family", "scheme"),
    [
        *((family, scheme) for family in ("qwen3", "gpt2", "gpt_neox") for scheme in SCHEMES),
        *(("qwen3", scheme) for scheme in OTHERS),
    ],
)
def test_trainer(family, scheme, checkpointing, tmp_path):
    model = converted(tiny_model(family), scheme)
    start = {n: p.detach().clone() for n, p in model.base_model.depth.named_parameters()}
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=5,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        gradient_checkpointing=checkpointing,
        save_steps=5,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Rows())
    result = trainer.train()
    assert result.global_step == 5
    assert torch.isfinite(torch.tensor(result.training_loss))
    assert all(not torch.equal(p, start[n]) for n, p in model.base_model.depth.named_parameters())
    again = type(model).from_pretrained(tmp_path / "checkpoint-5")
    ids = tokens()
    with torch.no_grad():
        assert torch.equal(again.eval()(ids).logits, model.eval()(ids).logits)


def test_trainer_refuses_reentrant_checkpointing(tmp_path):
    model = dares.from_config(tiny_config("llama"), dares.preset("delta"))
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=1,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        report_to="none",
        use_cpu=True,
    )
    with pytest.raises(ValueError, match="use_reentrant=False"):
        Trainer(model=model, args=arguments, train_dataset=Rows()).train()


def lora_step(model):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for seed in range(3):
        ids = tokens(seed=seed)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("scheme", ["delta", "delta_block", "gate", *OTHERS])
def test_lora(scheme, tmp_path):
    base = copy.deepcopy(trained("llama", scheme))
    before = {name: tensor.clone() for name, tensor in base.base_model.depth.state_dict().items()}
    model = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    depth = model.get_base_model().base_model.depth
    assert not any(parameter.requires_grad for parameter in depth.parameters())
    lora_step(model)
    assert all(torch.equal(depth.state_dict()[name], tensor) for name, tensor in before.items())
    ids = tokens()
    with torch.no_grad():
        expected = model.eval()(ids).logits
        assert relative_difference(expected, trained("llama", scheme)(ids).logits) > 1e-4
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(copy.deepcopy(trained("llama", scheme)), tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(ids).logits, expected)


@pytest.mark.parametrize("scheme", ["delta", "delta_block", "gate"])
def test_lora_with_trained_routers(scheme, tmp_path):
    settings = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["depth"])
    base = tiny_model("llama")
    model = get_peft_model(dares.convert(base, SCHEMES[scheme]), settings)
    lora_step(model)
    ids = tokens()
    with torch.no_grad():
        out = model.eval()(ids, output_routing=True)
    assert any((w - 1 / w.shape[-1]).abs().max() > 1e-4 for w in out.routing if w is not None)
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(dares.convert(tiny_model("llama"), SCHEMES[scheme]), tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(ids).logits, out.logits)


@pytest.mark.parametrize("scheme", ALL)
def test_activation_offload(scheme):
    model, ids = copy.deepcopy(trained("qwen3", scheme)), tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    with torch.autograd.graph.save_on_cpu():
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[name], msg=name)


@pytest.mark.parametrize("part", ["base", "routers"])
@pytest.mark.parametrize("scheme", ALL)
def test_frozen_parts(scheme, part):
    model, ids = copy.deepcopy(trained("olmo2", scheme)), tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_((".depth." in name) == (part == "base"))
    model(input_ids=ids, labels=ids).loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, expected[name], msg=name)
        else:
            assert parameter.grad is None


@pytest.mark.parametrize("scheme", ALL)
def test_optimizer_state_resumes(scheme):
    """Every parameter has an optimizer state after one step, so a resume finds what it expects."""
    model, ids = copy.deepcopy(trained("gpt_neox", scheme)), tokens()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    assert len(optimizer.state) == len(list(model.parameters()))
    again = torch.optim.AdamW(model.parameters(), lr=1e-3)
    again.load_state_dict(optimizer.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ALL)
def test_inductor(scheme):
    model, ids = copy.deepcopy(trained("qwen3", scheme)), tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    torch._dynamo.reset()
    out = torch.compile(model, fullgraph=True)(ids, labels=ids)
    out.loss.backward()
    with torch.no_grad():
        assert relative_difference(out.logits, model(ids).logits) < 1e-5
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6, msg=name)
