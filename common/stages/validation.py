"""Validation of everything that a run will use, before its first stage connects to the peer.

Each stage checks its own inputs before it connects. A run of several stages would find a bad label
or evaluation table only after its alignment, which costs privacy budget and cannot be undone.
Therefore `validate_run` first checks what the later stages will need. It reads each table once, and
the alignment does not check the IDs again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from florist.common.data.table_ids import TableIds
from florist.common.privacy.ledger import open_ledger
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.agreement import TrainingAgreement
from florist.common.stages.evaluation_checks import releases, table_settings
from florist.common.stages.expectations import (
    ASSUMPTION,
    expected_evaluation,
    expected_steps,
    expected_test,
)
from florist.common.stages.table_validation import TableValidation, test_table_settings, told_as
from florist.common.storage.files import FolderStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.data.id_check import IdSummary
    from florist.common.session.alignment_result import TableName
    from florist.common.session.stage_state import StageOptions
    from florist.common.settings.agreement import AggregatePrivacy
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

log = logging.getLogger("florist.stages")

#: Settings that are checked by code that loads torch, which takes seconds; the defaults are valid.
_CHECKED_WITH_TORCH = (
    "classes",
    "micro_batch",
    "cut_width",
    "wide",
    "wire_type",
    "labels",
    "features",
    "stand_ins",
)


def validate_run(
    role: Role, config: PartyConfig, options: StageOptions, plan: Sequence[str]
) -> dict[TableName, IdSummary]:
    """Check what the stages after the first one of `plan` will need; the first checks its own.

    Returns:
        The IDs that were checked, so that the alignment need not check them again.

    Raises:
        ConfigurationError: names the file, the column or key, and the fix.
    """
    later = plan[1:]
    if not later:
        return {}
    started = time.perf_counter()
    tables = TableValidation(role, config)
    with RunDirectory(config.run_directory).locked():
        if "train" in later:
            check_training_settings(role, config)
            tables.train()
            if config.agreement.training.test_table:
                tables.test()
        if "evaluate" in later:
            check_evaluation_settings(config)
            tables.evaluation()
        _check_ledger(role, config, options, plan, tables)
    log.info(
        "the tables and settings of all stages (%s) are valid; checked in %.1f s",
        ", ".join(plan),
        time.perf_counter() - started,
    )
    for line in _expectations(config, tables, later):
        log.info("%s", line)
    return tables.checked_ids


def _expectations(
    config: PartyConfig, tables: TableValidation, stages: Sequence[str]
) -> Iterator[str]:
    """Say what to expect of tables of this size."""
    if "train" in stages:
        yield f"expected, {ASSUMPTION}: {expected_steps(config, tables.train().rows)}"
        if config.agreement.training.test_table:
            yield f"expected on the test table: {expected_test(tables.test())}"
        elif "evaluate" not in stages:
            yield "expected: no AUC, because the parties agreed on no test or evaluation table"
    if "evaluate" in stages:
        evaluation = expected_evaluation(config, tables.evaluation())
        yield f"expected of the private estimate: {evaluation}"


def check_training_settings(role: Role, config: PartyConfig) -> None:
    """Check the settings of training, without the tables.

    Raises:
        ConfigurationError: names the key and the fix.
    """
    agreement, own = config.agreement.training, config.training
    with told_as("its settings for training were rejected"):
        role.check_model(config)
        if agreement.test_table:
            test_table_settings(config)
        default = TrainingAgreement()
        if any(getattr(agreement, key) != getattr(default, key) for key in _CHECKED_WITH_TORCH):
            from florist.common.stages.train import check_settings  # noqa: PLC0415 - loads torch

            check_settings(role, config)
        if own.device not in ("auto", "cpu") or own.processes > 1:
            from florist.common.training.devices import pick_device  # noqa: PLC0415 - loads torch

            pick_device(own.device, own.processes)


def check_evaluation_settings(config: PartyConfig) -> None:
    """Check the settings of the evaluation, without its table.

    Raises:
        ConfigurationError: names the key and the fix.
    """
    agreement = config.agreement.training
    with told_as("its settings for the evaluation were rejected"):
        table_settings(config)
        if agreement.features != TrainingAgreement().features:
            from florist.common.stages.evaluate import check_strategy  # noqa: PLC0415 - loads torch

            check_strategy(agreement)


def planned_sizes(
    config: PartyConfig, plan: Sequence[str], *, resumes_alignment: bool = False
) -> dict[TableName, int]:
    """Return how many sizes the stages of `plan` announce for each table."""
    sizes: dict[TableName, int] = {}
    if "align" in plan and not resumes_alignment:
        sizes["train"] = 1
        if config.agreement.training.test_table:
            sizes["test"] = 1
    if "evaluate" in plan and RunDirectory(config.run_directory).load_evaluation_union() is None:
        sizes["evaluation"] = releases(config)
    return sizes


def planned_aggregate(
    role: Role, config: PartyConfig, plan: Sequence[str], people: int
) -> tuple[AggregatePrivacy | None, bool]:
    """Return the most that our label aggregate can cost, and whether it certainly costs that.

    `people` is the size of our table: the union has all of them, and others.
    """
    training = config.agreement.training
    most = training.most_aggregate_privacy
    if not role.has_labels or "train" not in plan or most is None:
        return None, True
    return most, training.resolved(people).known_aggregate_privacy is not None


def _check_ledger(
    role: Role,
    config: PartyConfig,
    options: StageOptions,
    plan: Sequence[str],
    tables: TableValidation,
) -> None:
    """Check that the budget suffices for all stages, and the guard for the evaluation table."""
    checked = tables.checked_ids
    runs = RunDirectory(config.run_directory)
    resumes = not options.force and runs.work("align").exists()
    sizes = planned_sizes(config, plan, resumes_alignment=resumes)
    aggregate, certain = None, True
    if "align" in plan and "train" in checked:  # otherwise the stage itself accounts for it
        aggregate, certain = planned_aggregate(role, config, plan, checked["train"].count)
    with told_as("its privacy settings do not allow the run"), open_ledger(config) as ledger:
        if "evaluation" in sizes and config.data.evaluation_table is not None:
            ids = table_ids(config, "evaluation", config.data.evaluation_table, checked)
            ledger.prepare({"evaluation": ids}, accept_difference=options.accept_difference)
        ledger.check_budget(sum(sizes.values()), aggregate if certain else None)


def table_ids(
    config: PartyConfig, name: TableName, table: Table, checked: dict[TableName, IdSummary]
) -> TableIds:
    """Return the IDs of a table, which are checked unless they were checked before."""
    storage = FolderStorage(config.run_directory)
    return TableIds(table, config.agreement.id_normalisation, storage, checked.get(name))
