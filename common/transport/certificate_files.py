"""Reads and writes the PEM files of certificates and keys."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from florist.common.core.errors import ConfigurationError
from florist.common.transport.peer_unavailable import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import (
        PrivateKeyTypes,
        PublicKeyTypes,
    )


def prepare_directory(directory: Path, files: Iterable[Path], *, force: bool) -> None:
    """Create a directory for these files, accessible only to its owner.

    Raises:
        ConfigurationError: it cannot be created or is unsafe, or a file exists and `force` is not
            set.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = directory.stat().st_mode
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be created: {error.strerror}") from None
    if mode & 0o022:
        raise ConfigurationError(
            f"{directory}: other users can write to it and could replace a key; run chmod 700 on it"
        )
    if force:
        return
    if existing := [str(file) for file in files if file.exists()]:
        raise ConfigurationError(f"{', '.join(existing)}: exists already; replace with --force")


def write_file(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file atomically; its permissions are `mode` from the start."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from None


def load_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates in a PEM file, at least one.

    Raises:
        ConfigurationError: the file cannot be read or contains no certificate.
    """
    content = _read(path)
    try:
        found = x509.load_pem_x509_certificates(content)
        for each in found:  # parsed lazily: report errors here rather than later
            _ = each.public_key(), each.subject, each.issuer, each.extensions
            _ = each.not_valid_before_utc, each.not_valid_after_utc
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise ConfigurationError(f"{path}: contains no certificate in PEM format") from None
    return found


def load_private_key(path: Path) -> PrivateKeyTypes:
    """The private key in a PEM file.

    Raises:
        ConfigurationError: the file cannot be read, or contains no key or an encrypted one.
    """
    try:
        return load_pem_private_key(_read(path), password=None)
    except TypeError:
        raise ConfigurationError(
            f"{path}: is encrypted, but a party cannot ask for a passphrase; store the key without "
            "a passphrase, readable only by its owner"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError(f"{path}: contains no private key in PEM format") from None


def key_exposure(key: Path) -> list[str]:
    """A problem if users other than the owner can access a key file."""
    try:
        exposed = key.stat().st_mode & 0o077
    except OSError:
        return []  # reported when the file is read
    return [f"{key}: other users can read this key; run chmod 600 on it"] if exposed else []


def public_bytes(key: PublicKeyTypes) -> bytes:
    """An encoding of a public key, for comparison."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: does not exist; check the path") from None
    except OSError as error:
        raise unreadable(path, error) from None
