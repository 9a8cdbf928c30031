"""The files of a bundle, which is the `training` folder of a run directory.

    training/
      model.json          the manifest: run, role, agreement, settings, calibration, digests
      model.safetensors   the weights
      preprocessing/      how a table row becomes the model's input

The digest of a bundle covers all of these files. The folder's other files (figures, report) are for
reading only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field

from florist.common.core.errors import ConfigurationError
from florist.common.core.roles import RoleName
from florist.common.core.text import abbreviated
from florist.common.settings.agreement import Agreement, CalibrationTime
from florist.common.settings.section import StrictModel
from florist.common.settings.training import Model

if TYPE_CHECKING:
    from pathlib import Path

#: Increased when the files change so that an older release would misread them.
FORMAT = 2

MANIFEST = "model.json"
WEIGHTS = "model.safetensors"
PREPROCESSING = "preprocessing"
#: The files whose digests are in the manifest; the second contains the vocabularies' digest.
_VERIFIED_FILES = (WEIGHTS, f"{PREPROCESSING}/preprocessing.json")
#: All files of a bundle, which are verified when it is read.
BUNDLE_FILES = (MANIFEST, *_VERIFIED_FILES, f"{PREPROCESSING}/vocabularies.parquet")

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class CalibrationEntry(StrictModel):
    """A calibration as the manifest stores it."""

    when: CalibrationTime
    a: float
    b: tuple[float, ...]


class BundleManifest(StrictModel):
    """All of `model.json` except the two digests. Unknown keys are refused."""

    kind: Literal["florist bundle"] = "florist bundle"
    format: int
    release: str
    role: RoleName
    run: Sha256
    agreement: Agreement
    union_sha256: str
    model: Model
    numeric: int = Field(ge=0)
    cardinalities: tuple[int, ...]
    calibration: CalibrationEntry | None
    class_names: tuple[str, ...]
    files: dict[str, Sha256]

    @classmethod
    def parse(cls, values: object) -> Self:
        """Validate parsed JSON.

        Raises:
            ValidationError: a value is missing, unknown or wrong.
        """
        # Through JSON, where a list is accepted as a tuple.
        return cls.model_validate_json(json.dumps(values))

    def digest(self) -> bytes:
        """Return the digest of the bundle."""
        return _digest(self.model_dump(mode="json"))

    def write(self, folder: Path, peer_digest: bytes) -> None:
        """Write `model.json`."""
        values = self.model_dump(mode="json")
        values |= {"digest": _digest(values).hex(), "peer_digest": peer_digest.hex()}
        text = json.dumps(values, indent=2, sort_keys=True, allow_nan=False)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class VerifiedManifest:
    """A manifest that was read and verified, and the digests of both halves."""

    manifest: BundleManifest
    digest: bytes
    peer_digest: bytes


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digests of the files next to the manifest, which must exist."""
    return {name: _sha256((folder / name).read_bytes()) for name in _VERIFIED_FILES}


def read_manifest(folder: Path, role: RoleName) -> VerifiedManifest:
    """Read `model.json` and verify it and the files next to it.

    Raises:
        ConfigurationError: there is no bundle, it is damaged, has another format, or belongs to the
            other role.
    """
    path = folder / MANIFEST
    try:
        values = json.loads(path.read_bytes())
        written = values["format"]
        digest, peer_digest = (
            bytes.fromhex(values.pop(name)) for name in ("digest", "peer_digest")
        )
    except FileNotFoundError:
        raise ConfigurationError(
            f"{folder.parent} contains no trained model; run `florist-party --stage train` first"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path) from None
    if written != FORMAT:
        raise ConfigurationError(
            f"{path} has format {abbreviated(written)}, but this release reads format {FORMAT}; "
            "use the release that wrote it, or train again"
        )
    try:
        manifest = BundleManifest.parse(values)
        is_intact = _digest(values) == digest
    except (ValueError, RecursionError):  # pydantic's errors are ValueErrors; so is NaN in a digest
        raise damaged(path) from None
    if not is_intact:
        raise damaged(path)
    for name in _VERIFIED_FILES:
        _check_file(folder / name, manifest.files.get(name))
    if manifest.role != role:
        raise ConfigurationError(
            f"{folder.parent} contains the {manifest.role} party's half, but this is the {role} "
            "party: fix --role or run_directory"
        )
    return VerifiedManifest(manifest, digest, peer_digest)


def damaged(path: Path) -> ConfigurationError:
    """Return the error for a file that is not as a training run wrote it."""
    return ConfigurationError(
        f"{path} is damaged or was not written by a training run; restore it or train again"
    )


def _check_file(path: Path, digest: str | None) -> None:
    try:
        content = path.read_bytes()
    except OSError:
        raise damaged(path) from None
    if _sha256(content) != digest:
        raise damaged(path)


def _digest(values: object) -> bytes:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(b"florist/bundle/1" + text.encode()).digest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
