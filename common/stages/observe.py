"""Observing a run: the status page is served if `observability.address` is set."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from florist.common.core.errors import as_florist_error
from florist.common.core.release import RELEASE
from florist.common.observability.service_watch import UNWATCHED, ServiceWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


@contextmanager
def observing(role: Role, config: PartyConfig, progress: Progress) -> Iterator[Watch]:
    """Serve the status while the context lasts, if the configuration has an address for it.

    Raises:
        ConfigurationError: the address is not available.
    """
    address = config.observability.address
    if address is None:
        yield Watch(role, progress)
        return
    # Not needed without a status page.
    from florist.common.observability.certificate import CertificateExpiry  # noqa: PLC0415
    from florist.common.observability.log_tail import LogTail  # noqa: PLC0415
    from florist.common.observability.server import status_server  # noqa: PLC0415
    from florist.common.observability.snapshot import About  # noqa: PLC0415
    from florist.common.observability.status import Status  # noqa: PLC0415
    from florist.common.stages.watched_role import WatchedProgress, WatchedRole  # noqa: PLC0415

    tail, tls = LogTail(), config.network.tls
    status = Status(
        About(config.party.name, config.party.peer, role.name, RELEASE),
        certificate_days=CertificateExpiry(None if tls is None else tls.certificate).days_left,
        log=tail.lines,
    )
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
            status.fail(as_florist_error(error).reason)
            raise
