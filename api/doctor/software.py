"""Versions of everything that FLORIST runs on."""

from __future__ import annotations

import os
import platform
import re
import ssl
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

from cryptography.hazmat.backends.openssl import backend

from florist.common.core.release import RELEASE
from florist.common.transport.messages import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Variables that change how the libraries behave.
_VARIABLES = re.compile(
    r"(GRPC|OMP|MKL|OPENBLAS|RAY|TORCH|CUDA)_[A-Z_]+|PYTHON[A-Z]+|(?i:(all|grpc|https?|no)_proxy)"
)


def software() -> Iterator[tuple[str, str]]:
    """Yield versions of FLORIST, Python, the system and the cryptographic libraries."""
    yield "florist", f"{RELEASE}, protocol {PROTOCOL_VERSION}"
    yield "python", f"{platform.python_implementation()} {platform.python_version()}"
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        yield "distribution", platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        yield "distribution", "unknown"
    yield "C library", " ".join(platform.libc_ver()) or "unknown"
    yield "OpenSSL", f"{ssl.OPENSSL_VERSION}; of cryptography: {backend.openssl_version_text()}"


def packages() -> Iterator[tuple[str, str]]:
    """Yield the packages that FLORIST requires or can use, if they are installed."""
    names = {
        re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in requires("florist") or ()
    }
    for name in sorted(names - {"florist"}):
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def environment() -> Iterator[tuple[str, str]]:
    """Yield environment variables that change how the libraries behave, without their texts."""
    for name, value in sorted(os.environ.items()):
        if _VARIABLES.fullmatch(name):
            is_number = name.endswith("_THREADS") and value.isdigit()
            yield name, value if is_number else "set"
