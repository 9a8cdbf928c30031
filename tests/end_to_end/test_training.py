"""Training over mutual TLS: the files of a run, stopping and resuming, and errors.

Where the test is not about processes, both parties run in threads of this one: the same stage over
the same network, or over an in-memory link.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Literal

import psutil
import pytest
import torch
from safetensors.torch import load_file

from florist.active_party.role import ACTIVE
from florist.active_party.training import ActiveHalf
from florist.common.core.errors import (
    FloristError,
    Interrupted,
    OverlapOutsideLimits,
    PeerFailed,
)
from florist.common.core.ports import free_port
from florist.common.core.progress import NoProgress
from florist.common.data.preprocessing import Preprocessing
from florist.common.session.answer_journal import DifferentBlock, JournalLost, NotReproducible
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages import train as train_stage
from florist.common.stages.run_stages import run_stage
from florist.common.stages.train import TrainStage
from florist.common.stages.training_session import OtherInputs
from florist.common.storage.manifest import DamagedFile
from florist.common.training.averaging import WeightAverage
from florist.common.training.checkpoint import CheckpointStore
from florist.common.training.history import History
from florist.common.training.run_checkpoints import RunCheckpoints
from florist.common.training.run_inputs import InputRecord
from florist.common.training.training_journal import CannotStartOver, TooManyResumptions
from florist.common.transport import messages
from florist.common.transport.channel import CONTROL
from florist.common.transport.codec import encode
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    BundleOffer,
    ChoiceBlock,
    Control,
    EpochSummary,
    EvidenceContribution,
    EvidenceSignature,
    GradientBlock,
    NonceReveal,
    OfferBlock,
    TrainingOpening,
    TransferBlock,
    TransferReply,
    TransferRequest,
)
from florist.common.transport.recording import RecordingLink
from florist.passive_party.role import PASSIVE
from florist.passive_party.training import PassiveHalf
from tests.support.in_process import RoleOverLink, RoleWithoutPeer, StopAfter
from tests.support.parties import ROLES, ForkedProcess, Party, QuickClicks, Workspace, other
from tests.support.relay import Relay
from tests.support.tables import read_ids
from tests.support.tampering import TamperingLink
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.session.stage_state import StageName
    from florist.common.stages.role import Role
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message

BOTH = {"active": ACTIVE, "passive": PASSIVE}

#: Steps in two epochs: the union's 909 people in batches of 32.
STEPS = 58

#: Seconds within which a lost peer must be reported.
TOLD = 15

RESULTS = {
    "model.safetensors",
    "model.json",
    "preprocessing",
    "metrics.json",
    "history.json",
    "report.html",
    "manifest.json",
    "inputs.json",
}

Weights = dict[str, torch.Tensor]


# --- both parties in this process ---


@dataclass
class Pair:
    """Runs the stage of both parties in threads, and returns how it ended."""

    workspace: Workspace
    options: dict[RoleName, StageOptions] = field(default_factory=dict)
    stop_after: dict[RoleName, int] = field(default_factory=dict)
    #: Used instead of the network.
    links: Mapping[RoleName, Link] = field(default_factory=dict)

    def run(self) -> dict[RoleName, FloristError | None]:
        with ThreadPoolExecutor(2) as both:
            ends = {role: both.submit(self._end, role) for role in ROLES}
            return {role: end.result(timeout=240) for role, end in ends.items()}

    def alone(self, role: RoleName) -> FloristError | None:
        return self._end(role)

    def _end(self, role: RoleName) -> FloristError | None:
        side: Role = BOTH[role]
        if role in self.links:
            side = RoleOverLink(side, self.links[role])
        stop = self.stop_after.get(role)
        progress = StopAfter(stop) if stop else NoProgress()
        options = self.options.get(role, StageOptions())
        try:
            run_stage("train", side, load_config(self.workspace.config(role)), options, progress)
        except FloristError as error:
            return error
        return None


def run_well(
    workspace: Workspace, *, links: Mapping[RoleName, Link] | None = None, **options: bool
) -> None:
    """Train both parties to the end, over the network or over `links`."""
    pair = Pair(workspace, both(**options), links=links or {})
    assert pair.run() == {"active": None, "passive": None}


def both(*, force: bool = False) -> dict[RoleName, StageOptions]:
    return {role: StageOptions(force=force) for role in ROLES}


@pytest.fixture(autouse=True)
def _plain_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not draw the plots, which take longer than the training."""
    monkeypatch.setattr(train_stage, "render", lambda _: "")


# --- workspaces ---


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return align_both(Workspace.create(tmp_path_factory.mktemp("pair") / "aligned", QuickClicks()))


def align_both(workspace: Workspace) -> Workspace:
    with ThreadPoolExecutor(2) as parties:
        ends = [
            parties.submit(
                run_stage,
                "align",
                BOTH[role],
                load_config(workspace.config(role)),
                StageOptions(force=True),
                NoProgress(),
            )
            for role in ROLES
        ]
        for end in ends:
            end.result(timeout=240)
    return workspace


def copy(workspace: Workspace, directory: Path) -> Workspace:
    """Copy a workspace and give it its own address."""
    fresh = workspace.copy(directory)
    configure(fresh, {"network.address": f"127.0.0.1:{free_port()}"})
    return fresh


def configure(workspace: Workspace, changes: dict[str, Any]) -> None:
    for role in ROLES:
        workspace.configure(role, changes)


