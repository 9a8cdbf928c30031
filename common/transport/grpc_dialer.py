"""The dialling side of the link over the network, which is the passive party's.

Keeps trying while waiting can help, and says why it waits.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, TypeVar

import grpc

from florist.common.core.errors import FloristError, PeerLost, ProtocolViolation, TransportError
from florist.common.transport import codec
from florist.common.transport.channel import CONTROL
from florist.common.transport.credentials import Closed, NotYet, shake_hands
from florist.common.transport.grpc_streams import (
    CHANNEL,
    OPTIONS,
    REPORT_EVERY,
    REQUIRED_TLS,
    SESSION,
    TLS,
    GrpcLink,
    RateLimitedLog,
    Stream,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.transport.channel import Link
    from florist.common.transport.credentials import Credentials
    from florist.common.transport.pipes import PipeChannel

log = logging.getLogger("florist.transport")

T = TypeVar("T")

#: Seconds for an answer of the listening party to one attempt to connect.
_ATTEMPT = 10.0
#: Handshakes in a row that the peer ends after our certificate before that counts as refused.
_REFUSALS = 3

_OPTIONS = (
    *OPTIONS,
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


def dial(
    address: str,
    credentials: Credentials | None,
    peer_name: str,
    timeout: float,
    on_wait: Callable[[str], None] | None = None,
) -> Link:
    """The link to the party that listens at `address`, which may start later than this one.

    Args:
        address: `host:port`.
        credentials: None dials in plain text.
        peer_name: must be the common name of the listener's certificate.
        timeout: seconds to keep trying.
        on_wait: hears why it takes so long: on news, and every few seconds.

    Raises:
        NotYet: it could not be reached in time.
        TransportError: at once, when waiting cannot mend it.
    """

    def connect(patience: float) -> Link:
        return _connect(address, credentials, peer_name, patience)

    return keep_trying(address, credentials, peer_name, timeout, connect, on_wait)


def keep_trying(
    address: str,
    credentials: Credentials | None,
    peer_name: str,
    timeout: float,
    connect: Callable[[float], T],
    on_wait: Callable[[str], None] | None = None,
) -> T:
    """What `connect` gives, given the seconds that one attempt may take; else as `dial`."""
    if credentials is None:
        log.warning("dialling in plain text: anyone on the network can read and pretend")
    deadline = time.monotonic() + timeout
    teller = RateLimitedLog(on_wait, REPORT_EVERY)
    pause, refusals = 0.1, 0
    while True:
        patience = min(_ATTEMPT, max(0.1, deadline - time.monotonic()))
        try:
            shake_hands(address, credentials, peer_name, patience)
            return connect(patience)
        except NotYet as error:
            refusals = refusals + 1 if isinstance(error, Closed) else 0
            reason = error.reason
        if refusals == _REFUSALS:
            raise TransportError(
                f"{reason}, {_REFUSALS} times: it was probably refused. The peer's log has the "
                "reason; check that the certificate has not expired and was issued by the "
                "authority that the peer trusts"
            )
        pause = min(2 * pause, 2.0)
        if time.monotonic() + pause >= deadline:
            raise NotYet(f"{peer_name} could not be reached within {timeout:g} s: {reason}")
        teller.tell(reason)
        time.sleep(pause)


def open_channel(address: str, credentials: Credentials | None, peer_name: str) -> grpc.Channel:
    """The way to the party of that name; it connects when it is used."""
    options: list[tuple[str, str | int]] = list(_OPTIONS)
    if credentials is None:
        return grpc.insecure_channel(address, options)
    # TLS compares the listener's certificate with the party's name, wherever it runs.
    options.append(("grpc.ssl_target_name_override", peer_name))
    return grpc.secure_channel(address, credentials.for_dialer(), options)


def _connect(
    address: str, credentials: Credentials | None, peer_name: str, timeout: float
) -> _DialedLink:
    channel = open_channel(address, credentials, peer_name)
    link = _DialedLink(channel, address, peer_name, with_tls=credentials is not None)
    try:
        link.open_control(timeout)
    except BaseException:
        link.close()
        raise
    return link


class _DialedLink(GrpcLink):
    """The dialling side of a session."""

    def __init__(
        self, channel: grpc.Channel, address: str, peer_name: str, *, with_tls: bool
    ) -> None:
        super().__init__(peer_name)
        self._channel = channel
        self._address = address
        self._with_tls = with_tls
        self._session = secrets.token_hex(16)
        self._converse: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            codec.METHOD
        )

    def open_control(self, timeout: float) -> None:
        """Begin the session.

        Raises:
            NotYet: the peer is there and cannot take it now.
            TransportError: the peer refuses it.
        """
        with self._changed:
            control = self._find(CONTROL)
        self._announce(control)
        try:
            self._await_peer(control, timeout)
        except PeerLost:
            raise NotYet(f"{self._address} takes connections, but does not answer") from None

    def _announce(self, channel: PipeChannel) -> None:
        """Open the channel's stream, unless `open_control` has."""
        with self._changed:
            self.check()
            if channel.name in self._streams:
                return
            stream = Stream(channel)
            call = self._converse(
                stream.outgoing(self),
                metadata=((SESSION, self._session), (CHANNEL, channel.name)),
            )
            stream.cancel = call.cancel
            if not call.add_callback(stream.finished.set):
                stream.finished.set()
            self._carry(stream, self._answers(channel, call))

    def _answers(self, channel: PipeChannel, call: grpc._CallIterator[bytes]) -> Iterator[bytes]:
        """What comes on a stream, once the peer has taken it."""
        tls = dict(call.initial_metadata()).get(TLS)
        if tls is not None:
            if self._with_tls and tls != REQUIRED_TLS:
                self.fail(
                    TransportError(f"the connection uses {shown(str(tls))}; TLS 1.3 is required")
                )
            self._peer_asked_for(channel.name)
        yield from call

    def _stream_broke(self, stream: Stream, error: grpc.RpcError) -> None:
        if stream.channel.name == CONTROL and not stream.channel.asked_there:
            self.fail(_refusal(error, self._address, self._peer_name))
        else:
            self._break_off(_loss(error, self._peer_name))

    def _let_go(self) -> None:
        self._channel.close()


def _refusal(error: grpc.RpcError, address: str, peer_name: str) -> TransportError:
    """Why a session did not come about."""
    details = shown(error.details())
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return NotYet(f"{peer_name} is busy: {details}")
        case (
            grpc.StatusCode.UNAUTHENTICATED
            | grpc.StatusCode.PERMISSION_DENIED
            | grpc.StatusCode.FAILED_PRECONDITION
            | grpc.StatusCode.INVALID_ARGUMENT
        ):
            return TransportError(f"{peer_name} at {address} refused this party: {details}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return TransportError(
                f"what listens at {address} is no FLORIST party, or one of another release"
            )
        case _:
            return NotYet(f"the connection to {address} broke: {details}")


def _loss(error: grpc.RpcError, peer_name: str) -> FloristError:
    """Why a stream that was open has ended."""
    details = shown(error.details())
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return ProtocolViolation(f"a message was above the limit of the line: {details}")
        case _:
            return PeerLost(f"the connection to {peer_name} broke: {details}")
