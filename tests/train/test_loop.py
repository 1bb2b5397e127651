"""A run in one process: what it leaves, and that how it is computed does not change what it is."""

import io
import json

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from dares.data.loader import Loader
from dares.train.engine import Engine
from dares.train.loop import prepare_data
from dares.train.manifest import find_damage
from dares.train.metrics import FILE, read_metrics
from dares.train.parallel import joined
from dares.train.report import TerminalReporter
from tests.data.texts import stories, write_jsonl
from tests.train.runs import assert_same_weights, figures, validation_loss, weights

FIGURES = (
    *("loss", "lr", "gradient_norm", "tokens_per_second", "memory_mb"),
    *("largest_weight", "routing_entropy"),
)


def test_what_a_run_leaves(workshop, undisturbed):
    lines = figures(undisturbed, *FIGURES)
    assert [line[0] for line in lines] == list(range(1, 13))
    assert all(value > 0 for line in lines for value in line)
    assert lines[-1][1] < lines[0][1] - 0.5  # it learns
    assert [step for step, _ in figures(undisturbed, "validation_loss")] == [6, 12]

    kept = sorted((undisturbed / "checkpoints").iterdir())
    assert [path.name for path in kept] == ["step-00000008", "step-00000012"]
    assert [find_damage(path) for path in kept] == [None, None]

    model = undisturbed / "model"
    assert (model / "curves.png").read_bytes()[:4] == b"\x89PNG"
    card = (model / "README.md").read_text()
    assert json.dumps(workshop.recipe().to_dict(), indent=1) in card
    assert f"Validation loss {figures(undisturbed, 'validation_loss')[-1][1]:.4f}" in card


def test_the_model_loads_and_has_the_validation_loss(workshop, undisturbed):
    model = AutoModelForCausalLM.from_pretrained(undisturbed / "model")
    tokenizer = AutoTokenizer.from_pretrained(undisturbed / "model")
    assert tokenizer.decode(tokenizer("a delta").input_ids) == "a delta"
    rows = prepare_data(workshop.recipe(), workshop.cache).validation
    assert rows.lengths[-1] < rows.row_tokens  # a padded row, weighed by its tokens
    expected = figures(undisturbed, "validation_loss")[-1][1]
    assert validation_loss(model, rows) == pytest.approx(expected, abs=1e-5)


def test_validation_text_of_its_own(workshop):
    other = write_jsonl(workshop.folder / "other.jsonl", stories(9, seed=5))
    changes = [f"data.validation_inputs={other}", "run.steps=2"]
    workshop.train("own-validation", *changes)
    data = prepare_data(workshop.recipe(*changes), workshop.cache)
    assert (data.train.documents, data.validation.documents) == (30, 9)
    run = workshop.folder / "own-validation"
    model = AutoModelForCausalLM.from_pretrained(run / "model")
    expected = figures(run, "validation_loss")[-1][1]
    assert validation_loss(model, data.validation) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "tolerance"),
    [
        ("batch.micro_rows=8", 1e-5),  # one large batch
        ("batch.micro_rows=1", 1e-5),
        ("run.gradient_checkpointing=true", 1e-6),
        ("run.deterministic=true", 0),
    ],
)
def test_how_it_is_computed_changes_nothing(workshop, undisturbed, change, tolerance):
    run = workshop.train(f"computed-{change}", change).folder
    assert_same_weights(run, undisturbed, tolerance)
    assert not torch.are_deterministic_algorithms_enabled()  # put back as it was


def test_seeds_differ(workshop, undisturbed):
    other = weights(workshop.train("seed", "run.seed=1", "run.steps=2").folder)
    mine = weights(undisturbed)
    assert not torch.equal(other["model.norm.weight"], mine["model.norm.weight"])
    assert not torch.equal(other["model.embed_tokens.weight"], mine["model.embed_tokens.weight"])


def test_bf16_keeps_float32_weights(workshop, undisturbed):
    run = workshop.train("bf16", "run.precision=bf16").folder
    assert {tensor.dtype for tensor in weights(run).values()} == {torch.float32}
    low, full = figures(run, "loss"), figures(undisturbed, "loss")
    assert low != full
    assert low[-1][1] == pytest.approx(full[-1][1], abs=0.05)


def test_a_padded_row_counts_by_its_tokens(workshop):
    recipe = workshop.recipe("batch.micro_rows=2")
    rows = prepare_data(recipe, workshop.cache).train
    padded = len(rows) - 1
    assert rows.lengths[padded] < rows.row_tokens - 1
    loader = Loader(rows, rows_per_step=8, seed=0)
    step = next(step for step in range(12) if padded in loader.indices(step))
    with joined(None) as ranks:
        engine = Engine(recipe, ranks)
        logits = engine.model(loader.batch(step)["input_ids"]).logits[:, :-1]
        labels = loader.batch(step)["labels"][:, 1:]
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        expected.backward()
        grads = [parameter.grad.clone() for parameter in engine.model.parameters()]
        norm = torch.nn.utils.get_total_norm(grads)
        engine.optimizer.zero_grad()
        result = engine.step(loader, step)
    assert result.loss == pytest.approx(expected.item(), abs=1e-6)
    assert result.gradient_norm == pytest.approx(norm.item(), rel=1e-5)


def test_clipping(workshop):
    """AdamW hides the size of a gradient; its second moment does not."""
    recipe = workshop.recipe("optim.clip=0.001")
    loader = Loader(prepare_data(recipe, workshop.cache).train, rows_per_step=8, seed=0)
    with joined(None) as ranks:
        engine = Engine(recipe, ranks)
        result = engine.step(loader, 0)
    squares = sum(state["exp_avg_sq"].sum() for state in engine.optimizer.state.values())
    seen = (squares / (1 - recipe.optim.betas[1])).sqrt().item()
    assert result.gradient_norm > 0.1
    assert seen == pytest.approx(0.001, rel=1e-3)


def test_standard_residuals_have_no_routing(workshop):
    run = workshop.train("standard", "depth=standard", "run.steps=2").folder
    line = read_metrics(run / FILE)[0]
    assert line["largest_weight"] is None
    assert line["routing_entropy"] is None


def test_plain_lines_and_a_bar(workshop):
    plain, bar = io.StringIO(), io.StringIO()
    consoles = (
        Console(file=plain, width=200),
        Console(file=bar, width=200, force_terminal=True, force_interactive=True),
    )
    for name, console in zip(("plain", "bar"), consoles, strict=True):
        workshop.train(name, "run.steps=2", reporter=TerminalReporter(console))
    warning, first, second, validation = plain.getvalue().splitlines()
    assert warning == (
        "optim.warmup (3) is more than run.steps (2): the learning rate never reaches optim.lr"
    )
    assert first.startswith("step 1/2  loss 5.")
    for word in ("lr 3.33e-03", "grad", "tok/s", "MB", "weight", "entropy"):
        assert word in first
    assert second.startswith("step 2/2  loss")
    assert validation.startswith("step 2/2  validation loss")
    assert "2/2" in bar.getvalue()
    assert "left" in bar.getvalue()
    assert "step 1/2" not in bar.getvalue()


@pytest.mark.slow
def test_compiled(workshop, undisturbed):
    run = workshop.train("compiled", "run.compile=true").folder
    assert_same_weights(run, undisturbed, 1e-4)
