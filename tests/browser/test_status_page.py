"""The status page in a real browser."""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from florist.common.core.ports import free_port
from florist.common.observability.final_page import save_final_page
from florist.common.observability.log_tail import LogTail
from florist.common.observability.server import status_server
from florist.common.observability.status import Status
from florist.common.transport.channel import Traffic
from tests.support.browsing import (
    LOOKS,
    NEEDS_BROWSER,
    check_fits,
    check_plots_are_readable,
    look,
    opened,
)
from tests.support.observability import ABOUT, busy_status
from tests.support.parties import ROLES, QuickClicks, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from florist.common.core.roles import RoleName

pytestmark = NEEDS_BROWSER

#: Seconds within which the page must show something.
LIMIT = 60

#: A folder for the screenshots of the documentation, such as docs/images.
SCREENSHOTS = os.environ.get("FLORIST_SCREENSHOTS")


@dataclass(frozen=True)
class Clicks(QuickClicks):
    """A sample whose training takes long enough to be observed."""

    people: int = 20_000

    def settings(self, role: RoleName) -> dict[str, Any]:
        return QuickClicks.settings(self, role) | {
            "agreement.training.epochs": 5,
            "agreement.training.batch_size": 128,
            "agreement.training.micro_batch": 64,
            "agreement.training.checkpoint_every": 100,
        }


def number(page: Page, selector: str, attribute: str) -> int:
    return int(page.get_attribute(selector, attribute) or 0)


def wait_for(page: Page, selector: str, attribute: str, least: int) -> None:
    """Wait until an attribute is at least `least`, without a script, which the policy forbids."""
    deadline = time.monotonic() + LIMIT
    while number(page, selector, attribute) < least:
        assert time.monotonic() < deadline, f"{selector} does not increase"
        page.wait_for_timeout(200)


LOSS = "#curves svg[aria-label^=loss]"
AUC = "#curves svg[aria-label^=AUC]"


def check_what_remains(browser: Browser, run_directory: Path, results: str) -> None:
    """Check the pages of a finished run, and take a picture of its report."""
    saved = run_directory / "status.html"
    with opened(browser, saved.as_uri(), **look(390, "dark")) as page:
        assert page.inner_text("#state") == "finished"
        assert page.inner_text("#results") == results
        assert page.locator(LOSS).count() == page.locator(AUC).count() == 1
        check_fits(page)
        page.click("text=Training report")
        assert page.inner_text("h1") == "Training of bank with telco"
        check_fits(page)
        report = page.url
    if SCREENSHOTS:
        with opened(browser, report, **look(1100, "light")) as page:
            page.set_viewport_size({"width": 1100, "height": 1300})
            page.screenshot(path=f"{SCREENSHOTS}/report.png")


