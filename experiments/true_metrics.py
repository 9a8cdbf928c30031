"""The true metrics of a trained model, which no party can compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.bundle.loading import load_bundle
from florist.common.evaluation.metrics import Scores, evaluate
from florist.common.training.micro_batches import micro_batches

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from florist.common.session.run_directory import RunDirectory
    from florist.experiments.sample_data import ClickSample

#: Rows per batch.
_ROWS = 4096


def true_metrics(runs: dict[RoleName, RunDirectory], sample: ClickSample) -> Scores:
    """Evaluate both halves on the real features of the people who were scored, without noise."""
    active = load_bundle(runs["active"], "active")
    passive = load_bundle(runs["passive"], "passive")
    ranks = runs["active"].load_alignment("evaluation").rank_of_row
    people, whose = sample.evaluation_data()
    scored = whose["active"][np.flatnonzero(ranks >= 0)]
    features = passive.preprocessing.transform(people.raw(scored))
    predictions = [
        active.predict(passive.embed(features.slice(part.start, part.stop)))
        for part in micro_batches(len(features), _ROWS)
    ]
    return evaluate(people.labels[scored], torch.cat(predictions).numpy())
