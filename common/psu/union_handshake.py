"""How a union begins: both say what they have of it, and both go on with that, or both anew."""

from __future__ import annotations

import hashlib
import logging
import secrets
from typing import TYPE_CHECKING, Protocol

from florist.common.core.errors import ProtocolViolation
from florist.common.psu.keys import Keys
from florist.common.psu.sealed_keys import KEY_BYTES, UnionSecrets, new_sealing_key, seal, unseal
from florist.common.transport.messages import Step, UnionOpening, UnionTerms

if TYPE_CHECKING:
    from florist.common.groups.group import Group
    from florist.common.transport.channel import Channel

log = logging.getLogger("florist.align")

_NONCE_BYTES = 32
_TOKEN_BYTES = 32

#: An exchange is named by the step that it begins with.
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
    """What there is of a union that was begun before: a `Journal`, or what stands for several."""

    @property
    def token(self) -> bytes: ...

    @property
    def finished(self) -> list[int]: ...

    @property
    def peer_size(self) -> int: ...

    @property
    def sealed(self) -> bytes: ...

    def drop_unsound(self) -> bool: ...

    def begin(self, token: bytes, sealed: bytes, peer_size: int) -> None: ...


def open_union(
    channel: Channel, group: Group, journal: UnionJournal, held: UnionSecrets | None, size: int
) -> tuple[UnionSecrets, frozenset[Step]]:
    """Agree with the peer on where to go on; return the secrets, and the exchanges both have done.

    If either of the two has lost its part, its secrets or its place, all is begun anew under fresh
    secrets: old and new elements have nothing in common.

    Args:
        channel: of this union alone.
        group: for fresh exponents.
        journal: what we have on disk; it is that of the new union afterwards.
        held: what an earlier attempt left in memory.
        size: how many elements our set has, dummies included.
    """
    token = journal.token if journal.token and journal.drop_unsound() else b""
    known = held if held and token and held.token == token else None
    ours = UnionOpening(
        token,
        tuple(journal.finished) if token else (),
        size,
        known.peer_key if known else b"",
    )
    channel.send(ours)
    theirs = _checked(channel.receive(UnionOpening))

    keys, own_key = (known.keys, known.own_key) if known else (None, theirs.kept_key)
    is_same = bool(token) and token == theirs.token and journal.peer_size == theirs.size
    if is_same and keys is None:
        keys = unseal(journal.sealed, own_key, token)
    resume = is_same and keys is not None
    terms = UnionTerms(
        resume,
        secrets.token_bytes(_NONCE_BYTES),
        own_key if resume else new_sealing_key(),
    )
    channel.send(terms)
    their_terms = _checked_terms(
        channel.receive(UnionTerms), may_go_on=bool(token) and token == theirs.token
    )

    if resume and their_terms.resume:
        assert keys is not None
        done = frozenset(map(Step, ours.finished)) & frozenset(map(Step, theirs.finished))
        log.info("going on with this union: %s of 5 exchanges are done", len(done))
        return UnionSecrets(token, keys, own_key, their_terms.sealing_key), done
    token = _name(terms.nonce, their_terms.nonce)
    keys = Keys.fresh(group)
    journal.begin(token, seal(keys, terms.sealing_key, token), theirs.size)
    return UnionSecrets(token, keys, terms.sealing_key, their_terms.sealing_key), frozenset()


def _name(ours: bytes, theirs: bytes) -> bytes:
    """Of a new union: random if either part is."""
    return hashlib.sha256(b"florist/union/1" + min(ours, theirs) + max(ours, theirs)).digest()


def _checked(opening: UnionOpening) -> UnionOpening:
    if (
        len(opening.token) not in (0, _TOKEN_BYTES)
        or len(opening.kept_key) not in (0, KEY_BYTES)
        or len(set(opening.finished)) != len(opening.finished)
        or not _FIRST_STEPS.issuperset(opening.finished)
        or (opening.finished and not opening.token)
    ):
        raise ProtocolViolation("the peer's opening of the union makes no sense")
    return opening


def _checked_terms(terms: UnionTerms, *, may_go_on: bool) -> UnionTerms:
    if (
        len(terms.nonce) != _NONCE_BYTES
        or len(terms.sealing_key) != KEY_BYTES
        or (terms.resume and not may_go_on)
    ):
        raise ProtocolViolation("the peer's terms for the union make no sense")
    return terms
