"""When this party's certificate expires, also after it was replaced on disk."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

from cryptography import x509

if TYPE_CHECKING:
    from pathlib import Path

_DAY = 86400.0


class CertificateExpiry:
    """Reads the expiry date from the file, at most once a minute."""

    #: Seconds between two reads of the file.
    INTERVAL = 60.0

    def __init__(self, path: Path | None) -> None:
        """`path` is None without TLS."""
        self._path = path
        self._lock = Lock()
        self._last_read: float | None = None
        self._expiry: datetime | None = None

    def days_left(self) -> float | None:
        """Return the days until expiry, negative after it; None if it is unknown."""
        with self._lock:
            now = time.monotonic()
            if self._last_read is None or now - self._last_read >= self.INTERVAL:
                self._last_read, self._expiry = now, self._read()
            if self._expiry is None:
                return None
            return (self._expiry - datetime.now(UTC)).total_seconds() / _DAY

    def _read(self) -> datetime | None:
        if self._path is None:
            return None
        try:
            return x509.load_pem_x509_certificates(self._path.read_bytes())[0].not_valid_after_utc
        except (OSError, ValueError):
            return None  # the run itself reports the problem
