"""Errors of connecting for which waiting may help."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from pathlib import Path


class PeerUnavailable(TransportError):  # noqa: N818 - it reads as what happened
    """The peer cannot be reached now; waiting may help."""


class CertificateRejected(PeerUnavailable):
    """The peer closed the connection right after it received this party's certificate."""

    advice = (
        "Check that each party trusts the other's authority and no certificate has expired, and "
        "that the peer's configuration contains this party's name. The peer's log shows the reason."
    )


def unreadable(path: Path, error: OSError) -> ConfigurationError | PeerUnavailable:
    """The error for a certificate or key file that cannot be read.

    A process that is out of file descriptors, for example because many strangers connect to it,
    can read the file again later; other problems need a correction.
    """
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return PeerUnavailable(f"{path} cannot be opened now: too many open files")
    return ConfigurationError(f"{path}: cannot be read: {error.strerror}")
