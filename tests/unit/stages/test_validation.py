"""What a run checks before it connects: once per table, and only what its stages will need."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from florist.active_party.role import ACTIVE
from florist.api.party import ROLES, resolve_role
from florist.common.core.errors import ConfigurationError
from florist.common.data import table_files, text_files
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config, load_contact
from florist.common.stages.table_validation import TableValidation
from florist.common.stages.validation import planned_sizes, table_ids, validate_run
from florist.passive_party.role import PASSIVE
from tests.support.parties import QuickClicks, Workspace

if TYPE_CHECKING:
    from pathlib import Path

ALL = ["align", "train", "evaluate"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.create(tmp_path_factory.mktemp("pair") / "files", QuickClicks(people=600))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file is read from its start."""
    found: Counter[str] = Counter()
    read = text_files.read_text

    def counting(file: Path, *arguments: object) -> object:
        found[file.stem] += 1
        return read(file, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(table_files, "read_text", counting)
    return found


def test_each_table_is_read_once(pair: Workspace, reads: Counter[str]) -> None:
    config = load_config(pair.config("passive"))
    checked = validate_run(PASSIVE, config, StageOptions(), ALL)
    assert set(checked) == {"train", "test", "evaluation"}
    # The privacy ledger compares the IDs of the evaluation table with earlier ones.
    assert reads == {"telco": 1, "telco-test": 1, "telco-evaluation": 2}
    reads.clear()
    assert len(table_ids(config, "train", config.data.train, checked)) == 240
    assert not reads


def test_a_rejected_table_is_not_read_again(pair: Workspace, reads: Counter[str]) -> None:
    config = load_config(pair.config("active"))
    train = config.data.train.model_copy(update={"label": "person-click"})
    data = config.data.model_copy(update={"train": train})
    tables = TableValidation(ACTIVE, config.model_copy(update={"data": data}))
    errors = []
    for check in (tables.train, tables.test, tables.evaluation):
        with pytest.raises(ConfigurationError, match="person-click") as caught:
            check()
        errors.append(caught.value)
    assert errors[0] is errors[1] is errors[2]
    assert errors[0].for_peer == "its training table was rejected"
    assert sum(reads.values()) <= 1


def test_a_table_that_was_modified_since_is_noticed(pair: Workspace, tmp_path: Path) -> None:
    copy = pair.copy(tmp_path / "copy")
    config = load_config(copy.config("passive"))
    ids = table_ids(
        config,
        "train",
        config.data.train,
        validate_run(PASSIVE, config, StageOptions(), ["align", "train"]),
    )
    table = config.data.train.path
    table.write_text(table.read_text().replace("p0", "q0", 1))
    with pytest.raises(ConfigurationError, match=r"modified|changed"):
        list(ids.batches(1000))


def test_a_single_stage_checks_its_own_inputs(pair: Workspace, reads: Counter[str]) -> None:
    for plan in ([], ["align"], ["train"], ["evaluate"], ["serve"]):
        config = load_config(pair.config("passive"))
        assert validate_run(PASSIVE, config, StageOptions(), plan) == {}
    assert not reads


def test_sizes_are_counted_for_the_stages_to_come(pair: Workspace) -> None:
    config = load_config(pair.config("active"))
    assert planned_sizes(config, ALL) == {"train": 1, "test": 1, "evaluation": 2}
    assert planned_sizes(config, ALL, resumes_alignment=True) == {"evaluation": 2}
    assert planned_sizes(config, ["train"]) == {}


def test_the_role_is_given_or_configured_or_both(pair: Workspace) -> None:
    config = load_config(pair.config("active"))
    assert resolve_role(None, config) is resolve_role("active", config) is ROLES["active"]
    with pytest.raises(ConfigurationError, match="--role passive contradicts role: active"):
        resolve_role("passive", config)
    old = config.model_copy(update={"role": None})
    assert resolve_role("passive", old) is ROLES["passive"]
    with pytest.raises(ConfigurationError, match="role: missing"):
        resolve_role(None, old)


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        ("nonsense: [", False),
        ("- a list", False),
        ("party: {name: a, peer: b}", False),
        ("party: {name: a, peer: b}\nnetwork: {address: 'h:1'}\ndata: 3\nbogus: 1", True),
        ("party: {name: a, peer: b}\nnetwork: {address: nowhere}", False),
    ],
)
def test_what_is_needed_to_contact_the_peer(tmp_path: Path, text: str, *, is_known: bool) -> None:
    file = tmp_path / "party.yml"
    file.write_text(text)
    contact = load_contact(file)
    assert (contact is not None) == is_known
    if contact is not None:
        assert (contact.party.peer, contact.network.address) == ("b", "h:1")
        assert contact.timeouts.notice == 5.0
    assert load_contact(tmp_path / "none.yml") is None
