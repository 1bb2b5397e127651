"""The table on made-up results: every number by hand, and no winner where there is none."""

import json
import math

import pytest

from dares.study.plan import RESULT
from dares.study.statistics import paired_difference, student_quantile
from dares.study.summary import summarise
from dares.study.table import markdown, short, tables
from dares.study.timing import TIMING, timed_settings
from tests.study.small import MADE, begin, pretend, result

SITES = [
    {
        "depth": place / 2,
        "kind": ("attention", "mlp")[place % 2],
        "sources": ["embedding", "delta 0"],
        "largest": 0.6,
        "normalised_entropy": 0.9,
    }
    for place in range(1, 4)
]
# better in every seed, now better and now worse, worse in every seed
LOSSES = {
    "standard": (5.00, 5.10, 5.05, 4.95),
    "delta": (4.90, 4.99, 4.96, 4.84),
    "attnres": (4.90, 5.20, 5.15, 4.85),
    "dense": (5.10, 5.21, 5.16, 5.04),
}


def made_up(workshop, folder, losses=LOSSES, timing=None, skip=(), **options):
    names = [name for name in losses if name != "standard"]
    seeds = tuple(range(len(losses["standard"])))
    plan = begin(workshop, folder, *names, seeds=seeds, **options)
    for run in plan.runs:
        if run.name in skip:
            continue
        loss = losses[run.variant.name][run.seed]
        sites, probes = ([], {})
        if run.variant.name in ("delta", "attnres"):
            sites = [{**site, "largest": 0.5 + run.seed / 10} for site in SITES]
            probes = {"drop_all": 0.2 + run.seed / 100, "uniform": 0.1, "mean": -0.01}
        pretend(plan, run, result(loss, sites=sites, probes=probes))
    if timing is not None:
        costs = {n: {"step_time": t, "activations": t / 2} for n, t in timing.items()}
        told = {"settings": timed_settings(plan), "variants": costs}
        (plan.folder / TIMING).write_text(json.dumps(told))
    return plan


def test_versions_and_machines_once_each(workshop):
    plan = made_up(workshop, "two-machines", {"standard": (5.0, 5.1), "delta": (4.9, 5.0)})
    elsewhere, long_ago = (plan.place(run) / RESULT for run in plan.runs[2:])
    found = json.loads(elsewhere.read_text())
    elsewhere.write_text(json.dumps({**found, "made": {**MADE, "machine": "another"}}))
    found = json.loads(long_ago.read_text())
    del found["made"]
    long_ago.write_text(json.dumps(found))
    assert summarise(plan)["made"] == [
        {**MADE, "runs": 2},
        {**MADE, "machine": "another", "runs": 1},
        {"versions": {}, "machine": None, "runs": 1},
    ]
    assert markdown(summarise(plan)).endswith(
        "2 runs: dares 0.1.0, commit abc1234; on a CPU, 2 cores.\n\n"
        "1 run: dares 0.1.0, commit abc1234; on another.\n\n"
        "1 run: not recorded.\n"
    )


def test_a_variant_without_a_step_time_is_shown_all_the_same(workshop):
    losses = {"standard": (5.0, 5.1), "delta": (4.9, 5.0)}
    data = summarise(made_up(workshop, "half-timed", losses, timing={"standard": 1.0}))
    (cells,) = [row for row in tables(data)[1].rows if row[0] == "delta"]
    assert cells[3:6] == ["-", "-", "-"]


@pytest.fixture(scope="module")
def data(workshop):
    timing = {"standard": 1.0, "delta": 1.25, "attnres": 1.5, "dense": 0.8}
    return summarise(made_up(workshop, "made-up", timing=timing))


def row(data, name):
    return next(each for each in data["variants"] if each["name"] == name)


def test_means_and_intervals(data):
    standard = row(data, "standard")
    assert standard["loss"]["mean"] == pytest.approx(5.025)
    error = math.sqrt(sum((x - 5.025) ** 2 for x in LOSSES["standard"]) / 3) / 2
    assert standard["loss"]["high"] == pytest.approx(5.025 + student_quantile(0.975, 3) * error)
    for end in ("mean", "low", "high"):
        assert standard["perplexity"][end] == pytest.approx(math.exp(standard["loss"][end]))
    assert standard["baseline"] is None
    assert standard["difference"] is None


def test_differences_and_verdicts(data):
    for name, verdict in (
        ("delta", "better"),
        ("attnres", "no difference shown"),
        ("dense", "worse"),
    ):
        found = row(data, name)["difference"]
        expected = paired_difference(LOSSES[name], LOSSES["standard"])
        assert found["estimate"]["mean"] == pytest.approx(expected.estimate.mean)
        assert found["t_p"] == pytest.approx(expected.t_p)
        assert found["verdict"] == verdict
        holds_zero = found["estimate"]["low"] <= 0 <= found["estimate"]["high"]
        assert holds_zero == (verdict == "no difference shown")
    # three comparisons: the smallest p counts three times
    ps = {name: row(data, name)["difference"]["t_p"] for name in ("delta", "attnres", "dense")}
    least = min(ps, key=ps.get)
    assert row(data, least)["difference"]["holm_t_p"] == pytest.approx(3 * ps[least])
    assert row(data, "delta")["difference"]["sign_flip_p"] == 2 / 16


