"""Both halves in memory: every combination trains, and a misbehaving peer is detected."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Timer
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import numpy as np
import pytest
import torch

from florist.common.core.errors import ConfigurationError, FloristError, PeerLost, ProtocolViolation
from florist.common.data.features import Features
from florist.common.settings.agreement import (
    FeatureStrategyName,
    LabelStrategyName,
    StandInTransfer,
    TrainingAgreement,
)
from florist.common.settings.training import Model, Optimiser
from florist.common.synthetic.feature_strategies import FeaSampling
from florist.common.training.row_codec import Diverged
from florist.common.transport import messages
from florist.common.transport.codec import encode
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    ChoiceBlock,
    EmbeddingBlock,
    EpochSummary,
    Goodbye,
    GradientBlock,
    NonceReveal,
    OfferBlock,
    TrainingOpening,
    TransferBlock,
    TransferReply,
    TransferRequest,
)
from florist.common.transport.recording import Direction, RecordingLink
from florist.experiments.simulation import Holdings, SimulationSettings, Wiring, World, simulate
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.stages.training_session import Trained
    from florist.common.transport.channel import Link
    from florist.common.transport.in_memory import InMemoryLink
    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

    Block = EmbeddingBlock | OfferBlock | GradientBlock | messages.TestEmbeddingBlock

M = TypeVar("M")

PEOPLE = 60
LABELS: tuple[LabelStrategyName, ...] = get_args(LabelStrategyName)
FEATURES: tuple[FeatureStrategyName, ...] = get_args(FeatureStrategyName)
MULTI_CLASS = ("label-random-pos", "label-random-pred", "label-neighbors")
STAND_INS: tuple[StandInTransfer, ...] = get_args(StandInTransfer)


def make_world(
    *, classes: int = 2, own: bool = False, people: int = PEOPLE, seed: int = 0
) -> World:
    random = np.random.default_rng(seed)
    cardinalities = (4, 25)

    def features() -> Features:
        categories = [random.integers(0, size, people) for size in cardinalities]
        return Features(
            random.random((people, 3), dtype=np.float32), np.stack(categories, 1).astype(np.int32)
        )

    labels = random.permutation(np.arange(people) % (2 * classes) % classes)
    return World(
        features(),
        labels,
        cardinalities,
        features() if own else None,
        cardinalities if own else (),
    )


#: The active party lacks 24 of 60 people, the passive party 18 others.
HOLDINGS = Holdings(np.arange(36), np.arange(18, 60))


def settings(**agreement: object) -> SimulationSettings:
    values = {
        "epochs": 2,
        "batch_size": 24,
        "micro_batch": 8,
        "cut_width": 4,
        "checkpoint_every": 0,
        **agreement,
    }
    return SimulationSettings(
        TrainingAgreement.model_validate(values),
        Model(hidden=[6, 4], tower=[5]),
        Optimiser(learning_rate=1e-2),
        seed=5,
    )


def strategies(
    labels: str = "label-random-pred", features: str = "fea-sampling"
) -> dict[str, object]:
    """Return the settings of these strategies, with oblivious stand-ins if they are possible."""
    is_possible = labels in MULTI_CLASS and features == "fea-sampling"
    return {
        "labels": {"strategy": labels},
        "features": {"strategy": features},
        "stand_ins": "oblivious" if is_possible else "plain",
    }


def unchanged(link: InMemoryLink) -> Link:
    return link


@contextmanager
def between(
    active: Callable[[InMemoryLink], Link],
    passive: Callable[[InMemoryLink], Link],
    time_limit: float,
) -> Iterator[tuple[Wiring, tuple[InMemoryLink, InMemoryLink]]]:
    """Give the wiring of a simulation, and its links, which fail after `time_limit` seconds."""
    links = linked_pair(grace=0.05)

    def give_up() -> None:
        for link in links:
            link.fail(PeerLost("no progress"))

    watchdog = Timer(time_limit, give_up)
    watchdog.start()
    try:
        yield Wiring(connect=lambda: (active(links[0]), passive(links[1]))), links
    finally:
        watchdog.cancel()


def run(
    how: SimulationSettings,
    world: World | None = None,
    holdings: Holdings = HOLDINGS,
    *,
    test: World | None = None,
) -> tuple[Trained, Trained]:
    """Run a simulation that must succeed within the time limit."""
    with between(unchanged, unchanged, time_limit=60) as (wiring, _):
        return simulate(world or make_world(), holdings, test, how, wiring=wiring)


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    tensors, _ = trained.half.state()
    return {name: tensor.clone() for name, tensor in tensors.items() if name.startswith("model.")}


def are_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    assert ours.keys() == theirs.keys()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def assert_sound(active: Trained, passive: Trained) -> None:
    """Check that all steps were made, and that both parties have the same, finite figures."""
    schedule = active.run.schedule
    assert len(active.run.history.losses) == schedule.steps
    assert all(math.isfinite(loss) for loss in active.run.history.losses)
    assert active.run.history.epochs == passive.run.history.epochs
    assert len(active.run.history.epochs) == schedule.epochs
    rows = schedule.union_size * schedule.epochs
    assert active.run.history.rows == passive.run.history.rows == rows
    for trained in (active, passive):
        assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(trained).values())


# --- every combination ---


@pytest.mark.parametrize("masking", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("labels", LABELS)
def test_every_pair_of_strategies_trains(labels: str, features: str, *, masking: bool) -> None:
    how = settings(**strategies(labels, features), masking=masking)
    assert_sound(*run(how, test=make_world(seed=1)))


@pytest.mark.parametrize("labels", ["label-random-pred", "label-neighbors"])
@pytest.mark.parametrize("features", ["fea-sampling", "fea-gaussian"])
@pytest.mark.parametrize(("batch_size", "micro_batch"), [(256, 8), (50, 1)])
def test_many_micro_batches_do_not_deadlock(
    labels: str, features: str, batch_size: int, micro_batch: int
) -> None:
    """This includes strategies that need the whole batch before they answer or send."""
    how = settings(
        batch_size=batch_size,
        micro_batch=micro_batch,
        epochs=1,
        **strategies(labels, features),
    )
    holdings = Holdings(np.arange(batch_size - 9), np.arange(9, batch_size))
    assert_sound(*run(how, make_world(people=batch_size), holdings))


OPTIONS: dict[str, dict[str, Any]] = {
    "bfloat16": {"wire_type": "bfloat16"},
    "float16": {"wire_type": "float16"},
    "several-samples": {"labels": {"strategy": "label-random-pred", "samples": 5}},
    "re-drawn": {"sticky": False},
    "noise": {"embedding_noise": 1.5},
    "no-noise": {"embedding_noise": 0.0},
    "calibrated-at-the-end": {"calibration": "test"},
    "not-calibrated": {"calibration": "none"},
    "one-batch": {"batch_size": 1000, "micro_batch": 1000},
    "single-rows": {"batch_size": 1, "micro_batch": 1, "epochs": 1},
    "uneven-parts": {"batch_size": 33, "micro_batch": 10},
}


@pytest.mark.parametrize("stand_ins", STAND_INS)
@pytest.mark.parametrize(("classes", "own"), [(2, False), (3, True)])
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_trains(
    option: str, classes: int, stand_ins: StandInTransfer, *, own: bool
) -> None:
    world, test = (make_world(classes=classes, own=own, seed=seed) for seed in (0, 1))
    how = settings(classes=classes, stand_ins=stand_ins, **OPTIONS[option])
    assert_sound(*run(how, world, test=test))


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("masking", [True, False], ids=["masked", "unmasked"])
def test_own_features_of_the_active_party_train(labels: str, *, masking: bool) -> None:
    how = settings(**strategies(labels), masking=masking)
    world, test = make_world(own=True), make_world(own=True, seed=1)
    assert_sound(*run(how, world, test=test))


@pytest.mark.parametrize("labels", MULTI_CLASS)
@pytest.mark.parametrize("features", FEATURES)
def test_several_classes_train(labels: str, features: str) -> None:
    how = settings(classes=3, **strategies(labels, features))
    active, passive = run(how, make_world(classes=3), test=make_world(classes=3, seed=1))
    assert_sound(active, passive)
    assert active.half.calibration_points() is None


@pytest.mark.parametrize("labels", ["label-majority", "label-minority"])
def test_constant_labels_are_refused_with_several_classes(labels: str) -> None:
    how = settings(classes=3, **strategies(labels))
    with pytest.raises(ConfigurationError, match="label-random-pos, label-random-pred"):
        run(how, make_world(classes=3))


def test_parties_without_shared_people_cannot_train() -> None:
    with pytest.raises(ConfigurationError, match="nobody in common"):
        run(settings(), holdings=Holdings(np.arange(30), np.arange(30, 60)))


@pytest.mark.parametrize("wire_type", ["float32", "float16"])
def test_a_run_that_diverges_reports_why(wire_type: str) -> None:
    how = replace(settings(wire_type=wire_type), optimiser=Optimiser(learning_rate=1e15))
    ends = between(unchanged, unchanged, time_limit=60)
    with ends as (wiring, links), pytest.raises(FloristError):
        simulate(make_world(), HOLDINGS, None, how, wiring=wiring)
    (reason,) = [str(link.failure) for link in links if isinstance(link.failure, Diverged)]
    assert "learning_rate" in reason


# --- reproducibility ---


@pytest.mark.parametrize(("labels", "features"), [*zip(LABELS, FEATURES * 2, strict=False)])
def test_the_same_seed_gives_the_same_run(labels: str, features: str) -> None:
    how = settings(**strategies(labels, features), embedding_noise=0.3)
    test = make_world(seed=1)
    first, again = run(how, test=test), run(how, test=test)
    for one, other in zip(first, again, strict=True):
        assert one.run.history.losses == other.run.history.losses
        assert one.run.history.epochs == other.run.history.epochs
        assert are_equal(weights(one), weights(other))
    another = run(replace(how, seed=6), test=test)
    assert another[0].run.history.losses != first[0].run.history.losses


@pytest.mark.parametrize("labels", ["label-random-pred", "label-majority"])
def test_the_size_of_micro_batches_makes_no_difference(labels: str) -> None:
    """Only rounding differs, and noise, which each micro-batch has its own."""
    losses = [
        run(settings(micro_batch=size, embedding_noise=0.0, **strategies(labels)))[
            0
        ].run.history.losses
        for size in (3, 8, 1000)
    ]
    for other in losses[1:]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-4)


def test_a_test_table_does_not_change_the_weights() -> None:
    without, tested = run(settings()), run(settings(), test=make_world(seed=1))
    for one, other in zip(without, tested, strict=True):
        assert are_equal(weights(one), weights(other))
        assert [figures.auc for figures in one.run.history.epochs] == [None, None]
        assert all(0 <= (figures.auc or -1) <= 1 for figures in other.run.history.epochs)


# --- which rows each half learns from ---


@dataclass(frozen=True)
class FirstStep:
    """Both halves after one step over all people, and the gradients that were sent."""

    active: dict[str, torch.Tensor]
    passive: dict[str, torch.Tensor]
    gradients: bytes


def first_step(labels: str = "label-majority", **agreement: object) -> FirstStep:
    how = settings(
        epochs=1,
        batch_size=PEOPLE,
        micro_batch=PEOPLE,
        embedding_noise=0.0,
        labels={"strategy": labels},
        stand_ins="plain",
        **agreement,
    )
    # Not Adam, whose first step depends almost only on the sign of the gradient.
    plain = replace(how, optimiser=Optimiser(name="sgd", learning_rate=0.1))
    link = RecordedLink()
    with between(link.record, unchanged, time_limit=60) as (wiring, _):
        active, passive = simulate(make_world(), HOLDINGS, None, plain, wiring=wiring)
    (gradients,) = link.messages(GradientBlock)
    return FirstStep(weights(active), weights(passive), bytes(gradients.values))


@pytest.mark.parametrize("calibration", ["none", "train"])
@pytest.mark.parametrize("masking", [True, False])
def test_only_without_masking_the_top_model_learns_from_synthetic_labels(
    calibration: str, *, masking: bool
) -> None:
    """The gradients that are sent contain them in either case."""
    majority, minority = (
        first_step(labels, masking=masking, calibration=calibration)
        for labels in ("label-majority", "label-minority")
    )
    assert majority.gradients != minority.gradients
    assert are_equal(majority.active, minority.active) is masking
    assert not are_equal(majority.passive, minority.passive)


@pytest.mark.parametrize("masking", [True, False])
def test_only_without_masking_the_bottom_model_learns_from_stand_ins(
    monkeypatch: pytest.MonkeyPatch, *, masking: bool
) -> None:
    """Gradients of real rows do not depend on other rows; those of stand-ins are ignored."""
    steps = []
    for row in (0, 1):
        monkeypatch.setattr(FeaSampling, "donors", lambda _, ranks, __, row=row: 0 * ranks + row)
        steps.append(first_step(masking=masking))
    assert steps[0].gradients != steps[1].gradients
    assert are_equal(steps[0].passive, steps[1].passive) is masking
    assert not are_equal(steps[0].active, steps[1].active)


# --- messages ---


@dataclass
class RecordedLink:
    """The active party's end of the link, recorded once it is passed to `between`."""

    link: RecordingLink | None = None

    def record(self, link: InMemoryLink) -> Link:
        self.link = RecordingLink(link)
        return self.link

    def messages(self, kind: type[M]) -> list[M]:
        assert self.link is not None
        return [r.message for r in self.link.records if isinstance(r.message, kind)]

    @property
    def sizes(self) -> list[tuple[object, ...]]:
        """Return channel, type and bytes of all messages, by channel and direction."""
        assert self.link is not None
        return [
            (direction, channel, type(r.message), len(encode(r.message)))  # type: ignore[arg-type]
            for channel in ("training", "transfers")
            for direction in Direction
            for r in self.link.records
            if (r.direction, r.channel) == (direction, channel)
        ]


