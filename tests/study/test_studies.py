"""The studies that come with dares: what they compare, and that the comparison is fair."""

from dataclasses import replace

import pytest
import torch

from dares.presets import preset
from dares.study.shapes import same_parameters
from dares.study.studies import STUDIES
from dares.train.overrides import apply_overrides
from dares.train.plan import count_parameters
from dares.train.recipe import build_model
from dares.train.recipes import recipe
from tests.train.runs import PROBE

NAMES = {
    "paper-table": ["standard", "attnres_block", "attnres", "delta_block", "delta"],
    "grid": [
        "standard",
        *(f"{s}-{m}" for s in ("cumulative", "sublayer", "block") for m in ("replace", "add")),
    ],
    "controls": [
        *("standard", "delta", "cumulative", "normed", "projected", "delta-unscaled", "skip"),
    ],
    "block-size": ["standard", "block-1", "block-2", "block-4", "block-8"],
    "init": [
        *("standard", "delta_block", "normal-queries", "no-running", "normal-no-running"),
        *("null", "gate"),
    ],
    "depth": [f"{s}-{n}" for n in (8, 16, 32) for s in ("standard", "delta_block", "delta")],
}


@pytest.fixture(scope="module")
def studies():
    return {name: make(recipe("mini")) for name, make in STUDIES.items()}


def test_what_they_compare(studies):
    assert {study.name for study in studies.values()} == set(STUDIES)
    for name, expected in NAMES.items():
        assert [variant.name for variant in studies[name].variants] == expected
    names = [variant.name for variant in studies["all-schemes"].variants]
    assert names == [*NAMES["paper-table"], "ddl", "hyper", "mhc", "dense"]
    assert all(study.about and len(study.seeds) >= 3 for study in studies.values())


def test_only_what_is_compared_differs(studies):
    base = recipe("mini")
    for name, study in studies.items():
        for variant in study.variants:
            alike = replace(
                variant.recipe,
                name=base.name,
                depth=base.depth,
                model=base.model if name in ("final", "depth") else variant.recipe.model,
            )
            assert alike == base, variant.name
            assert variant.baseline == variant.name or variant.recipe.depth != preset("standard")


def test_final_crosses_schemes_reads_and_tying(studies):
    found = {
        variant.name: (
            variant.recipe.depth.to_dict().get("merge"),
            variant.recipe.depth.to_dict().get("final", "stream"),
            variant.recipe.model.tied,
            variant.baseline,
        )
        for variant in studies["final"].variants
    }
    assert len(found) == 12
    for tying, tied in (("tied", True), ("untied", False)):
        base = f"standard-stream-{tying}"
        assert found[base] == (None, "stream", tied, base)
        assert found[f"standard-routed-{tying}"] == ("none", "routed", tied, base)
        for scheme in ("delta", "delta_block"):
            for read in ("stream", "routed"):
                assert found[f"{scheme}-{read}-{tying}"] == ("add", read, tied, base)


@pytest.mark.parametrize("layers", [3, 6, 16])
def test_block_sizes_end_with_all_layers(layers):
    base = apply_overrides(recipe("mini"), [f"model.layers={layers}"])
    sizes = [v.recipe.depth.block for v in STUDIES["block-size"](base).variants[1:]]
    assert sizes == {3: [1, 2, 3], 6: [1, 2, 4, 6], 16: [1, 2, 4, 8, 16]}[layers]


@pytest.mark.parametrize("name", ["mini", "220m"])
def test_depths_have_the_same_parameters(name):
    base = recipe(name)
    standard = replace(base, depth=preset("standard"))
    wanted = count_parameters(standard).total
    for layers in (8, 16, 32):
        shaped = same_parameters(standard, layers)
        assert shaped.model.layers == layers
        assert count_parameters(shaped).total == pytest.approx(wanted, rel=0.02)
        assert shaped.model.head_dim * shaped.model.heads == shaped.model.width
        assert (
            1 / 3 < shaped.model.mlp / shaped.model.width / (base.model.mlp / base.model.width) < 3
        )


def test_no_model_of_that_depth():
    thin = ["model.width=4", "model.head_dim=2", "model.heads=2", "model.mlp=1", "model.layers=1"]
    small = apply_overrides(
        recipe("tiny"), [*thin, "depth=standard", "model.vocabulary=300", "data.vocabulary=300"]
    )
    with pytest.raises(ValueError, match="no model of 32 layers has .* to within 2 %"):
        same_parameters(small, 32)


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "depth"])
def test_every_variant_of_a_seed_starts_with_the_same_base_weights(name):
    base = apply_overrides(recipe("tiny"), [c for c in PROBE if not c.startswith("depth")])
    starts = {}
    for variant in STUDIES[name](base).variants:
        torch.manual_seed(7)
        model = build_model(variant.recipe)
        weights = {n: p for n, p in model.named_parameters() if ".depth." not in n}
        first = starts.setdefault(variant.recipe.model.tied, weights)
        assert weights.keys() == first.keys()
        assert all(torch.equal(weights[n], first[n]) for n in weights), variant.name
    if len(starts) == 2:  # tied and untied share what both have
        assert all(torch.equal(starts[True][n], starts[False][n]) for n in starts[True])
