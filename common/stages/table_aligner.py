"""Aligning one table with the peer's: the union of both sets of IDs, and its summary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from florist.common.core.progress import CountedProgress
from florist.common.core.release import RELEASE
from florist.common.psu.union_runner import UnionTask
from florist.common.session.alignment_result import FORMAT, Alignment, AlignmentSummary
from florist.common.transport.messages import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.core.stage_timer import StageTimer
    from florist.common.privacy.ledger import Ledger
    from florist.common.psu.sealed_keys import SecretsInMemory
    from florist.common.psu.union_runner import UnionRunner
    from florist.common.psu.union_view import UnionView
    from florist.common.session.alignment_result import TableName
    from florist.common.session.session import Session
    from florist.common.session.union_sizes import UnionSizes
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.storage.id_column import Ids


@dataclass(frozen=True, slots=True)
class TableAligner:
    """Takes one party's part in the unions of a session."""

    role: Role
    config: PartyConfig
    unions: UnionRunner
    session: Session
    progress: Progress
    timer: StageTimer
    #: Where unions keep their finished exchanges, to resume from after a loss of connection.
    folder: Path
    secrets: SecretsInMemory
    #: Called for each new union with its table and the size of our padded set, just before we
    #: announce it.
    before_announcing: Callable[[TableName, int], None] = lambda _table, _size: None

    def align(self, table: TableName, ids: Ids, fingerprint: str) -> Alignment:
        """Align our IDs, padded as agreed and configured, with the peer's.

        The ranks are stored in `folder`; read them before it is deleted.
        """
        view = self.unions.run(
            UnionTask(
                role=self.role,
                config=self.config,
                session=self.session,
                progress=CountedProgress(self.progress, self.session.count_work),
                timer=self.timer,
                table=table,
                ids=ids,
                identity=self._identity(table, fingerprint),
                folder=self.folder,
                secrets=self.secrets,
                before_announcing=partial(self.before_announcing, table),
            )
        )
        summary = self._summary(len(ids), fingerprint, view)
        return Alignment(summary, partial(view.ranks.parts, len(ids)), view.commitment)

    def _identity(self, table: TableName, fingerprint: str) -> bytes:
        """Identify what is aligned with whom: work with another identity is not resumed."""
        config = self.config
        parts = (
            PROTOCOL_VERSION,
            self.role.name,
            config.party.name,
            config.party.peer,
            config.agreement.canonical(),
            table,
            fingerprint,
            config.alignment.dummies,
        )
        return sha256(json.dumps(parts).encode()).digest()

    def _summary(self, rows: int, fingerprint: str, view: UnionView) -> AlignmentSummary:
        config, traffic = self.config, self.session.traffic
        return AlignmentSummary(
            format=FORMAT,
            release=RELEASE,
            role=self.role.name,
            party=config.party.name,
            peer=config.party.peer,
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            agreement=config.agreement.model_dump(mode="json"),
            engine=self.unions.engine,
            rows=rows,
            table_fingerprint=fingerprint,
            own_dummies=config.alignment.dummies,
            sizes=view.sizes,
            merging=view.merging,
            union_sha256=view.digest.hex(),
            seconds=dict(self.timer.seconds),
            bytes_sent=traffic.all_sent,
            bytes_received=traffic.all_received,
        )


def settle_finished(ledger: Ledger, table: TableName, sizes: UnionSizes) -> None:
    """Record in the privacy ledger that a union has finished, and its public sizes."""
    ledger.settle(table, "finished", peer_size=sizes.peer, union_size=sizes.union)