def test_the_page_shows_a_run(browser: Browser, tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", Clicks())
    addresses = {role: f"127.0.0.1:{free_port()}" for role in ("active", "passive")}
    for role in ROLES:
        workspace.configure(
            role, {"observability.address": addresses[role], "observability.linger": 10.0}
        )
    with (
        workspace.start_warm("active", stage="all") as active,
        workspace.start_warm("passive", stage="all"),
    ):
        active.wait_for("status at http")
        wide = look(1440, "light")
        with opened(browser, f"http://{addresses['active']}", **wide) as page:
            page.wait_for_selector(LOSS, timeout=1000 * LIMIT)
            assert page.inner_text("#state") == "running"
            assert page.inner_text("#peer-state").startswith("up")
            assert page.inner_text("#stages .running").startswith("Training")
            before = number(page, LOSS, "data-last-step")
            wait_for(page, LOSS, "data-last-step", before + 20)
            page.wait_for_selector("#strongest svg", timeout=1000 * LIMIT)
            page.wait_for_selector(AUC, timeout=1000 * LIMIT)
            assert re.search(r"step \d+ of \d+.*, about .* left", page.inner_text("#time-left"))
            assert page.locator("#curves .raw").count() == 1, "the loss is smoothed"
            page.click("#steps-section summary")
            assert "training" in page.inner_text("#steps")
            page.click("#steps-section summary")
            assert "connected to telco" in page.inner_text("#log-lines")
            if SCREENSHOTS:
                wait_for(page, AUC, "data-points", 3)
                page.screenshot(path=f"{SCREENSHOTS}/status-page.png", full_page=True)
            check_fits(page)
        with opened(browser, f"http://{addresses['passive']}") as page:
            page.wait_for_selector("#curves svg", timeout=1000 * LIMIT)
        with opened(browser, f"http://{addresses['active']}", but="ERR_CONNECTION") as page:
            page.wait_for_selector("#outcome:visible", timeout=2000 * LIMIT)
            assert page.inner_text("#state") == "finished"
            assert page.inner_text("#outcome-title").startswith("Finished after")
            results = page.inner_text("#results")
            for stage in ("Alignment: the union has", "Training: loss", "Evaluation: AUC"):
                assert stage in results
            assert active.finish(100) == 0
            page.wait_for_selector("#silence:visible", timeout=1000 * LIMIT)
            assert "This party has ended" in page.inner_text("#silence")
            assert number(page, LOSS, "data-points") > 20, "the last state stays"
    check_what_remains(browser, workspace.run_directory("active").path, results)


@pytest.fixture
def address() -> Iterator[str]:
    """Serve a status in which every metric has a value."""
    with busy_status() as status, status_server(f"127.0.0.1:{free_port()}", status) as address:
        yield address


def test_dark_and_light_are_both_readable(browser: Browser, address: str) -> None:
    shades = {}
    for scheme in ("dark", "light"):
        with opened(browser, f"http://{address}", color_scheme=scheme) as page:
            page.wait_for_selector(LOSS)
            ink, paper = (
                page.evaluate(f"getComputedStyle(document.body).{key}")
                for key in ("color", "backgroundColor")
            )
            shades[scheme] = _brightness(ink), _brightness(paper)
    assert shades["dark"][0] - shades["dark"][1] > 150
    assert shades["light"][1] - shades["light"][0] > 150


def _brightness(colour: str) -> float:
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return (red + green + blue) / 3


@pytest.mark.parametrize(("width", "scheme"), [*LOOKS, pytest.param(320, "light", id="small")])
def test_the_page_fits(browser: Browser, address: str, width: int, scheme: str) -> None:
    with opened(browser, f"http://{address}", **look(width, scheme)) as page:
        page.wait_for_selector("#strongest svg")
        check_fits(page)
        check_plots_are_readable(page, 12)


def test_the_page_uses_the_width_of_the_screen(browser: Browser, address: str) -> None:
    with opened(browser, f"http://{address}", **look(1440, "light")) as page:
        page.wait_for_selector("#strongest svg")
        boxes = [
            page.locator(f"#{name}-section").bounding_box() for name in ("training", "self-audit")
        ]
        left, right = (box for box in boxes if box is not None)
        assert left["x"] < 100
        assert right["x"] > left["x"] + left["width"]
        assert right["x"] + right["width"] > 1340


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("saved", [False, True])
def test_a_failure_is_shown_with_its_reason(
    browser: Browser, tmp_path: Path, width: int, scheme: str, *, saved: bool
) -> None:
    with busy_status() as status:
        status.fail("telco is gone: " + 60 * "long", "Start both parties again.")
        save_final_page(tmp_path, status.snapshot())
        with status_server(f"127.0.0.1:{free_port()}", status) as address:
            url = (tmp_path / "status.html").as_uri() if saved else f"http://{address}"
            with opened(browser, url, **look(width, scheme)) as page:
                page.wait_for_selector("#outcome:visible")
                assert page.inner_text("#state") == "failed"
                assert page.inner_text("#outcome-title").startswith("Failed during training")
                assert page.inner_text("#reason").startswith("telco is gone")
                assert page.inner_text("#advice") == "Start both parties again."
                assert page.locator("#stages .failed").count() == 1
                assert not page.is_visible("#time-left")
                check_fits(page)


def test_requests_are_shown_while_serving(browser: Browser) -> None:
    status, traffic = Status(ABOUT), Traffic()
    next(iter(status.stages(["serve"])))
    with (
        status.serving(None, traffic),
        status_server(f"127.0.0.1:{free_port()}", status) as address,
    ):
        traffic.count_sent(2_000)
        for milliseconds in range(1, 101):
            status.requests.answered(milliseconds / 1000)
        for reason in ("malformed", "over the limit", "malformed"):
            status.requests.refused(reason)
        with opened(browser, f"http://{address}", **look(390, "light")) as page:
            page.wait_for_selector("#request-cards div")
            assert page.inner_text("#state") == "serving"
            shown = " ".join(page.inner_text("#request-cards").split())
            for text in (
                "answered 100",
                "latency, median 50.0 ms",
                "latency, 99% below 99.0 ms",
                "refused 3 malformed: 2, over the limit: 1",
            ):
                assert text in shown
            assert "2.00 kB" in page.inner_text("#network-cards")
            assert not page.is_visible("#progress-section")
            check_fits(page)


def test_markup_in_the_log_is_escaped(browser: Browser) -> None:
    tail, log = LogTail(), logging.getLogger("florist.test-markup")
    log.setLevel(logging.INFO)
    evil = "<img src=x onerror=alert(1)><script>document.title='taken'</script>&amp;</li>"
    status = Status(ABOUT, log=tail.lines)
    with tail.on(log), status_server(f"127.0.0.1:{free_port()}", status) as address:
        log.warning(evil)
        status.fail(evil)
        with opened(browser, f"http://{address}") as page:
            page.wait_for_selector("#log-lines li.warning")
            assert evil in page.inner_text("#log-lines")
            assert page.inner_text("#reason") == evil
            assert page.locator("main img, main script").count() == 0
            assert page.title() == "bank · FLORIST"
            assert page.inner_text("#state") == "failed"


def test_injected_scripts_are_blocked(browser: Browser, address: str) -> None:
    with opened(browser, f"http://{address}", but="Content Security Policy") as page:
        page.evaluate(
            "document.head.append(Object.assign(document.createElement('script'), "
            "{textContent: 'window.taken = true'}))"
        )
        assert page.evaluate("window.taken") is None
