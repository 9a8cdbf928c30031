"""A party's TLS files in the forms that gRPC and Python's ssl module need."""

from __future__ import annotations

import errno
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import grpc

from florist.common.core.errors import ConfigurationError
from florist.common.transport.certificate_check import check_certificates
from florist.common.transport.peer_unavailable import PeerUnavailable, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """The paths of one party's certificate and key, and of the authority that it trusts.

    The files are read when used. `authority` must have signed the peer's certificate.
    `peer_key_sha256` is the required SHA-256 of the peer's public key, in lower-case hex; None
    admits every certificate of the authority that has the peer's name.
    """

    authority: Path
    certificate: Path
    key: Path
    peer_key_sha256: str | None = None

    @classmethod
    def load(
        cls,
        authority: Path,
        certificate: Path,
        key: Path,
        own_name: str,
        peer_key_sha256: str | None = None,
        peer_authority: Path | None = None,
        *,
        at_any_time: bool = False,
    ) -> Credentials:
        """Check the files and return their paths.

        `authority` has signed our certificate, and the peer's unless there is a `peer_authority`.
        With `at_any_time`, the period of validity is not checked.

        Raises:
            ConfigurationError: lists every problem with its file and the fix.
            NotValidNow: the only problem is the time.
        """
        check_certificates(
            authority, certificate, key, own_name, peer_authority=peer_authority
        ).require(at_any_time=at_any_time)
        return cls(peer_authority or authority, certificate, key, peer_key_sha256)

    def for_listener(self, on_connection: Callable[[], None]) -> grpc.ServerCredentials:
        """Server credentials that require a client certificate of the trusted authority.

        `on_connection` is called at the start of each connection.
        """
        configuration = grpc.ssl_server_certificate_configuration(
            [(_read(self.key), _read(self.certificate))], root_certificates=_read(self.authority)
        )

        def unchanged() -> grpc.ServerCertificateConfiguration:
            # gRPC calls this once per connection; None keeps the certificate.
            on_connection()
            return cast("grpc.ServerCertificateConfiguration", None)

        return grpc.dynamic_ssl_server_credentials(
            configuration, unchanged, require_client_authentication=True
        )

    def for_dialer(self, peer_certificate: bytes) -> grpc.ChannelCredentials:
        """Client credentials that accept exactly one certificate of the listener.

        A gRPC client cannot read the certificate of its own connection. Therefore its only trusted
        root is the certificate that was checked before: every connection of the channel fails in
        the handshake unless the listener has the key of that very certificate.

        Args:
            peer_certificate: the listener's certificate in PEM format, verified by `probe`.
        """
        return grpc.ssl_channel_credentials(
            peer_certificate, _read(self.key), _read(self.certificate)
        )

    def context(self) -> ssl.SSLContext:
        """The same credentials for Python's ssl module, with TLS 1.3 only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # like gRPC
        context.set_alpn_protocols(["h2"])
        try:
            context.load_verify_locations(self.authority)
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
                raise PeerUnavailable("too many open files") from None
            raise ConfigurationError(
                f"{self.authority}, {self.certificate} and {self.key} cannot be used for TLS: "
                f"{error}"
            ) from None
        return context


def _no_password() -> str:
    # Otherwise OpenSSL asks on the terminal.
    raise ValueError("the key is encrypted; store it without a passphrase, with mode 600")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
