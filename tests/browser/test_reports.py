"""The reports, and the page of the HTTP service, in a real browser."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from florist.common.data.raw_table import FeatureColumns
from florist.common.reports.evaluation_report import render as render_evaluation
from florist.common.reports.training_report import render as render_training
from florist.passive_party.openapi import ApiSchema
from florist.passive_party.openapi import page as service_page
from tests.support.browsing import (
    LOOKS,
    NEEDS_BROWSER,
    check_fits,
    check_plots_are_readable,
    look,
    opened,
    serving_page,
)
from tests.unit.reports.test_evaluation_report import REPORT as EVALUATION
from tests.unit.reports.test_training_report import ACTIVE, PASSIVE

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = NEEDS_BROWSER

COLUMNS = FeatureColumns(
    numeric=("age", "a_column_with_a_rather_long_name_that_nobody_can_break_in_two"),
    categorical=("city", "it's a name"),
)


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with both reports."""
    folder = tmp_path_factory.mktemp("run")
    evaluated = replace(ACTIVE, agreement=ACTIVE.agreement | {"evaluation": {"table": True}})
    for stage, text in (
        ("training", render_training(evaluated)),
        ("evaluation", render_evaluation(EVALUATION)),
        ("passive", render_training(PASSIVE)),
    ):
        (folder / stage).mkdir()
        (folder / stage / "report.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("report", ["training", "evaluation", "passive"])
def test_reports_fit_and_start_with_their_conclusion(
    browser: Browser, run_directory: Path, report: str, width: int, scheme: str
) -> None:
    url = (run_directory / report / "report.html").as_uri()
    with opened(browser, url, **look(width, scheme)) as page:
        check_fits(page)
        check_plots_are_readable(page)
        conclusion = page.locator(".conclusion").bounding_box()
        assert conclusion is not None
        assert conclusion["y"] < 300, "it is the first thing that a reader sees"


def test_the_reports_of_a_run_link_to_each_other(browser: Browser, run_directory: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto((run_directory / "training" / "report.html").as_uri())
    page.click("text=Evaluation report")
    assert page.inner_text("h1").startswith("Evaluation of the model")
    page.click("text=Training report")
    assert page.inner_text("h1").startswith("Training of")
    context.close()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("columns", [None, COLUMNS])
def test_the_service_page_fits_and_its_example_can_be_copied(
    browser: Browser, width: int, scheme: str, columns: FeatureColumns | None
) -> None:
    schema = ApiSchema(by_id=False, columns=columns, max_rows=10, classes=1)
    text = service_page(schema, "predictions.telco.example:8443")
    with (
        serving_page(text) as url,
        opened(
            browser, url, permissions=["clipboard-read", "clipboard-write"], **look(width, scheme)
        ) as page,
    ):
        check_fits(page)
        page.click("#request + .code button")
        page.wait_for_selector("text=Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == page.locator("#request + .code pre").text_content()
        assert "\N{REPLACEMENT CHARACTER}" not in copied
        assert [words[0] for line in copied.split("\n") if (words := line.split())] == [
            *("curl", "-H", "-H", "-d")
        ]
        *_, flag, body = shlex.split(copied.replace("\\\n", ""))
        (row,) = json.loads(body)["rows"]
        assert flag == "-d"
        assert list(row) == (["COLUMN"] if columns is None else list(columns.names))


def test_copying_works_without_the_clipboard_interface(browser: Browser) -> None:
    """Pages without TLS that are not on this machine do not have it."""
    schema = ApiSchema(by_id=True, columns=None, max_rows=10, classes=1)
    with (
        serving_page(service_page(schema, "127.0.0.1:8443")) as url,
        opened(browser, url, permissions=["clipboard-read"]) as page,
    ):
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        page.click("button.copy")
        page.wait_for_selector("text=Copied")
        assert page.evaluate("getSelection().toString()").startswith("curl http://127.0.0.1:8443")
