"""The people of an aligned table, as groups of UIDs are served: a row of our own for every UID.

Where a UID is not ours, a row of our own table stands in, always the same one: drawn from a secret
that is kept beside the model. Were it drawn anew at each start, answers for people whom a party
lacks would change and those for its own would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_bytes
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.data.feature_store import FeatureStore, in_memory
from florist.common.data.scan_table import scan_table
from florist.common.serving.hiding import HidingGroups
from florist.common.serving.private_files import private_file
from florist.common.storage.files import FolderStorage
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.secret_draws import SECRET_BYTES, SecretDraws
from florist.common.synthetic.stand_ins import StandIns

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.bundle.bundle import Bundle
    from florist.common.data.features import Features
    from florist.common.session.run_directory import Alignment, RunDirectory
    from florist.common.settings.party_config import PartyConfig
    from florist.common.storage.id_column import IdColumn


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServedTable:
    """One table of ours and its union, in groups."""

    groups: HidingGroups
    union_sha256: bytes
    ids: IdColumn
    #: The rank in `U` of each row.
    rank_of_row: npt.NDArray[np.int64]
    #: The row of each rank: ours, or the one that stands in.
    row_of_rank: npt.NDArray[np.int64]
    #: In memory: from files, the time of an answer would tell which rows were read before.
    features: Features
    #: Secret to the peer, the same at every start.
    draws: SecretDraws

    def rows(self, group: int) -> npt.NDArray[np.int64]:
        """A row of our table for each UID of the group; as much work whoever is in it."""
        return self.row_of_rank[self.groups.members(group)]


def load_served_table(config: PartyConfig, runs: RunDirectory, bundle: Bundle) -> ServedTable:
    """Read the table that the agreement on serving names.

    Raises:
        ConfigurationError: it is not there, or not the one that was aligned.
    """
    name = config.agreement.serving.table
    table = config.data.train if name == "train" else config.data.test_table
    if table is None:
        raise ConfigurationError("data.test: missing; agreement.serving.table names it")
    alignment = runs.load_alignment(name)
    union_sha256 = bytes.fromhex(alignment.summary.union_sha256)
    if name == "train" and alignment.summary.union_sha256 != bundle.union_sha256:
        raise ConfigurationError(
            f"{runs.path}: the training table was aligned again since the model was trained; "
            "train again, or restore the alignment"
        )
    found = scan_table(
        table,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        FeatureStore(config.training.table_bytes, FolderStorage(config.run_directory)),
        known=bundle.preprocessing,
        with_ids=True,
    )
    if found.fingerprint != alignment.summary.table_fingerprint:
        raise ConfigurationError(
            f"data.{name}: its IDs are not those that were aligned; put the table back as it was"
        )
    secret = private_file(runs.path / "serving" / "secret", lambda: token_bytes(SECRET_BYTES))
    if len(secret) != SECRET_BYTES:
        raise ConfigurationError(f"{runs.path}/serving/secret: is damaged; restore it")
    draws = SecretDraws(secret).derive(alignment.summary.union_sha256)
    union_size = alignment.summary.union_size
    assert found.ids is not None
    return ServedTable(
        HidingGroups.of(
            union_size,
            config.agreement.serving.hiding_size,
            union_sha256=union_sha256,
            run=bundle.run,
        ),
        union_sha256,
        found.ids,
        alignment.rank_of_row,
        _rows_with_stand_ins(alignment, draws),
        in_memory(found),
        draws,
    )


def _rows_with_stand_ins(alignment: Alignment, draws: SecretDraws) -> npt.NDArray[np.int64]:
    union_size, rank_of_row = alignment.summary.union_size, alignment.rank_of_row
    membership = Membership.of(rank_of_row, union_size)
    return StandIns.sampled(membership, len(rank_of_row), draws).rows(np.arange(union_size))
