"""Any bytes from the peer or from a disk are accepted or clearly refused."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from florist.common.cluster.branch_codec import decode_reply
from florist.common.cluster.branch_messages import RowBlock
from florist.common.core.errors import ConfigurationError, InternalError
from tests.fuzz.application_targets import APPLICATION_MESSAGES, application_file_targets
from tests.fuzz.damage import damaged
from tests.fuzz.targets import MESSAGES, file_targets
from tests.fuzz.transfer_targets import TRANSFER_MESSAGES

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

#: More of the same: FUZZ_EXAMPLES=5000.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))

quick = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)

FILES = (
    "alignment",
    "ranks",
    "history",
    "stage evidence",
    "commitment.json",
    "commitment.key",
    "manifest",
    "tensors",
    "journal",
    "audit",
    "preprocessing",
    "vocabularies",
    "configuration",
    "certificate",
    "key",
    "model",
    "run facts",
    "csv",
    "gzip",
    "parquet",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    folder = tmp_path_factory.mktemp("files")
    targets = (*file_targets(folder), *application_file_targets(folder))
    found = {target.name: target for target in targets}
    assert found.keys() == set(FILES)
    return found


@pytest.mark.parametrize(
    "target",
    [*MESSAGES, *APPLICATION_MESSAGES, *TRANSFER_MESSAGES],
    ids=lambda target: target.name,
)
def test_messages_are_accepted_or_refused(target: Target) -> None:
    @quick
    @given(damaged(target.seeds) | st.binary(max_size=300))
    def holds(data: bytes) -> None:
        target(data)

    for seed in target.seeds:
        target(seed)
    holds()


@pytest.mark.parametrize("target", TRANSFER_MESSAGES, ids=lambda target: target.name)
def test_valid_messages_of_transfers_are_accepted(target: Target) -> None:
    """Else the damage above would prove nothing."""
    assert target.run(target.seeds[0]) is not None


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_refused(name: str, files: dict[str, Target]) -> None:
    target = files[name]

    @quick
    @given(damaged(target.seeds))
    def holds(data: bytes) -> None:
        target(data)

    holds()


@pytest.mark.parametrize("name", FILES)
def test_a_whole_file_is_read(name: str, files: dict[str, Target]) -> None:
    """Else the damage above would prove nothing."""
    assert files[name].run(files[name].seeds[0]) is not None


def test_not_a_number_in_a_model_is_damage(files: dict[str, Target]) -> None:
    (whole,) = files["model"].seeds
    calibration = b'"calibration": {"a": NaN, "b": [0.0], "when": "test"}'
    changed = whole.replace(b'"calibration": null', calibration)
    assert changed != whole
    with pytest.raises(ConfigurationError, match="is damaged"):
        files["model"].run(changed)


def test_facts_of_another_release_are_refused(files: dict[str, Target]) -> None:
    with pytest.raises(ConfigurationError, match="another release; restore it, or start over"):
        files["run facts"].run(b'{"seed": "00"}')


@pytest.mark.parametrize("data", [b"", b"\1", b"\1\xff\xff\0\0{}", b"\0{", b"\1\2\0\0\0{}"])
def test_a_malformed_reply_of_a_branch_is_an_error(data: bytes) -> None:
    with pytest.raises(InternalError, match="a malformed message"):
        decode_reply(RowBlock, data)


#: 4 MiB of each; the limit is for what decoding it takes on top, in MiB.
HUGE = {
    "an envelope of two million entries": 'b"\\x0a\\x00\\x22\\x00" * (LIMIT // 4)',
    "a list of four million steps": "in_entry(20, b'\\x22' + size(MANY) + b'\\5' * MANY)",
    "fields of no meaning": 'b"\\xf8\\x07\\x01" * (LIMIT // 3)',
    "groups within groups": 'b"\\xfb\\x07" * (LIMIT // 2)',
    "a greeting of 4 MiB": 'codec.encode(Hello(1, "x" * (LIMIT - 99), "", "", ""))',
    "a size of 2 GiB": 'b"\\x5a" + size(2**31 - 1) + bytes(LIMIT - 99)',
}

_MEASURE = """
import resource
from florist.common.transport import codec
from florist.common.core.errors import ProtocolViolation
from florist.common.transport.messages import MAX_MESSAGE_BYTES as LIMIT, Hello

def size(number):
    return bytes([number & 127 | 128]) + size(number >> 7) if number > 127 else bytes([number])

def in_entry(number, body):
    return size(number << 3 | 2) + size(len(body)) + body

MANY = LIMIT - 20
data = {data}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    codec.decode(data)
    print("taken")
except ProtocolViolation as violation:
    print("refused:", violation)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("what", HUGE)
def test_no_message_takes_much_more_memory_than_it_has_bytes(what: str) -> None:
    """In a process of its own, whose peak tells."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE.replace("{data}", HUGE[what])],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    outcome, grown = done.stdout.splitlines()
    assert outcome.startswith("refused:")
    assert int(grown) < 16 * 1024  # KiB
