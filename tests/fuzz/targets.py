"""All code that reads bytes from the peer or from a file, each as one function of bytes.

A target returns, or raises a `FloristError`; anything else is a bug. The property tests and the
coverage-guided fuzzer (`atheris_targets.py`) run the same targets.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
import pyarrow as pa
import torch

from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.findings import AuditRecord
from florist.common.cluster.branch_addresses import NAME_BYTES, agree_on_rendezvous
from florist.common.core.errors import FloristError
from florist.common.data.preprocessing import (
    NumberRange,
    Preprocessing,
    Vocabulary,
)
from florist.common.evidence.evidence_file import (
    LocalPart,
    load_evidence,
    save_evidence,
    stage_evidence,
)
from florist.common.evidence.exchange import CHANNEL as EVIDENCE
from florist.common.evidence.exchange import (
    Identities,
    PartySignature,
    SignedRecord,
    exchange_evidence,
)
from florist.common.evidence.record import (
    SentMessages,
    StageFacts,
    make_account,
    make_record,
    make_statement,
)
from florist.common.evidence.signing import CertificateChain, UntrustedCertificate
from florist.common.evidence.verification import verify_stage
from florist.common.groups import make_group
from florist.common.privacy.commitment import (
    StoredCommitment,
    commit,
    load_commitment,
    save_commitment,
)
from florist.common.privacy.commitment_proof import (
    CommitmentProof,
    WrongProof,
    check_proof,
    open_ids,
)
from florist.common.psu import set_stream
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.journal import Journal
from florist.common.psu.sealed_keys import KEY_BYTES
from florist.common.psu.sorted_streams import AscendingCheck
from florist.common.psu.union_handshake import open_union
from florist.common.session.alignment_result import (
    FORMAT,
    Alignment,
    AlignmentSummary,
    write_alignments,
)
from florist.common.session.nonces import commitment
from florist.common.session.open_session import own_credentials
from florist.common.session.run_directory import RunDirectory
from florist.common.session.session import PeerRunsPreflight, Session, SessionTimeouts, make_hello
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import Agreement
from florist.common.settings.agreement_differences import differences
from florist.common.settings.audit import AuditSettings
from florist.common.settings.data import PreprocessingSettings
from florist.common.settings.loader import load_config
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import IdColumn
from florist.common.storage.manifest import MANIFEST
from florist.common.training.checkpoint import Checkpoint, CheckpointStore
from florist.common.training.row_codec import RowCodec
from florist.common.training.run_handshake import open_run
from florist.common.transport import codec, messages
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    Abort,
    BundleOffer,
    EmbeddingBlock,
    EvaluationEmbeddingBlock,
    Heartbeat,
    Hello,
    NonceReveal,
    PredictionReply,
    PredictionRequest,
    ServingMessage,
    ServingOffer,
    ServingTerms,
    SetChunk,
    SetHeader,
    Step,
    TrainingOpening,
    UnionAnnouncement,
    UnionBranches,
    UnionOpening,
    UnionTerms,
)
from tests.support.memory_storage import MemoryStorage
from tests.support.parties import Workspace
from tests.support.unions import CountingGroup, Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from florist.common.transport.channel import Channel
    from florist.common.transport.messages import Message

#: Between the frames of a conversation, in the one string of bytes that a fuzzer makes.
BREAK = b"\xfe\xfe"

GROUP = make_group("x25519")
LOCAL = LocalExecutor(GROUP)
AGREEMENT = Agreement().canonical()
HELLO = make_hello("active", "1", AGREEMENT, "align")
_DIGEST = bytes(32)
_STEP = Step.ACTIVE_FIRST_ROUND
_STATEMENT = make_statement("align", Agreement(), {"active": "a", "passive": "b"}, StageFacts())
#: Two rows of four values.
_ROWS = torch.ones(8).numpy().tobytes()


@dataclass(frozen=True)
class Target:
    """A function that reads bytes, and examples of valid input."""

    name: str
    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        with suppress(FloristError):
            self.run(data)


# -- messages --------------------------------------------------------------------------------------

_SERVING: tuple[type[ServingMessage], ...] = get_args(ServingMessage)


def _decode_serving(data: bytes) -> object:
    return codec.decode_serving(_SERVING[data[0] % len(_SERVING)], data[1:]) if data else None


def _agreement(data: bytes) -> object:
    return differences(AGREEMENT, data.decode(errors="surrogateescape"))


# -- conversations ---------------------------------------------------------------------------------


def said(frames: Iterable[bytes]) -> Channel:
    """A channel on which the peer sends exactly these frames."""
    frames = list(frames)
    here, there = linked_pair(capacity=len(frames) + 16, grace=0.0)
    channel = here.channel("fuzz")
    peer = there.channel("fuzz")
    for frame in frames:
        peer.outgoing.put(frame, lambda: None)
    peer.close()
    return channel


def _set(data: bytes) -> None:
    channel = said(data.split(BREAK))
    set_stream.receive_header(channel, _STEP, 3)
    ascent = AscendingCheck()
    for chunk in LOCAL.checked(set_stream.receive_chunks(channel, _STEP, 3, GROUP.width)):
        set_stream.require_shuffled(_STEP, ascent, chunk)


def _union(data: bytes) -> object:
    journal = Journal(MemoryStorage(), GROUP.width, _DIGEST)
    own = Side("active", CountingGroup(GROUP), [b"ann"], MemoryStorage())
    return open_union(said(data.split(BREAK)), GROUP, journal, None, own, own.exchanges)


def _branches(data: bytes) -> object:
    return agree_on_rendezvous(said([data]), (), 2)


def _block(data: bytes) -> object:
    return RowCodec("float32", 4).decode_block(said([data]).receive(EmbeddingBlock), 3, 0, 2)


def _test_block(data: bytes) -> object:
    block = said([data]).receive(messages.TestEmbeddingBlock)
    return RowCodec("float32", 4).decode_test_block(block, 3, 0, 2)


def _evaluation_block(data: bytes) -> object:
    block = said([data]).receive(EvaluationEmbeddingBlock)
    return RowCodec("float32", 4).decode_evaluation_block(block, 0, 2)


def _evidence(data: bytes) -> object:
    """The peer's two messages about a stage; we have no key, and check all that it states."""
    frames = data.split(BREAK)
    here, there = linked_pair(capacity=len(frames) + 16, grace=0.0)
    peer = there.channel(EVIDENCE)
    for frame in frames:
        peer.outgoing.put(frame, lambda: None)
    peer.close()
    signed = exchange_evidence(
        here,
        Identities("active", "telco", None),
        Agreement(),
        _STATEMENT,
        make_account("active", "bank", "1", None, SentMessages({})),
        5.0,
    )
    with suppress(UntrustedCertificate):
        CertificateChain.from_pem(data)
    return signed


