"""Served models: several classes, small number types, and the size limit of a message."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import torch

from florist.active_party.serving import ModelPredictionHandler
from florist.common.bundle.bundle import ActiveBundle, PassiveBundle
from florist.common.core.errors import ProtocolViolation
from florist.common.data.preprocessing import Preprocessing
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.raw_table import RawTable
from florist.common.serving.serving_handshake import make_offer
from florist.common.settings.agreement import Agreement, TrainingAgreement
from florist.common.settings.data import PreprocessingSettings
from florist.common.settings.serving import Serving
from florist.common.settings.training import Model
from florist.common.synthetic.calibration import Calibration, Mixture
from florist.common.training.model_factory import make_agreed_active, make_bottom
from florist.common.transport.grpc_prediction_client import PredictionConnection
from florist.common.transport.grpc_prediction_server import PredictionServer, ServerSettings
from florist.common.transport.messages import PredictionReply
from florist.passive_party.serving import PredictionClient
from tests.support.certificates import ACTIVE, PASSIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.transport.credentials import Credentials

CPU = torch.device("cpu")
RUN, ONE, OTHER = (bytes([n]) * 32 for n in range(3))
TABLE = pa.table({"age": np.linspace(0, 90, 500), "city": [f"city {n % 13}" for n in range(500)]})


def halves(training: TrainingAgreement) -> tuple[ActiveBundle, PassiveBundle]:
    """Both halves with their first weights, which is model enough here."""
    agreement = Agreement(training=training)
    raw = RawTable.from_arrow("test", pa.array([str(n) for n in range(len(TABLE))]), TABLE)
    preprocessing = fit_preprocessing(raw, PreprocessingSettings())
    nothing = Preprocessing(PreprocessingSettings(), (), ())
    settings = Model(hidden=[16, training.cut_width])
    top = make_agreed_active(training, settings, numeric=0, cardinalities=(), device=CPU, seed=1)
    bottom = make_bottom(
        settings,
        numeric=1,
        cardinalities=preprocessing.cardinalities,
        cut_width=training.cut_width,
        wide=training.wide_outputs,
        device=CPU,
        seed=2,
    )
    mixture = Mixture(0.5, (0.5 / training.classes,) * training.classes)
    active = ActiveBundle(
        "active", RUN, ONE, OTHER, agreement, "00" * 32, nothing, CPU,
        model=top, calibration=Calibration("test", mixture), class_names=(),
    )  # fmt: skip
    passive = PassiveBundle(
        "passive", RUN, OTHER, ONE, agreement, "00" * 32, preprocessing, CPU, model=bottom
    )
    return active, passive


@contextmanager
def connected(
    bundles: tuple[ActiveBundle, PassiveBundle], active: Credentials, passive: Credentials
) -> Iterator[PredictionClient]:
    agreement = bundles[0].agreement.serving
    desk = ModelPredictionHandler(bundles[0], agreement, Serving())
    with PredictionServer(
        "127.0.0.1:0", active, PASSIVE, desk, ServerSettings(4, 2, 10.0)
    ) as server:
        offer = make_offer(bundles[1], agreement)
        line, terms = PredictionConnection.dial(
            server.address, passive, ACTIVE, offer, timeout=20, answer=20
        )
        with PredictionClient(bundles[1], line, terms) as client:
            yield client


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize(
    ("wire_type", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.02), ("float16", 0.002)]
)
def test_calibrated_probabilities_of_all_classes(
    active: Credentials, passive: Credentials, classes: int, wire_type: str, tolerance: float
) -> None:
    training = TrainingAgreement.model_validate(
        {"classes": classes, "wire_type": wire_type, "cut_width": 8}
    )
    bundles = halves(training)
    raw = RawTable.from_arrow("test", pa.array(["x"] * len(TABLE)), TABLE)
    with torch.inference_mode():
        features = bundles[1].preprocessing.transform(raw)
        truth = bundles[0].predict(bundles[1].embed(features)).numpy()
    with connected(bundles, active, passive) as client:
        assert client.classes == (1 if classes == 2 else classes)
        found = client.predict(TABLE)
        assert found.shape == ((500,) if classes == 2 else (500, classes))
        np.testing.assert_allclose(found, truth, atol=tolerance)
        one = client.predict([{"age": 45.0, "city": "city 3"}])
        assert one.shape == truth[:1].shape
        streamed = np.concatenate(list(client.predict_batches([TABLE.slice(0, 1), TABLE.slice(1)])))
        np.testing.assert_allclose(streamed, truth, atol=tolerance)


def test_wide_rows_are_split_into_requests_that_fit(
    active: Credentials, passive: Credentials
) -> None:
    """At 64 KiB a row, 4,096 rows would be 256 MiB; a message has 4."""
    with connected(halves(TrainingAgreement(cut_width=16_384)), active, passive) as client:
        assert client._max_rows == 63
        assert len(client.predict(TABLE)) == 500


@pytest.mark.parametrize(
    "reply", [b"", bytes(8), np.array([1.5], "<f4").tobytes(), np.array([np.nan], "<f4").tobytes()]
)
def test_invalid_answers_are_a_violation(
    active: Credentials,
    passive: Credentials,
    reply: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with connected(halves(TrainingAgreement(cut_width=8)), active, passive) as client:
        monkeypatch.setattr(client._connection, "predict", lambda request: PredictionReply(reply))
        with pytest.raises(ProtocolViolation, match="the peer"):
            client.predict([{"age": 1.0, "city": "city 3"}])
