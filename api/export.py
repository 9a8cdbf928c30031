"""Exports a party's half of a trained model for other programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.bundle.bundle import PassiveBundle
from florist.common.bundle.loading import load_bundle
from florist.common.bundle.onnx_description import describe_half
from florist.common.core.errors import ConfigurationError, InternalError
from florist.common.data.features import Features
from florist.common.session.run_directory import RunDirectory
from florist.common.transport.certificate_files import write_file

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.api.config import AnyPath
    from florist.common.bundle.bundle import ActiveBundle

    Arrays = dict[str, npt.NDArray[np.generic]]

#: Numbers of generated rows on which the exported model is compared with the original.
_CHECKED_ROWS = (1, 3, 500)
#: Largest absolute or relative difference, from rounding in another order.
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class ExportedHalf:
    """The files that `export_onnx` wrote.

    Attributes:
        model: the ONNX model.
        description: JSON file that says how rows are encoded.
        difference: largest difference from the original model on generated rows.
    """

    model: Path
    description: Path
    difference: float


def export_onnx(run: AnyPath, output: AnyPath, *, force: bool = False) -> ExportedHalf:
    """Export a party's half of the model as an ONNX file, with a description of its inputs.

    Before anything is written, the file is executed with onnxruntime on generated rows, and must
    give the same results as the original.

    Args:
        run: the party's run directory, after training.
        output: the .onnx file to write; the description gets the same name with .json.
        force: replace existing files.

    Returns:
        The paths, and the largest difference that was found.

    Raises:
        ConfigurationError: there is no trained model, a file exists already, or `florist[onnx]` is
            not installed.

    Example:
        >>> florist.export_onnx("runs/telco", "telco.onnx").description
        PosixPath('telco.json')
    """
    path = Path(output)
    if path.suffix != ".onnx":
        raise ConfigurationError(f"{path}: the file name must end in .onnx")
    files = path, path.with_suffix(".json")
    for each in files:
        if each.exists() and not force:
            raise ConfigurationError(f"{each}: exists already; replace with --force")
    runs = RunDirectory(Path(run))
    bundle = load_bundle(runs, "active" if runs.load_summary().role == "active" else "passive")
    try:
        from onnx.checker import check_model  # noqa: PLC0415 - optional

        from florist.common.bundle.onnx_graph import half_graph  # noqa: PLC0415
    except ImportError:
        raise _not_installed() from None
    model = half_graph(bundle)
    check_model(model, full_check=True)
    content = model.SerializeToString()
    difference = largest_difference(content, bundle)
    if not difference <= _TOLERANCE:
        raise InternalError(f"the exported model differs from the original by {difference:g}")
    description = json.dumps(describe_half(bundle), indent=2, ensure_ascii=False, allow_nan=False)
    write_file(files[0], content, mode=0o600)
    write_file(files[1], f"{description}\n".encode(), mode=0o600)
    return ExportedHalf(*files, difference)


def largest_difference(content: bytes, bundle: ActiveBundle | PassiveBundle) -> float:
    """Compare an exported half with the original on generated rows.

    Raises:
        ConfigurationError: onnxruntime is not installed.
    """
    try:
        from onnxruntime import InferenceSession  # noqa: PLC0415 - optional
    except ImportError:
        raise _not_installed() from None
    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    largest = 0.0
    for rows in _CHECKED_ROWS:
        inputs, expected = _example(bundle, rows, random)
        used = {each.name: inputs[each.name] for each in session.get_inputs()}
        (found,) = session.run(None, used)
        difference = np.abs(found.reshape(expected.shape) - expected)
        largest = max(largest, float((difference / np.maximum(1, np.abs(expected))).max()))
    return largest


def _example(
    bundle: ActiveBundle | PassiveBundle, rows: int, random: np.random.Generator
) -> tuple[Arrays, npt.NDArray[np.float32]]:
    """Return encoded rows that need not be of anyone, and the original model's results."""
    preprocessing = bundle.preprocessing
    numeric, _ = preprocessing.sizes
    features = Features(
        random.random((rows, numeric), dtype=np.float32),
        random.integers(0, [preprocessing.cardinalities] * rows, dtype=np.int32).reshape(
            rows, len(preprocessing.cardinalities)
        ),
    )
    width = bundle.agreement.training.wire_width
    embeddings = random.normal(size=(rows, width)).astype(np.float32)
    inputs: Arrays = {
        "numeric": features.numeric,
        "categories": features.categories,
        "embeddings": embeddings,
    }
    with torch.inference_mode():
        if isinstance(bundle, PassiveBundle):
            result = bundle.embed(features)
        else:
            own = features if bundle.has_features else None
            result = bundle.predict(torch.from_numpy(embeddings), own)
    return inputs, result.numpy()


def _not_installed() -> ConfigurationError:
    return ConfigurationError(
        "exporting to ONNX needs the packages onnx and onnxruntime; run `pip install "
        "'florist[onnx]'`"
    )
