"""Figures: the same bytes each time, written whole, and telling lines apart without colour."""

from itertools import islice, pairwise

import pytest

from resofire import plot
from resofire.plot.style import COLOURS, SETTINGS


@plot.styled
def drawing():
    drawn, (panel,) = plot.figure()
    panel.plot([1, 2], [3, 4], label="a", **next(plot.lines()))
    panel.bar([1], [2], label="b", **next(plot.hatches()))
    panel.legend()
    return drawn


def test_the_same_figure_is_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        assert [file.suffix for file in plot.save(drawing(), tmp_path / name)] == [".png", ".svg"]
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]


def test_settings_hold_inside_a_drawing_only():
    assert not drawing().axes[0].spines["top"].get_visible()
    assert not drawing().axes[0].get_legend().get_frame_on()
    assert plot.figure()[1][0].spines["top"].get_visible()
    assert SETTINGS["legend.frameon"] is False


def test_lines_differ_without_colour():
    kinds = list(islice(plot.lines(), 8))
    assert len({(str(kind["linestyle"]), kind["marker"]) for kind in kinds}) == 8
    assert len({kind["hatch"] for kind in islice(plot.hatches(), 8)}) == 8


def test_neighbouring_colours_differ_in_grey():
    def grey(colour):
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    for one, other in pairwise(COLOURS):
        assert abs(grey(one) - grey(other)) > 15


def test_an_unknown_kind_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="xyz"):
        plot.save(drawing(), tmp_path / "one", ("xyz",))
    assert not list(tmp_path.iterdir())
