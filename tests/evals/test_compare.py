"""Comparisons: what is found on made results with known answers, and what is refused."""

import copy
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import dares
from dares import cli
from dares.evals.compare import cells, compare, markdown
from dares.evals.paper8 import PAPER8
from tests.data.texts import stories, write_jsonl
from tests.evals.models import save_model

runner = CliRunner()


def task(values, *, higher=True, limit=None):
    return {
        "kind": "task",
        "settings": {"limit": limit, "data": "harness", "shots": 0, "seed": 0},
        "metric": "acc",
        "higher_is_better": higher,
        "items": [
            {"id": f"t/{n}", "hash": f"h{n}", "values": {"acc": float(value)}}
            for n, value in enumerate(values)
        ],
    }


def text(nats, tokens=None, *, pieces=None, bits=1.0):
    tokens = [100] * len(nats) if tokens is None else tokens
    return {
        "kind": "text",
        "settings": {"limit": None, "text": "x", "window": 64, "stride": 32},
        "bits_per_byte": bits,
        "documents": [
            {
                "hash": f"d{n}",
                "bytes": 400,
                "tokens": count,
                "nats": value,
                "pieces": pieces or [[400, count, value]],
            }
            for n, (value, count) in enumerate(zip(nats, tokens, strict=True))
        ],
    }


def of(name, *entries, **rest):
    labels = [f"m{number}" for number in range(len(entries))]
    return compare(labels, [{name: entry} for entry in entries], [name], **rest)


def correct(share, units=400, seed=0):
    return np.random.default_rng(seed).random(units) < share


def test_a_clear_winner_is_bold():
    base = correct(0.5)
    better = base | correct(0.2, seed=1)
    first, second = of("t", task(base), task(better))
    assert first.difference is None
    assert second.difference == pytest.approx(better.mean() - base.mean())
    assert 0 < second.low < second.difference < second.high
    assert second.p < 0.001
    assert second.better
    assert second.changed == (better != base).sum()
    assert f"**{better.mean():.4f}**" in cells(second)


def test_a_clear_loser_is_not():
    base = correct(0.5)
    (_, worse) = of("t", task(base | correct(0.2, seed=1)), task(base))
    assert worse.high < 0
    assert not worse.better
    assert "**" not in markdown([worse])


def test_lower_may_be_better():
    base, other = correct(0.6), correct(0.6) & correct(0.8, seed=1)
    assert of("t", task(base, higher=False), task(other, higher=False))[1].better


def test_no_winner_where_the_interval_holds_zero():
    winners = 0
    for seed in range(20):
        rows = of("t", task(correct(0.5, 60, seed)), task(correct(0.6, 60, seed + 100)))
        row = rows[1]
        assert row.better == (row.low > 0)
        assert ("**" in markdown(rows)) == row.better
        winners += row.better
    assert 0 < winners < 20  # both were met


def test_equal_results():
    base = correct(0.5, 50)
    row = of("t", task(base), task(base))[1]
    assert (row.difference, row.low, row.high, row.p, row.changed) == (0, 0, 0, 1, 0)
    assert not row.better


def test_a_third_model_does_not_change_the_second():
    one, two, three = (task(correct(share, seed=s)) for s, share in enumerate((0.5, 0.55, 0.9)))
    assert of("t", one, two) == of("t", one, two, three)[:2]
    assert of("t", one, two, seed=1)[1].low != of("t", one, two)[1].low


def test_mean_of_the_eight():
    results = [
        {name: task(correct(share, 50, seed=n)) for n, name in enumerate(PAPER8)}
        for share in (0.3, 0.8)
    ]
    rows = compare(["a", "b"], results, list(PAPER8))
    base, other = (row for row in rows if row.task == "mean of paper8")
    values = [row.value for row in rows if row.model == "b" and row.task in PAPER8]
    assert other.value == pytest.approx(np.mean(values))
    assert other.units == 400
    assert other.difference == pytest.approx(other.value - base.value)
    wide = [row.high - row.low for row in rows if row.model == "b" and row.task in PAPER8]
    # eight independent tasks: narrower by the root of eight
    assert other.high - other.low == pytest.approx(np.mean(wide) / np.sqrt(8), rel=0.1)
    assert other.better
    assert len(compare(["a", "b"], results, ["piqa"])) == 2  # no mean of fewer


def test_tasks_of_one_size_are_not_resampled_in_step():
    """Opposite tasks would cancel in every resample."""
    base = task(np.zeros(50))
    up, down = correct(0.5, 50).astype(float), -correct(0.5, 50).astype(float)
    names = list(PAPER8)
    first = dict.fromkeys(names, base)
    second = {name: task(up if n % 2 else down) for n, name in enumerate(names)}
    row = compare(["a", "b"], [first, second], names)[-1]
    assert row.difference == pytest.approx(0)
    assert row.high - row.low > 0.05