def recorded_run(holdings: Holdings, **agreement: object) -> RecordedLink:
    link = RecordedLink()
    with between(link.record, unchanged, time_limit=60) as (wiring, _):
        simulate(make_world(), holdings, make_world(seed=1), settings(**agreement), wiring=wiring)
    return link


@pytest.mark.parametrize("stand_ins", STAND_INS)
def test_number_of_messages_of_each_type(stand_ins: StandInTransfer) -> None:
    """An epoch has batches of 24, 24 and 12 rows and a test table of 60, in blocks of 8 or 4."""
    counts = Counter(kind for _, _, kind, _ in recorded_run(HOLDINGS, stand_ins=stand_ins).sizes)
    transfers: dict[type, int] = {
        TransferRequest: 1,
        TransferReply: 1,
        TransferBlock: 1,
        ChoiceBlock: 2 * 3,
    }
    is_plain = stand_ins == "plain"
    assert counts == {
        **({} if is_plain else transfers),
        TrainingOpening: 2,
        NonceReveal: 2,
        EmbeddingBlock if is_plain else OfferBlock: 2 * (4 + 4 + 2),
        GradientBlock: 2 * (4 + 4 + 2),
        messages.TestEmbeddingBlock: 2 * 8,
        EpochSummary: 2,
    }


