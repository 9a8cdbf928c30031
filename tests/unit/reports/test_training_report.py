"""The report of a training run: well-formed, reproducible, self-contained and escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from florist.common.audit.findings import (
    SCOPE_TEXTS,
    AuditRecord,
    Figures,
    Finding,
    SkippedAttack,
    StratumFinding,
)
from florist.common.audit.statistics import IntervalEstimate
from florist.common.reports.shown_values import byte_count, duration, number
from florist.common.reports.training_plots import INTERVALS, SMOOTHED_POINTS, smoothed, thinned
from florist.common.reports.training_report import ComparisonRow, TrainingReport, render
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import Agreement
from florist.common.settings.audit import AuditSettings
from florist.common.training.history import MIN_BIN_ROWS, CalibrationPoints, EpochFigures, History

STEPS = 15_000


def losses(steps: int) -> list[float]:
    noise = np.random.RandomState(1).normal(0, 0.02, steps)
    falling: list[float] = (0.3 + 0.4 * np.exp(-np.arange(steps) / 900) + noise).tolist()
    return falling


ACTIVE = TrainingReport(
    party="bank",
    peer="telco",
    role="active",
    release="0.1.0",
    finished_at="2026-01-01T00:00:00+00:00",
    agreement=Agreement().model_dump(mode="json"),
    sizes=UnionSizes(2_500, 2_400, 4_096),
    privacy=None,
    history=History(
        losses=losses(STEPS),
        epochs=[
            EpochFigures(0, 0.412, 0.7012, 0.0413, 0.4817),
            EpochFigures(1, 0.334, 0.7291, 0.0352, 0.4632),
            EpochFigures(2, 0.321, 0.7334, 0.0331, 0.4602),
        ],
        compute=70.0,
        wire=5.0,
        wait=25.0,
        rows=3 * 4_096,
    ),
    metrics={"auc": 0.7334, "ace": 0.0331, "log_loss": 0.4602},
    calibration=CalibrationPoints(
        np.linspace(0.05, 0.75, 15), np.linspace(0.04, 0.78, 15), np.arange(100, 115)
    ),
    comparison=[ComparisonRow("alone", 0.65, 0.05), ComparisonRow("together", 0.7334, None)],
    model={"top model": "49,665 parameters", "layers": [128, 128]},
    bytes_sent=31_457_280,
    bytes_received=31_460_000,
    audit=AuditRecord(
        "active",
        AuditSettings(),
        followed=4_000,
        audits=[
            Figures(
                50 * number,
                over,
                (Finding("spectral", auc, None, worst), Finding("flips", auc, tpr)),
                (SkippedAttack("pair", "needs features of the attacker's own"),),
            )
            for number in range(1, 300)
            for over in SCOPE_TEXTS
            for auc, tpr, worst in [
                (
                    IntervalEstimate(0.53, 0.51, 0.55),
                    IntervalEstimate(0.123, 0.101, 0.15),
                    StratumFinding("label 1", IntervalEstimate(0.57, 0.52, 0.61)),
                )
            ]
        ],
    ),
)

PASSIVE = replace(
    ACTIVE,
    party="telco",
    peer="bank",
    role="passive",
    sizes=UnionSizes(2_400, 2_500, 4_096),
    history=History(compute=70.0, wire=5.0, wait=25.0, rows=3 * 4_096),
    metrics={},
    calibration=None,
    comparison=None,
    audit=None,
)

BARE = replace(PASSIVE, history=History(), model={}, agreement={})

REPORTS = {"active": ACTIVE, "passive": PASSIVE, "bare": BARE}


class Page(HTMLParser):
    """Parses a page; unbalanced tags are an error."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)

    def attributes(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


def plots(text: str) -> dict[str, ET.Element]:
    """Return the plots by their labels for screen readers."""
    found = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    return {plot.attrib["aria-label"]: plot for plot in found}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {name: render(report) for name, report in REPORTS.items()}


@pytest.mark.parametrize("name", REPORTS)
def test_pages_are_well_formed(texts: dict[str, str], name: str) -> None:
    page = Page(texts[name])
    assert texts[name].startswith("<!DOCTYPE html>")
    assert [tag for tag, _ in page.tags].count("h1") == 1
    anchors = page.attributes("id")
    assert len(anchors) == len(set(anchors))
    for _, attributes in page.tags:
        assert attributes.get("aria-labelledby") in {None, *anchors}


@pytest.mark.parametrize("name", REPORTS)
def test_plots_are_xml_with_a_label_and_valid_references(texts: dict[str, str], name: str) -> None:
    assert len(plots(texts[name])) == texts[name].count("<svg")
    for label, plot in plots(texts[name]).items():
        assert label
        assert plot.attrib["role"] == "img"
        written = ET.tostring(plot, encoding="unicode")
        anchors = {element.get("id") for element in plot.iter()}
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', written)) <= anchors


@pytest.mark.parametrize("name", REPORTS)
def test_no_external_resource_is_loaded(texts: dict[str, str], name: str) -> None:
    page = Page(texts[name])
    without_names = texts[name].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"//|@import|url\((?!#)", without_names)
    assert not page.attributes("src")
    links = {"../evaluation/report.html"}  # followed only by a reader
    assert all(target.startswith("#") or target in links for target in page.attributes("href"))
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}


