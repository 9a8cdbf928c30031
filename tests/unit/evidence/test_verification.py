"""Evidence is checked offline; nothing in it can be changed without notice."""

from __future__ import annotations

import json
import stat
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.evidence.evidence_file import (
    StageEvidence,
    load_evidence,
    load_stage_evidence,
    log_facts,
    save_evidence,
    save_run_evidence,
)
from florist.common.evidence.verification import verify_run, verify_stage
from florist.common.transport.certificate_files import load_certificates
from tests.support.certificates import PASSIVE, Trust
from tests.unit.evidence.pairs import complete_evidence, connected, exchanged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cryptography import x509

    from florist.common.transport.credentials import Credentials


@pytest.fixture(scope="module")
def evidence(active: Credentials, passive: Credentials) -> StageEvidence:
    return complete_evidence(active, passive)


@pytest.fixture(scope="module")
def authorities(active: Credentials) -> list[x509.Certificate]:
    return load_certificates(active.authority)


def problems(evidence: StageEvidence, authorities: list[x509.Certificate]) -> list[str]:
    return [check.problem for check in verify_stage(evidence, authorities) if check.problem]


def test_good_evidence(evidence: StageEvidence, authorities: list[x509.Certificate]) -> None:
    checks = verify_stage(evidence, authorities)
    assert len(checks) == 4
    assert problems(evidence, authorities) == []


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """The paths of all values."""
    if isinstance(value, dict) and value:
        for key in value:
            yield from leaves(value[key], (*path, key))
    else:
        yield path


def changed(value: Any) -> Any:  # noqa: ANN401
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() if value.startswith("-----"):
            return value.replace("A", "B", 1)
        case str():
            return ("1" if value[:1] != "1" else "2") + value[1:]
        case None:
            return "something"
        case _:
            return {"something": 1}


def test_no_field_can_be_changed(
    evidence: StageEvidence, authorities: list[x509.Certificate], tmp_path: Path
) -> None:
    save_evidence(tmp_path, "align", evidence)
    path = tmp_path / "align.json"
    content = json.loads(path.read_text())
    paths = list(leaves(content))
    assert len(paths) > 40
    for where in paths:
        copy = json.loads(path.read_text())
        *above, last = where
        part = copy
        for key in above:
            part = part[key]
        part[last] = changed(part[last])
        other = tmp_path / "other.json"
        other.write_text(json.dumps(copy))
        try:
            found = problems(load_stage_evidence(other), authorities)
        except ConfigurationError:
            continue
        assert found, where


def test_no_field_can_be_added_or_removed(
    evidence: StageEvidence, authorities: list[x509.Certificate]
) -> None:
    record = evidence.record
    for wrong in (
        replace(evidence, record=record | {"more": 1}),
        replace(evidence, record={key: record[key] for key in record if key != "agreement"}),
        replace(evidence, record={}),
        replace(evidence, local={}),
        replace(evidence, local=evidence.local | {"role": "passive"}),
        replace(evidence, signatures={}),
    ):
        assert problems(wrong, authorities)


def test_swapped_signatures(evidence: StageEvidence, authorities: list[x509.Certificate]) -> None:
    one, other = evidence.signatures["active"], evidence.signatures["passive"]
    swapped = replace(evidence, signatures={"active": other, "passive": one})
    assert "certificate is not the one in the record" in " ".join(problems(swapped, authorities))
    keys = replace(
        evidence,
        signatures={
            "active": replace(one, signature=other.signature),
            "passive": replace(other, signature=one.signature),
        },
    )
    assert problems(keys, authorities) == ["the signature is wrong"] * 2


def test_another_authority(evidence: StageEvidence, tmp_path: Path) -> None:
    stranger = Trust.create(tmp_path)
    found = problems(evidence, load_certificates(stranger.files.certificate))
    assert found == ["the certificate was not issued by the authority"] * 2


def test_a_missing_signature_of_the_peer(
    active: Credentials, authorities: list[x509.Certificate]
) -> None:
    sides = connected(active, None)
    stored = sides["active"].stored(exchanged(sides)["active"])
    found = problems(stored, authorities)
    assert any("there is none: the peer did not sign" in problem for problem in found)


def test_a_signature_that_the_writer_did_not_accept(
    active: Credentials, authorities: list[x509.Certificate], tmp_path: Path
) -> None:
    sides = connected(active, Trust.create(tmp_path).party(PASSIVE))
    stored = sides["active"].stored(exchanged(sides)["active"])
    assert any("not issued" in problem for problem in problems(stored, authorities))


def test_stages_of_different_runs(
    evidence: StageEvidence, active: Credentials, passive: Credentials
) -> None:
    def with_statement(**changes: object) -> StageEvidence:
        statement = evidence.record["statement"] | changes
        return replace(evidence, record=evidence.record | {"statement": statement})

    model, other = {"run": "1"}, {"run": "2"}
    trained = with_statement(stage="train", model=model)
    evaluated = with_statement(stage="evaluate", model=model)
    assert not verify_run([evidence, trained, evaluated]).problem
    for wrong in (
        with_statement(stage="evaluate", model=other),
        with_statement(stage="evaluate", parties={"active": "x", "passive": "y"}),
        with_statement(stage="evaluate", unions={"train": {}}),
        with_statement(stage="train"),
        replace(evidence, record={}),
    ):
        assert verify_run([evidence, trained, wrong]).problem


def test_files(evidence: StageEvidence, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    path = save_evidence(folder, "align", evidence)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert load_stage_evidence(path) == evidence
    everything = tmp_path / "all.json"
    save_run_evidence(everything, [evidence, evidence])
    assert load_evidence(everything) == [evidence, evidence]
    assert load_evidence(path) == [evidence]
    with pytest.raises(ConfigurationError, match="not evidence"):
        load_stage_evidence(everything)


def test_files_that_are_not_evidence(evidence: StageEvidence, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for content in (
        "",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps(asdict(evidence) | {"format": "other"}),
        json.dumps(asdict(evidence) | {"record": []}),
        json.dumps({"format": "florist/evidence-run/1", "stages": [{}]}),
    ):
        path.write_text(content)
        with pytest.raises(ConfigurationError, match=r"damaged|not evidence"):
            load_evidence(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_evidence(tmp_path / "missing.json")


def test_the_digest_of_a_log(tmp_path: Path) -> None:
    assert "no log file" in log_facts(None)["why"]
    assert "cannot be read" in log_facts(tmp_path / "missing")["why"]
    (tmp_path / "log").write_bytes(b"abc")
    found = log_facts(tmp_path / "log")
    assert found["sha256"].startswith("ba7816bf")
    assert found["bytes"] == 3
