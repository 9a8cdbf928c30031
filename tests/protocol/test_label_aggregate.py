"""The label aggregate between two parties: what each learns, bad peers, and interruptions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from florist.active_party.label_aggregate import send_aggregate
from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    ProtocolViolation,
    as_florist_error,
)
from florist.common.core.progress import NoProgress
from florist.common.data.features import Features
from florist.common.groups.ristretto255 import times_generator
from florist.common.label_aggregate import SumCollector
from florist.common.label_aggregate.coordinates import Coordinates
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import TrainingAgreement
from florist.common.synthetic.membership import Membership
from florist.common.training.aggregate_run import AGGREGATE, AggregateRecord, AggregateRun, spans
from florist.common.training.training_data import TrainingData, TrainingTable
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    AggregateAnswer,
    AggregateRequest,
    AggregateShape,
    AggregateTerms,
    EncryptedLabels,
)
from florist.passive_party.label_aggregate import collect_aggregate
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.common.label_aggregate.first_model import Aggregate
    from florist.common.training.aggregate_run import AggregateFacts
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message

    Tamper = Callable[[Message], Message]

PEOPLE, UIDS = 600, 620
CARDINALITIES = (4, 25)
#: Each party lacks 200 people whom the other has, and 20 UIDs are nobody's.
ACTIVE, PASSIVE = np.arange(400), np.arange(200, PEOPLE)
SHARED = np.intersect1d(ACTIVE, PASSIVE)
RANKS = np.random.default_rng(1).permutation(UIDS)[:PEOPLE]


def make_categories() -> npt.NDArray[np.int32]:
    random = np.random.default_rng(2)
    columns = [random.integers(0, size, PEOPLE) for size in CARDINALITIES]
    return np.stack(columns, 1).astype(np.int32)


def make_labels(classes: int = 2) -> npt.NDArray[np.int64]:
    return np.random.default_rng(3).integers(0, classes, PEOPLE)


CATEGORIES = make_categories()


def agreement(classes: int = 2, epsilon: float = 100.0, min_count: int = 10) -> TrainingAgreement:
    aggregate = {"privacy": {"epsilon": epsilon, "delta": 1e-7}, "min_count": min_count}
    return TrainingAgreement.model_validate({"classes": classes, "aggregate": aggregate})


def data_of(role: RoleName, agreed: TrainingAgreement, **columns: object) -> TrainingData:
    own = ACTIVE if role == "active" else PASSIVE
    labels = columns.get("labels")
    features = Features(np.zeros((PEOPLE, 0), dtype=np.float32), CATEGORIES).take(own)
    table = TrainingTable(
        Membership.of(RANKS[own], UIDS),
        UnionSizes(len(own), PEOPLE - 200, PEOPLE),
        features if role == "passive" else None,
        labels[own] if isinstance(labels, np.ndarray) else None,
    )
    return TrainingData(agreed, torch.device("cpu"), table, None)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The results of both parties."""

    facts: AggregateFacts | None
    aggregate: Aggregate | None


def exchange(
    agreed: TrainingAgreement,
    labels: npt.NDArray[np.int64],
    *,
    secrets: tuple[bytes, bytes] = (b"a" * 32, b"p" * 32),
    record: AggregateRecord | None = None,
    tamper: Tamper | None = None,
    tampered: RoleName = "active",
    releases: list[int] | None = None,
) -> Exchanged:
    """Run both parties; whatever the first one to fail raised is raised."""
    links: tuple[Link, Link] = linked_pair()
    if tamper is not None:
        number = ("active", "passive").index(tampered)
        changed = TamperingLink(links[number], lambda message: [tamper(message)])
        links = (changed, links[1]) if number == 0 else (links[0], changed)
    failures: list[BaseException] = []

    def run_of(link: Link, secret: bytes) -> AggregateRun:
        return AggregateRun(
            link.channel(AGGREGATE),
            secret,
            b"union",
            record or AggregateRecord(None),
            lambda: releases.append(1) if releases is not None else None,
            NoProgress(),
        )

    def active() -> AggregateFacts | None:
        data = data_of("active", agreed, labels=labels)
        assert data.train.labels is not None
        return send_aggregate(run_of(links[0], secrets[0]), data, data.train.labels)

    def passive() -> Aggregate | None:
        data = data_of("passive", agreed)
        assert data.train.features is not None
        # Only the active party has a record here.
        run = replace(run_of(links[1], secrets[1]), record=AggregateRecord(None))
        return collect_aggregate(run, data, data.train.features, CARDINALITIES)

    def guarded(link: Link, work: Callable[[], object]) -> object:
        try:
            return work()
        except BaseException as error:
            failures.append(error)
            link.fail(as_florist_error(error))
            raise

    with ThreadPoolExecutor(2) as both:
        ends = both.submit(guarded, links[0], active), both.submit(guarded, links[1], passive)
    if failures:
        raise failures[0]
    facts, aggregate = (end.result() for end in ends)
    return Exchanged(facts, aggregate)  # type: ignore[arg-type]