@pytest.mark.parametrize(
    ("labels", "features"),
    [("label-random-pred", "fea-sampling"), ("label-neighbors", "fea-random")],
)
def test_message_sizes_do_not_depend_on_who_is_shared(labels: str, features: str) -> None:
    """With other people shared but the same counts, all messages have the same sizes."""
    agreed = strategies(labels, features)
    others = Holdings(np.arange(12, 48), np.r_[0:12, 20:38, 48:60])
    assert [len(rows) for rows in (others.active, others.passive, others.shared.active)] == [
        len(rows) for rows in (HOLDINGS.active, HOLDINGS.passive, HOLDINGS.shared.active)
    ]
    expected = recorded_run(HOLDINGS, **agreed).sizes
    assert recorded_run(others, **agreed).sizes == expected


# --- misbehaving peers ---


def with_first_value(number: float) -> Callable[[Any], list[Message]]:
    value = np.float32(number).tobytes()
    return lambda block: [replace(block, values=value + bytes(block.values)[4:])]


def at_step(block: Block, step: int) -> list[Message]:
    """Change the step of a block or, for a block of the test table, its epoch."""
    if isinstance(block, messages.TestEmbeddingBlock):
        return [replace(block, epoch=step)]
    return [replace(block, step=step)]


def as_the_other_kind(block: Block) -> list[Message]:
    if isinstance(block, messages.TestEmbeddingBlock):
        return [EmbeddingBlock(block.epoch, block.start, block.values)]
    kind = EmbeddingBlock if isinstance(block, GradientBlock | OfferBlock) else GradientBlock
    return [kind(block.step, block.start, block.values)]


