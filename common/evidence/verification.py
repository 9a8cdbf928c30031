"""Checking evidence offline: both signatures, both certificates, and that the parts match."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from florist.common.core.text import printable
from florist.common.evidence.record import (
    FORMAT,
    MAXIMUM_CLOCK_DIFFERENCE,
    AggregateFacts,
    agreement_digest,
    canonical,
    read_account,
)
from florist.common.evidence.signing import (
    LOCAL_PREFIX,
    RECORD_PREFIX,
    CertificateChain,
    UntrustedCertificate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from cryptography import x509

    from florist.common.core.roles import RoleName
    from florist.common.evidence.evidence_file import StageEvidence
    from florist.common.evidence.record import Account

_ROLES: tuple[RoleName, RoleName] = ("active", "passive")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    what: str
    #: Why it failed; empty if it succeeded.
    problem: str = ""


class _Failed(Exception):  # noqa: N818 - ends the checks of a part
    """A check failed; the message says why."""


def verify_stage(evidence: StageEvidence, authorities: list[x509.Certificate]) -> list[Check]:
    """Check the evidence of one stage; it is right if no check has a problem."""
    record = evidence.record
    statement = record.get("statement")
    if record.get("format") != FORMAT or not isinstance(statement, dict):
        return [Check("the record", "it is not a record that this release can read")]
    stage = f"stage {statement.get('stage')!s:.20}"
    checks = [_checked(f"{stage}: the record is consistent", lambda: _consistent(record))]
    for role in _ROLES:
        what = f"{stage}: signature and certificate of the {role} party"
        checks.append(_checked(what, partial(_signature, evidence, authorities, role)))
    what = f"{stage}: the part that the party of this file adds for itself"
    checks.append(_checked(what, lambda: _local(evidence)))
    return checks


def verify_run(stages: Sequence[StageEvidence]) -> Check:
    """Check that the records of several stages are of one run; `verify_stage` checks each."""
    what = "the stages belong to one run"
    statements = [stage.record.get("statement") for stage in stages]
    known = [statement for statement in statements if isinstance(statement, dict)]
    names = [str(statement.get("stage")) for statement in known]
    if len(known) < len(stages) or len(set(names)) < len(names):
        return Check(what, "a record is malformed, or there are two of one stage")
    for fact, read in _COMMON_FACTS.items():
        values = [canonical(value) for each in known if (value := read(each)) is not None]
        if len(set(values)) > 1:
            return Check(what, f"the records differ: {fact}")
    return Check(what)


def _union_of_training(statement: dict[str, Any]) -> object:
    unions = statement.get("unions")
    return unions.get("train") if isinstance(unions, dict) else None


#: Facts that are the same in all stages of a run in which they occur.
_COMMON_FACTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "the parties": lambda statement: statement.get("parties"),
    "the model": lambda statement: statement.get("model"),
    "the union of the training tables": _union_of_training,
}


def _checked(what: str, check: Callable[[], str]) -> Check:
    try:
        detail = check()
    except (_Failed, UntrustedCertificate) as error:
        return Check(what, str(error))
    return Check(f"{what}{detail}")


def _consistent(record: dict[str, Any]) -> str:
    """Check the agreement's digest, the names, the times, and the label aggregate."""
    statement = record["statement"]
    if agreement_digest(record.get("agreement")) != statement.get("agreement_sha256"):
        raise _Failed("the agreement is not the one of the statement")
    accounts = {role: _account(record, role) for role in _ROLES}
    if {role: account.name for role, account in accounts.items()} != statement.get("parties"):
        raise _Failed("the names of the parties differ")
    first, second = (_time(account) for account in accounts.values())
    if abs(first - second) > MAXIMUM_CLOCK_DIFFERENCE:
        raise _Failed("the times of the parties differ by more than an hour")
    return (
        f": {accounts['active'].name} and {accounts['passive'].name}, {first:%Y-%m-%d %H:%M} UTC"
        f"{_aggregate(record)}"
    )


def _aggregate(record: dict[str, Any]) -> str:
    """Check that the label aggregate is the agreed one; records of earlier releases have none."""
    stated = record["statement"].get("aggregate")
    if stated is None:
        return ""
    facts = AggregateFacts.from_statement(stated)
    if facts is None:
        raise _Failed("the facts of the label aggregate are malformed")
    agreed = _agreed_aggregate(record)
    if agreed not in ("auto", {"epsilon": facts.epsilon, "delta": facts.delta}):
        raise _Failed("the guarantee of the label aggregate is not the agreed one")
    return f"; label aggregate with ε = {facts.epsilon:g}, δ = {facts.delta:g}"


def _agreed_aggregate(record: dict[str, Any]) -> object:
    """The setting `agreement.training.aggregate.privacy`; None if there is none."""
    found: object = record
    for key in ("agreement", "training", "aggregate", "privacy"):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _signature(evidence: StageEvidence, authorities: list[x509.Certificate], role: RoleName) -> str:
    stored = evidence.signatures.get(role)
    if stored is None or not stored.signature:
        why = stored.problem if stored is not None else ""
        raise _Failed(f"there is none{': ' if why else ''}{printable(why, 300)}")
    if stored.problem:
        raise _Failed(f"the party that wrote the file found: {printable(stored.problem, 300)}")
    account = _account(evidence.record, role)
    chain = CertificateChain.from_pem(stored.certificates.encode())
    if account.certificate_sha256 != chain.fingerprint:
        raise _Failed("the certificate is not the one in the record")
    chain.require(account.name, authorities, _time(account))
    chain.verify(_hex(stored.signature), RECORD_PREFIX, evidence.record_bytes)
    return f" ({account.name}, certificate {chain.fingerprint[:16]}…, valid when it signed)"


def _local(evidence: StageEvidence) -> str:
    role = next((each for each in _ROLES if each == evidence.local.get("role")), None)
    stored = None if role is None else evidence.signatures.get(role)
    if role is None or stored is None:
        raise _Failed("it names no party")
    chain = CertificateChain.from_pem(stored.certificates.encode())
    chain.verify(_hex(evidence.local_signature), LOCAL_PREFIX, evidence.local_bytes)
    return f" (signed by {_account(evidence.record, role).name} alone)"


def _account(record: dict[str, Any], role: RoleName) -> Account:
    accounts = record.get("accounts")
    stated = accounts.get(role) if isinstance(accounts, dict) else None
    account = read_account(canonical(stated))
    if account is None:
        raise _Failed(f"the account of the {role} party is missing or malformed")
    if account.role != role:
        raise _Failed(f"the account of the {role} party is that of another")
    return account


def _time(account: Account) -> datetime:
    time = account.signed_at
    if time is None:
        raise _Failed("a time is malformed")
    return time


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise _Failed("a signature is not hexadecimal") from None
