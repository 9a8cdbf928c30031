"""A few numbers per embedding that keep most of what embeddings of a window tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.audit.view import Floats, Rows, StepView

#: The most axes of greatest variance that are kept, besides the columns of logits.
AXES = 24


def standardised_window(steps: Sequence[StepView]) -> Floats:
    """Return the embeddings of a window with mean 0 and standard deviation 1 in each column."""
    return standardised_columns(np.concatenate([step.embeddings for step in steps]))


def main_axes(
    rows: Floats, logit_columns: int, axes: int = AXES, *, whitened: bool = False
) -> Floats:
    """Return standardised rows along their axes of greatest variance.

    Columns that are added to the logits come first and are kept as they are, since they tell most
    about the label.

    Args:
        rows: (rows, columns), the columns of logits last.
        logit_columns: the number of columns of logits.
        axes: how many axes of the other columns to keep.
        whitened: whether to scale each axis to standard deviation 1. Otherwise all have one scale,
            with which the first axis has standard deviation 1.
    """
    split = rows.shape[1] - logit_columns
    deep = rows[:, :split]
    values, vectors = np.linalg.eigh(deep.T @ deep / max(len(deep), 1))
    variances = np.maximum(values[::-1][:axes], 0)
    most = variances.max(initial=0)
    scale = np.sqrt(variances if whitened else np.full_like(variances, most))
    scale[variances <= 1e-6 * most] = np.inf
    return np.column_stack([rows[:, split:], deep @ (vectors[:, ::-1][:, :axes] / scale)])


def standardised_columns(rows: Rows | Floats) -> Floats:
    """Return the rows with mean 0 and standard deviation 1 in each column; constant ones are 0."""
    exact = rows.astype(np.float64)
    mean, deviation = exact.mean(axis=0), exact.std(axis=0)
    deviation[deviation <= 1e-6 * np.abs(mean)] = np.inf
    found: Floats = (exact - mean) / deviation
    return found
