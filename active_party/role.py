"""The active party: has the labels and the top model, and listens for its peer."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from florist.active_party.psu_role import run_psu
from florist.common.core.errors import ConfigurationError
from florist.common.psu.padded_set import most_padding
from florist.common.psu.union_protocol import run_union
from florist.common.session.open_session import own_credentials, waiting_log
from florist.common.stages.role import Role
from florist.common.transport.grpc_listener import GrpcListener

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

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

log = logging.getLogger("florist.active")

#: People of the active party that an evaluation needs at least.
FEWEST_PEOPLE = 4


class ActiveRole(Role):
    """The active party's part in each stage."""

    name: RoleName = "active"
    import_path = f"{__name__}:ACTIVE"
    listens = True
    has_labels = True

    @contextmanager
    def connect(
        self,
        config: PartyConfig,
        plaintext: bool,  # noqa: FBT001
        timeout: float,
    ) -> Iterator[Link]:
        """Listen at our address until the peer connects, for `timeout` seconds at most."""
        credentials = own_credentials(config, plaintext=plaintext)
        listener = GrpcListener(config.network.address, credentials, config.party.peer)
        try:
            log.info("listening at %s for %s", listener.start(), config.party.peer)
            link = listener.accept(timeout, on_wait=waiting_log(config.party.peer, timeout))
            try:
                yield link
            finally:
                link.close()
        finally:
            listener.close()

    def run_psu(self, link: Link, work: UnionWork, progress: Progress, table: str) -> UnionView:
        return run_union(self.name, run_psu, link, work, progress, table)

    def check_model(self, config: PartyConfig) -> None:
        """Accept any model: only the passive party's ends at the agreed cut."""

    def check_features(self, preprocessing: Preprocessing) -> None:
        """Accept a table without features: labels are enough."""

    def make_half(self, setup: HalfSetup, channel: Channel, run: Run) -> Half[Any]:
        from florist.active_party.training import make_active_half  # noqa: PLC0415 - loads torch

        return make_active_half(setup, channel, run)

    def worth_of_training(
        self,
        half: Half[Any],
        setup: HalfSetup,
        preprocessing: Preprocessing,
        runs: RunDirectory,  # noqa: ARG002 - the passive party uses it
        progress: Progress,
    ) -> Worth:
        from florist.active_party.training import ActiveHalf  # noqa: PLC0415 - loads torch
        from florist.active_party.worth import worth_on_test_table  # noqa: PLC0415 - likewise

        assert isinstance(half, ActiveHalf)
        return worth_on_test_table(half, setup, preprocessing, progress)

    def people_to_announce(self, config: PartyConfig, rows: int, noise: int) -> int:
        return rows + most_padding(config) + noise

    def rows_for_union(self, config: PartyConfig, rows: int, ours: int, theirs: int) -> int:  # noqa: ARG002 - the passive party uses it
        padding = most_padding(config)
        if theirs - padding < FEWEST_PEOPLE:
            raise ConfigurationError(
                f"the peer's evaluation table provides stand-ins for only {theirs:,} UIDs, and up "
                f"to {padding:,} of ours are padding (agreement.union.privacy, alignment.dummies): "
                "use a larger table there, less padding here, or "
                "agreement.evaluation.stand_ins: repeated"
            )
        return min(rows, theirs - padding)

    def evaluate(
        self, bundle: Bundle, parts: EvaluationData, channel: Channel, progress: StepProgress
    ) -> Evaluated:
        from florist.active_party.evaluation import evaluate_active  # noqa: PLC0415 - loads torch
        from florist.common.bundle.bundle import ActiveBundle  # noqa: PLC0415 - likewise

        assert isinstance(bundle, ActiveBundle)
        return evaluate_active(bundle, parts, channel, progress)

    def serve(
        self, config: PartyConfig, until: Event, *, plaintext: bool, watch: ServiceWatch
    ) -> None:
        """Answer the passive party's requests for predictions."""
        from florist.active_party.serving import serve  # noqa: PLC0415 - loads torch

        serve(config, until, plaintext=plaintext, watch=watch)


ACTIVE = ActiveRole()
