"""A real browser for the tests of pages."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

#: For a module that needs a browser.
NEEDS_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: install Debian's chromium"),
    pytest.mark.skipif(
        find_spec("playwright") is None,
        reason="Playwright is missing: pip install 'florist[browser]'",
    ),
]

#: Every page must look right at each of these widths, in each scheme.
LOOKS = [
    pytest.param(width, scheme, id=f"{width}-{scheme}")
    for width in (1440, 390)
    for scheme in ("light", "dark")
]


@contextmanager
def launched() -> Iterator[Browser]:
    """Start the browser; it makes no requests of its own."""
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
    url: str,
    but: str = "",
    **look: Any,  # noqa: ANN401 - as Playwright takes it
) -> Iterator[Page]:
    """Open a page; any console message is an error unless it contains `but`.

    The page may request nothing from elsewhere: another server, or a folder that is not below.
    """
    complaints: list[str] = []
    context = browser.new_context(**look)
    page = context.new_page()
    origin = url.rpartition("/")[0] + "/" if url.startswith("file:") else url.rstrip("/") + "/"
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: _check_is_local(request.url, origin))
    try:
        page.goto(url)
        yield page
        assert [words for words in complaints if not but or but not in words] == []
    finally:
        context.close()


def _check_is_local(url: str, origin: str) -> None:
    assert url.startswith((origin, "data:")), url


def look(width: int, scheme: str) -> dict[str, Any]:
    """Return the options for a window of this width, which is a phone if it is narrow."""
    is_phone = width < 600
    return {
        "viewport": {"width": width, "height": 900},
        "color_scheme": scheme,
        "is_mobile": is_phone,
        "has_touch": is_phone,
    }


def check_fits(page: Page) -> None:
    """Check that nothing is wider than the window, with all details shown."""
    for details in page.locator("details:visible").all():
        details.evaluate("element => { element.open = true }")
    wide, window = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= window
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16


def check_plots_are_readable(page: Page, smallest: float = 9.5) -> None:
    """Check the size of the texts in all visible drawings, in pixels of the screen."""
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("svg text")]
          .filter(text => text.getClientRects().length)
          .map(text => parseFloat(getComputedStyle(text).fontSize)
            * text.ownerSVGElement.getScreenCTM().a)"""
    )
    assert sizes
    assert min(sizes) >= smallest


@contextmanager
def serving_page(text: str) -> Iterator[str]:
    """Serve a page on this machine; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/" else 204)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode() if self.path == "/" else b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
            """Do not log requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
