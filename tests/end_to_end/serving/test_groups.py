"""With features of the active party, people are predicted in groups that hide them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import torch

from florist.common.core.errors import ConfigurationError, PeerFailed
from florist.common.serving.served_table import load_served_table
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.stand_ins import StandIns
from florist.common.transport import codec
from florist.common.transport.messages import PredictionRequest
from florist.passive_party.predictions_by_id import PredictionsById
from florist.passive_party.row_encoder import BadRow
from tests.support.serving import client_of, config_of, halves, service, table_of
from tests.support.wire import recorded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.serving.served_table import ServedTable
    from florist.passive_party.serving import PredictionClient
    from tests.support.parties import Workspace

#: Of an embedding: eight numbers of the cut, and one of the wide part.
ROW_BYTES = 9 * 4
#: `agreement.serving.hiding_size`.
SIZE = 16


@pytest.fixture(scope="module")
def client(featured: Workspace) -> Iterator[PredictionClient]:
    with service(featured) as server, client_of(featured, server.address) as found:
        yield found


def people_of(workspace: Workspace, role: RoleName) -> ServedTable:
    active, passive = halves(workspace)
    bundle = active if role == "active" else passive
    return load_served_table(config_of(workspace, role), workspace.run_directory(role), bundle)


def ids_of(workspace: Workspace, role: RoleName) -> list[str]:
    return [identifier.decode() for identifier in table_of(workspace, role).ids]


def test_shared_people_get_the_predictions_of_the_whole_model(
    featured: Workspace, client: PredictionClient
) -> None:
    active, passive = halves(featured)
    row_of = {name: row for row, name in enumerate(ids_of(featured, "active"))}
    ours = {name: row for row, name in enumerate(ids_of(featured, "passive"))}
    shared = sorted(row_of.keys() & ours.keys())
    assert len(shared) > 50
    f = passive.preprocessing.transform(table_of(featured, "passive"))
    own = active.preprocessing.transform(table_of(featured, "active"))
    with torch.inference_mode():
        truth = active.predict(
            passive.embed(f.take(np.array([ours[name] for name in shared]))),
            own.take(np.array([row_of[name] for name in shared])),
        ).numpy()
    assert client.by_id
    np.testing.assert_allclose(client.predict_people(shared), truth, atol=1e-6)
    np.testing.assert_allclose(client.predict_people(shared[3:4]), truth[3:4], atol=1e-6)
    padded = pa.chunked_array([[f"  {shared[0]} ", shared[0]]])
    np.testing.assert_allclose(client.predict_people(padded), truth[[0, 0]], atol=1e-6)


def test_people_whom_the_active_party_lacks_always_get_the_same_stand_in(
    featured: Workspace, client: PredictionClient
) -> None:
    active, passive = halves(featured)
    ours = ids_of(featured, "passive")
    absent = sorted(set(ours) - set(ids_of(featured, "active")))[:20]
    answers = client.predict_people(absent)
    f = passive.preprocessing.transform(table_of(featured, "passive"))
    own = active.preprocessing.transform(table_of(featured, "active"))
    for name, answer in zip(absent, answers, strict=True):
        mine = f.take(np.full(len(own), ours.index(name)))
        with torch.inference_mode():
            possible = active.predict(passive.embed(mine), own).numpy()
        assert np.abs(possible - answer).min() < 1e-6, "that of some row of the active party's"
    with service(featured) as server, client_of(featured, server.address) as again:
        np.testing.assert_array_equal(again.predict_people(absent), answers)


@pytest.mark.parametrize("role", ["active", "passive"])
def test_served_rows_follow_the_stand_in_rule(featured: Workspace, role: RoleName) -> None:
    people = people_of(featured, role)
    union_size, rows = len(people.row_of_rank), len(people.rank_of_row)
    membership = Membership.of(people.rank_of_row, union_size)
    stand_ins = StandIns.sampled(membership, rows, people.draws)
    assert np.array_equal(people.row_of_rank, stand_ins.rows(np.arange(union_size)))


def test_the_same_bytes_are_sent_for_every_member_of_a_group(featured: Workspace) -> None:
    """Every member of one group is requested by a client of its own."""
    people = people_of(featured, "passive")
    groups, _ = people.groups.find(people.rank_of_row)
    members = np.flatnonzero(groups == np.bincount(groups).argmax())
    assert len(members) > 4
    ids = ids_of(featured, "passive")
    seen = set()
    with service(featured, plaintext=True) as server:
        for row in members[:4].tolist():
            with (
                recorded(server.address) as wire,
                client_of(featured, wire.address, plaintext=True) as client,
            ):
                client.predict_people([ids[row]])
                client.predict_people([ids[row]])  # cached: nothing is sent
            sent, received = wire.messages()
            assert len(sent) == len(received) == 2
            seen.add((sent[1], received[1]))
            assert not any(name.encode() in wire.bytes_both_ways for name in ids)
    assert len(seen) == 1
    request = codec.decode_serving(PredictionRequest, seen.pop()[0])
    assert request.group == groups[members[0]]
    assert len(request.embeddings) == SIZE * ROW_BYTES


def test_all_requests_and_replies_have_the_same_size(
    featured: Workspace, client: PredictionClient
) -> None:
    served = client._by_id
    assert served is not None
    people = people_of(featured, "passive")
    sizes = set()
    for group in range(len(people.groups)):
        embeddings = client._wire.encode(served.embeddings(group))
        reply = client._connection.predict(PredictionRequest(embeddings, group))
        sizes.add((len(embeddings), len(reply.probabilities)))
    assert sizes == {(SIZE * ROW_BYTES, SIZE * 4)}


def test_response_times_do_not_depend_on_membership(
    featured: Workspace, client: PredictionClient
) -> None:
    """Compare the groups with the most and the fewest people of the active party."""
    own = people_of(featured, "active")
    is_own = np.zeros(len(own.row_of_rank), dtype=bool)
    is_own[own.rank_of_row] = True
    counts = [int(is_own[own.groups.members(g)].sum()) for g in range(len(own.groups))]
    most, fewest = int(np.argmax(counts)), int(np.argmin(counts))
    assert counts[most] > counts[fewest] + 4
    served = client._by_id
    assert served is not None
    requests = {
        group: PredictionRequest(client._wire.encode(served.embeddings(group)), group)
        for group in (most, fewest)
    }
    took: dict[int, list[float]] = {most: [], fewest: []}
    for turn in range(300):
        for group in (most, fewest) if turn % 2 else (fewest, most):
            start = time.perf_counter()
            client._connection.predict(requests[group])
            took[group].append(time.perf_counter() - start)
    # The fastest tenth, since other programs on this machine only ever add time.
    typical = {group: float(np.quantile(times, 0.1)) for group, times in took.items()}
    assert abs(typical[most] - typical[fewest]) < 0.3 * typical[most] + 50e-6


def test_the_training_noise_is_added_to_every_row_and_always_the_same(featured: Workspace) -> None:
    _, passive = halves(featured)
    training = passive.agreement.training.model_copy(update={"embedding_noise": 0.1})
    noisy = replace(passive, agreement=passive.agreement.model_copy(update={"training": training}))
    people = people_of(featured, "passive")
    clean = PredictionsById(people, passive, "strip").embeddings(3)
    first, second = (PredictionsById(people, noisy, "strip").embeddings(3) for _ in range(2))
    assert torch.equal(first, second)
    changed = (first - clean).abs()
    assert bool((changed.sum(1) > 0).all()), "own rows and stand-ins alike"
    assert changed.max() < clean.std()


# --- a passive party with modified software ---


def test_equal_embeddings_show_which_people_are_copies(
    featured: Workspace, client: PredictionClient
) -> None:
    """One request per group is enough, so remembering what was answered would not prevent it."""
    own = people_of(featured, "active")
    answers = np.empty(len(own.row_of_rank), dtype=np.float32)
    for group in range(len(own.groups)):
        reply = client._connection.predict(PredictionRequest(bytes(SIZE * ROW_BYTES), group))
        answers[own.groups.members(group)] = np.frombuffer(reply.probabilities, "<f4")
    is_own = np.zeros(len(answers), dtype=bool)
    is_own[own.rank_of_row] = True
    # Equal up to rounding, which depends on the other rows of a request.
    _, value, count = np.unique(answers.round(7), return_inverse=True, return_counts=True)
    is_alone = count[value] == 1
    assert is_alone.mean() > 0.2
    assert is_own[is_alone].all(), "a person whose answer nobody shares is not a copy"
    assert is_own[~is_alone].mean() < is_own.mean() - 0.1


# --- errors ---


def test_only_own_people_can_be_predicted(client: PredictionClient) -> None:
    with pytest.raises(BadRow, match="not in this party's aligned table: 2; pred") as caught:
        client.predict_people(["nobody", ""])
    assert caught.value.examples == "'nobody', ''"
    with pytest.raises(ConfigurationError, match=r"has features of its own: request .* by IDs"):
        client.predict([{}])
    with pytest.raises(ConfigurationError, match=r"has features of its own: request .* by IDs"):
        client.predict_batches([])


@pytest.mark.parametrize(
    "request_",
    [
        PredictionRequest(bytes(SIZE * ROW_BYTES)),
        PredictionRequest(bytes(ROW_BYTES), 0),
        PredictionRequest(bytes(SIZE * ROW_BYTES), 10**9),
        PredictionRequest(bytes((SIZE + 1) * ROW_BYTES), 0),
    ],
)
def test_only_whole_groups_are_accepted(
    client: PredictionClient, request_: PredictionRequest
) -> None:
    with pytest.raises(
        PeerFailed, match=rf"send the rows of all {SIZE} UIDs of one of its .* groups"
    ):
        client._connection.predict(request_)


def test_a_modified_table_is_refused_on_both_sides(featured: Workspace, tmp_path: Path) -> None:
    copy = featured.copy(tmp_path / "copy")
    for role in ("active", "passive"):
        table = copy.table(role)
        table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")
        with pytest.raises(ConfigurationError, match="the IDs are not the ones that were"):
            people_of(copy, role)


def test_groups_that_exceed_the_limits_are_refused(featured: Workspace) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"agreement\.serving\.hiding_size: groups of 16"),
        service(featured, limits={"rows_per_request": 15}),
    ):
        pass


def test_a_table_whose_features_have_changed_is_not_served(
    featured: Workspace, tmp_path: Path
) -> None:
    """The IDs are the same."""
    workspace = featured.copy(tmp_path / "copy")
    path = workspace.table("passive")
    path.write_text(path.read_text().replace(",1,", ",2,", 1))
    with pytest.raises(ConfigurationError, match=r"data\.train: column '.*' has changed since"):
        people_of(workspace, "passive")
