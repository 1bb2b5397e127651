"""Fine-tuning: what learns and what does not, where it starts, what it leaves, how it goes on."""

import json
import signal

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader
from transformers import AutoTokenizer, GenerationConfig

import dares
from dares.train.loop import prepare_data
from dares.train.optim import build_optimizer
from dares.train.recipe import Recipe, build_model
from tests.train.runs import (
    Signals,
    assert_same_run,
    assert_same_weights,
    figures,
    validation_loss,
    weights,
)
from tests.train.tuning import Tuning, load, logits, model_type
from tests.train.two_ranks import run_on_two_ranks

WAYS = {
    "full": (),
    "base": ("start.freeze=base",),
    "routers": ("start.freeze=routers",),
    "lora": ("start.lora_rank=2",),
}


@pytest.fixture(scope="module")
def tuning(workshop):
    return Tuning(workshop)


@pytest.fixture(scope="module")
def runs(tuning):
    """One run of every way."""
    return {way: tuning.train(f"tuned-{way}", *changes).folder for way, changes in WAYS.items()}


@pytest.fixture(scope="module")
def plain(tuning):
    """The standard baseline: the same steps on the same rows."""
    return tuning.train("tuned-plain", start=tuning.base).folder


def is_router(name):
    return ".depth." in name


# -- what learns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "base_moves", "routers_move"),
    [("full", True, True), ("base", False, True), ("routers", True, False), ("lora", True, True)],
)
def test_what_is_frozen_keeps_its_bits(tuning, runs, way, base_moves, routers_move):
    before = load_file(tuning.routed / "model.safetensors")
    after = weights(runs[way])
    assert after.keys() == before.keys()
    for name, tensor in after.items():
        # LoRA is in the layers' matrices alone
        lora_leaves = way == "lora" and not name.endswith("proj.weight") and not is_router(name)
        moves = routers_move if is_router(name) else base_moves and not lora_leaves
        assert torch.equal(tensor, before[name]) is not moves, name


def test_optimizer_leaves_out_what_is_frozen(tuning):
    for way, changes in WAYS.items():
        recipe = tuning.recipe(*changes)
        model = build_model(recipe)
        groups = build_optimizer(model, recipe.optim).param_groups
        held = {id(p) for group in groups for p in group["params"]}
        assert held == {id(p) for p in model.parameters() if p.requires_grad}, way
        for group in groups:
            routers = {id(p) for p in model.base_model.depth.parameters()}
            ours = {id(p) in routers for p in group["params"]}
            assert ours == {group["peak"] == 5e-2}
            assert group["weight_decay"] == 0 or ours == {False}


def test_the_papers_recipe_is_the_default(tuning):
    recipe = Recipe.from_dict(json.loads(json.dumps(tuning.recipe().to_dict())))
    assert recipe == tuning.recipe()
    from dares.train.recipes.finetune import finetune

    optim = finetune(str(tuning.routed), ["text.txt"]).optim
    assert (optim.lr, optim.router_lr, optim.betas) == (5e-5, 5e-3, (0.9, 0.95))
    assert (optim.clip, optim.final_lr, optim.warmup) == (1.0, 0.1, 100)


# -- where it starts, and what is said of it -----------------------------------------------------


def test_standard_and_routed_start_alike(tuning, runs, plain):
    """On disk or on the way, converted or not: the loss of step 0 is that of the base itself."""
    on_the_way = tuning.train(
        "on-the-way", "depth=delta_block", "depth.block=2", start=tuning.base
    ).folder
    rows = prepare_data(tuning.recipe(), tuning.cache).validation
    expected = validation_loss(load(tuning.base), rows)
    for run in (plain, on_the_way, *runs.values()):
        (step, first), *_, (last_step, last) = figures(run, "validation_loss")
        assert (step, last_step) == (0, 6)
        assert first == pytest.approx(expected, abs=1e-5)
        assert last < first
    assert_same_run(on_the_way, runs["full"])


def test_what_is_printed(tuning):
    reporter = Signals(0)
    result = tuning.train("printed", "start.freeze=base", reporter=reporter)
    learn = sum(p.numel() for p in load(tuning.routed).model.depth.parameters())
    total = sum(p.numel() for p in load(tuning.routed).parameters())
    assert reporter.said == [
        f"{learn:,} of {total:,} parameters learn ({learn / total:.2%})",
    ]
    losses = [loss for _, loss in figures(result.folder, "validation_loss")]
    assert result.validation_losses == (losses[0], losses[-1])


# -- what it leaves ------------------------------------------------------------------------------


def test_the_model_it_leaves(tuning, runs):
    for way, run in runs.items():
        assert model_type(run / "model") == "dares_llama"
        kept = GenerationConfig.from_pretrained(run / "model")
        assert (kept.temperature, kept.do_sample) == (0.7, True)
        tokenizer = AutoTokenizer.from_pretrained(run / "model")
        assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(tuning.base).get_vocab()
        card = (run / "model" / "README.md").read_text()
        assert "fine-tuned from routed" in card
        assert ("LoRA of rank 2" in card) == (way == "lora")
        rows = prepare_data(tuning.recipe(), tuning.cache).validation
        expected = figures(run, "validation_loss")[-1][1]
        assert validation_loss(load(run / "model"), rows) == pytest.approx(expected, abs=1e-5)


def test_plain_stays_plain(plain):
    """It loads where there is no dares, and has no routers to leave."""
    assert model_type(plain / "model") == "llama"
    assert type(load(plain / "model")).__name__ == "LlamaForCausalLM"
    assert not (plain / "routers").exists()


