"""Good vectors: the real roles produce, set by set, what the plain reference does."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from florist.common.groups import make_group
from florist.common.groups.group import Exponent
from florist.common.psu.keys import Keys
from florist.common.psu.union_protocol import EXCHANGES
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import SetChunk
from florist.common.transport.recording import RecordingLink
from tests.protocol.reference import VECTORS, all_vectors
from tests.support.psu import run_pair

FILES = sorted(path.name for path in VECTORS.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    vector: dict[str, Any] = json.loads((VECTORS / name).read_text(encoding="utf-8"))
    return vector


def keys(exponents: list[str]) -> Keys:
    """Return the exponents of a vector; those that its protocol does not use are 1."""
    numbers = [int(text, 16) for text in exponents] + [1, 1]
    return Keys(*map(Exponent, numbers[:4]))


@pytest.mark.parametrize("name", FILES)
def test_every_set_and_both_results_match_the_reference(name: str) -> None:
    vector = load(name)
    group = make_group(vector["group"])
    active_link, passive_link = linked_pair()
    recorded = RecordingLink(active_link)
    active, passive = run_pair(
        group,
        [x.encode() for x in vector["active_ids"]],
        [x.encode() for x in vector["passive_ids"]],
        (recorded, passive_link),
        (keys(vector["s"]), keys(vector["t"])),
        merging=vector["merging"],
    ).views()
    exchanges = EXCHANGES["algorithm-1" if vector["merging"] is None else "merged"]
    steps = [step for each in exchanges for step in (each.out, each.back) if step]
    hashes = {step: hashlib.sha256() for step in steps}
    for record in recorded.records:
        if isinstance(record.message, SetChunk):
            hashes[record.message.step].update(record.message.elements)
    assert {str(step.value): h.hexdigest() for step, h in hashes.items()} == vector["sets"]
    assert active.rank_of_own.tolist() == vector["active_ranks"]
    assert passive.rank_of_own.tolist() == vector["passive_ranks"]
    assert active.digest.hex() == passive.digest.hex() == vector["union_sha256"]


def test_the_committed_vectors_match_the_generator() -> None:
    made = all_vectors()
    assert sorted(made) == FILES
    for name, vector in made.items():
        assert load(name) == vector
