"""What counts as the same line on every machine."""

from __future__ import annotations

import pytest

from tests.tutorial.page import Command, missing_lines

CELLS = (
    ("spectral", "part 5 of 5 of the pass", "batches 5\u20139"),
    ("label-likelihood", "label 1", "all later batches"),
    ("known-stand-ins", "cluster 12 of own features", "first batch"),
)


@pytest.mark.parametrize("here", CELLS)
@pytest.mark.parametrize("there", CELLS)
def test_which_attack_does_best_and_where_may_differ(
    here: tuple[str, str, str], there: tuple[str, str, str]
) -> None:
    def table(name: str, stratum: str, window: str) -> list[str]:
        return [
            f" {name}    0.50 (0.50\u20130.56)  0.52 (0.50\u20130.64)  \u2013  ✓",
            f"           {stratum}  {window}",
        ]

    assert missing_lines(Command("florist audit", table(*here), table(*there))) == []


def test_other_text_may_not_differ() -> None:
    shown = ["the model has learned", "attack 0.5 (0.5\u20130.6) ✓"]
    printed = ["the model has diverged", "attack 0.5 (0.5\u20130.6) ✗"]
    assert missing_lines(Command("florist", shown, printed)) == shown
