"""The public Python API, used as a caller outside the package would."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from threading import Event
from typing import TYPE_CHECKING, assert_type

import pyarrow as pa
import pytest
import torch
import yaml

import florist
from tests.support.parties import ROLES, QuickClicks, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLE = QuickClicks(people=1200)
HEAVY = ("torch", "grpc", "matplotlib", "pyarrow", "pandas", "numpy", "pydantic", "rich")


# --- the module ---


def loaded_by(program: str, *arguments: str) -> list[str]:
    """Return the heavy modules that a program loads in a fresh interpreter."""
    check = f"import sys\n{program}\nprint('loaded:', *sorted(set(sys.modules) & {set(HEAVY)}))"
    result = subprocess.run(
        [sys.executable, "-c", check, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout.rpartition("loaded:")[2].split()


def test_importing_florist_loads_no_heavy_module() -> None:
    assert loaded_by("import florist; florist.__version__, florist.FloristError") == []


def test_loading_a_configuration_needs_neither_torch_nor_grpc(tmp_path: Path) -> None:
    config = Workspace.create(tmp_path).config("active")
    loaded = loaded_by("import florist; florist.load_config(sys.argv[1])", str(config))
    assert not {"torch", "grpc", "matplotlib", "pyarrow"} & set(loaded)


@pytest.mark.parametrize("module", ["florist.cli.tool", "florist.cli.party"])
def test_help_and_version_load_neither_torch_nor_matplotlib(module: str) -> None:
    program = f"from {module} import main\ntry: main()\nexcept SystemExit: pass"
    assert set(loaded_by(program, "--help")) <= {"rich"}
    assert set(loaded_by(program, "--version")) <= {"rich"}


def test_everything_public_can_be_imported() -> None:
    for name in florist.__all__:
        assert getattr(florist, name) is not None
        assert name in dir(florist)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = florist.no_such_name  # type: ignore[attr-defined]


def test_public_items_are_documented() -> None:
    for name in florist.__all__:
        item = getattr(florist, name)
        assert (
            name == "__version__"
            or (item.__doc__ and item.__doc__.strip().endswith("."))
            or (">>>" in item.__doc__)
        ), name


def test_errors_form_one_tree() -> None:
    for error in (florist.ConfigurationError, florist.TransportError, florist.TrialsFailed):
        assert issubclass(error, florist.FloristError)
    assert issubclass(florist.BadRow, florist.ConfigurationError)
    assert issubclass(florist.PeerBusy, florist.TransportError)


# --- a run of two parties ---


class Parties:
    """Two parties that have finished all stages, each in a thread of this process."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace.create(folder, SAMPLE)
        self.events: dict[str, list[florist.ProgressEvent]] = {role: [] for role in ROLES}
        with ThreadPoolExecutor(2) as threads:
            ends = {
                role: threads.submit(
                    florist.run_party,
                    role,
                    self.workspace.config(role),
                    on_progress=self.events[role].append,
                )
                for role in ROLES
            }
            self.results = {role: end.result(timeout=200) for role, end in ends.items()}


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return Parties(tmp_path_factory.mktemp("parties") / "pair")


def test_run_party_returns_what_load_run_reads(parties: Parties) -> None:
    for role in ROLES:
        result = parties.results[role]
        config = florist.load_config(parties.workspace.config(role))
        assert result == florist.load_run(config.run_directory)
        assert result == florist.load_run(str(config.run_directory))
        assert (result.role, result.party) == (role, config.party.name)


def test_both_parties_learn_the_same_sizes(parties: Parties) -> None:
    active, passive = (parties.results[role].sizes for role in ROLES)
    _, who = SAMPLE.data()
    assert (active.own, active.peer) == (passive.peer, passive.own)
    assert active.rows == len(who.active)
    assert active.union == passive.union >= len(who.union)
    assert active.shared_estimate == passive.shared_estimate
    assert active.shared_deviation == passive.shared_deviation
    assert abs(active.shared_estimate - len(who.shared)) <= 20 * active.shared_deviation


def test_results_are_plain_objects_and_tables(parties: Parties) -> None:
    run = parties.results["active"]
    last = run.history[-1]
    assert_type(last, florist.EpochMetrics)
    assert [epoch.epoch for epoch in run.history] == [1, 2]
    assert run.metrics == {"auc": last.auc, "ace": last.ace, "log_loss": last.log_loss}
    assert len(run.losses) > 20
    table = run.history.to_arrow()
    assert table.column_names == ["epoch", "loss", "auc", "ace", "log_loss"]
    assert table.column("auc").to_pylist() == [epoch.auc for epoch in run.history]
    assert run.history[:1].to_arrow().num_rows == 1
    assert run.evaluation is not None
    assert [found.metric for found in run.evaluation.estimates] == ["auc", "ace", "log_loss"]
    for found in run.evaluation.estimates:
        assert found.low <= found.value <= found.high
    assert run.audit is not None
    assert run.audit.verdict in {"fine", "warn", "stop"}
    findings = run.audit.findings.to_arrow()
    assert findings.schema.field("tpr").type == pa.float64()
    assert findings.num_rows == len(run.audit.findings)
    assert [report.name for report in run.reports] == ["report.html", "report.html"]