def _proof(data: bytes) -> object:
    with suppress(WrongProof):
        return check_proof(CommitmentProof.from_json(data), _DIGEST)
    return None


def _opening(data: bytes) -> object:
    return open_run(said(data.split(BREAK)), "active", _DIGEST, have=None, nonce=_DIGEST)


def _session(data: bytes) -> None:
    frames = data.split(BREAK)
    here, there = linked_pair(capacity=len(frames) + 16, grace=0.0)
    control = there.channel("control")
    for frame in frames:
        control.outgoing.put(frame, lambda: None)
    control.close()
    with suppress(PeerRunsPreflight), Session(here, HELLO, SessionTimeouts(silence=5.0)):
        pass


def conversation(*messages: Message) -> bytes:
    return BREAK.join(map(codec.encode, messages))


def _points(count: int) -> bytes:
    """Elements of the group, sorted as a shuffled set is."""
    base = np.zeros((1, GROUP.width), dtype=np.uint8)
    base[0, 0] = 9
    elements = [GROUP.power(base, GROUP.random_exponent()).tobytes() for _ in range(count)]
    return b"".join(sorted(elements))


def _proof_of_people() -> CommitmentProof:
    people = IdColumn.from_bytes([b"ada", b"bob", b"eve"])
    stored = StoredCommitment(commit([people], [], [], _DIGEST), _DIGEST)
    return open_ids(stored, lambda: [people], [b"bob"])


