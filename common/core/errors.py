"""The errors that end a run: where the cause is, the exit code, and what to do.

FloristError
├── ConfigurationError       2   this party's files, settings or environment
│   └── AgreementMismatch    2   the agreements of the two parties differ
├── TransportError           3   the network, the address or the certificates
│   └── PeerLost             3   the connection was lost, or the peer stopped responding
│       └── BranchLost       3   a process on this party's own cluster was lost
├── PeerError                4   the peer
│   ├── ProtocolViolation    4   it sent something that the protocol does not allow
│   │   └── ChannelEnded     4   it closed a channel too early
│   └── PeerFailed           5   it stopped and gave its reason
│       └── PeerCannotStart  5   it reports that it cannot start
├── StoppedByPolicy          6   this party's audit found more than its limits allow
├── OverlapOutsideLimits     7   too few or too many people are shared
├── InternalError           70   a bug in FLORIST
└── Interrupted            130   the operator stopped this party

Other packages add special cases; `docs/reference/errors.md` lists all of them.

Messages name the file, key, column or step and the fix. They never contain IDs of the peer, ranks
in the union, secrets, or anything else that reveals which people are shared. IDs of the party
itself are in `examples` only, which logs and the status page leave out.
"""

from __future__ import annotations

from typing import ClassVar


class FloristError(Exception):
    """Base of all errors that a party reports on one line and converts to an exit code."""

    exit_code: ClassVar[int] = 70
    #: Where the cause is, in one word, for logs.
    origin: ClassVar[str] = "internal"
    #: What the operator can do; shown below the message.
    advice: ClassVar[str] = ""
    #: Whether starting the same command again can succeed without a person. Supervisors see only
    #: the exit code, so all errors with one code agree on it.
    restart_helps: ClassVar[bool] = False
    #: Whether this party did not fail and will probably be started again: the peer may wait for it.
    will_reconnect: bool = False
    #: IDs of this party's own table that illustrate the message: for its owner's eyes, not for a
    #: log, a report or the status page.
    examples: str = ""

    @property
    def reason(self) -> str:
        """The message for the operator and, unless `for_peer` is overridden, for the peer."""
        return str(self)

    @property
    def for_owner(self) -> str:
        """The message with its examples, for a terminal or the application that sent the IDs."""
        return f"{self.reason} (for example {self.examples})" if self.examples else self.reason

    @property
    def for_peer(self) -> str:
        """What the peer is told after "the peer stopped:"; no paths, IDs or private settings."""
        return self.reason


class ConfigurationError(FloristError):
    """This party's own files, settings or environment are invalid."""

    exit_code = 2
    origin = "configuration"
    advice = (
        "Fix the problem and start again; `florist preflight --config FILE` checks the whole setup."
    )

    #: What the peer is told; it names neither paths, columns nor values.
    told_to_peer: str = "its configuration or data are invalid"

    @property
    def for_peer(self) -> str:
        return self.told_to_peer


class AgreementMismatch(ConfigurationError):  # noqa: N818 - it reads as what happened
    """The agreements of the two parties differ; the message names each key with both values."""

    advice = (
        "Make the `agreement` sections of both configuration files equal, then start both parties "
        "again."
    )

    def __init__(self, differences: list[str]) -> None:
        self.differences = differences
        super().__init__("the agreements of the two parties differ: " + "; ".join(differences))

    @property
    def for_peer(self) -> str:
        return self.reason


class TransportError(FloristError):
    """The peer cannot be reached, or it rejects the connection."""

    exit_code = 3
    origin = "transport"
    restart_helps = True
    advice = "Check the address, the firewall, that the peer is running, and both certificates."


class PeerLost(TransportError):  # noqa: N818
    """The connection was lost, or the peer stopped responding."""

    advice = (
        "Check the peer's log, then start both parties again: the run resumes where it stopped."
    )


class BranchLost(PeerLost):
    """A process on this party's own cluster that was connected to the peer was lost."""

    advice = (
        "Check this party's own cluster, then start both parties again: the run resumes where it "
        "stopped."
    )


class PeerError(FloristError):
    """The peer caused the error, or reports that it failed."""

    exit_code = 4
    origin = "peer"


class ProtocolViolation(PeerError):  # noqa: N818
    """The peer sent something that the protocol does not allow; none of it was used."""

    advice = (
        "Run the same release at both parties. If the releases are the same, do not trust this "
        "peer."
    )


class ChannelEnded(ProtocolViolation):
    """The peer closed a channel or the session while more messages were expected."""


class PeerFailed(PeerError):  # noqa: N818
    """The peer stopped and gave its reason."""

    exit_code = 5
    advice = "The cause is at the peer; start again once it is fixed there."

    def __init__(self, reason: str, *, will_reconnect: bool = False) -> None:
        """Take the peer's reason, and whether it said that it will be started again."""
        super().__init__(reason)
        self.will_reconnect = will_reconnect


class PeerCannotStart(PeerFailed):
    """The peer could not start, and connected only to report it."""

    advice = (
        "The cause is at the peer; start again once it is fixed there. With "
        "timeouts.if_peer_cannot_start: wait, this party waits for it instead."
    )


class StoppedByPolicy(FloristError):  # noqa: N818
    """What this party sends reveals more than its own audit limits allow."""

    exit_code = 6
    origin = "policy"
    advice = (
        "Agree on more private settings and start over with --force; or raise the limit and start "
        "again, and the run resumes. What was already sent cannot be taken back."
    )

    @property
    def for_peer(self) -> str:
        return "its operator's privacy policy ended the run"


class OverlapOutsideLimits(FloristError):  # noqa: N818
    """The estimated overlap is outside the limits that both parties agreed on; both stop."""

    exit_code = 7
    origin = "policy"
    advice = (
        "Use tables with another overlap. For a trial, lower the limits at both parties "
        "(`agreement.union.overlap: {minimum: 0, minimum_share: 0, maximum_share: 1}`) and start "
        "again: finished stages are kept."
    )


class InternalError(FloristError):
    """A bug in FLORIST."""

    restart_helps = True
    advice = "Please report it, with what `florist doctor --config FILE --log FILE` prints."

    @property
    def for_peer(self) -> str:
        return "an internal error"


class Interrupted(FloristError):  # noqa: N818
    """The operator stopped this party, with Ctrl-C or SIGTERM."""

    exit_code = 130
    origin = "operator"
    restart_helps = True
    advice = "Start again when ready: the run resumes where it stopped."
    will_reconnect = True

    @property
    def for_peer(self) -> str:
        return "its operator stopped it"


def restart_helps(exit_code: int) -> bool:
    """Whether a supervisor should start a party again that ended with this exit code.

    A party that was killed by a signal (negative as in `subprocess`, or above 128 as in a shell)
    resumes where it stopped.
    """
    known = {kind.exit_code for kind in (TransportError, InternalError, Interrupted)}
    return exit_code in known or exit_code < 0 or exit_code > 128


def as_florist_error(error: BaseException) -> FloristError:
    """Return `error` itself, or the `FloristError` that it means for the operator and the peer."""
    match error:
        case FloristError():
            return error
        case KeyboardInterrupt():
            return Interrupted("stopped by the operator")
        case _:
            return InternalError(f"unexpected {type(error).__name__}: {error}")
