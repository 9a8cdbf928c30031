"""Which model an evaluation belongs to: after training again, an older evaluation is outdated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

#: What to tell the owner of an outdated evaluation.
OUTDATED = (
    "The evaluation belongs to an earlier model; repeat it with --stage evaluate on both sides."
)


def is_outdated(training: Path, evaluation: Path) -> bool:
    """Whether there is an evaluation, and the model beside it is not the one that it evaluated.

    Args:
        training: the folder with the trained model.
        evaluation: the folder with the evaluation.

    Files that are damaged or cannot be read are left to those who use them: they report it.
    """
    model, evaluated = _facts(training / "model.json"), _facts(evaluation / "evaluation.json")
    if model is None or evaluated is None:
        return False
    if evaluated.get("run") != model.get("run"):
        return True
    halves = [model.get("digest"), model.get("peer_digest")]
    return bool(evaluated.get("model", halves) != halves)  # earlier releases recorded the run only


def _facts(path: Path) -> dict[str, Any] | None:
    from florist.common.storage.manifest import damages  # noqa: PLC0415 - keeps --help fast

    if any(damages(path.parent, [path.name])):
        return None
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None
