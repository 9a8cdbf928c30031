"""Both sides of an evaluation in memory: unbiased, reproducible, and silent about membership."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from florist.active_party.evaluation import evaluate_active
from florist.common.bundle.bundle import ActiveBundle, PassiveBundle
from florist.common.core.errors import FloristError, ProtocolViolation, as_florist_error
from florist.common.core.progress import NoProgress
from florist.common.data.features import Features
from florist.common.data.preprocessing import Preprocessing
from florist.common.evaluation import metrics
from florist.common.evaluation.evaluation_data import EVALUATION, EvaluationData
from florist.common.evaluation.reserved_rows import evaluation_stand_ins, random_rows
from florist.common.evaluation.stand_in_count import most_stand_ins
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import Agreement, EvaluationAgreement
from florist.common.settings.data import PreprocessingSettings
from florist.common.settings.training import Model
from florist.common.synthetic.calibration import Calibration, Mixture
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.training.model_factory import make_agreed_active, make_bottom
from florist.common.transport.codec import encode
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    EmbeddingBlock,
    EvaluationEmbeddingBlock,
    EvaluationSummary,
)
from florist.common.transport.recording import RecordingLink
from florist.passive_party.evaluation import evaluate_passive
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from florist.common.evaluation.metric_estimates import Evaluation
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message

    Rows = npt.NDArray[np.int64]

CPU = torch.device("cpu")
COLUMNS = 3
REPEATED = EvaluationAgreement(table=True, stand_ins="repeated")
NOTHING = Preprocessing(PreprocessingSettings(), (), ())


# --- a model, and people whose labels depend on it ---


def bundles(*, own: bool = False, **training: Any) -> tuple[ActiveBundle, PassiveBundle]:  # noqa: ANN401
    """Return both halves of a model with numeric features, whose predictions vary."""
    values = {"cut_width": 4, "micro_batch": 100, "embedding_noise": 0.0, **training}
    agreement = Agreement.model_validate({"training": values})
    bottom = make_bottom(
        Model(hidden=[6, 4]),
        numeric=COLUMNS,
        cardinalities=(),
        cut_width=4,
        wide=agreement.training.wide_outputs,
        device=CPU,
        seed=3,
    )
    top = make_agreed_active(
        agreement.training,
        Model(hidden=[6], tower=[4]),
        numeric=COLUMNS if own else 0,
        cardinalities=(),
        device=CPU,
        seed=4,
    )
    with torch.no_grad():
        top.top.output.weight *= 6
        sample = random_features(4000, np.random.default_rng(0))
        rows = torch.from_numpy(sample.numeric)
        none = torch.empty(len(rows), 0, dtype=torch.int64)
        logits = top(bottom(rows, none), *((rows.flip(0), none) if own else ()))
        top.top.output.bias.sub_(logits.mean(0))
    common = {
        "run": bytes(32),
        "peer_digest": bytes(32),
        "agreement": agreement,
        "union_sha256": "",
        "preprocessing": NOTHING,
        "device": CPU,
    }
    classes = agreement.training.classes
    calibration = Calibration(agreement.training.calibration, Mixture.identity(classes))
    return (
        ActiveBundle(
            role="active",
            digest=b"a" * 32,
            model=top,
            calibration=calibration,
            class_names=("0", "1"),
            **common,  # type: ignore[arg-type]
        ),
        PassiveBundle(role="passive", digest=b"p" * 32, model=bottom, **common),  # type: ignore[arg-type]
    )


def random_features(rows: int, random: np.random.Generator) -> Features:
    return Features(
        random.random((rows, COLUMNS), dtype=np.float32), np.empty((rows, 0), dtype=np.int32)
    )


@dataclass(frozen=True)
class People:
    """All people: features of the passive party, features of the active party, and labels."""

    features: Features
    own: Features
    labels: Rows
    predictions: npt.NDArray[np.float64]


def make_people(
    halves: tuple[ActiveBundle, PassiveBundle], rows: int, random: np.random.Generator
) -> People:
    """Draw people whose labels are less certain than the model predicts."""
    active, passive = halves
    features, own = random_features(rows, random), random_features(rows, random)
    scores = active.predict(passive.embed(features), own if active.has_features else None)
    predictions = scores.numpy().astype(np.float64)
    if predictions.ndim == 1:
        labels = random.random(rows) < 0.2 + 0.6 * predictions
    else:
        labels = (random.random(rows)[:, None] > np.cumsum(predictions, 1)[:, :-1]).sum(1)
    return People(features, own, labels.astype(np.int64), predictions)


def row_of_each(parts: EvaluationData) -> Rows:
    """Return the row that the passive party embeds for each UID."""
    return evaluation_stand_ins(parts).rows(np.arange(parts.sizes.union))


# --- an evaluation ---


@dataclass(frozen=True)
class Overlap:
    """The people that each party has in the union, and the passive party's reserved rows."""

    active: Rows
    passive: Rows
    reserve: Rows

    @classmethod
    def of(cls, active: int, passive: int, shared: int, random: np.random.Generator) -> Overlap:
        """Draw people at random; there are as many reserved rows as the active party has people."""
        everyone = random.permutation(2 * active + passive - shared)
        return cls(
            everyone[:active],
            everyone[active - shared : active - shared + passive],
            everyone[active - shared + passive :],
        )


