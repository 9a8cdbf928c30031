"""Field types that several sections share: names, paths and durations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def _check_name(name: str) -> str:
    if not _DNS_LABEL.fullmatch(name):
        raise ValueError(
            "must be 1 to 63 lower-case letters, digits and hyphens, and must not start or end "
            "with a hyphen"
        )
    return name


def _check_digest(digest: str) -> str:
    if not _SHA256.fullmatch(digest):
        raise ValueError("must be 64 hexadecimal digits, as `florist preflight` prints them")
    return digest.lower()


def _resolve(path: Path, info: ValidationInfo) -> Path:
    # Somebody may paste a private key instead of its path: later messages must not show it.
    if any(character < " " for character in str(path)):
        raise ValueError("must be a path on one line")
    folder = (info.context or {}).get("folder")
    return path if folder is None else Path(folder) / path


Name = Annotated[str, AfterValidator(_check_name)]
#: A SHA-256 digest in hex; the value is in lower case.
KeyDigest = Annotated[str, AfterValidator(_check_digest)]
#: Relative paths start from the folder of the configuration file.
FilePath = Annotated[Path, Field(strict=False), AfterValidator(_resolve)]
Seconds = Annotated[float, Field(gt=0)]
