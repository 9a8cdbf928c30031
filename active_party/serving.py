"""The active party's prediction service: embeddings in, calibrated probabilities out."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from florist.active_party.batching import Batcher
from florist.active_party.row_budget import RowBudget
from florist.common.bundle.loading import load_bundle
from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.observability.service_watch import UNWATCHED
from florist.common.serving.served_table import load_served_table
from florist.common.serving.serving_handshake import check_offers, make_offer, model_name
from florist.common.session.open_session import own_credentials
from florist.common.session.run_directory import RunDirectory
from florist.common.training.devices import pick_device, set_threads
from florist.common.training.row_codec import RowCodec, all_finite
from florist.common.transport.grpc_prediction_server import PredictionServer, ServerSettings
from florist.common.transport.messages import PredictionReply, ServingTerms
from florist.common.transport.refusal import RefusalReason, RequestRefused

if TYPE_CHECKING:
    from threading import Event

    from torch import Tensor

    from florist.common.bundle.bundle import ActiveBundle
    from florist.common.observability.service_watch import ServiceWatch
    from florist.common.serving.served_table import ServedTable
    from florist.common.settings.agreement import ServingAgreement
    from florist.common.settings.party_config import PartyConfig
    from florist.common.settings.serving import Serving
    from florist.common.transport.messages import Data, PredictionRequest, ServingOffer

log = logging.getLogger("florist.serving")


class ModelPredictionHandler:
    """Answers requests with the trained top model."""

    def __init__(
        self,
        bundle: ActiveBundle,
        agreement: ServingAgreement,
        settings: Serving,
        table: ServedTable | None = None,
        watch: ServiceWatch = UNWATCHED,
    ) -> None:
        """Serve a model; `table` is given only if the active party has features of its own."""
        training = bundle.agreement.training
        self._bundle = bundle
        self._table = table
        self._watch = watch
        self._wire = RowCodec(training.wire_type, training.wire_width)
        self._offer = make_offer(bundle, agreement, table.union_sha256 if table else b"")
        self._model = model_name(self._offer)
        self._max_rows = min(settings.limits.rows_per_request, self._wire.rows_per_message)
        self._budget = RowBudget(settings.limits.rows_per_minute)
        self._batcher = Batcher(self._compute, settings.batching.rows, settings.batching.delay)
        if table is not None:
            _check_group_size(table.groups.size, self._max_rows, self._budget.per_minute)

    def warm_up(self) -> None:
        """Compute a few predictions, so that the first request does not pay for the start-up."""
        rows = torch.zeros(1, self._bundle.agreement.training.wire_width)
        own = () if self._table is None else (torch.zeros(1, dtype=torch.int64),)
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
                RefusalReason.MISMATCH, "this party serves another model: connect again"
            )

    def predict(
        self, request: PredictionRequest, cancelled: Event | None = None
    ) -> PredictionReply:
        rows = self._rows(request.embeddings)
        own = self._own_rows(request.group, len(rows))
        self._spend(len(rows), cancelled)
        answer = self._batcher(rows, *own)
        self._watch.served(len(rows))
        return PredictionReply(answer.numpy().astype("<f4", copy=False).tobytes())

    def _rows(self, values: Data) -> Tensor:
        """Decode and check embeddings."""
        width = self._wire.row_bytes
        count, rest = divmod(len(values), width)
        if rest or not count:
            raise RequestRefused(
                RefusalReason.MALFORMED,
                f"{len(values)} bytes are not one or more rows of {width} bytes: check that "
                "cut_width and wire_type are the same on both sides",
            )
        if count > self._max_rows:
            raise RequestRefused(
                RefusalReason.MALFORMED,
                f"{count:,} rows in one request; the limit is {self._max_rows:,}",
            )
        rows = self._wire.decode(values)
        if not all_finite(rows):
            raise RequestRefused(RefusalReason.MALFORMED, "the embeddings contain NaN or infinity")
        return rows

    def _own_rows(self, group: int | None, rows: int) -> tuple[Tensor, ...]:
        """Return this party's rows for the UIDs of a group; empty if the model needs none."""
        if self._table is None:
            if group is not None:
                raise RequestRefused(
                    RefusalReason.MALFORMED, "this model has no groups: send only embeddings"
                )
            return ()
        groups = self._table.groups
        if group is None or group >= len(groups) or rows != groups.size:
            raise RequestRefused(
                RefusalReason.MALFORMED,
                "this model uses features of the active party: send the rows of all "
                f"{groups.size} UIDs of one of its {len(groups):,} groups",
            )
        return (torch.from_numpy(self._table.rows(group)),)

    def _spend(self, rows: int, cancelled: Event | None) -> None:
        if cancelled is None:
            self._budget.demand(rows)
            return
        while wait := self._budget.take(rows):
            if wait == float("inf"):
                self._budget.demand(rows)
            if cancelled.wait(wait):
                raise RequestRefused(RefusalReason.STOPPING, "the service is being stopped")

    def _compute(self, embeddings: Tensor, own: Tensor | None = None) -> Tensor:
        features = None
        if own is not None:
            assert self._table is not None
            features = self._table.features.take(own.numpy())
        return self._bundle.predict(embeddings, features).cpu()


def _check_group_size(size: int, max_rows: int, per_minute: int) -> None:
    if size > min(max_rows, per_minute):
        raise ConfigurationError(
            f"agreement.serving.hiding_size: groups of {size} exceed the limit of "
            f"{min(max_rows, per_minute)} rows per request; raise serving.limits, or agree on "
            "smaller groups"
        )


def make_service(
    config: PartyConfig, *, plaintext: bool, watch: ServiceWatch = UNWATCHED
) -> PredictionServer:
    """Create the service; checks files, settings and certificates, but does not start it."""
    runs = RunDirectory(config.run_directory)
    runs.restrict()
    bundle = load_bundle(runs, "active", pick_device(config.training.device))
    credentials = own_credentials(config, plaintext=plaintext)
    table = load_served_table(config, runs, bundle) if bundle.has_features else None
    handler = ModelPredictionHandler(bundle, config.agreement.serving, config.serving, table, watch)
    handler.warm_up()
    run_name = bundle.run.hex()[:12]
    log.info(
        "serving the model of run %s to %s", run_name, config.party.peer, extra={"run": run_name}
    )
    limits = config.serving.limits
    return PredictionServer(
        config.serving.address or config.network.address,
        credentials,
        config.party.peer,
        handler,
        ServerSettings(limits.calls, limits.streams, config.serving.idle_timeout),
        watch,
    )


def serve(
    config: PartyConfig, until: Event, *, plaintext: bool, watch: ServiceWatch = UNWATCHED
) -> None:
    """Serve predictions until the event is set or a signal arrives; then finish open requests."""
    set_threads(config.serving.threads)
    with (
        make_service(config, plaintext=plaintext, watch=watch) as server,
        watch.ready(server.traffic),
    ):
        log.info("ready at %s", server.address)
        with suppress(KeyboardInterrupt):
            until.wait()
        log.info("stopping: open requests have %g s to finish", config.serving.drain_timeout)
        if not server.drain(config.serving.drain_timeout):
            log.warning(
                "some requests did not finish within %g s and were cancelled",
                config.serving.drain_timeout,
            )
    log.info("stopped")