def test_loss_at_equal_time(data):
    """delta's step takes 1.25 times as long: it has done 9.6 of 12 steps by then."""
    delta = row(data, "delta")
    share = (12 / 1.25 - 6) / 6
    expected = [loss + 0.2 * (1 - share) for loss in LOSSES["delta"]]
    assert delta["equal_time_loss"]["mean"] == pytest.approx(sum(expected) / 4)
    assert delta["step_time"] == 1.25
    assert delta["activations"] == 0.625
    found = delta["equal_time_difference"]["estimate"]["mean"]
    assert found == pytest.approx(sum(expected) / 4 - 5.025)
    # a faster one has done all its steps
    dense = row(data, "dense")
    assert dense["equal_time_loss"]["mean"] == pytest.approx(sum(LOSSES["dense"]) / 4)
    assert row(data, "standard")["equal_time_loss"] == row(data, "standard")["loss"]


def test_no_loss_so_early_on_the_curve(workshop):
    few = {"standard": (5.0,), "delta": (4.9,)}
    plan = made_up(workshop, "too-slow", few, timing={"standard": 1.0, "delta": 2.5})
    found = row(summarise(plan), "delta")
    assert found["equal_time_loss"] is None
    assert found["equal_time_difference"] is None


def test_routing_is_averaged(data):
    delta = row(data, "delta")
    assert delta["largest_weight"]["mean"] == pytest.approx(0.65)
    assert [site["largest"] for site in delta["sites"]] == pytest.approx([0.65] * 3)
    assert delta["probes"]["drop_all"]["mean"] == pytest.approx(0.215)
    assert delta["probes"]["uniform"]["low"] == pytest.approx(0.1)
    assert row(data, "standard")["largest_weight"] is None


def test_the_curve_has_every_step_that_all_seeds_have(data):
    assert [point["step"] for point in row(data, "delta")["curve"]] == [6, 12]
    assert row(data, "delta")["curve"][1]["mean"] == pytest.approx(
        row(data, "delta")["loss"]["mean"]
    )


def test_tables_say_what_the_data_says(data):
    losses, costs, routing = tables(data)
    assert losses.bold == [False, True, False, True]
    delta = dict(zip(losses.headings, losses.rows[1], strict=True))
    assert delta["difference"].startswith("-0.1025 [-0.1")
    assert (delta["against"], delta["reading"], delta["p (flips)"]) == (
        "standard",
        "better",
        "0.125",
    )
    assert "sign flips cannot give a p below 0.125" in losses.about
    assert "not corrected" in losses.about
    assert dict(zip(costs.headings, costs.rows[1], strict=True))["step time"] == "1.25 x"
    assert [cells[0] for cells in routing.rows] == ["delta", "attnres"]
    assert routing.rows[0][2].startswith("+0.2150 [")
    text = markdown(data)
    assert "| **delta** | 4.9225 [" in text
    assert "| attnres | " in text
    assert "**attnres**" not in text
    assert [len(cells) for cells in short(data).rows] == [4] * 4


def test_one_seed_names_no_winner(workshop):
    plan = made_up(workshop, "one-seed", {"standard": (5.0,), "delta": (3.0,)})
    data = summarise(plan)
    assert row(data, "delta")["difference"]["verdict"] == "one seed"
    assert not any(flag for table in tables(data) for flag in table.bold)
    assert data["timed"] is False


def test_missing_and_failed_runs_are_told(workshop):
    plan = made_up(workshop, "missing", skip=("delta/seed-3", "dense/seed-0"))
    plan.fail(next(run for run in plan.runs if run.name == "dense/seed-0"), "it broke")
    data = summarise(plan)
    assert data["missing"] == ["dense/seed-0", "delta/seed-3"]
    assert data["failed"] == {"dense/seed-0": "it broke"}
    assert row(data, "delta")["difference"]["estimate"]["seeds"] == 3
    expected = paired_difference(LOSSES["delta"][:3], LOSSES["standard"][:3])
    found = row(data, "delta")["difference"]["estimate"]
    assert found["mean"] == pytest.approx(expected.estimate.mean)
    text = markdown(data)
    assert "- dense/seed-0: it broke" in text
    assert "Runs that are missing: 2." in text
    assert "qwen3, 3 layers of width 16, vocabulary 320; 3,072 tokens a run" in text


def test_nothing_to_report(workshop):
    with pytest.raises(ValueError, match="no run of .*empty is done yet"):
        summarise(begin(workshop, "empty"))


def test_rates_are_shown_and_edges_marked(workshop):
    plan = begin(workshop, "rated", rates=(1e-3, 3e-3, 1e-2))
    for run in plan.tuning[:2]:
        pretend(plan, run, result(5.0 - run.rate))
    plan.fail(plan.tuning[2], "diverged")
    pretend(plan, plan.runs[0], result(5.0, lr=3e-3))
    assert plan.recipe(plan.tuning[0]).run.steps == 12 // 2
    data = summarise(plan)
    assert "loss after 6 steps at each rate" in tables(data)[-1].about
    assert tables(data)[-1].rows[0] == ["standard", "4.9990", "4.9970", "failed", "0.003"]
    assert not row(data, "standard")["rate_at_edge"]
