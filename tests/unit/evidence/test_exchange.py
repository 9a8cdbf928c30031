"""Both parties end with the same record, signed by both; or each says why not."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import Interrupted, PeerLost
from florist.common.evidence.exchange import CHANNEL, NO_TLS
from florist.common.evidence.record import StageFacts, account_problems, differing_facts
from florist.common.settings.agreement import Agreement
from florist.common.transport.channel import MessageCount
from florist.common.transport.messages import (
    EvidenceContribution,
    EvidenceSignature,
    UnionDigest,
)
from tests.support.certificates import ACTIVE, PASSIVE, Trust
from tests.unit.evidence.pairs import UNION, connected, exchanged, statement_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.evidence.exchange import SignedRecord
    from florist.common.transport.channel import Channel
    from florist.common.transport.credentials import Credentials
    from tests.unit.evidence.pairs import Side


def test_both_sign_the_same_bytes(active: Credentials, passive: Credentials) -> None:
    signed = exchanged(connected(active, passive))
    assert signed["active"].is_complete
    assert signed["passive"].is_complete
    assert signed["active"].record == signed["passive"].record
    assert signed["active"].own == signed["passive"].peer
    assert signed["active"].peer == signed["passive"].own
    record = json.loads(signed["active"].record)
    assert record["accounts"]["active"]["name"] == ACTIVE
    assert record["accounts"]["passive"]["sent"]["UnionDigest"]["messages"] == 1
    assert record["agreement"] == Agreement().model_dump(mode="json")
    assert statement_of(signed["active"])["privacy"] == {"epsilon": 1.0, "delta": 1e-9}


def test_without_tls_nothing_is_signed_and_the_record_says_so() -> None:
    for signed in exchanged(connected(None, None)).values():
        assert not signed.is_complete
        assert signed.own.problem == NO_TLS
        assert NO_TLS in signed.peer.problem
        assert json.loads(signed.record)["accounts"]["active"]["certificate_sha256"] is None


def test_different_facts_are_not_signed(active: Credentials, passive: Credentials) -> None:
    for changed in (
        {"sha256": "00" * 32},
        {"union_size": 551},
        {"active_commitment": None},
        {"shared_estimate": 151},
    ):
        sides = connected(active, passive)
        sides["passive"].facts = StageFacts({"train": replace(UNION, **changed)})
        for signed in exchanged(sides).values():
            assert not signed.own.signature
            assert signed.own.problem == "the peer states another unions"
            assert "the peer did not sign: the peer states another unions" in signed.peer.problem


def test_wrong_counts_are_not_signed(active: Credentials, passive: Credentials) -> None:
    sides = connected(active, passive)
    sides["passive"].lie = 7
    signed = exchanged(sides)
    assert "messages UnionDigest" in signed["active"].own.problem
    assert not signed["active"].own.signature
    # The liar itself found nothing wrong, and is told why its peer does not sign.
    assert signed["passive"].own.signature
    assert "messages UnionDigest" in signed["passive"].peer.problem
    # Its signature is of the record with the lie, which the active party has too.
    assert signed["active"].peer.problem == ""
    assert not signed["active"].is_complete


def test_a_certificate_of_another_authority(
    active: Credentials, passive: Credentials, tmp_path: Path
) -> None:
    stranger = Trust.create(tmp_path).party(PASSIVE)
    signed = exchanged(connected(active, stranger))
    assert signed["active"].peer.problem == "the certificate was not issued by the authority"
    assert not signed["active"].is_complete


def test_a_certificate_of_somebody_else(trust: Trust, active: Credentials) -> None:
    signed = exchanged(connected(active, trust.party("stranger")))
    assert "belongs to 'stranger'" in signed["active"].peer.problem


def test_an_expired_certificate(trust: Trust, active: Credentials) -> None:
    signed = exchanged(connected(active, trust.party(PASSIVE, age=timedelta(days=30))))
    assert "not at the time of signing" in signed["active"].peer.problem


def against(side: Side, behaviour: Callable[[Channel], None]) -> SignedRecord:
    """Exchange with a peer that behaves like this on the channel."""
    other = next(link for link in (side.link._peer,))  # type: ignore[attr-defined]
    peer = Thread(target=lambda: behaviour(other.channel(CHANNEL)), daemon=True)
    peer.start()
    signed = side.exchange()
    peer.join(30)
    return signed


def contribution(side: Side) -> EvidenceContribution:
    signer = side.identities.signer
    assert signer is not None
    return EvidenceContribution(side.statement, side.account.to_json(), signer.chain.to_pem())


def test_wrong_signatures(active: Credentials, passive: Credentials) -> None:
    for forged, fault in (
        (lambda answer: replace(answer, signature=bytes(70)), "the signature is wrong"),
        (lambda answer: replace(answer, record_sha256=bytes(32)), "signed another record"),
        (lambda _: EvidenceSignature(b"", b"", "I will not\x1b[2J"), "did not sign: I will not"),
        (lambda _: EvidenceSignature(b"", b""), "no reason given"),
    ):
        sides = connected(active, passive)

        def behave(
            channel: Channel, forged: object = forged, peer: Side = sides["passive"]
        ) -> None:
            channel.send(contribution(peer))
            channel.receive(EvidenceContribution)
            answer = channel.receive(EvidenceSignature)
            assert callable(forged)
            # A signature of the active party, sent back as the passive party's own.
            channel.send(forged(answer))

        signed = against(sides["active"], behave)
        assert fault in signed.peer.problem
        assert "\x1b" not in signed.peer.problem
        assert signed.own.signature
        assert not signed.is_complete


def test_our_own_signature_is_not_the_peers(active: Credentials, passive: Credentials) -> None:
    sides = connected(active, passive)

    def reflect(channel: Channel) -> None:
        channel.send(contribution(sides["passive"]))
        channel.receive(EvidenceContribution)
        channel.send(channel.receive(EvidenceSignature))

    assert against(sides["active"], reflect).peer.problem == "the signature is wrong"


def test_malformed_contributions(active: Credentials, passive: Credentials) -> None:
    for changed, fault in (
        ({"account": "no JSON"}, "account is malformed"),
        ({"account": '{"role":"passive"}'}, "account is malformed"),
        ({"statement": "[" * 10_000}, "statement is malformed"),
        ({"statement": "[]"}, "statement is malformed"),
        ({"certificates": b"no PEM"}, ""),
    ):
        sides = connected(active, passive)

        def behave(
            channel: Channel, changed: object = changed, peer: Side = sides["passive"]
        ) -> None:
            assert isinstance(changed, dict)
            channel.send(replace(contribution(peer), **changed))
            channel.receive(EvidenceContribution)
            answer = channel.receive(EvidenceSignature)
            channel.send(replace(answer, signature=answer.signature or b"x"))

        signed = against(sides["active"], behave)
        assert fault in signed.own.problem
        assert signed.peer.problem
        assert not signed.is_complete


def test_our_own_role_is_not_taken_from_us(active: Credentials, passive: Credentials) -> None:
    sides = connected(active, passive)

    def behave(channel: Channel) -> None:
        channel.send(contribution(sides["active"]))
        channel.receive(EvidenceContribution)
        channel.send(channel.receive(EvidenceSignature))

    signed = against(sides["active"], behave)
    assert "another role or name" in signed.own.problem
    assert not signed.own.signature
    assert signed.peer.problem


def test_a_silent_peer_is_not_waited_for_for_ever(
    active: Credentials, passive: Credentials
) -> None:
    sides = connected(active, passive)
    sides["active"].timeout = 0.05
    signed = sides["active"].exchange()
    assert "no evidence from the peer" in signed.peer.problem
    assert json.loads(signed.record)["accounts"].keys() == {"active"}
    assert not signed.is_complete


@pytest.mark.parametrize("when", ["before", "between"])
def test_a_lost_peer(active: Credentials, passive: Credentials, when: str) -> None:
    sides = connected(active, passive)

    def behave(channel: Channel) -> None:
        if when == "between":
            channel.send(contribution(sides["passive"]))
        channel.receive(EvidenceContribution)
        sides["passive"].link.fail(PeerLost("the cable was cut"))

    signed = against(sides["active"], behave)
    assert ("no evidence" if when == "before" else "no signature") in signed.peer.problem
    assert bool(signed.own.signature) == (when == "between")


def test_a_message_of_another_type(active: Credentials, passive: Credentials) -> None:
    signed = against(
        connected(active, passive)["active"], lambda channel: channel.send(UnionDigest(1, b""))
    )
    assert "UnionDigest" in signed.peer.problem


def test_the_operator_can_stop(active: Credentials, passive: Credentials) -> None:
    side = connected(active, passive)["active"]
    side.link.fail(Interrupted("stopped"))
    with pytest.raises(Interrupted):
        side.exchange()


def test_clocks_that_differ(active: Credentials, passive: Credentials) -> None:
    account = connected(active, passive)["passive"].account
    role: RoleName = "active"
    counts = {"UnionDigest": MessageCount(1, account.sent["UnionDigest"].bytes)}
    now = datetime.now(UTC)
    assert account_problems(account, role, PASSIVE, counts, now) == []
    for wrong in (replace(account, time="noon"), replace(account, time="2020-01-01T00:00:00")):
        assert account_problems(wrong, role, PASSIVE, counts, now)
    assert account_problems(account, role, PASSIVE, counts, now + timedelta(hours=2))
    assert account_problems(account, role, PASSIVE, {}, now)
    assert account_problems(account, role, PASSIVE, counts | {"SetChunk": MessageCount(1, 1)}, now)


def test_facts_are_named_but_not_quoted() -> None:
    assert differing_facts('{"a":1}', '{"a":1}') == []
    assert differing_facts('{"a":1,"b":2}', '{"a":1,"b":"secret"}') == ["the peer states another b"]
    assert differing_facts('{"a":1}', '{"a":1,"c":2}') == ["the peer states more facts"]
    assert differing_facts('{"a":1}', '{"a":NaN}') == ["the peer states another a"]
