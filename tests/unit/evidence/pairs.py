"""Two parties that exchange evidence over a link in memory."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from florist.common.evidence.evidence_file import LocalPart, stage_evidence
from florist.common.evidence.exchange import Identities, exchange_evidence
from florist.common.evidence.record import (
    SentMessages,
    StageFacts,
    UnionFacts,
    make_account,
    make_statement,
)
from florist.common.evidence.signing import Signer
from florist.common.settings.agreement import Agreement
from florist.common.transport.certificate_files import load_certificates
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Heartbeat, UnionDigest
from tests.support.certificates import ACTIVE, PASSIVE

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from florist.common.evidence.evidence_file import StageEvidence
    from florist.common.evidence.exchange import SignedRecord
    from florist.common.evidence.record import Account
    from florist.common.transport.channel import Link
    from florist.common.transport.credentials import Credentials

NAMES: dict[RoleName, str] = {"active": ACTIVE, "passive": PASSIVE}
PEER: dict[RoleName, RoleName] = {"active": "passive", "passive": "active"}
UNION = UnionFacts(
    "ab" * 32, 300, 400, 550, 150, 1.4, 40, 128, "active", active_commitment="cd" * 32
)


@dataclass
class Side:
    """One party, with what it believes."""

    role: RoleName
    link: Link
    credentials: Credentials | None
    agreement: Agreement = field(default_factory=Agreement)
    facts: StageFacts = field(default_factory=lambda: StageFacts({"train": UNION}))
    #: Added to the number of bytes that it says it has sent.
    lie: int = 0
    timeout: float = 30.0

    @property
    def identities(self) -> Identities:
        peer = NAMES[PEER[self.role]]
        if self.credentials is None:
            return Identities(self.role, peer, None)
        return Identities(
            self.role,
            peer,
            Signer.load(self.credentials.certificate, self.credentials.key),
            authorities=load_certificates(self.credentials.authority),
        )

    @property
    def statement(self) -> str:
        return make_statement("align", self.agreement, NAMES, self.facts)

    @property
    def account(self) -> Account:
        signer = self.identities.signer
        account = make_account(
            self.role,
            NAMES[self.role],
            "1.0",
            None if signer is None else signer.chain.fingerprint,
            SentMessages(self.link.traffic.sent_by_type),
        )
        if not self.lie:
            return account
        true = account.sent["UnionDigest"]
        stated = replace(true, bytes=true.bytes + self.lie)
        return replace(account, sent=account.sent | {"UnionDigest": stated})

    def exchange(self) -> SignedRecord:
        return exchange_evidence(
            self.link, self.identities, self.agreement, self.statement, self.account, self.timeout
        )

    def stored(self, signed: SignedRecord) -> StageEvidence:
        return stage_evidence(signed, LocalPart(self.role, None, None), self.identities.signer)


def connected(active: Credentials | None, passive: Credentials | None) -> dict[RoleName, Side]:
    """Two parties that have exchanged a few messages, which both have counted."""
    left, right = linked_pair(grace=0.01)
    channels = left.channel("work"), right.channel("work")
    for mine, theirs in (channels, channels[::-1]):
        mine.send(UnionDigest(550, bytes(32)))
        theirs.receive(UnionDigest)
    channels[0].send(Heartbeat(1))  # never read: the number of heartbeats depends on time
    return {
        "active": Side("active", left, active),
        "passive": Side("passive", right, passive),
    }


def exchanged(sides: dict[RoleName, Side]) -> dict[RoleName, SignedRecord]:
    with ThreadPoolExecutor(2) as pool:
        running = {role: pool.submit(side.exchange) for role, side in sides.items()}
        return {role: future.result(60) for role, future in running.items()}


def complete_evidence(active: Credentials, passive: Credentials) -> StageEvidence:
    """The active party's evidence of a stage that both have signed."""
    sides = connected(active, passive)
    return sides["active"].stored(exchanged(sides)["active"])


def statement_of(signed: SignedRecord) -> dict[str, object]:
    found: dict[str, object] = json.loads(signed.record)["statement"]
    return found