def test_text_by_documents_in_nats_per_token():
    random = np.random.default_rng(0)
    tokens = random.integers(50, 200, 40)
    base = tokens * 3.0
    other = base - tokens * random.normal(0.1, 0.02, 40)
    row = of("val", text(base, tokens), text(other, tokens))[1]
    assert (row.metric, row.unit, row.units) == ("nats per token", "documents", 40)
    assert row.value == pytest.approx(other.sum() / tokens.sum())
    assert row.difference == pytest.approx((other - base).sum() / tokens.sum())
    assert row.better


def test_few_documents_are_compared_by_their_pieces():
    pieces = [[200, 50, 120.0], [200, 50, 130.0]]
    row = of("val", text([250.0] * 3, pieces=pieces), text([250.0] * 3, pieces=pieces))[1]
    assert (row.unit, row.units) == ("pieces", 6)


def test_other_tokenizers_are_compared_in_bits_per_byte():
    base, other = text([300.0] * 40), text([280.0] * 40, tokens=[80] * 40)
    row = of("val", base, other)[1]
    assert row.metric == "bits per byte"
    assert row.value == pytest.approx(280 / np.log(2) / 400)
    with pytest.raises(ValueError, match="the tokenizers differ, and one has neither BOS nor EOS"):
        of("val", base, text([280.0] * 40, tokens=[80] * 40, bits=None))


def test_a_single_piece_gives_no_interval():
    row = of("val", text([300.0]), text([290.0]))[1]
    assert (row.low, row.high, row.p, row.better) == (None, None, None, False)
    assert "one unit: not known" in cells(row)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda e: e["settings"].update(limit=5), "limit None against 5"),
        (lambda e: e["settings"].update(data="local 1"), "data harness against local 1"),
        (lambda e: e["items"].pop(), "they are of other items"),
        (lambda e: e["items"][3].update(hash="?"), "they are of other items"),
        (lambda e: e.update(metric="acc_norm"), "metric acc against acc_norm"),
        (lambda e: e.update(kind="text"), "one is a task, the other a text"),
    ],
)
def test_what_cannot_be_paired(change, told):
    base = task(correct(0.5, 20))
    other = copy.deepcopy(base)
    change(other)
    with pytest.raises(ValueError, match=f"t of m0 and of m1 cannot be paired: {told}; evaluate"):
        of("t", base, other)


def test_texts_that_cannot_be_paired():
    base = text([300.0] * 40)
    other = copy.deepcopy(base)
    other["settings"]["window"] = 32
    with pytest.raises(ValueError, match="window 64 against 32"):
        of("val", base, other)


# by the command line


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    save_model(folder / "base")
    save_model(folder / "routed" / "model", scheme=dares.preset("delta_block", block=2))
    write_jsonl(folder / "val.jsonl", stories(35, seed=3))
    return folder


def invoke(*words):
    return runner.invoke(cli.app, ["compare", *map(str, words)])


def refused(*words):
    result = invoke(*words)
    assert isinstance(result.exception, ValueError), result.output
    return str(result.exception)


def test_command(two, tmp_path):
    out = tmp_path / "cmp"
    words = (two / "base", two / "routed", "--text", two / "val.jsonl", "--out", out)
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    table = (out / "compare.md").read_text()
    assert "| val.jsonl | nats per token | 35 documents | routed |" in table
    assert "+0.0000 to +0.0000 | 1.000 | 0 |" in table
    found = json.loads((out / "compare.json").read_text())
    assert [each["label"] for each in found["models"]] == ["base", "routed"]
    assert found["rows"][1]["changed"] == 0
    assert found["versions"]["dares"] == dares.__version__
    before = (out / "results" / "base.json").read_text()
    assert invoke(*words).exit_code == 0  # nothing is measured again
    assert (out / "results" / "base.json").read_text() == before

    # the files that it left can be compared without the models
    read = invoke(*sorted((out / "results").iterdir()), "--out", tmp_path / "again")
    assert read.exit_code == 0, read.output
    assert (tmp_path / "again" / "compare.md").read_text() == table


def test_wrong_commands(two, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base, text_file = two / "base", two / "val.jsonl"
    assert "takes two models or more, got 1" in refused(base, "--text", text_file)
    assert "is to be measured: say on what" in refused(base, two / "routed")
    assert "the same model twice" in refused(base, base, "--text", text_file)
    assert "is a file: name a folder" in refused(base, base, "--out", text_file)
    assert "is not a file of results" in refused(base, text_file, "--text", text_file)
    assert not (tmp_path / "compare").exists()


def test_results_of_other_tasks(tmp_path):
    for name, tasks in (("a", ["piqa", "boolq"]), ("b", ["piqa"]), ("c", ["boolq"])):
        content = {
            "format": 1,
            "model": {"name": name, "fingerprint": name},
            "tasks": {each: task(correct(0.5, 20)) for each in tasks},
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    a, b, c = (tmp_path / f"{name}.json" for name in "abc")
    result = invoke(a, b, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "left out, since not all have them: boolq" in result.output
    assert "there is no task that b, c all have" in refused(b, c, "--out", tmp_path / "out2")
