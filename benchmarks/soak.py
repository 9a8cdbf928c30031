"""Both prediction services under hundreds of clients for a while, while runs repeat.

    python -m benchmarks.soak --minutes 30

The active party's gRPC service and the passive party's HTTP service run as processes on loopback
addresses. Of the concurrent clients, a tenth use gRPC with the passive party's certificate, the
others HTTP; of each, 80% send valid requests, 10% malformed ones, and 10% valid ones slowly, or
leave in the middle. Meanwhile another pair of parties aligns and trains, again and again.

Every answer is compared with the model's prediction in one process. A valid request may be refused
as one too many (HTTP 429, 503 or a closed connection, gRPC RESOURCE_EXHAUSTED); any other answer
than the right one counts as wrong, and so does anything but a refusal for a malformed request.
Memory, file descriptors and threads of both services are sampled every second while the clients
run; the first third is warm-up. The result has the slope of each with a 95% confidence interval,
from medians of blocks, so that neighbouring samples count once. Exit code 1 after a wrong answer, a
failed run, or growth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import psutil
import yaml
from scipy import stats

from benchmarks.serving import Sample, WholeModel, World
from florist.cli.party_processes import PartiesFailed, party_environment, run_both_parties
from florist.common.core.errors import FloristError
from florist.common.core.ports import free_port
from florist.common.transport.grpc_prediction_client import PeerBusy
from florist.experiments.sample_data import ANY_OVERLAP
from florist.passive_party.serving import PredictionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from florist.common.core.roles import RoleName

#: Rows whose predictions are known.
ROWS = 256
#: The largest difference between two computations of the same prediction, in batches of different
#: sizes and with embeddings rounded for the network.
TOLERANCE = 5e-3
#: Blocks of samples in the regression.
BLOCKS = 12
#: Growth during the measurement, relative to the mean, below which a figure counts as flat.
FLAT = 0.05
#: Seconds that an HTTP client waits for an answer.
ANSWER = 120.0


@dataclass
class Tally:
    """Counts of outcomes, and the latencies of valid requests in seconds; thread-safe."""

    outcomes: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, list[float]] = field(default_factory=lambda: {"http": [], "grpc": []})
    #: The first wrong answers, for the operator.
    wrong: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def count(self, outcome: str) -> None:
        with self.lock:
            self.outcomes[outcome] += 1

    def answered(self, service: str, seconds: float) -> None:
        with self.lock:
            self.outcomes[f"{service}: right"] += 1
            self.latencies[service].append(seconds)

    def fail(self, service: str, what: str) -> None:
        with self.lock:
            self.outcomes[f"{service}: wrong"] += 1
            self.wrong.append(f"{service}: {what[:200]}")


@dataclass(frozen=True)
class Known:
    """Rows with their predictions."""

    rows: list[dict[str, object]]
    probabilities: np.ndarray[Any, np.dtype[np.float32]]

    def pick(self, draws: random.Random) -> slice:
        start = draws.randrange(len(self.rows) - 4)
        return slice(start, start + draws.randint(1, 4))

    def is_right(self, part: slice, found: Sequence[float]) -> bool:
        expected = self.probabilities[part]
        return len(found) == len(expected) and bool(
            np.allclose(found, expected, atol=TOLERANCE, rtol=0)
        )


# --- HTTP ---


@dataclass(frozen=True)
class HttpClient:
    """One client of the passive party's service; each request has its own connection."""

    port: int
    token: str
    known: Known
    tally: Tally
    draws: random.Random

    async def valid(self, *, slowly: bool = False) -> None:
        part = self.known.pick(self.draws)
        body = json.dumps({"rows": self.known.rows[part]}).encode()
        started = time.monotonic()
        status, answer = await self._send(self._post(body), body, slowly=slowly)
        if status in (429, 503, None):
            # A service that refuses a request before it has read the body closes the connection;
            # the client then sees either the refusal or only the end.
            self.tally.count("http: closed" if status is None else "http: busy")
            await asyncio.sleep(self.draws.random())
        elif status == 200 and self.known.is_right(part, json.loads(answer)["probabilities"]):
            self.tally.answered("http", time.monotonic() - started)
        else:
            self.tally.fail("http", f"status {status}: {answer!r}")

    async def malformed(self) -> None:
        """Send something that must be refused."""
        row = {**self.known.rows[0], "no such column": 1}
        head, body = self.draws.choice(
            [
                (self._post(b"{"), b"{"),
                (self._post(b'{"rows": []}'), b'{"rows": []}'),
                (self._post(b"\xff\xfe"), b"\xff\xfe"),
                (self._head("POST", "/predict", 2, token="wrong" * 8), b"{}"),
                (self._head("GET", "/predict", 0), b""),
                (self._head("POST", "/no-such-path", 2), b"{}"),
                (b"\x16\x03\x01 not HTTP at all\r\n\r\n", b""),
                (self._post(unknown := json.dumps({"rows": [row]}).encode()), unknown),
            ]
        )
        status, answer = await self._send(head, body)
        if status is None or 400 <= status < 500 or status == 503:
            self.tally.count("http: refused")
        else:
            self.tally.fail("http", f"malformed, but status {status}: {answer!r}")

    async def leave(self) -> None:
        """Begin a request and disconnect."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(self._post(b"x" * 1000) + b"x" * 10)
        await writer.drain()
        await asyncio.sleep(self.draws.random())
        writer.close()
        self.tally.count("http: left")

    def _post(self, body: bytes) -> bytes:
        return self._head("POST", "/predict", len(body))

    def _head(self, method: str, path: str, length: int, token: str | None = None) -> bytes:
        return (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            f"Authorization: Bearer {token or self.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n"
        ).encode()

    async def _send(
        self, head: bytes, body: bytes, *, slowly: bool = False
    ) -> tuple[int | None, bytes]:
        """Return the status, or None if the connection was closed without one, and the body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(ANSWER):
                for part in (head, body[: len(body) // 2], body[len(body) // 2 :]):
                    writer.write(part)
                    await writer.drain()
                    if slowly:
                        await asyncio.sleep(2 * self.draws.random())
                answer = await reader.read()
        except (ConnectionError, BrokenPipeError):
            answer = b""
        finally:
            writer.close()
        first, _, rest = answer.partition(b"\r\n\r\n")
        words = first.split()
        return (int(words[1]) if len(words) > 1 else None), rest


async def http_clients(make: Callable[[int], HttpClient], number: int, until: float) -> None:
    async def one(index: int) -> None:
        client, kind = make(index), index % 10
        while time.monotonic() < until:
            try:
                if kind == 0:
                    await client.malformed()
                elif kind == 1 and client.draws.random() < 0.5:
                    await client.leave()
                else:
                    await client.valid(slowly=kind == 1)
            except (OSError, TimeoutError, ValueError, KeyError) as error:
                client.tally.fail("http", repr(error))
            await asyncio.sleep(client.draws.random())

    await asyncio.gather(*(one(index) for index in range(number)))


# --- gRPC ---


def grpc_client(world: World, known: Known, tally: Tally, index: int, until: float) -> None:
    """Send requests over one connection until the time is over."""
    draws, kind = random.Random(index), index % 10
    with PredictionClient.connect(world.config("passive"), timeout=ANSWER) as client:
        while time.monotonic() < until:
            part = known.pick(draws)
            started = time.monotonic()
            try:
                if kind == 0:
                    _malformed_call(client, tally)
                elif kind == 1:
                    _check(known, part, _slow_stream(client, known, part, draws), tally, started)
                else:
                    found = client.predict(known.rows[part]).tolist()
                    _check(known, part, found, tally, started)
            except PeerBusy:
                tally.count("grpc: busy")
                time.sleep(draws.random())
            except FloristError as error:
                tally.fail("grpc", error.reason)
            time.sleep(draws.random())


def _check(known: Known, part: slice, found: Sequence[float], tally: Tally, started: float) -> None:
    if known.is_right(part, found):
        tally.answered("grpc", time.monotonic() - started)
    else:
        tally.fail("grpc", f"{found} instead of {known.probabilities[part]}")


def _malformed_call(client: PredictionClient, tally: Tally) -> None:
    connection = client._connection  # noqa: SLF001 - below the checks of the client
    try:
        connection._predict(  # noqa: SLF001
            b"\xff" * 100,
            timeout=ANSWER,
            metadata=connection._metadata,  # noqa: SLF001
        )
    except grpc.RpcError as error:
        refused = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
        if error.code() in refused:
            tally.count("grpc: refused")
        else:
            tally.fail("grpc", f"malformed, but {error.code()}")
    else:
        tally.fail("grpc", "malformed, but answered")


def _slow_stream(
    client: PredictionClient, known: Known, part: slice, draws: random.Random
) -> list[float]:
    import pyarrow as pa  # noqa: PLC0415 - loaded by the client

    def tables() -> Iterator[pa.Table]:
        for row in known.rows[part]:
            time.sleep(draws.random())
            yield pa.Table.from_pylist([row], schema=known_schema)

    known_schema = pa.Table.from_pylist(known.rows).schema  # a row of missing values has it too
    return [float(each[0]) for each in client.predict_batches(tables(), "soak")]


# --- the processes ---


@contextmanager
def service(world: World, role: RoleName, log: Path) -> Iterator[psutil.Process]:
    command = [sys.executable, "-P", "-m", "florist.cli.entry", "--role", role, "--stage", "serve"]
    command += ["--config", str(world.directory / f"{role}.yml"), "--log-format", "text"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stderr=output, env=party_environment())
    try:
        deadline = time.monotonic() + 300
        while "ready at" not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the {role} party does not serve: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(120)
        if code:
            print(f"the {role} party's service ended with exit code {code}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class SmallSample(Sample):
    """A quick run."""

    people: int = 3000

    def settings(self, role: RoleName) -> dict[str, Any]:
        return Sample.settings(self, role) | ANY_OVERLAP


@dataclass
class Runs:
    """Pairs of parties that align and train until told to stop."""

    directory: Path
    done: int = 0
    failures: list[str] = field(default_factory=list)

    def repeat(self, stop: Event) -> None:
        while not stop.is_set():
            try:
                run_both_parties(SmallSample(), self.directory / "runs")
            except PartiesFailed as error:
                self.failures.append(error.reason)
            else:
                self.done += 1


class Samples:
    """Memory in MiB, file descriptors and threads of a process over time."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.rows: list[tuple[float, float, int, int]] = []

    def take(self) -> None:
        with self._process.oneshot():
            memory = self._process.memory_info().rss / 2**20
            self.rows.append(
                (time.monotonic(), memory, self._process.num_fds(), self._process.num_threads())
            )

    def slopes(self) -> dict[str, dict[str, float | bool]]:
        names = ("memory_mib", "file_descriptors", "threads")
        after = np.array(self.rows[len(self.rows) // 3 :], dtype=float)
        return {name: trend(after[:, 0], after[:, column]) for column, name in enumerate(names, 1)}


def trend(
    times: np.ndarray[Any, np.dtype[np.float64]], values: np.ndarray[Any, np.dtype[np.float64]]
) -> dict[str, float | bool]:
    """The slope per hour with its 95% interval, and whether it counts as flat.

    Flat means that growth is not shown (the interval reaches down to 0), or is less than `FLAT` of
    the mean over the measured time.
    """
    blocks = [part for part in np.array_split(np.arange(len(times)), BLOCKS) if len(part)]
    x = np.array([times[part].mean() for part in blocks]) / 3600
    y = np.array([np.median(values[part]) for part in blocks])
    if np.ptp(y) == 0 or len(blocks) < 3:
        slope, half = 0.0, 0.0
    else:
        fit = stats.linregress(x, y)
        slope = float(fit.slope)
        half = float(stats.t.ppf(0.975, len(x) - 2) * fit.stderr)
    hours, mean = float(x[-1] - x[0]), float(y.mean())
    is_flat = slope - half <= 0 or slope * hours < FLAT * mean
    return {
        "mean": round(mean, 1),
        "per_hour": round(slope, 2),
        "low": round(slope - half, 2),
        "high": round(slope + half, 2),
        "flat": is_flat,
    }


def configure(directory: Path) -> int:
    """Allow the load, and choose the HTTP port."""
    port = free_port()
    for role in ("active", "passive"):
        path = directory / f"{role}.yml"
        values = yaml.safe_load(path.read_text())
        values["serving"]["limits"] |= {"calls": 256, "streams": 64}
        values["serving"].setdefault("http", {})["address"] = f"127.0.0.1:{port}"
        path.write_text(yaml.safe_dump(values))
    return port


def soak(minutes: float, clients: int, directory: Path) -> dict[str, Any]:
    """Run everything for that long, and return the result."""
    world = World.make(directory / "pair", ROWS)
    port = configure(world.directory)
    model = WholeModel(world)
    rows = world.table.to_pylist()
    known = Known(rows, model.predict(model.features(world.table)).numpy())
    tally, runs, stop = Tally(), Runs(directory), Event()
    with ExitStack() as stack:
        processes = {
            role: stack.enter_context(service(world, role, directory / f"{role}.log"))
            for role in ("active", "passive")
        }
        token_file = world.config("passive").run_directory / "serving" / "http-token"
        token = token_file.read_text().strip()
        samples = {role: Samples(process) for role, process in processes.items()}
        until = time.monotonic() + 60 * minutes
        over_grpc = clients // 10

        def sample() -> None:
            while not stop.wait(1) and time.monotonic() < until:
                for each in samples.values():
                    each.take()

        def over_http() -> None:
            asyncio.run(http_clients(make, clients - over_grpc, until))

        def make(index: int) -> HttpClient:
            return HttpClient(port, token, known, tally, random.Random(-index))

        threads = [Thread(target=over_http)]
        threads += [
            Thread(target=grpc_client, args=(world, known, tally, index, until))
            for index in range(over_grpc)
        ]
        background = [Thread(target=sample), Thread(target=runs.repeat, args=(stop,))]
        for thread in (*threads, *background):
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        for thread in background:
            thread.join()
    return {
        "minutes": minutes,
        "clients": {"http": clients - over_grpc, "grpc": over_grpc},
        "requests": dict(sorted(tally.outcomes.items())),
        "wrong": tally.wrong[:20],
        "latency_ms": {name: quantiles(took) for name, took in tally.latencies.items()},
        "runs": {"finished": runs.done, "failures": runs.failures},
        "services": {role: each.slopes() for role, each in samples.items()},
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[1], 1),
    }


def quantiles(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50": round(1000 * cuts[49], 1), "p99": round(1000 * cuts[98], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/soak.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="florist-soak-") as folder:
        result = soak(options.minutes, options.clients, Path(folder))
    text = json.dumps(result, indent=2) + "\n"
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)
    print(text)
    growing = [
        f"{role}: {name}"
        for role, figures in result["services"].items()
        for name, figure in figures.items()
        if not figure["flat"]
    ]
    if growing:
        print(f"growing: {', '.join(growing)}", file=sys.stderr)
    if growing or result["wrong"] or result["runs"]["failures"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
