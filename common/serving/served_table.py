"""A party's aligned table for serving groups of UIDs: it has one of its own rows for every UID.

A UID that the party lacks gets a stand-in, which is always the same row, drawn with a secret that
is stored next to the model. If it were drawn at each start, the predictions for people whom the
party lacks would change between starts, and those for its own people would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_bytes
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.data.feature_store import FeatureStore, encode_in_memory
from florist.common.data.scan_table import scan_table
from florist.common.serving.hiding import HidingGroups
from florist.common.session.retention import if_damaged
from florist.common.storage.files import FolderStorage
from florist.common.storage.manifest import DamagedFile, ListedFolder, private_content
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.secret_draws import SECRET_BYTES, SecretDraws
from florist.common.synthetic.stand_ins import StandIns
from florist.common.training.run_inputs import TableContent, load_record

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.bundle.bundle import Bundle
    from florist.common.data.features import Features
    from florist.common.session.alignment_result import Alignment
    from florist.common.session.run_directory import RunDirectory
    from florist.common.settings.party_config import PartyConfig
    from florist.common.storage.id_column import IdColumn


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServedTable:
    """An aligned table of this party, with its union divided into groups."""

    groups: HidingGroups
    union_sha256: bytes
    ids: IdColumn
    #: The rank in `U` of each row.
    rank_of_row: npt.NDArray[np.int64]
    #: The row for each rank: the person's own, or a stand-in.
    row_of_rank: npt.NDArray[np.int64]
    #: In memory: with files, response times would reveal which rows were read before.
    features: Features
    #: Secret from the peer, and the same at every start.
    draws: SecretDraws

    def rows(self, group: int) -> npt.NDArray[np.int64]:
        """Return the rows for the UIDs of a group; takes the same time for every group."""
        return self.row_of_rank[self.groups.members(group)]


def load_served_table(config: PartyConfig, runs: RunDirectory, bundle: Bundle) -> ServedTable:
    """Read the table that `agreement.serving.table` names.

    Raises:
        ConfigurationError: the table is missing, or is not the one that was aligned.
    """
    name = config.agreement.serving.table
    table = config.data.train if name == "train" else config.data.test_table
    if table is None:
        raise ConfigurationError("data.test: required, because agreement.serving.table is `test`")
    alignment = runs.load_alignment(name)
    union_sha256 = bytes.fromhex(alignment.summary.union_sha256)
    if name == "train" and alignment.summary.union_sha256 != bundle.union_sha256:
        raise ConfigurationError(
            f"{runs.path}: the training table was aligned again after the model was trained; "
            "train again, or restore the alignment"
        )
    scan = scan_table(
        table,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        FeatureStore(config.training.table_bytes, FolderStorage(config.run_directory)),
        known=bundle.preprocessing,
        with_ids=True,
    )
    if scan.fingerprint != alignment.summary.table_fingerprint:
        raise ConfigurationError(
            f"data.{name}: the IDs are not the ones that were aligned; restore the table"
        )
    trained = load_record(runs, "train")
    if trained and (changes := trained.changed_content(name, TableContent(scan.features))):
        raise ConfigurationError(
            f"{changes}, when the model was trained. Whoever asks again would see whose "
            "predictions change; restore the table, or train again on both sides with --stage "
            "train --force"
        )
    files = ListedFolder(runs.path / "serving", if_damaged("serving/secret"))
    secret = private_content(files, "secret", lambda: token_bytes(SECRET_BYTES))
    if len(secret) != SECRET_BYTES:
        raise DamagedFile(f"{runs.path}/serving/secret is damaged; {if_damaged('serving/secret')}")
    draws = SecretDraws(secret).derive(alignment.summary.union_sha256)
    union_size = alignment.summary.union_size
    assert scan.ids is not None
    return ServedTable(
        HidingGroups.of(
            union_size,
            config.agreement.serving.hiding_size,
            union_sha256=union_sha256,
            run=bundle.run,
        ),
        union_sha256,
        scan.ids,
        alignment.rank_of_row,
        _rows_with_stand_ins(alignment, draws),
        encode_in_memory(scan),
        draws,
    )


def _rows_with_stand_ins(alignment: Alignment, draws: SecretDraws) -> npt.NDArray[np.int64]:
    union_size, rank_of_row = alignment.summary.union_size, alignment.rank_of_row
    membership = Membership.of(rank_of_row, union_size)
    return StandIns.sampled(membership, len(rank_of_row), draws).rows(np.arange(union_size))
