"""What the plan says is what a pass keeps, measured; and what follows from it, worked by hand."""

import gc
import json

import pytest
import torch
from typer.testing import CliRunner

from dares.bench.workloads import saved_bytes
from dares.commands.plan import parse_memory, plan_command
from dares.train.activations import activations
from dares.train.overrides import apply_overrides
from dares.train.plan import count_parameters, forward_flops, plan
from dares.train.recipe import build_model
from dares.train.recipes import PAPER_SCHEMES, recipe

SHAPES = {
    name: changes.split()
    for name, changes in {
        "bench": "model.width=128 model.layers=6 model.kv_heads=4 model.head_dim=32",
        "deep": "model.layers=29 data.row_tokens=33 depth.block=3",
        "odd": "model.width=88 model.heads=6 model.head_dim=18 model.mlp=201 model.layers=7 "
        "model.vocabulary=4099 data.row_tokens=67",
        "wide": "model.width=192 model.heads=2 model.head_dim=160 model.layers=3 "
        "model.vocabulary=9001 model.tied=false depth.block=1",
    }.items()
}
ROWS = 3


def shaped(shape, scheme, *more):
    base = apply_overrides(recipe("tiny"), [*SHAPES[shape], *more])
    return base.with_scheme(scheme)


def measured(made, *, checkpointing=False):
    """The pass that `dares bench memory` measures, and its model."""
    model = build_model(made).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    ids = torch.randint(made.model.vocabulary, (ROWS, made.data.row_tokens))

    def forward():
        with torch.autocast("cpu", torch.bfloat16, enabled=made.run.precision == "bf16"):
            return model(input_ids=ids, labels=ids, use_cache=False).loss

    return forward, {
        t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]
    }


def estimated(made, *, checkpointing=False):
    return activations(made, made.depth, rows=ROWS, checkpointing=checkpointing).kept


@pytest.mark.parametrize("scheme", PAPER_SCHEMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_kept(shape, scheme):
    made = shaped(shape, scheme)
    forward, ignore = measured(made)
    assert estimated(made) == pytest.approx(saved_bytes(forward, ignore=ignore), rel=0.1)


@pytest.mark.parametrize("scheme", PAPER_SCHEMES)
def test_kept_under_bf16_autocast(scheme):
    made = shaped("odd", scheme, "run.precision=bf16")
    forward, ignore = measured(made)
    assert estimated(made) == pytest.approx(saved_bytes(forward, ignore=ignore), rel=0.1)


@pytest.mark.parametrize("changes", [["depth.null_source=true"], ["depth.running=false"]])
def test_kept_with_other_choices(changes):
    made = shaped("odd", "delta_block")
    made = apply_overrides(made, changes)
    forward, ignore = measured(made)
    assert estimated(made) == pytest.approx(saved_bytes(forward, ignore=ignore), rel=0.1)


def held_bytes(forward, ignore):
    """What is alive after the forward: saved for the backward, or held by Python objects.

    Checkpointing holds a layer's arguments, which saved_bytes does not see.
    """
    gc.collect()
    there = {id(t) for t in gc.get_objects() if issubclass(type(t), torch.Tensor)}
    storages = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in ignore:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # a tensor that its own node holds would never be freed

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = forward()
    gc.collect()
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and id(thing) not in there:
            note(thing)
    total = sum(storages.values())
    del result
    return total


@pytest.mark.parametrize("scheme", PAPER_SCHEMES)
@pytest.mark.parametrize("shape", ["deep", "odd"])
def test_kept_when_checkpointed(shape, scheme):
    made = shaped(shape, scheme)
    forward, ignore = measured(made, checkpointing=True)
    held = held_bytes(forward, ignore)
    assert estimated(made, checkpointing=True) == pytest.approx(held, rel=0.1)


def test_products_by_torchs_own_count():
    """torch counts attention over the whole row; the plan, over the half that is looked at."""
    from torch.utils.flop_counter import FlopCounterMode

    made = shaped("odd", "standard")
    model, tokens = build_model(made), made.data.row_tokens
    model.set_attn_implementation("eager")  # torch does not count SDPA on a CPU
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.randint(9, (1, tokens)), use_cache=False)
    shape = made.model
    unseen = 2 * tokens * shape.heads * shape.head_dim * shape.layers
    counted = counter.get_total_flops()
    whole, layers = forward_flops(made)
    assert whole - layers == 2 * shape.width * shape.vocabulary
    assert counted == (whole + unseen) * tokens


