"""Bundles load as saved, damage is detected, and both parties refuse halves of different runs."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from florist.common.bundle.comparing import BundleMismatch, compare_bundles
from florist.common.bundle.loading import load_bundle
from florist.common.bundle.saving import BundleContents, save_bundle
from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.data.preprocessing import Preprocessing
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.raw_table import RawTable
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.agreement import Agreement
from florist.common.settings.data import PreprocessingSettings
from florist.common.settings.training import Model
from florist.common.synthetic.calibration import Calibration, Mixture, model_output
from florist.common.training.model_factory import make_agreed_active, make_bottom
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.recording import RecordingLink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from florist.common.bundle.bundle import Bundle
    from florist.common.core.roles import RoleName
    from florist.common.transport.channel import Link

ROLES: tuple[RoleName, RoleName] = ("active", "passive")
CPU = torch.device("cpu")
MODEL = Model(hidden=[6, 4], tower=[5])
RUN = bytes(range(32))

RAW = RawTable.from_arrow(
    "people",
    pa.array([f"p{n}" for n in range(8)]),
    pa.table({"age": pa.array([20.0 + n for n in range(8)]), "city": pa.array(list("aabbccdd"))}),
)


def agreed(**training: Any) -> Agreement:  # noqa: ANN401 - any key of the agreement
    return Agreement.model_validate({"training": {"cut_width": 4, **training}})


def contents(
    role: RoleName, agreement: Agreement, *, run: bytes = RUN, seed: int = 1, own: bool = False
) -> BundleContents:
    """Make a half with random weights, as if trained."""
    preprocessing = fit_preprocessing(RAW, PreprocessingSettings())
    if role == "active" and not own:
        preprocessing = Preprocessing(PreprocessingSettings(), (), ())
    columns: dict[str, Any] = {
        "numeric": len(preprocessing.numeric_columns),
        "cardinalities": preprocessing.cardinalities,
        "device": CPU,
        "seed": seed,
    }
    classes = agreement.training.classes
    calibration = Calibration(
        agreement.training.calibration, Mixture(0.4, tuple([0.6 / classes] * classes))
    )
    is_active = role == "active"
    model = (
        make_agreed_active(agreement.training, MODEL, **columns)
        if is_active
        else make_bottom(MODEL, cut_width=4, wide=agreement.training.wide_outputs, **columns)
    )
    return BundleContents(
        role=role,
        run=run,
        agreement=agreement,
        union_sha256="0" * 64,
        model=MODEL,
        weights=model.state_dict(),
        preprocessing=preprocessing,
        calibration=calibration if is_active else None,
        class_names=tuple(map(str, range(classes))) if is_active else (),
    )


def run_both(act: Callable[[RoleName, Link], object]) -> dict[RoleName, FloristError | None]:
    """Run both parties in threads and return the error of each, if any."""

    def end(role: RoleName, link: Link) -> FloristError | None:
        try:
            act(role, link)
        except FloristError as error:
            return error
        return None

    links = linked_pair()
    with ThreadPoolExecutor(2) as parties:
        ends = {r: parties.submit(end, r, link) for r, link in zip(ROLES, links, strict=True)}
        found = {role: each.result(timeout=20) for role, each in ends.items()}
    for link in links:
        link.close()
    return found


def save_both(
    directory: Path, halves: dict[RoleName, BundleContents]
) -> dict[RoleName, RunDirectory]:
    runs = {role: RunDirectory(directory / role) for role in ROLES}

    def act(role: RoleName, link: Link) -> None:
        runs[role].training.mkdir(parents=True)
        save_bundle(runs[role].training, halves[role], link)

    assert run_both(act) == {"active": None, "passive": None}
    return runs


@pytest.fixture
def runs(tmp_path: Path) -> dict[RoleName, RunDirectory]:
    return save_both(tmp_path, {role: contents(role, agreed()) for role in ROLES})


# --- loading ---


@pytest.mark.parametrize("own", [False, True], ids=["labels-only", "own-features"])
@pytest.mark.parametrize(
    "training",
    [
        {},
        {"calibration": "test", "masking": False},
        {"calibration": "test"},
        {"calibration": "none"},
        {"classes": 3, "calibration": "test", "masking": False},
    ],
    ids=str,
)
def test_predictions_are_those_of_the_saved_model(
    tmp_path: Path, training: dict[str, Any], *, own: bool
) -> None:
    agreement = agreed(**training)
    halves = {role: contents(role, agreement, own=own) for role in ROLES}
    runs = save_both(tmp_path, halves)
    passive, active = load_bundle(runs["passive"], "passive"), load_bundle(runs["active"], "active")
    features = passive.preprocessing.transform(RAW)
    embeddings = passive.embed(features)

    bottom = make_bottom(
        MODEL,
        numeric=1,
        cardinalities=passive.preprocessing.cardinalities,
        cut_width=4,
        wide=passive.agreement.training.wide_outputs,
        device=CPU,
        seed=1,
    )
    rows = torch.from_numpy(features.numeric), torch.from_numpy(features.categories).long()
    assert torch.equal(embeddings, bottom(*rows))

    top = active.model
    assert active.has_features == own
    columns = rows if own else ()
    logits = top(embeddings, *columns)
    expected = model_output(logits)
    if training.get("calibration") == "test":
        classes = agreement.training.classes
        offset: Any = 0.6 / classes
        if own and agreement.training.masking:
            assert top.prior is not None
            offset = 0.6 * model_output(top.prior(*columns))
        expected = ((expected - offset) / 0.4).clamp(0, 1)
        if classes > 2:
            expected /= expected.sum(1, keepdim=True)
    found = active.predict(embeddings, features if own else None)
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad


def test_both_halves_name_the_run_and_each_other(runs: dict[RoleName, RunDirectory]) -> None:
    active, passive = load_bundle(runs["active"], "active"), load_bundle(runs["passive"], "passive")
    assert active.run == passive.run == RUN
    assert (active.digest, active.peer_digest) == (passive.peer_digest, passive.digest)
    assert active.digest != passive.digest
    assert active.agreement == passive.agreement == agreed()
    assert active.class_names == ("0", "1")
    assert RUN.hex()[:12] in repr(active)


def test_digest_covers_everything_in_the_bundle_and_nothing_else(tmp_path: Path) -> None:
    def digest(name: str, half: BundleContents) -> bytes:
        halves: dict[RoleName, BundleContents] = {
            "active": half,
            "passive": contents("passive", half.agreement, run=half.run),
        }
        return load_bundle(save_both(tmp_path / name, halves)["active"], "active").digest

    first = digest("first", contents("active", agreed()))
    assert digest("again", contents("active", agreed())) == first
    others = {
        "weights": contents("active", agreed(), seed=2),
        "agreement": contents("active", agreed(epochs=9)),
        "run": contents("active", agreed(), run=bytes(32)),
        "preprocessing": contents("active", agreed(), own=True),
    }
    assert len({first, *(digest(name, half) for name, half in others.items())}) == 5


def test_a_model_with_a_tower_requires_own_features(tmp_path: Path) -> None:
    halves = {role: contents(role, agreed(), own=True) for role in ROLES}
    active = load_bundle(save_both(tmp_path, halves)["active"], "active")
    with pytest.raises(ValueError, match="own features"):
        active.predict(torch.zeros(8, 4))


# --- refused ---


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "name",
    [
        "model.json",
        "model.safetensors",
        "preprocessing/preprocessing.json",
        "preprocessing/vocabularies.parquet",
    ],
)
@pytest.mark.parametrize("damage", [flip_last_byte, lambda path: path.write_bytes(b"")])
def test_damage_is_detected(
    runs: dict[RoleName, RunDirectory],
    role: RoleName,
    name: str,
    damage: Callable[[Path], None],
) -> None:
    damage(runs[role].training / name)
    with pytest.raises(ConfigurationError, match="damaged") as found:
        load_bundle(runs[role], role)
    assert name in str(found.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "has format 3, but this release reads format 2"),
        ({"agreement": {"training": {"epochs": 99}}}, "damaged"),
        ({"role": "passive"}, "damaged"),
        ({"surprise": 1}, "damaged"),
        ({"digest": None}, "damaged"),
    ],
    ids=str,
)
def test_a_changed_manifest_is_refused(
    runs: dict[RoleName, RunDirectory], change: dict[str, Any], message: str
) -> None:
    path = runs["active"].training / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigurationError, match=message):
        load_bundle(runs["active"], "active")


def test_a_missing_bundle_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--stage train"):
        load_bundle(RunDirectory(tmp_path), "active")


def test_the_other_partys_half_is_refused(runs: dict[RoleName, RunDirectory]) -> None:
    with pytest.raises(ConfigurationError, match="contains the passive party's half"):
        load_bundle(runs["passive"], "active")


# --- comparing halves ---


def compare(halves: dict[RoleName, Bundle]) -> dict[RoleName, FloristError | None]:
    return run_both(lambda role, link: compare_bundles(link, halves[role]))


def test_halves_of_one_run_belong_together(runs: dict[RoleName, RunDirectory]) -> None:
    halves: dict[RoleName, Bundle] = {role: load_bundle(runs[role], role) for role in ROLES}
    for _ in range(2):
        assert compare(halves) == {"active": None, "passive": None}


@pytest.mark.parametrize("changed", ROLES)
@pytest.mark.parametrize("other", ["run", "weights"])
def test_halves_of_different_runs_are_refused_by_both(
    runs: dict[RoleName, RunDirectory], tmp_path: Path, changed: RoleName, other: str
) -> None:
    """This includes runs that differ only in weights: fixed seeds give the same run ID."""
    run, seed = (bytes(32), 1) if other == "run" else (RUN, 2)
    again = save_both(
        tmp_path / "again",
        {role: contents(role, agreed(), run=run, seed=seed) for role in ROLES},
    )
    shutil.rmtree(runs[changed].training)
    shutil.copytree(again[changed].training, runs[changed].training)
    ends = compare({role: load_bundle(runs[role], role) for role in ROLES})
    for end in ends.values():
        assert isinstance(end, BundleMismatch)
        assert end.exit_code == 2
        assert "different training runs" in end.reason
        assert end.for_peer == end.reason


def test_halves_of_different_runs_are_not_saved(tmp_path: Path) -> None:
    halves = {role: contents(role, agreed(), run=role[0].encode() * 32) for role in ROLES}

    def act(role: RoleName, link: Link) -> None:
        (tmp_path / role).mkdir()
        save_bundle(tmp_path / role, halves[role], link)

    assert all(isinstance(end, BundleMismatch) for end in run_both(act).values())
    assert not list(tmp_path.rglob("model.json"))


def test_only_run_ids_and_digests_are_sent(runs: dict[RoleName, RunDirectory]) -> None:
    seen: list[Any] = []

    def act(role: RoleName, link: Link) -> None:
        recorded = RecordingLink(link)
        compare_bundles(recorded, load_bundle(runs[role], role))
        seen.extend(record.message for record in recorded.records)

    assert run_both(act) == {"active": None, "passive": None}
    assert {type(message).__name__ for message in seen} == {"BundleOffer"}
    sizes = {len(value) for m in seen for value in (m.run, m.digest, m.peer_digest)}
    assert sizes == {32}


def test_unusual_rows_are_preprocessed_as_in_training(runs: dict[RoleName, RunDirectory]) -> None:
    """Unseen categories and out-of-range numbers are handled as in training."""
    passive = load_bundle(runs["passive"], "passive")
    odd = RawTable.from_arrow(
        "odd", pa.array(["x"]), pa.table({"age": pa.array([99.0]), "city": pa.array(["nowhere"])})
    )
    features = passive.preprocessing.transform(odd)
    assert features.numeric.tolist() == [[1.0]]
    assert features.categories.tolist() == [[0, 8]]  # an unknown city, and the last bin
    assert np.isfinite(passive.embed(features).numpy()).all()
