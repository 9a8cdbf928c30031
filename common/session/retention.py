"""What each file of a run directory contains, and when it may be deleted.

`florist purge` deletes by this table, and the documentation shows it. A test checks that the files
of a finished run are all in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

#: secret: could help somebody who has it together with other data. working: needed only to resume
#: or to repeat something. result: what the run was for. proof: what shows how it was done.
Kind = Literal["secret", "working", "result", "proof"]


@dataclass(frozen=True, slots=True)
class Artefact:
    """Some files of a run directory."""

    #: Patterns of paths relative to the run directory; `*` also matches `/`.
    patterns: tuple[str, ...]
    kind: Kind
    contents: str
    #: When it may be deleted, and what is impossible afterwards.
    deletable: str

    def matches(self, path: str) -> bool:
        """Whether a path, relative to the run directory, is one of these files."""
        return any(fnmatchcase(path, pattern) for pattern in self.patterns)


ARTEFACTS: tuple[Artefact, ...] = (
    Artefact(
        (".alignment-work/*", ".training-work/*", ".evaluation-work/*"),
        "working",
        "encrypted IDs of both parties and sealed keys, to resume an alignment",
        "once the stage is finished (a finished stage deletes it); before that, the stage starts "
        "over",
    ),
    Artefact(
        ("checkpoints/*",),
        "secret",
        "weights, optimiser state and the secret of the random draws, to resume training",
        "once training is finished (it deletes them); before that, training starts over",
    ),
    Artefact(
        ("alignment/*/commitment.key", "evaluation-alignment/commitment.key"),
        "secret",
        "the key that opens this party's set commitment",
        "once no auditor may ask for an opening any more",
    ),
    Artefact(
        ("alignment/*/ranks.parquet", "evaluation-alignment/ranks.parquet"),
        "working",
        "the number of each row of the party's own table in the union",
        "once the model is not trained, evaluated, audited or served in groups any more, and no "
        "commitment will be opened",
    ),
    Artefact(
        ("evaluation-alignment/draws.key",),
        "secret",
        "the secret from which stand-ins in evaluations are drawn",
        "once no further evaluation on these people is planned",
    ),
    Artefact(
        ("evaluation-alignment/begun", "evaluation-alignment/answers.journal"),
        "proof",
        "that people of this union were evaluated, and by which models (digests)",
        "with all of `evaluation-alignment`, after which its people must not be evaluated with "
        "this peer again",
    ),
    Artefact(
        ("audit/view.safetensors",),
        "working",
        "what this party sent, if `audit.keep_view` is set",
        "once the self-audit will not be repeated",
    ),
    Artefact(
        ("serving/*",),
        "secret",
        "the secret from which stand-ins in predictions are drawn; the token of the HTTP service",
        "once predictions are not served any more: with another secret, people who are asked for "
        "again have other stand-ins",
    ),
    Artefact(
        (".lock", "*.part", ".alignment-?*", ".training-?*", ".evaluation-?*", ".old-?*"),
        "working",
        "a lock; leftovers of a process that was killed",
        "at any time while no party runs",
    ),
    Artefact(
        (
            "alignment/*/alignment.json",
            "evaluation-alignment/alignment.json",
            "alignment/*/commitment.json",
            "evaluation-alignment/commitment.json",
        ),
        "proof",
        "announced sizes, estimates, agreement, digests; the roots of both commitments",
        "when the evidence is deleted",
    ),
    Artefact(
        ("evidence/*",),
        "proof",
        "what both parties signed about each stage; this party's audit findings and log digest",
        "once nobody may ask how the run was done any more; check legal retention periods",
    ),
    Artefact(
        ("audit/audit.jsonl",),
        "proof",
        "the findings of the self-audit: aggregates",
        "when the evidence is deleted",
    ),
    Artefact(
        ("training/*",),
        "result",
        "this party's half of the model, the categories and ranges of its columns, metrics, report",
        "once the model is not used any more. Weights and categories are derived from personal "
        "data",
    ),
    Artefact(
        ("evaluation/*",),
        "result",
        "estimated metrics and their report: aggregates",
        "once the model is not used any more",
    ),
    Artefact(
        ("tensorboard/*",),
        "result",
        "metrics per epoch, if `training.tensorboard` is set",
        "at any time",
    ),
)

#: What `florist purge` deletes unless everything is to be deleted.
PURGED: frozenset[Kind] = frozenset({"secret", "working"})


def artefact_of(path: str) -> Artefact | None:
    """Return the first artefact that a path, relative to the run directory, belongs to."""
    return next((artefact for artefact in ARTEFACTS if artefact.matches(path)), None)
