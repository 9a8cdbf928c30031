"""Predictions for the passive party: its rows go through its own half, the peer does the rest.

    from florist.passive_party.serving import PredictionClient

    with PredictionClient.connect("passive.yml") as client:
        client.predict([{"age": 41, "city": "Bern"}])      # array([0.173], dtype=float32)

Where the active party has features of its own, people are asked for by their IDs, hidden in groups;
see docs/how-to/serve.md.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Self

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
from florist.common.training.blocks import Wire
from florist.common.transport.grpc_prediction_client import PredictionLine
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
    from florist.common.transport.messages import PredictionReply, ServingTerms

    Probabilities = npt.NDArray[np.float32]

log = logging.getLogger("florist.serving")

#: Seconds that the peer has to say whether it is ready.
_READY = 2.0


class PredictionClient:
    """A connection to the peer's service, with our half of the model. Use as a context.

    Safe to use from many threads. Predictions are calibrated: P(y=1) of each row, `(rows,)`, with
    two classes, else `(rows, classes)`.
    """

    def __init__(
        self,
        bundle: PassiveBundle,
        line: PredictionLine,
        terms: ServingTerms,
        people: PredictionsById | None = None,
    ) -> None:
        """Use `connect`; `people` is given just where the peer has features of its own."""
        training = bundle.agreement.training
        self._bundle = bundle
        self._line = line
        self._wire = Wire(training.wire_type, training.cut_width)
        self._max_rows = min(terms.max_rows, self._wire.rows_per_message)
        self._classes = 1 if training.classes == 2 else training.classes
        self._people = people
        self._asking = Lock()
        #: Of the model, and of how it is served; for results that are put together later.
        self.model = terms.model

    @classmethod
    def connect(
        cls,
        config: PartyConfig | Path | str,
        *,
        plaintext: bool = False,
        timeout: float | None = None,
    ) -> Self:
        """Load our half, reach the peer's service, and compare.

        Args:
            config: this party's configuration, or its file.
            plaintext: no TLS; for tests on one machine only.
            timeout: seconds to keep trying; None takes `timeouts.connect`.

        Raises:
            ConfigurationError: the configuration, our half or the certificates cannot be used, or
                the peer serves with another model or agreement.
            TransportError: the peer cannot be reached.
        """
        if isinstance(config, Path | str):
            config = load_config(Path(config))
        runs = RunDirectory(config.run_directory)
        bundle = load_bundle(runs, "passive")
        credentials = own_credentials(config, plaintext=plaintext)
        offer = make_offer(bundle, config.agreement.serving, _served_union(config, runs, bundle))
        peer = config.party.peer
        line, terms = PredictionLine.dial(
            config.serving.address or config.network.address,
            credentials,
            peer,
            offer,
            timeout=config.timeouts.connect if timeout is None else timeout,
            answer=config.serving.answer,
            on_wait=lambda reason: log.info("waiting for %s: %s", peer, reason),
        )
        try:
            check_offers(offer, terms.offer)
            people = None
            if terms.offer.union_sha256:
                people = PredictionsById(
                    load_served_table(config, runs, bundle),
                    bundle,
                    config.agreement.id_normalisation,
                )
            return cls(bundle, line, terms, people)
        except BaseException:
            line.close()
            raise

    @property
    def by_id(self) -> bool:
        """Whether the peer has features of its own, so that people are asked for by their IDs."""
        return self._people is not None

    @property
    def columns(self) -> FeatureColumns:
        """What a row must have."""
        return self._bundle.preprocessing.features

    @property
    def classes(self) -> int:
        """Probabilities per row."""
        return self._classes

    def is_ready(self) -> bool:
        """Whether the peer serves predictions now."""
        return self._line.is_ready(_READY)

    def predict(self, rows: Sequence[Mapping[str, object]] | pa.Table) -> Probabilities:
        """Predictions for rows, given one by one or as an Arrow table; in their order.

        Raises:
            BadRow: a row or column is not what the model was trained with.
            PeerBusy: the peer's limits are reached.
            TransportError: the peer cannot be reached now.
        """
        self._refuse_by_id()
        features = self._features(rows)
        if len(features) <= self._max_rows:
            if not len(features):
                return self._shaped(np.empty(0, np.float32))
            return self._probabilities(self._line.predict(self._request(features)), len(features))
        return np.concatenate(list(self._stream([features])))

    def predict_batches(
        self, tables: Iterable[pa.Table], source: str = "rows"
    ) -> Generator[Probabilities, None, None]:
        """Predictions for each table that has rows, in order, over one stream; made for many rows.

        Args:
            tables: read by another thread, a little ahead of the answers.
            source: what messages call them.

        Raises:
            ConfigurationError: a column is not what the model was trained with.
            FloristError: as `predict`.
        """
        self._refuse_by_id()
        return self._stream(self._table_features(table, source) for table in tables)

    def predict_people(self, ids: Sequence[str] | pa.ChunkedArray) -> Probabilities:
        """Predictions for people of our own aligned table, each hidden in the group of its UID.

        Raises:
            BadRow: an ID is not in the table, or is no text.
            ConfigurationError: the peer has no features of its own: give rows instead.
        """
        if self._people is None:
            raise ConfigurationError(
                "the peer has no features of its own: ask for predictions of rows, not of IDs"
            )
        if not isinstance(ids, pa.ChunkedArray):
            try:
                ids = pa.chunked_array([pa.array(ids, pa.string())])
            except UnicodeEncodeError:
                raise BadRow("an ID holds half a character (a lone surrogate)") from None
        people, ranks = self._people, self._people.ranks(ids)
        with self._asking:
            groups = people.unknown_groups(ranks)
            requests = (
                PredictionRequest(self._wire.to_data(people.embeddings(group)), group)
                for group in groups
            )
            replies = self._line.stream(requests) if groups else ()
            for group, reply in zip(groups, replies, strict=True):
                people.learn(group, self._probabilities(reply, people.group_size))
            return self._shaped(people.known(ranks))

    def close(self) -> None:
        self._line.close()

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
        if self._people is not None:
            raise ConfigurationError(
                "the peer has features of its own: ask for predictions of IDs, not of rows"
            )

    @cached_property
    def _encode(self) -> RowEncoder:
        return RowEncoder(self._bundle.preprocessing)

    def _features(self, rows: Sequence[Mapping[str, object]] | pa.Table) -> Features:
        return self._table_features(rows) if isinstance(rows, pa.Table) else self._encode(rows)

    def _table_features(self, rows: pa.Table, source: str = "rows") -> Features:
        preprocessing = self._bundle.preprocessing
        return preprocessing.transform(convert_features(source, rows, preprocessing.features))

    def _request(self, features: Features) -> PredictionRequest:
        with torch.inference_mode():
            return PredictionRequest(self._wire.to_data(self._bundle.embed(features)))

    def _stream(self, tables: Iterable[Features]) -> Generator[Probabilities, None, None]:
        """One array per table that has rows, over one stream of requests."""
        #: Of the requests under way: how many rows, and whether they are the last of their table.
        sent: deque[tuple[int, bool]] = deque()

        def requests() -> Iterator[PredictionRequest]:
            for features in tables:
                for start in range(0, len(features), self._max_rows):
                    part = features.slice(start, start + self._max_rows)
                    request = self._request(part)
                    sent.append((len(part), start + self._max_rows >= len(features)))
                    yield request

        answered: list[Probabilities] = []
        for reply in self._line.stream(requests()):
            rows, is_last = sent.popleft()
            answered.append(self._probabilities(reply, rows))
            if is_last:
                yield np.concatenate(answered)
                answered.clear()

    def _probabilities(self, reply: PredictionReply, rows: int) -> Probabilities:
        numbers = rows * self._classes
        if len(reply.probabilities) != 4 * numbers:
            raise ProtocolViolation(
                f"the peer answered {rows} rows with {len(reply.probabilities)} bytes instead of "
                f"{numbers} numbers of 4"
            )
        values = np.frombuffer(reply.probabilities, "<f4")
        if not (values.min() >= 0 and values.max() <= 1):  # NaN is neither
            raise ProtocolViolation("the peer's answer holds what is no probability")
        return self._shaped(values)

    def _shaped(self, values: Probabilities) -> Probabilities:
        return values if self._classes == 1 else values.reshape(-1, self._classes)


def _served_union(config: PartyConfig, runs: RunDirectory, bundle: PassiveBundle) -> bytes:
    """Digest of the union whose people can be asked for, should the peer have features."""
    if config.agreement.serving.table == "train":
        return bytes.fromhex(bundle.union_sha256)
    return bytes.fromhex(runs.load_alignment("test").summary.union_sha256)