def test_plots_use_the_colours_of_the_page(texts: dict[str, str]) -> None:
    assert "prefers-color-scheme: dark" in texts["active"]
    for plot in plots(texts["active"]).values():
        assert not re.search(r"#[0-9a-f]{6}\b", ET.tostring(plot, encoding="unicode"))


@pytest.mark.parametrize("name", REPORTS)
def test_reports_are_reproducible(texts: dict[str, str], name: str) -> None:
    assert render(REPORTS[name]) == texts[name]


def test_the_matplotlib_style_of_the_user_is_ignored_and_kept(texts: dict[str, str]) -> None:
    with mpl.rc_context({"lines.linewidth": 9, "svg.fonttype": "path", "axes.facecolor": "red"}):
        before = dict(mpl.rcParams)
        assert render(PASSIVE) == texts["passive"]
        assert dict(mpl.rcParams) == before


def test_the_report_shows_the_worst_stratum_and_what_was_not_measured() -> None:
    words = Page(render(ACTIVE)).words
    assert "0.57 (0.52\N{EN DASH}0.61)" in words
    assert "spectral, label 1" in words
    assert "pair (needs features of the attacker's own)" in words


def test_the_active_report_has_all_sections(texts: dict[str, str]) -> None:
    page = Page(texts["active"])
    assert page.headings == [
        "Headline figures",
        "Comparison",
        "Loss",
        "Test figures",
        "Calibration",
        "Self-audit",
        "Time",
        "Traffic",
        "What each side learned",
        "Our half of the model",
        "Agreement",
    ]
    for shown in (
        "Training of bank with telco",
        "0.7334",
        "4,096",
        "2,500 of bank and 2,400 of telco",
        "1 min 40 s",
        "31.5 MB",
        "training.labels.strategy",
        "label-random-pred",
        "here 3 times",
        "0.53 (0.51\N{EN DASH}0.55)",
        "12.3% (10.1\N{EN DASH}15.0)",
        "✗ warn_tpr_above",
        "telco was not informed",
    ):
        assert shown in page.words


def test_epochs_count_from_one(texts: dict[str, str]) -> None:
    labels = list(plots(texts["active"]))
    assert (
        "Line plot over the epochs: 0.7012 in epoch 1, 0.7291 in epoch 2, 0.7334 in epoch 3."
        in (labels)
    )


def test_sections_without_data_are_listed(texts: dict[str, str]) -> None:
    page = Page(texts["passive"])
    assert page.headings[-1] == "Not in this report"
    absent = {"Loss", "Test figures", "Calibration", "Comparison", "Self-audit"}
    assert not absent & set(page.headings)
    assert "Only the active party sees the loss" in page.words
    assert "2,500 of bank and 2,400 of telco" in page.words
    assert {"Traffic", "What each side learned"} < set(Page(texts["bare"]).headings)