_OFFER = ServingOffer(1, "1", AGREEMENT, BundleOffer(_DIGEST, _DIGEST, _DIGEST), b"")
_EXAMPLES: tuple[Message, ...] = (
    HELLO,
    Heartbeat(7),
    Abort("why"),
    SetHeader(_STEP, 3),
    SetChunk(_STEP, 0, bytes(96)),
    EmbeddingBlock(3, 0, bytes(32)),
    messages.TestEmbeddingBlock(3, 0, bytes(32)),
    EvaluationEmbeddingBlock(0, bytes(32)),
    BundleOffer(_DIGEST, _DIGEST),
    messages.EvidenceContribution('{"stage":"align"}', '{"role":"active"}', b"PEM"),
    messages.EvidenceSignature(_DIGEST, bytes(64), ""),
)

MESSAGES = (
    Target(
        "envelope",
        codec.decode,
        tuple(codec.encode(message) for message in _EXAMPLES),
    ),
    Target(
        "serving",
        _decode_serving,
        tuple(
            bytes([_SERVING.index(type(message))]) + codec.encode_serving(message)
            for message in (
                _OFFER,
                ServingTerms(_OFFER, "model", 10, 100),
                PredictionRequest(bytes(32), 7),
                PredictionReply(bytes(8)),
            )
        ),
    ),
    Target("agreement", _agreement, (AGREEMENT.encode(), b'{"a":{"b":[1,2.0,true]}}')),
    Target(
        "set",
        _set,
        (conversation(SetHeader(_STEP, 3), SetChunk(_STEP, 0, _points(3))),),
    ),
    Target(
        "union",
        _union,
        (
            conversation(
                UnionOpening(b"", (), b""),
                UnionTerms(
                    resume=False, commitment=commitment(_DIGEST), sealing_key=bytes(KEY_BYTES)
                ),
                NonceReveal(_DIGEST),
                UnionAnnouncement(3, _DIGEST),
            ),
        ),
    ),
    Target(
        "branches",
        _branches,
        (conversation(UnionBranches(("10.0.0.1:7000", "[::1]:7001"), bytes(NAME_BYTES))),),
    ),
    Target(
        "evidence",
        _evidence,
        (
            conversation(
                messages.EvidenceContribution(
                    _STATEMENT,
                    make_account("passive", "telco", "1", "00" * 32, SentMessages({})).to_json(),
                    b"-----BEGIN CERTIFICATE-----",
                ),
                messages.EvidenceSignature(_DIGEST, bytes(64), ""),
            ),
        ),
    ),
    Target("proof", _proof, (_proof_of_people().to_json(),)),
    Target("block", _block, (codec.encode(EmbeddingBlock(3, 0, _ROWS)),)),
    Target("test block", _test_block, (codec.encode(messages.TestEmbeddingBlock(3, 0, _ROWS)),)),
    Target(
        "evaluation block",
        _evaluation_block,
        (codec.encode(EvaluationEmbeddingBlock(0, _ROWS)),),
    ),
    Target(
        "session",
        _session,
        (
            conversation(Hello(HELLO.protocol, "passive", "1", AGREEMENT, "align"), Heartbeat(1)),
            conversation(Abort("no")),
        ),
    ),
    Target(
        "opening",
        _opening,
        (
            conversation(
                TrainingOpening(union_sha256=_DIGEST, run=b"", steps=(1, 2), commitment=_DIGEST),
                NonceReveal(_DIGEST),
            ),
        ),
    ),
)


# -- files -----------------------------------------------------------------------------------------


def file_targets(folder: Path) -> tuple[Target, ...]:
    """Readers of files, each over a good file in `folder` that is then damaged."""
    return (
        *_alignment_files(folder),
        *_checkpoint_files(folder),
        *_evidence_files(folder),
        *_small_files(folder),
    )


def damaging(name: str, path: Path, read: Callable[[], object]) -> Target:
    """Replace the bytes of one file and read it; the original bytes are the seed."""
    whole = path.read_bytes()

    def run(data: bytes) -> object:
        path.write_bytes(data)
        try:
            return read()
        finally:
            path.write_bytes(whole)

    return Target(name, run, (whole,))


