"""Every way a run can end badly: whose fault it is, which exit code, what to do.

FloristError
├── ConfigurationError     2   this party's files, settings or environment
│   └── AgreementMismatch  2   the two parties' agreements differ
├── TransportError         3   the line, the address or the certificates
│   └── PeerLost           3   the peer was there and is gone, or is silent
│       └── BranchLost     3   a process of ours that spoke with the peer is gone
├── PeerError              4   the other side
│   ├── ProtocolViolation  4   it sent what the protocol does not allow
│   └── PeerFailed         5   it stopped and told us why
├── StoppedByPolicy        6   our own audit found more than our own limits allow
├── InternalError         70   a bug of ours
└── Interrupted          130   the operator stopped this party

Messages name the file, key, column or step and the fix. They never hold an ID of the peer, a row
number of the union, a secret, or anything else that tells membership.
"""

from __future__ import annotations

from typing import ClassVar


class FloristError(Exception):
    """Base of all errors that a party reports in one line and turns into an exit code."""

    exit_code: ClassVar[int] = 70
    whose: ClassVar[str] = "internal"
    #: What the operator can do; shown under the message.
    advice: ClassVar[str] = ""
    #: Whether this party is likely to come back: it did not fail, and the peer may wait for it.
    returns: bool = False

    @property
    def reason(self) -> str:
        """The sentence for the operator, and, unless private, for the peer."""
        return str(self)

    @property
    def for_peer(self) -> str:
        """What the peer is told after "the peer stopped:"; never paths, IDs or settings of ours."""
        return self.reason


class ConfigurationError(FloristError):
    """This party's own files, settings or environment cannot be used."""

    exit_code = 2
    whose = "configuration"
    advice = (
        "Correct it and start again; `florist preflight --config FILE` checks everything first."
    )

    @property
    def for_peer(self) -> str:
        return "its own configuration or data cannot be used"


class AgreementMismatch(ConfigurationError):  # noqa: N818 - it reads as what happened
    """The two parties' agreements differ; the message names each field with both values."""

    advice = (
        "Make the `agreement` sections of both configuration files equal, then start both again."
    )

    def __init__(self, differences: list[str]) -> None:
        self.differences = differences
        super().__init__("the two parties' agreements differ: " + "; ".join(differences))

    @property
    def for_peer(self) -> str:
        return self.reason


class TransportError(FloristError):
    """The peer cannot be reached, or refuses the connection."""

    exit_code = 3
    whose = "transport"
    advice = "Check the address, the firewall, that the peer is running, and both certificates."


class PeerLost(TransportError):  # noqa: N818
    """The connection was there and is gone, or the peer is silent."""

    advice = "Look at the peer's log; start both parties again: the run goes on from where it is."


class BranchLost(PeerLost):
    """A process of this party on its own cluster, which spoke with the peer, is gone."""

    advice = (
        "Look at this party's own cluster; start both parties again: the run goes on from where it "
        "is."
    )


class PeerError(FloristError):
    """The other side is at fault, or says that it failed."""

    exit_code = 4
    whose = "peer"


class ProtocolViolation(PeerError):  # noqa: N818
    """The peer sent something the protocol does not allow. Nothing of it was used."""

    advice = "Run the same release on both sides. If it is the same, do not trust this peer."


class ChannelEnded(ProtocolViolation):
    """The peer ended a channel, or the whole session, while more was expected there."""


class PeerFailed(PeerError):  # noqa: N818
    """The peer stopped and gave its reason."""

    exit_code = 5
    advice = "The cause is on the peer's side; start again when it is mended there."

    def __init__(self, reason: str, *, returns: bool = False) -> None:
        """`returns` as the peer said it of itself."""
        super().__init__(reason)
        self.returns = returns


class StoppedByPolicy(FloristError):  # noqa: N818
    """What this party sends tells more than its own limits allow."""

    exit_code = 6
    whose = "policy"
    advice = (
        "Agree on settings that tell less and train anew with --force; or raise the limit and "
        "start again: the run goes on. What was sent cannot be taken back."
    )

    @property
    def for_peer(self) -> str:
        return "its operator's privacy policy ended the run"


class InternalError(FloristError):
    """A bug in FLORIST."""

    advice = "Please report it with the log of this party."

    @property
    def for_peer(self) -> str:
        return "an internal error"


class Interrupted(FloristError):  # noqa: N818
    """The operator stopped this party: Ctrl-C or SIGTERM."""

    exit_code = 130
    whose = "operator"
    advice = "Start again when ready: the run goes on from where it is."
    returns = True

    @property
    def for_peer(self) -> str:
        return "its operator stopped it"


def as_florist_error(error: BaseException) -> FloristError:
    """`error` itself, or what it amounts to for the operator and the peer."""
    match error:
        case FloristError():
            return error
        case KeyboardInterrupt():
            return Interrupted("stopped by the operator")
        case _:
            return InternalError(f"unexpected {type(error).__name__}: {error}")
