"""`florist export --format onnx`: both halves, exported, predict what the served model predicts."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnxruntime import InferenceSession

import florist
from florist.cli.tool import app
from tests.support.serving import halves, table_of, whole_model

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.parties import Workspace


def test_the_exported_halves_together_are_the_model(plain: Workspace, tmp_path: Path) -> None:
    for role in ("active", "passive"):
        run = str(plain.run_directory(role).path)
        output = tmp_path / f"{role}.onnx"
        app(
            ["export", run, "--format", "onnx", "--output", str(output)],
            standalone_mode=False,
        )
        assert output.stat().st_mode & 0o777 == 0o600
        assert output.with_suffix(".json").stat().st_mode & 0o777 == 0o600
    bottom, top = (InferenceSession(tmp_path / f"{role}.onnx") for role in ("passive", "active"))
    features = halves(plain)[1].preprocessing.transform(table_of(plain, "passive"))
    (embeddings,) = bottom.run(
        None, {"numeric": features.numeric, "categories": features.categories}
    )
    (probabilities,) = top.run(None, {"embeddings": embeddings})
    np.testing.assert_allclose(probabilities[:, 0], whole_model(plain, features), atol=1e-5)
    description = json.loads((tmp_path / "passive.json").read_text(encoding="utf-8"))
    assert description["role"] == "passive"
    columns = {each["column"] for each in description["preprocessing"]["numeric"]}
    assert columns == set(halves(plain)[1].preprocessing.numeric_columns)


def test_a_half_with_features_of_the_active_party(featured: Workspace, tmp_path: Path) -> None:
    run = featured.run_directory("active").path
    made = florist.export_onnx(run, tmp_path / "bank.onnx")
    assert made.difference < 1e-5
    names = [each.name for each in InferenceSession(made.model).get_inputs()]
    assert {"embeddings", "numeric"} <= set(names)


def test_errors_name_the_file_and_the_fix(
    plain: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plain.run_directory("passive").path
    with pytest.raises(florist.ConfigurationError, match=r"must end in \.onnx"):
        florist.export_onnx(run, tmp_path / "half.pt")
    (tmp_path / "half.json").touch()
    with pytest.raises(florist.ConfigurationError, match=r"half\.json: exists already"):
        florist.export_onnx(run, tmp_path / "half.onnx")
    assert not (tmp_path / "half.onnx").exists()
    florist.export_onnx(run, tmp_path / "half.onnx", force=True)
    with pytest.raises(florist.ConfigurationError, match="no finished alignment"):
        florist.export_onnx(tmp_path, tmp_path / "other.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(florist.ConfigurationError, match=r"pip install 'florist\[onnx\]'"):
        florist.export_onnx(run, tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()
