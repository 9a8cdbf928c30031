"""Every executor returns what the group returns; the one on a cluster survives lost workers."""

from __future__ import annotations

import logging
import secrets
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.cluster import ray_cluster, ray_executor
from florist.common.cluster.ray_executor import RayExecutor
from florist.common.core.errors import ConfigurationError, InternalError, ProtocolViolation
from florist.common.core.priority_pool import high_priority
from florist.common.groups import make_group
from florist.common.psu import set_stream
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.hashed_ids import DummyIds
from florist.common.storage.element_sets import sorted_set
from florist.common.storage.id_column import IdColumn
from tests.support.ideal_union import is_ideal
from tests.support.psu import run_pair
from tests.support.ray_cluster import (
    kill_a_worker,
    local_cluster,
    object_store_holds,
    worker_pids,
)
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.cluster.sealed_jobs import Job
    from florist.common.groups.group import Exponent, Group
    from florist.common.psu.executor import Executor
    from florist.common.storage.elements import Elements

ray = pytest.importorskip("ray", reason="`pip install florist[ray]`")

X25519 = make_group("x25519", threads=2)
MODP = make_group("modp2048", threads=2)
#: Seconds.
WAIT = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    with local_cluster(cores=2):
        assert signal.getsignal(signal.SIGTERM) is before
        yield


@pytest.fixture(scope="module")
def on_ray(cluster: None) -> Iterator[RayExecutor]:
    executor = RayExecutor(X25519, workers=1)
    yield executor
    executor.close()


@pytest.fixture(scope="module", params=["local", "ray"])
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "local":
        return LocalExecutor(X25519)
    found: RayExecutor = request.getfixturevalue("on_ray")
    return found


def elements(count: int, group: Group = X25519) -> Elements:
    return group.hash_ids(DummyIds(secrets.token_bytes(32), count).rows(0, count))


# --- results ---

batches_of_ids = st.lists(st.lists(st.binary(max_size=20), max_size=12), max_size=6)


@given(batches_of_ids)
@settings(deadline=None, max_examples=25)
def test_hashing(executor: Executor, batches: list[list[bytes]]) -> None:
    found = list(executor.hashed(IdColumn.from_bytes(batch) for batch in batches))
    assert [chunk.tolist() for chunk in found] == [
        X25519.hash_ids(IdColumn.from_bytes(batch)).tolist() for batch in batches
    ]


def test_hashing_a_part_of_a_column(executor: Executor) -> None:
    ids = IdColumn.from_bytes([b"ann", b"", b"bob", b"eve"])
    (found,) = executor.hashed([ids.slice(2, 4)])
    assert np.array_equal(found, X25519.hash_ids(IdColumn.from_bytes([b"bob", b"eve"])))


@given(st.lists(st.integers(1, 20), max_size=12), st.booleans())
@settings(deadline=None, max_examples=15)
def test_raising_and_checking(executor: Executor, sizes: list[int], check: bool) -> None:  # noqa: FBT001
    chunks, exponent = [elements(size) for size in sizes], X25519.random_exponent()
    raised = list(executor.raised(iter(chunks), exponent, check=check))
    assert [chunk.tolist() for chunk in raised] == [
        X25519.power(chunk, exponent).tolist() for chunk in chunks
    ]
    checked = list(executor.checked(iter(chunks)))
    assert [chunk.tolist() for chunk in checked] == [chunk.tolist() for chunk in chunks]


@given(
    st.integers(0, 40),
    st.sampled_from([8, 32, 40, 256]),
    st.sampled_from([1, 2, 256]),
    st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=40)
def test_sorting_any_rows(
    executor: Executor, count: int, width: int, values: int, seed: int
) -> None:
    rows = np.random.default_rng(seed).integers(0, values, (count, width), dtype=np.uint8)
    before = rows.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_executor, "_SORT_LOCALLY_BELOW", 1)
        patch.setattr(ray_executor, "CHUNK_BYTES", 5 * width)
        patch.setattr(ray_executor, "_MAX_SORT_BYTES", 12 * width)
        found = executor.sorted(rows)
    assert found.tobytes() == b"".join(sorted(map(bytes, rows)))
    assert np.array_equal(rows, before)