def exact_sums(aggregate: Aggregate, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The ideal functionality without noise, one person at a time."""
    sums = np.zeros((aggregate.coordinates.count, aggregate.codes.outputs), dtype=np.int64)
    for person in SHARED:
        for coordinate in aggregate.coordinates.of(CATEGORIES[[person]])[0]:
            sums[coordinate] += aggregate.codes.table()[labels[person]]
    return sums


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_passive_party_learns_the_sums_over_shared_people_with_noise(classes: int) -> None:
    labels = make_labels(classes)
    found = exchange(agreement(classes), labels)
    assert found.aggregate is not None
    assert found.facts is not None
    noise = found.aggregate.sums - exact_sums(found.aggregate, labels)
    assert np.abs(noise).max() <= 6 * found.aggregate.noise
    assert found.aggregate.shared == pytest.approx(0.5)
    assert found.facts.columns == len(CARDINALITIES)
    assert found.facts.coordinates == found.aggregate.coordinates.count
    assert found.facts.deviation == found.aggregate.noise


def test_noise_has_the_stated_deviation() -> None:
    labels = make_labels()
    noises, stated = [], 0.0
    for number in range(12):
        found = exchange(agreement(epsilon=2.0), labels, secrets=(bytes([number]) * 32, b"p" * 32))
        assert found.aggregate is not None
        noises.append(found.aggregate.sums - exact_sums(found.aggregate, labels))
        stated = found.aggregate.noise
    assert np.concatenate(noises).std() == pytest.approx(stated, rel=0.2)


def test_rare_categories_share_a_coordinate() -> None:
    found = exchange(agreement(min_count=30), make_labels())
    assert found.aggregate is not None
    # Each of the 25 categories of the second column has about 16 rows of the passive party.
    assert found.aggregate.coordinates.count < len(CARDINALITIES) + 4 + 3
    assert found.aggregate.coordinates.of(CATEGORIES).max() < found.aggregate.coordinates.count


def test_class_counts_have_noise_and_determine_the_codes() -> None:
    labels = (np.random.default_rng(5).random(PEOPLE) < 0.05).astype(np.int64)
    found = exchange(agreement(), labels)
    assert found.aggregate is not None
    true_counts = np.bincount(labels[ACTIVE])
    assert np.abs(np.array(found.aggregate.class_counts) - true_counts).max() < 40
    assert found.aggregate.codes.scale == 64
    balanced = exchange(agreement(), make_labels())
    assert balanced.aggregate is not None
    assert (balanced.aggregate.codes.scale, balanced.aggregate.codes.centres) == (2, (1,))


def test_a_repeated_exchange_has_the_same_bytes(tmp_path: Path) -> None:
    record = AggregateRecord(tmp_path)
    first, second = (recorded(record) for _ in range(2))
    assert first == second
    assert {type(message) for message in first} == {
        AggregateShape,
        AggregateTerms,
        EncryptedLabels,
        AggregateRequest,
        AggregateAnswer,
    }


def recorded(record: AggregateRecord, labels: npt.NDArray[np.int64] | None = None) -> list[Message]:
    messages: list[Message] = []

    def keep(message: Message) -> Message:
        messages.append(message)
        return message

    shown = make_labels() if labels is None else labels
    exchange(agreement(), shown, record=record, tamper=keep)
    exchange(agreement(), shown, record=record, tamper=keep, tampered="passive")
    return messages


def test_other_labels_have_other_randomness() -> None:
    """With the same randomness, the difference of two ciphertexts would reveal that of labels."""
    record = AggregateRecord(None)
    labels = make_labels()
    changed = labels.copy()
    changed[0] = 1 - changed[0]
    first, second = recorded(record), recorded(record, changed)
    encrypted = [
        np.frombuffer(message.values, dtype=np.uint8).reshape(-1, 64)
        for messages in (first, second)
        for message in messages
        if isinstance(message, EncryptedLabels)
    ]
    same = (encrypted[0] == encrypted[-1]).all(axis=1)
    assert not same.any()


def test_only_one_request_is_answered(tmp_path: Path) -> None:
    record = AggregateRecord(tmp_path)
    exchange(agreement(), make_labels(), record=record)
    with pytest.raises(ProtocolViolation, match="other sums than before"):
        exchange(agreement(), make_labels(), record=record, secrets=(b"a" * 32, b"q" * 32))
    exchange(agreement(), make_labels(), record=record)


def test_class_counts_do_not_change_with_what_the_peer_asks() -> None:
    """A peer that asks again with other coordinates could average the noise away."""
    found = [exchange(agreement(min_count=count), make_labels()) for count in (1, 10, 30)]
    counts = [each.aggregate.class_counts for each in found if each.aggregate is not None]
    assert len(counts) == 3
    assert len(set(counts)) == 1


def test_a_damaged_secret_is_refused(tmp_path: Path) -> None:
    """Another secret would mean new noise on the same sums."""
    record = AggregateRecord(tmp_path)
    secret, is_new = record.secret()
    assert is_new
    assert record.secret() == (secret, False)
    path = tmp_path / "aggregate.key"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(ConfigurationError, match="damaged"):
        record.secret()


def test_messages_fit_whatever_the_number_of_classes_is() -> None:
    for outputs in (1, 15, 9_999):
        assert (
            max(part.stop - part.start for part in spans(100_000, outputs)) * outputs * 64 <= 2**20
        )


def test_nothing_is_charged_before_the_peer_has_sent_a_valid_shape() -> None:
    releases: list[int] = []
    bad = AggregateShape(columns=5, coordinates=4)
    with pytest.raises(ProtocolViolation):
        exchange(
            agreement(),
            make_labels(),
            tamper=lambda message: bad if isinstance(message, AggregateShape) else message,
            tampered="passive",
            releases=releases,
        )
    assert not releases


def changed_values(message: Message) -> Message:
    """Make the first element invalid: all bits are set."""
    assert isinstance(message, EncryptedLabels | AggregateRequest | AggregateAnswer)
    return replace(message, values=b"\xff" * 32 + bytes(message.values)[32:])


def cut_values(message: Message) -> Message:
    assert isinstance(message, EncryptedLabels | AggregateRequest | AggregateAnswer)
    return replace(message, values=bytes(message.values)[:-1])


def moved(message: Message) -> Message:
    assert isinstance(message, EncryptedLabels | AggregateRequest | AggregateAnswer)
    return replace(message, start=message.start + 1)


@pytest.mark.parametrize("change", [changed_values, cut_values, moved])
@pytest.mark.parametrize(
    ("kind", "sender"),
    [(EncryptedLabels, "active"), (AggregateRequest, "passive"), (AggregateAnswer, "active")],
)
def test_malformed_blocks_are_rejected(kind: type, sender: RoleName, change: Tamper) -> None:
    def tamper(message: Message) -> Message:
        return change(message) if isinstance(message, kind) else message

    with pytest.raises(ProtocolViolation):
        exchange(agreement(), make_labels(), tamper=tamper, tampered=sender)


@pytest.mark.parametrize(
    "changes",
    [
        {"public_keys": b""},
        {"public_keys": bytes(32)},
        {"public_keys": b"\xff" * 32},
        {"scale": 3},
        {"centres": (0,)},
        {"centres": ()},
        {"class_counts": (200,)},
        {"class_counts": (1 << 60, 200)},
    ],
)
def test_malformed_terms_are_rejected(changes: dict[str, object]) -> None:
    def tamper(message: Message) -> Message:
        if isinstance(message, AggregateTerms):
            return replace(message, **changes)  # type: ignore[arg-type]
        return message

    with pytest.raises(ProtocolViolation):
        exchange(agreement(), make_labels(), tamper=tamper)


def test_sums_beyond_all_people_are_rejected() -> None:
    """An active party that answers with another number cannot make the other search for ever."""
    far = times_generator(1 << 60).encode()

    def tamper(message: Message) -> Message:
        if isinstance(message, AggregateAnswer):
            return replace(message, values=far + bytes(message.values)[32:])
        return message

    with pytest.raises(FloristError, match="sum is not from"):
        exchange(agreement(), make_labels(), tamper=tamper)


@pytest.mark.parametrize("person", [0, 1], ids=["shared", "only the passive party's"])
def test_a_modified_passive_party_asks_for_one_person_in_every_sum(
    monkeypatch: pytest.MonkeyPatch, person: int
) -> None:
    """Nothing detects it: the noise is independent in each sum, and the mean has hardly any."""
    target = int(SHARED[0]) if person == 0 else PEOPLE - 1
    assert (target in ACTIVE) == (person == 0)
    honest = SumCollector.add

    def add(
        collector: SumCollector,
        ciphertexts: npt.NDArray[np.uint8],
        coordinates: npt.NDArray[np.int32],
        rows: npt.NDArray[np.int64],
    ) -> None:
        everywhere = np.arange(1000, dtype=np.int32)[None, :]
        honest(collector, ciphertexts, everywhere, RANKS[[target]])

    monkeypatch.setattr(SumCollector, "add", add)
    monkeypatch.setattr(Coordinates, "columns", 2)
    monkeypatch.setattr(
        Coordinates,
        "of_table",
        lambda *_: Coordinates(np.zeros(29, dtype=np.int32), np.array([0, 4]), 1000),
    )
    labels = make_labels()
    found = exchange(agreement(epsilon=1.0), labels)
    assert found.aggregate is not None
    code = int(found.aggregate.codes.table()[labels[target], 0]) if person == 0 else 0
    assert found.aggregate.noise > 5
    assert round(float(found.aggregate.sums.mean())) == code
