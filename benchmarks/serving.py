"""Predictions over mutual TLS on localhost, compared with the same model in one process.

    python benchmarks/serving.py --json

The active party serves in another process; its client is this process. The model is the paper's: 13
numeric and 26 categorical columns, and a cut width of 128. Every figure is the best of several
rounds, so that other programs matter little.

* `rows_per_s`: rows of an Arrow table, streamed in batches, from raw values to probabilities.
  `ratio` is relative to the same calls in one process, with one or two threads, whichever is
  faster. `from_features` excludes preprocessing, which is the same for both.
* `single_row_ms`: one row at a time, from a dictionary of raw values to its probability, with 1 and
  with 32 concurrent clients (threads of this process); also the same in one process, and a bare
  gRPC round trip with as many bytes over the same TLS. `budget` is 5 x in-process + bare.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import torch

from florist.active_party.role import ACTIVE
from florist.cli.init import Names, write_first_files
from florist.common.bundle.loading import load_bundle
from florist.common.core.ports import free_port
from florist.common.core.progress import NoProgress
from florist.common.data.raw_table import convert_features
from florist.common.data.table_reader import read_whole_table
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.settings.serving import ServingLimits
from florist.common.stages.run_stages import run_stage
from florist.common.transport.credentials import Credentials
from florist.common.transport.grpc_dialer import pinned_channel
from florist.common.transport.grpc_server import server_options
from florist.experiments.sample_data import ClickSample
from florist.passive_party.predict_files import CHUNK_ROWS
from florist.passive_party.role import PASSIVE
from florist.passive_party.row_encoder import RowEncoder
from florist.passive_party.serving import PredictionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

    import pyarrow as pa

    from florist.common.bundle.bundle import ActiveBundle, PassiveBundle
    from florist.common.core.roles import RoleName
    from florist.common.data.features import Features
    from florist.common.settings.party_config import PartyConfig

NAMES = Names(active="bank", passive="telco")
ROLES: tuple[RoleName, RoleName] = ("active", "passive")
ECHO = "/bench/Echo"
#: As many bytes as a row's embedding and its prediction take on the wire.
REQUEST, RESPONSE = bytes(128 * 4 + 3), bytes(4 + 2)
CLIENTS = 32
#: Rows per request that the service allows by default.
REQUEST_ROWS = ServingLimits().rows_per_request
START_LIMIT = 120


@dataclass(frozen=True, slots=True)
class Sample(ClickSample):
    """Clicks to train on for one quick epoch."""

    people: int = 20_000

    def settings(self, role: RoleName) -> dict[str, Any]:
        return ClickSample.settings(self, role) | {
            "audit.enabled": False,
            "agreement.training.epochs": 1,
            "agreement.training.checkpoint_every": 0,
            "serving.limits.rows_per_minute": 10**9,
        }


@dataclass(frozen=True, slots=True)
class World:
    """A trained pair of parties, and rows to predict."""

    directory: Path
    active: ActiveBundle
    passive: PassiveBundle
    table: pa.Table

    def config(self, role: RoleName) -> PartyConfig:
        return load_config(self.directory / f"{role}.yml")

    @classmethod
    def make(cls, directory: Path, rows: int) -> World:
        write_first_files(directory, NAMES, f"127.0.0.1:{free_port()}", Sample())

        def run(role: RoleName) -> None:
            config = load_config(directory / f"{role}.yml")
            kind = ACTIVE if role == "active" else PASSIVE
            run_stage("align", kind, config, StageOptions(), NoProgress())
            run_stage("train", kind, config, StageOptions(), NoProgress())

        with ThreadPoolExecutor(2) as both:
            done: list[Future[None]] = [both.submit(run, role) for role in ROLES]
            for each in done:
                each.result()
        runs = {
            role: RunDirectory(load_config(directory / f"{role}.yml").run_directory)
            for role in ROLES
        }
        passive = load_bundle(runs["passive"], "passive")
        config = load_config(directory / "passive.yml")
        raw = read_whole_table(config.data.train, "strip", features=passive.preprocessing.features)
        repeated = np.arange(rows) % len(raw)
        return cls(
            directory, load_bundle(runs["active"], "active"), passive, raw.columns.take(repeated)
        )


# --- measurements ---


class WholeModel:
    """Both halves in this process."""

    def __init__(self, world: World) -> None:
        self._active, self._passive = world.active, world.passive
        self._encode = RowEncoder(world.passive.preprocessing)

    def features(self, table: pa.Table) -> Features:
        preprocessing = self._passive.preprocessing
        return preprocessing.transform(convert_features("rows", table, preprocessing.features))

    def predict(self, features: Features) -> torch.Tensor:
        with torch.inference_mode():
            return self._active.predict(self._passive.embed(features))

    def predict_all(self, batches: list[Features]) -> None:
        for features in batches:
            self.predict(features)

    def predict_raw(self, tables: list[pa.Table]) -> None:
        for table in tables:
            self.predict(self.features(table))

    def one(self, row: dict[str, object]) -> torch.Tensor:
        return self.predict(self._encode([row]))


def rate(rows: int, work: Callable[[], object], rounds: int) -> float:
    """Return rows per second in the best round."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return rows / best


