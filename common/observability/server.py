"""A small HTTP server for the status: read-only, with bounded resources.

A connection carries one request. Each has its own daemon thread; when there are too many, the
oldest is closed, so that a client that hangs does not block others.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections import deque
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from florist.common.core.errors import ConfigurationError
from florist.common.core.host_header import allowed_hosts, is_allowed_host
from florist.common.observability.metrics import Metrics
from florist.common.observability.status_json import status_json
from florist.common.observability.status_page import SCRIPT, page, style
from florist.common.settings.addresses import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.observability.status import Status

log = logging.getLogger("florist.observability")

#: Connections at a time.
MAX_CONNECTIONS = 16
#: Seconds for receiving each part of a request, and for sending each part of a reply.
TIMEOUT = 5.0

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """The reply to a request."""

    body: bytes
    kind: str = _TEXT
    code: HTTPStatus = HTTPStatus.OK


class StatusServer(ThreadingHTTPServer):
    """Answers GET requests for a few paths."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: str, status: Status) -> None:
        """Listen at `address`.

        Raises:
            ConfigurationError: the address is not available.
        """
        host, port = split_address(address)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._status = status
        self._metrics = Metrics(status)
        self._connections: deque[socket.socket] = deque()
        self._lock = Lock()
        self._pages = {"/": page(status.about).encode(), "/status.css": style().encode()}
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigurationError(
                f"observability.address: cannot listen at {address}: {error.strerror or error}; "
                "name an address of this machine and a free port, or null for no status page"
            ) from None
        self._hosts = allowed_hosts(str(self.server_address[0]))

    def is_for_us(self, host: str) -> bool:
        """Return whether a request with this Host header is answered."""
        return is_allowed_host(host, self._hosts)

    def answer(self, path: str, accept: str) -> Answer:
        """Return the reply to a request for `path`."""
        answers: dict[str, Callable[[], Answer]] = {
            "/": lambda: Answer(self._pages["/"], "text/html; charset=utf-8"),
            "/status.css": lambda: Answer(self._pages["/status.css"], "text/css; charset=utf-8"),
            "/status.js": lambda: Answer(SCRIPT, "text/javascript; charset=utf-8"),
            "/status.json": self._json,
            "/metrics": lambda: Answer(*self._metrics.write(accept)),
            "/healthz": lambda: _health(self._status.failure),
            "/readyz": lambda: _health(self._status.unready()),
        }
        if path not in answers:
            return Answer(f"not found; available: {', '.join(answers)}\n".encode(), code=_NOT_FOUND)
        return answers[path]()

    def _json(self) -> Answer:
        return Answer(status_json(self._status.snapshot()).encode(), "application/json")

    # --- called by the standard library ---

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's looks up our host name, which may take long

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        with self._lock:
            self._connections.append(request)
            oldest = (
                self._connections.popleft() if len(self._connections) > MAX_CONNECTIONS else None
            )
        if oldest is not None:
            _close(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        with self._lock, suppress(ValueError):
            self._connections.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        del request, client_address
        log.debug("a status request failed: %s", sys.exception())

    def close_connections(self) -> None:
        """Close all open connections."""
        with self._lock:
            for connection in self._connections:
                _close(connection)


_NOT_FOUND = HTTPStatus.NOT_FOUND


def _health(problem: str | None) -> Answer:
    if problem is None:
        return Answer(b"ok\n")
    return Answer(f"{problem}\n".encode(), code=HTTPStatus.SERVICE_UNAVAILABLE)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: StatusServer
    timeout = TIMEOUT
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = _TEXT

    def do_GET(self) -> None:
        if not self.server.is_for_us(self.headers.get("Host", "")):
            self._send(Answer(b"wrong host name\n", code=_MISDIRECTED))
            return
        self._send(self.server.answer(urlsplit(self.path).path, self.headers.get("Accept", "")))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def version_string(self) -> str:
        return "florist"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        """Do not log requests."""


_MISDIRECTED = HTTPStatus.MISDIRECTED_REQUEST


@contextmanager
def status_server(address: str, status: Status) -> Iterator[str]:
    """Serve in the background while the context lasts; yields `host:port`.

    Raises:
        ConfigurationError: the address is not available.
    """
    server = StatusServer(address, status)
    thread = Thread(
        target=server.serve_forever, args=(0.1,), name="florist-observability", daemon=True
    )
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        server.close_connections()
        server.server_close()
        thread.join(TIMEOUT)
