from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest

from florist.common.core.errors import ConfigurationError, InternalError
from florist.common.groups import kernels, make_group, x25519_worker
from florist.common.groups.curve25519 import LOW_ORDER, PRIME, encode
from florist.common.groups.engines import X25519_ENGINES, CryptographyEngine, make_engine
from florist.common.groups.parallel import Threads
from tests.unit.groups.oracles import elements_of, numbers_of, rows_of, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.groups.engines import Engine
    from florist.common.storage.elements import Elements


@pytest.fixture(params=X25519_ENGINES)
def engine(request: pytest.FixtureRequest, threads: Threads) -> Iterator[Engine]:
    try:
        engine = make_engine(request.param, threads)
    except ConfigurationError as error:
        pytest.skip(str(error))
    yield engine
    engine.close()


def reference(points: Elements, scalar: bytes) -> Elements:
    """Multiply with the `cryptography` package in this process."""
    return rows_of([x25519_worker.multiply(points.tobytes(), scalar)])


@pytest.mark.parametrize(
    ("scalar", "point", "product"),
    [
        # RFC 7748, section 5.2; the second point has its top bit set, which is ignored.
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
        # Section 6.1.
        (
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        ),
    ],
)
def test_rfc_7748(engine: Engine, scalar: str, point: str, product: str) -> None:
    products = engine.multiply(rows_of([bytes.fromhex(point)] * 5), bytes.fromhex(scalar))
    assert products.tobytes() == bytes.fromhex(product) * 5


def test_rfc_7748_iterated(engine: Engine) -> None:
    scalar = point = encode(9)
    for _ in range(1000):
        scalar, point = engine.multiply(rows_of([point]), scalar).tobytes(), scalar
    assert (
        scalar.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"
    )  # RFC 7748, section 5.2, after 1,000 iterations


@pytest.mark.parametrize("count", [*range(41), 100, 511, 512, 3001])
def test_any_length(engine: Engine, count: int) -> None:
    points = rows_of([os.urandom(31) + b"\x3f" for _ in range(count)])
    scalar = os.urandom(32)
    before = points.copy()
    products = engine.multiply(points, scalar)
    np.testing.assert_array_equal(products, reference(points, scalar))
    np.testing.assert_array_equal(points, before)


def test_edge_points_and_scalars(engine: Engine) -> None:
    small = [2**bit + delta for bit in (0, 26, 51, 52, 102, 127, 204, 254) for delta in (-1, 0, 1)]
    near_prime = [PRIME - delta for delta in (*range(1, 64), *range(1380, 1410), 2**16, 2**17)]
    edges = [*range(64), *LOW_ORDER, *small, *near_prime]
    points = elements_of(*edges)
    for scalar in (2**254, 2**254 + 8, 2**255 - 8, 2**254 + 2**253 + 2**128, 2**254 + 2**250 - 8):
        products = engine.multiply(points, encode(scalar))
        np.testing.assert_array_equal(products, reference(points, encode(scalar)))
        assert numbers_of(products)[:20] == [times(scalar, u) for u in edges[:20]]


def test_many_random_points(engine: Engine) -> None:
    points = rows_of([secrets.randbelow(PRIME).to_bytes(32, "little") for _ in range(2500)])
    scalar = os.urandom(32)
    np.testing.assert_array_equal(engine.multiply(points, scalar), reference(points, scalar))


def test_auto_selects_the_first_engine_that_runs(threads: Threads) -> None:
    runnable = []
    for name in X25519_ENGINES:
        try:
            runnable.append(make_engine(name, threads).name)
        except ConfigurationError as error:
            assert f"{name!r} cannot run here" in str(error)  # noqa: PT017
            assert "cryptography" in str(error).partition("available:")[2]  # noqa: PT017
    assert runnable[-1] == "cryptography"
    assert make_engine("auto", threads).name == runnable[0]


def test_an_unknown_engine_is_rejected(threads: Threads) -> None:
    with pytest.raises(
        ConfigurationError, match=r"has no engine 'gpu'; choose one of: auto, ifma, avx2"
    ):
        make_engine("gpu", threads)
    with pytest.raises(ConfigurationError, match=r"has no engine 'multibuffer'; choose one of"):
        make_engine("multibuffer", threads)  # what `ifma` replaced


