"""The handshake of serving: check that the halves of the model belong together, and name the model.

Both sides compare the agreements field by field, and the digests of the bundles with those that
they stored at the end of training.
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

#: The version of the serving protocol; increased when an older peer would misread a message.
PROTOCOL = 1


def make_offer(
    bundle: Bundle, serving: ServingAgreement, union_sha256: bytes = b""
) -> ServingOffer:
    """Describe what this party serves with.

    Args:
        bundle: its half of the model, with the agreement it was trained under.
        serving: the current agreement on serving.
        union_sha256: the digest of the union that the served people belong to, if needed.
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
    """Check that both halves belong together.

    Raises:
        ConfigurationError: they do not; the message applies to both parties.
    """
    if theirs.protocol != ours.protocol:
        raise ConfigurationError(
            f"the peer uses serving protocol {theirs.protocol}, this party uses {ours.protocol}: "
            "run the same release on both sides"
        )
    if found := differences(ours.agreement, theirs.agreement):
        raise AgreementMismatch(found)
    here, there = ours.bundle, theirs.bundle
    if (here.run, here.digest, here.peer_digest) != (there.run, there.peer_digest, there.digest):
        raise BundleMismatch(
            "the parties hold halves of different training runs: run "
            f"{here.run.hex()[:12]}, half {here.digest.hex()[:12]} here; run "
            f"{there.run.hex()[:12]}, half {there.digest.hex()[:12]} at the peer"
        )
    # Only an active party with features needs a union; the passive party always sends its own.
    if ours.union_sha256 and theirs.union_sha256 and ours.union_sha256 != theirs.union_sha256:
        raise ConfigurationError(
            "the parties hold different alignments of the served table "
            "(agreement.serving.table): run align again on both sides, with --force"
        )


def model_name(active: ServingOffer) -> str:
    """Return a name for the model and its agreement, which is sent with every call."""
    parts = (active.agreement.encode(), active.bundle.run, active.bundle.digest)
    lengths = b"".join(len(part).to_bytes(8) for part in parts)
    return hashlib.sha256(b"florist/served/1" + lengths + b"".join(parts)).hexdigest()[:32]
