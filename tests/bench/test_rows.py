"""Rows, their growth, and the picture of them."""

from pathlib import Path

import pytest

from dares.bench.plot import check_plot, figure, save
from dares.bench.rows import Row, exponent, with_growth

SCHEMES = ("standard", "delta_block", "delta")


def rows(depths, measure="training step"):
    return [
        Row(depth, name, measure, depth**power * 3.0, "ms", 1 + power, 0.9 + power, 1.2 + power)
        for depth in depths
        for power, name in enumerate(SCHEMES)
    ]


def test_exponent_of_a_power():
    assert exponent({12: 5 * 12**1.5, 24: 5 * 24**1.5, 48: 5 * 48**1.5}) == pytest.approx(1.5)


def test_growth_of_each_line_of_each_measure():
    found = with_growth([*rows([2, 4, 8]), *rows([2, 4, 8], "decoding")])[18:]
    assert [row.measure for row in found] == ["training step"] * 3 + ["decoding"] * 3
    assert [row.what for row in found] == [*SCHEMES, *SCHEMES]
    assert [row.value for row in found] == pytest.approx([0, 1, 2, 0, 1, 2])
    assert {row.layers for row in found} == {None}


def test_one_depth_has_no_growth():
    assert with_growth(rows([8])) == rows([8])


def test_picture_of_growth():
    found = figure(with_growth([*rows([12, 24]), *rows([12, 24], "decoding")]))
    assert len(found.axes) == 4
    growth, ratios = found.axes[:2]
    assert (growth.get_xscale(), growth.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in growth.get_xticklabels()] == ["12", "24"]
    names = [text.get_text() for text in growth.get_legend().get_texts()]
    assert names[2] == "delta  $L^{2.00}$"
    drawn = {line.get_color(): line.get_ydata() for line in growth.get_lines()}
    assert len(drawn) == 3  # every line in a colour of its own
    assert list(drawn.popitem()[1]) == [12**2 * 3, 24**2 * 3]
    assert len(ratios.containers) == 2  # with spreads; the baseline is a line at one


def test_picture_of_one_depth(tmp_path):
    (axes,) = figure(rows([24])).axes
    assert [bar.get_width() for bar in axes.patches] == [1, 2, 3]
    assert "24 layers" in axes.get_title()
    file = tmp_path / "bars.png"
    save(rows([24]), file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_more_lines_than_colours():
    many = [Row(depth, f"scheme {i}", "m", 1.0, "s", 1.0) for depth in (1, 2) for i in range(9)]
    assert len(figure(with_growth(many)).axes[0].get_lines()) == 9


def test_plot_is_refused_before_measuring():
    with pytest.raises(ValueError, match=r"--plot writes a PNG, got 'rows.svg'"):
        check_plot(Path("rows.svg"))
