"""A stop signal during the attack ends it, although sklearn only warns."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from florist.common.audit.attacks.likelihood_mlp import _fit


def interrupted(_self: MLPClassifier, *_args: object, **_more: object) -> None:
    """Do what sklearn does with a KeyboardInterrupt."""
    warnings.warn("Training interrupted by user.", UserWarning, stacklevel=1)


def test_a_stop_signal_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MLPClassifier, "partial_fit", interrupted)
    rows, labels = np.zeros((4, 1), np.float32), np.array([0, 1, 0, 1])
    with pytest.raises(KeyboardInterrupt):
        _fit(MLPClassifier(), rows, labels, np.array([0, 1]))
