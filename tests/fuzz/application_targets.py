"""More readers of bytes: HTTP bodies, evaluation, branches, resumed training, models and tables."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyarrow import parquet
from starlette.exceptions import HTTPException

from florist.common.bundle.manifest import FORMAT, BundleManifest, file_digests, read_manifest
from florist.common.cluster.branch_codec import (
    decode_head_request,
    decode_member_request,
    decode_reply,
    encode,
    encode_reply,
)
from florist.common.cluster.branch_messages import (
    BranchStatus,
    EndIds,
    FetchRows,
    PostNumber,
    Recall,
    ResumeState,
    RowBlock,
    RunUnion,
    TakeIds,
    UnionRecord,
)
from florist.common.core.errors import ConfigurationError
from florist.common.data.preprocessing import NumberRange, Preprocessing, Vocabulary
from florist.common.session.mutual_check import mutual_check
from florist.common.session.nonces import commitment
from florist.common.settings.agreement import Agreement
from florist.common.settings.data import PreprocessingSettings
from florist.common.settings.serving import Http
from florist.common.settings.training import Model
from florist.common.training.history import EpochFigures, History
from florist.common.training.run_checkpoints import RunCheckpoint, RunCheckpoints
from florist.common.training.run_facts import HalfFacts, OptimiserFacts, RunFacts
from florist.common.training.run_handshake import ResumableRun, open_run, run_id
from florist.common.transport.messages import (
    EvaluationOpening,
    EvaluationSummary,
    NonceReveal,
    TrainingOpening,
)
from florist.passive_party.evaluation import estimates_of
from florist.passive_party.http_service import PredictionApi
from florist.passive_party.row_encoder import BadRow, RowEncoder
from tests.fuzz.targets import BREAK, Target, conversation, damaging, said
from tests.support.tables import read_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from florist.passive_party.serving import PredictionClient

_DIGEST = bytes(32)
_SEED = b"\1" * 32
_PREPROCESSING = Preprocessing(
    PreprocessingSettings(),
    (NumberRange(column="age", minimum=0.0, maximum=9.0),),
    (Vocabulary("city", pa.array(["Bern", "Graz"])),),
)


# -- messages --------------------------------------------------------------------------------------


class _Client:
    """As much of a prediction client as parsing a body needs."""

    by_id = False
    columns = ("age", "city")
    classes = 2

    def is_ready(self) -> bool:
        return True


_API = PredictionApi(cast("PredictionClient", _Client()), Http(address="127.0.0.1:1"), "token")
_ENCODE = RowEncoder(_PREPROCESSING)


def _http_body(data: bytes) -> object:
    try:
        entries = _API._parse(data)
    except HTTPException as refused:
        raise BadRow(str(refused.detail)) from None
    if not all(isinstance(entry, dict) for entry in entries):  # as the client checks it
        raise BadRow("every row must be an object")
    return _ENCODE(cast("Sequence[Mapping[str, object]]", entries))


def _evaluation(data: bytes) -> object:
    frames = data.split(BREAK)
    ours = EvaluationOpening(_DIGEST, 3)

    def check(theirs: EvaluationOpening) -> None:
        if theirs.union_sha256 != ours.union_sha256:
            raise ConfigurationError("another union")

    channel = said(frames)
    mutual_check(channel, ours, check)
    return estimates_of(channel.receive(EvaluationSummary))


def _resume(data: bytes) -> object:
    have = ResumableRun(_SEED, (0, 5, 10))
    return open_run(said(data.split(BREAK)), "active", _DIGEST, have=have, nonce=_DIGEST)


def _branch_request(data: bytes) -> object:
    return decode_head_request(data)


def _branch_group_request(data: bytes) -> object:
    return decode_member_request(data)


def _branch_reply(data: bytes) -> object:
    kind = (ResumeState, RowBlock, BranchStatus)[data[0] % 3] if data else RowBlock
    return decode_reply(kind, data[1:])


def _raise() -> RowBlock:
    raise ConfigurationError("no rows")


_RECORD = UnionRecord.model_validate({"folder": "union", "identity": b"id"})

APPLICATION_MESSAGES = (
    Target(
        "http body",
        _http_body,
        (
            b'{"rows": [{"age": 3, "city": "Bern"}, {"age": null, "city": 7}]}',
            b'{"rows": [{"age": 1e308, "city": "\\ud800"}]}',
        ),
    ),
    Target(
        "evaluation",
        _evaluation,
        (
            conversation(
                EvaluationOpening(_DIGEST, 3),
                EvaluationOpening(_DIGEST, 3),
                EvaluationSummary(0.7, 0.01, 0.02, 0.01, 0.5, 0.1),
            ),
        ),
    ),
    Target(
        "resume",
        _resume,
        (
            conversation(
                TrainingOpening(
                    union_sha256=_DIGEST,
                    run=run_id(_SEED),
                    steps=(0, 5),
                    commitment=commitment(_DIGEST),
                ),
                NonceReveal(_DIGEST),
            ),
        ),
    ),
    Target(
        "branch request",
        _branch_request,
        tuple(
            map(
                encode,
                (
                    Recall(record=_RECORD),
                    TakeIds(count=1, payload=b"rows"),
                    EndIds(),
                    RunUnion(address="10.0.0.1:7000", rendezvous=b"name"),
                ),
            )
        ),
    ),
    Target(
        "branch group",
        _branch_group_request,
        (
            encode(PostNumber(attempt=b"a", label="size", sender=1, number=7)),
            encode(FetchRows(attempt=b"a", label="rows", owner=1, start=0)),
        ),
    ),
    Target(
        "branch reply",
        _branch_reply,
        (
            b"\0" + encode_reply(lambda: ResumeState(token=b"t", finished=(3,), has_ids=True)),
            b"\1" + encode_reply(lambda: RowBlock(next_piece=1, payload=bytes(32))),
            b"\2" + encode_reply(lambda: BranchStatus(steps={}, sent=1, received=2)),
            b"\1" + encode_reply(_raise),
        ),
    ),
)


# -- files -----------------------------------------------------------------------------------------


def application_file_targets(folder: Path) -> tuple[Target, ...]:
    """Readers of files, each over a good file in `folder` that is then damaged."""
    return (_model_file(folder), _run_facts(folder), *_tables(folder))


def _model_file(folder: Path) -> Target:
    training = folder / "bundle" / "training"
    training.mkdir(parents=True)
    (training / "model.safetensors").write_bytes(b"weights")
    _PREPROCESSING.save(training / "preprocessing")
    BundleManifest(
        format=FORMAT,
        release="1",
        role="active",
        run=_DIGEST.hex(),
        agreement=Agreement(),
        union_sha256=_DIGEST.hex(),
        model=Model(),
        numeric=1,
        cardinalities=(3,),
        calibration=None,
        class_names=("0", "1"),
        files=file_digests(training),
    ).write(training, _DIGEST)
    return damaging("model", training / "model.json", lambda: read_manifest(training, "active"))


def _run_facts(folder: Path) -> Target:
    """Facts whose digest is right, as another release or a bug could have written them."""
    checkpoints = RunCheckpoints(folder / "facts", keep=1)
    facts = RunFacts(
        half=HalfFacts(OptimiserFacts("adam", ["city"])),
        seed=_SEED.hex(),
        secret=_DIGEST.hex(),
        history=History([0.5], [EpochFigures(1, 0.5, 0.7)], rows=3),
        identity={"union": "00"},
    )
    checkpoints.save(RunCheckpoint(5, {}, facts))
    (path,) = (folder / "facts").glob("step-*.json")
    whole = path.read_bytes()

    def run(data: bytes) -> object:
        manifest = json.loads(whole)
        try:
            manifest["facts"] = json.loads(data)
            text = json.dumps(manifest["facts"], sort_keys=True, separators=(",", ":"))
        except (ValueError, RecursionError):
            raise ConfigurationError("not JSON, which another target covers") from None
        manifest["facts_sha256"] = sha256(text.encode()).hexdigest()
        manifest.pop("sha256", None)
        path.write_text(json.dumps(manifest))
        try:
            return checkpoints.load(5)
        finally:
            path.write_bytes(whole)

    return Target("run facts", run, (json.dumps(facts.to_json()).encode(),))


def _tables(folder: Path) -> Iterable[Target]:
    text = b'id,age\nann,1\n"b,ob",2\n'
    table = pa.table({"id": ["ann", "bob", "eve"], "age": pa.array([1, 2, 3], pa.int32())})
    contents = {"csv": ("people.csv", text), "gzip": ("people.csv.gz", gzip.compress(text))}
    parquet.write_table(table, folder / "people.parquet")
    for file, content in contents.values():
        (folder / file).write_bytes(content)
    for name, file in (
        ("csv", "people.csv"),
        ("gzip", "people.csv.gz"),
        ("parquet", "people.parquet"),
    ):
        path = folder / file
        yield damaging(name, path, lambda path=path: read_ids(path, "id", "strip"))  # type: ignore[misc]
