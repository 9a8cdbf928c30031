"""Whether the halves that the two parties hold belong together.

At the end of training the parties exchange the digests of their bundles, and each stores the
other's. Before the halves are used together, `compare_bundles` compares these digests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.session.mutual_check import mutual_check
from florist.common.transport.messages import BundleOffer

if TYPE_CHECKING:
    from florist.common.bundle.bundle import Bundle
    from florist.common.transport.channel import Link

#: The channel for the exchange of digests.
CHANNEL = "bundle"


class BundleMismatch(ConfigurationError):  # noqa: N818 - named after the event, like the others
    """The parties hold halves of different training runs. Both parties raise it."""

    advice = "Restore the `training` folder that matches the peer's, or train together again."

    @property
    def for_peer(self) -> str:
        return self.reason


def compare_bundles(link: Link, bundle: Bundle) -> None:
    """Check with the peer that both halves are from one run. Both parties call it.

    Raises:
        BundleMismatch: they are not; the peer raises it too.
    """
    exchange_offers(link, BundleOffer(bundle.run, bundle.digest, bundle.peer_digest))


def exchange_offers(link: Link, ours: BundleOffer) -> BundleOffer:
    """Send our run and digests, and return the peer's.

    Raises:
        BundleMismatch: the two are not from one run; the peer raises it too.
    """

    def check(theirs: BundleOffer) -> None:
        if not _belong_together(ours, theirs):
            raise BundleMismatch(
                "the two parties hold halves of different training runs: here run "
                f"{ours.run.hex()[:12]}, half {ours.digest.hex()[:12]}; at the peer run "
                f"{theirs.run.hex()[:12]}, half {theirs.digest.hex()[:12]}"
            )

    return mutual_check(link.channel(CHANNEL), ours, check)


def _belong_together(ours: BundleOffer, theirs: BundleOffer) -> bool:
    """Return whether both are of one run, and each has the digest that the other stored.

    During training no digest is stored yet.
    """
    return (
        ours.run == theirs.run
        and ours.peer_digest in (b"", theirs.digest)
        and theirs.peer_digest in (b"", ours.digest)
    )
