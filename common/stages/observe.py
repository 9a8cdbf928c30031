"""Observing a run: the status page is served if `observability.address` is set.

The end of a run can be observed too: the page stays for `observability.linger` seconds, and its
last state is written to the run directory.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import FloristError, Interrupted, as_florist_error
from florist.common.core.release import RELEASE
from florist.common.observability.service_watch import UNWATCHED, ServiceWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from florist.common.core.clock import Clock
    from florist.common.core.progress import Progress
    from florist.common.observability.status import Status
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

log = logging.getLogger("florist.observability")

S = TypeVar("S", bound=str)


@dataclass(frozen=True, slots=True)
class Watch:
    """The role and progress to run stages with, which report to the status if there is one."""

    role: Role
    progress: Progress
    status: Status | None = None
    service: ServiceWatch = UNWATCHED

    def stages(self, plan: Sequence[S]) -> Iterable[S]:
        """Yield the planned stages; each counts as running until the next is requested."""
        return plan if self.status is None else self.status.stages(plan)

    def completed(self, stage: str, result: str) -> None:
        """Record what a stage has found."""
        if self.status is not None:
            self.status.set_result(stage, result)


@contextmanager
def observing(
    role: Role,
    config: PartyConfig,
    progress: Progress,
    *,
    on_failure: Callable[[BaseException], None] = lambda _error: None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Watch]:
    """Serve the status while the context lasts, if the configuration has an address for it.

    At the end of the context, the status stays for `observability.linger` seconds. `on_failure` is
    called before that with the error that ended the context, so that nobody waits for the reason.

    Raises:
        ConfigurationError: the address is not available.
    """
    address = config.observability.address
    if address is None:
        yield Watch(role, progress)
        return
    # Not needed without a status page.
    from florist.common.observability.budget import BudgetLeft  # noqa: PLC0415
    from florist.common.observability.certificate import CertificateExpiry  # noqa: PLC0415
    from florist.common.observability.final_page import save_final_page  # noqa: PLC0415
    from florist.common.observability.log_tail import LogTail  # noqa: PLC0415
    from florist.common.observability.server import status_server  # noqa: PLC0415
    from florist.common.observability.snapshot import About  # noqa: PLC0415
    from florist.common.observability.status import Status  # noqa: PLC0415
    from florist.common.stages.watched_role import WatchedProgress, WatchedRole  # noqa: PLC0415

    tail, tls = LogTail(), config.network.tls
    status = Status(
        About(config.party.name, config.party.peer, role.name, RELEASE),
        certificate_days=CertificateExpiry(None if tls is None else tls.certificate).days_left,
        budget_left=BudgetLeft(config).fraction,
        log=tail.lines,
        parts={"align": 1 + config.agreement.training.test_table, "evaluate": 2},
    )

    def end() -> None:
        save_final_page(config.run_directory, status.snapshot())
        if status.may_linger:
            _linger(config.observability.linger, clock)

    with tail.on(logging.getLogger("florist")), status_server(address, status):
        log.info("status at http://%s/", address)
        try:
            yield Watch(
                WatchedRole(role, status),
                WatchedProgress(progress, status),
                status,
                ServiceWatch(status),
            )
        except BaseException as error:
            _record_failure(status, error)
            on_failure(error)
            end()
            raise
        status.finish()
        end()


def _record_failure(status: Status, error: BaseException) -> None:
    reported = as_florist_error(error)
    if isinstance(reported, Interrupted):
        status.stop(reported.reason, reported.advice)
    elif isinstance(error, FloristError):
        status.fail(reported.reason, reported.advice)
    else:  # the text of an unexpected error may have values of the table
        status.fail(f"unexpected {type(error).__name__}", reported.advice)


def _linger(seconds: float, clock: Clock) -> None:
    """Wait, so that the end of the run can be observed; Ctrl-C ends the wait."""
    if seconds <= 0:
        return
    log.info("the status page stays for %g s (observability.linger); Ctrl-C ends it now", seconds)
    with suppress(KeyboardInterrupt):
        clock.wait(Event(), seconds)
