"""Every file of a run is damaged in every way: it is noticed, and nothing silently changes.

One pair of finished runs and one pair of interrupted ones are prepared. Each of their files is then
damaged in place, read by all that reads files of a run, and restored. With `FLORIST_DAMAGE_FIGURES`
set to a path, the numbers of files and damages are written there as JSON.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from florist.api.audit import load_audit
from florist.api.runs import load_run
from florist.api.verify import verify_run
from florist.cli.tool import app
from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.kept_view import load_view
from florist.common.bundle.loading import load_bundle
from florist.common.core.errors import FloristError
from florist.common.core.progress import NoProgress
from florist.common.core.roles import RoleName
from florist.common.evaluation.evaluation_journal import EvaluationJournal
from florist.common.evidence.evidence_file import load_stage_evidence
from florist.common.privacy.commitment import load_commitment
from florist.common.psu.journal import Journal
from florist.common.serving.served_table import load_served_table
from florist.common.session.stage_state import STAGES, StageChoice, StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages import evaluate as evaluate_stage
from florist.common.stages import train as train_stage
from florist.common.stages.run_stages import run_stage
from florist.common.stages.run_stages import run_stages as run_stages_of
from florist.common.storage.files import FolderStorage
from florist.common.storage.manifest import DamagedFile
from florist.common.storage.private_files import LOCK
from florist.common.training.aggregate_run import AggregateRecord
from florist.common.training.run_checkpoints import RunCheckpoints
from florist.common.training.run_handshake import run_id
from florist.common.training.training_journal import TrainingJournal
from tests.support.in_process import RoleWithoutPeer, StopAfter
from tests.support.parties import ROLES, Workspace
from tests.support.serving import QuickModel, run_stages
from tests.support.stage_pairs import BOTH, end_of_both

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from florist.common.session.run_directory import RunDirectory

#: Files without content, or that their owner may change; nothing that is computed depends on them.
NOT_COVERED = {LOCK, ".pending"}


@dataclass(frozen=True)
class Audited(QuickModel):
    """A short run of all stages with everything that leaves files."""

    people: int = 400
    evaluation_fraction: float = 1.0
    seed_offset: int = 0

    def settings(self, role: RoleName) -> dict[str, Any]:
        return QuickModel.settings(self, role) | {
            "audit.enabled": True,
            "audit.keep_view": True,
            "training.seed": (1 if role == "active" else 2) + self.seed_offset,
            "agreement.training.checkpoint_every": 2,
            "agreement.training.aggregate.min_count": 20,
        }


def with_aggregate(directory: Path, sample: Audited) -> Workspace:
    workspace = Workspace.create(directory, sample)
    privacy = {"epsilon": 2.0, "delta": 1e-7}
    for role in ROLES:
        workspace.configure(role, {"agreement.training.aggregate.privacy": privacy})
    return workspace


@pytest.fixture(scope="module", autouse=True)
def _plain_reports() -> Iterator[None]:
    """Do not draw the plots, which take longer than the training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_stage, "render", lambda _: "<html>")
        patch.setattr(evaluate_stage, "render", lambda _: "<html>")
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Workspace]:
    """Two finished runs of the same parties with other secrets."""
    folder = tmp_path_factory.mktemp("finished")
    pair = []
    for number in range(2):
        workspace = with_aggregate(folder / str(number), Audited(seed_offset=10 * number))
        run_stages(workspace, "align", "train", "evaluate")
        for role in ROLES:
            serve(workspace, role)
        pair.append(workspace)
    return pair[0], pair[1]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Workspace]:
    """Two runs whose training was interrupted after a few steps."""
    folder = tmp_path_factory.mktemp("stopped")
    pair = []
    for number in range(2):
        workspace = with_aggregate(folder / str(number), Audited(seed_offset=10 * number))
        run_stages(workspace, "align")
        ends = end_of_both(workspace, "train", progress={"active": StopAfter(7)})
        assert [end.exit_code for end in ends.values() if end] == [130, 5]
        pair.append(workspace)
    return pair[0], pair[1]


@pytest.fixture(scope="module")
def aligning(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Workspace]:
    """Two runs whose alignment was interrupted."""
    folder = tmp_path_factory.mktemp("aligning")
    pair = []
    for number in range(2):
        workspace = Workspace.create(folder / str(number), Audited(seed_offset=10 * number))
        ends = end_of_both(workspace, "align", progress={"active": StopAfter(5)})
        assert [end.exit_code for end in ends.values() if end] == [130, 5]
        pair.append(workspace)
    return pair[0], pair[1]


# --- what reads the files of a run; returns something to compare ---


