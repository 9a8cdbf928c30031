"""When this party's certificate ends, also after it was replaced on disk."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

from cryptography import x509

if TYPE_CHECKING:
    from pathlib import Path

_DAY = 86400.0


class CertificateEnd:
    """Reads the file now and then."""

    #: Seconds between two looks at the file.
    EVERY = 60.0

    def __init__(self, path: Path | None) -> None:
        """None where there is no TLS."""
        self._path = path
        self._lock = Lock()
        self._looked: float | None = None
        self._end: datetime | None = None

    def days_left(self) -> float | None:
        """None if it cannot be told; below 0 it is over."""
        with self._lock:
            now = time.monotonic()
            if self._looked is None or now - self._looked >= self.EVERY:
                self._looked, self._end = now, self._read()
            if self._end is None:
                return None
            return (self._end - datetime.now(UTC)).total_seconds() / _DAY

    def _read(self) -> datetime | None:
        if self._path is None:
            return None
        try:
            return x509.load_pem_x509_certificates(self._path.read_bytes())[0].not_valid_after_utc
        except (OSError, ValueError):
            return None  # the run itself says what is wrong with it
