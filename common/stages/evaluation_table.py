"""Reading a party's evaluation table, preprocessed as its model expects."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.bundle.bundle import ActiveBundle
from florist.common.core.text import for_owner
from florist.common.data.content_fingerprint import array_fingerprint
from florist.common.data.feature_store import FeatureStore, encode_in_memory
from florist.common.data.scan_table import scan_table
from florist.common.data.table_ids import IdReader
from florist.common.evaluation.metric_estimates import check_labels
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import quick_digests
from florist.common.training.run_inputs import TableContent

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.bundle.bundle import Bundle
    from florist.common.data.features import Features
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig
    from florist.common.storage.id_column import IdColumn

log = logging.getLogger("florist.evaluate")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluationTable:
    """The evaluation table as the model takes it."""

    ids: IdColumn
    fingerprint: str
    features: Features | None
    labels: npt.NDArray[np.int64] | None
    content: TableContent

    def __len__(self) -> int:
        return len(self.ids)


def read_evaluation_table(config: PartyConfig, settings: Table, bundle: Bundle) -> EvaluationTable:
    """Read the evaluation table, preprocessed like the training table.

    Raises:
        ConfigurationError: names the file or key and the fix.
    """
    preprocessing, classes = bundle.preprocessing, bundle.agreement.training.classes
    scan = scan_table(
        settings,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        FeatureStore(config.training.table_bytes, FolderStorage(config.run_directory)),
        known=preprocessing,
        with_labels=isinstance(bundle, ActiveBundle),
        with_ids=True,
    )
    labels = None
    if isinstance(bundle, ActiveBundle):
        assert scan.labels is not None
        labels = scan.labels.labels(classes, names=bundle.class_names).classes
        check_labels(labels, classes)
    assert scan.ids is not None
    _warn_of_training_people(config, scan.ids)
    log.info("evaluation table read, %r", bundle, extra=for_owner(f"{scan.rows:,} rows"))
    # In memory: if read from files, the time per block would reveal which rows were read before.
    features = encode_in_memory(scan) if any(preprocessing.sizes) else None
    label_tag = None if labels is None else array_fingerprint(labels)
    content = TableContent(scan.features, label_tag, scan.stamp)
    return EvaluationTable(scan.ids, scan.fingerprint, features, labels, content)


def _warn_of_training_people(config: PartyConfig, ids: IdColumn) -> None:
    """Warn of people whom the model was trained on: for them it looks better than it is."""
    if not config.data.train.path.exists():
        return
    ours = np.sort(quick_digests(ids))
    is_known = np.zeros(len(ours), dtype=bool)
    for part in IdReader(config.data.train, config.agreement.id_normalisation).read():
        digests = quick_digests(part)
        index = np.searchsorted(ours, digests)
        is_known[index[ours.take(index, mode="clip") == digests]] = True
    if known := int(is_known.sum()):
        log.warning(
            "people in our evaluation table are in our training table too, so the estimate will be "
            "too optimistic; remove them from data.evaluation",
            extra=for_owner(f"{known:,} of {len(ids):,}"),
        )