def test_tables_convert_to_pandas_if_it_is_installed(parties: Parties) -> None:
    history = parties.results["active"].history
    if find_spec("pandas"):
        assert list(history.to_pandas()["epoch"]) == [1, 2]
    else:
        with pytest.raises(ModuleNotFoundError, match="pandas"):
            history.to_pandas()


def test_progress_events_cover_every_stage_and_step(parties: Parties) -> None:
    for events in parties.events.values():
        stages = [event.stage for event in events if event.kind == "stage-started"]
        assert stages == ["align", "train", "evaluate"]
        assert stages == [event.stage for event in events if event.kind == "stage-finished"]
        for stage in stages:
            steps = [event for event in events if event.stage == stage and event.step]
            started = {event.step for event in steps if event.kind == "step-started"}
            finished = {event.step for event in steps if event.kind == "step-finished"}
            assert started == finished
            assert started
        training = [event for event in events if event.step == "training"]
        assert training[-1].done == training[-1].total
        assert all(event.done <= (event.total or event.done) for event in training)


def test_finished_stages_are_not_repeated(parties: Parties) -> None:
    events: list[florist.ProgressEvent] = []
    config = florist.load_config(parties.workspace.config("active"))
    assert (
        florist.run_party("active", config, on_progress=events.append)
        == (parties.results["active"])
    )
    assert events == []


def test_a_served_model_predicts(parties: Parties) -> None:
    config = florist.load_config(parties.workspace.config("passive"))
    stop = Event()
    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(
            florist.run_party, "active", parties.workspace.config("active"), "serve", stop=stop
        )
        try:
            with florist.PredictionClient.connect(config, timeout=60) as client:
                data, _ = SAMPLE.data()
                rows = data.features.slice(0, 5)
                predictions = client.predict(rows)
                assert predictions.shape == (5,)
                assert ((predictions >= 0) & (predictions <= 1)).all()
                assert (client.predict(rows.to_pylist()) == predictions).all()
                if find_spec("pandas"):
                    assert (client.predict(rows.to_pandas()) == predictions).all()
                with pytest.raises(florist.BadRow):
                    client.predict([{"no such column": 1}])
        finally:
            stop.set()
        assert serving.result(timeout=60) is None


# --- errors instead of exits ---


def test_errors_are_raised(tmp_path: Path) -> None:
    with pytest.raises(florist.ConfigurationError, match="florist init"):
        florist.run_party("active", tmp_path / "none.yml")
    with pytest.raises(florist.ConfigurationError, match="alignment"):
        florist.load_run(tmp_path)


def test_different_agreements_raise_at_both_parties(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path, QuickClicks(people=300))
    workspace.configure("passive", {"agreement.group": "modp2048"})
    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(florist.run_party, role, workspace.config(role)) for role in ROLES]
        for end in ends:
            with pytest.raises(florist.AgreementMismatch, match="group"):
                end.result(timeout=60)


def test_a_configuration_may_be_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Workspace.create(tmp_path).config("active")
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    monkeypatch.chdir(path.parent)
    assert florist.load_config(values) == florist.load_config(path)
    names = {"name": "bank", "peer": "bank"}
    with pytest.raises(florist.ConfigurationError, match=r"configuration: .*party\.peer"):
        florist.load_config(values | {"party": names})


def test_preflight_returns_checks(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path, QuickClicks(people=300))
    checks = florist.preflight(workspace.config("passive"))
    assert_type(checks, list[florist.Check])
    assert all(check.passed for check in checks)
    (problem,) = florist.preflight(tmp_path / "none.yml")
    assert (problem.name, problem.passed) == ("configuration", False)


# --- simulation ---

GRID: dict[str, object] = {
    "data": {"generated": {"people": 400}, "split": {"test": 0.2, "validation": 0.2}},
    "methods": ["default"],
    "ratios": [0.5],
    "batch_size": [64],
    "model": {"hidden": [8]},
    "audit": {"attacks": ["spectral"], "samples": 20},
}


def values(results: object, metric: str) -> list[float]:
    """Return the values of a metric, whether the results are a data frame or an Arrow table."""
    table = results if isinstance(results, pa.Table) else pa.Table.from_pandas(results)
    return [row["value"] for row in table.to_pylist() if row["metric"] == metric]


def test_simulate_returns_a_table(tmp_path: Path) -> None:
    events: list[florist.ProgressEvent] = []
    results = florist.simulate(GRID, folder=tmp_path, on_progress=events.append)
    assert type(results).__name__ == ("DataFrame" if find_spec("pandas") else "Table")
    assert all(0 < auc < 1 for auc in values(results, "auc"))
    assert (events[0].kind, events[-1].kind) == ("step-started", "step-finished")
    assert (events[-1].done, events[-1].total) == (1, 1)
    events.clear()
    again = florist.simulate(GRID, folder=tmp_path, on_progress=events.append)
    assert values(again, "loss") == values(results, "loss")
    assert events == []


def test_simulate_raises_for_bad_settings_and_failed_trials() -> None:
    with pytest.raises(florist.ConfigurationError, match="ratios"):
        florist.simulate({**GRID, "ratios": []})
    with pytest.raises(florist.TrialsFailed) as failed:
        florist.simulate({**GRID, "learning_rate": [1e30], "audit": None})
    assert len(failed.value.failures) == 1


@pytest.fixture(autouse=True)
def _restore_torch_threads() -> Iterator[None]:
    """Stages set the number of torch threads of the whole process."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
