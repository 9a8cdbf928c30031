"""The view that is kept for a later audit: round trip, and readable only by its owner."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.kept_view import load_view, save_view
from florist.common.audit.recorder import Sighting
from florist.common.core.errors import ConfigurationError
from florist.common.storage.manifest import MANIFEST, DamagedFile

if TYPE_CHECKING:
    from pathlib import Path

UNION = "ab" * 32


def sightings() -> list[Sighting]:
    random = np.random.default_rng(1)
    return [
        Sighting(
            step,
            step // 2,
            random.integers(100, size=size),
            random.random((size, 3), dtype=np.float32),
            random.random((size, 3), dtype=np.float32),
            logit_columns=1,
            batch_size=10 + step,
        )
        for step, size in enumerate((4, 1, 3))
    ]


def test_a_view_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "view.safetensors"
    save_view(AuditFolder(tmp_path), sightings()[:1], UNION)
    save_view(AuditFolder(tmp_path), sightings(), UNION)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, MANIFEST}
    for found, expected in zip(load_view(AuditFolder(tmp_path), UNION), sightings(), strict=True):
        assert (found.step, found.epoch) == (expected.step, expected.epoch)
        assert np.array_equal(found.ranks, expected.ranks)
        assert np.array_equal(found.embeddings, expected.embeddings)
        assert np.array_equal(found.gradients, expected.gradients)
        assert (found.logit_columns, found.batch_size) == (1, 10 + found.step)


def test_a_view_of_the_first_format_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "view.safetensors"
    save_view(AuditFolder(tmp_path), sightings(), UNION)
    with safe_open(path, framework="numpy") as file:
        tensors = {
            name: file.get_tensor(name)
            for name in file.keys()  # noqa: SIM118
            if name not in ("logit_columns", "batch_sizes")
        }
    (tmp_path / MANIFEST).unlink()
    save_file(tensors, path, metadata={"format": "1", "union_sha256": UNION})
    for found, expected in zip(load_view(AuditFolder(tmp_path), UNION), sightings(), strict=True):
        assert np.array_equal(found.gradients, expected.gradients)
        assert (found.logit_columns, found.batch_size) == (0, 0)
    save_file(tensors, path, metadata={"format": "99", "union_sha256": UNION})
    with pytest.raises(ConfigurationError, match="format"):
        load_view(AuditFolder(tmp_path), UNION)


def test_another_union_is_refused(tmp_path: Path) -> None:
    save_view(AuditFolder(tmp_path), sightings(), UNION)
    with pytest.raises(ConfigurationError, match="another union"):
        load_view(AuditFolder(tmp_path), "cd" * 32)


def test_a_missing_or_damaged_view_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"audit\.keep_view"):
        load_view(AuditFolder(tmp_path), UNION)
    save_view(AuditFolder(tmp_path), sightings(), UNION)
    AuditFolder(tmp_path).view.write_bytes(b"nothing of the kind")
    with pytest.raises(DamagedFile, match="is damaged"):
        load_view(AuditFolder(tmp_path), UNION)
    (tmp_path / MANIFEST).unlink()  # earlier releases had none
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_view(AuditFolder(tmp_path), UNION)
