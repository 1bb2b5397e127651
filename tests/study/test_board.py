"""How far a study is, as a person sees it."""

import io

from rich.console import Console

from dares.study.board import Board
from dares.study.claims import Observer
from tests.study.small import begin, pretend, result
from tests.study.test_measure import write_metrics


def shown(board):
    console = Console(file=io.StringIO(), width=120)
    console.print(board.table())
    rows = [line.strip("│").split("│") for line in console.file.getvalue().splitlines()]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows}


def test_the_table_and_the_news(workshop):
    plan = begin(workshop, "board", "delta", seeds=(0, 1))
    board = Board(plan)
    assert shown(board)["delta"] == ["0/2", "", "", ""]
    assert board.news() == []
    first, second, third, fourth = plan.runs
    pretend(plan, first, result(5.0))
    pretend(plan, third, result(4.0))
    plan.fail(second, "it broke")
    with Observer().take(plan.place(fourth)):
        write_metrics(plan.place(fourth), {"step": 7, "loss": 5.0})
        assert shown(board)["standard"] == ["2/2", "", "4.5000", ""]
        assert shown(board)["delta"] == ["0/2", "seed-1 7/12", "", "1"]
    assert shown(board)["delta"] == ["0/2", "", "", "1"]  # given back: nobody is at it
    assert board.news() == [
        "standard/seed-0: validation loss 5.0000",
        "delta/seed-0: failed: it broke",
        "standard/seed-1: validation loss 4.0000",
    ]
    assert board.news() == []
    assert Board(plan).news() == []  # what was done before is no news


def test_a_run_is_shown_whose_rates_all_failed(workshop):
    plan = begin(workshop, "board-failed", rates=(1e-3, 3e-3, 1e-2))
    for run in plan.tuning:
        plan.fail(run, "no")
    with Observer().take(plan.place(plan.runs[0])):  # a moment before it fails too
        assert shown(Board(plan))["standard"] == ["3/3", "", "0/1", "seed-0 0/12", "", "3"]


def test_rates_have_their_own_columns(workshop):
    plan = begin(workshop, "board-rates", rates=(1e-3, 3e-3, 1e-2))
    for run in plan.tuning[:2]:
        pretend(plan, run, result(5.0 - run.rate))
    assert shown(Board(plan))["standard"][:3] == ["2/3", "", "0/1"]
    pretend(plan, plan.tuning[2], result(6.0))
    pretend(plan, plan.runs[0], result(4.0, lr=3e-3))
    assert shown(Board(plan))["standard"][:3] == ["3/3", "0.003", "1/1"]
