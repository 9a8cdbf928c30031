"""Served predictions equal those of the trained model in one process; nothing else is sent."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pyarrow as pa
import pytest

from florist.common.core.errors import ConfigurationError, PeerFailed
from florist.common.data.raw_table import convert_features
from florist.common.transport import codec
from florist.common.transport.grpc_prediction_client import PeerBusy, ServingRefused
from florist.common.transport.messages import (
    BundleOffer,
    PredictionReply,
    PredictionRequest,
    ServingOffer,
    ServingTerms,
)
from florist.passive_party.row_encoder import BadRow
from florist.passive_party.serving import PredictionClient
from tests.support.serving import client_of, config_of, halves, service, table_of, whole_model
from tests.support.wire import recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.parties import Workspace


@pytest.fixture(scope="module")
def client(plain: Workspace) -> Iterator[PredictionClient]:
    with service(plain) as server, client_of(plain, server.address) as found:
        yield found


def expected(workspace: Workspace, rows: pa.Table) -> Any:  # noqa: ANN401 - an array
    _, passive = halves(workspace)
    found = passive.preprocessing
    return whole_model(workspace, found.transform(convert_features("test", rows, found.features)))


def test_single_rows_batches_and_streams_match_the_model(
    plain: Workspace, client: PredictionClient
) -> None:
    table = table_of(plain, "passive").columns
    truth = expected(plain, table)
    assert len(set(truth.tolist())) > 100, "the model says something"
    for place in range(5):
        one = client.predict(table.slice(place, 1).to_pylist())
        np.testing.assert_allclose(one, truth[place : place + 1], atol=1e-6)
    np.testing.assert_allclose(client.predict(table), truth, atol=1e-6)
    np.testing.assert_allclose(client.predict(table.to_pylist()), truth, atol=1e-6)
    parts = [table.slice(start, 70) for start in range(0, len(table), 70)]
    streamed = list(client.predict_batches(parts))
    assert [len(part) for part in streamed] == [len(part) for part in parts]
    np.testing.assert_allclose(np.concatenate(streamed), truth, atol=1e-6)
    assert client.predict([]).shape == (0,)


def test_an_answer_depends_on_the_embedding_and_on_nothing_secret(plain: Workspace) -> None:
    """No table, alignment or secret is read, so it does not matter how often it is requested."""
    rows = np.random.default_rng(1).standard_normal((40, 9), dtype=np.float32)
    runs = plain.run_directory("active")
    hidden = runs.alignment.rename(runs.path / "hidden")
    answers = []
    try:
        for order in (np.arange(40), np.arange(40), np.arange(40)[::-1]):
            with service(plain) as server, client_of(plain, server.address) as client:
                request = PredictionRequest(np.ascontiguousarray(rows[order]).tobytes())
                reply = client._connection.predict(request)
            answers.append(np.frombuffer(reply.probabilities, "<f4")[order])
    finally:
        hidden.rename(runs.alignment)
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_allclose(answers[0], answers[2], rtol=1e-6)
    assert not (runs.path / "serving" / "secret").exists()


def test_requests_that_exceed_a_message_become_a_stream(plain: Workspace) -> None:
    table = table_of(plain, "passive").columns
    with (
        service(plain, limits={"rows_per_request": 9}) as server,
        client_of(plain, server.address) as client,
    ):
        np.testing.assert_allclose(client.predict(table), expected(plain, table), atol=1e-6)


def test_unseen_categories_and_missing_values(plain: Workspace, client: PredictionClient) -> None:
    table = table_of(plain, "passive").columns
    columns = client.columns
    rows = table.slice(0, 4).to_pylist()
    rows[0] |= dict.fromkeys(columns.categorical, "never seen before")
    rows[1] |= dict.fromkeys((*columns.numeric, *columns.categorical))
    rows[2] |= dict.fromkeys(columns.numeric, 1e30)
    rows[3] |= dict.fromkeys(columns.numeric, math.nan)
    truth = expected(plain, pa.Table.from_pylist(rows, schema=table.schema))
    np.testing.assert_allclose(client.predict(rows), truth, atol=1e-6)


def test_concurrent_clients_get_their_own_predictions(plain: Workspace) -> None:
    table = table_of(plain, "passive").columns
    truth = expected(plain, table)
    rows = table.to_pylist()

    def ask(client: PredictionClient, place: int) -> bool:
        count = place % 5 + 1
        found = client.predict(rows[place : place + count])
        return bool(np.allclose(found, truth[place : place + count], atol=1e-6))

    with (
        service(plain, batching={"rows": 16, "delay": 0.002}) as server,
        client_of(plain, server.address) as one,
        client_of(plain, server.address) as other,
        ThreadPoolExecutor(12) as pool,
    ):
        places = [place % (len(rows) - 5) for place in range(300)]
        asked = [pool.submit(ask, (one, other)[n % 2], place) for n, place in enumerate(places)]
        streamed = pool.submit(lambda: np.concatenate(list(other.predict_batches([table] * 3))))
        assert all(answer.result(60) for answer in asked)
        np.testing.assert_allclose(streamed.result(60), np.tile(truth, 3), atol=1e-6)


def test_only_embeddings_and_probabilities_cross_the_network(plain: Workspace) -> None:
    """Compare all bytes in both directions, in plain text through a recording relay."""
    raw = table_of(plain, "passive")
    table = raw.columns.slice(0, 40)
    _, passive = halves(plain)
    preprocessing = passive.preprocessing
    features = preprocessing.transform(convert_features("", table, preprocessing.features))
    parts = [features.slice(0, 1), features.slice(0, 25), features.slice(25, 40)]
    embeddings = [passive.embed(part).numpy().tobytes() for part in parts]
    with (
        service(plain, plaintext=True) as server,
        recorded(server.address) as wire,
        client_of(plain, wire.address, plaintext=True) as client,
    ):
        client.predict(table.slice(0, 1))
        streamed = list(client.predict_batches([table.slice(0, 25), table.slice(25)]))
    sent, received = wire.messages()
    assert isinstance(codec.decode_serving(ServingOffer, sent[0]), ServingOffer)
    assert isinstance(codec.decode_serving(ServingTerms, received[0]), ServingTerms)
    assert sent[1:] == [codec.encode_serving(PredictionRequest(part)) for part in embeddings]
    assert received[2:] == [
        codec.encode_serving(PredictionReply(part.tobytes())) for part in streamed
    ]
    assert len(received) == 4
    everything = wire.bytes_both_ways
    for identifier in raw.ids:
        assert identifier not in everything


# --- refused requests ---


def rows_of(client: PredictionClient, count: int) -> list[dict[str, object]]:
    columns = client.columns
    row: dict[str, object] = {
        **dict.fromkeys(columns.numeric, 1.0),
        **dict.fromkeys(columns.categorical, "a"),
    }
    return [row] * count


NAN = np.full(9, np.nan, "<f4").tobytes()
INFINITE = np.full(9, np.inf, "<f4").tobytes()


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (PredictionRequest(bytes(31)), "31 bytes are not one or more rows of 36 bytes"),
        (PredictionRequest(b""), "0 bytes are not one or more rows"),
        (PredictionRequest(NAN), "contain NaN or infinity"),
        (PredictionRequest(bytes(72) + INFINITE), "contain NaN or infinity"),
        (PredictionRequest(bytes(36 * 5000)), "5,000 rows in one request; the limit is 4,096"),
        (PredictionRequest(bytes(36), 0), "this model has no groups"),
    ],
)
def test_malformed_requests_are_refused_and_the_service_continues(
    client: PredictionClient, request_: PredictionRequest, problem: str
) -> None:
    with pytest.raises(PeerFailed, match=problem):
        client._connection.predict(request_)
    with pytest.raises(PeerFailed, match=problem):
        list(client._connection.stream([PredictionRequest(bytes(36)), request_]))
    assert len(client.predict(rows_of(client, 2))) == 2


def test_malformed_messages_are_refused(client: PredictionClient) -> None:
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes]
    call = client._connection._channel.unary_unary(codec.PREDICT)
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\xff\xff\xff", metadata=client._connection._metadata, timeout=10)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "malformed message" in str(refused.value.details())
    with pytest.raises(grpc.RpcError) as refused:
        call(bytes(9 << 20), metadata=client._connection._metadata, timeout=10)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(client.predict(rows_of(client, 1))) == 1


def test_invalid_rows_are_refused_before_any_traffic(client: PredictionClient) -> None:
    good = rows_of(client, 1)[0]
    with pytest.raises(BadRow, match="row 1: lacks columns"):
        client.predict([good, {}])
    with pytest.raises(ConfigurationError, match="rows: lacks columns that the model was trained"):
        client.predict(pa.table({"a": [1]}))
    text = pa.table({**{name: ["x"] for name in good}})
    with pytest.raises(ConfigurationError, match=r"file\.csv, column .*: must be numeric"):
        list(client.predict_batches([text], "file.csv"))
    with pytest.raises(ConfigurationError, match=r"no features of its own: request .* by rows"):
        client.predict_people(["somebody"])


def test_the_limit_of_rows_per_minute(plain: Workspace) -> None:
    with (
        service(plain, limits={"rows_per_minute": 600, "rows_per_request": 400}) as server,
        client_of(plain, server.address) as client,
    ):
        assert len(client.predict(rows_of(client, 400))) == 400
        with pytest.raises(PeerBusy, match="600 rows per minute: try again in") as busy:
            client.predict(rows_of(client, 300))
        assert 1 < busy.value.retry_after < 15
        assert len(client.predict(rows_of(client, 150))) == 150, (
            "the rest of the budget can be used"
        )
        # A stream waits instead: the budget regains 10 rows per second.
        table = pa.Table.from_pylist(rows_of(client, 60))
        assert len(next(client.predict_batches([table]))) == 60


def test_too_many_streams_and_calls(plain: Workspace) -> None:
    with (
        service(plain, limits={"streams": 1}) as server,
        client_of(plain, server.address) as client,
    ):
        table = pa.Table.from_pylist(rows_of(client, 5))
        first = client.predict_batches(iter(lambda: table, None))  # without end
        assert len(next(first)) == 5
        with pytest.raises(PeerBusy, match="the limit is 1 concurrent streams"):
            next(client.predict_batches([table]))
        assert len(client.predict(rows_of(client, 1))) == 1
        first.close()
        assert server.wait_until_idle(10)
        assert len(next(client.predict_batches([table]))) == 5


# --- do the halves match? ---


def test_another_model_is_refused_on_both_sides(
    plain: Workspace, featured: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = config_of(featured, "passive").model_copy(
        update={"network": config_of(plain, "passive").network}
    )
    with service(plain) as server:
        serving = stranger.serving.model_copy(update={"address": server.address})
        with pytest.raises(ServingRefused, match="halves of different training runs"):
            PredictionClient.connect(stranger.model_copy(update={"serving": serving}), timeout=10)
        assert "refused" in caplog.text
        assert "halves of different training runs" in caplog.text
        with client_of(plain, server.address) as client:
            assert client.is_ready()


def test_another_agreement_is_refused_and_the_key_is_named(plain: Workspace) -> None:
    config = config_of(plain, "passive")
    changed = config.agreement.model_copy(
        update={"serving": config.agreement.serving.model_copy(update={"hiding_size": 99})}
    )
    with service(plain) as server:
        serving = config.serving.model_copy(update={"address": server.address})
        with pytest.raises(ServingRefused, match=r"agreement\.serving\.hiding_size: 16 here, 99"):
            PredictionClient.connect(
                config.model_copy(update={"agreement": changed, "serving": serving}), timeout=10
            )


def test_a_malformed_offer_is_refused(client: PredictionClient) -> None:
    offer = ServingOffer(1, "x", "{", BundleOffer(b"", b"", b""), b"")
    with pytest.raises(PeerFailed, match="agreement is not valid JSON"):
        client._connection.open(offer, 10)


def test_calls_for_another_model_are_refused(client: PredictionClient) -> None:
    """Like after a restart of the active party with a new model."""
    right = client._connection._metadata
    try:
        client._connection._metadata = (("florist-model", "another"),)
        with pytest.raises(ServingRefused, match="this party serves another model"):
            client.predict(rows_of(client, 1))
        client._connection._metadata = ()
        with pytest.raises(ServingRefused, match="this party serves another model"):
            list(client._connection.stream([PredictionRequest(bytes(36))]))
    finally:
        client._connection._metadata = right


def test_a_modified_weight_is_detected(plain: Workspace, tmp_path: Any) -> None:  # noqa: ANN401
    copy = plain.copy(tmp_path / "copy")
    path = copy.run_directory("passive").training / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    config = config_of(copy, "passive", "127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"model\.safetensors is damaged"):
        PredictionClient.connect(config, timeout=1)
