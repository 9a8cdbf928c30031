"""A learned attack: a classifier trained on a shadow run, in which the attacker knows the truth.

An attacker plays both parties on people of its own (`shadow.py`), computes for each UID what the
other attacks and simple statistics make of it, and lets a classifier find out how they hang
together. All features are relative to their batch or view, so that those of another run mean the
same.
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
    #: Ranks, none of them twice, and a row of values for each.
    Sightings = Iterator[tuple[Ranks, Floats]]

V = TypeVar("V", PassiveView, "ActiveView")

#: Directions of most variance along which a batch is looked at.
_DIRECTIONS = 6

#: Fewer real or synthetic people in a shadow run teach nothing.
_LEAST = 20


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LearnedAttack(Generic[V]):
    """Like any other attack: scores the UIDs of a view, of the kind that it was fitted to."""

    name: ClassVar[str] = "learned"
    _model: HistGradientBoostingClassifier
    #: The features that tell anything; those that need two epochs may not.
    _used: Flags

    @classmethod
    def fit(cls, shadow: V, is_real: Flags, *, seed: int = 0) -> LearnedAttack[V]:
        """Learn from a run of the attacker's own.

        Args:
            shadow: what the attacker saw in it.
            is_real: of each of the shadow's `uids`, whether the peer's data were real.
            seed: of the classifier.

        Raises:
            ValueError: the two do not fit, or there are too few of either kind to learn from.
        """
        if is_real.shape != shadow.uids.shape:
            raise ValueError(f"{len(shadow.uids)} UIDs and {is_real.shape} truths do not fit")
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
    """Of each UID to score; of an active party's only those that `embedding_collision` judges."""
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
    """Of each row, as quantiles of the batch: length, distance from the mean, and along the axes.

    An axis has no sign of its own, so it is the distance from the mean along it.
    """
    centred = rows - rows.mean(axis=0)
    found = [lengths(rows), lengths(centred)]
    if directions:
        axes = np.linalg.eigh(centred.T @ centred).eigenvectors[:, : -1 - directions : -1]
        found += list(np.abs(centred @ axes).T)
        found += [np.zeros(len(rows))] * (directions - axes.shape[1])  # narrow rows have fewer
    return [quantiles(column) for column in found]


def _summaries(view: PassiveView | ActiveView, seen: Sightings, width: int) -> Floats:
    """Of each of `width` values, by UID: mean and deviation over epochs, and last less first.

    NaN where a UID was not seen; the last two also where it was seen once.
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
