"""What matters to the passive party in the joint model, computed without the peer.

It has no labels. It measures which of its columns determine what it sends; nothing is sent for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.data.encoded_columns import encoded_columns
from florist.common.evaluation.importance import sampled_people, share_importance
from florist.common.evaluation.worth import Importance, Worth
from florist.common.training.micro_batches import micro_batches

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.bundle.bundle import PassiveBundle
    from florist.common.core.progress import Progress
    from florist.common.data.features import Features

#: Rows that are embedded at a time.
_ROWS = 8192


def passive_worth(bundle: PassiveBundle, features: Features, progress: Progress) -> Worth:
    """Measure the importance of own columns for what we send, on rows of our own table."""
    if len(features) < 2:
        return Worth(missing=("Too few rows to measure the importance of own columns.",))
    random = np.random.default_rng(0)  # which rows are sampled is no secret: nothing is sent
    columns = encoded_columns(bundle.preprocessing)
    rows = sampled_people(len(features), len(columns))
    sample = np.sort(random.permutation(len(features))[:rows])

    def embed(given: Features) -> npt.NDArray[np.float64]:
        parts = [
            bundle.embed(given.slice(part.start, part.stop)).cpu().numpy()
            for part in micro_batches(len(given), _ROWS)
        ]
        return np.concatenate(parts).astype(np.float64)

    with progress.step("importance of own columns") as step:
        found = share_importance(columns, features.take(sample), embed, random, step)
    return Worth(importance=Importance("share", rows, tuple(found)))
