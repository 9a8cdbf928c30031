"""The evidence of a stage: what both parties know of its result, signed by both."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.findings import AuditRecord
from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.core.release import RELEASE
from florist.common.evidence.evidence_file import LocalPart, stage_evidence
from florist.common.evidence.exchange import Identities, exchange_evidence
from florist.common.evidence.record import (
    ModelFacts,
    SentMessages,
    UnionFacts,
    make_account,
    make_statement,
)
from florist.common.evidence.signing import Signer
from florist.common.privacy.commitment import has_commitment, load_roots
from florist.common.transport.certificate_files import load_certificates
from florist.common.transport.channel import MessageCounts, sum_of_counts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from florist.common.core.roles import RoleName
    from florist.common.evidence.evidence_file import StageEvidence
    from florist.common.evidence.record import StageFacts
    from florist.common.session.alignment_result import AlignmentSummary
    from florist.common.session.session import Session
    from florist.common.session.stage_state import StageName
    from florist.common.stages.stage import StageContext


log = logging.getLogger("florist.evidence")


class EvidenceExchange:
    """Signs the evidence of one stage with the peer, across interrupted sessions."""

    def __init__(self, context: StageContext, stage: StageName) -> None:
        self._context = context
        self._stage = stage
        self._earlier: MessageCounts = {}

    @contextmanager
    def counting(self, session: Session) -> Iterator[None]:
        """Remember what was sent in a session that ends with an error."""
        try:
            yield
        except FloristError:
            self._earlier = sum_of_counts(self._earlier, session.traffic.sent_by_type)
            raise

    def sign_with_peer(self, session: Session, facts: StageFacts) -> StageEvidence:
        """Exchange what both know and both signatures; problems are reported, not raised."""
        context, config = self._context, self._context.config
        role = context.role.name
        identities = _identities(context)
        signer = identities.signer
        traffic = session.traffic
        account = make_account(
            role,
            config.party.name,
            RELEASE,
            None if signer is None else signer.chain.fingerprint,
            SentMessages(traffic.sent_by_type, self._earlier, traffic.sent_by_branches),
        )
        names = _names(role, config.party.name, config.party.peer)
        statement = make_statement(self._stage, config.agreement, names, facts)
        signed = exchange_evidence(
            session, identities, config.agreement, statement, account, config.timeouts.stall
        )
        audit = _audit(AuditFolder(context.runs.audit)) if self._stage == "train" else None
        return stage_evidence(signed, LocalPart(role, audit, context.options.log_file), signer)


def union_facts(role: RoleName, summary: AlignmentSummary, folder: Path) -> UnionFacts:
    """Return what both parties know of a union; `folder` has its files."""
    sizes = summary.sizes
    active, passive = _by_role(role, sizes.own, sizes.peer)
    roots = [root.hex() for root in load_roots(folder)] if has_commitment(folder) else [None, None]
    active_root, passive_root = _by_role(role, *roots)
    return UnionFacts(
        sha256=summary.union_sha256,
        active_size=active,
        passive_size=passive,
        union_size=sizes.union,
        shared_estimate=sizes.shared_estimate,
        shared_deviation=sizes.shared_deviation,
        pool=sizes.pool,
        planted=sizes.planted,
        merging=summary.merging,
        active_commitment=active_root,
        passive_commitment=passive_root,
    )


def model_facts(role: RoleName, run: str, own_digest: str, peer_digest: str) -> ModelFacts:
    """Return what both parties know of a model."""
    return ModelFacts(run, *_by_role(role, own_digest, peer_digest))


def _by_role(role: RoleName, own: Any, peer: Any) -> tuple[Any, Any]:  # noqa: ANN401 - any two
    """Return the active party's value, then the passive party's."""
    return (own, peer) if role == "active" else (peer, own)


def _names(role: RoleName, own: str, peer: str) -> dict[RoleName, str]:
    active, passive = _by_role(role, own, peer)
    return {"active": active, "passive": passive}


def _identities(context: StageContext) -> Identities:
    """Read the certificate and the key again: they may have been renewed during the stage."""
    config, role = context.config, context.role.name
    tls = config.network.tls
    if context.options.plaintext or tls is None:
        return Identities(role, config.party.peer, None)
    try:
        return Identities(
            role,
            config.party.peer,
            Signer.load(tls.certificate, tls.key),
            authorities=load_certificates(tls.trusted),
            peer_key_sha256=tls.peer_key_sha256,
        )
    except ConfigurationError as error:
        log.warning("this party cannot sign evidence: %s", error.reason)
        return Identities(role, config.party.peer, None, why_none=error.for_peer)


def _audit(folder: AuditFolder) -> dict[str, Any] | None:
    try:
        if not folder.files.exists(folder.record.name):
            return None
        record = AuditRecord.load(folder)
    except ConfigurationError:
        return {"verdict": None, "why": "the record of the self-audit cannot be read"}
    return record.summary() | {"settings": record.settings.model_dump(mode="json")}
