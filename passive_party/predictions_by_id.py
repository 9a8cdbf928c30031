"""People who are asked for by their IDs, hidden in groups of UIDs: the passive party's side.

For a group, embeddings of all its UIDs are sent, those of people whom this party lacks from a row
that stands in; always the same bytes, whoever in the group is of interest. What was answered is
kept, so that no group is asked for twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.core.text import quoted_few
from florist.common.data.table_ids import normalised_ids
from florist.common.storage.id_column import quick_digests
from florist.common.synthetic.features import EmbeddingNoise
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
    """Our people, where they are in the union, and what is known of them so far."""

    def __init__(
        self, people: ServedTable, bundle: PassiveBundle, normalisation: Normalisation
    ) -> None:
        training = bundle.agreement.training
        self._people = people
        self._bundle = bundle
        self._normalisation = normalisation
        # As in training: else a row that stands in would be the twin of its own.
        self._noise = EmbeddingNoise(training.embedding_noise, people.draws)
        digests = quick_digests(people.ids)
        self._row_by_digest = np.argsort(digests)
        self._digests = digests[self._row_by_digest]
        classes = 1 if training.classes == 2 else training.classes
        groups = people.groups
        self._asked = np.zeros(len(groups), dtype=bool)
        self._answers = np.zeros((len(groups), groups.size, classes), dtype=np.float32)

    @property
    def group_size(self) -> int:
        return self._people.groups.size

    def ranks(self, ids: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Places in the union of people who are in our table.

        Raises:
            BadRow: says who is not.
        """
        column = normalised_ids(ids, "the IDs", self._normalisation)
        rows = self._rows(column)
        if len(absent := np.flatnonzero(rows < 0)):
            few = [ids[place].as_py() for place in absent[:6].tolist()]
            more = f" and {len(absent) - 5:,} more" if len(absent) > 6 else ""
            raise BadRow(
                f"IDs that are not in this party's aligned table: {quoted_few(few, 6)}{more}; only "
                "its people can be asked for"
            )
        return self._people.rank_of_row[rows]

    def _rows(self, ids: IdColumn) -> npt.NDArray[np.int64]:
        """The row of each; -1 where there is none."""
        digests = quick_digests(ids)
        first = np.searchsorted(self._digests, digests, "left").tolist()
        last = np.searchsorted(self._digests, digests, "right").tolist()
        own = self._people.ids
        return np.array(
            [
                # Equal digests are but a hint.
                next(
                    (
                        row
                        for row in self._row_by_digest[start:stop].tolist()
                        if own.at(row) == ids.at(place)
                    ),
                    -1,
                )
                for place, (start, stop) in enumerate(zip(first, last, strict=True))
            ],
            dtype=np.int64,
        )

    def unknown_groups(self, ranks: npt.NDArray[np.int64]) -> list[int]:
        """The groups that must be asked for to know these people, each once."""
        groups, _ = self._people.groups.find(ranks)
        wanted = np.unique(groups)
        unknown: list[int] = wanted[~self._asked[wanted]].tolist()
        return unknown

    def embeddings(self, group: int) -> Tensor:
        """Of all UIDs of the group; the same at every call."""
        features = self._people.features.take(self._people.rows(group))
        with torch.inference_mode():
            return self._noise(self._bundle.embed(features).cpu(), group)

    def learn(self, group: int, probabilities: npt.NDArray[np.float32]) -> None:
        """Keep what was answered for a group."""
        self._answers[group] = probabilities.reshape(self._answers.shape[1:])
        self._asked[group] = True

    def known(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """What was answered for these people, in their order, class by class."""
        groups, places = self._people.groups.find(ranks)
        return self._answers[groups, places].ravel()
