"""What a run can be expected to find with tables of this size, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.text import counted
from florist.common.evaluation.expected_precision import (
    expected_for_evaluation,
    expected_for_test_table,
)
from florist.common.psu.padded_set import most_padding

if TYPE_CHECKING:
    from florist.common.evaluation.expected_precision import ExpectedPrecision
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.table_validation import ValidatedTable

#: With fewer steps, a model learns little.
FEW_STEPS = 100

#: The assumption behind expectations: neither party knows the other's table yet.
ASSUMPTION = "if the peer's table is as large as ours and half of the people are shared"


def likely_union(people: int) -> int:
    """Return the size of the union of two tables of this size that share half of their people."""
    return people + people // 2


def expected_steps(config: PartyConfig, people: int) -> str:
    """Say how many training steps to expect, and what to do if they are few."""
    agreed = config.agreement.training.resolved(likely_union(people))
    steps = agreed.steps(likely_union(people))
    text = f"{counted(_rounded(steps), 'training step')} of {agreed.known_batch_size:,}"
    return f"{text}; {few_steps_advice(steps, agreed.known_batch_size)}" if is_few(steps) else text


def is_few(steps: int) -> bool:
    """Whether a model learns little in so many steps."""
    return steps < FEW_STEPS


def few_steps_advice(steps: int, batch_size: int) -> str:
    """Say what to do about too few steps."""
    return (
        f"{'this is' if steps == 1 else 'these are'} few, and a model learns little in fewer than "
        f"{FEW_STEPS}: agree on an agreement.training.batch_size below {batch_size:,}, or on more "
        "agreement.training.epochs, or use larger tables"
    )


def expected_test(table: ValidatedTable) -> str:
    """Say how precise the AUC on a test table will be."""
    return _stated(table, expected_for_test_table(table.rows, _rarest(table)))


def expected_evaluation(config: PartyConfig, table: ValidatedTable) -> str:
    """Say how precise the private estimate of the AUC will be."""
    once = config.agreement.evaluation.stand_ins == "once"
    expected = expected_for_evaluation(
        table.rows, _rarest(table), padding=most_padding(config), once=once
    )
    return f"{ASSUMPTION}, {_stated(table, expected)}"


def _stated(table: ValidatedTable, expected: ExpectedPrecision) -> str:
    classes = "" if table.class_counts else " if its classes are equally frequent"
    warning = f"; {expected.warning}" if expected.warning else ""
    return f"{expected.shown}{classes}{warning}"


def _rarest(table: ValidatedTable) -> float:
    """Return the fraction of the rarest class; without labels, a half."""
    return min(table.class_counts) / table.rows if table.class_counts else 0.5


def _rounded(count: int) -> int:
    """Return a number with two digits: logs do not state the exact size of our table."""
    return int(float(f"{count:.2g}"))
