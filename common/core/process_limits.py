"""Settings of the whole process that a party makes when it starts."""

from __future__ import annotations

import logging
import os
import resource
import sys

log = logging.getLogger("florist")

#: gRPC's variable for the ciphers of TLS 1.2; those of TLS 1.3 cannot be changed.
CIPHERS = "GRPC_SSL_CIPHER_SUITES"
#: A cipher of TLS 1.2 that works with a pre-shared key only, which a party never has.
_UNUSABLE = "ECDHE-PSK-AES128-CBC-SHA"


def raise_open_file_limit() -> None:
    """Raise the limit of open files as far as this process may.

    Strangers can hold connections until their handshakes time out, and each needs a descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.debug("the limit of open files stays at %d: %s", soft, error)


def refuse_tls_1_2() -> None:
    """Make gRPC refuse TLS 1.2 in the handshake; no effect once gRPC has been imported.

    gRPC for Python cannot set the lowest TLS version. With a cipher that cannot be used, a
    handshake of TLS 1.2 finds none that both sides have. A value that the operator has set stays;
    each call is checked for TLS 1.3 in any case.
    """
    if "grpc" not in sys.modules:
        os.environ.setdefault(CIPHERS, _UNUSABLE)