def serve(workspace: Workspace, role: RoleName) -> object:
    config, runs = load_config(workspace.config(role)), workspace.run_directory(role)
    if role == "active":
        return None  # it has no features, so that it has no stand-ins to draw
    table = load_served_table(config, runs, load_bundle(runs, role))
    return table.row_of_rank.tolist()


def model(workspace: Workspace, role: RoleName) -> object:
    bundle = load_bundle(workspace.run_directory(role), role)
    weights = {name: each.tolist() for name, each in bundle.model.state_dict().items()}
    return bundle.digest, bundle.peer_digest, weights, repr(bundle.preprocessing)


def evaluation_union(workspace: Workspace, role: RoleName) -> object:
    runs = workspace.run_directory(role)
    union = runs.load_evaluation_union()
    assert union is not None
    facts = union.alignment.summary, union.alignment.rank_of_row.tolist(), union.secret
    journal = EvaluationJournal(runs.evaluation_journal)
    content = runs.evaluation_journal.read_bytes() if runs.evaluation_journal.exists() else b""
    journal.open(
        bytes.fromhex(union.alignment.summary.union_sha256),
        load_bundle(runs, role).run,
        bytes(32),
        8,
        must_exist=runs.has_started_evaluation,
        confirmed=runs.journal_records(),
    )
    known = dict(journal._known)
    journal.close()
    if content:
        runs.evaluation_journal.write_bytes(content)
    return facts, known, journal.model


def alignments(workspace: Workspace, role: RoleName) -> object:
    runs = workspace.run_directory(role)
    loaded = [runs.load_alignment(table) for table in ("train", "test")]
    return [(each.summary, each.rank_of_row.tolist()) for each in loaded]


def commitments(workspace: Workspace, role: RoleName) -> object:
    runs = workspace.run_directory(role)
    folder = runs.alignment_folder("train")
    runs.require_intact(folder / "commitment.json", folder / "commitment.key")
    return load_commitment(folder)


def evidence(workspace: Workspace, role: RoleName) -> object:
    runs = workspace.run_directory(role)
    return [load_stage_evidence(runs.evidence / f"{stage}.json") for stage in STAGES]


def audits(workspace: Workspace, role: RoleName) -> object:
    runs = workspace.run_directory(role)
    union = runs.load_summary().union_sha256
    seen = load_view(AuditFolder(runs.audit), union)
    return load_audit(runs), [(each.step, each.embeddings.tolist()) for each in seen]


def shown(workspace: Workspace, role: RoleName) -> object:
    return load_run(workspace.run_directory(role).path)


Reader = Callable[[Workspace, RoleName], object]

#: By folder of the run directory, all that reads its files.
FINISHED_READERS: dict[str, tuple[Reader, ...]] = {
    "alignment": (shown, alignments, commitments, serve),
    "training": (shown, model),
    "evaluation": (shown,),
    "evaluation-alignment": (evaluation_union,),
    "evidence": (evidence,),
    "audit": (shown, audits),
    "serving": (serve,),
}


def resumed_training(workspace: Workspace, role: RoleName) -> object:
    """Everything from which an interrupted training resumes, by step."""
    runs = workspace.run_directory(role)
    store = RunCheckpoints(runs.checkpoints, 3)
    newest = store.load(max(store.loadable_steps()))
    digest = sha256()
    for name, tensor in sorted(newest.tensors.items()):
        digest.update(name.encode() + np.ascontiguousarray(tensor.numpy()).tobytes())
    journal = TrainingJournal(runs.training_journal)
    content = runs.training_journal.read_bytes() if runs.training_journal.exists() else b""
    owner, least = run_id(bytes.fromhex(newest.facts.seed)), newest.facts.journal_records
    journal.resume(owner, bytes(32), newest.step, 99, least)
    known = dict(journal._known)
    journal.close()
    runs.training_journal.write_bytes(content)
    return newest.step, digest.hexdigest(), newest.facts, known


def resumed_aggregate(workspace: Workspace, role: RoleName) -> object:
    record = AggregateRecord(workspace.run_directory(role).checkpoints)
    answered = record._files.read("aggregate.answered") if role == "active" else b""  # type: ignore[union-attr]
    assert record.exists
    return record.secret(), answered, record.facts()


def resumed_audit(workspace: Workspace, role: RoleName) -> object:
    return load_audit(workspace.run_directory(role))


def resumed_union(workspace: Workspace, role: RoleName) -> object:
    """What an alignment resumes from; None if the union starts over."""
    folder = workspace.run_directory(role).work("align") / "train"
    storage = FolderStorage(folder)
    record = Journal(storage, 32, b"").record
    if record is None:
        return None
    journal = Journal(storage, 32, bytes.fromhex(record.identity))
    return record if journal.token and journal.drop_damaged() else None


# --- damages ---