def with_random_bytes(block: OfferBlock) -> list[Message]:
    """Whatever they are decrypted with, the result has values that are not finite, or huge."""
    values = np.random.default_rng(0).bytes(len(block.values))
    return [replace(block, values=values)]


#: What a misbehaving peer sends instead of a block, and part of the error that it must cause.
BAD_BLOCKS: dict[str, tuple[Callable[[Any], list[Message]], str]] = {
    "of-another-step": (lambda b: at_step(b, 1), ", instead of "),
    "of-a-far-step": (lambda b: at_step(b, 2**31), ", instead of "),
    "of-later-rows": (lambda b: [replace(b, start=b.start + 8)], ", instead of "),
    "of-no-rows": (lambda b: [replace(b, values=b"")], "0 bytes instead of"),
    "a-row-short": (lambda b: [replace(b, values=b.values[:-16])], "bytes instead of"),
    "a-byte-short": (lambda b: [replace(b, values=b.values[:-1])], "bytes instead of"),
    "a-row-long": (lambda b: [replace(b, values=bytes(b.values) + bytes(16))], "bytes instead of"),
    "of-another-width": (lambda b: [replace(b, values=bytes(b.values) * 2)], "cut_width"),
    "nan": (with_first_value(math.nan), "NaN or infinity"),
    "infinite": (with_first_value(-math.inf), "NaN or infinity"),
    "repeated": (lambda b: [b, b], ", instead of "),
    "omitted": (lambda _: [], ", instead of "),
    "of-the-other-kind": (as_the_other_kind, "was expected"),
    "a-goodbye": (lambda _: [Goodbye()], "Goodbye"),
}
#: The same for offers, which the peer decrypts.
BAD_OFFERS = {
    name: bad
    for name, bad in BAD_BLOCKS.items()
    if name not in {"nan", "infinite", "of-another-width"}
} | {
    "of-another-width": (lambda b: [replace(b, values=bytes(b.values) * 2)], "bytes instead of"),
    "random": (with_random_bytes, "the peer's"),
}
BAD_SUMMARIES: dict[str, tuple[Callable[[Any], list[Message]], str]] = {
    "of-another-epoch": (lambda s: [replace(s, epoch=s.epoch + 1)], "not for epoch 0"),
    "without-a-loss": (lambda s: [replace(s, loss=math.nan)], "NaN or infinity"),
    "with-an-infinite-figure": (lambda s: [replace(s, ace=math.inf)], "NaN or infinity"),
    "without-a-test": (lambda s: [EpochSummary(s.epoch, s.loss)], "not for epoch 0"),
    "repeated": (lambda s: [s, s], "EpochSummary"),
    "a-goodbye": (lambda _: [Goodbye()], "Goodbye"),
}


