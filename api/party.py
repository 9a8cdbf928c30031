"""Running one party of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from florist.active_party.role import ACTIVE
from florist.api.config import as_config
from florist.api.progress import CallbackProgress
from florist.api.runs import load_run
from florist.common.core.errors import ConfigurationError
from florist.common.session.stage_state import StageOptions
from florist.common.stages.run_stages import run_stages
from florist.passive_party.role import PASSIVE

if TYPE_CHECKING:
    from threading import Event

    from florist.api.config import AnyPath
    from florist.api.progress import ProgressCallback, ProgressEvent
    from florist.api.runs import RunResult
    from florist.common.core.roles import RoleName
    from florist.common.session.stage_state import StageChoice, StageName
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

ROLES: dict[RoleName, Role] = {"active": ACTIVE, "passive": PASSIVE}


@overload
def run_party(
    role: RoleName | None,
    config: PartyConfig | AnyPath,
    stage: Literal["all"] | StageName = "all",
    *,
    on_progress: ProgressCallback | None = None,
    force: bool = False,
    accept_difference: str | None = None,
    insecure_plaintext: bool = False,
    stop: Event | None = None,
) -> RunResult: ...
@overload
def run_party(
    role: RoleName | None,
    config: PartyConfig | AnyPath,
    stage: Literal["serve"],
    *,
    on_progress: ProgressCallback | None = None,
    force: bool = False,
    accept_difference: str | None = None,
    insecure_plaintext: bool = False,
    stop: Event | None = None,
) -> None: ...
def run_party(  # noqa: PLR0913 - as many options as the command has
    role: RoleName | None,
    config: PartyConfig | AnyPath,
    stage: StageChoice = "all",
    *,
    on_progress: ProgressCallback | None = None,
    force: bool = False,
    accept_difference: str | None = None,
    insecure_plaintext: bool = False,
    stop: Event | None = None,
) -> RunResult | None:
    """Run one organisation's side of a run, and wait until it has finished.

    The other organisation runs the other role with its own configuration; either may start first.
    This function may be called from any thread. It installs no signal handlers and does not
    configure logging: messages go to the logger "florist".

    Args:
        role: "active" (has the labels, listens) or "passive" (has features, connects); None: the
            configuration's `role`.
        config: this party's configuration, or the path of its file.
        stage: "align", "train", "evaluate", "serve", or "all": align, train and evaluate, without
            the stages that have finished already.
        on_progress: called with each `ProgressEvent`, possibly from other threads. It must return
            quickly and must not raise.
        force: start over: replace what has finished or was begun. Both parties must do so.
        accept_difference: why to align although our table differs little from the previous one with
            this peer; the privacy ledger records it. By default such a run is rejected.
        insecure_plaintext: use no TLS and do not verify the peer. For tests on one machine only.
        stop: set it to end the stage "serve", which otherwise runs until Ctrl-C.

    Returns:
        The contents of the run directory, as from `load_run`; None after "serve".

    Raises:
        ConfigurationError: this party's configuration, files or data cannot be used.
        AgreementMismatch: the parties' agreements differ.
        TransportError: the peer cannot be reached, or was lost for too long (`PeerLost`).
        PeerError: the peer violated the protocol or stopped (`ProtocolViolation`, `PeerFailed`).
        StoppedByPolicy: the self-audit exceeded a limit of this party.
        OverlapOutsideLimits: too few or too many people are shared.

    Example:
        >>> run = florist.run_party("active", "active.yml", on_progress=print)
        >>> run.metrics["auc"]
        0.71
    """
    settings = as_config(config)
    known = resolve_role(role, settings)
    progress = CallbackProgress(on_progress or _ignore)
    run_stages(
        known,
        settings,
        stage,
        StageOptions(
            plaintext=insecure_plaintext, force=force, accept_difference=accept_difference
        ),
        progress,
        on_start=progress.start_stage,
        on_complete=lambda name, _: progress.finish_stage(name),
        until=stop,
    )
    return None if stage == "serve" else load_run(settings.run_directory)


def resolve_role(given: RoleName | None, config: PartyConfig) -> Role:
    """Return the role that was given or configured, which must not contradict each other.

    Raises:
        ConfigurationError: they do, or there is neither, or the role is unknown.
    """
    name = given or config.role
    if name is None:
        raise ConfigurationError(
            "role: missing; set role: active (this party has the labels) or role: passive in the "
            "configuration, or give --role"
        )
    if name not in ROLES:
        raise ConfigurationError(f"role {name!r} is unknown; known are: {', '.join(ROLES)}")
    if config.role is not None and name != config.role:
        raise ConfigurationError(
            f"--role {name} contradicts role: {config.role} in the configuration of "
            f"{config.party.name}; omit --role, or use the file of the {name} party"
        )
    return ROLES[name]


def _ignore(event: ProgressEvent) -> None:
    """Discard progress events."""
