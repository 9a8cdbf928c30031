"""How serving opens: do the two halves belong together, and under which name are they asked for?

Both sides compare: agreements field by field, and the bundles' digests with what each remembers of
the other's from the end of training.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from florist.common.bundle.comparing import BundleMismatch
from florist.common.core.errors import AgreementMismatch, ConfigurationError
from florist.common.core.release import RELEASE
from florist.common.settings.agreement_differences import differences
from florist.common.transport.messages import BundleOffer, ServingOffer

if TYPE_CHECKING:
    from florist.common.bundle.bundle import Bundle
    from florist.common.settings.agreement import ServingAgreement

#: Of serving; raised when an older peer would misread a message.
PROTOCOL = 1


def make_offer(
    bundle: Bundle, serving: ServingAgreement, union_sha256: bytes = b""
) -> ServingOffer:
    """What this party serves with.

    Args:
        bundle: its half, with the agreement by which it was trained.
        serving: the agreement of today on serving.
        union_sha256: of the union whose people are asked for, where that is needed.
    """
    agreement = bundle.agreement.model_copy(update={"serving": serving})
    return ServingOffer(
        PROTOCOL,
        RELEASE,
        agreement.canonical(),
        BundleOffer(bundle.run, bundle.digest, bundle.peer_digest),
        union_sha256,
    )


def check_offers(ours: ServingOffer, theirs: ServingOffer) -> None:
    """Refuse to serve with halves that do not belong together.

    Raises:
        ConfigurationError: why; the same sentence would be true at the peer.
    """
    if theirs.protocol != ours.protocol:
        raise ConfigurationError(
            f"the peer serves by protocol {theirs.protocol}, this party by {ours.protocol}: run "
            "the same release on both sides"
        )
    if found := differences(ours.agreement, theirs.agreement):
        raise AgreementMismatch(found)
    here, there = ours.bundle, theirs.bundle
    if (here.run, here.digest, here.peer_digest) != (there.run, there.peer_digest, there.digest):
        raise BundleMismatch(
            "the two parties hold halves of different training runs: here run "
            f"{here.run.hex()[:12]}, half {here.digest.hex()[:12]}; at the peer run "
            f"{there.run.hex()[:12]}, half {there.digest.hex()[:12]}"
        )
    # Only an active party with features needs a union; then the passive one names its own.
    if ours.union_sha256 and theirs.union_sha256 and ours.union_sha256 != theirs.union_sha256:
        raise ConfigurationError(
            "the two parties hold different alignments of the table that is served "
            "(agreement.serving.table): align again, both, with --force"
        )


def model_name(active: ServingOffer) -> str:
    """Which model is meant, for every call: what this active party serves, and how."""
    parts = (active.agreement.encode(), active.bundle.run, active.bundle.digest)
    lengths = b"".join(len(part).to_bytes(8) for part in parts)
    return hashlib.sha256(b"florist/served/1" + lengths + b"".join(parts)).hexdigest()[:32]
