"""Predictions for the passive party: it computes embeddings, and the peer completes the model.

    from florist.passive_party.serving import PredictionClient

    with PredictionClient.connect("passive.yml") as client:
        client.predict([{"age": 41, "city": "Bern"}])      # array([0.173], dtype=float32)

If the active party has features of its own, predictions are requested by ID and hidden in groups of
people; see docs/how-to/serve.md.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import pyarrow as pa
import torch

from florist.common.bundle.loading import load_bundle
from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.data.raw_table import convert_features
from florist.common.serving.served_table import load_served_table
from florist.common.serving.serving_handshake import check_offers, make_offer
from florist.common.session.open_session import own_credentials
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.common.training.row_codec import RowCodec
from florist.common.transport.grpc_prediction_client import PredictionConnection
from florist.common.transport.messages import PredictionRequest
from florist.passive_party.predictions_by_id import PredictionsById
from florist.passive_party.row_encoder import BadRow, RowEncoder

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    import numpy.typing as npt

    from florist.common.bundle.bundle import PassiveBundle
    from florist.common.data.features import Features
    from florist.common.data.raw_table import FeatureColumns
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.channel import Traffic
    from florist.common.transport.messages import PredictionReply, ServingTerms

    Probabilities = npt.NDArray[np.float32]

log = logging.getLogger("florist.serving")

#: Seconds to wait for the peer to report that it is ready.
_READY_TIMEOUT = 2.0


class ArrowStream(Protocol):
    """A table of any library that exports Arrow data, such as a data frame of pandas."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class PredictionClient:
    """A connection to the peer's service, with this party's half of the model.

    Use it as a context manager. It is thread-safe. Predictions are calibrated probabilities: with
    two classes P(y=1) of each row, of shape `(rows,)`, otherwise of shape `(rows, classes)`.
    """

    def __init__(
        self,
        bundle: PassiveBundle,
        connection: PredictionConnection,
        terms: ServingTerms,
        by_id: PredictionsById | None = None,
    ) -> None:
        """Use `connect` instead; `by_id` is given only if the peer has features of its own."""
        training = bundle.agreement.training
        self._bundle = bundle
        self._connection = connection
        self._wire = RowCodec(training.wire_type, training.wire_width)
        self._max_rows = min(terms.max_rows, self._wire.rows_per_message)
        self._classes = training.outputs
        self._by_id = by_id
        self._by_id_lock = Lock()
        #: Identifies the model and the agreement that it is served under.
        self.model = terms.model

    @classmethod
    def connect(
        cls,
        config: PartyConfig | Path | str,
        *,
        plaintext: bool = False,
        timeout: float | None = None,
    ) -> Self:
        """Load this party's half, connect to the peer's service, and compare model and agreement.

        Args:
            config: this party's configuration, or the path of its file.
            plaintext: no TLS; only for tests on one machine.
            timeout: seconds to keep trying; None means `timeouts.connect`.

        Raises:
            ConfigurationError: the configuration, the model or the certificates cannot be used, or
                the peer serves another model or under another agreement.
            TransportError: the peer cannot be reached.
        """
        if isinstance(config, Path | str):
            config = load_config(Path(config))
        runs = RunDirectory(config.run_directory)
        bundle = load_bundle(runs, "passive")
        run_name = bundle.run.hex()[:12]
        log.info("predicting with the model of run %s", run_name, extra={"run": run_name})
        credentials = own_credentials(config, plaintext=plaintext)
        offer = make_offer(bundle, config.agreement.serving, _served_union(config, runs, bundle))
        peer = config.party.peer
        connection, terms = PredictionConnection.dial(
            config.serving.address or config.network.address,
            credentials,
            peer,
            offer,
            timeout=config.timeouts.connect if timeout is None else timeout,
            answer=config.serving.answer_timeout,
            on_wait=lambda reason: log.info("waiting for %s: %s", peer, reason),
        )
        try:
            check_offers(offer, terms.offer)
            by_id = None
            if terms.offer.union_sha256:
                by_id = PredictionsById(
                    load_served_table(config, runs, bundle),
                    bundle,
                    config.agreement.id_normalisation,
                )
            return cls(bundle, connection, terms, by_id)
        except BaseException:
            connection.close()
            raise

    @property
    def by_id(self) -> bool:
        """Whether predictions are requested by ID, because the peer has features of its own."""
        return self._by_id is not None

    @property
    def columns(self) -> FeatureColumns:
        """The columns that a row must have."""
        return self._bundle.preprocessing.features

    @property
    def classes(self) -> int:
        """The number of probabilities per row."""
        return self._classes

    @property
    def traffic(self) -> Traffic:
        """Bytes of messages to and from the peer."""
        return self._connection.traffic

    def is_ready(self) -> bool:
        """Return whether the peer is serving predictions."""
        return self._connection.is_ready(_READY_TIMEOUT)

    def predict(
        self, rows: Sequence[Mapping[str, object]] | pa.Table | ArrowStream
    ) -> Probabilities:
        """Predict rows; the result has the same order.

        Args:
            rows: mappings, an Arrow table, or a data frame of pandas or another library that
                exports Arrow data. Tables may have more columns, which are ignored.

        Raises:
            BadRow: a row has other columns or values than the model was trained with.
            PeerBusy: a limit of the peer is reached.
            TransportError: the peer cannot be reached.
        """
        self._refuse_by_id()
        features = self._features(rows)
        if len(features) <= self._max_rows:
            if not len(features):
                return self._shaped(np.empty(0, np.float32))
            return self._probabilities(
                self._connection.predict(self._request(features)), len(features)
            )
        return np.concatenate(list(self._stream([features])))

    def predict_batches(
        self, tables: Iterable[pa.Table], source: str = "rows"
    ) -> Generator[Probabilities, None, None]:
        """Predict many rows over one stream; yields the predictions of each non-empty table.

        Args:
            tables: consumed by another thread, slightly ahead of the predictions.
            source: the name of the tables, for messages.

        Raises:
            ConfigurationError: a column is missing or has other values than in training.
            FloristError: as `predict`.
        """
        self._refuse_by_id()
        return self._stream(self._table_features(table, source) for table in tables)

    def predict_people(self, ids: Sequence[str] | pa.ChunkedArray) -> Probabilities:
        """Predict people of this party's aligned table, each hidden in a group of UIDs.

        Raises:
            BadRow: an ID is not in the table, or is not valid text.
            ConfigurationError: the peer has no features of its own, so rows must be given.
        """
        by_id = self._by_id
        if by_id is None:
            raise ConfigurationError(
                "the peer has no features of its own: request predictions by rows, not by IDs"
            )
        if not isinstance(ids, pa.ChunkedArray):
            try:
                ids = pa.chunked_array([pa.array(ids, pa.string())])
            except UnicodeEncodeError:
                raise BadRow(
                    "an ID contains a lone surrogate, which is not valid Unicode"
                ) from None
        ranks = by_id.ranks(ids)
        with self._by_id_lock:
            groups = by_id.missing_groups(ranks)
            requests = (
                PredictionRequest(self._wire.encode(by_id.embeddings(group)), group)
                for group in groups
            )
            replies = self._connection.stream(requests) if groups else ()
            for group, reply in zip(groups, replies, strict=True):
                by_id.store(group, self._probabilities(reply, by_id.group_size))
            return self._shaped(by_id.cached(ranks))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _refuse_by_id(self) -> None:
        if self._by_id is not None:
            raise ConfigurationError(
                "the peer has features of its own: request predictions by IDs, not by rows"
            )

    @cached_property
    def _encode_rows(self) -> RowEncoder:
        return RowEncoder(self._bundle.preprocessing)

    def _features(self, rows: Sequence[Mapping[str, object]] | pa.Table | ArrowStream) -> Features:
        if hasattr(rows, "__arrow_c_stream__"):
            return self._table_features(pa.table(rows))
        return self._encode_rows(rows)

    def _table_features(self, rows: pa.Table, source: str = "rows") -> Features:
        preprocessing = self._bundle.preprocessing
        return preprocessing.transform(convert_features(source, rows, preprocessing.features))

    def _request(self, features: Features) -> PredictionRequest:
        with torch.inference_mode():
            return PredictionRequest(self._wire.encode(self._bundle.embed(features)))

    def _stream(self, tables: Iterable[Features]) -> Generator[Probabilities, None, None]:
        """Yield the predictions of each non-empty table, over one stream of requests."""
        #: The number of rows of each open request, and whether it is the last one of its table.
        sent: deque[tuple[int, bool]] = deque()

        def requests() -> Iterator[PredictionRequest]:
            for features in tables:
                for start in range(0, len(features), self._max_rows):
                    part = features.slice(start, start + self._max_rows)
                    request = self._request(part)
                    sent.append((len(part), start + self._max_rows >= len(features)))
                    yield request

        answered: list[Probabilities] = []
        for reply in self._connection.stream(requests()):
            rows, is_last = sent.popleft()
            answered.append(self._probabilities(reply, rows))
            if is_last:
                yield np.concatenate(answered)
                answered.clear()

    def _probabilities(self, reply: PredictionReply, rows: int) -> Probabilities:
        numbers = rows * self._classes
        if len(reply.probabilities) != 4 * numbers:
            raise ProtocolViolation(
                f"the peer's reply to {rows} rows has {len(reply.probabilities)} bytes instead of "
                f"{4 * numbers}"
            )
        values = np.frombuffer(reply.probabilities, "<f4")
        if not (values.min() >= 0 and values.max() <= 1):  # also false for NaN
            raise ProtocolViolation("the peer's reply contains values that are not probabilities")
        return self._shaped(values)

    def _shaped(self, values: Probabilities) -> Probabilities:
        return values if self._classes == 1 else values.reshape(-1, self._classes)


def _served_union(config: PartyConfig, runs: RunDirectory, bundle: PassiveBundle) -> bytes:
    """Return the digest of the served table's union, needed if the peer has features."""
    if config.agreement.serving.table == "train":
        return bytes.fromhex(bundle.union_sha256)
    return bytes.fromhex(runs.load_alignment("test").summary.union_sha256)
