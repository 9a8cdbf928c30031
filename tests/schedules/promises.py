"""What a party has promised by sending a message: that its records are on disk.

Nothing may be sent before the records that it depends on would survive a power failure, and no
record that has once been relied on may disappear.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from florist.common.session.answer_journal import BlockKind, Event
from florist.common.transport.messages import (
    EvaluationSummary,
    GradientBlock,
    UnionAnnouncement,
)

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from florist.common.transport.messages import Message
    from tests.schedules.disk import Disk

_RECORD = struct.Struct("<IIBBxxIQ32s")
_RECORD_BYTES = 64

_CHARGE = b'"kind":"charge"'


class Promises:
    """The promises of both parties."""

    def __init__(self, disks: dict[RoleName, Disk]) -> None:
        self._disks = disks
        #: The lines of each ledger that were on disk when something was announced.
        self._ledgers: dict[RoleName, bytes] = {}
        #: The charges before the schedule, and the sets that were announced since.
        self._charged: dict[RoleName, int] = {}
        self._announced: dict[RoleName, int] = {}
        self.sent = 0
        #: What was found, in words.
        self.broken: list[str] = []

    def start(self) -> None:
        """Note what the ledgers contain before the schedule."""
        for role, disk in self._disks.items():
            self._charged[role] = disk.on_disk("ledger.jsonl").count(_CHARGE)

    def on_send(self, role: RoleName, message: Message) -> None:
        """Check that all that the message depends on is on disk."""
        self.sent += 1
        disk = self._disks[role]
        if disk.faults.loses_syncs:
            return
        match message:
            case UnionAnnouncement():
                ledger = disk.on_disk("ledger.jsonl")
                self._announced[role] = self._announced.get(role, 0) + 1
                if ledger.count(_CHARGE) < self._charged[role] + self._announced[role]:
                    self.broken.append(f"{role} announced its set before the charge was on disk")
                self._ledgers[role] = ledger
            case GradientBlock(step, start):
                kinds = (BlockKind.EMBEDDINGS, BlockKind.OFFERS)
                self._require(role, [(Event.RECEIVED, kind, start, step) for kind in kinds])
            case EvaluationSummary():
                records = self._records(role, "evaluation-alignment")
                if not any(record[0] == Event.RECEIVED for record in records):
                    self.broken.append(f"{role} sent figures before its journal was on disk")
            case _:
                pass

    def check_kept(self, role: RoleName, *, may_be_lost: bool) -> None:
        """Check, before a killed party is started again, that its ledger has not gone back."""
        if may_be_lost or role not in self._ledgers:
            return
        ledger = self._disks[role].on_disk("ledger.jsonl")
        if not ledger.startswith(self._ledgers[role]):
            self.broken.append(f"the ledger of {role} has gone back")

    def _require(self, role: RoleName, any_of: list[tuple[int, int, int, int]]) -> None:
        if not set(any_of) & self._records(role, "checkpoints"):
            self.broken.append(
                f"{role} answered step {any_of[0][3]}, row {any_of[0][2]}, before its journal was "
                "on disk"
            )

    def _records(self, role: RoleName, folder: str) -> set[tuple[int, int, int, int]]:
        stored = self._disks[role].on_disk(f"{folder}/answers.journal")
        found = set()
        for start in range(0, len(stored) - _RECORD_BYTES + 1, _RECORD_BYTES):
            _, _, event, kind, row, step, _ = _RECORD.unpack_from(stored, start)
            if event:
                found.add((event, kind, row, step))
        return found
