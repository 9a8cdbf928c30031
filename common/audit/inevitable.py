"""What the active party can tell by its labels alone, however well stand-ins are made.

Features that are useful tell of the label; a stand-in, drawn without knowing the label, does not.
So the better the model, the better a label that fits is told from one that does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.statistics import evaluate

if TYPE_CHECKING:
    from florist.common.audit.statistics import AttackResult
    from florist.common.audit.view import Floats


def inevitable(probabilities: Floats, *, samples: int = 200, seed: int = 0) -> AttackResult:
    """What the best score by label and prediction achieves, on a calibrated model.

    It is log P(y|x) / P(y). Labels of real people are drawn with the prediction, those beside a
    stand-in as they are at large. A model that remembers its people gives more away than this.

    Args:
        probabilities: P(y=1) that the model predicts for people it did not learn from; both
            classes must be possible.
        samples: of the bootstrap.
        seed: of the labels.
    """
    rate = probabilities.mean()
    uniforms = np.random.default_rng(seed).random((2, len(probabilities)))
    labels = np.concatenate([uniforms[0] < probabilities, uniforms[1] < rate])
    twice = np.tile(probabilities, 2)
    given = np.where(labels, twice / rate, (1 - twice) / (1 - rate))
    is_real = np.arange(len(twice)) < len(probabilities)
    scores = np.log(np.maximum(given, np.finfo(np.float64).tiny))
    return evaluate("label-likelihood", scores, is_real, samples=samples)
