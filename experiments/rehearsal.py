"""A rehearsal: a party simulates a run on its own table before it has any contact with a peer.

The active party does not have the peer's features. Some of its own columns play their part, so that
what an active party could infer from the others can be measured, with the settings of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError, StoppedByPolicy
from florist.common.data.table_reader import read_whole_table
from florist.experiments.methods import SET_BY_TRIAL, Method
from florist.experiments.people import PeopleSettings, load_people
from florist.experiments.trial import Trial, TrialAudit, run_trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.settings.party_config import PartyConfig
    from florist.experiments.trial import TrialResult


class RehearsalOverLimit(StoppedByPolicy):
    """A rehearsal found more than the party's limits allow."""

    advice = (
        "Nothing was sent. Agree on more private settings, use fewer feature columns, or raise the "
        "limit."
    )


#: The attacks that need features of both parties.
ATTACKS = ["pair", "share-fit"]
METHOD = "rehearsal"


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """What is simulated.

    Attributes:
        peer_columns: feature columns that play those of the peer; empty: every second one.
        lacked: the fraction of people that each party lacks.
        rows: number of rows to sample; None: all.
        seed: of the simulation.
    """

    peer_columns: tuple[str, ...] = ()
    lacked: float = 0.5
    rows: int | None = 100_000
    seed: int = 0


def rehearse(config: PartyConfig, plan: RehearsalPlan) -> TrialResult:
    """Simulate a run with the settings of this party, and attack it.

    Raises:
        ConfigurationError: the party has no labels, or fewer than two feature columns.
    """
    table = config.data.train
    if table.label is None:
        raise ConfigurationError(
            "data.train.label: only the active party, which has the labels, can rehearse"
        )
    features = read_whole_table(table, config.agreement.id_normalisation).features
    columns = (*features.numeric, *features.categorical)
    if len(columns) < 2:
        raise ConfigurationError(
            f"data.train: {table.path} has {len(columns)} feature columns; a rehearsal needs two "
            "or more. Without features of your own, nothing but the label can be compared"
        )
    peers = plan.peer_columns or columns[1::2]
    if unknown := [name for name in peers if name not in columns]:
        raise ConfigurationError(
            f"--peer-column: {table.path} has no feature {unknown[0]!r}; it has: "
            f"{', '.join(columns[:20])}"
        )
    training = config.agreement.training
    agreed = training.model_dump(exclude=set(SET_BY_TRIAL))
    people = load_people(
        PeopleSettings(
            table=table,
            rows=plan.rows,
            classes=training.classes,
            active_columns=tuple(name for name in columns if name not in peers),
        )
    )
    trial = Trial(
        method=Method(name=METHOD, agreement=agreed),
        alpha=plan.lacked,
        beta=plan.lacked,
        seed=plan.seed,
        epochs=training.epochs,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        cut_width=training.cut_width,
        min_count=config.data.preprocessing.min_count,
        scaling=config.data.preprocessing.scaling,
        bins=config.data.preprocessing.bins,
        model=config.model,
    )
    return run_trial(people, trial, TrialAudit(attacks=ATTACKS))


def check_policy(config: PartyConfig, results: Sequence[TrialResult]) -> None:
    """Compare what was found with the party's own limits.

    Raises:
        RehearsalOverLimit: a figure exceeds `audit.stop_above` or `audit.stop_tpr_above`.
    """
    limits = {
        "attack_folded_auc": (config.audit.stop_above, "audit.stop_above", "folded AUC"),
        "tpr_0.01": (config.audit.stop_tpr_above, "audit.stop_tpr_above", "true positive rate"),
    }
    for metric, (limit, key, name) in limits.items():
        for figure in (found for result in results for found in result.values(metric)):
            if limit is not None and (figure.low or figure.value) > limit:
                raise RehearsalOverLimit(
                    f"in the rehearsal, the attack {figure.attack} by the {figure.side} party has "
                    f"a {name} of {figure.value:.3f}, above {key} ({limit:g})"
                )