@contextmanager
def restored(path: Path) -> Iterator[None]:
    content = path.read_bytes()
    try:
        yield
    finally:
        path.write_bytes(content)
        path.chmod(0o600)


def flipped(offset: float) -> Callable[[Path, Path], None]:
    def damage(path: Path, _twin: Path) -> None:
        content = bytearray(path.read_bytes())
        at = min(int(offset * len(content)), len(content) - 1)
        content[at] ^= 1 << (at % 8)
        path.write_bytes(content)

    return damage


def truncate(path: Path, _twin: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_end(path: Path, _twin: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path, _twin: Path) -> None:
    os.truncate(path, 0)


def remove(path: Path, _twin: Path) -> None:
    path.unlink()


def swap(path: Path, twin: Path) -> None:
    path.write_bytes(twin.read_bytes())


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    **{f"flip at {offset}": flipped(offset) for offset in (0.0, 0.03, 0.3, 0.61, 0.999)},
    "truncate": truncate,
    "cut the last byte": cut_end,
    "empty": empty,
    "remove": remove,
    "swap": swap,
}


@dataclass
class Tally:
    """What was tried."""

    files: int = 0
    damages: Counter[str] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.damages = Counter()


def cases(runs: RunDirectory, twins: RunDirectory) -> Iterator[tuple[Path, Path]]:
    """All files of a run with content, and the same file of the other run."""
    others = sorted(path.relative_to(twins.path) for path in twins.path.rglob("*"))
    for path in sorted(runs.path.rglob("*")):
        if path.is_file() and path.name not in NOT_COVERED and path.stat().st_size:
            name = path.relative_to(runs.path)
            same = [each for each in others if each == name]
            # Tensor files have their digest in their names.
            alike = [each for each in others if str(each)[:28] == str(name)[:28]]
            yield path, twins.path / (same or alike or [name])[0]


def outcome(read: Reader, workspace: Workspace, role: RoleName) -> object:
    """What a reader returns, or the error that it raises."""
    try:
        return read(workspace, role)
    except FloristError as error:
        return error


def damage_all(
    pair: tuple[Workspace, Workspace],
    role: RoleName,
    readers: Mapping[str, tuple[Reader, ...]],
    accepts: Callable[[object, object], bool] = lambda found, good: found == good,
) -> Tally:
    """Damage every file in every way, and check what all readers make of it.

    `accepts` says whether what a reader found is as good as the undisturbed.
    """
    workspace, twin = pair
    runs, twins = workspace.run_directory(role), twin.run_directory(role)
    good = {read: read(workspace, role) for each in readers.values() for read in each}
    assert verify_run(runs.path).problems == ()
    tally = Tally()
    for path, other in list(cases(runs, twins)):
        tally.files += 1
        for name, damage in DAMAGES.items():
            if name == "swap" and (not other.exists() or other.read_bytes() == path.read_bytes()):
                continue
            with restored(path):
                damage(path, other)
                where = f"{path.relative_to(runs.path)}: {name}"
                for read in readers[path.relative_to(runs.path).parts[0]]:
                    found = outcome(read, workspace, role)
                    if isinstance(found, FloristError):
                        assert found.exit_code == 2, where
                    else:
                        assert accepts(found, good[read]), (where, read)
                if not path.name.startswith("evidence."):
                    problems = verify_run(runs.path).problems
                    # A checkpoint without its JSON file is none; its last byte is a line feed. The
                    # end of a journal is reserved space.
                    missed = (
                        name in ("remove", "cut the last byte") and path.match("step-*.json")
                    ) or (name in ("truncate", "cut the last byte") and path.suffix == ".journal")
                    assert problems or missed, where
                    # With the journal of another union, all sets of the union are wrong.
                    words = (path.name, "manifest.json", "step-", "-work")
                    assert all(any(word in line for word in words) for line in problems), where
                tally.damages[name.partition(" at ")[0]] += 1
    return tally


@pytest.mark.parametrize("role", ROLES)
def test_a_finished_run(finished: tuple[Workspace, Workspace], role: RoleName) -> None:
    note(f"finished run, {role} party", damage_all(finished, role, FINISHED_READERS))


@pytest.mark.parametrize("role", ROLES)
def test_an_interrupted_training(stopped: tuple[Workspace, Workspace], role: RoleName) -> None:
    runs = stopped[0].run_directory(role)
    store = RunCheckpoints(runs.checkpoints, 3)
    states = {step: resumed_state(stopped[0], role, step) for step in store.loadable_steps()}

    def accepts(found: object, good: object) -> bool:
        """An older checkpoint of the same run is as good."""
        if isinstance(found, tuple) and isinstance(found[0], int):
            return found[:3] == states[found[0]] and found[3] == good[3]  # type: ignore[index]
        return found == good

    readers: dict[str, tuple[Reader, ...]] = {
        "alignment": (alignment_of_train,),
        "evidence": (evidence_of_alignment,),
        "checkpoints": (resumed_training, resumed_aggregate),
        "audit": (resumed_audit,),
    }
    note(f"interrupted training, {role} party", damage_all(stopped, role, readers, accepts))


