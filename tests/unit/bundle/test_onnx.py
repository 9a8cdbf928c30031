"""Exported halves give the same results as the original ones, whatever they consist of."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pyarrow as pa
import pytest
import torch
from onnxruntime import InferenceSession

from florist.api.export import largest_difference
from florist.common.bundle.bundle import ActiveBundle, PassiveBundle
from florist.common.bundle.onnx_description import describe_half
from florist.common.bundle.onnx_graph import half_graph
from florist.common.data.preprocessing import Preprocessing
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.raw_table import RawTable
from florist.common.settings.agreement import Agreement
from florist.common.settings.data import PreprocessingSettings
from florist.common.settings.training import Model
from florist.common.synthetic.calibration import Calibration, Mixture
from florist.common.training.model_factory import make_half_model

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName

COLUMNS = {
    "age": pa.array([20.0 + n for n in range(8)]),
    "city": pa.array(list("aabbccdd")),
}


def preprocessing_of(columns: tuple[str, ...], bins: int = 4) -> Preprocessing:
    settings = PreprocessingSettings(bins=bins)
    if not columns:
        return Preprocessing(settings, (), ())
    ids = pa.array([f"p{n}" for n in range(8)])
    table = pa.table({name: COLUMNS[name] for name in columns})
    return fit_preprocessing(RawTable.from_arrow("people", ids, table), settings)


def bundle_of(
    role: RoleName, columns: tuple[str, ...] = ("age", "city"), bins: int = 4, **training: object
) -> ActiveBundle | PassiveBundle:
    """Make a half with random weights."""
    stand_ins = "oblivious" if training.get("wide", True) else "plain"
    agreement = Agreement.model_validate({"training": {"stand_ins": stand_ins, **training}})
    hidden = [6, agreement.training.cut_width or 5]
    preprocessing = preprocessing_of(columns, bins)
    model: Any = make_half_model(
        role,
        agreement.training,
        Model(hidden=hidden, tower=[5]),
        numeric=len(preprocessing.numeric_columns),
        cardinalities=preprocessing.cardinalities,
        device=torch.device("cpu"),
    )
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    model.eval().requires_grad_(requires_grad=False)
    common: dict[str, Any] = {
        "role": role,
        "run": bytes(32),
        "digest": bytes(32),
        "peer_digest": bytes(32),
        "agreement": agreement,
        "union_sha256": "0" * 64,
        "preprocessing": preprocessing,
        "device": torch.device("cpu"),
        "model": model,
    }
    if role == "passive":
        return PassiveBundle(**common)
    classes = agreement.training.classes
    shift = Mixture(0.4, tuple([0.6 / classes] * classes))
    return ActiveBundle(
        **common,
        calibration=Calibration(agreement.training.calibration, shift),
        class_names=tuple(f"class {number}" for number in range(classes)),
    )


@pytest.mark.parametrize(
    ("role", "columns", "bins", "cut_width", "classes", "calibration", "wide"),
    [
        variant
        for variant in product(
            ("active", "passive"),
            ((), ("age",), ("city",), ("age", "city")),
            (0, 4),
            (0, 3),
            (2, 3),
            ("train", "test"),
            (False, True),
        )
        if (variant[0] == "active" or (variant[1] and variant[5] == "train"))
        and (variant[3] or variant[6])  # late fusion needs the wide part
        and (variant[2] == 0 or "age" in variant[1])
    ],
)
def test_a_graph_computes_what_the_model_does(
    role: RoleName,
    columns: tuple[str, ...],
    bins: int,
    cut_width: int,
    classes: int,
    calibration: str,
    wide: bool,  # noqa: FBT001
) -> None:
    bundle = bundle_of(
        role,
        columns,
        bins,
        cut_width=cut_width,
        classes=classes,
        calibration=calibration,
        wide=wide,
    )
    model = half_graph(bundle)
    onnx.checker.check_model(model, full_check=True)
    assert largest_difference(model.SerializeToString(), bundle) < 1e-5


def test_a_different_graph_is_noticed() -> None:
    bundle, other = bundle_of("passive"), bundle_of("passive")
    assert isinstance(other, PassiveBundle)
    with torch.no_grad():
        next(other.model.layers.parameters()).add_(0.1)
    assert largest_difference(half_graph(bundle).SerializeToString(), other) > 1e-3


def test_a_row_can_be_encoded_from_the_description_alone() -> None:
    """As a program without FLORIST would: only the description, numpy and onnxruntime."""
    bundle = bundle_of("passive")
    assert isinstance(bundle, PassiveBundle)
    description: Any = describe_half(bundle)
    found: Any = description["preprocessing"]
    rows: list[dict[str, Any]] = [
        {"age": 23.0, "city": "b"},
        {"age": None, "city": "never seen"},
        {"age": 99, "city": ""},
    ]

    numeric, categories = [], []
    for row in rows:
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        numeric.append(
            [
                np.clip(
                    (numbers.get(each["column"], 0.0) - each["minimum"])
                    / (each["maximum"] - each["minimum"]),
                    0,
                    1,
                )
                for each in found["numeric"]
            ]
        )
        indices = []
        for each in found["categories"]:
            value: Any = row[each["column"]]
            if "categories" in each:
                known = each["categories"]
                indices.append(known.index(value) + 1 if value in known else 0)
            elif value is None:
                indices.append(0)
            else:
                indices.append(int(np.searchsorted(each["edges"], value, side="right")) + 1)
        categories.append(indices)
    session = InferenceSession(half_graph(bundle).SerializeToString())
    (embeddings,) = session.run(
        None,
        {"numeric": np.array(numeric, np.float32), "categories": np.array(categories, np.int32)},
    )

    table = pa.Table.from_pylist(rows, schema=pa.schema({"age": pa.float64(), "city": pa.string()}))
    raw = RawTable.from_arrow("rows", pa.array(["a", "b", "c"]), table)
    expected = bundle.embed(bundle.preprocessing.transform(raw)).numpy()
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)


@pytest.mark.parametrize("calibration", ["train", "test"])
def test_with_late_fusion_the_passive_output_ranks_like_the_model(calibration: str) -> None:
    """If the active party has no features, as the documentation of the export says."""
    top = bundle_of("active", (), cut_width=0, calibration=calibration)
    assert isinstance(top, ActiveBundle)
    shares = torch.linspace(-3, 3, 100)[:, None]
    probabilities = top.predict(shares)
    assert bool((probabilities.diff() >= 0).all())
    assert probabilities[-1] > probabilities[0]