def parts_of(
    people: People,
    overlap: Overlap,
    agreement: EvaluationAgreement | None = None,
    seed: int = 1,
    *,
    own: bool = False,
) -> tuple[EvaluationData, EvaluationData]:
    """Return both parties' data as after an alignment, with random ranks."""
    agreement = agreement or EvaluationAgreement(table=True)
    union = np.union1d(overlap.active, overlap.passive)
    rank_of = np.full(len(people.labels), -1)
    rank_of[union] = np.random.RandomState(seed).permutation(len(union))
    sizes = len(overlap.active), len(overlap.passive)
    table = np.concatenate((overlap.passive, overlap.reserve))
    active = EvaluationData(
        agreement,
        Membership.of(rank_of[overlap.active], len(union)),
        UnionSizes(*sizes, len(union)),
        np.empty(0, dtype=np.int64),
        people.own.take(overlap.active) if own else None,
        people.labels[overlap.active],
        SecretDraws.from_seed(seed),
    )
    passive = EvaluationData(
        agreement,
        Membership.of(rank_of[overlap.passive], len(union)),
        UnionSizes(*sizes[::-1], len(union)),
        np.arange(len(overlap.passive), len(table)),
        people.features.take(table),
        None,
        SecretDraws.from_seed(seed + 1),
    )
    return active, passive


def as_it_is(link: Link) -> Link:
    return link


def run(
    halves: tuple[ActiveBundle, PassiveBundle],
    parts: tuple[EvaluationData, EvaluationData],
    *,
    active: Callable[[Link], Link] = as_it_is,
    passive: Callable[[Link], Link] = as_it_is,
) -> tuple[Evaluation | FloristError, Evaluation | FloristError | None]:
    """Run both sides in threads; return what each found, or its error."""
    links = linked_pair(grace=0.05)

    def end(evaluate: Callable[..., Any], side: int, wrap: Callable[[Link], Link]) -> Any:  # noqa: ANN401
        link = wrap(links[side])
        try:
            channel = link.channel(EVALUATION)
            return evaluate(halves[side], parts[side], channel, NoProgress()).found
        except FloristError as error:
            link.fail(as_florist_error(error))
            return error

    with ThreadPoolExecutor(2) as both:
        ends = (
            both.submit(end, evaluate_active, 0, active),
            both.submit(end, evaluate_passive, 1, passive),
        )
        found = ends[0].result(timeout=30), ends[1].result(timeout=30)
    for link in links:
        link.close()
    return found


def evaluated(
    halves: tuple[ActiveBundle, PassiveBundle], parts: tuple[EvaluationData, EvaluationData]
) -> Evaluation:
    ours, _ = run(halves, parts)
    assert not isinstance(ours, FloristError)
    return ours


# --- the estimate ---


