"""Trials: how people are split, what is measured, and that results are repeatable."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import numpy as np
import pytest

from florist.common.audit.attacks import PASSIVE_ATTACKS, Attack
from florist.common.audit.view import PassiveView
from florist.common.core.errors import PeerLost
from florist.common.core.registry import Registry
from florist.common.settings.agreement import (
    FeatureStrategyName,
    LabelStrategyName,
    TrainingAgreement,
)
from florist.common.settings.training import Model
from florist.common.transport.in_memory import linked_pair
from florist.experiments import simulation
from florist.experiments.methods import AS_IN_THE_PAPER, METHODS, Method
from florist.experiments.people import Generated, HeldOut, People, PeopleSettings, load_people
from florist.experiments.simulation import Holdings, SimulationSettings, Wiring, observe
from florist.experiments.trial import (
    KNOWN_ATTACKS,
    Trial,
    TrialAudit,
    run_trial,
    trial_digest,
)

if TYPE_CHECKING:
    from florist.common.training.half_setup import HalfSetup
    from florist.common.transport.channel import Link

AUDIT = TrialAudit(samples=30)
LABELS, FEATURES = get_args(LabelStrategyName), get_args(FeatureStrategyName)


@pytest.fixture(scope="module")
def people() -> People:
    return load_people(
        PeopleSettings(generated=Generated(people=1500), split=HeldOut(test=0.2, validation=0.2))
    )


def trial(method: str = "default", **changes: object) -> Trial:
    values: dict[str, Any] = {
        "alpha": 0.5,
        "beta": 0.4,
        "batch_size": 128,
        "model": Model(hidden=[8, 8]),
    }
    return Trial(method=METHODS[method], **values | changes)


# --- methods ---


def test_the_default_uses_the_agreements_defaults() -> None:
    made = trial("default", epochs=2).agreement()
    given = {"epochs": 2, "batch_size": 128, "checkpoint_every": 0}
    own = {"test_table": True, "micro_batch": 2048}
    assert made == TrainingAgreement.model_validate(given | own)
    with_cut = trial("default", cut_width=16).agreement()
    assert (with_cut.cut_width, with_cut.wire_width) == (16, 17)
    assert trial("florist-paper").agreement().cut_width == 8  # the last of `hidden`


def test_the_papers_methods_change_what_their_names_say() -> None:
    minority = METHODS["label-minority-te"]
    assert minority.agreement == AS_IN_THE_PAPER | {
        "labels": {"strategy": "label-minority"},
        "calibration": "test",
    }
    florist = trial("florist-paper").agreement()
    assert (florist.sticky, florist.masking, florist.embedding_noise) == (False, False, 0.0)
    assert florist.calibration == "train"
    for strategy, suffix in product((*LABELS, *FEATURES), ("", "-tr", "-te")):
        assert strategy + suffix in METHODS.names


def test_changes_are_merged_key_by_key() -> None:
    base = METHODS["label-random-pred"]
    changed = base.but("four", labels={"samples": 4}, sticky=True)
    assert changed.agreement["labels"] == {"strategy": "label-random-pred", "samples": 4}
    assert changed.agreement["sticky"]
    assert base.agreement["labels"] == {"strategy": "label-random-pred"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 3}, "epochs"),
        ({"stiky": True}, "stiky"),
        ({"labels": {"samples": 0}}, "labels.samples"),
    ],
)
def test_an_invalid_method_is_rejected(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Method(name="wrong", agreement=changes)


# --- who is whose ---


def test_the_passive_party_lacks_alpha_and_the_active_party_beta() -> None:
    train = np.arange(1000, 3000)
    found = trial(alpha=0.25, beta=0.4).holdings(train)
    assert (len(found.active), len(found.passive), found.dummies) == (1200, 1500, 0)
    # Each by itself: 0.6 · 0.75 of them are shared.
    assert abs(len(found.shared.active) - 900) < 60
    assert np.isin(found.active, train).all()


def test_people_lacked_by_both_are_absent_or_dummies() -> None:
    train = np.arange(2000)
    absent, dummies = (trial(lacked_by_both=what).holdings(train) for what in ("absent", "dummies"))
    assert np.array_equal(absent.active, dummies.active)
    union = np.union1d(absent.active, absent.passive)
    assert len(union) < 2000 == len(union) + dummies.dummies


def test_baselines_have_everybody_or_the_shared_people() -> None:
    train = np.arange(2000)
    full, partial = (trial(name).holdings(train) for name in ("baseline-full", "baseline-partial"))
    assert len(full.active) == len(full.passive) == 2000
    assert np.array_equal(partial.active, trial().holdings(train).shared.passive)


def test_dummies_belong_to_nobody_and_are_known_to_the_active_party(people: People) -> None:
    how = trial("florist-paper", lacked_by_both="dummies")
    holdings = how.holdings(people.train)
    result = run_trial(people, how, audit=None)
    assert result.sizes["union"] == len(people.train)
    union = simulation.Union.drawn(len(people.labels), holdings, seed=0)
    ranks = union.rank_of[union.rank_of >= 0]
    assert len(ranks) == len(np.unique(ranks)) == union.size - holdings.dummies


# --- what is measured ---


def test_a_trial_measures_utility_and_leakage(people: People) -> None:
    result = run_trial(people, trial("florist-paper", epochs=2), AUDIT)
    for part in ("validation", "test"):
        for metric in ("auc", "ace", "log_loss"):
            assert [figure.epoch for figure in result.values(metric, part=part)] == [1, 2]
    assert result.last("auc") != result.last("auc", "validation")
    assert len(result.losses) == 2 * math.ceil(result.sizes["union"] / 128)
    for side in ("passive", "active"):
        assert len(result.values("paper_attack_auc", side=side)) == 1
        strongest = result.strongest(side)
        assert strongest is not None
        assert strongest.low is not None
        assert strongest.high is not None
        assert 0.5 <= strongest.low <= strongest.value <= strongest.high <= 1
    drift = result.values("attack_folded_auc", side="active", attack="embedding-drift")
    assert drift[0].value > 0.9  # features are drawn anew


def test_the_learned_attack_needs_a_shadow_run(people: People) -> None:
    leaky = METHODS["florist-paper"].but("leaky", labels={"strategy": "label-minority"})
    audit = TrialAudit(samples=30, attacks=[], learned=True)
    result = run_trial(people, trial(epochs=2).model_copy(update={"method": leaky}), audit)
    for side in ("passive", "active"):
        (learned,) = result.values("attack_folded_auc", side=side, attack="learned")
        assert learned.value > 0.7
    few = run_trial(people, trial(alpha=0.99), audit)
    assert not few.values("attack_auc", side="passive", attack="learned")


def test_one_party_may_lack_nobody(people: People) -> None:
    """Then the other party has nothing to attack."""
    labels_only = run_trial(people, trial(alpha=0.0), AUDIT)
    assert labels_only.strongest("active") is None
    assert labels_only.strongest("passive") is not None
    assert not labels_only.values("paper_attack_auc", side="active")
    features_only = run_trial(people, trial(beta=0.0), AUDIT)
    assert features_only.strongest("active") is not None
    assert features_only.strongest("passive") is None


def test_a_baseline_is_not_attacked(people: People) -> None:
    result = run_trial(people, trial("baseline-partial"), AUDIT)
    assert result.sizes["active"] == result.sizes["shared"] == result.sizes["union"]
    assert {figure.metric for figure in result.figures} == {"auc", "ace", "log_loss"}


def test_the_same_trial_gives_the_same_results(people: People) -> None:
    first, again = (run_trial(people, trial(), AUDIT) for _ in range(2))
    assert first.figures == again.figures
    assert first.losses == again.losses
    other = run_trial(people, trial(seed=1), audit=None)
    assert other.losses != first.losses


def test_the_audit_does_not_change_the_training(people: People) -> None:
    watched, alone = run_trial(people, trial(), AUDIT), run_trial(people, trial(), None)
    assert watched.losses == alone.losses
    assert watched.last("auc") == alone.last("auc")


def test_different_trials_have_different_digests() -> None:
    trials = [trial(), trial(seed=1), trial("florist-paper"), trial(alpha=0.6)]
    digests = {trial_digest("people", each, AUDIT) for each in trials}
    digests |= {trial_digest("others", trial(), AUDIT), trial_digest("people", trial(), None)}
    assert len(digests) == 6
    assert trial_digest("people", trial(), AUDIT) in digests


def test_a_new_attack_changes_the_digest() -> None:
    """Otherwise a resumed grid would take results without the new attack as complete."""
    named = TrialAudit(attacks=["spectral"])
    more = {**KNOWN_ATTACKS, "passive": (*KNOWN_ATTACKS["passive"], "new")}
    before = [trial_digest("people", trial(), audit) for audit in (AUDIT, named)]
    after = [trial_digest("people", trial(), audit, more) for audit in (AUDIT, named)]
    assert before[0] != after[0]
    assert before[1] == after[1]


# --- the simulation ---


def simulated(people: People, wiring: Wiring) -> None:
    how = trial()
    holdings = how.holdings(people.train)
    world, held_out = people.worlds(holdings.passive, holdings.active, how.preprocessing)
    settings = SimulationSettings(how.agreement(), how.model, how.optimiser)
    observe(world, holdings, held_out, settings, record=False, wiring=wiring)


def quick_links() -> tuple[Link, Link]:
    return linked_pair(grace=0.05)


def fail(setup: HalfSetup, *_: object) -> NoReturn:
    raise ZeroDivisionError(f"planted with {setup.numeric} columns")


@pytest.mark.parametrize(
    "wiring",
    [
        Wiring(make_active=fail, connect=quick_links),
        Wiring(make_passive=fail, connect=quick_links),
    ],
    ids=["active", "passive"],
)
def test_the_original_error_is_raised(people: People, wiring: Wiring) -> None:
    """Not that of the other party, which only lost its peer."""
    with pytest.raises(ZeroDivisionError, match="planted"):
        simulated(people, wiring)


def test_a_lost_link_raises_peer_lost(people: People) -> None:
    links = linked_pair(grace=0.05)
    links[0].fail(PeerLost("cut"))
    with pytest.raises(PeerLost):
        simulated(people, Wiring(connect=lambda: links))


def test_the_truth_of_the_views_matches_the_holdings(people: People) -> None:
    how = trial(lacked_by_both="dummies")
    holdings = how.holdings(people.train)
    world, _ = people.worlds(holdings.passive, holdings.active, how.preprocessing)
    settings = SimulationSettings(
        how.agreement().model_copy(update={"test_table": False}), how.model, how.optimiser
    )
    observed = observe(world, Holdings(holdings.active, holdings.passive, 7), None, settings)
    seen = observed.seen
    assert seen is not None
    assert observed.predictions == []
    assert np.array_equal(seen.passive.uids, np.flatnonzero(seen.has_features))
    assert np.array_equal(seen.active.uids, np.flatnonzero(seen.has_label))
    assert (seen.has_label & seen.has_features).sum() == len(holdings.shared.active)
    assert (~seen.has_label & ~seen.has_features).sum() == 7
    shown = np.concatenate([step.ranks for step in seen.passive.steps])
    assert np.array_equal(np.sort(shown), np.arange(seen.passive.union_size))
    assert seen.active.known_stand_ins is not None
    assert np.array_equal(
        seen.active.known_stand_ins, np.flatnonzero(~seen.has_label & ~seen.has_features)
    )
    for mine, theirs in zip(seen.passive.steps, seen.active.steps, strict=True):
        assert mine.embeddings is theirs.embeddings  # in memory once
        assert np.array_equal(np.isfinite(theirs.labels), seen.has_label[theirs.ranks])


def test_each_party_knows_its_own_dummies_and_features(people: People) -> None:
    own = tuple(people.columns.column_names[:3])
    with_columns = replace(people, active_columns=own)
    how = trial(active_dummies=30, passive_dummies=50)
    holdings = how.holdings(people.train)
    world, _ = with_columns.worlds(holdings.passive, holdings.active, how.preprocessing)
    settings = SimulationSettings(
        how.agreement().model_copy(update={"test_table": False}), how.model, how.optimiser
    )
    seen = observe(world, holdings, None, settings).seen
    assert seen is not None
    nobodys = np.flatnonzero(~seen.has_label & ~seen.has_features)
    active, passive = seen.active.known_stand_ins, seen.passive.known_stand_ins
    assert active is not None
    assert passive is not None
    assert (len(active), len(passive)) == (30, 50)
    assert np.array_equal(np.sort(np.concatenate([active, passive])), nobodys)
    union = simulation.Union.drawn(len(people.labels), holdings, settings.seed)
    for view, features, rows in (
        (seen.active, world.own_features, holdings.active),
        (seen.passive, world.features, holdings.passive),
    ):
        assert features is not None
        assert view.features is not None
        order = rows[np.argsort(union.rank_of[rows])]
        assert np.array_equal(view.features.rows.numeric, features.numeric[order])
        assert np.array_equal(view.features.rows.categories, features.categories[order])
    assert seen.active.features is not None
    assert seen.active.features.cardinalities == world.own_cardinalities
    wide = settings.agreement.wide_outputs
    assert {step.logit_columns for step in seen.active.steps} == {wide}
    assert {step.logit_columns for step in seen.passive.steps} == {wide}


def test_attacks_are_measured_by_stratum_or_skipped_with_a_reason() -> None:
    many = load_people(
        PeopleSettings(generated=Generated(people=4000), split=HeldOut(test=0.1, validation=0.0))
    )
    leaky = METHODS["florist-paper"].but("leaky", labels={"strategy": "label-minority"})
    how = trial(active_dummies=300, passive_dummies=300).model_copy(update={"method": leaky})
    result = run_trial(many, how, AUDIT)
    for side, attack in (("passive", "gradient-direction"), ("active", "known-stand-ins")):
        (whole,) = result.values("attack_folded_auc", side=side, attack=attack)
        (worst,) = result.values("worst_stratum_auc", side=side, attack=attack)
        strata = result.values("stratum_folded_auc", side=side, attack=attack)
        assert whole.stratum is None
        assert worst.stratum in {each.stratum for each in strata}
        assert len({each.stratum for each in strata}) == len(strata) >= 2
        assert worst.low == max(each.low or 0 for each in strata)
    strongest = result.worst_stratum("passive")
    assert strongest is not None
    assert strongest.low is not None
    assert strongest.low > 0.6
    skipped = {(each.side, each.attack): each.reason for each in result.skipped}
    assert skipped["active", "pair"] == "needs features of the attacker's own"
    assert skipped["passive", "flips"] == "needs two epochs"
    assert not result.values("attack_auc", attack="pair")
    assert result.sizes["union"] == result.sizes["active"] + result.sizes["passive"] - (
        result.sizes["shared"] - 600
    )


def test_inverted_scores_count_as_much(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker may invert its scores; only the unfolded AUC says that it has to."""
    attacks = Registry[Attack[PassiveView]]("attack")
    direct = PASSIVE_ATTACKS["gradient-direction"]
    attacks.register(direct)
    attacks.register(Attack("inverted", lambda view: -direct.score(view)))
    monkeypatch.setattr("florist.experiments.trial.PASSIVE_ATTACKS", attacks)
    leaky = METHODS["florist-paper"].but("leaky", labels={"strategy": "label-minority"})
    result = run_trial(people, trial().model_copy(update={"method": leaky}), AUDIT)
    for metric in ("attack_folded_auc", "tpr_0.01", "finds_real_0.01"):
        one, other = result.values(metric, side="passive")[:2]
        assert one.value == pytest.approx(other.value)
    one, other = result.values("attack_auc", side="passive")
    assert one.value == pytest.approx(1 - other.value)