def test_the_passive_report_shows_the_loss_of_each_epoch() -> None:
    history = replace(PASSIVE.history, epochs=[EpochFigures(0, 0.4), EpochFigures(1, 0.3)])
    text = render(replace(PASSIVE, history=history))
    assert "Line plot over the epochs: 0.4000 in epoch 1, 0.3000 in epoch 2." in plots(text)
    assert "Only the active party sees the loss" in Page(text).words
    history = replace(PASSIVE.history, epochs=[EpochFigures(0, 0.4)])
    page = Page(render(replace(PASSIVE, history=history)))
    assert "Loss" in page.headings
    assert "0.4000" in page.words


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onload='alert(1)",
        "</style></title><b>",
        "&lt;b&gt; $x^2$ \\alpha",
    ],
)
def test_texts_are_escaped(text: str) -> None:
    plain, hostile = (
        render(
            replace(
                ACTIVE,
                party=value,
                peer=value,
                release=value,
                finished_at=value,
                agreement={value: {value: value}},
                metrics={value: 1.0},
                comparison=[ComparisonRow(value, 1.0, 1.0)],
                model={value: [value]},
                history=History(),
            )
        )
        for value in ("plain", text)
    )
    page = Page(hostile)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in Page(plain).tags]
    assert [set(attributes) for _, attributes in page.tags] == [
        set(attributes) for _, attributes in Page(plain).tags
    ]
    assert f"Training of {text} with {text}" in page.words


def test_unprintable_characters_are_replaced() -> None:
    text = render(replace(BARE, peer="a\u202eb\ud800c\0d\ne"))
    assert "a\ufffdb\ufffdc\ufffdd\ufffde" in Page(text).words
    text.encode()


def test_large_runs_have_small_reports(texts: dict[str, str]) -> None:
    assert len(texts["active"].encode()) < 200_000
    longer = replace(ACTIVE, history=replace(ACTIVE.history, losses=losses(200_000)))
    assert len(render(longer).encode()) < 200_000
    assert 2 * INTERVALS + SMOOTHED_POINTS <= 2_000


def test_thinning_keeps_the_extremes() -> None:
    values = np.asarray(losses(STEPS))
    values[7_777], values[9_999] = 5.0, -5.0
    kept = thinned(values)
    assert len(kept) <= 2 * INTERVALS
    assert {7_777, 9_999} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all()
    assert thinned(values[:1_000]).tolist() == list(range(1_000))


def test_the_smoothed_line_is_a_mean() -> None:
    values = np.asarray(losses(60))
    slow = [np.mean(values[max(place - 3, 0) : place + 4]) for place in range(60)]
    np.testing.assert_allclose(smoothed(values, 7), slow)


@pytest.mark.parametrize("count", [1, 2, 49, 50, 100])
def test_short_runs(count: int) -> None:
    history = replace(ACTIVE.history, losses=losses(count), epochs=ACTIVE.history.epochs[:1])
    labels = list(plots(render(replace(ACTIVE, history=history))))
    assert any(f"the loss of {count} steps" in label for label in labels)


def test_losses_that_are_not_finite_are_counted_but_not_plotted() -> None:
    history = History(
        losses=[0.5, float("nan"), 0.4, float("inf")], epochs=[EpochFigures(0, float("nan"))]
    )
    page = Page(render(replace(ACTIVE, history=history, metrics={"auc": float("nan")})))
    assert "2 steps had no finite loss" in page.words
    assert "not finite" in page.words
    page = Page(render(replace(ACTIVE, history=History(losses=[float("nan")]))))
    assert "Loss" not in page.headings


def test_small_bins_are_not_shown() -> None:
    points = CalibrationPoints(
        np.array([0.1234, 0.5, np.nan]),
        np.array([1.0, 0.5, np.nan]),
        np.array([MIN_BIN_ROWS - 1, 50, 0]),
    )
    text = render(replace(ACTIVE, calibration=points))
    assert "Calibration" in Page(text).headings
    assert "0.1234" not in text
    points = replace(points, counts=np.array([1, 1, 0]))
    assert "Calibration" not in Page(render(replace(ACTIVE, calibration=points))).headings


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(None), "\N{EN DASH}"),
        (number(1_234_567), "1,234,567"),
        (number(0.0), "0.0000"),
        (number(0.00012345), "0.000123"),
        (number(0.73344), "0.7334"),
        (number(123_456.0), "1.23e+05"),
        (number(float("inf")), "not finite"),
        (duration(1.25), "1.2 s"),
        (duration(200), "3 min 20 s"),
        (duration(3_900), "1 h 05 min"),
        (byte_count(0), "0 B"),
        (byte_count(999), "999 B"),
        (byte_count(999_900), "1 MB"),
        (byte_count(31_457_280), "31.5 MB"),
        (byte_count(2.5e12), "2.50 TB"),
        (byte_count(2.5e15), "2,500.00 TB"),
    ],
)
def test_numbers_are_readable(shown: str, expected: str) -> None:
    assert shown == expected
