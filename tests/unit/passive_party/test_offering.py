"""The offers of a step: the embeddings of donors, and the room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from florist.common.oblivious_transfer import encrypt_rows
from florist.common.settings.agreement import TrainingAgreement
from florist.common.synthetic.donor_pool import Offers
from florist.common.synthetic.embedding_noise import EmbeddingNoise
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.training.feed import Position
from florist.common.training.row_codec import RowCodec
from florist.common.training.torch_batch import FeatureRows
from florist.passive_party.offering import DonorEmbeddings, PreparedOffers, StepOffers

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]

TABLE, WIDTH, CLASSES, BATCH = 200, 3, 4, 40
CODEC = RowCodec("float32", WIDTH)
RANDOM = np.random.default_rng(0)
NUMBERS = torch.from_numpy(RANDOM.random((TABLE, WIDTH), dtype=np.float32))
#: The batch lacks every third UID.
OWN_ROWS = np.where(np.arange(BATCH) % 3 == 0, -1, RANDOM.permutation(TABLE)[:BATCH])
LACKED = np.flatnonzero(OWN_ROWS < 0)
KEYS = RANDOM.integers(0, 256, (CLASSES, BATCH, 16), dtype=np.uint8)


def gather(rows: Rows) -> FeatureRows:
    return FeatureRows(NUMBERS[rows].clone(), torch.empty(len(rows), 0, dtype=torch.int64))


class Squares(torch.nn.Module):
    """Instead of a bottom model; counts the rows that it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.computed: list[int] = []

    def forward(self, numeric: torch.Tensor, _categories: torch.Tensor) -> torch.Tensor:
        self.computed.append(len(numeric))
        return numeric.square()


def donors(lacked: float = 1 / 3, noise: float = 0.0) -> tuple[DonorEmbeddings, Squares]:
    model = Squares()
    added = EmbeddingNoise(noise, SecretDraws.from_seed(1))
    return DonorEmbeddings(gather, model, added, CODEC, lacked), model  # type: ignore[arg-type]


def step_offers(noise: float = 0.0) -> tuple[StepOffers, Rows, Squares]:
    """Return the offers of a step, and the row of each class for each UID that is lacked."""
    made, model = donors(noise=noise)
    rows = np.random.default_rng(1).integers(0, TABLE, (CLASSES, len(LACKED)))
    features = gather(np.maximum(OWN_ROWS, 0))
    prepared = PreparedOffers(
        None,  # type: ignore[arg-type]
        Position(0, 5, 5),
        np.arange(BATCH),
        OWN_ROWS,
        features,
        KEYS,
    )
    return (
        StepOffers(prepared, Offers(rows, rows), LACKED, made, TrainingAgreement(classes=CLASSES)),
        rows,
        model,
    )


# --- room ---


@given(st.floats(0, 1), st.integers(1, 5000))
def test_room_is_for_the_mean_and_six_deviations(lacked: float, rows: int) -> None:
    made, _ = donors(lacked)
    expected = rows * lacked + 6 * (rows * lacked * (1 - lacked)) ** 0.5
    assert min(expected, rows) <= made.room(rows) <= min(expected + 1, rows) + 1e-6 * rows
    assert donors(0.0)[0].room(rows) == 0
    assert donors(1.0)[0].room(rows) == rows


@pytest.mark.parametrize("lacked", [0.05, 0.5, 0.9])
def test_there_is_nearly_always_enough_room(lacked: float) -> None:
    found = np.random.default_rng(2).binomial(512, lacked, size=200_000)
    assert found.max() <= donors(lacked)[0].room(512)


@pytest.mark.parametrize("count", [0, 1, 20, 31])
def test_the_model_computes_as_many_rows_as_there_is_room(count: int) -> None:
    made, model = donors()
    among = NUMBERS[:BATCH]
    rows = np.arange(count) + 7
    found = made.of(rows, among, 1, 2, 3)
    assert model.computed == [made.room(BATCH)] == [32]
    assert found.shape == (count, CODEC.row_bytes)
    assert torch.equal(CODEC.decode(found.tobytes()), NUMBERS[rows].square())


