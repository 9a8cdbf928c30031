"""How a union starts: both parties say what they have stored, then both resume or start over."""

from __future__ import annotations

import hashlib
import logging
import secrets
from typing import TYPE_CHECKING, Protocol

from florist.common.core.errors import ProtocolViolation
from florist.common.psu.keys import OwnSecrets
from florist.common.psu.sealed_keys import KEY_BYTES, UnionSecrets, new_sealing_key, seal, unseal
from florist.common.transport.messages import Step, UnionOpening, UnionTerms

if TYPE_CHECKING:
    from florist.common.groups.group import Group
    from florist.common.transport.channel import Channel

log = logging.getLogger("florist.align")

_NONCE_BYTES = 32
_TOKEN_BYTES = 32

#: An exchange is identified by its first step.
_FIRST_STEPS = frozenset(
    {
        Step.ACTIVE_FIRST_ROUND,
        Step.PASSIVE_FIRST_ROUND,
        Step.SECOND_ROUND,
        Step.ACTIVE_HASHING,
        Step.PASSIVE_HASHING,
    }
)


class UnionJournal(Protocol):
    """The stored state of a union: a `Journal`, or the journals of all partitions together."""

    @property
    def token(self) -> bytes: ...

    @property
    def finished(self) -> list[int]: ...

    @property
    def peer_size(self) -> int: ...

    @property
    def sealed(self) -> bytes: ...

    def drop_damaged(self) -> bool: ...

    def begin(self, token: bytes, sealed: bytes, peer_size: int) -> None: ...


def open_union(
    channel: Channel, group: Group, journal: UnionJournal, earlier: UnionSecrets | None, size: int
) -> tuple[UnionSecrets, frozenset[Step]]:
    """Agree with the peer on where to resume; return the secrets, and the exchanges both completed.

    If either party has lost its stored state or its secrets, both start over under fresh secrets:
    old and new elements cannot be linked.

    Args:
        channel: the channel of this union's handshake.
        group: for fresh secrets.
        journal: what we have stored; afterwards it belongs to the agreed union.
        earlier: the secrets that an earlier attempt left in memory.
        size: the size of our set, dummies included.
    """
    token = journal.token if journal.token and journal.drop_damaged() else b""
    known = earlier if earlier and token and earlier.token == token else None
    ours = UnionOpening(
        token,
        tuple(journal.finished) if token else (),
        size,
        known.peer_key if known else b"",
    )
    channel.send(ours)
    theirs = _checked(channel.receive(UnionOpening))

    own, own_key = (known.own, known.own_key) if known else (None, theirs.kept_key)
    is_same = bool(token) and token == theirs.token and journal.peer_size == theirs.size
    if is_same and own is None:
        own = unseal(journal.sealed, own_key, token)
    resume = is_same and own is not None
    terms = UnionTerms(
        resume,
        secrets.token_bytes(_NONCE_BYTES),
        own_key if resume else new_sealing_key(),
    )
    channel.send(terms)
    their_terms = _checked_terms(
        channel.receive(UnionTerms), may_resume=bool(token) and token == theirs.token
    )

    if resume and their_terms.resume:
        assert own is not None
        done = frozenset(map(Step, ours.finished)) & frozenset(map(Step, theirs.finished))
        log.info("resuming this union: %s of 5 exchanges are complete", len(done))
        return UnionSecrets(token, own, own_key, their_terms.sealing_key), done
    token = _new_token(terms.nonce, their_terms.nonce)
    own = OwnSecrets.fresh(group)
    journal.begin(token, seal(own, terms.sealing_key, token), theirs.size)
    return UnionSecrets(token, own, terms.sealing_key, their_terms.sealing_key), frozenset()


def _new_token(ours: bytes, theirs: bytes) -> bytes:
    """Return the token of a new union, which is random if either nonce is."""
    return hashlib.sha256(b"florist/union/1" + min(ours, theirs) + max(ours, theirs)).digest()


def _checked(opening: UnionOpening) -> UnionOpening:
    if (
        len(opening.token) not in (0, _TOKEN_BYTES)
        or len(opening.kept_key) not in (0, KEY_BYTES)
        or len(set(opening.finished)) != len(opening.finished)
        or not _FIRST_STEPS.issuperset(opening.finished)
        or (opening.finished and not opening.token)
    ):
        raise ProtocolViolation("the peer's opening of the union is inconsistent")
    return opening


def _checked_terms(terms: UnionTerms, *, may_resume: bool) -> UnionTerms:
    if (
        len(terms.nonce) != _NONCE_BYTES
        or len(terms.sealing_key) != KEY_BYTES
        or (terms.resume and not may_resume)
    ):
        raise ProtocolViolation("the peer's terms for the union are inconsistent")
    return terms
