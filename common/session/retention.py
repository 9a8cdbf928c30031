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
    #: What it means if a file is damaged or lost, and what to do if it cannot be restored.
    if_damaged: str

    @property
    def files(self) -> str:
        """The patterns, for a table in Markdown."""
        return ", ".join(f"`{pattern}`" for pattern in self.patterns)

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
        "the exchanges that it contains are repeated, or the alignment starts over by itself",
    ),
    Artefact(
        ("checkpoints/*",),
        "secret",
        "weights, optimiser state and the secret of the random draws, to resume training",
        "once training is finished (it deletes them); before that, training starts over",
        "the run resumes from an older checkpoint that both parties have. If there is none, or a "
        "secret or the journal is lost, start over on both sides with --stage train --force",
    ),
    Artefact(
        ("alignment/*/commitment.key", "evaluation-alignment/commitment.key"),
        "secret",
        "the key that opens this party's set commitment",
        "once no auditor may ask for an opening any more",
        "the commitment cannot be opened; restore the file, or align again on both sides with "
        "--stage align --force",
    ),
    Artefact(
        ("alignment/*/ranks.parquet",),
        "working",
        "the number of each row of the party's own table in the union",
        "once the model is not trained, audited or served in groups any more, and no commitment "
        "will be opened",
        "rows would be matched to wrong people; restore the file, or align again on both sides "
        "with --stage align --force, then train again",
    ),
    Artefact(
        ("evaluation-alignment/ranks.parquet",),
        "working",
        "the number of each row of the evaluation table in its union",
        "once no further evaluation on these people is planned, and no commitment will be opened",
        "these people cannot be evaluated again; restore the file, or evaluate on other people in "
        "another run_directory. A finished evaluation is not affected",
    ),
    Artefact(
        ("evaluation-alignment/draws.key",),
        "secret",
        "the secret from which stand-ins in evaluations are drawn",
        "once no further evaluation on these people is planned",
        "people would have other stand-ins, which reveals who is shared; restore the file, or "
        "evaluate on other people in another run_directory",
    ),
    Artefact(
        ("evaluation-alignment/begun", "evaluation-alignment/answers.journal"),
        "proof",
        "that people of this union were evaluated, and by which models (digests)",
        "with all of `evaluation-alignment`, after which its people must not be evaluated with "
        "this peer again",
        "these people cannot be evaluated again; restore the file, or evaluate on other people in "
        "another run_directory",
    ),
    Artefact(
        ("audit/view.safetensors",),
        "working",
        "what this party sent, if `audit.keep_view` is set",
        "once the self-audit will not be repeated",
        "the self-audit cannot be repeated (florist audit --again); its findings are kept",
    ),
    Artefact(
        ("serving/*",),
        "secret",
        "the secret from which stand-ins in predictions are drawn; the token of the HTTP service",
        "once predictions are not served any more: with another secret, people who are asked for "
        "again have other stand-ins",
        "people who are asked for again would have other stand-ins; restore the file. To accept "
        "that, delete the folder `serving`",
    ),
    Artefact(
        (".lock", "*.part", ".alignment-?*", ".training-?*", ".evaluation-?*", ".old-?*"),
        "working",
        "a lock; leftovers of a process that was killed",
        "at any time while no party runs",
        "nothing is lost",
    ),
    Artefact(
        ("*/manifest.json",),
        "proof",
        "size and SHA-256 of each file in its folder",
        "with these files; without it they are used unverified",
        "the files that it lists cannot be verified and are not used; restore it, or if they are "
        "certainly intact, delete it",
    ),
    Artefact(
        (
            "alignment/*/alignment.json",
            "alignment/*/commitment.json",
        ),
        "proof",
        "announced sizes, estimates, agreement, digests; the roots of both commitments",
        "when the evidence is deleted",
        "the alignment cannot be used; restore the file, or align again on both sides with "
        "--stage align --force, then train again",
    ),
    Artefact(
        ("evaluation-alignment/alignment.json", "evaluation-alignment/commitment.json"),
        "proof",
        "the same for the union of the evaluation tables",
        "when the evidence is deleted",
        "these people cannot be evaluated again; restore the file, or evaluate on other people in "
        "another run_directory. A finished evaluation is not affected",
    ),
    Artefact(
        ("evidence/*",),
        "proof",
        "what both parties signed about each stage; this party's audit findings and log digest",
        "once nobody may ask how the run was done any more; check legal retention periods",
        "this party's proof of the stage is lost; restore the file, or ask the peer for its own. "
        "Results are not affected",
    ),
    Artefact(
        ("audit/audit.jsonl",),
        "proof",
        "the findings of the self-audit: aggregates",
        "when the evidence is deleted",
        "earlier findings are lost, and with them a stop by policy; restore the file, or start "
        "over on both sides with --stage train --force",
    ),
    Artefact(
        ("training/*",),
        "result",
        "this party's half of the model, the categories and ranges of its columns, metrics, report",
        "once the model is not used any more. Weights and categories are derived from personal "
        "data",
        "the model or its figures cannot be used; restore the file, or train again on both sides "
        "with --stage train --force",
    ),
    Artefact(
        ("evaluation/*",),
        "result",
        "estimated metrics and their report: aggregates",
        "once the model is not used any more",
        "the figures cannot be used; restore the file, or evaluate again on both sides with "
        "--stage evaluate --force, which gives the same figures",
    ),
    Artefact(
        ("status.html",),
        "result",
        "the last state of the status page, with the last lines of the log, if "
        "`observability.address` is set",
        "at any time",
        "nothing is lost; it has no digest, since no stage reads it",
    ),
    Artefact(
        ("tensorboard/*",),
        "result",
        "metrics per epoch, if `training.tensorboard` is set",
        "at any time",
        "plots are lost; `training/history.json` has the same figures",
    ),
)

#: What `florist purge` deletes unless everything is to be deleted.
PURGED: frozenset[Kind] = frozenset({"secret", "working"})


def if_damaged(path: str) -> str:
    """Return what damage to a file of the run directory means, and what to do about it."""
    artefact = artefact_of(path)
    return artefact.if_damaged if artefact else "restore it"


def artefact_of(path: str) -> Artefact | None:
    """Return the first artefact that a path, relative to the run directory, belongs to."""
    return next((artefact for artefact in ARTEFACTS if artefact.matches(path)), None)