def test_without_room_the_model_computes_the_rows_that_it_must() -> None:
    made, model = donors(lacked=0.01)
    made.of(np.arange(30), NUMBERS[:BATCH])
    assert model.computed == [30]


# --- offers ---


def plain_offers(step: StepOffers, part: slice) -> npt.NDArray[np.uint8]:
    features = step.features
    parcel = step.parcel(part, features.numeric[part].square())
    rows = part.stop - part.start
    found = np.frombuffer(parcel.plain, np.uint8).reshape(CLASSES, rows, -1)
    sent = np.frombuffer(parcel.message.values, np.uint8).reshape(CLASSES, rows, -1)
    for label in range(CLASSES):
        opened = encrypt_rows(KEYS[label, part], np.ascontiguousarray(sent[label]))
        assert np.array_equal(opened, found[label])
    assert (parcel.message.step, parcel.message.start) == (5, part.start)
    return found


@pytest.mark.parametrize("part", [slice(0, BATCH), slice(10, 25), slice(1, 3), slice(39, 40)])
def test_each_class_has_its_own_stand_ins_and_the_same_people(part: slice) -> None:
    step, rows, _ = step_offers()
    found = plain_offers(step, part)
    all_rows = np.repeat(OWN_ROWS[None], CLASSES, axis=0)
    all_rows[:, LACKED] = rows
    for label in range(CLASSES):
        expected = NUMBERS[all_rows[label, part]].square()
        assert torch.equal(CODEC.decode(found[label].tobytes()), expected)


def test_noise_is_added_to_all_offers() -> None:
    """The same for all offers of a person, and another for each stand-in."""
    quiet, noisy = (plain_offers(step_offers(level)[0], slice(0, BATCH)) for level in (0.0, 0.5))
    noise = torch.stack(
        [
            CODEC.decode(theirs.tobytes()) - CODEC.decode(ours.tobytes())
            for ours, theirs in zip(quiet, noisy, strict=True)
        ]
    )
    own, lacked = np.flatnonzero(OWN_ROWS >= 0), LACKED
    assert (noise != 0).all()
    assert (noise[:, own] - noise[:1, own]).abs().max() < 1e-6
    for label in range(1, CLASSES):
        assert ((noise[label] - noise[0])[lacked].abs() > 1e-4).all(1).float().mean() > 0.8
    # About as large for stand-ins as for people.
    ratio = noise[:, lacked].std() / noise[:, own].std()
    assert 0.7 < float(ratio) < 1.4


def test_what_the_peer_opened_follows_from_the_gradients() -> None:
    step, rows, _ = step_offers()
    part = slice(4, 34)
    found = plain_offers(step, part)
    parcel = step.parcel(part, step.features.numeric[part].square())
    labels = np.random.default_rng(3).integers(-1, CLASSES, 30)
    gradients = torch.zeros(30, WIDTH + CLASSES)
    known = np.flatnonzero(labels >= 0)
    gradients[known, -CLASSES:] = 0.01
    gradients[known, WIDTH + labels[known]] = -0.03
    opened = step.opened(parcel, gradients)
    assert np.array_equal(step.labels[part], labels)
    assert (np.delete(step.labels, np.arange(4, 34)) == -1).all()
    taken = np.maximum(labels, 0)
    expected = found[taken, np.arange(30)]
    assert np.array_equal(np.frombuffer(opened.embeddings, np.uint8), expected.reshape(-1))
    all_rows = np.repeat(OWN_ROWS[None], CLASSES, axis=0)
    all_rows[:, LACKED] = rows
    assert np.array_equal(opened.rows, all_rows[:, part][taken, np.arange(30)])