def streaming(world: World, client: PredictionClient, rounds: int) -> dict[str, Any]:
    """Measure streaming; in one process, the fastest number of threads and batch size counts."""
    whole, rows = WholeModel(world), len(world.table)

    def tables(size: int) -> list[pa.Table]:
        return [world.table.slice(start, size) for start in range(0, rows, size)]

    own: dict[str, list[float]] = {"rows_per_s": [], "from_features": []}
    for size in (REQUEST_ROWS, CHUNK_ROWS):
        batches = tables(size)
        features = [whole.features(table) for table in batches]
        for threads in (1, 2):
            torch.set_num_threads(threads)
            own["rows_per_s"].append(rate(rows, partial(whole.predict_raw, batches), rounds))
            own["from_features"].append(rate(rows, partial(whole.predict_all, features), rounds))
    torch.set_num_threads(1)
    stream = client._stream  # noqa: SLF001 - not for users
    served = {
        "rows_per_s": rate(rows, lambda: list(client.predict_batches(tables(CHUNK_ROWS))), rounds),
        "from_features": rate(rows, lambda: list(stream(features)), rounds),
    }
    return {
        name: {
            "served": round(served[name]),
            "in_process": round(max(own[name])),
            "ratio": round(served[name] / max(own[name]), 3),
        }
        for name in served
    }


def latencies(call: Callable[[int], object], count: int) -> list[float]:
    """Return the seconds of each call, after some warm-up calls."""
    for number in range(count // 10):
        call(number)
    took = []
    for number in range(count):
        start = time.perf_counter()
        call(number)
        took.append(time.perf_counter() - start)
    return took


def quantiles(took: Sequence[float]) -> dict[str, float]:
    return {f"p{q}": round(float(np.percentile(took, q)) * 1e3, 3) for q in (50, 99)}


def best_of(rounds: int, call: Callable[[int], object], count: int) -> dict[str, float]:
    found = [quantiles(latencies(call, count)) for _ in range(rounds)]
    return min(found, key=lambda each: each["p50"])


def single_rows(
    world: World, client: PredictionClient, rounds: int, count: int
) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    rows = world.table.slice(0, 500).to_pylist()
    whole = WholeModel(world)

    def ask(number: int) -> object:
        return client.predict([rows[number % len(rows)]])

    def concurrent(_: int) -> list[float]:
        with ThreadPoolExecutor(CLIENTS) as pool:
            each = [pool.submit(latencies, ask, max(count // CLIENTS, 10)) for _ in range(CLIENTS)]
            return [took for done in each for took in done.result()]

    many_clients = min(
        (quantiles(concurrent(r)) for r in range(rounds)), key=lambda found: found["p50"]
    )
    with bare_round_trips(world) as echo:
        bare = best_of(rounds, lambda _: echo(REQUEST, timeout=10), count)
    return {
        "1 client": best_of(rounds, ask, count),
        f"{CLIENTS} clients": many_clients,
        "in_process": best_of(rounds, lambda n: whole.one(rows[n % len(rows)]), count),
        "bare_grpc": bare,
    }


# --- the processes ---


@contextmanager
def serving(world: World) -> Iterator[None]:
    command = [sys.executable, "-m", "florist.cli.entry", "--role", "active", "--stage", "serve"]
    command += ["--config", str(world.directory / "active.yml"), "--log-format", "text"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _echo_server(files: tuple[Path, Path, Path], ready: Connection) -> None:
    class Echo(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - untyped in gRPC
            del details
            return grpc.unary_unary_rpc_method_handler(lambda request, context: RESPONSE)  # noqa: ARG005

    server = grpc.server(ThreadPoolExecutor(4), [Echo()], options=server_options(64))
    port = server.add_secure_port("127.0.0.1:0", Credentials(*files).for_listener(lambda: None))
    server.start()
    ready.send(port)
    server.wait_for_termination()


@contextmanager
def bare_round_trips(world: World) -> Iterator[grpc.UnaryUnaryMultiCallable[bytes, bytes]]:
    """Call a server in another process that does nothing, over the same TLS."""
    spawn = multiprocessing.get_context("spawn")
    tls = {role: world.config(role).network.tls for role in ROLES}
    assert tls["active"] is not None
    assert tls["passive"] is not None
    here, there = spawn.Pipe()
    files = (tls["active"].authority, tls["active"].certificate, tls["active"].key)
    process = spawn.Process(target=_echo_server, args=(files, there), daemon=True)
    process.start()
    try:
        own = Credentials(tls["passive"].authority, tls["passive"].certificate, tls["passive"].key)
        peer = tls["active"].certificate.read_bytes()
        address = f"127.0.0.1:{here.recv()}"
        with pinned_channel(address, own, NAMES.active, peer) as channel:
            yield channel.unary_unary(ECHO)
    finally:
        process.kill()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1 << 17, help="number of rows to stream")
    parser.add_argument("--calls", type=int, default=1000, help="single-row calls per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = World.make(Path(folder) / "pair", options.rows)
        config = world.config("passive")
        with serving(world), PredictionClient.connect(config, timeout=START_LIMIT) as client:
            streamed = streaming(world, client, options.rounds)
            single = single_rows(world, client, options.rounds, options.calls)
    budget = 5 * single["in_process"]["p50"] + single["bare_grpc"]["p50"]
    result = {
        "rows_per_s": streamed["rows_per_s"]["served"],
        "ratio": streamed["rows_per_s"]["ratio"],
        "streaming": streamed,
        "single_row_ms": single,
        "budget_ms": round(budget, 3),
        "within_budget": single["1 client"]["p50"] <= budget,
    }
    for name, found in streamed.items():
        print(f"{name}: {found['served']:,} rows/s, {found['ratio']:.2f} of in-process")
    for name, found in single.items():
        print(f"one row, {name}: p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms")
    print(f"budget for 1 client: {budget:.2f} ms")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
