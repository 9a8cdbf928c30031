"""What the joint model is worth to the active party, computed without the peer.

Everything is computed from the party's own tables and from what it has received already, after the
last message. So the peer neither waits for it nor learns how long it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.bundle.manifest import read_manifest
from florist.common.core.errors import ConfigurationError
from florist.common.data.encoded_columns import encoded_columns
from florist.common.data.feature_store import FeatureStore
from florist.common.data.scan_table import scan_table
from florist.common.evaluation.importance import own_importance, sampled_people
from florist.common.evaluation.metric_estimates import FEWEST_SHARED
from florist.common.evaluation.paired_estimates import (
    ScoredPeople,
    plain_auc,
    plain_gain,
    plain_log_loss,
    private_gain,
)
from florist.common.evaluation.shuffled_estimate import Shuffled, shuffles
from florist.common.evaluation.worth import Comparison, Importance, Worth
from florist.common.session.run_directory import RunDirectory
from florist.common.storage.files import FolderStorage
from florist.common.training.micro_batches import micro_batches
from florist.common.training.own_model import OwnModelSetup, train_own_model

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.active_party.training import ActiveHalf
    from florist.common.bundle.bundle import ActiveBundle
    from florist.common.core.progress import Progress
    from florist.common.data.features import Features
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.evaluation.metric_estimates import Evaluation
    from florist.common.settings.party_config import PartyConfig
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.own_model import OwnModel
    from florist.common.training.training_data import TrainingData

    Floats = npt.NDArray[np.float64]

#: How many other embeddings each person is scored with when importance is measured.
SHUFFLES = 4
#: Rows that are predicted at a time.
_ROWS = 8192

_TRAINING, _IMPORTANCE = "training on own data alone", "importance of own columns"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluatedPeople:
    """The active party's people in an evaluation, as they were scored."""

    bundle: ActiveBundle
    scored: ScoredPeople
    found: Evaluation
    #: Own features and the received embeddings of the same people; None without own features.
    own: Features | None
    embeddings: Tensor | None

    def worth(self, config: PartyConfig, progress: Progress) -> Worth:
        """Compare the model with own data alone, and measure the importance of own columns."""
        comparison, importance, missing = None, None, []
        try:
            comparison = self._comparison(config, progress)
        except ConfigurationError as error:
            missing.append(f"There is no baseline on own data alone: {error}.")
        if self.own is None:
            missing.append("There are no own columns whose importance could be measured.")
        elif self.scored.shared < FEWEST_SHARED:
            missing.append("Too few people are shared to measure the importance of own columns.")
        else:
            importance = self._importance(self.own, progress)
        return Worth(comparison, importance, tuple(missing))

    def _comparison(self, config: PartyConfig, progress: Progress) -> Comparison:
        model, rows = train_on_own_table(config, self.bundle, progress)
        return Comparison(
            rows=rows,
            columns=len(encoded_columns(self.bundle.preprocessing)),
            people=len(self.scored),
            joint_auc=self.found.auc,
            joint_log_loss=self.found.log_loss,
            gain=private_gain(self.scored, self.found, model.predict(self.own, len(self.scored))),
        )

    def _importance(self, own: Features, progress: Progress) -> Importance:
        """Measure on a sample of the people, if there are many."""
        assert self.embeddings is not None
        random = np.random.default_rng(0)  # which people are sampled is no secret
        columns = encoded_columns(self.bundle.preprocessing)
        people = sampled_people(len(own), len(columns), 1 + SHUFFLES)
        sample = np.sort(random.permutation(len(own))[:people])
        embeddings = self.embeddings[torch.from_numpy(sample)]
        partners = shuffles(people, SHUFFLES, random)
        labels = self.scored.labels[sample]
        share = people / len(own)
        shared = min(max(round(self.scored.shared * share), FEWEST_SHARED), people)

        def score(features: Features) -> ScoredPeople:
            others = [_predict(self.bundle, embeddings[p], features) for p in partners.T.copy()]
            return ScoredPeople(
                labels,
                _predict(self.bundle, embeddings, features),
                Shuffled(np.stack(others, axis=1), partners),
                shared,
                self.scored.deviation * share,
            )

        with progress.step(_IMPORTANCE) as step:
            found, peer = own_importance(columns, own.take(sample), score, random, step)
        return Importance("auc", people, tuple(found), peer)


def worth_on_test_table(
    half: ActiveHalf, setup: HalfSetup, preprocessing: Preprocessing, progress: Progress
) -> Worth:
    """Compare the model with own data alone on the test table, which both parties list in full."""
    data, tested = setup.data, half.tested
    if data.test is None or tested is None:
        return Worth(missing=("There is no test or evaluation table to compare on.",))
    assert data.train.labels is not None
    labels, scores = tested[0], tested[1].astype(np.float64)
    own_setup = OwnModelSetup(
        data.agreement,
        setup.model,
        setup.optimiser,
        setup.numeric,
        setup.cardinalities,
        data.device,
    )
    with progress.step(_TRAINING) as step:
        model = train_own_model(own_setup, data.train.features, data.train.labels, step)
    try:
        gain = plain_gain(labels, scores, model.predict(_test_features(data), len(labels)))
    except ConfigurationError as error:
        return Worth(missing=(f"There is no baseline on own data alone: {error}.",))
    return Worth(
        Comparison(
            rows=len(data.train.labels),
            columns=len(encoded_columns(preprocessing)),
            people=len(labels),
            joint_auc=plain_auc(labels, scores),
            joint_log_loss=plain_log_loss(labels, scores),
            gain=gain,
        )
    )


def _test_features(data: TrainingData) -> Features | None:
    """Return our own features of the test people, in the order in which they were scored."""
    assert data.test is not None
    if data.test.features is None:
        return None
    order = data.test.membership.row_of_rank
    return data.test.features.take(order[order >= 0])


def train_on_own_table(
    config: PartyConfig, bundle: ActiveBundle, progress: Progress
) -> tuple[OwnModel, int]:
    """Train on the training table; return the model and the number of rows.

    Raises:
        ConfigurationError: the table cannot be read, or is not the one that was trained with.
    """
    runs = RunDirectory(config.run_directory)
    store = FeatureStore(config.training.table_bytes, FolderStorage(config.run_directory))
    scan = scan_table(
        config.data.train,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        store,
        known=bundle.preprocessing,
        with_labels=True,
    )
    if scan.fingerprint != runs.load_summary().table_fingerprint:
        raise ConfigurationError("data.train: has other IDs than those that were trained with")
    assert scan.labels is not None
    agreement = bundle.agreement.training
    labels = scan.labels.labels(agreement.classes, names=bundle.class_names).classes
    features = store.add(scan) if any(bundle.preprocessing.sizes) else None
    setup = OwnModelSetup(
        agreement,
        read_manifest(runs.training, "active").manifest.model,
        config.optimiser,
        len(bundle.preprocessing.numeric_columns),
        bundle.preprocessing.cardinalities,
        bundle.device,
    )
    with progress.step(_TRAINING) as step:
        return train_own_model(setup, features, labels, step), len(labels)


def _predict(bundle: ActiveBundle, embeddings: Tensor, own: Features) -> Floats:
    parts = [
        bundle.predict(embeddings[part], own.slice(part.start, part.stop)).cpu().numpy()
        for part in micro_batches(len(own), _ROWS)
    ]
    return np.concatenate(parts).astype(np.float64)
