"""A rehearsal on the own table: what is simulated, what is refused, and the party's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from florist.common.core.errors import ConfigurationError
from florist.common.settings.loader import load_config
from florist.experiments.rehearsal import (
    RehearsalOverLimit,
    RehearsalPlan,
    check_policy,
    rehearse,
)
from tests.support.parties import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.settings.party_config import PartyConfig

ROWS = 4000


def configured(folder: Path, columns: dict[str, object], **audit: float) -> PartyConfig:
    """Return the configuration of an active party with this table."""
    workspace = Workspace.create(folder / "pair")
    path = folder / "own.csv"
    csv.write_csv(pa.table({"id": [f"p{row}" for row in range(ROWS)], **columns}), path)
    config = load_config(workspace.config("active"))
    train = config.data.train.model_copy(
        update={
            "path": path,
            "id_column": "id",
            "label": "y",
            "numeric": "auto",
            "categorical": "auto",
        }
    )
    data = config.data.model_copy(update={"train": train})
    model = config.model.model_copy(update={"hidden": [8, 8], "tower": [8]})
    limits = config.audit.model_copy(update=audit)
    return config.model_copy(update={"data": data, "model": model, "audit": limits})


def related_columns() -> dict[str, object]:
    """Return columns of which two say nearly the same."""
    random = np.random.default_rng(1)
    first = random.normal(size=ROWS)
    label = (first + random.normal(size=ROWS) > 0).astype(np.int64)
    return {"y": label, "income": first, "rent": first + 0.1 * random.normal(size=ROWS)}


def test_related_columns_are_found_and_stopped_by_policy(tmp_path: Path) -> None:
    config = configured(tmp_path, related_columns(), stop_above=0.55)
    result = rehearse(config, RehearsalPlan(peer_columns=("rent",)))
    (found,) = result.values("attack_folded_auc", side="active", attack="pair")
    assert found.value > 0.6
    with pytest.raises(RehearsalOverLimit, match=r"pair by the active party .* audit.stop_above"):
        check_policy(config, [result])
    check_policy(configured(tmp_path / "lenient", related_columns()), [result])


def test_tables_that_cannot_be_divided_are_refused(tmp_path: Path) -> None:
    columns = related_columns()
    one = configured(tmp_path, {key: columns[key] for key in ("y", "rent")})
    with pytest.raises(
        ConfigurationError, match="1 feature columns; a rehearsal needs two or more"
    ):
        rehearse(one, RehearsalPlan())
    two = configured(tmp_path / "two", columns)
    with pytest.raises(ConfigurationError, match="no feature 'car'"):
        rehearse(two, RehearsalPlan(peer_columns=("car",)))
