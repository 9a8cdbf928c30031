"""The status page in a real browser."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from florist.common.core.ports import free_port
from florist.common.observability.log_tail import LogTail
from florist.common.observability.server import status_server
from florist.common.observability.status import Status
from tests.support.observability import ABOUT, busy_status
from tests.support.parties import QuickClicks, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from florist.common.core.roles import RoleName

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: install Debian's chromium"),
    pytest.mark.skipif(
        find_spec("playwright") is None,
        reason="Playwright is missing: pip install 'florist[browser]'",
    ),
]

#: Seconds within which the page must show something.
LIMIT = 60

#: A folder for a screenshot, such as docs/images.
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - may be missing

    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", *quiet]
        )
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser,
    address: str,
    but: str = "",
    **look: Any,  # noqa: ANN401 - as Playwright takes it
) -> Iterator[Page]:
    """Open the page; any console message is an error unless it contains `but`."""
    complaints: list[str] = []
    context = browser.new_context(**look)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: _check_is_local(request.url, address))
    try:
        page.goto(f"http://{address}/")
        yield page
        assert [words for words in complaints if not but or but not in words] == []
    finally:
        context.close()


def _check_is_local(url: str, address: str) -> None:
    assert url.startswith((f"http://{address}/", "data:")), url


def number(page: Page, selector: str, attribute: str) -> int:
    return int(page.get_attribute(selector, attribute) or 0)


def wait_for(page: Page, selector: str, attribute: str, least: int) -> None:
    """Wait until an attribute is at least `least`, without a script, which the policy forbids."""
    deadline = time.monotonic() + LIMIT
    while number(page, selector, attribute) < least:
        assert time.monotonic() < deadline, f"{selector} does not increase"
        page.wait_for_timeout(200)


LOSS = "#curves svg[aria-label^=Loss]"
AUC = "#curves svg[aria-label^=AUC]"


def test_the_page_shows_a_run(browser: Browser, tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", Clicks())
    addresses = {role: f"127.0.0.1:{free_port()}" for role in ("active", "passive")}
    workspace.configure("active", {"observability.address": addresses["active"]})
    workspace.configure("passive", {"observability.address": addresses["passive"]})
    with (
        workspace.start_warm("active", stage="all") as active,
        workspace.start_warm("passive", stage="all"),
    ):
        active.wait_for("status at http")
        wide = {"width": 900, "height": 1000}
        with opened(browser, addresses["active"], color_scheme="light", viewport=wide) as page:
            page.wait_for_selector(LOSS, timeout=1000 * LIMIT)
            assert page.inner_text("#state") == "running"
            assert page.inner_text("#peer-state").startswith("up")
            assert page.inner_text("#stages .running") == "train"
            before = number(page, LOSS, "data-last-step")
            wait_for(page, LOSS, "data-last-step", before + 20)
            page.wait_for_selector("#strongest svg", timeout=1000 * LIMIT)
            page.wait_for_selector(AUC, timeout=1000 * LIMIT)
            assert "training" in page.inner_text("#steps")
            assert "connected to telco" in page.inner_text("#log-lines")
            if SCREENSHOTS:
                wait_for(page, AUC, "data-points", 3)
                page.screenshot(path=f"{SCREENSHOTS}/status-page.png", full_page=True)
        with opened(browser, addresses["passive"]) as page:
            page.wait_for_selector("#curves svg", timeout=1000 * LIMIT)
        with opened(browser, addresses["active"], but="ERR_CONNECTION") as page:
            page.wait_for_selector(LOSS)
            assert active.finish(100) == 0
            page.wait_for_selector("#silence:visible", timeout=1000 * LIMIT)
            assert "has ended" in page.inner_text("#silence")
            assert number(page, LOSS, "data-points") > 20, "the last known state stays"


@pytest.fixture
def address() -> Iterator[str]:
    """Serve a status in which every metric has a value."""
    with busy_status() as status, status_server(f"127.0.0.1:{free_port()}", status) as address:
        yield address


def test_dark_and_light_are_both_readable(browser: Browser, address: str) -> None:
    shades = {}
    for scheme in ("dark", "light"):
        with opened(browser, address, color_scheme=scheme) as page:
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


@pytest.mark.parametrize("width", [320, 390])
def test_the_page_fits_a_phone(browser: Browser, address: str, width: int) -> None:
    phone = {"width": width, "height": 700}
    with opened(browser, address, viewport=phone, is_mobile=True, has_touch=True) as page:
        page.wait_for_selector("#strongest svg")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16


def test_markup_in_the_log_is_escaped(browser: Browser) -> None:
    tail, log = LogTail(), logging.getLogger("florist.test-markup")
    log.setLevel(logging.INFO)
    evil = "<img src=x onerror=alert(1)><script>document.title='taken'</script>&amp;</li>"
    status = Status(ABOUT, log=tail.lines)
    with tail.on(log), status_server(f"127.0.0.1:{free_port()}", status) as address:
        log.warning(evil)
        status.fail(evil)
        with opened(browser, address) as page:
            page.wait_for_selector("#log-lines li.warning")
            assert evil in page.inner_text("#log-lines")
            assert page.inner_text("#reason") == evil
            assert page.locator("main img, main script").count() == 0
            assert page.title() == "bank · FLORIST"
            assert page.inner_text("#state") == "failed"


def test_injected_scripts_are_blocked(browser: Browser, address: str) -> None:
    with opened(browser, address, but="Content Security Policy") as page:
        page.evaluate(
            "document.head.append(Object.assign(document.createElement('script'), "
            "{textContent: 'window.taken = true'}))"
        )
        assert page.evaluate("window.taken") is None
