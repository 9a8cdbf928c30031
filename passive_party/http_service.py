"""An HTTP service that gives the passive party's own applications predictions.

By default it listens on this machine only. Predictions and the names of the columns need a bearer
token.
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
from typing import TYPE_CHECKING, NoReturn, TypeGuard

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError, FloristError, TransportError
from florist.common.core.host_header import allowed_hosts, is_allowed_host
from florist.common.observability.service_watch import UNWATCHED
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.addresses import split_address
from florist.common.storage.private_files import private_file
from florist.common.training.devices import set_threads
from florist.common.transport.grpc_prediction_client import PeerBusy
from florist.passive_party.http_connection import TimedConnection
from florist.passive_party.openapi import ApiSchema, describe, page
from florist.passive_party.readiness import CachedReadiness
from florist.passive_party.row_encoder import BadRow
from florist.passive_party.serving import PredictionClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    import numpy as np
    import numpy.typing as npt
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from florist.common.core.clock import Clock
    from florist.common.observability.service_watch import ServiceWatch
    from florist.common.settings.party_config import PartyConfig
    from florist.common.settings.serving import Http

log = logging.getLogger("florist.serving")

#: Seconds within which the body of a request must arrive.
_BODY_TIMEOUT = 30.0
#: The maximum number of concurrent requests; uvicorn refuses more with status 503.
_MAX_CONCURRENT = 256
#: For responses that depend on the token.
_NO_STORE = {"Cache-Control": "no-store"}


class PredictionApi:
    """The endpoints of the service."""

    def __init__(
        self,
        client: PredictionClient,
        settings: Http,
        token: str,
        watch: ServiceWatch = UNWATCHED,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._readiness = CachedReadiness(client.is_ready, clock)
        self._watch = watch
        self._clock = clock
        self._settings = settings
        self._token = token.encode()
        self._schema = ApiSchema(
            by_id=client.by_id,
            columns=None if client.by_id else client.columns,
            max_rows=settings.max_rows,
            classes=client.classes,
        )

    def app(self, hosts: frozenset[str] | None) -> Starlette:
        """Return the ASGI application; it refuses requests to other hosts (None: any)."""
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/openapi.json", self.openapi),
                Route("/health", self.health),
                Route("/ready", self.ready),
                Route("/predict", self.predict, methods=["POST"]),
            ],
            middleware=[Middleware(_HostCheck, hosts=hosts)],
            exception_handlers={HTTPException: _refuse, Exception: _internal_error},
        )

    async def page(self, request: Request) -> Response:
        """Return the documentation page; it names the columns only to senders of the token."""
        schema = self._visible_schema(request)
        return HTMLResponse(page(schema, request.url.netloc), headers=_NO_STORE)

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI description; it names the columns only to senders of the token."""
        return JSONResponse(describe(self._visible_schema(request)), headers=_NO_STORE)

    async def health(self, request: Request) -> Response:
        """Report that this service is running."""
        del request
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Report whether the peer is serving predictions."""
        del request
        if await self._readiness.is_ready():
            return JSONResponse({"status": "ok"})
        raise HTTPException(503, "the other party is not serving predictions")

    async def predict(self, request: Request) -> Response:
        """Return the predictions for the rows or IDs in the body."""
        try:
            self._check_token(request)
            body = await self._body(request)
            arrived = self._clock.now()
            answer = JSONResponse({"probabilities": await run_in_threadpool(self._answer, body)})
        except HTTPException as refused:
            self._watch.refused(f"HTTP {refused.status_code}")
            raise
        except Exception:
            self._watch.refused("HTTP 500")
            raise
        self._watch.answered(self._clock.now() - arrived)
        return answer

    def _answer(self, body: bytes) -> list[float] | list[list[float]]:
        """Parse the body and predict; in a thread, because both take a while for a large body."""
        return self._predict(self._parse(body))

    def _visible_schema(self, request: Request) -> ApiSchema:
        """Return what the sender of the request may see; a wrong token is refused."""
        if "authorization" not in request.headers:
            return self._schema.without_columns()
        self._check_token(request)
        return self._schema

    def _check_token(self, request: Request) -> None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        presented = token.strip().encode()
        if kind.lower() != "bearer" or not hmac.compare_digest(presented, self._token):
            raise HTTPException(
                401, "the token is missing or wrong", headers={"WWW-Authenticate": "Bearer"}
            )

    async def _body(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, "the content type must be application/json")
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                async for part in request.stream():
                    body += part
                    if len(body) > self._settings.max_bytes:
                        limit = self._settings.max_bytes
                        raise HTTPException(413, f"the body is longer than {limit:,} bytes")
        except TimeoutError:
            raise HTTPException(
                408, f"the body did not arrive within {_BODY_TIMEOUT:g} s"
            ) from None
        return bytes(body)

    def _parse(self, body: bytes) -> list[object]:
        """Return the rows or IDs in the body; not checked yet."""
        try:
            content: object = json.loads(
                body, parse_constant=_refuse_constant, object_hook=_let_others_run
            )
        except (ValueError, RecursionError):
            raise HTTPException(400, "the body is not valid JSON") from None
        key = self._schema.key
        if not isinstance(content, dict) or content.keys() != {key}:
            raise HTTPException(422, f'the body must be an object with the single key "{key}"')
        entries: object = content[key]
        if not isinstance(entries, list):
            raise self._wrong_type()
        if not 1 <= len(entries) <= self._settings.max_rows:
            limit = self._settings.max_rows
            raise HTTPException(
                422, f'"{key}" must have 1 to {limit:,} entries, not {len(entries):,}'
            )
        return entries

    def _predict(self, entries: list[object]) -> list[float] | list[list[float]]:
        try:
            probabilities: list[float] | list[list[float]] = self._request(entries).tolist()
        except BadRow as error:
            raise HTTPException(422, error.for_owner) from None
        except PeerBusy as error:
            wait = str(math.ceil(error.retry_after))
            raise HTTPException(429, error.reason, headers={"Retry-After": wait}) from None
        except TransportError as error:
            raise HTTPException(503, error.reason) from None
        except FloristError as error:
            log.warning("%s", error.reason)
            raise HTTPException(502, error.reason) from None
        self._watch.served(len(entries))
        return probabilities

    def _request(self, entries: list[object]) -> npt.NDArray[np.float32]:
        if self._client.by_id:
            if _are_strings(entries):
                return self._client.predict_people(entries)
        elif _are_objects(entries):
            return self._client.predict(entries)
        raise self._wrong_type()

    def _wrong_type(self) -> HTTPException:
        kind = "strings, one per ID" if self._client.by_id else "objects, one per row"
        return HTTPException(422, f'"{self._schema.key}" must be a list of {kind}')


def _are_strings(entries: list[object]) -> TypeGuard[list[str]]:
    return all(isinstance(entry, str) for entry in entries)


def _are_objects(entries: list[object]) -> TypeGuard[list[dict[str, object]]]:
    return all(isinstance(entry, dict) for entry in entries)


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinity, which Python's parser accepts but JSON does not have."""
    raise ValueError(name)