@pytest.fixture
def workspace(aligned: Workspace, tmp_path: Path) -> Workspace:
    return copy(aligned, tmp_path / "copy")


def weights(workspace: Workspace, role: RoleName) -> Weights:
    return load_file(workspace.run_directory(role).training / "model.safetensors")


def history(workspace: Workspace, role: RoleName) -> History:
    return History.from_json(workspace.run_directory(role).load_history())


def steps_on_disk(workspace: Workspace, role: RoleName) -> list[int]:
    return CheckpointStore(workspace.run_directory(role).checkpoints, keep=1).steps()


@dataclass(frozen=True)
class Undisturbed:
    """The result of a run from the aligned workspace, which interruptions must not change."""

    weights: dict[RoleName, Weights]
    history: dict[RoleName, History]

    def check(self, workspace: Workspace) -> None:
        for role in ROLES:
            found = weights(workspace, role)
            assert found.keys() == self.weights[role].keys()
            for name, tensor in self.weights[role].items():
                assert torch.equal(found[name], tensor), f"{role}: {name}"
            record = history(workspace, role)
            assert record.losses == self.history[role].losses
            assert record.epochs == self.history[role].epochs
            assert record.rows == self.history[role].rows
            assert steps_on_disk(workspace, role) == []


@pytest.fixture(scope="module")
def undisturbed(aligned: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Train without interruption, over an in-memory link."""
    workspace = copy(aligned, tmp_path_factory.mktemp("undisturbed") / "copy")
    run_well(workspace, links=dict(zip(ROLES, linked_pair(), strict=True)))
    return Undisturbed(
        {role: weights(workspace, role) for role in ROLES},
        {role: history(workspace, role) for role in ROLES},
    )


@pytest.fixture(scope="module")
def stopped(aligned: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A run that was stopped after 11 steps: both parties have checkpoints up to step 9."""
    workspace = copy(aligned, tmp_path_factory.mktemp("stopped") / "copy")
    ends = Pair(workspace, stop_after={"active": 11}).run()
    assert [end.exit_code for end in ends.values() if end] == [130, 5]
    assert [steps_on_disk(workspace, role) for role in ROLES] == [[3, 6, 9], [3, 6, 9]]
    return workspace


@pytest.fixture
def half_done(stopped: Workspace, tmp_path: Path) -> Workspace:
    return copy(stopped, tmp_path / "copy")


# --- real processes ---


@contextmanager
def start_both(workspace: Workspace, *options: str) -> Iterator[dict[RoleName, Party]]:
    with ExitStack() as stack:
        yield {role: stack.enter_context(workspace.start_warm(role, *options)) for role in ROLES}


class Page(HTMLParser):
    """Collects the tags of a page, all of which must be closed."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_complete(workspace: Workspace) -> None:
    """Check that both parties have all files of a trained half."""
    for role in ROLES:
        runs = workspace.run_directory(role)
        folder = runs.training
        assert {path.name for path in folder.iterdir()} == RESULTS
        assert steps_on_disk(workspace, role) == []
        facts = json.loads((folder / "model.json").read_text())
        config = load_config(workspace.config(role))
        assert facts["role"] == role
        assert facts["agreement"] == config.agreement.model_dump(mode="json")
        assert facts["union_sha256"] == runs.load_alignment().summary.union_sha256
        preprocessing = Preprocessing.load(folder / "preprocessing")
        assert facts["cardinalities"] == list(preprocessing.cardinalities)
        assert facts["numeric"] == len(preprocessing.numeric_columns)
        assert all(bool(torch.isfinite(t).all()) for t in weights(workspace, role).values())
        record = history(workspace, role)
        metrics = json.loads((folder / "metrics.json").read_text())
        assert metrics["epochs"] == len(record.epochs) == 2
        assert metrics["test"]["auc"] == record.epochs[-1].auc
        page = Page()
        page.feed((folder / "report.html").read_text())
        page.close()
        assert page.open == []
        assert {"html", "title", "table", "svg"} <= page.seen
    assert len(history(workspace, "active").losses) == STEPS
    assert history(workspace, "active").epochs == history(workspace, "passive").epochs


def test_all_stages_between_two_processes(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", QuickClicks())
    with (
        workspace.start("active", stage="all") as active,
        workspace.start("passive", stage="all") as passive,
    ):
        assert (active.finish(100), passive.finish()) == (0, 0)
    assert_complete(workspace)
    with start_both(workspace) as parties:
        for party in parties.values():
            assert party.finish() == 2
            assert "--force" in party.output


def test_training_between_processes_equals_training_in_memory(
    workspace: Workspace, undisturbed: Undisturbed
) -> None:
    """With --force the result is bitwise the same again."""
    for options in ((), ("--force",)):
        with start_both(workspace, *options) as parties:
            assert [party.finish() for party in parties.values()] == [0, 0]
        assert_complete(workspace)
        undisturbed.check(workspace)


def test_features_in_files_train_like_those_in_memory(
    workspace: Workspace, undisturbed: Undisturbed, caplog: pytest.LogCaptureFixture
) -> None:
    configure(workspace, {"training.table_memory": "0MB"})
    with caplog.at_level("INFO", logger="florist.data"):
        run_well(workspace, links=dict(zip(ROLES, linked_pair(), strict=True)))
    undisturbed.check(workspace)
    assert "of features on disk" in caplog.text
    for role in ROLES:
        assert not workspace.run_directory(role).work("train").exists()


# --- stopped and resumed ---


def wait_for_steps(workspace: Workspace, role: RoleName, steps: int, party: Party) -> None:

    def is_there() -> bool:
        assert party.process.poll() is None, party.output
        return max(steps_on_disk(workspace, role), default=0) >= steps

    wait_until(is_there, within=60, every=0.001)


def stop(
    workspace: Workspace, victim: RoleName, number: signal.Signals, after: int = 1
) -> tuple[int, int]:
    """Run both, and signal one once it has a checkpoint of that many further steps.

    Returns the exit codes of this one and of the other.
    """
    last = max(steps_on_disk(workspace, victim), default=0) + after
    with start_both(workspace) as parties:
        wait_for_steps(workspace, victim, last, parties[victim])
        parties[victim].signal(number)
        return parties[victim].finish(TOLD), parties[other(victim)].finish(TOLD)


def survive(workspace: Workspace, undisturbed: Undisturbed, kills: int, seed: int) -> None:
    """Kill either party repeatedly, at any step; then let the run complete."""
    configure(workspace, {"agreement.training.checkpoint_every": 1})
    draws = random.Random(seed)
    for victim in draws.sample(ROLES * kills, kills):
        ends = stop(workspace, victim, signal.SIGKILL, draws.randint(1, 4))
        assert ends == (-signal.SIGKILL, 3)
    with start_both(workspace) as parties:
        assert [party.finish() for party in parties.values()] == [0, 0]
    undisturbed.check(workspace)


def test_a_run_survives_six_kills(workspace: Workspace, undisturbed: Undisturbed) -> None:
    survive(workspace, undisturbed, kills=6, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_run_survives_many_kills(
    workspace: Workspace, undisturbed: Undisturbed, seed: int
) -> None:
    survive(workspace, undisturbed, kills=8, seed=seed)


@pytest.mark.parametrize("victim", ROLES)
def test_a_kill_before_the_first_checkpoint_costs_nothing(
    workspace: Workspace, undisturbed: Undisturbed, victim: RoleName
) -> None:
    with start_both(workspace) as parties:
        parties[victim].wait_for("listening|waiting|connected")
        parties[victim].signal(signal.SIGKILL)
        parties[other(victim)].signal(signal.SIGTERM)
        # The last: stopped while Python was still importing.
        assert parties[other(victim)].finish() in (3, 130, -signal.SIGTERM)
    run_well(workspace)
    undisturbed.check(workspace)


@pytest.mark.parametrize("stopped_by", [signal.SIGINT, signal.SIGTERM])
def test_a_run_can_be_stopped_and_resumed(
    workspace: Workspace, undisturbed: Undisturbed, stopped_by: signal.Signals
) -> None:
    assert stop(workspace, "passive", stopped_by) == (130, 5)
    run_well(workspace)
    undisturbed.check(workspace)


@dataclass(frozen=True)
class StopAt:
    """Stops a party by a signal when it calls a function for the n-th time, before or after it."""

    owner: type
    function: str
    call: int
    when: Literal["before", "after"] = "before"

    def __call__(self) -> None:
        original = getattr(self.owner, self.function)
        calls = count(1)

        def replaced(*arguments: Any) -> Any:  # noqa: ANN401 - as the original
            is_it = next(calls) == self.call
            if is_it and self.when == "before":
                os.kill(os.getpid(), signal.SIGTERM)
            result = original(*arguments)
            if is_it and self.when == "after":
                os.kill(os.getpid(), signal.SIGTERM)
            return result

        setattr(self.owner, self.function, replaced)


def all_steps_on_disk(workspace: Workspace, role: RoleName) -> list[int]:
    """Also that at which the run was interrupted."""
    return RunCheckpoints(workspace.run_directory(role).checkpoints, keep=1).steps()


#: Moments of a run of 29 steps, and the first step at which both parties may resume then.
MOMENTS = [
    ("active", StopAt(ActiveHalf, "_send", 8, "after"), 1),
    ("active", StopAt(ActiveHalf, "finish", 1), 29),
    ("passive", StopAt(PassiveHalf, "_backward", 8), 1),
    pytest.param("active", StopAt(WeightAverage, "update", 5), 5, marks=pytest.mark.slow),
    pytest.param("active", StopAt(ActiveHalf, "end_epoch", 1), 29, marks=pytest.mark.slow),
    pytest.param("passive", StopAt(PassiveHalf, "prepare", 5), 1, marks=pytest.mark.slow),
    pytest.param(
        "passive", StopAt(PassiveHalf, "end_epoch", 1, "after"), 29, marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize(("victim", "stop_at", "step"), MOMENTS)
def test_both_parties_resume_at_the_step_at_which_one_was_stopped(
    workspace: Workspace, victim: RoleName, stop_at: StopAt, step: int
) -> None:
    """There are no regular checkpoints before the end of the only epoch."""
    configure(
        workspace,
        {"agreement.training.checkpoint_every": 0, "agreement.training.epochs": 1},
    )
    with (
        workspace.start_warm(other(victim)) as left,
        workspace.start_warm(victim, first=stop_at) as stopped,
    ):
        assert (stopped.finish(), left.finish()) == (130, 5)
    newest = [max(all_steps_on_disk(workspace, role)) for role in ROLES]
    assert newest[0] == newest[1] >= step


@pytest.mark.parametrize("behind", ROLES)
def test_both_resume_from_the_newest_common_step(
    half_done: Workspace, undisturbed: Undisturbed, behind: RoleName
) -> None:
    forget(half_done, behind, 9)
    run_well(half_done)
    undisturbed.check(half_done)


def test_a_peer_that_is_one_checkpoint_behind_can_resume(
    workspace: Workspace, undisturbed: Undisturbed
) -> None:
    configure(workspace, {"training.checkpoint_keep": 2})
    Pair(workspace, stop_after={"active": 11}).run()
    forget(workspace, "passive", 9)
    run_well(workspace)
    undisturbed.check(workspace)


def forget(workspace: Workspace, role: RoleName, *steps: int) -> None:
    """Delete these checkpoints, as if the party had been killed before it wrote them."""
    for step in steps:
        (workspace.run_directory(role).checkpoints / f"step-{step:09d}.json").unlink()


def test_a_result_without_the_peers_is_repeated(
    workspace: Workspace, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One party has saved its half when the other is killed; then both resume."""
    save = TrainStage.save

    def fail(stage: TrainStage, *arguments: Any) -> None:  # noqa: ANN401
        if stage.role.name == "passive":
            raise Interrupted("killed while it saves")
        save(stage, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TrainStage, "save", fail)
        ends = Pair(workspace).run()
    assert [end.exit_code for end in ends.values() if end] == [5, 130]
    run_well(workspace)
    undisturbed.check(workspace)


def test_force_starts_over(half_done: Workspace, undisturbed: Undisturbed) -> None:
    run_well(half_done, force=True)
    undisturbed.check(half_done)


def test_a_run_that_diverged_starts_over_with_a_smaller_learning_rate(
    workspace: Workspace, undisturbed: Undisturbed
) -> None:
    configure(workspace, {"optimiser.learning_rate": 1e6})
    ends = Pair(workspace).run()
    assert sorted(end.exit_code for end in ends.values() if end) == [2, 5]
    for end in ends.values():
        assert "training diverged" in str(end)
        assert "optimiser.learning_rate" in str(end)
    configure(workspace, {"optimiser.learning_rate": 2e-3})
    run_well(workspace, force=True)
    undisturbed.check(workspace)


# --- the same blocks only ---


def forget_all_but(workspace: Workspace, role: RoleName, *kept: int) -> None:
    """Delete the other checkpoints, so that the party offers to resume at these steps only."""
    checkpoints = workspace.run_directory(role).checkpoints
    shutil.rmtree(checkpoints / "broken-off", ignore_errors=True)
    forget(workspace, role, *(set(steps_on_disk(workspace, role)) - set(kept)))


def replay_with_other_blocks(
    workspace: Workspace, cheater: RoleName
) -> dict[RoleName, FloristError | None]:
    """Resume at step 3, with another value in the first block of step 4."""
    kind = OfferBlock if cheater == "passive" else GradientBlock

    def tamper(message: Message) -> list[Message]:
        if isinstance(message, kind) and (message.step, message.start) == (4, 0):
            values = bytearray(message.values)
            values[0] ^= 1  # the lowest bit of a number, encrypted or not
            return [replace(message, values=bytes(values))]
        return [message]

    links: dict[RoleName, Link] = dict(zip(ROLES, linked_pair(), strict=True))
    links[cheater] = TamperingLink(links[cheater], tamper)
    forget_all_but(workspace, cheater, 3)
    return Pair(workspace, links=links).run()


@pytest.mark.parametrize("cheater", ROLES)
def test_a_peer_that_repeats_a_step_with_other_blocks_is_refused(
    half_done: Workspace, undisturbed: Undisturbed, cheater: RoleName
) -> None:
    """However often both parties are restarted; without cheating the run then completes."""
    for _ in range(2):
        ends = replay_with_other_blocks(half_done, cheater)
        honest, refused = ends[other(cheater)], ends[cheater]
        assert isinstance(honest, DifferentBlock)
        assert honest.exit_code == 4
        assert "step 4, row 0: the peer sent other" in str(honest)
        assert isinstance(refused, PeerFailed)
        assert "step 4, row 0" in str(refused)
    run_well(half_done)
    undisturbed.check(half_done)


@pytest.mark.parametrize("role", ROLES)
def test_a_peer_that_was_answered_cannot_claim_that_it_has_no_checkpoint(
    workspace: Workspace, role: RoleName
) -> None:
    """It would see the labels or stand-ins of the same people under new random draws."""
    Pair(workspace, stop_after={"active": 2}).run()
    for each in ROLES:
        forget_all_but(workspace, each, 0)
    shutil.rmtree(workspace.run_directory(other(role)).checkpoints)
    ends = Pair(workspace).run()
    assert isinstance(ends[role], CannotStartOver)
    for end in ends.values():
        assert "start over on both sides with --force" in str(end)
    run_well(workspace, force=True)


@pytest.mark.parametrize("role", ROLES)
def test_a_party_that_computes_other_values_than_before_says_so(
    half_done: Workspace, role: RoleName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a processor that rounds differently, which no comparison of inputs shows.

    Here its optimiser changed, and the comparison, which would notice that, does not take place.
    """
    monkeypatch.setattr(InputRecord, "differences", lambda *_: [])
    for each in ROLES:
        forget_all_but(half_done, each, 3)
    half_done.configure(role, {"optimiser.learning_rate": 1e-3})
    ends = Pair(half_done).run()
    assert isinstance(ends[role], NotReproducible)
    for end in ends.values():
        assert "sent other" in str(end)
        assert "step 4, row 0" in str(end)
    run_well(half_done, force=True)


def test_the_number_of_resumptions_is_limited(
    half_done: Workspace, undisturbed: Undisturbed, caplog: pytest.LogCaptureFixture
) -> None:
    half_done.configure("active", {"training.max_resumptions": 1})
    with caplog.at_level("INFO", logger="florist.train"):
        Pair(half_done, stop_after={"active": 2}).run()
    assert "(resumption 1 of at most 1)" in caplog.text
    ends = Pair(half_done).run()
    assert isinstance(ends["active"], TooManyResumptions)
    assert "training.max_resumptions" in str(ends["active"])
    assert "resumed more often" in str(ends["passive"])
    half_done.configure("active", {"training.max_resumptions": 2})
    run_well(half_done)
    undisturbed.check(half_done)


def test_the_journal_is_private_and_deleted_when_the_run_is_complete(half_done: Workspace) -> None:
    journals = [half_done.run_directory(role).training_journal for role in ROLES]
    assert all(stat.S_IMODE(journal.stat().st_mode) == 0o600 for journal in journals)
    run_well(half_done)
    assert not any(journal.exists() for journal in journals)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("how", ["missing", "damaged", "shorter"])
def test_a_lost_journal_is_refused(half_done: Workspace, role: RoleName, how: str) -> None:
    """Without it, the peer could have every step answered again for other values."""
    journal = half_done.run_directory(role).training_journal
    content = bytearray(journal.read_bytes())
    match how:
        case "missing":
            journal.unlink()
        case "damaged":
            content[1000] ^= 1
            journal.write_bytes(content)
        case _:  # a disk that lost what it had confirmed
            journal.write_bytes(content[: 64 * 20])
    ends = Pair(half_done).run()
    ours, theirs = ends[role], ends[other(role)]
    assert isinstance(ours, JournalLost)
    assert journal.name in str(ours)
    assert "start over on both sides with --force" in str(ours)
    assert theirs is not None
    assert "its journal of what was answered is missing or damaged" in str(theirs)
    assert steps_on_disk(half_done, role) == [3, 6, 9]
    assert journal.exists() == (how != "missing")


# --- disconnected and resumed automatically ---


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("active", signal.SIGTERM),
        ("passive", signal.SIGKILL),
        pytest.param("active", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("passive", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_restarted_party_finds_its_peer_waiting(
    workspace: Workspace, undisturbed: Undisturbed, victim: RoleName, number: signal.Signals
) -> None:
    workspace.patient()
    with workspace.start_warm(other(victim)) as left:
        for steps in (3, 12):
            with workspace.start_warm(victim) as stopped:
                wait_for_steps(workspace, victim, steps, stopped)
                stopped.signal(number)
                stopped.finish(TOLD)
        with workspace.start_warm(victim) as again:
            assert (left.finish(), again.finish()) == (0, 0)
    assert left.output.count("is back") == 2
    undisturbed.check(workspace)


def test_after_a_lost_connection_the_run_resumes_at_the_same_step(
    workspace: Workspace, undisturbed: Undisturbed
) -> None:
    workspace.patient()
    configure(workspace, {"agreement.training.checkpoint_every": 0})
    go_on = re.compile(r"resuming from step (\d+)")
    with Relay(load_config(workspace.config("active")).network.address) as line:
        workspace.configure("passive", {"network.address": line.address})
        with start_both(workspace) as parties:
            wait_for_steps(workspace, "active", 29, parties["active"])
            wait_until(lambda: line.passed >= 100_000, within=60, every=0.001)
            line.cut()
            for party in parties.values():
                party.wait_for("waiting for .*timeouts.outage")
            line.mend()
            assert [party.finish() for party in parties.values()] == [0, 0]
    begun = {int(step) for party in parties.values() for step in go_on.findall(party.output)}
    assert len(begun) == 1
    assert min(begun) >= 29  # the end of the epoch, or the step of both parties
    undisturbed.check(workspace)


def test_a_peer_that_does_not_return_ends_the_run(workspace: Workspace) -> None:
    workspace.patient(2.0)
    with workspace.start_warm("active") as left:
        with workspace.start_warm("passive") as killed:
            wait_for_steps(workspace, "passive", 3, killed)
            killed.signal(signal.SIGKILL)
        assert left.finish(TOLD + 10) == 3
    assert "for 2 s at most (timeouts.outage)" in left.output


def test_a_party_with_its_result_waits_for_the_peers(
    workspace: Workspace, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer ends before its result is in place, and is restarted."""
    workspace.patient()
    active_runs, passive_runs = map(workspace.run_directory, ROLES)
    finishing, failures = RunDirectory.finishing, iter([Interrupted("killed while it saves")])

    @contextmanager
    def fail_once(runs: RunDirectory, stage: StageName) -> Iterator[Path]:
        with finishing(runs, stage) as folder:
            yield folder
        if runs.path == passive_runs.path and (failure := next(failures, None)):
            shutil.rmtree(passive_runs.training)
            wait_until(active_runs.pending("train").exists, within=60, every=0.001)
            raise failure

    monkeypatch.setattr(RunDirectory, "finishing", fail_once)
    with ThreadPoolExecutor(1) as one:
        active = one.submit(Pair(workspace).alone, "active")
        assert isinstance(Pair(workspace).alone("passive"), Interrupted)
        assert active_runs.pending("train").exists()
        assert Pair(workspace).alone("passive") is None
        assert active.result(60) is None
    assert not active_runs.pending("train").exists()
    undisturbed.check(workspace)


# --- limits on the overlap ---


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("key", "value"), [("minimum", 1_000_000), ("minimum_share", 0.9), ("maximum_share", 0.1)]
)
def test_an_overlap_outside_the_limits_stops_each_party_before_it_connects(
    workspace: Workspace, role: RoleName, key: str, value: float
) -> None:
    configure(workspace, {f"agreement.union.overlap.{key}": value})
    side = RoleWithoutPeer(BOTH[role])
    config = load_config(workspace.config(role))
    with pytest.raises(OverlapOutsideLimits, match=f"training tables: .*overlap.{key}"):
        run_stage("train", side, config, StageOptions(), NoProgress())


# --- runs that cannot be resumed: no checkpoint is lost ---


@pytest.mark.parametrize("resuming", ROLES)
def test_one_side_alone_cannot_start_over(half_done: Workspace, resuming: RoleName) -> None:
    options = {other(resuming): StageOptions(force=True)}
    for end in Pair(half_done, options=options).run().values():
        assert end is not None
        assert end.exit_code == 2
        assert "on both sides with --force" in str(end)
    assert steps_on_disk(half_done, resuming) == [3, 6, 9]


@pytest.mark.parametrize("role", ROLES)
def test_checkpoints_of_another_agreement_are_refused(half_done: Workspace, role: RoleName) -> None:
    configure(half_done, {"agreement.training.epochs": 3})
    end = Pair(half_done).alone(role)
    assert end is not None
    assert end.exit_code == 2
    assert "another agreement" in str(end)
    assert steps_on_disk(half_done, role) == [3, 6, 9]


def test_checkpoints_of_another_alignment_are_refused(half_done: Workspace) -> None:
    align_both(half_done)
    for role in ROLES:
        end = Pair(half_done).alone(role)
        assert end is not None
        assert end.exit_code == 2
        assert "another union" in str(end)
        assert steps_on_disk(half_done, role) == [3, 6, 9]


@pytest.mark.parametrize("forgetful", ROLES)
def test_checkpoints_are_kept_if_the_peer_lost_its_own(
    half_done: Workspace, forgetful: RoleName
) -> None:
    """It has only the step at which it was stopped, and the peer only regular ones."""
    forget(half_done, forgetful, 3, 6, 9)
    forget_all_but(half_done, other(forgetful), 3, 6, 9)
    for end in Pair(half_done).run().values():
        assert end is not None
        assert end.exit_code == 2
        assert "have no step in common" in str(end)
    assert steps_on_disk(half_done, other(forgetful)) == [3, 6, 9]


@pytest.mark.parametrize(
    ("role", "changes", "says"),
    [
        ("passive", {"model.hidden": [17, 8]}, "model.hidden was [16, 8], now [17, 8]"),
        ("active", {"optimiser.learning_rate": 0.01}, "learning_rate was 0.002, now 0.01"),
        ("passive", {"data.preprocessing.scaling": "linear"}, 'scaling was "log", now "linear"'),
        ("active", {"training.seed": 12345}, "training.seed has changed"),
    ],
)
def test_a_run_is_not_resumed_with_other_settings(
    half_done: Workspace, role: RoleName, changes: dict[str, Any], says: str
) -> None:
    half_done.configure(role, changes)
    end = Pair(half_done).alone(role)
    assert isinstance(end, OtherInputs)
    assert end.exit_code == 2
    assert says in str(end)
    assert "12345" not in str(end)
    assert says not in end.for_peer
    assert steps_on_disk(half_done, role) == [3, 6, 9]


@pytest.mark.parametrize(
    ("role", "column", "says"),
    [
        ("passive", "I1", "column 'I1' has changed since 20"),
        ("active", "click", "the labels have changed since 20"),
    ],
)
def test_a_run_is_not_resumed_with_another_table(
    half_done: Workspace, undisturbed: Undisturbed, role: RoleName, column: str, says: str
) -> None:
    """The IDs are the same, and two rows have exchanged a value."""
    path = half_done.table(role)
    before = path.read_text()
    rewrite(path, exchanging(column))
    assert path.read_text() != before
    end = Pair(half_done).alone(role)
    assert isinstance(end, OtherInputs)
    assert says in str(end)
    assert steps_on_disk(half_done, role) == [3, 6, 9]
    path.write_text(before)
    run_well(half_done)
    undisturbed.check(half_done)


def exchanging(column: str) -> Callable[[list[str], list[list[str]]], None]:
    """Exchange the values of the first two rows in which they differ."""

    def change(header: list[str], rows: list[list[str]]) -> None:
        place = header.index(f'"{column}"')
        other_row = next(row for row in rows if row[place] != rows[0][place])
        rows[0][place], other_row[place] = other_row[place], rows[0][place]

    return change


def test_with_force_a_run_starts_over_with_other_settings(half_done: Workspace) -> None:
    half_done.configure("active", {"optimiser.learning_rate": 0.01})
    run_well(half_done, force=True)
    facts = json.loads((half_done.run_directory("active").training / "inputs.json").read_text())
    assert facts["settings"]["optimiser.learning_rate"] == 0.01


def damage_checkpoint(workspace: Workspace, role: RoleName, step: int) -> str:
    """Flip a bit in the tensors of a checkpoint; return the file's name."""
    checkpoints = workspace.run_directory(role).checkpoints
    shutil.rmtree(checkpoints / "broken-off", ignore_errors=True)
    (tensors,) = checkpoints.glob(f"step-{step:09d}-*.safetensors")
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    return tensors.name


@pytest.mark.parametrize("role", ROLES)
def test_both_resume_from_an_older_checkpoint_if_the_newest_is_damaged_at_one(
    half_done: Workspace,
    undisturbed: Undisturbed,
    role: RoleName,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = damage_checkpoint(half_done, role, 9)
    with caplog.at_level("INFO"):
        run_well(half_done)
    assert f"{name} is damaged" in caplog.text
    assert caplog.text.count("resuming from step 6") == 2
    undisturbed.check(half_done)


@pytest.mark.parametrize("role", ROLES)
def test_damaged_checkpoints_are_reported_by_name(half_done: Workspace, role: RoleName) -> None:
    names = [damage_checkpoint(half_done, role, step) for step in (3, 6, 9)]
    end = Pair(half_done).alone(role)
    assert isinstance(end, DamagedFile)
    assert names[-1] in str(end)
    assert "on both sides with --stage train --force" in str(end)


# --- invalid input ---


def rewrite(path: Path, change: Callable[[list[str], list[list[str]]], None]) -> None:
    """Change the header and rows of a table in place."""
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    change(header, rows)
    path.write_text("".join(",".join(row) + "\n" for row in (header, *rows)))


def of_column(name: str, *values: str) -> Callable[[list[str], list[list[str]]], None]:
    """Fill the column with these values in turn."""

    def change(header: list[str], rows: list[list[str]]) -> None:
        place = header.index(f'"{name}"')
        for row, value in zip(rows, cycle(values), strict=False):
            row[place] = value

    return change


def without_last_row(_: list[str], rows: list[list[str]]) -> None:
    rows.pop()


def without_ten_rows(_: list[str], rows: list[list[str]]) -> None:
    del rows[-10:]


def without_last_column(header: list[str], rows: list[list[str]]) -> None:
    for row in (header, *rows):
        row.pop()


@dataclass(frozen=True)
class BadInput:
    """An error in one party's input, and part of the message."""

    role: RoleName
    message: str
    settings: dict[str, Any] = field(default_factory=dict)
    train: Callable[[list[str], list[list[str]]], None] | None = None
    test: Callable[[list[str], list[list[str]]], None] | None = None


BAD = {
    "no-label": BadInput("active", "set `label` under", {"data.train.label": None}),
    "label-no-number": BadInput(
        "active", "set `positive_label`", train=of_column("click", "no", "yes")
    ),
    "label-constant": BadInput("active", "in every row", train=of_column("click", "1")),
    "label-missing": BadInput("active", "labels are missing", train=of_column("click", "")),
    "label-of-two-classes-for-three": BadInput(
        "active",
        "agreement.training.classes",
        {"agreement.training.classes": 3},
        train=of_column("click", "no", "yes"),
    ),
    "no-features": BadInput(
        "passive", "needs features", {"data.train.numeric": [], "data.train.categorical": []}
    ),
    "text-for-a-number": BadInput(
        "passive", "I1", {"data.train.numeric": ["I1"]}, train=of_column("I1", "many")
    ),
    "train-table-changed": BadInput("passive", "align again", train=without_last_row),
    "test-table-changed": BadInput("active", "align again", test=without_last_row),
    "test-table-lacks-a-column": BadInput("passive", "C26", test=without_last_column),
    "test-label-constant": BadInput("active", "in every row", test=of_column("click", "0")),
    "test-table-lacks-a-class": BadInput(
        "active",
        "rows of every class",
        {"agreement.training.classes": 3},
        train=of_column("click", "0", "1", "2"),
        test=of_column("click", "0", "1"),
    ),
    "no-test-table": BadInput("passive", "data.test", {"data.test": None}),
    "micro-batch-too-large": BadInput(
        "active",
        "agreement.training.micro_batch",
        {"agreement.training.micro_batch": 10**6},
    ),
    "one-label-for-three-classes": BadInput(
        "passive",
        "label-random-pred",
        {
            "agreement.training.classes": 3,
            "agreement.training.labels.strategy": "label-majority",
            "agreement.training.stand_ins": "plain",
        },
    ),
    "model-not-ending-at-the-cut": BadInput(
        "passive", "make the last number 8", {"model.hidden": [16, 9]}
    ),
    "no-such-device": BadInput("active", "training.device", {"training.device": "mps"}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_before_connecting(workspace: Workspace, name: str) -> None:
    bad = BAD[name]
    config = load_config(workspace.config(bad.role))
    workspace.configure(bad.role, bad.settings)
    if bad.train:
        rewrite(config.data.train.path, bad.train)
    if bad.test:
        assert config.data.test is not None
        rewrite(config.data.test.path, bad.test)
    end = Pair(workspace).alone(bad.role)
    assert end is not None
    assert end.exit_code == 2
    assert bad.message in str(end)
    assert left_by(workspace, bad.role) == {".lock", "alignment", "evidence"}


def left_by(workspace: Workspace, role: RoleName) -> set[str]:
    """Return the names in the run directory, after checking that the alignment is readable."""
    runs = workspace.run_directory(role)
    assert runs.load_alignment().summary.role == role
    return {path.name for path in runs.path.iterdir()}


def test_test_tables_must_list_the_same_people(workspace: Workspace) -> None:
    config = load_config(workspace.config("passive"))
    assert config.data.test is not None
    # Private counts hide a difference of a few people.
    rewrite(config.data.test.path, without_ten_rows)
    align_both(workspace)
    for role in ROLES:
        end = Pair(workspace).alone(role)
        assert end is not None
        assert end.exit_code == 2
        assert "the two test tables must contain the same people" in str(end)
        assert left_by(workspace, role) == {".lock", "alignment", "evidence"}


def test_parties_without_shared_people_are_refused(workspace: Workspace) -> None:
    ours = {row.split(",")[0] for row in workspace.table("active").read_text().splitlines()[1:]}
    rewrite(
        workspace.table("passive"),
        lambda _, rows: rows.__setitem__(slice(None), [r for r in rows if r[0] not in ours]),
    )
    align_both(workspace)
    for role in ROLES:
        end = Pair(workspace).alone(role)
        assert end is not None
        assert end.exit_code == 2
        assert "have nobody in common" in str(end)
        assert left_by(workspace, role) == {".lock", "alignment", "evidence"}


def test_a_different_cut_width_is_a_difference_of_agreements(workspace: Workspace) -> None:
    workspace.configure("passive", {"agreement.training.cut_width": 9, "model.hidden": [16, 9]})
    for role, end in Pair(workspace).run().items():
        assert end is not None
        assert end.exit_code == 2
        assert "agreement.training.cut_width" in str(end)
        assert left_by(workspace, role) == {".lock", "alignment", "evidence"}


# --- several processes ---


def further_processes(party: Party) -> list[psutil.Process]:
    """Return the party's further training processes."""
    assert isinstance(party.process, ForkedProcess)
    children = psutil.Process(party.process.pid).children()
    return [child for child in children if "florist.common.training.replica" in child.cmdline()]


def test_a_party_that_lost_a_training_process_resumes(workspace: Workspace) -> None:
    """After one of its processes was killed, and after a stop."""
    # No noise: that of eight rows would depend on their last bits.
    configure(workspace, {"agreement.training.embedding_noise": 0.0})
    alone = copy(workspace, workspace.directory.with_name("alone"))
    run_well(alone, links=dict(zip(ROLES, linked_pair(), strict=True)))
    workspace.patient().configure("passive", {"training.processes": 2})
    with workspace.start_warm("active") as left:
        for steps, number, code in [(3, signal.SIGKILL, 2), (12, signal.SIGTERM, 130)]:
            with workspace.start_warm("passive") as party:
                wait_for_steps(workspace, "passive", steps, party)
                (further,) = further_processes(party)
                if number is signal.SIGKILL:
                    further.kill()
                else:
                    party.signal(number)
                assert party.finish(TOLD) == code, party.output
            assert ("a training process of this party ended" in party.output) is (code == 2)
            assert psutil.wait_procs([further], timeout=5)[1] == []
        with workspace.start_warm("passive") as again:
            assert (left.finish(), again.finish()) == (0, 0)
    assert "one of its training processes ended" in left.output
    found, expected = (history(each, "active").losses for each in (workspace, alone))
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("role", ROLES)
def test_a_run_is_not_resumed_with_another_number_of_processes(
    half_done: Workspace, undisturbed: Undisturbed, role: RoleName
) -> None:
    """It is refused before the peer is called, and resumes with the former number."""
    half_done.configure(role, {"training.processes": 2})
    end = Pair(half_done).alone(role)
    assert end is not None
    assert end.exit_code == 2
    assert "belong to another number of processes (training.processes); restore it" in str(end)
    assert steps_on_disk(half_done, role) == [3, 6, 9]
    half_done.configure(role, {"training.processes": 1})
    run_well(half_done)
    undisturbed.check(half_done)


# --- what is sent ---


def test_no_id_is_sent_and_only_messages_of_the_protocol(workspace: Workspace) -> None:
    links = {role: RecordingLink(link) for role, link in zip(ROLES, linked_pair(), strict=True)}
    run_well(workspace, links=links)
    everyone = [
        identifier
        for role in ROLES
        for identifier in read_ids(workspace.table(role), "person", "strip")
    ]
    assert len(everyone) == 1200
    for link in links.values():
        sent = b"".join(encode(record.message) for record in link.records)  # type: ignore[arg-type]
        assert not any(identifier in sent for identifier in everyone)
        for record in link.records:
            if record.channel == CONTROL:
                assert isinstance(record.message, Control)
            elif record.channel == "bundle":
                assert isinstance(record.message, BundleOffer)
            elif record.channel == "evidence":
                assert isinstance(record.message, EvidenceContribution | EvidenceSignature)
            elif record.channel == "transfers":
                assert isinstance(
                    record.message, TransferRequest | TransferReply | TransferBlock | ChoiceBlock
                )
            else:
                assert record.channel == "training"
                assert isinstance(
                    record.message,
                    TrainingOpening
                    | NonceReveal
                    | OfferBlock
                    | GradientBlock
                    | messages.TestEmbeddingBlock
                    | EpochSummary,
                )
