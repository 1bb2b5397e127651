"""What a study refuses, and how one is asked for."""

from dataclasses import replace
from pathlib import Path

import pytest

from dares.study.ask import Request, build_study
from dares.study.study import TUNING_SEED, Study, Variant
from dares.train.overrides import apply_overrides
from dares.train.recipes import recipe
from tests.study.small import small_study


def variant(name, *changes, baseline="standard"):
    return Variant(name, apply_overrides(recipe("tiny"), changes), baseline)


STANDARD = variant("standard")


@pytest.mark.parametrize(
    ("variants", "options", "said"),
    [
        ((), {}, "study 's' has no variants"),
        ((STANDARD, STANDARD), {}, "has 2 variants of the name 'standard': rename them"),
        ((STANDARD, variant("a/b")), {}, "variant 'a/b' cannot name a folder"),
        ((variant("delta"),), {}, "'delta' is compared with 'standard', which is not in the study"),
        ((STANDARD,), {"seeds": ()}, "a study needs at least one seed, got none"),
        ((STANDARD,), {"seeds": (1, 1)}, r"seeds must differ .* got \(1, 1\)"),
        ((STANDARD,), {"seeds": (TUNING_SEED,)}, "between 0 and 999,999, got"),
        ((STANDARD,), {"rates": (1e-3, 2e-3)}, "at least three learning rates, .*got 0.001, 0.002"),
        ((STANDARD,), {"tuning_share": 0.0}, "share of the steps above 0, at most 1, got 0"),
        ((STANDARD,), {"tuning_share": 1.5}, "share of the steps above 0, at most 1, got 1.5"),
        ((STANDARD,), {"rates": (1e-3, 1e-3, 2e-3)}, "at least three learning rates, different"),
        ((STANDARD, variant("b", "run.steps=7")), {}, r"differ in run.steps \(60 and 7\)"),
        ((STANDARD, variant("b", "data.row_tokens=7")), {}, "'standard' and 'b' differ in data"),
    ],
)
def test_bad_studies(variants, options, said):
    with pytest.raises(ValueError, match=said):
        Study("s", "about", variants, **options)


def test_a_study_is_read_as_it_was_written(workshop):
    study = small_study(workshop, "delta", seeds=(3, 1), rates=(1e-3, 2e-3, 4e-3))
    study = replace(study, tuning_share=0.25)
    assert Study.from_dict(study.to_dict()) == study
    assert study.tokens == 12 * 8 * 32


def test_what_is_asked_for(workshop, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    asked = Request(
        "paper-table",
        recipe="tiny",
        inputs=[str(workshop.text)],
        changes=[
            "data.row_tokens=32",
            "optim.warmup=2",
            f"data.validation_inputs={Path(__file__).name}",
        ],
        seeds=4,
        tokens=1000,
        variants="standard,delta",
        tune="lr",
    )
    study = build_study(asked)
    assert study.seeds == (0, 1, 2, 3)
    assert [each.name for each in study.variants] == ["standard", "delta"]
    assert study.rates == (1e-3, 3e-3, 9e-3)
    own = study.variants[1].recipe
    assert own.run.steps == 4  # of 8 x 32 tokens: the last one reaches the budget
    assert own.data.inputs == (str(workshop.text.resolve()),)
    assert own.data.validation_inputs == (str(Path(__file__).resolve()),)
    rates = build_study(replace(asked, rates="1e-4,3e-4,1e-3")).rates
    assert rates == (1e-4, 3e-4, 1e-3)
    assert study.tuning_share == 0.5
    assert build_study(replace(asked, tune_share=0.25)).tuning_share == 0.25


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "controls", "variants": "skipp,standard"}, "unknown variant 'skipp'; did you m"),
        ({"variants": "delta"}, "'delta' is compared with 'standard', which is not in the study"),
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
        ({"tokens": 0}, "--tokens must be at least 1, got 0"),
        ({"tune": "wd"}, "unknown --tune 'wd'; choose from: lr"),
        ({"rates": "1e-3"}, "--rates is for --tune lr"),
        ({"tune_share": 0.5}, "--tune-share is for --tune lr"),
        ({"tune": "lr", "tune_share": 2.0}, "share of the steps above 0, at most 1, got 2"),
        ({"tune": "lr", "rates": "1e-3,x"}, "--rates must be numbers .* got '1e-3,x'"),
        ({"tune": "lr", "rates": "1e-3,2e-3"}, "at least three learning rates"),
        ({"tune": "lr", "rates": "nan,1e-3,2e-3"}, "finite and above zero, got nan, 0.001, 0.002"),
        ({"recipe": "tinny"}, "unknown recipe 'tinny'; did you mean 'tiny'"),
        ({"name": "paper-tabel"}, "unknown study 'paper-tabel'; did you mean 'paper-table'"),
        ({"name": "no.py:x"}, "there is no file no.py with a study in it"),
    ],
)
def test_what_cannot_be_asked_for(changes, said):
    with pytest.raises(ValueError, match=said):
        build_study(replace(Request("paper-table", recipe="tiny"), **changes))


OWN = """
from dataclasses import replace
from pathlib import Path
from dares.study.study import Study, Variant

def warmups(base):
    def at(steps):
        return replace(base, optim=replace(base.optim, warmup=steps))
    return Study(
        "warmups",
        "two warm-ups",
        (Variant("short", at(1), "short"), Variant("long", at(9), "short")),
        seeds=(0, 1),
    )

def wrong(base):
    return 3
"""


def test_a_study_of_ones_own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    study = build_study(Request(f"{path}:warmups", recipe="tiny"))
    assert study.name == "warmups"
    assert [each.recipe.optim.warmup for each in study.variants] == [1, 9]
    with pytest.raises(ValueError, match="unknown function of .*mine.py: 'warmup'; did you mean"):
        build_study(Request(f"{path}:warmup", recipe="tiny"))
    with pytest.raises(ValueError, match="must give a dares.study.study.Study, got 3"):
        build_study(Request(f"{path}:wrong", recipe="tiny"))
