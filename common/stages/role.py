"""What makes a party active or passive: how it connects, and its part in each protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from threading import Event

    from florist.common.audit.findings import AuditRecord
    from florist.common.bundle.bundle import Bundle
    from florist.common.core.progress import Progress, StepProgress
    from florist.common.core.roles import RoleName
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.evaluation.evaluation_data import EvaluationData
    from florist.common.evaluation.worth import Evaluated, Worth
    from florist.common.observability.service_watch import ServiceWatch
    from florist.common.psu.union_view import UnionView
    from florist.common.psu.union_work import UnionWork
    from florist.common.session.run_directory import RunDirectory
    from florist.common.settings.party_config import PartyConfig
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Half, Run
    from florist.common.transport.channel import Channel, Link


class Role(ABC):
    """The active or the passive party. Stages are written once, in terms of this class.

    Methods that need torch or a web server import it when they are called, so that aligning loads
    neither.
    """

    @property
    @abstractmethod
    def name(self) -> RoleName: ...

    @property
    @abstractmethod
    def import_path(self) -> str:
        """Where another process finds this role, as `module:name`."""

    # --- the connection and the union ---

    @property
    @abstractmethod
    def listens(self) -> bool:
        """Whether this role listens for the connection; otherwise it dials."""

    @abstractmethod
    def connect(
        self,
        config: PartyConfig,
        plaintext: bool,  # noqa: FBT001 - as in `ConnectingRole`
        timeout: float,
    ) -> AbstractContextManager[Link]:
        """Connect to the peer within `timeout` seconds, with mutual TLS unless `plaintext`.

        The link is closed when the context ends.
        """

    @abstractmethod
    def run_psu(self, link: Link, work: UnionWork, progress: Progress, table: str) -> UnionView:
        """Take this role's part in a private set union, by the agreed protocol."""

    # --- training ---

    @property
    @abstractmethod
    def has_labels(self) -> bool:
        """Whether this party's tables have a label column."""

    @abstractmethod
    def check_model(self, config: PartyConfig) -> None:
        """Check that this party's model fits the agreement.

        Raises:
            ConfigurationError: it does not; names the key and the fix.
        """

    @abstractmethod
    def check_features(self, preprocessing: Preprocessing) -> None:
        """Check that the training table has the features that this role needs.

        Raises:
            ConfigurationError: it has none.
        """

    @abstractmethod
    def make_half(self, setup: HalfSetup, channel: Channel, run: Run) -> Half[Any]:
        """Make this party's half of the model, ready for training."""

    @abstractmethod
    def worth_of_training(
        self,
        half: Half[Any],
        setup: HalfSetup,
        preprocessing: Preprocessing,
        runs: RunDirectory,
        progress: Progress,
    ) -> Worth:
        """Return what the trained model is worth to this party, computed without the peer.

        Called after the session, when `runs` has the trained half.
        """

    def on_run_start(self, run: Run, audit: AuditRecord | None) -> None:  # noqa: B027 - optional
        """Do nothing by default; called before the first step of a training run.

        `audit` is the record of its self-audit, if there is one.
        """

    # --- evaluation ---

    @abstractmethod
    def people_to_announce(self, config: PartyConfig, rows: int, noise: int) -> int:
        """Return the number of UIDs that this party announces before an evaluation without repeats.

        For the active party it is the number that it would like to have scored, padding included;
        for the passive party the number that it can provide stand-ins for. `rows` is the size of
        its table, and `noise` a random draw that hides it.

        Raises:
            ConfigurationError: the table is too small.
        """

    @abstractmethod
    def rows_for_union(self, config: PartyConfig, rows: int, ours: int, theirs: int) -> int:
        """Return how many of the evaluation table's rows to put into a union without repeats.

        `ours` and `theirs` are the numbers of people that the parties have announced.

        Raises:
            ConfigurationError: too few rows would be left.
        """

    @abstractmethod
    def evaluate(
        self, bundle: Bundle, parts: EvaluationData, channel: Channel, progress: StepProgress
    ) -> Evaluated:
        """Take this role's part in an evaluation, and return what it learns of the result."""

    # --- serving ---

    @abstractmethod
    def serve(
        self, config: PartyConfig, until: Event, *, plaintext: bool, watch: ServiceWatch
    ) -> None:
        """Serve predictions until the event is set, or Ctrl-C or SIGTERM."""


class ForwardingRole(Role):
    """Forwards everything to another role; subclasses override a part."""

    def __init__(self, inner: Role) -> None:
        self._inner = inner

    @property
    def name(self) -> RoleName:
        return self._inner.name

    @property
    def import_path(self) -> str:
        return self._inner.import_path

    @property
    def listens(self) -> bool:
        return self._inner.listens

    def connect(
        self,
        config: PartyConfig,
        plaintext: bool,  # noqa: FBT001
        timeout: float,
    ) -> AbstractContextManager[Link]:
        return self._inner.connect(config, plaintext, timeout)

    def run_psu(self, link: Link, work: UnionWork, progress: Progress, table: str) -> UnionView:
        return self._inner.run_psu(link, work, progress, table)

    @property
    def has_labels(self) -> bool:
        return self._inner.has_labels

    def check_model(self, config: PartyConfig) -> None:
        self._inner.check_model(config)

    def check_features(self, preprocessing: Preprocessing) -> None:
        self._inner.check_features(preprocessing)

    def make_half(self, setup: HalfSetup, channel: Channel, run: Run) -> Half[Any]:
        return self._inner.make_half(setup, channel, run)

    def worth_of_training(
        self,
        half: Half[Any],
        setup: HalfSetup,
        preprocessing: Preprocessing,
        runs: RunDirectory,
        progress: Progress,
    ) -> Worth:
        return self._inner.worth_of_training(half, setup, preprocessing, runs, progress)

    def on_run_start(self, run: Run, audit: AuditRecord | None) -> None:
        self._inner.on_run_start(run, audit)

    def people_to_announce(self, config: PartyConfig, rows: int, noise: int) -> int:
        return self._inner.people_to_announce(config, rows, noise)

    def rows_for_union(self, config: PartyConfig, rows: int, ours: int, theirs: int) -> int:
        return self._inner.rows_for_union(config, rows, ours, theirs)

    def evaluate(
        self, bundle: Bundle, parts: EvaluationData, channel: Channel, progress: StepProgress
    ) -> Evaluated:
        return self._inner.evaluate(bundle, parts, channel, progress)

    def serve(
        self, config: PartyConfig, until: Event, *, plaintext: bool, watch: ServiceWatch
    ) -> None:
        self._inner.serve(config, until, plaintext=plaintext, watch=watch)