@pytest.mark.parametrize("own", [False, True], ids=["labels-only", "own-features"])
@pytest.mark.parametrize("shared", [80, 240, 560, 800])
def test_unbiased_whatever_the_overlap(shared: int, *, own: bool) -> None:
    """The overlap ranges from a tenth of the active party's people to all of them."""
    halves = bundles(own=own)
    random = np.random.default_rng(shared)
    replications = 25
    truth = make_people(halves, 150_000, np.random.default_rng(1))
    true = metrics.evaluate(truth.labels, truth.predictions)
    assert true.auc > 0.6
    found = []
    for _ in range(replications):
        overlap = Overlap.of(800, 1000, shared, random)
        people = make_people(halves, 2 * 800 + 1000, random)
        found.append(evaluated(halves, parts_of(people, overlap, own=own)))
    for name in ("auc", "log_loss"):
        values = np.array([getattr(each, name).value for each in found])
        errors = np.array([getattr(each, name).standard_error for each in found])
        expected = errors.mean() / math.sqrt(replications)
        assert abs(values.mean() - getattr(true, name)) < 3 * expected
        assert 0.6 < values.std() / errors.mean() < 1.6
        covered = np.abs(values - getattr(true, name)) < 1.96 * errors
        assert covered.mean() >= 0.8
    assert {(each.rows, each.shared) for each in found} == {(800, shared)}


def test_estimates_equal_the_models_metrics_if_all_are_shared() -> None:
    halves = bundles(calibration="test")
    people = make_people(halves, 900, np.random.default_rng(2))
    everyone = np.arange(300)
    found = evaluated(halves, parts_of(people, Overlap(everyone, everyone, np.arange(300, 600))))
    true = metrics.evaluate(people.labels[:300], people.predictions[:300])
    assert found.auc.value == pytest.approx(true.auc)
    assert found.log_loss.value == pytest.approx(true.log_loss)
    assert found.ace.value == pytest.approx(true.ace)


@pytest.mark.parametrize("own", [False, True], ids=["labels-only", "own-features"])
def test_several_classes(*, own: bool) -> None:
    halves = bundles(own=own, classes=3)
    people = make_people(halves, 2200, np.random.default_rng(3))
    overlap = Overlap.of(600, 1000, 400, np.random.default_rng(4))
    found = evaluated(halves, parts_of(people, overlap, own=own))
    true = metrics.evaluate(people.labels, people.predictions)
    assert abs(found.auc.value - true.auc) < 4 * found.auc.standard_error
    assert found.curve is None


def test_noise_is_added_only_if_rows_are_copied() -> None:
    quiet, noisy = bundles(), bundles(embedding_noise=3.0)
    people = make_people(quiet, 6000, np.random.default_rng(5))
    everyone = np.arange(3000)
    once = parts_of(people, Overlap(everyone, everyone, np.arange(3000, 6000)))
    assert evaluated(noisy, once).auc == evaluated(quiet, once).auc
    repeated = parts_of(people, Overlap(everyone, everyone, np.arange(3000, 6000)), REPEATED)
    assert evaluated(noisy, repeated).auc.high < evaluated(quiet, repeated).auc.low


# --- stand-ins ---


def passive_parts(agreement: EvaluationAgreement | None = None) -> EvaluationData:
    halves = bundles()
    people = make_people(halves, 700, np.random.default_rng(6))
    overlap = Overlap.of(200, 300, 120, np.random.default_rng(7))
    return parts_of(people, overlap, agreement)[1]


def test_stand_ins_are_used_once_and_are_not_in_the_union() -> None:
    """No two embeddings are of the same row, so nothing distinguishes a stand-in."""
    parts = passive_parts()
    rows = row_of_each(parts)
    own = parts.membership.row_of_rank
    assert np.array_equal(rows[own >= 0], own[own >= 0])
    assert len(np.unique(rows)) == len(rows) == 380
    assert set(rows[own < 0].tolist()) <= set(parts.kept_out.tolist())
    assert np.array_equal(row_of_each(parts), rows)
    other = replace(parts, draws=SecretDraws.from_seed(99))
    assert not np.array_equal(row_of_each(other), rows)


