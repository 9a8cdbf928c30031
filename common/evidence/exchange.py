"""Exchanging the evidence of a stage: each party states, checks, signs, and checks the signature.

Nothing here ends a run: whatever goes wrong, including the loss of the connection, is reported, and
the run finishes without the peer's signature.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError, FloristError, Interrupted
from florist.common.core.text import printable
from florist.common.evidence.record import (
    Account,
    account_problems,
    differing_facts,
    make_record,
    read_account,
)
from florist.common.evidence.signing import (
    RECORD_PREFIX,
    CertificateChain,
    Signer,
    UntrustedCertificate,
)
from florist.common.transport.messages import EvidenceContribution, EvidenceSignature

if TYPE_CHECKING:
    from cryptography import x509

    from florist.common.core.roles import RoleName
    from florist.common.settings.agreement import Agreement
    from florist.common.transport.channel import Link

log = logging.getLogger("florist.evidence")

CHANNEL = "evidence"

#: Characters of a reason that the peer may give, and that we give.
_LONGEST_REASON = 500

NO_TLS = "the parties are connected without TLS"


@dataclass(frozen=True, slots=True)
class PartySignature:
    """The signature of one party, or why there is none."""

    signature: bytes = b""
    #: The certificate and its intermediates in PEM; empty if unknown.
    certificates: bytes = b""
    #: Why the signature is missing, or not to be trusted; empty if it is right.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SignedRecord:
    """The record of a stage as this party has it, with the signatures of both parties."""

    record: bytes
    own: PartySignature
    peer: PartySignature

    @property
    def is_complete(self) -> bool:
        """Whether both parties have signed."""
        return not self.own.problem and not self.peer.problem


@dataclass(frozen=True, slots=True)
class Identities:
    """How this party signs, and whose signature it expects."""

    own_role: RoleName
    peer_name: str
    #: None without TLS.
    signer: Signer | None
    #: Why there is no signer.
    why_none: str = NO_TLS
    authorities: list[x509.Certificate] = field(default_factory=list)
    peer_key_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One exchange, over one link."""

    link: Link
    identities: Identities
    agreement: Agreement
    statement: str
    account: Account
    timeout: float

    def run(self) -> SignedRecord:
        try:
            channel = self.link.channel(CHANNEL)
            channel.send(self._contribution())
            theirs = channel.receive(EvidenceContribution, self.timeout)
        except Interrupted:
            raise
        except FloristError as error:
            record = make_record(self.agreement, self.statement, [self.account])
            reason = f"no evidence from the peer: {error.reason}"
            return SignedRecord(
                record, PartySignature(problem=reason), PartySignature(problem=reason)
            )
        account = read_account(theirs.account)
        problems = self._problems(theirs, account)
        record, own = self._signed(account, problems)
        digest = sha256(record).digest()
        try:
            channel.send(EvidenceSignature(digest, own.signature, own.problem[:_LONGEST_REASON]))
            answer = channel.receive(EvidenceSignature, self.timeout)
        except Interrupted:
            raise
        except FloristError as error:
            reason = f"no signature from the peer: {error.reason}"
            return SignedRecord(record, own, PartySignature(b"", theirs.certificates, reason))
        return SignedRecord(record, own, self._checked(theirs, answer, record, problems))

    def _contribution(self) -> EvidenceContribution:
        signer = self.identities.signer
        pem = b"" if signer is None else signer.chain.to_pem()
        return EvidenceContribution(self.statement, self.account.to_json(), pem)

    def _problems(self, theirs: EvidenceContribution, account: Account | None) -> list[str]:
        if account is None:
            return ["the peer's account is malformed"]
        role, name = self.identities.own_role, self.identities.peer_name
        received = self.link.traffic.received_by_type
        return differing_facts(self.statement, theirs.statement) + account_problems(
            account, role, name, received, datetime.now(UTC)
        )

    def _signed(self, account: Account | None, problems: list[str]) -> tuple[bytes, PartySignature]:
        """Return the record and our signature, if there is nothing against it."""
        signer = self.identities.signer
        certificates = b"" if signer is None else signer.chain.to_pem()
        accounts = [self.account]
        if account is not None and account.role != self.account.role:
            accounts.append(account)
        record = make_record(self.agreement, self.statement, accounts)
        if signer is None:
            return record, PartySignature(problem=self.identities.why_none)
        if problems:
            return record, PartySignature(b"", certificates, "; ".join(problems))
        try:
            return record, PartySignature(signer.sign(RECORD_PREFIX, record), certificates)
        except ConfigurationError as error:
            return record, PartySignature(b"", certificates, error.reason)

    def _checked(
        self,
        theirs: EvidenceContribution,
        answer: EvidenceSignature,
        record: bytes,
        problems: list[str],
    ) -> PartySignature:
        def wrong(problem: str) -> PartySignature:
            return PartySignature(answer.signature, theirs.certificates, problem)

        if not answer.signature:
            reason = printable(answer.refusal, _LONGEST_REASON) or "no reason given"
            return wrong(f"the peer did not sign: {reason}")
        if answer.record_sha256 != sha256(record).digest():
            return wrong("; ".join(["the peer signed another record", *problems]))
        if self.identities.signer is None:
            return wrong(f"not checked: {self.identities.why_none}")
        try:
            chain = CertificateChain.from_pem(theirs.certificates)
            account = read_account(theirs.account)
            if account is None or account.certificate_sha256 != chain.fingerprint:
                return wrong("the peer's certificate is not the one in its account")
            chain.require(
                self.identities.peer_name,
                self.identities.authorities,
                datetime.now(UTC),
                self.identities.peer_key_sha256,
            )
            chain.verify(answer.signature, RECORD_PREFIX, record)
        except UntrustedCertificate as error:
            return wrong(str(error))
        return PartySignature(answer.signature, theirs.certificates)


def exchange_evidence(
    link: Link,
    identities: Identities,
    agreement: Agreement,
    statement: str,
    account: Account,
    timeout: float,
) -> SignedRecord:
    """Exchange the record of a stage and both signatures with the peer, and report the result.

    Args:
        link: its channel `evidence` is used.
        identities: how this party signs, and whose signature it expects.
        agreement: the agreement, which both parties have compared.
        statement: what both parties must state alike.
        account: what this party states about itself.
        timeout: seconds to wait for each of the peer's two messages, at most.

    Raises:
        Interrupted: the operator stops this party.
    """
    signed = _Exchange(link, identities, agreement, statement, account, timeout).run()
    _report(signed, identities)
    return signed


def _report(signed: SignedRecord, identities: Identities) -> None:
    peer = identities.peer_name
    if signed.is_complete:
        log.info("the evidence of this stage is signed by both parties")
    elif identities.signer is None and identities.why_none == NO_TLS:
        log.info("the evidence of this stage is not signed: %s", NO_TLS)
    else:
        if signed.own.problem:
            log.warning("the evidence of this stage is not signed here: %s", signed.own.problem)
        if signed.peer.problem:
            log.warning("the evidence has no valid signature of %s: %s", peer, signed.peer.problem)