def outcome_of_honest_party(
    tamper: Tamper,
    *,
    bad_is_active: bool,
    time_limit: float = 30.0,
    stand_ins: StandInTransfer = "oblivious",
) -> FloristError | None:
    """Return how a run with a tampering party ends for the other; None if it succeeds."""

    def tampering(link: InMemoryLink) -> Link:
        return TamperingLink(link, tamper)

    ends = (tampering, unchanged) if bad_is_active else (unchanged, tampering)
    with between(*ends, time_limit=time_limit) as (wiring, links), suppress(FloristError):
        how = settings(embedding_noise=0.0, stand_ins=stand_ins)
        simulate(make_world(), HOLDINGS, make_world(seed=1), how, wiring=wiring)
    return links[int(bad_is_active)].failure


def on_block(
    kind: type[Block], change: Callable[[Any], list[Message]], step: int, start: int
) -> Tamper:
    """Change the block with this type, step (or epoch, for the test table) and first row."""

    def tamper(message: Message) -> list[Message]:
        if not isinstance(message, kind) or message.start != start:
            return [message]
        found = message.epoch if isinstance(message, messages.TestEmbeddingBlock) else message.step
        return change(message) if found == step else [message]

    return tamper


def outcome_of_bad_block(
    kind: type[Block], change: Callable[[Any], list[Message]], step: int, start: int
) -> FloristError | None:
    return outcome_of_honest_party(
        on_block(kind, change, step, start),
        bad_is_active=kind is GradientBlock,
        stand_ins="plain" if kind is EmbeddingBlock else "oblivious",
    )