def resumed_state(workspace: Workspace, role: RoleName, step: int) -> object:
    newest = RunCheckpoints(workspace.run_directory(role).checkpoints, 3).load(step)
    digest = sha256()
    for name, tensor in sorted(newest.tensors.items()):
        digest.update(name.encode() + np.ascontiguousarray(tensor.numpy()).tobytes())
    return newest.step, digest.hexdigest(), newest.facts


def evidence_of_alignment(workspace: Workspace, role: RoleName) -> object:
    return load_stage_evidence(workspace.run_directory(role).evidence / "align.json")


def alignment_of_train(workspace: Workspace, role: RoleName) -> object:
    loaded = workspace.run_directory(role).load_alignment()
    return loaded.summary, loaded.rank_of_row.tolist()


@pytest.mark.parametrize("role", ROLES)
def test_an_interrupted_alignment(aligning: tuple[Workspace, Workspace], role: RoleName) -> None:
    def accepts(found: object, good: object) -> bool:
        """The union starts over, or the exchanges whose results are lost are repeated."""
        if found is None:
            return True
        kept = found.finished  # type: ignore[attr-defined]
        return bool(found == good.model_copy(update={"finished": kept}))  # type: ignore[attr-defined]

    note(
        f"interrupted alignment, {role} party",
        damage_all(aligning, role, {".alignment-work": (resumed_union,)}, accepts),
    )


def note(title: str, tally: Tally) -> None:
    """Add the numbers to the file of figures, if one is wanted."""
    assert tally.files
    assert tally.damages.keys() >= {"flip", "truncate", "empty", "remove"}
    target = os.environ.get("FLORIST_DAMAGE_FIGURES")
    if target is not None:
        path = Path(target)
        figures = json.loads(path.read_text()) if path.exists() else {}
        figures[title] = {"files": tally.files, "damages": dict(sorted(tally.damages.items()))}
        path.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")


# --- whole parties: the faults that once changed a result silently, or ended with exit code 70 ---


def ended(workspace: Workspace, role: RoleName, stage: StageChoice, *, force: bool) -> FloristError:
    """Return the error of a party that ends before it connects to its peer."""
    side, config = RoleWithoutPeer(BOTH[role]), load_config(workspace.config(role))
    options = StageOptions(force=force)

    def run() -> None:
        if stage == "all":
            run_stages_of(side, config, stage, options)
        else:
            assert stage != "serve"
            run_stage(stage, side, config, options, NoProgress())

    with pytest.raises(FloristError) as end:
        run()
    return end.value


def one_more(path: Path, _twin: Path) -> None:
    """Add one to the size of the peer's set."""
    facts = json.loads(path.read_text())
    facts["sizes"]["peer"] += 1
    path.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")


def at_byte_80(path: Path, _twin: Path) -> None:
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("stage", "name", "damage", "says"),
    [
        ("train", "alignment/train/ranks.parquet", at_byte_80, "--stage align --force"),
        ("train", "alignment/train/alignment.json", one_more, "--stage align --force"),
        ("evaluate", "evaluation-alignment/ranks.parquet", at_byte_80, "other people"),
        ("evaluate", "evaluation-alignment/draws.key", flipped(0.5), "other people"),
        ("evaluate", "evaluation-alignment/draws.key", truncate, "other people"),
        ("all", "training/history.json", flipped(0.5), "--stage train --force"),
        ("all", "training/metrics.json", truncate, "--stage train --force"),
        ("all", "evaluation/evaluation.json", flipped(0.5), "--stage evaluate --force"),
    ],
)
def test_a_party_names_the_file_and_the_stage_to_repeat(
    finished: tuple[Workspace, Workspace],
    role: RoleName,
    stage: StageChoice,
    name: str,
    damage: Callable[[Path, Path], None],
    says: str,
) -> None:
    workspace, _ = finished
    path = workspace.run_directory(role).path / name
    with restored(path):
        damage(path, path)
        error = ended(workspace, role, stage, force=stage != "all")
        assert isinstance(error, DamagedFile)
        assert error.exit_code == 2
        assert str(path) in str(error)
        assert says in str(error)
        assert str(path) not in error.for_peer
        result = CliRunner().invoke(app, ["verify", str(workspace.run_directory(role).path)])
        assert result.exit_code == 2
        assert path.name in result.output
