"""The dialing side of the network link, used by the passive party.

It retries as long as waiting can help, and reports why it waits.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, TypeVar

import grpc

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import FloristError, PeerLost, ProtocolViolation, TransportError
from florist.common.transport import codec
from florist.common.transport.channel import CONTROL
from florist.common.transport.grpc_streams import (
    CHANNEL,
    OPTIONS,
    REPORT_EVERY,
    REQUIRED_TLS,
    SESSION,
    TLS,
    GrpcLink,
    Stream,
    shown,
)
from florist.common.transport.peer_unavailable import CertificateRejected, PeerUnavailable
from florist.common.transport.rate_limited_log import RateLimitedLog
from florist.common.transport.tls_probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.core.clock import Clock
    from florist.common.transport.channel import Link
    from florist.common.transport.credentials import Credentials
    from florist.common.transport.pipes import PipeChannel

log = logging.getLogger("florist.transport")

T = TypeVar("T")

#: Seconds for the listening party to answer one attempt to connect.
_ATTEMPT = 10.0
#: Consecutive handshakes that the peer ends after our certificate before they count as refused.
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
    """Connect to the party that listens at `address`, which may start later than this one.

    Args:
        address: `host:port`.
        credentials: None connects without TLS.
        peer_name: the required common name of the listener's certificate.
        timeout: seconds to keep trying.
        on_wait: called with the reason for waiting, when it changes and every few seconds.

    Raises:
        PeerUnavailable: the party could not be reached in time.
        TransportError: at once, if waiting cannot help.
    """

    def connect(certificate: bytes | None, seconds: float) -> Link:
        channel = pinned_channel(address, credentials, peer_name, certificate)
        return _connect(channel, address, peer_name, seconds, with_tls=credentials is not None)

    return keep_trying(address, credentials, peer_name, timeout, connect, on_wait)


def keep_trying(
    address: str,
    credentials: Credentials | None,
    peer_name: str,
    timeout: float,
    connect: Callable[[bytes | None, float], T],
    on_wait: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> T:
    """Call `connect` until it succeeds and return its result.

    `connect` receives the peer's certificate, which has been checked (None without TLS), and the
    maximum seconds of one attempt. The other arguments and the errors are those of `dial`.
    """
    if credentials is None:
        log.warning("TLS is off: the connection is readable and unauthenticated")
    deadline = clock.now() + timeout
    waiting = RateLimitedLog(on_wait, REPORT_EVERY, clock)
    pause, refusals = 0.1, 0
    while True:
        seconds = min(_ATTEMPT, max(0.1, deadline - clock.now()))
        try:
            certificate = probe(address, credentials, peer_name, seconds)
            return connect(certificate, seconds)
        except PeerUnavailable as error:
            refusals = refusals + 1 if isinstance(error, CertificateRejected) else 0
            reason = error.reason
        if refusals == _REFUSALS:
            raise TransportError(
                f"{reason}, {_REFUSALS} times: it was probably refused. See the peer's log for the "
                "reason, and check that the certificate has not expired, that both clocks are "
                "right, and that it was issued by the authority that the peer trusts"
            )
        pause = min(2 * pause, 2.0)
        if clock.now() + pause >= deadline:
            raise PeerUnavailable(
                f"{peer_name} could not be reached within {timeout:g} s: {reason}"
            )
        waiting.tell(reason)
        clock.sleep(pause)


def pinned_channel(
    address: str, credentials: Credentials | None, peer_name: str, certificate: bytes | None
) -> grpc.Channel:
    """A gRPC channel to the owner of a certificate; it connects on first use.

    Args:
        address: `host:port`.
        credentials: None connects without TLS.
        peer_name: the name of the peer.
        certificate: the peer's certificate in PEM format, as `probe` returned it. No connection of
            the channel accepts another one.
    """
    options: list[tuple[str, str | int]] = list(_OPTIONS)
    if credentials is None:
        return grpc.insecure_channel(address, options)
    if certificate is None:
        raise ValueError("a channel with TLS needs the peer's certificate")
    # TLS compares the listener's certificate with the party's name, not with its host name.
    options.append(("grpc.ssl_target_name_override", peer_name))
    return grpc.secure_channel(address, credentials.for_dialer(certificate), options)


def _connect(
    channel: grpc.Channel, address: str, peer_name: str, timeout: float, *, with_tls: bool
) -> _DialedLink:
    link = _DialedLink(channel, address, peer_name, with_tls=with_tls)
    try:
        link.open_control(timeout)
    except BaseException:
        link.close()
        raise
    return link


class _DialedLink(GrpcLink):
    """The dialing side of a session."""

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
        """Open the control channel, which starts the session.

        Raises:
            PeerUnavailable: the peer is reachable but cannot accept the session now.
            TransportError: the peer refuses the session.
        """
        with self._changed:
            control = self._find(CONTROL)
        self._announce(control)
        try:
            self._await_peer(control, timeout)
        except PeerLost:
            raise PeerUnavailable(
                f"{self._address} accepts connections but does not answer"
            ) from None

    def _announce(self, channel: PipeChannel) -> None:
        """Open the channel's stream, unless `open_control` has done it."""
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
            self._start_reading(stream, self._answers(channel, call))

    def _answers(self, channel: PipeChannel, call: grpc._CallIterator[bytes]) -> Iterator[bytes]:
        """The messages of a stream, after the peer has accepted it."""
        tls = dict(call.initial_metadata()).get(TLS)
        if tls is not None:
            if self._with_tls and tls != REQUIRED_TLS:
                self.fail(
                    TransportError(f"the connection uses {shown(str(tls))}; TLS 1.3 is required")
                )
            self._peer_opened(channel.name)
        yield from call

    def _stream_failed(self, stream: Stream, error: grpc.RpcError) -> None:
        if stream.channel.name == CONTROL and not stream.channel.opened_by_peer:
            self.fail(_refusal(error, self._address, self._peer_name))
        else:
            self._fail_soon(_loss(error, self._peer_name))

    def _release(self) -> None:
        self._channel.close()


def _refusal(error: grpc.RpcError, address: str, peer_name: str) -> TransportError:
    """The error for a session that could not be opened."""
    details = shown(error.details())
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return PeerUnavailable(f"{peer_name} is busy: {details}")
        case (
            grpc.StatusCode.UNAUTHENTICATED
            | grpc.StatusCode.PERMISSION_DENIED
            | grpc.StatusCode.FAILED_PRECONDITION
            | grpc.StatusCode.INVALID_ARGUMENT
        ):
            return TransportError(f"{peer_name} at {address} refused this party: {details}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return TransportError(
                f"the server at {address} is not a FLORIST party, or runs another release"
            )
        case _:
            return PeerUnavailable(f"the connection to {address} was lost: {details}")


def _loss(error: grpc.RpcError, peer_name: str) -> FloristError:
    """The error for an open stream that ended."""
    details = shown(error.details())
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return ProtocolViolation(f"a message exceeded the size limit: {details}")
        case _:
            return PeerLost(f"the connection to {peer_name} was lost: {details}")