@pytest.mark.usefixtures("without_kernels")
def test_without_kernels(threads: Threads) -> None:
    assert make_engine("auto", threads).name == "cryptography"
    with pytest.raises(
        ConfigurationError, match=r"not built \(no compiler\); available: auto, cryptography$"
    ):
        make_engine("ifma", threads)


@pytest.mark.usefixtures("without_ifma")
def test_without_ifma(threads: Threads) -> None:
    assert make_engine("auto", threads).name in ("avx2", "cryptography")


def test_a_kernel_with_wrong_results_is_not_used(
    threads: Threads, native: kernels.Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def ifma_available(self) -> bool:
            return True

        avx2_available = ifma_available

        def x25519_ifma(self, *arguments: bytearray) -> None:
            arguments[-1][0] ^= 1

        def x25519_avx2(self, *_arguments: bytearray) -> None:
            raise RuntimeError("refused")

    monkeypatch.setattr(kernels, "native", Broken())
    assert make_engine("auto", threads).name == "cryptography"
    with pytest.raises(ConfigurationError, match="wrong results"):
        make_engine("ifma", threads)
    with pytest.raises(ConfigurationError, match="refused"):
        make_engine("avx2", threads)


# --- the worker processes ---


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [
        child
        for child in process.children(recursive=True)
        if any(x25519_worker.__file__ in argument for argument in child.cmdline())
    ]


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


@pytest.fixture
def points() -> Elements:
    return elements_of(*range(2, 2002))


def test_workers_start_late_and_end_on_close(points: Elements) -> None:
    group = make_group("x25519", "cryptography", threads=2)
    exponent = group.random_exponent()
    group.power(points[:100], exponent)
    assert workers_of(psutil.Process()) == []
    group.power(points, exponent)
    workers = workers_of(psutil.Process())
    assert 1 <= len(workers) <= 2
    group.close()
    assert not any(worker.is_running() for worker in workers)


def test_a_scalar_is_never_on_a_command_line(points: Elements) -> None:
    group = make_group("x25519", "cryptography", threads=1)
    group.power(points, group.random_exponent())
    (worker,) = workers_of(psutil.Process())
    assert worker.cmdline() == [sys.executable, "-P", x25519_worker.__file__]
    group.close()


def test_workers_ignore_interrupts(points: Elements) -> None:
    threads = Threads(2)
    engine = CryptographyEngine(threads)
    scalar = os.urandom(32)
    engine.multiply(points, scalar)
    for worker in workers_of(psutil.Process()):
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
    np.testing.assert_array_equal(engine.multiply(points, scalar), reference(points, scalar))
    threads.close()
    engine.close()


def test_a_worker_that_dies_is_reported(points: Elements) -> None:
    threads = Threads(1)
    engine = CryptographyEngine(threads)
    engine.multiply(points, os.urandom(32))
    (worker,) = workers_of(psutil.Process())
    worker.kill()
    with pytest.raises(InternalError, match=r"worker process .* ended unexpectedly"):
        engine.multiply(points, os.urandom(32))
    # The next call starts another.
    engine.multiply(points, os.urandom(32))
    threads.close()
    engine.close()
    assert workers_of(psutil.Process()) == []


PARENT = """
from florist.common.groups import make_group
from florist.common.storage.id_column import IdColumn
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
group = make_group("x25519", "cryptography", threads=2)
points = group.hash_ids(IdColumn.from_bytes([b"%d" % i for i in range(1100)]))
while True:
    group.power(points, group.random_exponent())
    print("ready", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_its_parent(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        workers = workers_of(psutil.Process(parent.pid))
        assert workers
        time.sleep(0.05)  # in the middle of the next round
        parent.send_signal(number)
        parent.communicate(timeout=20)
        assert parent.returncode != 0
    wait_until_gone(workers)


def test_the_worker_stops_at_a_truncated_job() -> None:
    header = x25519_worker.HEADER.pack(2, bytes(32))
    for job in (b"", header[:5], header + bytes(33)):
        result = subprocess.run(
            [sys.executable, "-P", x25519_worker.__file__],
            input=job,
            capture_output=True,
            timeout=20,
            check=True,
        )
        assert (result.stdout, result.stderr) == (b"", b"")