def _let_others_run(row: dict[str, object]) -> dict[str, object]:
    """Return the row as it is.

    The parser is C code that never releases the interpreter's lock. Calling Python for each row
    lets other threads, such as the one of the event loop, run in between.
    """
    return row


class _HostCheck:
    """ASGI middleware that answers only requests to the host names of this service."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_allowed_host(_host(scope), self._hosts):
            refusal = JSONResponse({"error": "wrong host name"}, 421)
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _host(scope: Scope) -> str:
    return Headers(scope=scope).get("host", "")


async def _refuse(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _internal_error(request: Request, error: Exception) -> Response:
    del request
    log.error("internal error:", exc_info=error)
    return JSONResponse({"error": "internal error"}, 500)


@contextmanager
def http_service(
    client: PredictionClient,
    settings: Http,
    token: str,
    drain: float,
    watch: ServiceWatch = UNWATCHED,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[str]:
    """Serve in the background; yields `host:port`. On exit, open requests can finish.

    Raises:
        ConfigurationError: the address is not available.
    """
    listening = _listen(settings.address)
    host, port = listening.getsockname()[:2]
    config = uvicorn.Config(
        PredictionApi(client, settings, token, watch, clock).app(allowed_hosts(host)),
        http=TimedConnection,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=_MAX_CONCURRENT,
        timeout_graceful_shutdown=math.ceil(drain),
    )
    server = uvicorn.Server(config)
    # In a thread other than the main one, uvicorn does not install signal handlers.
    thread = Thread(target=server.run, args=([listening],), name="florist-http", daemon=True)
    thread.start()
    try:
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
    config: PartyConfig, until: Event, *, plaintext: bool, watch: ServiceWatch = UNWATCHED
) -> None:
    """Serve the party's own applications until the event is set or a signal arrives."""
    set_threads(config.serving.threads)
    RunDirectory(config.run_directory).restrict()
    http = config.serving.http
    token_file = http.token_file or config.run_directory / "serving" / "http-token"
    token = private_file(token_file, lambda: secrets.token_urlsafe(32).encode() + b"\n")
    text = token.decode(errors="replace").strip()
    if len(text) < 16 or not text.isascii() or not text.isprintable():
        raise ConfigurationError(
            f"{token_file}: the token must have at least 16 printable ASCII characters"
        )
    with (
        PredictionClient.connect(config, plaintext=plaintext) as client,
        http_service(client, http, text, config.serving.drain_timeout, watch) as address,
        watch.ready(client.traffic, client.is_ready),
    ):
        log.info("ready at http://%s; the token is in %s", address, token_file)
        with suppress(KeyboardInterrupt):
            until.wait()
        log.info("stopping: open requests have %g s to finish", config.serving.drain_timeout)
    log.info("stopped")
