"""Evidence in the template of a stage: a run finishes whatever the peer does about it."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from florist.active_party.role import ACTIVE
from florist.common.core.errors import PeerLost
from florist.common.core.progress import NoProgress
from florist.common.evidence.evidence_file import load_stage_evidence
from florist.common.evidence.record import ModelFacts, StageFacts
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.role import ForwardingRole
from florist.common.stages.stage import Stage, StageContext
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    EvidenceContribution,
    EvidenceSignature,
    UnionDigest,
)
from florist.passive_party.role import PASSIVE
from tests.support.parties import ROLES, Workspace
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.evidence.evidence_file import StageEvidence
    from florist.common.session.session import Session
    from florist.common.stages.role import Role
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

BOTH: dict[RoleName, Role] = {"active": ACTIVE, "passive": PASSIVE}


class RoleOverLinks(ForwardingRole):
    """A role whose sessions use these links, one after the other."""

    def __init__(self, inner: Role, links: list[Link]) -> None:
        super().__init__(inner)
        self._links = links

    @contextmanager
    def connect(self, *_: object) -> Iterator[Link]:
        link = self._links.pop(0)
        yield link
        link.close()


class TalkingStage(Stage[str, str]):
    """Sends one message each way; the first sessions are lost as often as `losses` says."""

    name = "align"

    def __init__(self, context: StageContext, losses: int, model: str) -> None:
        super().__init__(context)
        self._losses = losses
        self._model = model
        self.note = ""

    @contextmanager
    def open_inputs(self) -> Iterator[str]:
        yield "input"

    def work(self, inputs: str, session: Session) -> str:
        channel = session.channel("work")
        channel.send(UnionDigest(1, bytes(32)))
        channel.receive(UnionDigest)
        if self._losses:
            self._losses -= 1
            raise PeerLost("the cable was cut")
        return inputs

    def save(self, inputs: str, outcome: str, session: Session, folder: Path) -> None:
        (folder / "result.txt").write_text(outcome)

    def facts(self, inputs: str, outcome: str, folder: Path) -> StageFacts:
        return StageFacts(model=ModelFacts(self._model, "a", "b"))

    def report(self, inputs: str, outcome: str, session: Session, evidence: str) -> str:
        self.note = evidence
        return evidence


def run(
    directory: Path,
    tamper: Tamper | None = None,
    *,
    losses: int = 0,
    plaintext: bool = False,
    models: tuple[str, str] = ("m", "m"),
    stall: float = 20.0,
) -> dict[RoleName, tuple[StageEvidence, str]]:
    """Run both parties; what the passive party sends passes through `tamper`."""
    workspace = Workspace.create(directory / "pair").patient()
    pairs: list[tuple[Link, Link]] = [linked_pair(grace=0.01) for _ in range(losses + 1)]
    if tamper is not None:
        pairs = [(left, TamperingLink(right, tamper)) for left, right in pairs]
    stages = {}
    for role, links, model in zip(ROLES, zip(*pairs, strict=True), models, strict=True):
        workspace.configure(role, {"timeouts.stall": stall})
        config = load_config(workspace.config(role))
        context = StageContext(
            RoleOverLinks(BOTH[role], list(links)),
            config,
            StageOptions(plaintext=plaintext),
            NoProgress(),
        )
        stages[role] = TalkingStage(context, losses, model)
    with ThreadPoolExecutor(2) as pool:
        running = {role: pool.submit(stage.run) for role, stage in stages.items()}
        for role, end in running.items():
            assert (end.result(60) / "result.txt").read_text() == "input"
            assert (end.result() / "report.html").read_text() == stages[role].note
    return {
        role: (load_stage_evidence(stage.runs.evidence / "align.json"), stage.note)
        for role, stage in stages.items()
    }


def test_a_stage_ends_with_evidence(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found["active"][0].record == found["passive"][0].record
    assert found["active"][1].startswith("This party and telco have signed")


def test_messages_of_interrupted_sessions_are_stated_too(tmp_path: Path) -> None:
    for evidence, _ in run(tmp_path, losses=2).values():
        for account in evidence.record["accounts"].values():
            assert account["sent"]["UnionDigest"]["messages"] == 1
            assert account["sent_in_earlier_sessions"]["UnionDigest"]["messages"] == 2
        assert not any(stored.problem for stored in evidence.signatures.values())


def _without(kind: type) -> Tamper:
    def tamper(message: Message) -> Iterable[Message]:
        return () if isinstance(message, kind) else (message,)

    return tamper


def _forged(message: Message) -> Iterable[Message]:
    if isinstance(message, EvidenceSignature):
        return (replace(message, signature=bytes(70)),)
    return (message,)


def _changed(message: Message) -> Iterable[Message]:
    if isinstance(message, EvidenceContribution):
        statement = json.loads(message.statement) | {"outcome": "failed"}
        text = json.dumps(statement, sort_keys=True, separators=(",", ":"))
        return (replace(message, statement=text),)
    return (message,)


@pytest.mark.parametrize(
    ("tamper", "fault"),
    [
        (_without(EvidenceContribution), "no evidence from the peer"),
        (_without(EvidenceSignature), "no signature from the peer"),
        (_forged, "the signature is wrong"),
        (_changed, "the peer states another outcome"),
    ],
    ids=["no-contribution", "no-signature", "forged", "changed"],
)
def test_a_run_finishes_without_the_signature_of_its_peer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tamper: Tamper, fault: str
) -> None:
    with caplog.at_level(logging.WARNING, "florist.evidence"):
        evidence, note = run(tmp_path, tamper, stall=0.5)["active"]
    assert any(fault in stored.problem for stored in evidence.signatures.values())
    assert fault in note
    assert any(fault in record.getMessage() for record in caplog.records)


def test_different_models_are_noticed_by_both(tmp_path: Path) -> None:
    for evidence, note in run(tmp_path, models=("m", "n")).values():
        assert "the peer states another model" in note
        assert not any(stored.signature for stored in evidence.signatures.values())


def test_without_tls_the_record_says_so(tmp_path: Path) -> None:
    for evidence, note in run(tmp_path, plaintext=True).values():
        assert "without TLS" in note
        assert not evidence.local_signature
        assert {stored.signature for stored in evidence.signatures.values()} == {""}
