"""Clusters of a party's own features, by k-means along the main axes of one-hot features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_tools.one_hot_features import one_hot

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import OwnFeatures

#: Columns of one-hot features before clustering, the axes that are kept, and the rows fitted to.
_COLUMNS, _AXES, _FITTED = 4096, 16, 20_000


def feature_clusters(features: OwnFeatures, most: int) -> npt.NDArray[np.int64] | None:
    """Return the cluster of each row, from 0 on; None if there are too few rows or columns.

    Args:
        features: the features of all rows.
        most: the number of clusters. There are fewer if fewer rows differ.
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415 - takes more than a second
    from sklearn.decomposition import TruncatedSVD  # noqa: PLC0415 - takes more than a second

    columns = one_hot(features, _COLUMNS)
    if columns.shape[1] < 2 or columns.shape[0] < most:
        return None
    axes = min(_AXES, columns.shape[1] - 1)
    points = TruncatedSVD(axes, random_state=0).fit_transform(columns)
    fitted = points[:: -(-len(points) // _FITTED)]
    clusters = min(most, len(np.unique(fitted.round(6), axis=0)))
    found: npt.NDArray[np.int32] = (
        KMeans(clusters, n_init=1, random_state=0).fit(fitted).predict(points)
    )
    return found.astype(np.int64)
