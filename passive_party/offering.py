"""Oblivious stand-ins: one embedding per class for each UID, of which the peer can open one.

All offers of a UID that the party has are equal. For a UID that it lacks, there is a stand-in of
each class: the embedding of a row that gradients have shown to have this label. The peer opens the
offer of its own label. It gets one embedding that fits its label in either case, and this party
does not learn which one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.oblivious_transfer import encrypt_rows
from florist.common.session.answer_journal import BlockKind
from florist.common.synthetic.donor_pool import (
    DonorPool,
    KeptOffers,
    donor_classes,
    drawn_classes,
)
from florist.common.training.half_state import tensors_of
from florist.common.training.shown_labels import shown_labels, shown_predictions
from florist.common.training.transfers import TransferSender, TransferTerms
from florist.common.transport.messages import OfferBlock
from florist.passive_party.sending import Opened, Parcel

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from torch import Tensor

    from florist.common.label_aggregate.first_model import FirstModel
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.synthetic.donor_pool import Offers
    from florist.common.synthetic.embedding_noise import EmbeddingNoise
    from florist.common.synthetic.secret_draws import SecretDraws
    from florist.common.training.feed import Position
    from florist.common.training.loop import Run
    from florist.common.training.models import BottomModel
    from florist.common.training.row_codec import RowCodec
    from florist.common.training.torch_batch import FeatureRows
    from florist.common.training.training_data import TrainingData

    Rows = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]
    #: Makes a pool for a number of classes and of own rows, with the secret draws of the run.
    MakePool = Callable[[int, int, SecretDraws], DonorPool]

#: There is room for the mean number of stand-ins in a part of a batch plus so many standard
#: deviations.
_ROOM = 6.0

#: Rows whose class is drawn at once, which bounds the memory.
_ROWS = 65_536


class DonorEmbeddings:
    """The embeddings of donors, with noise and encoded, in an amount of work that is always equal.

    The peer could measure the time that a varying number of stand-ins takes. So the model computes
    as many rows as there are stand-ins in hardly any part of a batch.
    """

    def __init__(
        self,
        gather: Callable[[Rows], FeatureRows],
        model: BottomModel,
        noise: EmbeddingNoise,
        codec: RowCodec,
        lacked: float,
    ) -> None:
        """Compute embeddings with the model.

        Args:
            gather: returns rows of the own table on the device.
            model: the bottom model, which other code trains.
            noise: added to every embedding.
            codec: for the wire.
            lacked: the share of UIDs that the party lacks.
        """
        self.gather = gather
        self._model = model
        self._noise = noise
        self._codec = codec
        self._lacked = lacked

    def room(self, rows: int) -> int:
        """Return for how many stand-ins there is room among `rows` rows."""
        deviation = math.sqrt(rows * self._lacked * (1 - self._lacked))
        return min(rows, math.ceil(rows * self._lacked + _ROOM * deviation))

    def encoded(self, embeddings: Tensor, *context: int, like: Tensor | None = None) -> Bytes:
        """Return embeddings with noise, (rows, bytes per row)."""
        values = self._codec.encode(self._noise(embeddings, *context, like=like))
        return np.frombuffer(values, dtype=np.uint8).reshape(-1, self._codec.row_bytes)

    @torch.no_grad()
    def of(self, rows: Rows, among: Tensor, *context: int) -> Bytes:
        """Return the encoded embeddings of donor rows.

        Args:
            rows: of the own table.
            among: the embeddings of the whole part, whose covariance the noise has.
            context: of the noise.
        """
        padded = np.zeros(max(self.room(len(among)), len(rows)), dtype=np.int64)
        padded[: len(rows)] = rows
        found = self.gather(padded)
        embeddings: Tensor = self._model(found.numeric, found.categories)
        return self.encoded(embeddings.cpu(), *context, like=among)[: len(rows)]


class ObliviousSending:
    """The offers of a run: donors, transfers and encryption."""

    #: It is unknown which offer the peer has opened.
    teaches_stand_ins = False

    def __init__(
        self, data: TrainingData, donors: DonorEmbeddings, run: Run, make_pool: MakePool = DonorPool
    ) -> None:
        """Make the base transfers with the peer, and begin without donors."""
        assert run.transfers is not None
        assert data.train.features is not None
        agreement, train = data.agreement, data.train
        self._row_of_rank = train.membership.row_of_rank
        self._agreement = agreement
        self._donors = donors
        self._transfers = TransferSender(run.transfers, TransferTerms.of_run(run, agreement))
        self._draws = run.draws
        self._pool = make_pool(agreement.classes, len(data.train.features), run.draws)
        self._kept: KeptOffers | None = None
        if agreement.sticky and agreement.epochs > 1:
            self._kept = KeptOffers(agreement.classes, train.sizes.union)

    def start_with(self, first_model: FirstModel, categories: npt.NDArray[np.int32]) -> None:
        """Make every own row a donor of a class that is drawn from the first model."""
        for start in range(0, len(categories), _ROWS):
            predicted = first_model.probabilities(categories[start : start + _ROWS])
            rows = np.arange(start, start + len(predicted))
            self._pool.add(rows, drawn_classes(predicted, self._draws, "first donors", rows))

    def prepare(self, position: Position, ranks: Rows) -> PreparedOffers:
        own_rows = self._row_of_rank[ranks]
        features = self._donors.gather(np.maximum(own_rows, 0))
        keys = self._transfers.keys(position.step, len(ranks))
        return PreparedOffers(self, position, ranks, own_rows, features, keys)

    def begin(self, prepared: PreparedOffers) -> StepOffers:
        """Draw the stand-ins of a step."""
        lacked = np.flatnonzero(prepared.own_rows < 0)
        offers = self._pool.offers(prepared.ranks[lacked], prepared.position.step)
        if self._kept is not None:
            offers = self._kept.settled(prepared.ranks[lacked], offers)
        return StepOffers(prepared, offers, lacked, self._donors, self._agreement)

    def finish(self, step: StepOffers) -> None:
        prepared, lacked = step.prepared, step.lacked
        self._pool.opened(step.offers, step.labels[lacked])
        if prepared.position.epoch == 0:  # later epochs show the same rows again
            own = np.flatnonzero(prepared.own_rows >= 0)
            classes = donor_classes(
                step.labels[own], step.predicted[own], prepared.ranks[own], self._draws
            )
            self._pool.add(prepared.own_rows[own], classes)
        if self._kept is not None:
            self._kept.keep(prepared.ranks[lacked], step.offers)

    def state(self) -> dict[str, Tensor]:
        groups = {"pool": self._pool.state(), "kept": self._kept.state() if self._kept else {}}
        return {
            f"{group}.{name}": tensor
            for group, tensors in groups.items()
            for name, tensor in tensors.items()
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        self._pool.restore(tensors_of("pool", state))
        if self._kept is not None:
            self._kept.restore(tensors_of("kept", state))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PreparedOffers:
    """Who is in a batch, and the key of each class."""

    sending: ObliviousSending
    position: Position
    ranks: Rows
    #: The own row of each UID; -1 where the party lacks it.
    own_rows: Rows
    #: Those of the own rows; stand-ins are missing.
    features: FeatureRows
    #: (classes, rows, 16)
    keys: Bytes

    def begin(self) -> StepOffers:
        return self.sending.begin(self)


class StepOffers:
    """The offers of one step."""

    def __init__(
        self,
        prepared: PreparedOffers,
        offers: Offers,
        lacked: Rows,
        donors: DonorEmbeddings,
        agreement: TrainingAgreement,
    ) -> None:
        classes = agreement.classes
        self._weights = agreement.loss_weights
        self.prepared = prepared
        self.offers = offers
        #: The positions in the batch of the UIDs that the party lacks.
        self.lacked = lacked
        #: The label that the gradient of each row has shown; -1 if none.
        self.labels = np.full(len(prepared.ranks), -1, dtype=np.int64)
        #: The probability of each class that the model predicted for each row.
        self.predicted = np.zeros((len(prepared.ranks), classes))
        self._donors = donors
        #: The row of the own table that is offered for each class and UID of the batch.
        self._rows = np.repeat(prepared.own_rows[None], classes, axis=0)
        self._rows[:, lacked] = offers.rows

    @property
    def features(self) -> FeatureRows:
        """The features of own rows, and of the stand-ins of class 0."""
        features, donors = self.prepared.features, self._donors.gather(self._rows[0, self.lacked])
        features.numeric[self.lacked] = donors.numeric
        features.categories[self.lacked] = donors.categories
        return features

    def parcel(self, part: slice, embeddings: Tensor) -> Parcel:
        plain = self._plain(part, embeddings)
        sent = np.empty_like(plain)
        for label, rows in enumerate(plain):
            encrypt_rows(self.prepared.keys[label, part], rows, out=sent[label])
        message = OfferBlock(self.prepared.position.step, part.start, sent.reshape(-1).data)
        return Parcel(part, BlockKind.OFFERS, message, plain.reshape(-1).data)

    def _plain(self, part: slice, embeddings: Tensor) -> Bytes:
        """Return the encoded offers of a part: (classes, rows, bytes per row)."""
        context = (self.prepared.position.step, part.start)
        first = self._donors.encoded(embeddings, *context)
        offers = np.repeat(first[None], len(self._rows), axis=0)
        here = self.lacked[(part.start <= self.lacked) & (self.lacked < part.stop)]
        for label in range(1, len(offers)):
            donors = self._rows[label, here]
            offers[label, here - part.start] = self._donors.of(donors, embeddings, *context, label)
        return offers

    def opened(self, parcel: Parcel, gradients: Tensor) -> Opened:
        """Read the labels of a part off its gradients; each label is the offer that was opened.

        Where the peer has no label, it opened any offer. Then all are equal, unless neither party
        has the UID.
        """
        part, classes = parcel.part, len(self._rows)
        shown = shown_labels(gradients, classes)
        self.labels[part] = shown
        self.predicted[part] = shown_predictions(
            gradients, shown, classes, len(self.labels), self._weights
        )
        labels, numbers = np.maximum(shown, 0), np.arange(len(gradients))
        plain = np.frombuffer(parcel.plain, dtype=np.uint8).reshape(classes, len(numbers), -1)
        rows = self._rows[:, part][labels, numbers]
        return Opened(plain[labels, numbers].reshape(-1).data, rows)
