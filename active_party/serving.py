"""The active party serves predictions: embeddings in, calibrated probabilities out."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from florist.active_party.batching import Batcher
from florist.active_party.row_budget import RowBudget
from florist.common.bundle.loading import load_bundle
from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.serving.served_table import load_served_table
from florist.common.serving.serving_handshake import check_offers, make_offer, model_name
from florist.common.session.open_session import own_credentials
from florist.common.session.run_directory import RunDirectory
from florist.common.stages.observe import NOBODY
from florist.common.training.blocks import Wire, all_finite
from florist.common.training.devices import pick_device, set_threads
from florist.common.transport.grpc_prediction_server import PredictionServer, ServerSettings
from florist.common.transport.messages import PredictionReply, ServingTerms
from florist.common.transport.refusal import RefusalReason, RequestRefused

if TYPE_CHECKING:
    from threading import Event

    from torch import Tensor

    from florist.common.bundle.bundle import ActiveBundle
    from florist.common.serving.served_table import ServedTable
    from florist.common.settings.agreement import ServingAgreement
    from florist.common.settings.party_config import PartyConfig
    from florist.common.settings.serving import Serving
    from florist.common.stages.observe import ServiceWatch
    from florist.common.transport.messages import Data, PredictionRequest, ServingOffer

log = logging.getLogger("florist.serving")


class ModelPredictionHandler:
    """Answers requests with the trained top model."""

    def __init__(
        self,
        bundle: ActiveBundle,
        agreement: ServingAgreement,
        settings: Serving,
        people: ServedTable | None = None,
        watch: ServiceWatch = NOBODY,
    ) -> None:
        """`people` is given just where the model has features of the active party's own."""
        training = bundle.agreement.training
        self._bundle = bundle
        self._people = people
        self._watch = watch
        self._wire = Wire(training.wire_type, training.cut_width)
        self._offer = make_offer(bundle, agreement, people.union_sha256 if people else b"")
        self._model = model_name(self._offer)
        self._max_rows = min(settings.limits.rows_per_request, self._wire.rows_per_message)
        self._budget = RowBudget(settings.limits.rows_per_minute)
        self._batcher = Batcher(self._compute, settings.batching.rows, settings.batching.delay)
        if people is not None:
            _check_group_size(people.groups.size, self._max_rows, self._budget.per_minute)

    def warm_up(self) -> None:
        """Predict something, so that the first request does not pay for what torch does once."""
        rows = torch.zeros(1, self._bundle.agreement.training.cut_width)
        own = () if self._people is None else (torch.zeros(1, dtype=torch.int64),)
        for _ in range(3):
            self._batcher(rows, *own)

    def open(self, offer: ServingOffer) -> ServingTerms:
        try:
            check_offers(self._offer, offer)
        except ProtocolViolation as error:
            raise RequestRefused(RefusalReason.MALFORMED, error.reason) from None
        except ConfigurationError as error:
            raise RequestRefused(RefusalReason.MISMATCH, error.reason) from None
        return ServingTerms(self._offer, self._model, self._max_rows, self._budget.per_minute)

    def check_model(self, name: str) -> None:
        if name != self._model:
            raise RequestRefused(
                RefusalReason.MISMATCH, "another model is served here: open the service again"
            )

    def predict(self, request: PredictionRequest, patience: Event | None = None) -> PredictionReply:
        rows = self._rows(request.embeddings)
        own = self._own_rows(request.group, len(rows))
        self._spend(len(rows), patience)
        answer = self._batcher(rows, *own)
        self._watch.served(len(rows))
        return PredictionReply(answer.numpy().astype("<f4", copy=False).tobytes())

    def _rows(self, values: Data) -> Tensor:
        """The embeddings, if they can be some."""
        width = self._wire.row_bytes
        count, rest = divmod(len(values), width)
        if rest or not count:
            raise RequestRefused(
                RefusalReason.MALFORMED,
                f"{len(values)} bytes are no rows of {width} bytes each: is the cut_width or the "
                "wire_type another?",
            )
        if count > self._max_rows:
            raise RequestRefused(
                RefusalReason.MALFORMED,
                f"{count:,} rows in one request; the limit is {self._max_rows:,}",
            )
        rows = self._wire.from_bytes(values)
        if not all_finite(rows):
            raise RequestRefused(
                RefusalReason.MALFORMED, "the embeddings hold values that are no numbers"
            )
        return rows

    def _own_rows(self, group: int | None, rows: int) -> tuple[Tensor, ...]:
        """Rows of our own table for those of a group; nothing where the model needs none."""
        if self._people is None:
            if group is not None:
                raise RequestRefused(
                    RefusalReason.MALFORMED, "this model has no groups: send embeddings alone"
                )
            return ()
        groups = self._people.groups
        if group is None or group >= len(groups) or rows != groups.size:
            raise RequestRefused(
                RefusalReason.MALFORMED,
                "this model uses features of the active party's: ask for one of its "
                f"{len(groups):,} groups, with the rows of all its {groups.size} UIDs",
            )
        return (torch.from_numpy(self._people.rows(group)),)

    def _spend(self, rows: int, patience: Event | None) -> None:
        if patience is None:
            self._budget.demand(rows)
            return
        while wait := self._budget.take(rows):
            if wait == float("inf"):
                self._budget.demand(rows)
            if patience.wait(wait):
                raise RequestRefused(RefusalReason.STOPPING, "the service is being stopped")

    def _compute(self, embeddings: Tensor, own: Tensor | None = None) -> Tensor:
        features = None
        if own is not None:
            assert self._people is not None
            features = self._people.features.take(own.numpy())
        return self._bundle.predict(embeddings, features).cpu()


def _check_group_size(size: int, max_rows: int, per_minute: int) -> None:
    if size > min(max_rows, per_minute):
        raise ConfigurationError(
            f"agreement.serving.hiding_size: groups of {size} do not fit the limits of this party "
            f"or of a message, {min(max_rows, per_minute)} rows; raise serving.limits, or agree on "
            "smaller groups"
        )


def make_service(
    config: PartyConfig, *, plaintext: bool, watch: ServiceWatch = NOBODY
) -> PredictionServer:
    """The service, ready to start; files, settings and certificates are checked."""
    runs = RunDirectory(config.run_directory)
    bundle = load_bundle(runs, "active", pick_device(config.training.device))
    credentials = own_credentials(config, plaintext=plaintext)
    people = load_served_table(config, runs, bundle) if bundle.has_features else None
    desk = ModelPredictionHandler(bundle, config.agreement.serving, config.serving, people, watch)
    desk.warm_up()
    log.info("serving %r to %s", bundle, config.party.peer)
    limits = config.serving.limits
    return PredictionServer(
        config.serving.address or config.network.address,
        credentials,
        config.party.peer,
        desk,
        ServerSettings(limits.calls, limits.streams, config.serving.idle),
    )


def serve(
    config: PartyConfig, until: Event, *, plaintext: bool, watch: ServiceWatch = NOBODY
) -> None:
    """Serve predictions until the event is set, or Ctrl-C or SIGTERM; finish what is under way."""
    set_threads(config.serving.threads)
    with make_service(config, plaintext=plaintext, watch=watch) as server, watch.ready():
        log.info("ready at %s", server.address)
        with suppress(KeyboardInterrupt):
            until.wait()
        log.info("stopping: requests under way have %g s to finish", config.serving.drain)
        if not server.drain(config.serving.drain):
            log.warning("some requests did not finish in %g s and are cut", config.serving.drain)
    log.info("stopped")
