"""The base transfers: their result, their messages when a run is resumed, and invalid messages."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ProtocolViolation
from florist.common.groups.ristretto255 import IDENTITY, Element
from florist.common.oblivious_transfer import BaseReceiver, BaseSender
from florist.common.oblivious_transfer import base_transfers as module
from tests.unit.groups.test_ristretto255 import INVALID

if TYPE_CHECKING:
    from tests.unit.oblivious_transfer.conftest import Base

ONE, OTHER = bytes([1] * 32), bytes([2] * 32)
BAD = (*INVALID, "00" * 32)


@pytest.fixture(scope="module")
def receiver() -> BaseReceiver:
    return BaseReceiver(ONE, b"session")


@pytest.fixture(scope="module")
def reply(receiver: BaseReceiver) -> bytes:
    return BaseSender(OTHER, b"session").answer(receiver.request)[0]


def replaced(message: bytes, position: int, encoded: bytes) -> bytes:
    return message[: 32 * position] + encoded + message[32 * position + 32 :]


def test_the_receiver_has_the_seed_of_its_choice_and_no_other(base: Base) -> None:
    assert base.seeds.context == base.pairs.context
    for seed, choice, pair in zip(
        base.seeds.seeds, base.seeds.choices, base.pairs.pairs, strict=True
    ):
        assert seed == pair[choice]
    seeds = {seed for pair in base.pairs.pairs for seed in pair}
    assert len(seeds) == 256
    assert {len(seed) for seed in seeds} == {32}
    assert set(base.seeds.choices) == {0, 1}


def test_a_resumed_run_sends_the_same_bytes(receiver: BaseReceiver, reply: bytes) -> None:
    again = BaseReceiver(ONE, b"session")
    assert again.request == receiver.request
    second_reply, pairs = BaseSender(OTHER, b"session").answer(again.request)
    assert second_reply == reply
    assert again.finish(reply) == receiver.finish(reply)
    assert len(receiver.request) == len(reply) == module.MESSAGE_BYTES == 8192
    # What this release computes; another release that differs cannot resume its runs.
    seen = hashlib.sha256(receiver.request + reply + pairs.context + pairs.pairs[127][1])
    assert seen.hexdigest() == EXPECTED


EXPECTED = "2051dce79db5e6246f856e3dbbf84b4c370eec2d99e4c872cb6b1b9369069463"


def test_sessions_and_secrets_give_other_messages(receiver: BaseReceiver, reply: bytes) -> None:
    other_session = BaseReceiver(ONE, b"session 2")
    assert not elements(other_session.request) & elements(receiver.request)
    assert other_session._choices != receiver._choices
    other_secret = BaseReceiver(OTHER, b"session")
    assert not elements(other_secret.request) & elements(receiver.request)
    # The sender answers another request with other elements.
    assert not elements(BaseSender(OTHER, b"session").answer(other_secret.request)[0]) & elements(
        reply
    )


def elements(message: bytes) -> set[bytes]:
    return {message[at : at + 32] for at in range(0, len(message), 32)}


def test_a_different_session_of_the_peer_gives_unrelated_seeds(receiver: BaseReceiver) -> None:
    reply, pairs = BaseSender(OTHER, b"session 2").answer(receiver.request)
    seeds = receiver.finish(reply)
    assert seeds.context != pairs.context
    assert not set(seeds.seeds) & {seed for pair in pairs.pairs for seed in pair}


@pytest.mark.parametrize("encoded", BAD)
def test_invalid_elements(receiver: BaseReceiver, reply: bytes, encoded: str) -> None:
    """Whatever the receiver's choice is, so that the rejection reveals nothing about it."""
    for position in (0, 1):
        with pytest.raises(ProtocolViolation, match="not a valid one"):
            receiver.finish(replaced(reply, position, bytes.fromhex(encoded)))
        with pytest.raises(ProtocolViolation, match="not a valid one"):
            BaseSender(OTHER, b"session").answer(
                replaced(receiver.request, position, bytes.fromhex(encoded))
            )


def test_an_invalid_last_element(receiver: BaseReceiver, reply: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        receiver.finish(replaced(reply, 255, bytes(32)))
    with pytest.raises(ProtocolViolation):
        BaseSender(OTHER, b"session").answer(replaced(receiver.request, 255, bytes(32)))


@pytest.mark.parametrize("size", [0, 8191, 8193, 16384])
def test_messages_of_another_size(receiver: BaseReceiver, size: int) -> None:
    with pytest.raises(ProtocolViolation, match=f"{size} bytes, not 8192"):
        receiver.finish(bytes(size))
    with pytest.raises(ProtocolViolation, match=f"{size} bytes, not 8192"):
        BaseSender(OTHER, b"session").answer(bytes(size))


def test_a_request_for_the_seed_of_the_neutral_element(receiver: BaseReceiver) -> None:
    """R[0] = -H(0, R[1]) makes A[0] neutral, and the seed known to everybody."""
    other = receiver.request[32:64]
    hashed = module._hashed(b"session", 0, 0, other)
    crafted = replaced(receiver.request, 0, IDENTITY.minus(hashed).encode())
    with pytest.raises(ProtocolViolation, match="neutral"):
        BaseSender(OTHER, b"session").answer(crafted)


def test_both_elements_of_a_request_have_the_same_form(receiver: BaseReceiver) -> None:
    """For both choices there is a receiver that sends this request: it does not fix the choice.

    A receiver with choice c sends any R[1-c] and R[c] = a·G - H(c, R[1-c]). Every element is a·G
    for exactly one a, so R[c] + H(c, R[1-c]) being an element is all there is to say, for either c.
    """
    for transfer in range(4):
        encoded = [receiver.request[64 * transfer + 32 * j :][:32] for j in (0, 1)]
        for c in (0, 1):
            element = Element.decode(encoded[c])
            assert element is not None
            agreed = element.plus(module._hashed(b"session", transfer, c, encoded[1 - c]))
            assert not agreed.is_identity()


@pytest.mark.parametrize("size", [0, 31, 33])
def test_secrets_of_another_size(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        BaseReceiver(bytes(size), b"session")
    with pytest.raises(ValueError, match="32 bytes"):
        BaseSender(bytes(size), b"session")


def test_secrets_are_not_shown(base: Base) -> None:
    shown = repr(base.seeds) + repr(base.pairs) + repr(BaseSender(ONE, b"session"))
    assert "choices" not in shown
    assert "seed" not in shown.lower().replace("chosenseeds", "").replace("seedpairs", "")
    assert repr(ONE) not in shown
    assert not any(repr(seed)[2:-1] in shown for seed in base.seeds.seeds)
