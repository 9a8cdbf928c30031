"""Every way a run can end badly: whose fault it is, which exit code, what to do.

FloristError
├── ConfigurationError     2   this party's files, settings or environment
│   └── AgreementMismatch  2   the two parties' agreements differ
├── TransportError         3   the line, the address or the certificates
│   └── PeerLost           3   the peer was there and is gone, or is silent
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
    """The agreements differ; `differences` holds one line per field."""

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

    advice = "Look at the peer's log; start both parties again. Finished stages are kept."


class PeerError(FloristError):
    """The other side is at fault, or says that it failed."""

    exit_code = 4
    whose = "peer"


class ProtocolViolation(PeerError):  # noqa: N818
    """The peer sent something the protocol does not allow. Nothing of it was used."""

    advice = "Run the same release on both sides. If it is the same, do not trust this peer."


class PeerFailed(PeerError):  # noqa: N818
    """The peer stopped and gave its reason."""

    exit_code = 5
    advice = "The cause is on the peer's side; start again when it is mended there."


class StoppedByPolicy(FloristError):  # noqa: N818
    """What this party sends tells more than its own limits allow."""

    exit_code = 6
    whose = "policy"
    advice = (
        "Agree on settings that tell less and train anew with --force; or raise the limit and go "
        "on with --resume: the checkpoints are kept. What was sent cannot be taken back."
    )

    @property
    def for_peer(self) -> str:
        return "its operator's privacy policy ended the run"


class InternalError(FloristError):
    """Our own bug."""

    advice = "Please report it with the log of this party."

    @property
    def for_peer(self) -> str:
        return "an internal error"


class Interrupted(FloristError):  # noqa: N818
    """Ctrl-C or SIGTERM."""

    exit_code = 130
    whose = "operator"
    advice = "Start again when ready. Finished stages are kept."

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
