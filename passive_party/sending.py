"""How the passive party sends the embeddings of a batch: plainly, or as offers (`offering.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from florist.common.session.answer_journal import BlockKind
from florist.common.transport.messages import EmbeddingBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.label_aggregate.first_model import FirstModel
    from florist.common.synthetic.embedding_noise import EmbeddingNoise
    from florist.common.synthetic.stand_ins import StandIns
    from florist.common.training.feed import Position
    from florist.common.training.row_codec import RowCodec
    from florist.common.training.torch_batch import FeatureRows
    from florist.common.transport.messages import Data, OfferBlock

    Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parcel:
    """A message with embeddings of a part of a batch, and what it contains."""

    part: slice
    kind: BlockKind
    message: EmbeddingBlock | OfferBlock
    #: All embeddings that the peer could decode from the message, encoded but not encrypted.
    plain: Data


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Opened:
    """What the peer has got of a part: the encoded embeddings, and where the features are from."""

    embeddings: Data
    #: Rows of the own table.
    rows: Rows


class StepSending(Protocol):
    """The embeddings of one step."""

    @property
    def features(self) -> FeatureRows:
        """The features whose embeddings the model computes, one row for each UID of the batch."""
        ...

    def parcel(self, part: slice, embeddings: Tensor) -> Parcel:
        """Prepare the embeddings of `features[part]`, computed by the model, to be sent."""
        ...

    def opened(self, parcel: Parcel, gradients: Tensor) -> Opened:
        """Take in the gradients of a part; return what the peer has got of it."""
        ...


S = TypeVar("S", bound=StepSending)
S_co = TypeVar("S_co", bound=StepSending, covariant=True)


class PreparedSending(Protocol[S_co]):
    """What is known about a step before the one before it is complete."""

    def begin(self) -> S_co:
        """Begin the step, which changes nothing that a second attempt would depend on."""
        ...


class Sending(Protocol[S]):
    """The embeddings of a run."""

    @property
    def teaches_stand_ins(self) -> bool:
        """Whether the gradient of a stand-in belongs to the row that the model has computed."""
        ...

    def start_with(self, first_model: FirstModel, categories: npt.NDArray[np.int32]) -> None:
        """Take in the first model, before the first step; `categories` are those of all rows."""
        ...

    def prepare(self, position: Position, ranks: Rows) -> PreparedSending[S]:
        """Prepare the step of these UIDs; called one batch ahead, in a background thread."""
        ...

    def finish(self, step: S) -> None:
        """Take in a complete step; this changes the state."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        ...


class PlainSending:
    """One embedding per UID, with noise; stand-ins are drawn regardless of the label."""

    teaches_stand_ins = True

    def __init__(
        self,
        gather: Callable[[Rows], FeatureRows],
        stand_ins: StandIns,
        noise: EmbeddingNoise,
        codec: RowCodec,
    ) -> None:
        """`gather` returns rows of the own table on the device."""
        self._gather = gather
        self._stand_ins = stand_ins
        self._noise = noise
        self._codec = codec

    def start_with(self, first_model: FirstModel, categories: npt.NDArray[np.int32]) -> None:
        """Do nothing: plain stand-ins do not depend on the label."""

    def prepare(self, position: Position, ranks: Rows) -> PlainStep:
        rows = self._stand_ins.rows(ranks, position.epoch)
        return PlainStep(position, rows, self._gather(rows), self._noise, self._codec)

    def finish(self, step: PlainStep) -> None:
        """Do nothing: no later step depends on this one."""

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Do nothing: there is no state."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlainStep:
    """The embeddings of one step."""

    position: Position
    rows: Rows
    features: FeatureRows
    _noise: EmbeddingNoise
    _codec: RowCodec

    def begin(self) -> PlainStep:
        return self

    def parcel(self, part: slice, embeddings: Tensor) -> Parcel:
        step = self.position.step
        # Each micro-batch has its own noise.
        values = self._codec.encode(self._noise(embeddings, step, part.start))
        message = EmbeddingBlock(step, part.start, values)
        return Parcel(part, BlockKind.EMBEDDINGS, message, values)

    def opened(self, parcel: Parcel, gradients: Tensor) -> Opened:  # noqa: ARG002 - as of the protocol
        return Opened(parcel.plain, self.rows[parcel.part])
