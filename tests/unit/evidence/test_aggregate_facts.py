"""The label aggregate in the signed record: stated by both, shown, compared with the agreement."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from florist.common.evidence.record import AggregateFacts, StageFacts, canonical, make_statement
from florist.common.evidence.summary_page import RunFacts, render
from florist.common.evidence.verification import verify_stage
from florist.common.settings.agreement import (
    AggregateAgreement,
    AggregatePrivacy,
    Agreement,
    TrainingAgreement,
)
from florist.common.transport.certificate_files import load_certificates
from tests.unit.evidence import pairs
from tests.unit.evidence.pairs import UNION, complete_evidence, connected, exchanged, statement_of

if TYPE_CHECKING:
    from florist.common.evidence.evidence_file import StageEvidence
    from florist.common.transport.credentials import Credentials

FACTS = AggregateFacts(epsilon=4.0, delta=1e-7, coordinates=1234, columns=26, deviation=704.19)


def agreement(privacy: object) -> Agreement:
    aggregate = AggregateAgreement.model_validate({"privacy": privacy})
    return Agreement(training=TrainingAgreement(aggregate=aggregate))


def evidence(active: Credentials, passive: Credentials, privacy: object) -> StageEvidence:
    sides = connected(active, passive)
    for side in sides.values():
        side.agreement = agreement(privacy)
        side.facts = StageFacts({"train": UNION}, aggregate=FACTS)
    return sides["active"].stored(exchanged(sides)["active"])


@pytest.mark.parametrize("privacy", ["auto", AggregatePrivacy(epsilon=4.0)])
def test_it_is_signed_verified_and_shown(
    active: Credentials, passive: Credentials, privacy: object
) -> None:
    stored = evidence(active, passive, privacy)
    assert stored.record["statement"]["aggregate"] == asdict(FACTS)
    checks = verify_stage(stored, load_certificates(active.authority))
    assert [check.problem for check in checks] == [""] * 4
    assert "; label aggregate with ε = 4, δ = 1e-07" in checks[0].what
    page = render(RunFacts([stored]))
    assert "label aggregate: ε = 4, δ = 1e-07 for each person of the active party" in page
    assert "1,234 sums over 26 columns, each with noise of deviation 704.2" in page


@pytest.mark.parametrize("privacy", [None, AggregatePrivacy(epsilon=1.0)])
def test_another_guarantee_than_agreed(
    active: Credentials, passive: Credentials, privacy: object
) -> None:
    checks = verify_stage(evidence(active, passive, privacy), load_certificates(active.authority))
    assert checks[0].problem == "the guarantee of the label aggregate is not the agreed one"


def test_the_parties_must_state_the_same(active: Credentials, passive: Credentials) -> None:
    sides = connected(active, passive)
    sides["active"].facts = StageFacts({"train": UNION}, aggregate=FACTS)
    sides["passive"].facts = StageFacts({"train": UNION}, aggregate=replace(FACTS, columns=25))
    signed = exchanged(sides)["active"]
    assert "the peer states another aggregate" in json.dumps(asdict(signed), default=str)


def test_without_an_aggregate(active: Credentials, passive: Credentials) -> None:
    sides = connected(active, passive)
    signed = exchanged(sides)["active"]
    assert statement_of(signed)["aggregate"] is None
    stored = sides["active"].stored(signed)
    assert "no label aggregate" in render(RunFacts([stored]))


def test_records_of_earlier_releases(
    active: Credentials, passive: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their statement has no such key, and is signed without it."""

    def earlier(*arguments: Any) -> str:  # noqa: ANN401
        statement = json.loads(make_statement(*arguments))
        del statement["aggregate"]
        return canonical(statement)

    monkeypatch.setattr(pairs, "make_statement", earlier)
    stored = complete_evidence(active, passive)
    assert "aggregate" not in stored.record["statement"]
    checks = verify_stage(stored, load_certificates(active.authority))
    assert [check.problem for check in checks] == [""] * 4
    assert "no label aggregate" in render(RunFacts([stored]))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        "text",
        asdict(FACTS) | {"epsilon": "4"},
        asdict(FACTS) | {"deviation": -1.0},
        asdict(FACTS) | {"columns": 1.5},
        asdict(FACTS) | {"delta": None},
    ],
)
def test_malformed_facts(active: Credentials, passive: Credentials, wrong: object) -> None:
    assert AggregateFacts.from_statement(wrong) is None
    stored = evidence(active, passive, "auto")
    statement = stored.record["statement"] | {"aggregate": wrong}
    stored = replace(stored, record=stored.record | {"statement": statement})
    checks = verify_stage(stored, load_certificates(active.authority))
    assert checks[0].problem == "the facts of the label aggregate are malformed"
    assert checks[1].problem
    assert "malformed" in render(RunFacts([stored]))
