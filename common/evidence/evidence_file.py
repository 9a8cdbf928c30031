"""The files of evidence: one per stage in the run directory, and one of all stages for others.

`evidence/<stage>.json` in a run directory has the record that both parties signed, both signatures
with their certificates, and what this party adds for itself, signed by itself: the findings of its
self-audit and the digest of its log.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from florist.common.core.errors import ConfigurationError
from florist.common.core.roles import RoleName  # noqa: TC001 - read by pydantic
from florist.common.core.text import printable
from florist.common.evidence.record import canonical
from florist.common.evidence.signing import LOCAL_PREFIX
from florist.common.session.retention import if_damaged
from florist.common.storage.durable import sync
from florist.common.storage.manifest import ListedFolder
from florist.common.storage.private_files import private_opener

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.evidence.exchange import PartySignature, SignedRecord
    from florist.common.evidence.signing import Signer
    from florist.common.session.stage_state import StageName

STAGE_FORMAT = "florist/evidence-stage/1"
RUN_FORMAT = "florist/evidence-run/1"

#: No file that this release writes is larger.
MAXIMUM_BYTES = 16 << 20

_Text = Annotated[str, Field(max_length=100_000)]


@dataclass(frozen=True, slots=True)
class StoredSignature:
    """A signature in hexadecimal, the certificates in PEM, and what is wrong, if anything."""

    signature: _Text
    certificates: _Text
    problem: _Text


@dataclass(frozen=True, slots=True)
class StageEvidence:
    """The content of a file."""

    format: str
    record: dict[str, Any]
    signatures: dict[RoleName, StoredSignature]
    #: What the party that wrote the file adds for itself.
    local: dict[str, Any]
    #: Its signature of that, in hexadecimal; empty without TLS.
    local_signature: _Text

    @property
    def record_bytes(self) -> bytes:
        """What both parties signed."""
        return canonical(self.record).encode()

    def summary(self, peer: str) -> str:
        """Return a sentence on who has signed."""
        own = self.signatures[self.local["role"]]
        others = [stored for role, stored in self.signatures.items() if role != self.local["role"]]
        problems = [stored.problem for stored in (own, *others) if stored.problem]
        if not problems:
            return f"This party and {peer} have signed the same record of this stage."
        shown = printable("; ".join(dict.fromkeys(problems)), 500)
        return f"The evidence of this stage is not signed by both parties: {shown}."

    @property
    def local_bytes(self) -> bytes:
        """What the party that wrote the file signed alone: its part, bound to the record."""
        return sha256(self.record_bytes).digest() + canonical(self.local).encode()


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """The evidence of all stages of a run, as one party has it."""

    format: str
    stages: list[StageEvidence]


_STAGE = TypeAdapter(StageEvidence)
_RUN = TypeAdapter(RunEvidence)


@dataclass(frozen=True, slots=True)
class LocalPart:
    """What a party adds for itself."""

    role: RoleName
    #: The findings of its self-audit; None if there was none.
    audit: dict[str, Any] | None
    #: The path of its log file; None if it writes none.
    log: Path | None

    def facts(self) -> dict[str, Any]:
        return {"role": self.role, "audit": self.audit, "log": log_facts(self.log)}


def log_facts(path: Path | None) -> dict[str, Any]:
    """Return the digest of a log file up to now and its length, or why there is none."""
    if path is None:
        return {"sha256": None, "why": "no log file is configured (florist-party --log-file)"}
    try:
        with path.open("rb") as file:
            digest, size = sha256(), 0
            while part := file.read(1 << 20):
                digest.update(part)
                size += len(part)
    except OSError as error:
        return {"sha256": None, "why": f"the log file cannot be read: {error.strerror}"}
    return {"sha256": digest.hexdigest(), "bytes": size}


def stage_evidence(signed: SignedRecord, local: LocalPart, signer: Signer | None) -> StageEvidence:
    """Put together what a party stores of a stage."""
    peer: RoleName = "passive" if local.role == "active" else "active"
    unsigned = StageEvidence(
        format=STAGE_FORMAT,
        record=json.loads(signed.record),
        signatures={local.role: _stored(signed.own), peer: _stored(signed.peer)},
        local=local.facts(),
        local_signature="",
    )
    if signer is None:
        return unsigned
    try:
        signature = signer.sign(LOCAL_PREFIX, unsigned.local_bytes)
    except ConfigurationError:  # the reason is in the record's signature
        return unsigned
    return replace(unsigned, local_signature=signature.hex())


def _stored(signature: PartySignature) -> StoredSignature:
    pem = signature.certificates.decode("ascii", errors="replace")
    return StoredSignature(signature.signature.hex(), pem, signature.problem)


def save_evidence(folder: Path, stage: StageName, evidence: StageEvidence) -> Path:
    """Write the evidence of a stage atomically, readable only by its owner, and return its path.

    Raises:
        ConfigurationError: it cannot be written.
    """
    name = f"{stage}.json"
    _files(folder).write(name, _readable(_STAGE.dump_python(evidence)))
    return folder / name


def _files(folder: Path) -> ListedFolder:
    return ListedFolder(folder, if_damaged("evidence/*"))


def save_run_evidence(path: Path, stages: list[StageEvidence]) -> None:
    """Write the evidence of all stages to one file.

    Raises:
        ConfigurationError: it cannot be written.
    """
    write_private(path, _readable(_RUN.dump_python(RunEvidence(RUN_FORMAT, stages))))


def load_stage_evidence(path: Path) -> StageEvidence:
    """Read the file of one stage from a run directory.

    Raises:
        ConfigurationError: it is damaged or cannot be read.
    """
    _files(path.parent).read(path.name)
    (evidence,) = _load(path, several=False)
    return evidence


def load_evidence(path: Path) -> list[StageEvidence]:
    """Read a file of one stage, or of a whole run.

    Raises:
        ConfigurationError: it cannot be read.
    """
    return _load(path, several=True)


def _load(path: Path, *, several: bool) -> list[StageEvidence]:
    try:
        if path.stat().st_size > MAXIMUM_BYTES:
            raise ConfigurationError(f"{path} is too large to be evidence")
        content = path.read_bytes()
        written = json.loads(content)
        form = written.get("format") if isinstance(written, dict) else None
        if form == STAGE_FORMAT:
            return [_STAGE.validate_json(content, strict=True)]
        if form == RUN_FORMAT and several:
            stages = _RUN.validate_json(content, strict=True).stages
            if all(stage.format == STAGE_FORMAT for stage in stages):
                return stages
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, ValidationError, RecursionError):
        raise ConfigurationError(f"{path} is damaged") from None
    raise ConfigurationError(f"{path} is not evidence that this release can read")


def write_private(path: Path, content: bytes) -> Path:
    """Write a file atomically and durably, readable only by its owner.

    Raises:
        ConfigurationError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb", opener=private_opener) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync(path.parent)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    return path


def _readable(values: object) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()
