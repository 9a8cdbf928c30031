"""Tests whether a gRPC server of other software requires a token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProbeTls:
    """The TLS files for connecting to the server."""

    authority: Path
    certificate: Path
    key: Path = field(repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            self.authority.read_bytes(), self.key.read_bytes(), self.certificate.read_bytes()
        )


def requires_token(address: str, method: str, timeout: float, tls: ProbeTls | None = None) -> bool:
    """Call a method with an empty request and without a token; return whether it is refused.

    Args:
        address: `host:port`.
        method: the full name of a unary method, which must change nothing.
        timeout: seconds for the answer.
        tls: None connects without TLS.

    Raises:
        ConnectionError: the server neither answers nor refuses the call for the missing token.
    """
    options = [("grpc.enable_http_proxy", 0)]
    channel = (
        grpc.secure_channel(address, tls.credentials(), options)
        if tls
        else grpc.insecure_channel(address, options)
    )
    with channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        try:
            call(b"", timeout=timeout)
        except grpc.RpcError as error:
            code = error.code()
            if code is grpc.StatusCode.UNAUTHENTICATED:
                return True
            raise ConnectionError(
                f"{address} answers a call of {method} with {code.name}"
            ) from None
    return False