@pytest.mark.parametrize("agreement", [None, REPEATED], ids=["once", "repeated"])
def test_stand_ins_do_not_depend_on_labels(agreement: EvaluationAgreement | None) -> None:
    """The estimate is unbiased only then, so they are not those of (oblivious) training."""
    halves = bundles(embedding_noise=0.1)
    assert halves[0].agreement.training.stand_ins == "oblivious"
    people = make_people(halves, 900, np.random.default_rng(21))
    overlap = Overlap.of(250, 300, 100, np.random.default_rng(22))
    sent = []
    for labels in (people.labels, 1 - people.labels):
        parts = parts_of(replace(people, labels=labels), overlap, agreement)
        sent.append([m for way, m in records(halves, parts) if way == "received"])
    assert len(sent[0]) == 5
    assert sent[0] == sent[1]


def test_repeated_stand_ins_are_any_rows() -> None:
    parts = passive_parts(REPEATED)
    rows = row_of_each(parts)
    own = parts.membership.row_of_rank
    assert np.array_equal(rows[own >= 0], own[own >= 0])
    assert np.isin(rows[own < 0], own[own >= 0]).any()
    assert np.array_equal(row_of_each(parts), rows)


def test_a_peer_with_more_uids_than_reserved_rows_is_refused() -> None:
    halves = bundles()
    people = make_people(halves, 700, np.random.default_rng(8))
    ours, theirs = parts_of(people, Overlap.of(200, 300, 120, np.random.default_rng(9)))
    few = replace(theirs, kept_out=theirs.kept_out[:79])
    ends = run(halves, (ours, few))
    assert isinstance(ends[1], ProtocolViolation)
    assert "200 UIDs into the union, which is more than was agreed" in str(ends[1])


@pytest.mark.parametrize(
    ("rows", "padding", "most", "rounded"),
    [(3, 0, 1, 1), (100, 0, 33, 32), (100, 1, 32, 32), (100, 2, 31, 16), (100, 32, 1, 1)],
)
def test_number_of_reserved_rows(rows: int, padding: int, most: int, rounded: int) -> None:
    assert most_stand_ins(rows, padding) == most
    assert most_stand_ins(rows, padding, rounded=True) == rounded


def test_rows_in_the_union_are_random() -> None:
    chosen = random_rows(50, 20, SecretDraws.from_seed(1))
    assert len(set(chosen.tolist())) == 20
    assert np.array_equal(chosen, np.sort(chosen))
    assert np.array_equal(chosen, random_rows(50, 20, SecretDraws.from_seed(1)))
    assert not np.array_equal(chosen, random_rows(50, 20, SecretDraws.from_seed(2)))


# --- messages ---


def records(
    halves: tuple[ActiveBundle, PassiveBundle], parts: tuple[EvaluationData, EvaluationData]
) -> list[tuple[str, Any]]:
    kept: list[RecordingLink] = []

    def wrap(link: Link) -> Link:
        kept.append(RecordingLink(link))
        return kept[-1]

    run(halves, parts, active=wrap)
    return [(record.direction.value, record.message) for record in kept[0].records]


def test_messages_have_the_same_sizes_and_order_for_every_membership() -> None:
    """Only embeddings and the summary are sent."""
    halves = bundles(embedding_noise=0.1)
    people = make_people(halves, 900, np.random.default_rng(10))
    shapes = set()
    for seed in range(3):
        overlap = Overlap.of(250, 300, 100, np.random.default_rng(seed))
        seen = records(halves, parts_of(people, overlap, seed=seed))
        assert {type(message) for _, message in seen} == {
            EvaluationEmbeddingBlock,
            EvaluationSummary,
        }
        shapes.add(tuple((way, type(m).__name__, len(encode(m))) for way, m in seen))
    assert len(shapes) == 1


def test_a_repeated_evaluation_sends_the_same_bytes() -> None:
    """Another model has different noise, so repetition reveals nothing."""
    active, passive = bundles(embedding_noise=0.1)
    people = make_people((active, passive), 900, np.random.default_rng(11))
    overlap = Overlap.of(250, 300, 100, np.random.default_rng(12))
    parts = parts_of(people, overlap, REPEATED)
    first, again = (records((active, passive), parts) for _ in range(2))
    assert first == again
    other = records((active, replace(passive, digest=b"q" * 32)), parts)
    assert [type(m) for _, m in first] == [type(m) for _, m in other]
    assert first[0] != other[0]


