"""How a union starts: both parties say what they have stored, then both resume or start over."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from florist.common.core.errors import ProtocolViolation
from florist.common.psu.sealed_keys import KEY_BYTES, UnionSecrets, new_sealing_key, seal, unseal
from florist.common.session.nonces import check_commitment, commitment, fresh_nonce
from florist.common.transport.messages import (
    NonceReveal,
    Step,
    UnionAnnouncement,
    UnionOpening,
    UnionTerms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.groups.group import Group
    from florist.common.privacy.commitment import SetCommitment
    from florist.common.psu.exchanges import Exchange
    from florist.common.psu.keys import OwnSecrets
    from florist.common.transport.channel import Channel

log = logging.getLogger("florist.align")

_TOKEN_BYTES = 32
_COMMITMENT_BYTES = 32
_ROOT_BYTES = 32


class UnionJournal(Protocol):
    """The stored state of a union: a `Journal`, or the journals of all partitions together."""

    @property
    def token(self) -> bytes: ...

    @property
    def finished(self) -> list[int]: ...

    @property
    def sealed(self) -> bytes: ...

    def drop_damaged(self) -> bool: ...

    def begin(
        self, token: bytes, sealed: bytes, peer: UnionAnnouncement, own: SetCommitment
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class AnnouncedSet:
    """What a party announces about its set at the start of a new union."""

    #: Padding included.
    size: int
    commitment: SetCommitment


class OwnSet(Protocol):
    """Our set in a union, as the handshake needs it: a `PaddedSet` of a stage."""

    def draw_secrets(self, group: Group) -> OwnSecrets:
        """Return fresh secrets for a new union."""
        ...

    def announce(self, token: bytes, own: OwnSecrets) -> AnnouncedSet:
        """Return what we announce about our set; called once, just before it is sent."""
        ...


def open_union(
    channel: Channel,
    group: Group,
    journal: UnionJournal,
    earlier: UnionSecrets | None,
    own_set: OwnSet,
    exchanges: Sequence[Exchange],
) -> tuple[UnionSecrets, frozenset[Step]]:
    """Agree with the peer on where to resume; return the secrets, and the exchanges both completed.

    If either party has lost its stored state or its secrets, both start over under fresh secrets:
    old and new elements cannot be linked. Both contribute to the token of a new union, by nonces
    that they commit to before they see the peer's.

    Args:
        channel: the channel of this union's handshake.
        group: for fresh secrets.
        journal: what we have stored; afterwards it belongs to the agreed union.
        earlier: the secrets that an earlier attempt left in memory.
        own_set: what we bring to the union.
        exchanges: those of the agreed protocol.
    """
    token = journal.token if journal.token and journal.drop_damaged() else b""
    known = earlier if earlier and token and earlier.token == token else None
    ours = UnionOpening(
        token,
        tuple(journal.finished) if token else (),
        known.peer_key if known else b"",
    )
    channel.send(ours)
    theirs = _checked(channel.receive(UnionOpening), exchanges)

    own, own_key = (known.own, known.own_key) if known else (None, theirs.kept_key)
    is_same = bool(token) and token == theirs.token
    if is_same and own is None:
        own = unseal(journal.sealed, own_key, token)
    resume = is_same and own is not None
    nonce = fresh_nonce()
    terms = UnionTerms(resume, commitment(nonce), own_key if resume else new_sealing_key())
    channel.send(terms)
    their_terms = _checked_terms(channel.receive(UnionTerms), may_resume=is_same)

    if resume and their_terms.resume:
        assert own is not None
        done = frozenset(map(Step, ours.finished)) & frozenset(map(Step, theirs.finished))
        log.info("resuming this union: %s of %s exchanges are complete", len(done), len(exchanges))
        return UnionSecrets(token, own, own_key, their_terms.sealing_key), done
    token = _new_token(nonce, _their_nonce(channel, nonce, their_terms))
    own = own_set.draw_secrets(group)
    announced = own_set.announce(token, own)
    channel.send(UnionAnnouncement(announced.size, announced.commitment.root))
    peer = _checked_announcement(channel.receive(UnionAnnouncement))
    sealed = seal(own, terms.sealing_key, token)
    journal.begin(token, sealed, peer, announced.commitment)
    return UnionSecrets(token, own, terms.sealing_key, their_terms.sealing_key), frozenset()


def _their_nonce(channel: Channel, nonce: bytes, terms: UnionTerms) -> bytes:
    """Exchange the nonces, after both parties have committed to theirs.

    Raises:
        ProtocolViolation: the peer's nonce is not the one that it committed to.
    """
    channel.send(NonceReveal(nonce))
    theirs = channel.receive(NonceReveal).nonce
    check_commitment(theirs, terms.commitment)
    return theirs


def _new_token(ours: bytes, theirs: bytes) -> bytes:
    """Return the token of a new union, which is random if either nonce is."""
    return hashlib.sha256(b"florist/union/1" + min(ours, theirs) + max(ours, theirs)).digest()


def _checked(opening: UnionOpening, exchanges: Sequence[Exchange]) -> UnionOpening:
    first_steps = {exchange.out for exchange in exchanges}  # an exchange is identified by them
    if (
        len(opening.token) not in (0, _TOKEN_BYTES)
        or len(opening.kept_key) not in (0, KEY_BYTES)
        or len(set(opening.finished)) != len(opening.finished)
        or not first_steps.issuperset(opening.finished)
        or (opening.finished and not opening.token)
    ):
        raise ProtocolViolation("the peer's opening of the union is inconsistent")
    return opening


def _checked_terms(terms: UnionTerms, *, may_resume: bool) -> UnionTerms:
    if (
        len(terms.commitment) != _COMMITMENT_BYTES
        or len(terms.sealing_key) != KEY_BYTES
        or (terms.resume and not may_resume)
    ):
        raise ProtocolViolation("the peer's terms for the union are inconsistent")
    return terms


def _checked_announcement(announcement: UnionAnnouncement) -> UnionAnnouncement:
    if len(announcement.set_root) != _ROOT_BYTES:
        raise ProtocolViolation("the peer's commitment to its set is not a hash")
    return announcement
