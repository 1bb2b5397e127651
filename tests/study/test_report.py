"""What a study ends in: files that are whole, a page that needs nothing else."""

import errno
import json
import re

import pytest

from dares.study import report
from dares.study.figures import pictures
from dares.study.report import sentences, write_report
from tests.study.test_summary import LOSSES, made_up


@pytest.fixture(scope="module")
def written(workshop):
    plan = made_up(workshop, "written", timing=dict.fromkeys(LOSSES, 1.0))
    plan.command = "dares study <small>"
    return plan, write_report(plan)


def test_all_files_are_there(written):
    plan, data = written
    assert json.loads((plan.folder / "table.json").read_text()) == data
    assert (plan.folder / "table.md").read_text().startswith("# small\n")
    figures = {path.name for path in (plan.folder / "figures").iterdir()}
    names = ("curves", "perplexity", "differences", "sharpness")
    assert figures == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert not list(plan.folder.glob("*.part"))


def test_the_page_is_self_contained(written):
    plan, _ = written
    page = (plan.folder / "study.html").read_text()
    assert page.count("<svg") == 4
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert "dares study &lt;small&gt;" in page
    assert page.count("16 runs: dares 0.1.0, commit abc1234; on a CPU, 2 cores.") == 1
    assert "<strong>delta</strong>" in page
    assert "<strong>attnres</strong>" not in page
    assert "{{" not in page
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_sentences_name_a_winner_only_where_there_is_one(written):
    _, data = written
    told = {text.split(":")[0]: text for text in sentences(data)}
    assert told["delta"].startswith(
        "delta: better than standard by 0.1025 nats (95 % interval -0.1"
    )
    assert "p < 0.001, with Holm's correction 0.001)" in told["delta"]  # never a p of zero
    assert told["dense"].startswith("dense: worse than standard by")
    assert "no difference to standard is shown" in told["attnres"]
    assert "better" not in told["attnres"]


def test_a_variant_looks_the_same_in_every_figure(written):
    _, data = written
    figures = {picture.name: picture.figure for picture in pictures(data)}

    def colours(name):
        return {line.get_label(): line.get_color() for line in figures[name].axes[0].lines}

    routed = colours("sharpness")
    assert routed.keys() == {"delta", "attnres"}
    assert routed.items() <= colours("curves").items()


def test_a_panel_a_baseline(written):
    _, data = written
    figures = {picture.name: picture.figure for picture in pictures(data)}
    assert [len(figure.axes) for figure in figures.values()] == [1, 1, 1, 2]
    rows = [
        {
            **row,
            "name": f"{row['name']}-{kind}",
            "baseline": row["baseline"] and f"{row['baseline']}-{kind}",
        }
        for kind in ("tied", "untied")
        for row in data["variants"]
    ]
    figures = {each.name: each.figure for each in pictures({**data, "variants": rows})}
    titles = [axes.get_title(loc="left") for axes in figures["differences"].axes]
    assert titles == ["against standard-tied", "against standard-untied"]
    assert [len(axes.lines) for axes in figures["curves"].axes] == [4, 4]
    (legend,) = figures["curves"].legends
    assert [text.get_text() for text in legend.get_texts()] == [row["name"] for row in rows]


def test_one_seed_is_drawn_without_bands(workshop):
    plan = made_up(workshop, "single", {"standard": (5.0,), "delta": (4.9,)})
    data = write_report(plan)
    assert [picture.name for picture in pictures(data)] == ["curves", "perplexity", "sharpness"]
    assert "with one seed, which shows nothing" in sentences(data)[0]


def test_a_full_disk_leaves_the_report_there_was(written, monkeypatch):
    plan, _ = written
    before = {p: p.read_bytes() for p in plan.folder.rglob("*") if p.is_file()}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(report, "save_picture", full)
        with pytest.raises(ValueError, match=r"table.json could not be written \(the disk is full"):
            write_report(plan)
    assert {p: p.read_bytes() for p in before} == before
