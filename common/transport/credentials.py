"""Mutual TLS: a party's three files as gRPC wants them, and one open handshake ahead of gRPC's.

gRPC hides why a connection does not come about: a refused client sees `Socket closed`, and waiting
for readiness hides even that. So the dialling side first shakes hands once by itself and looks at
what comes: it is told what is wrong in a sentence, and knows whether waiting can mend it.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import grpc

from florist.common.core.errors import ConfigurationError, TransportError
from florist.common.settings.addresses import split_address
from florist.common.transport import certificates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: What a gRPC client says first: the preface of HTTP/2 and its empty settings.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))

_NOT_YET_VALID = 9
_EXPIRED = 10
_OTHER_ISSUER = {2, 18, 19, 20, 21}
_OTHER_NAME = {62, 64}


class NotYet(TransportError):  # noqa: N818 - it reads as what happened
    """The peer cannot be reached now; waiting may mend it."""


class Closed(NotYet):
    """The peer ended the connection as soon as it had seen our certificate."""

    advice = (
        "Both certificates must be of one authority and not expired, and the peer must have this "
        "party's name in its configuration; its log has the reason."
    )


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files of one party: its authority, its certificate, its key. Read when used."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def load(cls, authority: Path, certificate: Path, key: Path, own_name: str) -> Credentials:
        """The files, after a check of all that can be wrong with them.

        Raises:
            ConfigurationError: every problem, with the file and the fix.
        """
        certificates.inspect(authority, certificate, key, own_name).require()
        return cls(authority, certificate, key)

    def for_listener(self, on_connection: Callable[[], None]) -> grpc.ServerCredentials:
        """Require a certificate of the same authority; tell of each connection as it begins."""
        configuration = grpc.ssl_server_certificate_configuration(
            [(_read(self.key), _read(self.certificate))], root_certificates=_read(self.authority)
        )

        def unchanged() -> grpc.ServerCertificateConfiguration:
            # gRPC asks once per connection; None means the same certificate as before.
            on_connection()
            return cast("grpc.ServerCertificateConfiguration", None)

        return grpc.dynamic_ssl_server_credentials(
            configuration, unchanged, require_client_authentication=True
        )

    def for_dialer(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            _read(self.authority), _read(self.key), _read(self.certificate)
        )

    def context(self) -> ssl.SSLContext:
        """The same for Python's own TLS, version 1.3 only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC does
        context.set_alpn_protocols(["h2"])
        try:
            context.load_verify_locations(self.authority)
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{self.authority}, {self.certificate} and {self.key} cannot be used for TLS: "
                f"{error}"
            ) from None
        return context


def shake_hands(
    address: str, credentials: Credentials | None, peer_name: str, timeout: float
) -> None:
    """Connect to a listening party, look at what it shows, and leave again.

    Raises:
        NotYet: it cannot be reached now.
        TransportError: it can, and waiting will not mend what is wrong.
    """
    host, port = _host_and_port(address)
    try:
        with socket.create_connection((host, port), timeout) as connection:
            if credentials is None:
                _shake_in_plain_text(connection, address, timeout)
            else:
                _shake_with_tls(connection, credentials, address, peer_name)
    except socket.gaierror as error:
        raise NotYet(f"the name {host} cannot be resolved: {error.strerror}") from None
    except TimeoutError:
        raise NotYet(f"{address} does not answer") from None
    except ConnectionRefusedError:
        raise NotYet(f"nothing listens at {address}") from None
    except OSError as error:
        raise NotYet(f"{address} cannot be reached: {error.strerror or error}") from None


def _shake_with_tls(
    connection: socket.socket, credentials: Credentials, address: str, peer_name: str
) -> None:
    """The handshake, then a look whether the listener accepts our certificate.

    In TLS 1.3 our side is done before the listener has looked at our certificate. It then either
    sends the settings of HTTP/2, or closes without a word.
    """
    try:
        line = credentials.context().wrap_socket(connection, server_hostname=peer_name)
    except ssl.SSLCertVerificationError as error:
        raise TransportError(_certificate_refused(error, address, peer_name)) from None
    except ssl.SSLEOFError:
        raise NotYet(f"{address} ends connections at once") from None
    except ssl.SSLError as error:
        raise TransportError(_handshake_failed(error, address)) from None
    with line:
        if (name := _common_name(line)) != peer_name:
            raise TransportError(
                f"the certificate at {address} is that of {name!r}; this party's configuration "
                f"names the peer {peer_name!r}. Check the address and the peer's name"
            )
        if not _first_bytes(line):
            raise Closed(
                f"{peer_name} at {address} ended the connection when it had seen this party's "
                f"certificate {credentials.certificate}"
            )


def _shake_in_plain_text(connection: socket.socket, address: str, timeout: float) -> None:
    connection.sendall(_HTTP2_PREFACE)
    if _first_bytes(connection):
        return
    if _speaks_tls(address, timeout):
        raise TransportError(
            f"the peer at {address} expects TLS, and this party is set to plain text. "
            "Configure certificates here"
        )
    raise NotYet(f"{address} ends connections at once")


def _speaks_tls(address: str, timeout: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent; only whether it answers matters
    context.set_alpn_protocols(["h2"])
    with suppress(OSError):
        with socket.create_connection(_host_and_port(address), timeout) as connection:
            context.wrap_socket(connection).close()
        return True
    return False


def _first_bytes(connection: socket.socket) -> bytes:
    """What the other side says first; empty if it closes instead."""
    try:
        return connection.recv(16)
    except (ConnectionResetError, ssl.SSLError):
        return b""


def _common_name(line: ssl.SSLSocket) -> str:
    subject = (line.getpeercert() or {}).get("subject", ())
    for part in cast("tuple[tuple[tuple[str, str], ...], ...]", subject):
        for key, value in part:
            if key == "commonName":
                return value
    return ""


def _certificate_refused(error: ssl.SSLCertVerificationError, address: str, peer_name: str) -> str:
    match error.verify_code:
        case code if code in _OTHER_NAME:
            return (
                f"the certificate at {address} is not for {peer_name!r}. Check the address and the "
                "peer's name in the configuration; a certificate must list its party's name"
            )
        case code if code == _EXPIRED:
            return (
                f"the certificate of {peer_name} at {address} has expired. The peer needs a new "
                "one; if it has, check this machine's clock"
            )
        case code if code == _NOT_YET_VALID:
            return (
                f"the certificate of {peer_name} at {address} is not valid yet. Check the clocks "
                "of both machines"
            )
        case code if code in _OTHER_ISSUER:
            return (
                f"the certificate at {address} was not issued by this party's authority. Both "
                "parties need certificates of one authority, and its own certificate"
            )
        case _:
            return f"the certificate at {address} cannot be trusted: {error.verify_message}"


def _handshake_failed(error: ssl.SSLError, address: str) -> str:
    match error.reason or "":
        case "WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE" | "PACKET_LENGTH_TOO_LONG":
            return (
                f"{address} does not speak TLS: is the peer set to plain text, or is it another "
                "service? Configure certificates on both sides"
            )
        case "TLSV1_ALERT_PROTOCOL_VERSION" | "UNSUPPORTED_PROTOCOL":
            return f"{address} offers no TLS 1.3, which is required"
        case reason:
            return f"the TLS handshake with {address} failed: {reason.replace('_', ' ').lower()}"


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        return split_address(address)
    except ValueError as error:
        raise ConfigurationError(f"the address {address!r} {error}") from None


def _no_password() -> str:
    # OpenSSL would otherwise ask on the terminal.
    raise ValueError("the key is encrypted; store it without a passphrase, mode 600")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
