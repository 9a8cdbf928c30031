"""A run that can be watched, if `observability.address` says where."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from florist.common.core.errors import as_florist_error
from florist.common.core.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from florist.common.core.progress import Progress
    from florist.common.observability.status import Status
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

log = logging.getLogger("florist.observability")

S = TypeVar("S", bound=str)


@dataclass(frozen=True, slots=True)
class ServiceWatch:
    """Where a service of predictions reports; by default to nobody."""

    status: Status | None = None

    def ready(self, peer_is_up: Callable[[], bool] | None = None) -> AbstractContextManager[None]:
        """While requests are taken. `peer_is_up` may take a moment; it is asked now and then."""
        return nullcontext() if self.status is None else self.status.serving(peer_is_up)

    def served(self, rows: int) -> None:
        """So many predictions were given."""
        if self.status is not None:
            self.status.count_rows(rows)


NOBODY = ServiceWatch()


@dataclass(frozen=True, slots=True)
class Watch:
    """A party's role and progress, watched or not, and where else its run reports."""

    role: Role
    progress: Progress
    status: Status | None = None
    service: ServiceWatch = NOBODY

    def stages(self, plan: Sequence[S]) -> Iterable[S]:
        """The same; each is under way until the next is asked for."""
        return plan if self.status is None else self.status.stages(plan)


@contextmanager
def observing(role: Role, config: PartyConfig, progress: Progress) -> Iterator[Watch]:
    """Serve the status of the run inside, if the configuration says where.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    address = config.observability.address
    if address is None:
        yield Watch(role, progress)
        return
    # A party that nobody watches does not load these.
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
