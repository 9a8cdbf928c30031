"""A learned attack: a classifier trained on a shadow run, in which the attacker knows the truth.

The attacker simulates both parties on its own people (`shadow_runs.py`), computes for each UID the
scores of the other attacks and simple statistics, and trains a classifier on them. All features are
relative to their batch or view, so that they are comparable between runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from florist.common.audit.attack_tools.inferred_labels import cosines, surprises
from florist.common.audit.attack_tools.nearest_neighbours import judged_uids
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.attacks.spectral import points
from florist.common.audit.view import PassiveView, lengths, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.attacks import Attack
    from florist.common.audit.view import ActiveView, Floats, Ranks
    from florist.common.core.registry import Registry

    Flags = npt.NDArray[np.bool_]
    #: Unique ranks, and a row of values for each.
    Sightings = Iterator[tuple[Ranks, Floats]]

V = TypeVar("V", PassiveView, "ActiveView")

#: Number of principal directions of a batch that are used.
_DIRECTIONS = 6

#: Minimum number of real and of synthetic people in a shadow run.
_LEAST = 20


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LearnedAttack(Generic[V]):
    """An attack that scores the UIDs of a view; the view must be of the party it was fitted to."""

    name: ClassVar[str] = "learned"
    _model: HistGradientBoostingClassifier
    #: The features that are defined; those that need two epochs may not be.
    _used: Flags

    @classmethod
    def fit(cls, shadow: V, is_real: Flags, *, seed: int = 0) -> LearnedAttack[V]:
        """Train the classifier on a shadow run.

        Args:
            shadow: what the attacker saw in the shadow run.
            is_real: for each of the shadow's `uids`, whether the peer's data were real.
            seed: seed of the classifier.

        Raises:
            ValueError: the lengths differ, or there are too few real or synthetic UIDs.
        """
        if is_real.shape != shadow.uids.shape:
            raise ValueError(f"{len(shadow.uids)} UIDs and {is_real.shape} truths differ in length")
        judged = _is_judged(shadow)
        features = features_of(shadow)[judged]
        used: Flags = np.asarray((~np.isnan(features)).any(axis=0))
        if min(is_real[judged].sum(), (~is_real[judged]).sum()) < _LEAST:
            raise ValueError(f"a shadow run needs {_LEAST} real and {_LEAST} synthetic UIDs")
        model = HistGradientBoostingClassifier(
            learning_rate=0.05,
            max_iter=200,
            max_leaf_nodes=15,
            min_samples_leaf=max(10, min(100, int(judged.sum()) // 50)),
            l2_regularization=1.0,
            early_stopping=True,
            validation_fraction=0.2,
            random_state=seed,
        )
        model.fit(features[:, used], is_real[judged])
        return cls(model, used)

    def score(self, view: V) -> Floats:
        """Return for each UID of a view the log odds that the peer's data are real."""
        scores = np.full(len(view.uids), np.nan)
        judged = _is_judged(view)
        features = features_of(view)[judged]
        odds = self._model.decision_function(features[:, self._used])
        scores[judged] = np.where(np.isnan(features).all(axis=1), np.nan, odds)
        return scores


def _is_judged(view: PassiveView | ActiveView) -> Flags:
    """Return which UIDs can be scored; for an active view, those of `embedding_collision`."""
    if isinstance(view, PassiveView):
        return np.ones(len(view.uids), dtype=np.bool_)
    return np.isin(view.uids, judged_uids(view))


def features_of(view: PassiveView | ActiveView) -> Floats:
    """Return a row of features for each UID to score; NaN where a feature is undefined."""
    if isinstance(view, PassiveView):
        seen = _summaries(view, _seen_in_gradients(view), 3 + 2 + _DIRECTIONS + 2)
        return np.hstack([*_scores(PASSIVE_ATTACKS, view), seen])
    seen = _summaries(view, _seen_in_embeddings(view), 1 + 2 + _DIRECTIONS)
    return np.hstack([*_scores(ACTIVE_ATTACKS, view), seen])


def _scores(attacks: Registry[Attack[V]], view: V) -> Iterator[Floats]:
    """Return the scores of all registered attacks, as quantiles of the view."""
    for name in attacks.names:
        score = attacks[name].score(view)
        seen = ~np.isnan(score)
        places = np.full((len(score), 1), np.nan)
        places[seen, 0] = quantiles(score[seen])
        yield places


def _seen_in_gradients(view: PassiveView) -> Sightings:
    for step, cosine, (ranks, surprise) in zip(
        view.steps, cosines(view), surprises(view), strict=True
    ):
        columns = [cosine, np.abs(cosine), surprise, *_shape(points(step))]
        columns += _shape(step.embeddings.astype(np.float64), directions=0)
        yield ranks, np.column_stack(columns)


def _seen_in_embeddings(view: ActiveView) -> Sightings:
    for step in view.steps:
        columns = [step.labels.astype(np.float64), *_shape(step.embeddings.astype(np.float64))]
        yield step.ranks, np.column_stack(columns)


def _shape(rows: Floats, directions: int = _DIRECTIONS) -> list[Floats]:
    """Return for each row its length, distance from the mean, and distance along principal axes.

    All values are quantiles of the batch. The sign of an axis is arbitrary, so only the distance
    from the mean along it is used.
    """
    centred = rows - rows.mean(axis=0)
    found = [lengths(rows), lengths(centred)]
    if directions:
        axes = np.linalg.eigh(centred.T @ centred).eigenvectors[:, : -1 - directions : -1]
        found += list(np.abs(centred @ axes).T)
        found += [np.zeros(len(rows))] * (directions - axes.shape[1])  # narrow rows have fewer axes
    return [quantiles(column) for column in found]


def _summaries(view: PassiveView | ActiveView, seen: Sightings, width: int) -> Floats:
    """Summarise each of `width` values by UID: mean, deviation over epochs, and last minus first.

    NaN for a UID that was not seen; the last two also for a UID that was seen only once.
    """
    count = np.zeros((view.union_size, 1))
    total, squares, first, last = (np.zeros((view.union_size, width)) for _ in range(4))
    for ranks, values in seen:
        fresh = count[ranks, 0] == 0
        first[ranks[fresh]] = values[fresh]
        last[ranks] = values
        total[ranks] += values
        squares[ranks] += values**2
        count[ranks] += 1
    count[count == 0] = np.nan
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    again = np.where(count > 1, 1, np.nan)
    return np.hstack([mean, again * deviation, again * (last - first)])[view.uids]
