"""Predictions for people of this party's table, requested by ID and hidden in groups of UIDs.

For a group, the embeddings of all its UIDs are sent; those of people whom this party lacks are
computed from stand-ins. The bytes are always the same, whoever in the group is of interest. The
predictions are cached, so that each group is requested only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.core.text import quoted_few
from florist.common.data.table_ids import normalised_ids
from florist.common.storage.id_column import quick_digests
from florist.common.synthetic.embedding_noise import EmbeddingNoise
from florist.passive_party.row_encoder import BadRow

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa
    from torch import Tensor

    from florist.common.bundle.bundle import PassiveBundle
    from florist.common.serving.served_table import ServedTable
    from florist.common.settings.agreement import Normalisation
    from florist.common.storage.id_column import IdColumn


class PredictionsById:
    """Finds people in this party's table, embeds their groups and caches the predictions."""

    def __init__(
        self, table: ServedTable, bundle: PassiveBundle, normalisation: Normalisation
    ) -> None:
        """Start with an empty cache."""
        training = bundle.agreement.training
        self._table = table
        self._bundle = bundle
        self._normalisation = normalisation
        # As in training: without noise, a stand-in would have the same embedding as its donor.
        self._noise = EmbeddingNoise(training.embedding_noise, table.draws)
        digests = quick_digests(table.ids)
        self._row_by_digest = np.argsort(digests)
        self._digests = digests[self._row_by_digest]
        classes = training.outputs
        groups = table.groups
        self._is_cached = np.zeros(len(groups), dtype=bool)
        self._predictions = np.zeros((len(groups), groups.size, classes), dtype=np.float32)

    @property
    def group_size(self) -> int:
        """The number of UIDs per group."""
        return self._table.groups.size

    def ranks(self, ids: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Return the ranks in the union of people in our table.

        Raises:
            BadRow: some IDs are not in the table; its `examples` name a few of them.
        """
        rows = self._rows(normalised_ids(ids, "the IDs", self._normalisation))
        if len(absent := np.flatnonzero(rows < 0)):
            error = BadRow(
                f"IDs that are not in this party's aligned table: {len(absent):,}; "
                "predictions are available only for people in the table"
            )
            error.examples = quoted_few([ids[index].as_py() for index in absent[:5].tolist()], 5)
            raise error
        return self._table.rank_of_row[rows]

    def _rows(self, ids: IdColumn) -> npt.NDArray[np.int64]:
        """Return the row of each ID; -1 if there is none."""
        digests = quick_digests(ids)
        first = np.searchsorted(self._digests, digests, "left").tolist()
        last = np.searchsorted(self._digests, digests, "right").tolist()
        own = self._table.ids
        return np.array(
            [
                # An equal digest is only a hint.
                next(
                    (
                        row
                        for row in self._row_by_digest[start:stop].tolist()
                        if own.at(row) == ids.at(index)
                    ),
                    -1,
                )
                for index, (start, stop) in enumerate(zip(first, last, strict=True))
            ],
            dtype=np.int64,
        )

    def missing_groups(self, ranks: npt.NDArray[np.int64]) -> list[int]:
        """Return the groups of these people that are not cached yet, without duplicates."""
        groups, _ = self._table.groups.find(ranks)
        wanted = np.unique(groups)
        missing: list[int] = wanted[~self._is_cached[wanted]].tolist()
        return missing

    def embeddings(self, group: int) -> Tensor:
        """Return the embeddings of all UIDs of the group; the same at every call."""
        features = self._table.features.take(self._table.rows(group))
        with torch.inference_mode():
            return self._noise(self._bundle.embed(features).cpu(), group)

    def store(self, group: int, probabilities: npt.NDArray[np.float32]) -> None:
        """Cache the predictions of a group."""
        self._predictions[group] = probabilities.reshape(self._predictions.shape[1:])
        self._is_cached[group] = True

    def cached(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the cached predictions of these people in their order, one value per class."""
        groups, indices = self._table.groups.find(ranks)
        return self._predictions[groups, indices].ravel()
