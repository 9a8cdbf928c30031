"""Predictions for the organisation's own applications: a small HTTP service beside its data.

It listens on this machine alone unless told otherwise, and answers only who shows its token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import math
import secrets
import socket
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from florist.common.core.errors import ConfigurationError, FloristError, TransportError
from florist.common.serving.private_files import private_file
from florist.common.settings.addresses import split_address
from florist.common.stages.observe import NOBODY
from florist.common.training.devices import set_threads
from florist.common.transport.grpc_prediction_client import PeerBusy
from florist.passive_party.http_connection import TimedConnection
from florist.passive_party.openapi import Shape, describe, page
from florist.passive_party.row_encoder import BadRow
from florist.passive_party.serving import PredictionClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    from starlette.requests import Request
    from starlette.responses import Response

    from florist.common.settings.party_config import PartyConfig
    from florist.common.settings.serving import Http
    from florist.common.stages.observe import ServiceWatch

log = logging.getLogger("florist.serving")

#: Seconds in which a request's body must have come.
_BODY_TIME = 30.0
#: Requests at once; uvicorn refuses more with 503.
_AT_ONCE = 256


class PredictionApi:
    """The service's methods."""

    def __init__(
        self,
        client: PredictionClient,
        settings: Http,
        token: str,
        watch: ServiceWatch = NOBODY,
    ) -> None:
        self._client = client
        self._watch = watch
        self._settings = settings
        self._token = token.encode()
        self._shape = Shape(
            None if client.by_id else client.columns, settings.max_rows, client.classes
        )

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/openapi.json", self.openapi),
                Route("/health", self.health),
                Route("/ready", self.ready),
                Route("/predict", self.predict, methods=["POST"]),
            ],
            exception_handlers={HTTPException: _refused, Exception: _bug},
        )

    async def page(self, request: Request) -> Response:
        return HTMLResponse(page(self._shape, request.url.netloc))

    async def openapi(self, request: Request) -> Response:
        del request
        return JSONResponse(describe(self._shape))

    async def health(self, request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        del request
        if await run_in_threadpool(self._client.is_ready):
            return JSONResponse({"status": "ok"})
        raise HTTPException(503, "the other party serves no predictions now")

    async def predict(self, request: Request) -> Response:
        self._check_token(request)
        rows = self._rows(await self._body(request))
        return JSONResponse({"probabilities": await run_in_threadpool(self._ask, rows)})

    def _check_token(self, request: Request) -> None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        shown = token.strip().encode()
        if kind.lower() != "bearer" or not hmac.compare_digest(shown, self._token):
            raise HTTPException(
                401, "the token is missing or wrong", headers={"WWW-Authenticate": "Bearer"}
            )

    async def _body(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, "the body must be application/json")
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_TIME):
                async for part in request.stream():
                    body += part
                    if len(body) > self._settings.max_bytes:
                        limit = self._settings.max_bytes
                        raise HTTPException(413, f"the body is longer than {limit:,} bytes")
        except TimeoutError:
            raise HTTPException(408, f"the body did not come within {_BODY_TIME:g} s") from None
        return bytes(body)

    def _rows(self, body: bytes) -> list[Any]:
        try:
            asked = json.loads(body, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise HTTPException(400, "the body is no JSON") from None
        key = self._shape.key
        if not isinstance(asked, dict) or asked.keys() != {key}:
            raise HTTPException(422, f'the body must be an object with the one key "{key}"')
        rows = asked[key]
        kind = str if self._client.by_id else dict
        if not isinstance(rows, list) or not all(isinstance(row, kind) for row in rows):
            what = "IDs as text" if self._client.by_id else "objects, one per row"
            raise HTTPException(422, f'"{key}" must be a list of {what}')
        if not 1 <= len(rows) <= self._settings.max_rows:
            most = self._settings.max_rows
            raise HTTPException(422, f'"{key}" must have 1 to {most:,} entries, not {len(rows):,}')
        return rows

    def _ask(self, rows: list[Any]) -> list[Any]:
        ask = self._client.predict_people if self._client.by_id else self._client.predict
        try:
            found: list[Any] = ask(rows).tolist()
        except BadRow as error:
            raise HTTPException(422, error.reason) from None
        except PeerBusy as error:
            wait = str(math.ceil(error.retry_after))
            raise HTTPException(429, error.reason, headers={"Retry-After": wait}) from None
        except TransportError as error:
            raise HTTPException(503, error.reason) from None
        except FloristError as error:
            log.warning("%s", error.reason)
            raise HTTPException(502, error.reason) from None
        self._watch.served(len(rows))
        return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


async def _refused(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _bug(request: Request, error: Exception) -> Response:
    del request
    log.error("a bug in FLORIST:", exc_info=error)
    return JSONResponse({"error": "an internal error"}, 500)


@contextmanager
def http_service(
    client: PredictionClient,
    settings: Http,
    token: str,
    drain: float,
    watch: ServiceWatch = NOBODY,
) -> Iterator[str]:
    """Serve in the background; gives `host:port`. At the end, requests under way may finish.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    listening = _listen(settings.address)
    config = uvicorn.Config(
        PredictionApi(client, settings, token, watch).app(),
        http=TimedConnection,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=_AT_ONCE,
        timeout_graceful_shutdown=math.ceil(drain),
    )
    server = uvicorn.Server(config)
    # In a thread of its own uvicorn leaves signals alone.
    thread = Thread(target=server.run, args=([listening],), name="florist-http", daemon=True)
    thread.start()
    try:
        host, port = listening.getsockname()[:2]
        yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    finally:
        server.should_exit = True
        thread.join(drain + 5)
        listening.close()


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigurationError(
            f"serving.http.address: cannot listen at {address}: {error.strerror or error}"
        ) from None


def serve(
    config: PartyConfig, until: Event, *, plaintext: bool, watch: ServiceWatch = NOBODY
) -> None:
    """Serve the organisation's applications until the event is set, or Ctrl-C or SIGTERM."""
    set_threads(config.serving.threads)
    http = config.serving.http
    token_file = http.token_file or config.run_directory / "serving" / "http-token"
    token = private_file(token_file, lambda: secrets.token_urlsafe(32).encode() + b"\n")
    text = token.decode(errors="replace").strip()
    if len(text) < 16 or not text.isascii() or not text.isprintable():
        raise ConfigurationError(f"{token_file}: a token has at least 16 ASCII characters")
    with (
        PredictionClient.connect(config, plaintext=plaintext) as client,
        http_service(client, http, text, config.serving.drain, watch) as address,
        watch.ready(client.is_ready),
    ):
        log.info("ready at http://%s; the token is in %s", address, token_file)
        with suppress(KeyboardInterrupt):
            until.wait()
        log.info("stopping: requests under way have %g s to finish", config.serving.drain)
    log.info("stopped")
