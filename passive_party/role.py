"""The passive party: has features and the bottom model, and dials its peer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.stand_in_count import most_stand_ins
from florist.common.psu.padded_set import most_padding
from florist.common.psu.union_protocol import run_union
from florist.common.session.open_session import own_credentials, waiting_log
from florist.common.stages.role import Role
from florist.common.transport.grpc_dialer import dial
from florist.passive_party.psu_role import run_psu

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


class PassiveRole(Role):
    """The passive party's part in each stage."""

    name: RoleName = "passive"
    import_path = f"{__name__}:PASSIVE"
    listens = False
    has_labels = False

    @contextmanager
    def connect(
        self,
        config: PartyConfig,
        plaintext: bool,  # noqa: FBT001
        timeout: float,
    ) -> Iterator[Link]:
        """Dial the peer's address until it answers, for `timeout` seconds at most."""
        credentials = own_credentials(config, plaintext=plaintext)
        link = dial(
            config.network.address,
            credentials,
            config.party.peer,
            timeout,
            on_wait=waiting_log(config.party.peer, timeout),
        )
        try:
            yield link
        finally:
            link.close()

    def run_psu(self, link: Link, work: UnionWork, progress: Progress, table: str) -> UnionView:
        return run_union(self.name, run_psu, link, work, progress, table)

    def check_model(self, config: PartyConfig) -> None:
        config.model.check_cut_width(config.agreement.training.cut_width)

    def check_features(self, preprocessing: Preprocessing) -> None:
        if not any(preprocessing.sizes):
            raise ConfigurationError(
                "data.train: the passive party needs features; name columns as `numeric` or "
                "`categorical`"
            )

    def make_half(self, setup: HalfSetup, channel: Channel, run: Run) -> Half[Any]:
        from florist.passive_party.training import make_passive_half  # noqa: PLC0415 - loads torch

        return make_passive_half(setup, channel, run)

    def worth_of_training(
        self,
        half: Half[Any],  # noqa: ARG002 - the active party uses it
        setup: HalfSetup,
        preprocessing: Preprocessing,  # noqa: ARG002 - likewise
        runs: RunDirectory,
        progress: Progress,
    ) -> Worth:
        from florist.common.bundle.loading import load_bundle  # noqa: PLC0415 - loads torch
        from florist.passive_party.worth import passive_worth  # noqa: PLC0415 - likewise

        features = setup.data.train.features
        assert features is not None
        bundle = load_bundle(runs, "passive", setup.data.device)
        return passive_worth(bundle, features, progress)

    def people_to_announce(self, config: PartyConfig, rows: int, noise: int) -> int:
        padding = _own_padding(config) + noise
        return most_stand_ins(rows, padding, rounded=bool(config.alignment.dummies))

    def rows_for_union(self, config: PartyConfig, rows: int, ours: int, theirs: int) -> int:
        return rows - min(ours, theirs) - _own_padding(config)

    def evaluate(
        self, bundle: Bundle, parts: EvaluationData, channel: Channel, progress: StepProgress
    ) -> Evaluated:
        from florist.common.bundle.bundle import PassiveBundle  # noqa: PLC0415 - loads torch
        from florist.passive_party.evaluation import evaluate_passive  # noqa: PLC0415 - likewise

        assert isinstance(bundle, PassiveBundle)
        return evaluate_passive(bundle, parts, channel, progress)

    def serve(
        self, config: PartyConfig, until: Event, *, plaintext: bool, watch: ServiceWatch
    ) -> None:
        """Run the HTTP service for our own applications."""
        from florist.passive_party.http_service import serve  # noqa: PLC0415 - loads torch

        serve(config, until, plaintext=plaintext, watch=watch)


def _own_padding(config: PartyConfig) -> int:
    """Return how many UIDs of the evaluation union need a stand-in because of our own padding."""
    return most_padding(config) + 2 * config.agreement.union.planted_pairs


PASSIVE = PassiveRole()