@pytest.mark.parametrize(
    ("kind", "step", "start"),
    [
        (EmbeddingBlock, 0, 0),
        (EmbeddingBlock, 4, 4),
        (messages.TestEmbeddingBlock, 0, 40),
        (GradientBlock, 0, 0),
        (GradientBlock, 4, 4),
    ],
    ids=["first-embeddings", "embeddings", "test-embeddings", "first-gradients", "gradients"],
)
@pytest.mark.parametrize("bad", BAD_BLOCKS)
def test_a_bad_block_is_reported_and_ends_the_run(
    bad: str, kind: type[Block], step: int, start: int
) -> None:
    change, message = BAD_BLOCKS[bad]
    outcome = outcome_of_bad_block(kind, change, step, start)
    assert isinstance(outcome, ProtocolViolation)
    assert message in str(outcome)


@pytest.mark.parametrize(("step", "start"), [(0, 0), (4, 4)])
@pytest.mark.parametrize("bad", BAD_OFFERS)
def test_bad_offers_are_reported_and_end_the_run(bad: str, step: int, start: int) -> None:
    change, message = BAD_OFFERS[bad]
    outcome = outcome_of_bad_block(OfferBlock, change, step, start)
    assert isinstance(outcome, ProtocolViolation)
    assert message in str(outcome)


#: What a misbehaving active party sends instead of its choices for step 4.
BAD_CHOICES: dict[str, tuple[Callable[[Any], list[Message]], str]] = {
    "of-another-step": (lambda b: [replace(b, step=3)], "for step 3 instead of 4"),
    "a-byte-short": (lambda b: [replace(b, values=b.values[:-1])], "bytes, not"),
    "a-byte-long": (lambda b: [replace(b, values=bytes(b.values) + b"x")], "bytes, not"),
    "repeated": (lambda b: [b, b], "for step 4 instead of 5"),
    "omitted": (lambda _: [], "for step 5 instead of 4"),
    "another-block": (lambda b: [TransferBlock(1, b.values)], "was expected"),
}


@pytest.mark.parametrize("bad", BAD_CHOICES)
def test_bad_choices_are_reported_and_end_the_run(bad: str) -> None:
    """The passive party receives them in the background, while it works on the step before."""
    change, message = BAD_CHOICES[bad]
    outcome = outcome_of_honest_party(
        lambda m: change(m) if isinstance(m, ChoiceBlock) and m.step == 4 else [m],
        bad_is_active=True,
    )
    assert isinstance(outcome, ProtocolViolation)
    assert message in str(outcome)


@pytest.mark.parametrize("step", [0, 4])
@pytest.mark.parametrize("kind", [EmbeddingBlock, GradientBlock])
def test_values_far_above_the_usual_scale_end_the_run(kind: type[Block], step: int) -> None:
    outcome = outcome_of_bad_block(kind, with_first_value(-1e6), step, start=4)
    assert isinstance(outcome, ProtocolViolation)
    assert f"step {step}: the peer's" in str(outcome)
    assert "times as large" in str(outcome)


@pytest.mark.parametrize("bad", BAD_SUMMARIES)
def test_a_bad_summary_is_reported_and_ends_the_run(bad: str) -> None:
    change, message = BAD_SUMMARIES[bad]
    outcome = outcome_of_honest_party(
        lambda m: change(m) if isinstance(m, EpochSummary) and m.epoch == 0 else [m],
        bad_is_active=True,
    )
    assert isinstance(outcome, ProtocolViolation)
    assert message in str(outcome)


@pytest.mark.parametrize("kind", [OfferBlock, GradientBlock])
def test_a_missing_last_block_ends_with_a_timeout(
    kind: type[Block],
) -> None:
    """Both parties wait until the session times out."""
    tamper = on_block(kind, lambda _: [], step=1, start=20)
    outcome = outcome_of_honest_party(tamper, bad_is_active=kind is GradientBlock, time_limit=1.0)
    assert isinstance(outcome, PeerLost)


def test_a_missing_summary_ends_with_a_timeout() -> None:
    outcome = outcome_of_honest_party(
        lambda m: [] if isinstance(m, EpochSummary) else [m], bad_is_active=True, time_limit=1.0
    )
    assert isinstance(outcome, PeerLost)


def test_an_honest_run_succeeds_over_the_same_link() -> None:
    for bad_is_active in (True, False):
        outcome = outcome_of_honest_party(lambda m: [m], bad_is_active=bad_is_active)
        assert outcome is None