def _alignment_files(folder: Path) -> Iterable[Target]:
    runs = RunDirectory(folder / "run")
    runs.path.mkdir()
    summary = AlignmentSummary(
        format=FORMAT,
        release="1",
        role="active",
        party="bank",
        peer="telco",
        finished_at="2025-01-01T00:00:00+00:00",
        agreement=json.loads(AGREEMENT),
        engine="python",
        rows=3,
        table_fingerprint="00",
        own_dummies=0,
        sizes=UnionSizes(3, 3, 5),
        merging="active",
        union_sha256=_DIGEST.hex(),
        seconds={"total": 1.5},
        bytes_sent=1,
        bytes_received=1,
    )
    with runs.finishing("align") as result:
        write_alignments(result, {"train": Alignment(summary, np.array([0, 2, 4]))})
    (runs.alignment / MANIFEST).unlink()  # so that the readers see the damage
    runs.training.mkdir()
    history = runs.training / "history.json"
    history.write_text('{"losses": [0.5], "epochs": [], "rows": 3}')
    yield damaging("alignment", runs.alignment / "train" / "alignment.json", runs.load_alignment)
    yield damaging("ranks", runs.alignment / "train" / "ranks.parquet", runs.load_alignment)
    yield damaging("history", history, runs.load_history)


def _evidence_files(folder: Path) -> Iterable[Target]:
    account = make_account("active", "bank", "1", None, SentMessages({}))
    unsigned = PartySignature(problem="none")
    record = SignedRecord(make_record(Agreement(), _STATEMENT, [account]), unsigned, unsigned)
    evidence = stage_evidence(record, LocalPart("active", None, None), None)
    path = save_evidence(folder / "evidence", "align", evidence)

    def verify() -> object:
        return [verify_stage(stage, []) for stage in load_evidence(path)]

    yield damaging("stage evidence", path, verify)
    committed = folder / "committed"
    committed.mkdir()
    people = IdColumn.from_bytes([b"ada", b"bob"])
    save_commitment(committed, StoredCommitment(commit([people], [], [], _DIGEST), _DIGEST))
    for name in ("commitment.json", "commitment.key"):
        yield damaging(name, committed / name, lambda: load_commitment(committed))


def _checkpoint_files(folder: Path) -> Iterable[Target]:
    for name, pattern in (("manifest", "*.json"), ("tensors", "*.safetensors")):
        store = CheckpointStore(folder / name, keep=2)
        store.save(Checkpoint(5, {"model.w": torch.ones(3, 2)}, {"seed": "00", "history": []}))
        (path,) = store.directory.glob(pattern)

        def read(store: CheckpointStore = store) -> object:
            return store.load(5), store.steps()

        yield damaging(name, path, read)


def _small_files(folder: Path) -> Iterable[Target]:
    storage = FolderStorage(folder / "union")
    Journal(storage, GROUP.width, _DIGEST).begin_part(_DIGEST, 3)

    def going_on() -> object:
        journal = Journal(storage, GROUP.width, _DIGEST)
        return journal.token and (journal.drop_damaged(), journal.finished, journal.ids)

    yield damaging("journal", folder / "union" / "journal.json", going_on)
    audit = AuditFolder(folder)
    AuditRecord("active", AuditSettings(), 3).save(audit)
    (folder / MANIFEST).unlink()  # so that the readers see the damage
    yield damaging("audit", audit.record, lambda: AuditRecord.load(audit))
    learned = folder / "preprocessing"
    known = NumberRange(column="age", minimum=0.0, maximum=9.0)
    words = Vocabulary("city", pa.array(["Bern", "Graz"]))
    Preprocessing(PreprocessingSettings(), (known,), (words,)).save(learned)
    for name, file in (("preprocessing", "*.json"), ("vocabularies", "*.parquet")):
        (path,) = learned.glob(file)
        yield damaging(name, path, lambda: Preprocessing.load(learned))
    workspace = Workspace.create(folder / "pair")
    configuration = workspace.config("active")
    yield damaging("configuration", configuration, lambda: load_config(configuration))
    config = load_config(configuration)
    assert config.network.tls is not None
    for name in ("certificate", "key"):
        path = getattr(config.network.tls, name)
        yield damaging(name, path, lambda: own_credentials(config, plaintext=False))
