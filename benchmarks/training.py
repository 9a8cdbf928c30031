"""Training with two real processes over mutual TLS on localhost, compared with one plain loop.

    python benchmarks/training.py --batch 8192 --categories small --json

All use the same model, data, batch size and number of steps, on two cores:

* whole: both halves in one process with two threads, in straightforward plain torch.
* kernels: the same loop with FLORIST's own modules and optimisers, which are faster than plain
  torch on embedding tables; the comparison with this one shows the cost of the split itself.
* split: two parties with one thread each, without noise and masking, so that all compute the same;
  `ratio` is split / whole, `ratio_kernels` is split / kernels.
* offers: as split, with the agreement's default noise, masking, wide part and oblivious stand-ins,
  at the same cut of 128 numbers.
* default: as offers, with late fusion: the passive party has the whole network, sends one number.

Both parties have the same people, in tables that are already aligned. Speed is that of the fastest
consecutive steps, over several rounds that run all five in turn, so that warm-up and other programs
matter little. `ratio_rounds` is the ratio within each round, which shows how much the machine's
speed varies. `wait_share` and `wire_share` are from the parties' own histories. `--processes` sets
the number of processes of each party (`training.processes`); CPU time is that of its first one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from florist.active_party.role import ACTIVE
from florist.cli.init import Names, write_first_files
from florist.common.core.ports import free_port
from florist.common.core.progress import NoProgress
from florist.common.core.release import RELEASE
from florist.common.data.id_check import fingerprint
from florist.common.data.labels import read_labels
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.table_reader import read_whole_table
from florist.common.session.alignment_result import (
    FORMAT,
    Alignment,
    AlignmentSummary,
    write_alignments,
)
from florist.common.session.nonces import NONCE_BYTES
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import StageOptions
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.loader import load_config
from florist.common.stages.run_stages import run_stage
from florist.common.training.model_factory import make_active, make_bottom
from florist.common.training.optimisers import Optimisers
from florist.common.training.rate_schedule import RateSchedule
from florist.common.training.row_codec import RowCodec
from florist.common.training.schedule import Schedule
from florist.experiments import click_data
from florist.experiments.sample_data import ANY_OVERLAP
from florist.passive_party.role import PASSIVE

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.settings.party_config import PartyConfig

NAMES = Names(active="bank", passive="telco")
ROLES: tuple[RoleName, RoleName] = ("active", "passive")
DEFAULTS = TrainingAgreement()
RATES = RateSchedule(1e-3, 1, "constant")
CPU = torch.device("cpu")
#: Number of table rows for each choice of categories; a million categories need as many rows.
ROWS = {"small": 1 << 17, "million": 1 << 20}
#: Consecutive steps that are timed together.
IN_A_ROW = 8
TIME_LIMIT = 600


@dataclass(frozen=True, slots=True)
class SharedSample:
    """Clicks of people that both parties have; one column may have a million categories."""

    rows: int
    million: bool
    #: Keys of `agreement.training`.
    training: dict[str, Any]
    #: Training processes of each party.
    processes: int = 1

    id_column = click_data.ID_COLUMN
    suffix = ".csv"

    def write(self, active: Path, passive: Path) -> None:
        data, everyone = click_data.generate(self.rows, seed=1), np.arange(self.rows)
        click_data.write_table(click_data.active_table(data, everyone), active)
        table = click_data.passive_table(data, everyone)
        if self.million:
            name = click_data.CATEGORICAL[-1]
            codes = np.random.default_rng(2).permutation(self.rows)
            texts = pa.array([f"k{code:07x}" for code in codes.tolist()])
            table = table.set_column(table.column_names.index(name), name, texts)
        click_data.write_table(table, passive)

    def settings(self, role: RoleName) -> dict[str, Any]:
        own = {"data.train.label": click_data.LABEL} if role == "active" else {}
        return {
            **{f"agreement.training.{key}": value for key, value in self.training.items()},
            # Only steps are measured; see benchmarks/aggregate.py for what comes before them.
            "agreement.training.aggregate.privacy": None,
            "data.preprocessing.scaling": "log",
            "model.embedding_updates": "sparse" if self.million else "auto",
            "training.threads": 1,
            "training.processes": self.processes,
            "audit.enabled": False,
            **ANY_OVERLAP,
            **own,
        }


@dataclass(frozen=True, slots=True)
class Track:
    """One process: wall time and CPU time at the end of each step, and shares of its time."""

    ends: list[tuple[float, float]]
    wire_share: float = 0.0
    wait_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """A step in the fastest part of a run; CPU time includes all threads of a process."""

    seconds: float
    cpu_ms: list[float]
    wire_share: list[float]
    wait_share: list[float]

    @classmethod
    def of(cls, tracks: list[Track]) -> Pace:
        """Combine processes; a step ends when it ends for all of them."""
        ends = np.array([track.ends for track in tracks])
        clock, cpu = ends[:, :, 0].max(0), ends[:, :, 1]
        length = min(IN_A_ROW, len(clock) - 1)
        times = (clock[length:] - clock[:-length]) / length
        fastest = times.argmin()
        spent = (cpu[:, fastest + length] - cpu[:, fastest]) / length
        return cls(
            float(times[fastest]),
            np.round(1e3 * spent, 1).tolist(),
            [track.wire_share for track in tracks],
            [track.wait_share for track in tracks],
        )


@dataclass(frozen=True, slots=True)
class Result:
    """The result, printed as JSON. Of two values, the first is the active party's.

    `wire_mb_per_step` includes both directions.
    """

    batch: int
    micro_batch: int
    steps: int
    processes: int
    categories: str
    rows_per_s_whole: int
    rows_per_s_kernels: int
    rows_per_s_split: int
    ratio: float
    ratio_rounds: list[float]
    ratio_kernels: float
    rows_per_s_offers: int
    ratio_offers: float
    rows_per_s_default: int
    ratio_default: float
    wire_mb_per_step: float
    wire_share: list[float]
    wait_share: list[float]
    wait_share_default: list[float]
    cpu_ms_whole: list[float]
    cpu_ms_kernels: list[float]
    cpu_ms_split: list[float]
    cpu_ms_offers: list[float]
    cpu_ms_default: list[float]


def main() -> None:
    """Run the benchmark and print the result."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="florist-bench-") as folder:
        result = measure(Path(folder), arguments)
    if not arguments.json:
        for key, value in asdict(result).items():
            print(f"{key:>18}  {value:,}" if isinstance(value, int) else f"{key:>18}  {value}")
        return
    print(json.dumps(asdict(result)))


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--micro-batch", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=48, help="minimum number per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--categories", choices=list(ROWS), default="small")
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        help="training processes of each party, with one thread each",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    return parser.parse_args()


