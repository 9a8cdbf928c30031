"""What a run of all stages repeats, and which finished results no longer fit settings and tables.

A finished stage is repeated only with --force on both sides, since the peer has its result too. So
outdated results are reported, with what repeats them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.data.feature_store import FeatureStore
from florist.common.data.preprocessing import Preprocessing
from florist.common.data.scan_table import scan_table
from florist.common.data.table_files import open_table
from florist.common.session.evaluated_model import is_outdated
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import StageState
from florist.common.storage.files import FolderStorage
from florist.common.training.run_inputs import (
    TableContent,
    compared_settings,
    load_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.session.alignment_result import TableName
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig
    from florist.common.training.run_inputs import InputRecord

log = logging.getLogger("florist.stages")


def report_plan(config: PartyConfig, plan: Sequence[str]) -> None:
    """Log what will be done and why, and what is outdated but not repeated.

    Raises:
        DamagedFile: the record of a finished stage is damaged.
    """
    runs = RunDirectory(config.run_directory)
    if plan and is_outdated(runs.training, runs.evaluation):
        log.info("the evaluation belongs to an earlier model, so that it is repeated")
    for sentence in outdated_results(config):
        log.warning("%s", sentence)


def outdated_results(config: PartyConfig) -> list[str]:
    """Return a sentence for each complete stage whose result does not fit the configuration.

    Tables are read only if their files have been modified since.

    Raises:
        DamagedFile: the record of a finished stage is damaged.
    """
    runs = RunDirectory(config.run_directory)
    found = []
    if StageState(runs, "train").is_complete and (changes := list(_changes_of_model(config, runs))):
        found.append(
            f"the trained model is outdated: {'; '.join(changes)}. It is kept; to repeat training "
            "and then the evaluation, run --stage train --force on both sides"
        )
    if StageState(runs, "evaluate").is_complete and (
        changes := list(_changes_of_evaluation(config, runs))
    ):
        found.append(
            f"the evaluation is outdated: {'; '.join(changes)}. It is kept: the same model is not "
            "evaluated with other features of the same people"
        )
    return found


def _changes_of_model(config: PartyConfig, runs: RunDirectory) -> Iterator[str]:
    if (record := load_record(runs, "train")) is None:
        return
    yield from record.changed_settings(compared_settings(config))
    yield from _changed_table(config, runs, record, "train", config.data.train)
    if config.agreement.training.test_table:
        yield from _changed_table(config, runs, record, "test", config.data.test_table)


def _changes_of_evaluation(config: PartyConfig, runs: RunDirectory) -> Iterator[str]:
    if (record := load_record(runs, "evaluate")) is not None:
        table = config.data.evaluation_table
        yield from _changed_table(config, runs, record, "evaluation", table)


def _changed_table(
    config: PartyConfig,
    runs: RunDirectory,
    record: InputRecord,
    name: TableName,
    table: Table | None,
) -> Iterator[str]:
    """Compare a table with what was recorded of it: IDs and features."""
    if table is None:
        return
    try:
        if record.stamps.get(name) == repr(open_table(table).stamp()):
            return
        scan = scan_table(
            table,
            config.agreement.id_normalisation,
            config.data.preprocessing,
            FeatureStore(config.training.table_bytes, FolderStorage(runs.path)),
            known=Preprocessing.load(runs.training / "preprocessing"),
        )
    except ConfigurationError as error:
        yield f"data.{name} cannot be compared: {error.reason}"
        return
    if scan.fingerprint != runs.load_summary(name).table_fingerprint:
        yield f"data.{name}: its IDs are not the ones that were aligned"
    elif changes := record.changed_content(name, TableContent(scan.features)):
        yield changes
