"""Tests whether a listening party can be reached, before gRPC connects.

gRPC hides why a connection fails: a rejected client sees `Socket closed`, and waiting for the
channel to become ready hides even that. The dialing side therefore performs one TLS handshake
itself, which shows what is wrong and whether waiting can help.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError, TransportError
from florist.common.settings.addresses import split_address
from florist.common.transport.peer_identity import read_identity, shown_names
from florist.common.transport.peer_unavailable import CertificateRejected, PeerUnavailable

if TYPE_CHECKING:
    from florist.common.transport.credentials import Credentials

#: The first bytes of a gRPC client: the HTTP/2 preface and empty settings.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))

# OpenSSL's verification error codes.
_NOT_YET_VALID = 9
_EXPIRED = 10
_OTHER_ISSUER = {2, 18, 19, 20, 21}
_OTHER_NAME = {62, 64}


def probe(
    address: str, credentials: Credentials | None, peer_name: str, timeout: float
) -> bytes | None:
    """Connect to a listening party, perform a handshake and disconnect.

    Returns the peer's certificate in PEM format, after checking it; None without TLS. The caller
    pins it for its own connections, which might reach another server than the probe did.

    Args:
        address: `host:port`.
        credentials: None connects without TLS.
        peer_name: the required common name of the listener's certificate.
        timeout: seconds for each network operation.

    Raises:
        PeerUnavailable: the party cannot be reached now.
        TransportError: the party can be reached, but waiting cannot fix the problem.
    """
    host, port = _host_and_port(address)
    try:
        with socket.create_connection((host, port), timeout) as connection:
            if credentials is not None:
                return _probe_tls(connection, credentials, address, peer_name)
            _probe_plaintext(connection, address, timeout)
            return None
    except socket.gaierror as error:
        raise PeerUnavailable(
            f"the host name {host} cannot be resolved: {error.strerror}"
        ) from None
    except TimeoutError:
        raise PeerUnavailable(f"{address} does not answer") from None
    except ConnectionRefusedError:
        raise PeerUnavailable(f"nothing listens on {address}") from None
    except OSError as error:
        raise PeerUnavailable(f"{address} cannot be reached: {error.strerror or error}") from None


def _probe_tls(
    connection: socket.socket, credentials: Credentials, address: str, peer_name: str
) -> bytes:
    """Perform a TLS handshake; return the listener's certificate if both sides accept each other.

    In TLS 1.3 the client completes its handshake before the server checks the client's certificate.
    The server then either sends its HTTP/2 settings, or closes the connection without a message.
    """
    try:
        tls = credentials.context().wrap_socket(connection, server_hostname=peer_name)
    except ssl.SSLCertVerificationError as error:
        raise TransportError(_certificate_refused(error, address, peer_name)) from None
    except ssl.SSLEOFError:
        raise PeerUnavailable(f"{address} closes connections at once") from None
    except ssl.SSLError as error:
        raise TransportError(_handshake_failed(error, address)) from None
    with tls:
        pem = ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True) or b"").encode()
        identity = read_identity(pem)
        if identity.problem(peer_name, None) is not None:
            raise TransportError(
                f"the certificate at {address} belongs to {shown_names(identity.common_names)}, "
                f"but this party's configuration names the peer {peer_name!r}; check the address "
                "and party.peer. The common name must be exactly the peer's name"
            )
        if identity.problem(peer_name, credentials.peer_key_sha256) is not None:
            raise TransportError(
                f"the SHA-256 of the public key of {peer_name} at {address} is "
                f"{identity.key_sha256}, but network.tls.peer_key_sha256 is "
                f"{credentials.peer_key_sha256}; if the peer has a new key, confirm the value with "
                "the peer by other means and correct the setting"
            )
        if not _first_bytes(tls):
            raise CertificateRejected(
                f"{peer_name} at {address} closed the connection after it received this party's "
                f"certificate {credentials.certificate}"
            )
        return pem


def _probe_plaintext(connection: socket.socket, address: str, timeout: float) -> None:
    connection.sendall(_HTTP2_PREFACE)
    if _first_bytes(connection):
        return
    if _speaks_tls(address, timeout):
        raise TransportError(
            f"the peer at {address} expects TLS, but this party connects without TLS; configure "
            "network.tls for this party"
        )
    raise PeerUnavailable(f"{address} closes connections at once")


def _speaks_tls(address: str, timeout: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: only the answer matters
    context.set_alpn_protocols(["h2"])
    with suppress(OSError):
        with socket.create_connection(_host_and_port(address), timeout) as connection:
            context.wrap_socket(connection).close()
        return True
    return False


def _first_bytes(connection: socket.socket) -> bytes:
    """The first bytes from the other side; empty if it closes the connection."""
    try:
        return connection.recv(16)
    except (ConnectionResetError, ssl.SSLError):
        return b""


def _certificate_refused(error: ssl.SSLCertVerificationError, address: str, peer_name: str) -> str:
    match error.verify_code:
        case code if code in _OTHER_NAME:
            return (
                f"the certificate at {address} is not for {peer_name!r}; check the address and "
                "party.peer. A certificate must list its party's name"
            )
        case code if code == _EXPIRED:
            return (
                f"the certificate of {peer_name} at {address} has expired; the peer needs a new "
                "one. If it has a new one, check this machine's clock"
            )
        case code if code == _NOT_YET_VALID:
            return (
                f"the certificate of {peer_name} at {address} is not valid yet; check the clocks "
                "of both machines"
            )
        case code if code in _OTHER_ISSUER:
            return (
                f"the certificate at {address} was not issued by this party's authority; the "
                "certificate of the peer's authority must be in network.tls.authority, or in "
                "network.tls.peer_authority if each party has its own authority"
            )
        case _:
            return f"the certificate at {address} cannot be trusted: {error.verify_message}"


def _handshake_failed(error: ssl.SSLError, address: str) -> str:
    match error.reason or "":
        case "WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE" | "PACKET_LENGTH_TOO_LONG":
            return (
                f"{address} does not use TLS: the peer runs without TLS, or it is another service. "
                "Configure certificates on both sides"
            )
        case "TLSV1_ALERT_PROTOCOL_VERSION" | "UNSUPPORTED_PROTOCOL":
            return f"{address} does not support TLS 1.3, which is required"
        case reason:
            return f"the TLS handshake with {address} failed: {reason.replace('_', ' ').lower()}"


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        return split_address(address)
    except ValueError as error:
        raise ConfigurationError(f"the address {address!r} {error}") from None
