"""One party's setup: settings, certificates, run directory and how its last process ended."""

from __future__ import annotations

import re
import stat
import time
from typing import TYPE_CHECKING, Any, Literal, get_origin

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic import BaseModel

from florist.api.doctor.machine import disk
from florist.common.core.errors import ConfigurationError
from florist.common.privacy.ledger import ledger_folder
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import STAGES, StageState
from florist.common.transport.certificate_check import check_certificates
from florist.common.transport.certificate_files import load_certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cryptography import x509

    from florist.api.doctor.scrub import Scrubber
    from florist.common.settings.party_config import PartyConfig

#: Numbers that are nobody else's business.
_UNSHOWN = frozenset({"seed"})


def settings(section: BaseModel, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the settings that differ from their defaults: numbers and choices, no other texts."""
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            yield from settings(value, f"{above}{key}.")
        elif value != field.default:
            is_number = isinstance(value, bool | int | float) and key not in _UNSHOWN
            is_shown = value is None or is_number or value in _choices(field.annotation)
            yield above + key, f"{value}" if is_shown else "(set)"


def _choices(annotation: Any) -> list[object]:  # noqa: ANN401 - any type
    """Return the values of the literals in a type."""
    arguments = getattr(annotation, "__args__", ())
    if get_origin(annotation) is Literal:
        return [*arguments]
    return [choice for each in arguments for choice in _choices(each)]


def disks(config: PartyConfig) -> Iterator[tuple[str, str]]:
    """Yield the file systems that the party writes to."""
    yield "run_directory", disk(config.run_directory)
    yield "privacy.ledger", disk(ledger_folder(config))
    if config.observability.textfile is not None:
        yield "observability.textfile", disk(config.observability.textfile.parent)


def certificates(config: PartyConfig, scrubber: Scrubber) -> Iterator[tuple[str, str]]:
    """Yield the validity of the certificates, compared with this machine's clock, and problems."""
    tls = config.network.tls
    if tls is None:
        yield "network.tls", "none"
        return
    files = {"authority": tls.authority, "certificate": tls.certificate}
    if tls.peer_authority is not None:
        files["peer_authority"] = tls.peer_authority
    for key, path in files.items():
        try:
            found = load_certificates(path)
        except ConfigurationError:
            continue  # among the problems below
        for each in found:
            yield f"network.tls.{key}", _validity(each)
    report = check_certificates(
        tls.authority,
        tls.certificate,
        tls.key,
        config.party.name,
        peer_authority=tls.peer_authority,
    )
    for text in (*report.problems, *report.warnings):
        for key, path in {**files, "key": tls.key}.items():
            text = text.replace(str(path), f"network.tls.{key}")  # noqa: PLW2901
        yield "problem", scrubber.scrub(text)
    if not report.problems:
        yield "problems", "none: the key belongs to the certificate, and the name is party.name"
    yield "network.tls.peer_key_sha256", "not set" if tls.peer_key_sha256 is None else "set"


def _validity(certificate: x509.Certificate) -> str:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    now = time.time()
    if now < start.timestamp():
        state = "NOT VALID YET by this machine's clock"
    elif now > end.timestamp():
        state = "EXPIRED by this machine's clock"
    else:
        state = f"{(end.timestamp() - now) / 86400:.0f} days left"
    key = certificate.public_key()
    match key:
        case ec.EllipticCurvePublicKey():
            kind = key.curve.name
        case rsa.RSAPublicKey():
            kind = f"RSA {key.key_size}"
        case _:
            kind = "another kind of key"
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, {state}; {kind}"


def run_directory(config: PartyConfig) -> Iterator[tuple[str, str]]:
    """Yield the state of each stage, and what is unusual about the folder."""
    runs = RunDirectory(config.run_directory)
    if not runs.path.is_dir():
        yield "run_directory", "does not exist yet"
        return
    for name in STAGES:
        yield f"stage {name}", _stage_state(runs, StageState(runs, name))
    if stat.S_IMODE(runs.path.stat().st_mode) & 0o077:
        yield "permissions", "other users can list the run directory"
    newest = max((entry.stat().st_mtime for entry in runs.path.iterdir()), default=0.0)
    if newest > time.time() + 60:
        yield "clock", "files here are from the FUTURE: the clock was set back, or is wrong now"
    if (code := _last_exit_code(config.observability.textfile)) is not None:
        yield "last exit code", code


def _stage_state(runs: RunDirectory, state: StageState) -> str:
    if state.is_complete:
        return "complete"
    if state.is_finished:
        return "finished here; whether the peer has its result is not known"
    started = runs.work(state.name).exists()
    if state.name == "train":
        started = started or runs.checkpoints.exists()
    return "started" if started else "not started"


def _last_exit_code(textfile: Path | None) -> str | None:
    if textfile is None or not textfile.exists():
        return None
    text = textfile.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^florist_exit_code\{.*\} ([0-9]{1,3})(?:\.0)?$", text, re.MULTILINE)
    return "none yet: the party is running or was killed" if found is None else found[1]