def test_sorting_many_rows(executor: Executor) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (200_000, 32), dtype=np.uint8)
    assert np.array_equal(executor.sorted(rows), sorted_set(rows))


@pytest.fixture
def jobs(on_ray: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of parts of each job sent, in order."""
    sent: list[int] = []
    send = RayExecutor._send

    def recorded(self: RayExecutor, slot: Any, job: Job) -> Any:  # noqa: ANN401
        sent.append(len(job.payload))
        return send(self, slot, job)

    monkeypatch.setattr(RayExecutor, "_send", recorded)
    return sent


def raised_after_a_wait(
    on_ray: RayExecutor, chunks: list[Elements], exponent: Exponent
) -> Iterator[Elements]:
    """Send none before all that may be in progress are waiting."""
    with on_ray._turn:
        results = iter(on_ray.raised(iter(chunks), exponent, check=True))
        waiting = on_ray._threads._waiting.qsize
        assert eventually(lambda: waiting() >= min(len(chunks), on_ray.max_in_flight) - 2, WAIT)
    return results


def test_waiting_chunks_are_sent_in_larger_jobs(on_ray: RayExecutor, jobs: list[int]) -> None:
    chunks, exponent = [elements(size) for size in (3, 1, 4, 1, 5)], X25519.random_exponent()
    raised = list(raised_after_a_wait(on_ray, chunks, exponent))
    assert [chunk.tolist() for chunk in raised] == [
        X25519.power(chunk, exponent).tolist() for chunk in chunks
    ]
    assert sum(jobs) == 5
    assert len(jobs) < 5
    assert max(jobs) <= ray_executor.PARTS_PER_JOB


def test_an_invalid_element_in_a_larger_job_is_reported_for_its_chunk(
    on_ray: RayExecutor, jobs: list[int]
) -> None:
    chunks = [elements(8), elements(8), elements(8), bad_chunk("off-the-curve")]
    results = raised_after_a_wait(on_ray, chunks, X25519.random_exponent())
    assert sum(len(next(results)) for _ in range(3)) == 24
    with pytest.raises(ProtocolViolation):
        next(results)
    assert max(jobs) > 1
    assert jobs.count(1) > 1, "none was sent again by itself"


def test_a_high_priority_stream_is_sent_before_others(on_ray: RayExecutor) -> None:
    """It came later, when every slot had a job."""
    exponent, pool = X25519.random_exponent(), on_ray._threads
    with on_ray._turn:
        usual = on_ray.raised([elements(6)] * 5, exponent, check=False)
        left = 5 - ray_executor.JOBS_PER_WORKER
        assert eventually(lambda: pool._waiting.qsize() == left, WAIT)
        with high_priority():
            first = on_ray.raised([elements(7)] * 2, exponent, check=False)
        assert eventually(lambda: pool._waiting.qsize() == left + 2, WAIT)
        waiting = sorted(pool._waiting.queue)
    assert [task.priority for task in waiting] == [0, 0, 1, 1, 1]
    assert [len(chunk) for chunk in (*usual, *first)] == [6] * 5 + [7] * 2


def test_another_group(cluster: None) -> None:
    executor = RayExecutor(MODP, workers=1)
    try:
        chunk, exponent = elements(5, MODP), MODP.random_exponent()
        (raised,) = executor.raised([chunk], exponent, check=True)
        assert np.array_equal(raised, MODP.power(chunk, exponent))
        ids = IdColumn.from_bytes([b"ann", b"bob"])
        (hashed,) = executor.hashed([ids])
        assert np.array_equal(hashed, MODP.hash_ids(ids))
    finally:
        executor.close()


# --- errors, which are the same for all executors ---


def bad_chunk(fault: str) -> Elements:
    chunk = elements(8).copy()
    wrong = {
        "off-the-curve": (2).to_bytes(32, "little"),
        "low-order": bytes(32),
        "not-canonical": b"\xff" * 32,
    }
    chunk[3] = np.frombuffer(wrong[fault], dtype=np.uint8)
    return chunk


@pytest.mark.parametrize("fault", ["off-the-curve", "low-order", "not-canonical"])
def test_an_invalid_element_of_the_peer(executor: Executor, fault: str) -> None:
    good, bad, exponent = elements(8), bad_chunk(fault), X25519.random_exponent()
    with pytest.raises(ProtocolViolation) as expected:
        X25519.validate(bad)
    for stream in (
        executor.raised([good, bad, good], exponent, check=True),
        executor.checked([good, bad, good]),
    ):
        results = iter(stream)
        next(results)
        with pytest.raises(ProtocolViolation) as found:
            next(results)
        assert str(found.value) == str(expected.value)


def test_errors_of_the_input_are_raised(executor: Executor) -> None:
    def chunks() -> Iterator[Elements]:
        yield elements(3)
        raise ProtocolViolation("the peer's chunk starts elsewhere")

    results = iter(executor.raised(chunks(), X25519.random_exponent(), check=True))
    next(results)
    with pytest.raises(ProtocolViolation, match="starts elsewhere"):
        next(results)


def test_the_error_of_a_worker_is_reported(on_ray: RayExecutor) -> None:
    crooked = np.zeros((3, 31), dtype=np.uint8)
    with pytest.raises(InternalError, match=r"a worker of the Ray cluster failed: \w+Error: "):
        list(on_ray.raised([crooked], X25519.random_exponent(), check=False))
    works_on = on_ray.raised([elements(3)], X25519.random_exponent(), check=True)
    assert len(list(works_on)) == 1


def test_an_unusable_worker_is_reported(cluster: None) -> None:
    with pytest.raises(ConfigurationError, match=r"compute\.executor: on a node, .*gmpy2"):
        RayExecutor(X25519, engine="gmpy2", workers=1)


def test_no_worker_within_the_timeout(
    cluster: None, on_ray: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = RayExecutor(X25519, workers=1)
    monkeypatch.setattr(ray_executor, "WORKER_TIMEOUT", 2.0)
    try:
        with pytest.raises(ConfigurationError, match=r"compute\.executor: .* `ray status`"):
            RayExecutor(X25519, workers=1)  # both cores are in use
    finally:
        second.close()


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"compute\.executor: .*pip install 'florist\[ray"):
        RayExecutor(X25519)


def test_no_cluster_at_the_address() -> None:
    script = """
from florist.common.core.errors import ConfigurationError
from florist.common.cluster import ray_cluster
try:
    ray_cluster.join("127.0.0.1:1", 0)
except ConfigurationError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert "compute.ray_address: no usable Ray cluster at '127.0.0.1:1'" in done.stdout


# --- the union, and the loss of workers ---


@pytest.fixture
def both_on_ray(cluster: None, on_ray: RayExecutor) -> Iterator[tuple[Executor, Executor]]:
    second = RayExecutor(X25519, workers=1)
    yield on_ray, second
    second.close()


SHARED = [f"b{i}".encode() for i in range(70)]
OURS = [f"a{i}".encode() for i in range(500)] + SHARED
THEIRS = SHARED[::-1] + [f"p{i}".encode() for i in range(90)]


@pytest.mark.parametrize("which", ["both", "active", "passive"])
def test_the_union_of_two_parties(
    both_on_ray: tuple[Executor, Executor], which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more chunks than the window holds, so that each waits for the other."""
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", 32 * 8)
    local = LocalExecutor(X25519)
    first, second = both_on_ray
    executors = (local if which == "passive" else first, local if which == "active" else second)
    active, passive = run_pair(X25519, OURS, THEIRS, executors=executors).views()
    assert is_ideal(OURS, THEIRS, active, passive)


def test_the_union_when_a_worker_is_lost(
    both_on_ray: tuple[Executor, Executor],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", 32 * 8)
    calls = 0
    receive = RayExecutor._receive

    def counted(self: RayExecutor, call: Any) -> bytes:  # noqa: ANN401
        nonlocal calls
        calls += 1
        if calls in (30, 90):
            kill_a_worker()
        return receive(self, call)

    monkeypatch.setattr(RayExecutor, "_receive", counted)
    with caplog.at_level(logging.WARNING, "florist.align"):
        active, passive = run_pair(X25519, OURS, THEIRS, executors=both_on_ray).views()
    assert is_ideal(OURS, THEIRS, active, passive)
    assert calls > 90
    assert "a worker of the Ray cluster was lost; others take over its work" in caplog.text


def test_a_restarted_worker_gets_a_new_session(
    on_ray: RayExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    """It has new keys, and reports that it does not know the session."""
    # Workers of closed executors may still be ending.
    assert eventually(lambda: len(worker_pids()) == 1, WAIT)
    before = worker_pids()
    chunk, exponent = elements(4), X25519.random_exponent()
    kill_a_worker()
    assert eventually(lambda: worker_pids() not in ([], before), WAIT)
    (raised,) = on_ray.raised([chunk], exponent, check=False)
    assert np.array_equal(raised, X25519.power(chunk, exponent))
    assert worker_pids() != before
    assert "a worker of the Ray cluster was lost" in caplog.text


def test_closing_ends_jobs_in_progress(cluster: None) -> None:
    executor = RayExecutor(MODP, workers=1)
    stream = executor.raised(
        (elements(64, MODP) for _ in range(1000)), MODP.random_exponent(), check=False
    )
    next(iter(stream))
    started = time.monotonic()
    executor.close()
    with pytest.raises((InternalError, RuntimeError)):
        list(stream)
    assert time.monotonic() - started < 20


# --- confidentiality ---


def test_the_cluster_sees_nothing_in_the_clear(
    on_ray: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[bytes] = []
    get, call = ray.get, ray.actor.ActorMethod._remote

    def recorded_call(self: Any, args: Any = None, *others: Any, **more: Any) -> Any:  # noqa: ANN401
        passed.extend(arg for arg in args or () if isinstance(arg, bytes))
        assert not more.get("kwargs")
        return call(self, args, *others, **more)

    def recorded_get(*args: Any, **more: Any) -> Any:  # noqa: ANN401
        answer = get(*args, **more)
        passed.append(answer)
        return answer

    monkeypatch.setattr(ray.actor.ActorMethod, "_remote", recorded_call)
    monkeypatch.setattr(ray, "get", recorded_get)
    monkeypatch.setattr(ray_executor, "_SORT_LOCALLY_BELOW", 1)

    # Large enough for the object store, which small arguments bypass.
    ids = IdColumn.from_bytes([b"%028d@example.org" % number for number in range(6000)])
    exponent = X25519.random_exponent()
    (hashed,) = on_ray.hashed([ids])
    (raised,) = on_ray.raised([hashed], exponent, check=True)
    list(on_ray.checked([raised]))
    ordered = on_ray.sorted(raised)

    secrets = [
        b"000042@example.org",
        exponent.to_bytes(32, "little")[:16],
        exponent.to_bytes(32, "big")[:16],
        str(int(exponent)).encode(),
        *(rows[row].tobytes() for rows in (hashed, raised, ordered) for row in (0, 42, 5999)),
    ]
    assert sum(map(len, passed)) > 5 * hashed.nbytes, "the messages were not recorded"
    for secret in secrets:
        assert not any(secret in data for data in passed)
        assert not object_store_holds(secret)
    beacon = b"a plain object, which the search must find" * 5000
    kept = ray.put(beacon)
    assert object_store_holds(beacon[:40])
    del kept


# --- start-up ---


def test_a_local_cluster_that_does_not_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries: list[str] = []

    def init(*, address: str, **_: Any) -> None:  # noqa: ANN401 - same as `ray.init`
        tries.append(address)
        if len(tries) != 2:
            raise Exception("The current node timed out during startup.")  # noqa: TRY002 - same as Ray

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 1.0}}])
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address=""))
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(ray_cluster, "check_cluster", lambda _address: None)
    monkeypatch.setattr(ray_cluster, "_resources", ExitStack())
    assert ray_cluster.join("local", 1, tmp_path)
    assert len(tries) == 2
    with pytest.raises(ConfigurationError, match="no usable Ray cluster at 'local': The curr"):
        ray_cluster.join("local", 1, tmp_path)
    assert len(tries) == 2 + ray_cluster._STARTS
    assert list(tmp_path.iterdir()) == []