def test_a_run_is_a_start_too(tuning, runs):
    """The loss that one ended with is the one that the next begins with."""
    again = tuning.train("tuned-twice", start=runs["full"], steps=1).folder
    ended = figures(runs["full"], "validation_loss")[-1][1]
    assert figures(again, "validation_loss")[0][1] == pytest.approx(ended, abs=1e-5)


def test_adapters_give_the_model_back(tuning, runs):
    for way, run in runs.items():
        assert (run / "routers").exists() == (way in ("base", "lora"))
        assert (run / "lora").exists() == (way == "lora")
    routed = dares.load_routers(load(tuning.base), runs["base"] / "routers")
    assert torch.equal(logits(routed), logits(load(runs["base"] / "model")))

    routed = dares.load_routers(load(tuning.base), runs["lora"] / "routers")
    both = PeftModel.from_pretrained(routed, runs["lora"] / "lora").eval()
    expected = logits(load(runs["lora"] / "model"))  # merged, so that it is equal to rounding
    torch.testing.assert_close(logits(both), expected, rtol=1e-4, atol=1e-4)


def test_lora_of_a_plain_model(tuning):
    run = tuning.train("plain-lora", "start.lora_rank=2", start=tuning.base).folder
    assert not (run / "routers").exists()
    both = PeftModel.from_pretrained(load(tuning.base), run / "lora").eval()
    torch.testing.assert_close(logits(both), logits(load(run / "model")), rtol=1e-4, atol=1e-4)


def test_lora_targets(tuning):
    changes = ("start.lora_rank=2", "start.lora_targets=q_proj", "start.lora_alpha=8")
    model = build_model(tuning.recipe(*changes))
    learn = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all(is_router(name) or ".q_proj.lora_" in name for name in learn)
    layer = model.model.layers[0].self_attn.q_proj
    assert (layer.r["default"], layer.scaling["default"]) == (2, 4.0)


# -- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["base", "lora"])
def test_exact_resume(tuning, runs, way):
    name, changes = f"resumed-{way}", WAYS[way]
    stopped = tuning.train(name, *changes, reporter=Signals(3, signal.SIGTERM))
    assert (stopped.finished, stopped.step) == (False, 3)
    again = tuning.train(name, *changes, resume=True)
    assert_same_run(again.folder, runs[way])
    losses = [loss for _, loss in figures(runs[way], "validation_loss")]
    assert again.validation_losses == (losses[0], losses[-1])


def test_resume_before_any_checkpoint_validates_the_start_once(tuning, runs):
    with pytest.raises(KeyboardInterrupt):
        tuning.train("early", reporter=Interrupting())
    assert [step for step, _ in figures(tuning.folder / "early", "validation_loss")] == [0]
    again = tuning.train("early", resume=True)
    assert_same_run(again.folder, runs["full"])


class Interrupting(Signals):
    def __init__(self):
        super().__init__(0)

    def step(self, line):
        raise KeyboardInterrupt


def test_checkpoints_hold_what_learns(runs):
    """Of a frozen base nothing, a tied head under its second name neither."""
    for way, run in runs.items():
        newest = max((run / "checkpoints").iterdir())
        names = FileSystemReader(newest).read_metadata().state_dict_metadata
        held = {name for name in names if name.startswith("model.")}
        assert held
        if way in ("base", "routers"):
            assert {is_router(name) for name in held} == {way == "base"}
        if way == "lora":
            assert all(is_router(name) or ".lora_" in name for name in held)


def test_a_start_that_changed_is_refused(tuning):
    start = tuning.folder / "moved"
    load(tuning.routed).save_pretrained(start)
    AutoTokenizer.from_pretrained(tuning.routed).save_pretrained(start)
    changes = ("start.freeze=base",)
    tuning.train("moved-run", *changes, start=start, reporter=Signals(3, signal.SIGTERM))
    model = load(start)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] += 1
    model.save_pretrained(start)
    with pytest.raises(ValueError, match="the model that .* started from has other weights now"):
        tuning.train("moved-run", *changes, start=start, resume=True)


def test_other_settings_are_refused_at_resume(tuning, runs):
    with pytest.raises(ValueError, match="start.freeze was none, is base"):
        tuning.train("tuned-full", "start.freeze=base", resume=True)


# -- how it is computed --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_two_ranks(tuning, runs, mode):
    ways = ("base", "lora")
    jobs = [
        {"name": f"{mode}-{way}", "mode": mode, "recipe": tuning.recipe(*WAYS[way]).to_dict()}
        for way in ways
    ]
    assert run_on_two_ranks(tuning.workshop, jobs).strip() == ""
    for way in ways:
        run = tuning.folder / f"{mode}-{way}"
        assert_same_weights(run, runs[way], 1e-5)
        assert (run / "routers").is_dir()


@pytest.mark.parametrize("way", ["base", pytest.param("lora", marks=pytest.mark.slow)])
def test_gradient_checkpointing_and_bf16(tuning, runs, way):
    """Recomputed to the same figures; in bf16 near them, the frozen base still to the bit."""
    recomputed = tuning.train(
        f"recomputed-{way}", *WAYS[way], "run.gradient_checkpointing=true"
    ).folder
    assert_same_weights(recomputed, runs[way], 1e-5)
    narrow = tuning.train(f"bf16-{way}", *WAYS[way], "run.precision=bf16").folder
    losses, full = ([loss for _, loss in figures(r, "loss")] for r in (narrow, runs[way]))
    assert losses != full
    assert losses == pytest.approx(full, abs=0.1)
    embedding = "model.embed_tokens.weight"
    assert torch.equal(weights(narrow)[embedding], weights(runs[way])[embedding])