@pytest.mark.parametrize("learns", ["figures", "nothing"])
def test_the_passive_party_learns_what_is_agreed(learns: str) -> None:
    agreement = EvaluationAgreement.model_validate({"table": True, "passive_learns": learns})
    halves = bundles()
    people = make_people(halves, 900, np.random.default_rng(13))
    parts = parts_of(people, Overlap.of(250, 300, 100, np.random.default_rng(14)), agreement)
    ours, theirs = run(halves, parts)
    assert not isinstance(ours, FloristError)
    if learns == "nothing":
        assert theirs is None
        return
    assert theirs is not None
    assert not isinstance(theirs, FloristError)
    assert (theirs.auc, theirs.ace, theirs.log_loss) == (ours.auc, ours.ace, ours.log_loss)
    assert theirs.curve is None


@pytest.mark.parametrize(
    "lie",
    [
        EvaluationSummary(),
        EvaluationSummary(0.7, 0.1, 0.1, 0.1, 0.5, None),
        EvaluationSummary(math.nan, 0.1, 0.1, 0.1, 0.5, 0.1),
        EvaluationSummary(0.7, -0.1, 0.1, 0.1, 0.5, 0.1),
    ],
    ids=str,
)
def test_an_invalid_summary_is_refused(lie: EvaluationSummary) -> None:
    halves = bundles()
    people = make_people(halves, 900, np.random.default_rng(15))
    parts = parts_of(people, Overlap.of(250, 300, 100, np.random.default_rng(16)))

    def lying(link: Link) -> Link:
        return TamperingLink(link, lambda m: [lie if isinstance(m, EvaluationSummary) else m])

    _, theirs = run(halves, parts, active=lying)
    assert isinstance(theirs, ProtocolViolation)
    assert "does not match the agreement" in str(theirs)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda block: replace(block, start=block.start + 1),
        lambda block: EmbeddingBlock(0, block.start, block.values),
        lambda block: replace(block, values=block.values[:-4]),
        lambda block: replace(block, values=b"\xff" * len(block.values)),
    ],
    ids=["rank", "type", "length", "nan"],
)
def test_invalid_embeddings_are_refused(
    spoil: Callable[[EvaluationEmbeddingBlock], Message],
) -> None:
    halves = bundles()
    people = make_people(halves, 900, np.random.default_rng(17))
    parts = parts_of(people, Overlap.of(250, 300, 100, np.random.default_rng(18)))

    def lying(link: Link) -> Link:
        return TamperingLink(
            link, lambda m: [spoil(m) if isinstance(m, EvaluationEmbeddingBlock) else m]
        )

    ours, _ = run(halves, parts, passive=lying)
    assert isinstance(ours, ProtocolViolation)


# --- attacks ---


def collision_auc(agreement: EvaluationAgreement | None) -> float:
    """Return how well the distance to the nearest embedding separates real rows from stand-ins."""
    halves = bundles()
    people = make_people(halves, 1600, np.random.default_rng(19))
    overlap = Overlap.of(500, 600, 250, np.random.default_rng(20))
    parts = parts_of(people, overlap, agreement)
    blocks = [
        m.values for _, m in records(halves, parts) if isinstance(m, EvaluationEmbeddingBlock)
    ]
    width = halves[0].agreement.training.wire_width
    embeddings = torch.from_numpy(np.frombuffer(b"".join(blocks), "<f4").reshape(-1, width).copy())
    distances = torch.cdist(embeddings, embeddings).fill_diagonal_(torch.inf).min(1).values
    ours, theirs = (each.membership.row_of_rank >= 0 for each in parts)
    return metrics.auc(theirs[ours], distances.numpy()[ours])


def test_stand_ins_used_once_have_no_twins() -> None:
    assert abs(collision_auc(None) - 0.5) < 0.06
    assert collision_auc(REPEATED) > 0.6
