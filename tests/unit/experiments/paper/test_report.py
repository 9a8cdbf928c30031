"""The report of a reproduction: comparison, explanations, and no external resources."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from florist.experiments.paper.explanations import DataFacts, differences, mechanism
from florist.experiments.paper.numbers import SETUPS
from florist.experiments.paper.plots import plots_of, write_png
from florist.experiments.paper.recipes import RECIPES, SCALES
from florist.experiments.paper.report import render
from florist.experiments.paper.results import Results
from tests.unit.experiments.paper import planted

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def text() -> str:
    return render(planted.study())


def cells(text: str, row: str) -> list[list[str]]:
    """The cells of all table rows whose first cell starts with this."""
    rows = re.findall(rf"<tr><th scope=\"row\">{re.escape(row)}</th>(.*?)</tr>", text, re.DOTALL)
    return [re.findall(r"<td>(.*?)</td>", found) for found in rows]


def test_every_recipe_has_a_section(text: str) -> None:
    for recipe in RECIPES.values():
        assert f"{recipe.source}: {recipe.shows}</h2>" in text
    anchors = re.findall(r'<h2 id="([^"]+)"', text)
    assert len(anchors) == len(set(anchors)) == len(RECIPES) + 2


def test_our_numbers_are_shown_with_the_papers_and_the_difference(text: str) -> None:
    assert ["0.6511", "0.6511", "+0.0000", "0.6511", "0.6511", "0.700 (flips)"] in cells(
        text, "label-minority"
    )
    criteo, avazu = (row for row in cells(text, "0.95") if row[0].endswith("%"))
    assert criteo[:3] == ["-2.53%", "-5.12%", "+2.59%"]
    assert avazu[1] == "-11.71%"
    (four,) = cells(text, "4")
    assert four == ["0.7486", "0.7486", "+0.0000", "0.6249", "0.6249", "+0.0000"]
    named = "label-majority-tr against baseline-partial, β = 0.95"
    assert cells(text, named)[0][1] == "-0.67%"


def test_missing_measurements_are_shown_as_dashes(text: str) -> None:
    assert cells(text, "0.8")[0] == ["–", "-3.57%", "–", "–", "–"]  # noqa: RUF001 - as shown
    assert cells(text, "7")[0][0] == "–"  # noqa: RUF001
    nothing = render(replace(planted.study("criteo-labels-attacks"), results=Results([])))
    assert "0 of 0 hold." in nothing
    assert cells(nothing, "label-minority")[0] == ["–", "0.6511", "–", "–", "0.6511", "–"]  # noqa: RUF001


def test_conclusions_are_marked_and_counted(text: str) -> None:
    assert text.count("✓") == 36
    assert "✗" not in text
    some = replace(
        planted.study("criteo-labels-attacks"), results=planted.results(without="fea-random")
    )
    assert "were not measured" in render(some)


def test_differences_are_explained(text: str) -> None:
    assert text.count("Differences from the paper:") == len(RECIPES)
    assert "generated clicks instead of Avazu" in text
    assert "36,000 training rows instead of about 4,050,000" in text
    for recipe in RECIPES.values():
        assert mechanism(recipe, planted.study().data[recipe.dataset], SCALES["small"])


def test_the_papers_own_setup_needs_no_explanation() -> None:
    rows = round(0.9 * SETUPS["criteo"].rows)
    facts = DataFacts("criteo", "train.txt", rows, rows // 9, 0.26, real=True)
    assert not differences(facts, SCALES["paper"])
    assert differences(facts, SCALES["small"])


def test_plots_are_labelled_svg_in_the_colours_of_the_page(text: str) -> None:
    pictures = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    assert len(pictures) == 2 * 6 + 4 + 2 + 2 + 3
    for picture in pictures:
        assert picture.attrib["aria-label"].startswith("Line plot of ")
        assert not re.search(r"#[0-9a-f]{6}\b", ET.tostring(picture, encoding="unicode"))


def test_the_page_is_self_contained_and_repeatable(text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    without_names = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"//|@import|url\((?!#)|<script|<img", without_names)
    assert len(text) < 1_000_000
    assert render(planted.study("avazu-samples")) == render(planted.study("avazu-samples"))


def test_plots_are_also_written_to_files(tmp_path: Path) -> None:
    for name in ("criteo-labels", "criteo-convergence"):
        for plot in plots_of(RECIPES[name], planted.results()):
            path = write_png(plot, tmp_path)
            assert path.read_bytes().startswith(b"\x89PNG")
            assert path.stat().st_size < 200_000
    assert len(list(tmp_path.iterdir())) == 5


def test_without_results_only_the_papers_plots_remain() -> None:
    lines = [
        line.name
        for recipe in RECIPES.values()
        for plot in plots_of(recipe, Results([]))
        for line in plot.lines
        if line.points
    ]
    assert set(lines) == {"the paper"}
