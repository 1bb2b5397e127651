"""docs/study.md is held to the code."""

import re
from dataclasses import replace

from dares.study import claims
from dares.study.ask import Request, build_study
from dares.study.measure import PROBED_ROWS
from dares.study.studies import STUDIES
from dares.study.study import Study
from tests.train.runs import ROOT

TEXT = (ROOT / "docs" / "study.md").read_text()


def test_the_page_names_every_study():
    assert re.findall(r"^\| `([\w-]+)` \| ", TEXT.split("## What is the same")[0], re.M) == [
        *STUDIES
    ]


def test_its_numbers_are_the_codes():
    flat = " ".join(TEXT.split())
    assert f"heartbeat every {claims.BEAT:.0f} seconds" in flat
    assert f"stood still for {claims.STALE / 60:.0f} minutes" in flat
    assert f"on {PROBED_ROWS} validation rows" in flat
    assert Study.tuning_share == 0.5
    assert "half of the steps" in flat


def test_its_example_is_a_study(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "my_studies.py"
    path.write_text(code)
    study = build_study(Request(f"{path}:merges"))
    assert [variant.name for variant in study.variants] == ["standard", "add", "gate"]
    assert len(study.seeds) == 4


def test_the_published_settings_are_what_the_page_says():
    words = " ".join(re.findall(r'^(?:SET|TUNE)="(.*)"$', TEXT, re.M)).split()
    changes = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    (tokens,) = {
        int(tokens) for tokens in re.findall(r"^dares .* \$SET \$TUNE --tokens (\d+) ", TEXT, re.M)
    }
    rates = words[words.index("--rates") + 1]
    asked = Request(
        "paper-table", recipe="mini", changes=changes, tokens=tokens, tune="lr", rates=rates
    )
    study = build_study(replace(asked, seeds=4))
    shape = study.variants[0].recipe.model
    assert (shape.width, shape.layers, shape.vocabulary) == (64, 16, 4096)
    assert study.tokens >= tokens == 1_000_000
    # what the other studies take from it is the same run
    blocks = [study.variant("delta_block").recipe.depth]
    blocks.append(build_study(replace(asked, name="init")).variant("delta_block").recipe.depth)
    final = build_study(replace(asked, name="final"))
    blocks.append(final.variant("delta_block-stream-tied").recipe.depth)
    assert blocks[0] == blocks[1] == blocks[2]