def measure(folder: Path, arguments: argparse.Namespace) -> Result:
    """Run rounds of both loops, and of the parties with three settings."""
    rows, batch = ROWS[arguments.categories], arguments.batch
    epochs = -(-arguments.steps * batch // rows)
    training = {
        "batch_size": batch,
        "micro_batch": arguments.micro_batch,
        "epochs": epochs,
        "checkpoint_every": 0,
        "embedding_noise": 0.0,
        "masking": False,
        "cut_width": 128,
        "wide": False,
        "stand_ins": "plain",
    }
    sample = SharedSample(rows, arguments.categories == "million", training, arguments.processes)
    write_first_files(folder, NAMES, f"127.0.0.1:{free_port()}", sample)
    plain_configs = [load_config(folder / f"{role}.yml") for role in ROLES]
    private = ("embedding_noise", "masking", "wide", "stand_ins")
    offer_configs = [with_defaults(config, *private) for config in plain_configs]
    default_configs = [with_defaults(config, *private, "cut_width") for config in plain_configs]
    for role, config in zip(ROLES, plain_configs, strict=True):
        align(config, role)
    plain_loop, own_loop = PlainLoop(*plain_configs), OwnLoop(*plain_configs)
    rounds = [
        (
            plain_loop.train(arguments.steps),
            own_loop.train(arguments.steps),
            run_parties(plain_configs),
            run_parties(offer_configs),
            run_parties(default_configs),
        )
        for _ in range(arguments.rounds)
    ]
    plain, own, split, offers, default = (
        min(paces, key=lambda pace: pace.seconds) for paces in zip(*rounds, strict=True)
    )
    codec = RowCodec(DEFAULTS.wire_type, plain_configs[0].agreement.training.wire_width)
    return Result(
        batch=batch,
        micro_batch=min(batch, arguments.micro_batch),
        steps=epochs * -(-rows // batch),
        processes=arguments.processes,
        categories=arguments.categories,
        rows_per_s_whole=round(batch / plain.seconds),
        rows_per_s_kernels=round(batch / own.seconds),
        rows_per_s_split=round(batch / split.seconds),
        ratio=round(plain.seconds / split.seconds, 3),
        ratio_rounds=[
            round(whole.seconds / parties.seconds, 3) for whole, _, parties, *_ in rounds
        ],
        ratio_kernels=round(own.seconds / split.seconds, 3),
        rows_per_s_offers=round(batch / offers.seconds),
        ratio_offers=round(plain.seconds / offers.seconds, 3),
        rows_per_s_default=round(batch / default.seconds),
        ratio_default=round(plain.seconds / default.seconds, 3),
        wire_mb_per_step=round(2 * batch * codec.row_bytes / 1e6, 2),
        wire_share=split.wire_share,
        wait_share=split.wait_share,
        wait_share_default=default.wait_share,
        cpu_ms_whole=plain.cpu_ms,
        cpu_ms_kernels=own.cpu_ms,
        cpu_ms_split=split.cpu_ms,
        cpu_ms_offers=offers.cpu_ms,
        cpu_ms_default=default.cpu_ms,
    )


def with_defaults(config: PartyConfig, *keys: str) -> PartyConfig:
    """Return the configuration with the default values of these keys of `agreement.training`."""
    training = config.agreement.training.model_copy(
        update={key: getattr(DEFAULTS, key) for key in keys}
    )
    agreement = config.agreement.model_copy(update={"training": training})
    return config.model_copy(update={"agreement": agreement})


def align(config: PartyConfig, role: RoleName) -> None:
    """Write the alignment of parties that have the same people in the same order."""
    ids = read_whole_table(config.data.train, config.agreement.id_normalisation).ids
    size = len(ids)
    summary = AlignmentSummary(
        format=FORMAT,
        release=RELEASE,
        role=role,
        party=config.party.name,
        peer=config.party.peer,
        finished_at="",
        agreement=config.agreement.model_dump(mode="json"),
        engine="",
        rows=size,
        table_fingerprint=fingerprint(ids),
        own_dummies=0,
        sizes=UnionSizes(size, size, size),
        merging=None,
        union_sha256=hashlib.sha256().hexdigest(),
        seconds={},
        bytes_sent=0,
        bytes_received=0,
    )
    runs = RunDirectory(config.run_directory)
    runs.path.mkdir(parents=True, exist_ok=True)
    ranks = np.random.default_rng(3).permutation(size)
    with runs.finishing("align") as folder:
        write_alignments(folder, {"train": Alignment(summary, ranks)})


class StepRecorder(NoProgress):
    """Records the end of each step."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def advance(self, done: int) -> None:
        del done
        self.ends.append((time.monotonic(), time.process_time()))


# --- the parties ---


def run_parties(configs: list[PartyConfig]) -> Pace:
    """Train, with each party in a new process."""
    with ProcessPoolExecutor(len(ROLES), multiprocessing.get_context("spawn")) as processes:
        return Pace.of(list(processes.map(run_party, ROLES, configs, timeout=TIME_LIMIT)))


def run_party(role: RoleName, config: PartyConfig) -> Track:
    """Run the party's training stage."""
    recorder = StepRecorder()
    run_stage(
        "train",
        ACTIVE if role == "active" else PASSIVE,
        config,
        StageOptions(force=True),
        recorder,
    )
    history = RunDirectory(config.run_directory).load_history()
    total = sum(history[kind] for kind in ("compute", "wire", "wait"))
    wire, wait = (round(history[kind] / total, 3) for kind in ("wire", "wait"))
    return Track(recorder.ends, wire, wait)


# --- both halves in one process ---


class Loop:
    """Forward, backward and update on both parties' tables; subclasses provide the modules."""

    def __init__(self, active: PartyConfig, passive: PartyConfig) -> None:
        torch.set_num_threads(len(ROLES))
        labelled, raw = (
            read_whole_table(config.data.train, config.agreement.id_normalisation)
            for config in (active, passive)
        )
        preprocessing = fit_preprocessing(raw, passive.data.preprocessing)
        agreement = active.agreement.training
        self._batch = agreement.known_batch_size
        self._features = preprocessing.transform(raw)
        self._labels = read_labels(labelled, agreement.classes).classes
        self._make(active, passive, preprocessing)

    def _make(
        self, active: PartyConfig, passive: PartyConfig, preprocessing: Preprocessing
    ) -> None:
        """Make the model and its optimisers."""
        raise NotImplementedError

    def _logits(self, numeric: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _zero_grad(self) -> None:
        raise NotImplementedError

    def _update(self) -> None:
        raise NotImplementedError

    def train(self, steps: int) -> Pace:
        """Run this many steps; the next call continues with the weights."""
        recorder = StepRecorder()
        schedule = Schedule(bytes(NONCE_BYTES), len(self._labels), self._batch, epochs=steps)
        for step in range(steps):
            self._step(schedule.batch(*divmod(step, schedule.steps_per_epoch)))
            recorder.advance(self._batch)
        return Pace.of([Track(recorder.ends)])

    def _step(self, rows: npt.NDArray[np.int64]) -> None:
        chosen = self._features.take(rows)
        numeric, categories = map(torch.from_numpy, (chosen.numeric, chosen.categories))
        logits = self._logits(numeric, categories)
        labels = torch.from_numpy(self._labels[rows]).float()
        self._zero_grad()
        binary_cross_entropy_with_logits(logits, labels).backward()
        self._update()


class PlainLoop(Loop):
    """Plain torch: an embedding, linear layers, Adam; sparse if the parties' updates are."""

    def _make(
        self, active: PartyConfig, passive: PartyConfig, preprocessing: Preprocessing
    ) -> None:
        del active
        sizes = torch.tensor(preprocessing.cardinalities)
        self._offsets = sizes.cumsum(0) - sizes
        sparse = passive.model.embedding_updates == "sparse"
        self._table = nn.Embedding(int(sizes.sum()), passive.model.embedding_width, sparse=sparse)
        width = passive.model.hidden[-1]
        inputs = len(preprocessing.numeric_columns) + len(sizes) * passive.model.embedding_width
        self._layers = nn.Sequential(
            *(
                module
                for pair in pairwise([inputs, *passive.model.hidden, width, width])
                for module in (nn.Linear(*pair), nn.ReLU())
            ),
            nn.Linear(width, 1),
        )
        dense = list(self._layers.parameters()) + ([] if sparse else [self._table.weight])
        rate = RATES.peak
        self._plain_optimisers: list[torch.optim.Optimizer] = [torch.optim.Adam(dense, lr=rate)]
        if sparse:
            self._plain_optimisers.append(torch.optim.SparseAdam([self._table.weight], lr=rate))

    def _logits(self, numeric: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        embedded = self._table(categories + self._offsets).flatten(1)
        logits: torch.Tensor = self._layers(torch.cat((embedded, numeric), 1))
        return logits.squeeze(1)

    def _zero_grad(self) -> None:
        for optimiser in self._plain_optimisers:
            optimiser.zero_grad()

    def _update(self) -> None:
        for optimiser in self._plain_optimisers:
            optimiser.step()


class OwnLoop(Loop):
    """FLORIST's modules and optimisers."""

    def _make(
        self, active: PartyConfig, passive: PartyConfig, preprocessing: Preprocessing
    ) -> None:
        cut_width = active.agreement.training.cut_width
        self._bottom = make_bottom(
            passive.model,
            numeric=len(preprocessing.numeric_columns),
            cardinalities=preprocessing.cardinalities,
            cut_width=cut_width,
            device=CPU,
            seed=0,
        )
        self._top = make_active(active.model, cut_width=cut_width, device=CPU, seed=0)
        self._optimisers = [
            Optimisers(self._bottom, passive.optimiser, RATES),
            Optimisers(self._top, active.optimiser, RATES),
        ]

    def _logits(self, numeric: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._top(self._bottom(numeric, categories))
        return logits

    def _zero_grad(self) -> None:
        for optimiser in self._optimisers:
            optimiser.zero_grad()

    def _update(self) -> None:
        for optimiser in self._optimisers:
            optimiser.step(0)


if __name__ == "__main__":
    main()