def test_depth_adds_a_score_and_a_mix_for_each_source():
    standard, routed = (forward_flops(shaped("odd", name))[0] for name in ("standard", "delta"))
    sources = sum(range(2, 15))  # 14 sites: the first has nothing to choose, the last 14 sources
    assert routed - standard == 4 * 88 * sources


def test_states_and_batch():
    made = recipe("8b")
    found = plan(made, gpus=8, memory=80 * 10**9)
    total = count_parameters(made).total
    assert found.ddp.total == 16 * total
    assert found.fsdp.optimizer == pytest.approx(total)
    assert found.accumulation * 8 * made.batch.micro_rows == made.batch.rows
    assert found.tokens_per_step == 131_072
    assert found.flops < found.flops_recomputing < 1.34 * found.flops
    # 6 FLOPs a parameter and token, the usual estimate, leaves out attention alone
    assert 6 * total < found.flops < 6.5 * total
    alone = plan(made)
    assert alone.fsdp == alone.ddp
    assert alone.cases[0].ddp_fits is None


def test_what_fits():
    found = plan(recipe("8b"), gpus=8, memory=80 * 10**9)
    assert found.scheme == "delta_block"
    assert len(found.cases) == 2 * len(PAPER_SCHEMES)
    plain, checkpointed = (case for case in found.cases if case.scheme == "delta_block")
    assert not plain.ddp_fits
    assert not plain.fsdp_fits
    assert checkpointed.fsdp_fits
    for case in found.cases:
        assert case.ddp_rows == 0
        assert case.fsdp_fits == (case.fsdp_rows >= 2)
        made = recipe("8b").with_scheme(case.scheme)

        def fits(rows, made=made, checkpointing=case.checkpointing):
            peak = activations(made, made.depth, rows=rows, checkpointing=checkpointing).peak
            return peak + found.fsdp.total <= 0.95 * 80 * 10**9

        assert fits(case.fsdp_rows)
        assert case.fsdp_rows == 8 or not fits(2 * case.fsdp_rows)  # a GPU has 8 rows a step


def test_a_scheme_of_ones_own_is_a_case_too():
    made = apply_overrides(recipe("tiny"), ["depth.final=routed"])
    found = plan(made)
    assert found.scheme == "the recipe's"
    assert found.cases[0].activations == activations(
        made, made.depth, rows=made.batch.micro_rows, checkpointing=False
    )
    assert {case.scheme for case in found.cases} == {"the recipe's", *PAPER_SCHEMES}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: plan(recipe("8b"), gpus=0), "gpus must be at least 1, got 0"),
        (lambda: plan(recipe("8b"), gpus=3), "batch.rows must be a multiple of 3 GPUs .* 64 and 2"),
        (
            lambda: plan(apply_overrides(recipe("tiny"), ["model.family=llama"])),
            "the activation formula is that of family 'qwen3', got 'llama'",
        ),
        (
            lambda: plan(apply_overrides(recipe("tiny"), ["run.backend=naive"])),
            "backend 'naive' keeps every site's bank",
        ),
        (lambda: parse_memory("80"), "such as 80GB or 80GiB, got '80'"),
        (lambda: parse_memory("GB"), "such as 80GB or 80GiB, got 'GB'"),
        (lambda: parse_memory("0GB"), "such as 80GB or 80GiB, got '0GB'"),
        (lambda: parse_memory("8 floppies"), "such as 80GB or 80GiB, got '8 floppies'"),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_memory():
    assert parse_memory("80GB") == 80 * 10**9
    assert parse_memory("1.5 GiB") == 3 * 2**29
    assert parse_memory("512mb") == 512 * 10**6


def test_command(tmp_path):
    import typer

    app = typer.Typer()
    app.command()(plan_command)
    out = tmp_path / "plan.json"
    arguments = ["8b", "--gpus", "8", "--json", str(out)]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "7,568,987,136" in told
    assert "fits under ddp no, fsdp yes" in told
    assert max(map(len, result.output.splitlines())) <= 80
    written = json.loads(out.read_text())
    assert written["parameters"]["total"] == 7_568_987_136
    assert written["recipe"] == recipe("8b").to_dict()
    case = next(c for c in written["cases"] if c["scheme"] == "delta" and c["checkpointing"])
    assert case["activations"]["peak"] > case["activations"]["kept"] > 0
