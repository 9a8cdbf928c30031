"""`florist doctor`: useful to a supporter, and without anything private."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import florist
from florist.api.doctor import software
from florist.api.doctor.scrub import HIDDEN, Scrubber, own_words
from florist.cli.console import _JsonFormatter
from florist.cli.init import Names, write_first_files
from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.observability.final_page import save_final_page
from florist.common.observability.log_tail import LogLine
from florist.common.observability.snapshot import About
from florist.common.observability.status import Status
from florist.common.transport.certificates import create_authority, issue
from florist.experiments.sample_data import IdSample

if TYPE_CHECKING:
    from pathlib import Path

#: Planted in the configuration, in paths and in logs; none may be in a report.
PRIVATE = (
    *("riverbank", "mobilix", "zebra-host", "10.20.30.40", "clients_2031.csv", "patient_number"),
    *(
        "diagnosis_code",
        "PT-0099817",
        "0099817",
        "4711",
        "Kowalska",
        "MIGHAgEAMBMGByqGSM49",
        "s3cr3t",
    ),
    *("7443", "deadbeef" * 8),
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A party whose names, paths and columns are private."""
    home = tmp_path / "kowalska" / "clients_2031.csv"
    home.mkdir(parents=True)
    sample = IdSample(active=30, passive=30, shared=10)
    write_first_files(home, Names("riverbank", "mobilix"), "zebra-host:7443", sample)
    path = home / "active.yml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values["data"]["train"] |= {
        "path": "clients_2031.csv",
        "id_column": "patient_number",
        "label": "diagnosis_code",
        "na_values": ["s3cr3t", "4711"],
    }
    values["network"]["tls"]["peer_key_sha256"] = "deadbeef" * 8
    values["compute"] = {"threads": 3, "engine": "cryptography"}
    values["training"] = {"seed": 4711}
    values["observability"] = {"textfile": "party.prom"}
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def json_log(path: Path, *messages: str, level: int = logging.ERROR) -> None:
    """Write a log as `--log-file` does."""
    lines = []
    for message in messages:
        record = logging.LogRecord("florist.session", level, "", 1, message, None, None)
        record.error, record.exit_code = "ConfigurationError", 2
        lines.append(_JsonFormatter().format(record))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def private_parts(text: str) -> list[str]:
    return [word for word in PRIVATE if word.lower() in text.lower()]


def test_a_report_describes_the_machine_and_the_setup(config: Path) -> None:
    text = florist.doctor(config)
    assert f"- florist: {florist.__version__}, protocol " in text
    assert re.search(r"^- cryptography: [0-9.]+$", text, re.MULTILINE)
    assert re.search(r"^- torch: [0-9.]+", text, re.MULTILINE)
    assert "- engine cryptography: works" in text
    assert re.search(r"^- open files: [0-9]+", text, re.MULTILINE)
    assert re.search(r"^- run_directory: [0-9.]+ .B free of ", text, re.MULTILINE)
    assert "- compute.threads: 3" in text
    assert "- compute.engine: cryptography" in text
    assert "- training.seed: (set)" in text
    assert re.search(
        r"^- network.tls.certificate: .* 36[45] days left; secp256r1$", text, re.MULTILINE
    )
    assert "the key belongs to the certificate" in text
    assert "- stage align: not started" in text
    assert not private_parts(text)


def test_nothing_private_in_logs_reaches_the_report(config: Path, tmp_path: Path) -> None:
    key = "-----BEGIN PRIVATE KEY----- MIGHAgEAMBMGByqGSM49 -----END PRIVATE KEY-----"
    leaky = [
        f"{config}: data.train.path: {config.parent / 'data.csv'} does not exist; check the path",
        "cannot reach zebra-host:7443 (10.20.30.40)",
        "the ID 'PT-0099817' of Kowalska occurs twice, in rows 4711 and 0099817",
        f"the key is {key}",
        "column diagnosis_code has the value s3cr3t",
        "riverbank lost mobilix",
    ]
    json_log(tmp_path / "party.jsonl", *leaky)
    text_log = tmp_path / "party.txt"
    text_log.write_text(
        "Kowalska started the party\n"
        "2026-03-01 10:00:00,123 INFO PT-0099817 is fine\n"
        "2026-03-01 10:00:01,123 ERROR a bug in FLORIST: PT-0099817\n"
        "Traceback (most recent call last):\n"
        '  File "/home/kowalska/florist/common/core/text.py", line 12, in printable\n'
        "    return PT-0099817\n"
        '  File "/venv/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in linear\n'
        '  File "/home/kowalska/riverbank/api/4711.py", line 3, in s3cr3t\n'
        "ValueError: PT-0099817 is not one of Kowalska's\n"
        "2026-03-01 10:00:02,123 WARNING [mobilix] is away\n",
        encoding="utf-8",
    )
    text = florist.doctor(config, [tmp_path / "party.jsonl", text_log])
    assert not private_parts(text)
    assert f"ConfigurationError exit code 2: {HIDDEN} data.train.path: {HIDDEN} does not" in text
    assert "does not exist; check the path" in text
    assert "florist.session" in text
    assert "common/core/text.py:12 in printable" in text
    assert "torch/nn/functional.py:9 in linear" in text
    assert "  ValueError" in text
    assert "Log 1" not in text
    assert "INFO" not in text


def test_a_json_log_may_have_prefixes_and_fields_of_any_type(tmp_path: Path) -> None:
    """A container engine adds its own, and a line may not be a party's at all."""
    entry = {"time": "2026-03-01T10:00:00+00:00", "level": "error", "message": "the peer is away"}
    lines = [
        "party-1  | " + json.dumps(entry | {"exit_code": "PT-0099817", "logger": {"a": 4711}}),
        json.dumps(entry | {"time": "PT-0099817"}),
        json.dumps({"level": "error"}),
        "{" * 100_000,
        json.dumps(entry | {"logger": "PT-0099817", "error": "Kowalska", "exit_code": 3}),
    ]
    path = tmp_path / "party.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = florist.doctor(logs=[path]).partition("log 1")[2]
    assert not private_parts(text)
    assert text.count("the peer is away") == 2
    assert f"error {HIDDEN} {HIDDEN} exit code 3: the peer is away" in text


def test_only_the_last_records_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "party.log"
    json_log(path, *["the certificate is damaged"] * 30, "the peer is away")
    text = florist.doctor(logs=[path])
    assert text.count("the certificate is damaged") == 19
    assert text.rstrip().endswith("the peer is away")
    json_log(path, "all is well", level=logging.INFO)
    assert "no errors or warnings found" in florist.doctor(logs=[path])


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--log .*party.log: cannot be read"):
        florist.doctor(logs=[tmp_path / "party.log"])


def test_an_invalid_configuration_is_reported_without_its_values(config: Path) -> None:
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    values["compute"]["engine"] = "s3cr3t"
    values["Kowalska"] = 4711
    config.write_text(yaml.safe_dump(values), encoding="utf-8")
    text = florist.doctor(config)
    assert "- invalid: " in text
    assert "compute.engine: " in text
    assert not private_parts(text)


@pytest.mark.parametrize(
    ("age", "state"),
    [
        (timedelta(days=-2), "NOT VALID YET by this machine's clock"),
        (timedelta(days=40), "EXPIRED by this machine's clock"),
    ],
)
def test_the_clock_is_compared_with_the_certificates(
    config: Path, age: timedelta, state: str
) -> None:
    assert "by this machine's clock" not in florist.doctor(config)
    folder = config.parent / "certificates"
    then = datetime.now(UTC) - age
    files = create_authority(folder, "Kowalska", 30, force=True, now=then)
    issue(files, "riverbank", [], folder, 20, force=True, now=then)
    text = florist.doctor(config)
    assert text.count(state) == 2
    assert "- problem: network.tls.certificate: " in text
    assert not private_parts(text)


def test_problems_of_certificates_name_the_setting(config: Path) -> None:
    folder = config.parent / "certificates"
    (folder / "riverbank.key").chmod(0o644)
    (folder / "authority.pem").unlink()
    text = florist.doctor(config)
    assert "- problem: network.tls.key: other users can read this key; run chmod" in text
    assert "- problem: network.tls.authority: does not exist; check the path" in text
    assert not private_parts(text)


def test_the_state_of_the_run_is_shown(config: Path) -> None:
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    runs = config.parent / values["run_directory"]
    (runs / "alignment").mkdir()
    (runs / "training").mkdir()
    (runs / "training" / ".pending").touch()
    runs.chmod(0o755)
    (config.parent / "party.prom").write_text(
        'florist_exit_code{party="riverbank",peer="mobilix",role="active"} 7.0\n', encoding="utf-8"
    )
    text = florist.doctor(config)
    assert "- stage align: complete" in text
    assert "- stage train: finished here; whether the peer has its result is not known" in text
    assert "- stage evaluate: not started" in text
    assert "other users can list the run directory" in text
    assert "- last exit code: 7" in text
    assert "FUTURE" not in text
    future = time.time() + 86400
    os.utime(runs / "training", (future, future))
    assert "from the FUTURE" in florist.doctor(config)


def test_the_last_status_page_is_read(config: Path) -> None:
    """As a party leaves it in its run directory."""
    settings = florist.load_config(config)
    lines = (
        LogLine("2026-03-01T10:00:00+00:00", "info", "Kowalska"),
        LogLine("2026-03-01T10:00:01+00:00", "warning", "the peer PT-0099817 is away"),
    )
    status = Status(About("riverbank", "mobilix", "active", "1"), log=lambda: lines)
    status.fail(f"{config}: does not exist; check the path", "Kowalska helps")
    save_final_page(settings.run_directory, status.snapshot())
    text = florist.doctor(config).partition("## Last status page")[2]
    assert f"state: failed: {HIDDEN} does not exist; check the path" in text
    assert f"warning: the peer {HIDDEN} is away" in text
    assert not private_parts(text)
    (settings.run_directory / "status.html").write_text("PT-0099817", encoding="utf-8")
    assert "the page cannot be read" in florist.doctor(config)


def test_environment_variables_are_named_without_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://Kowalska:s3cr3t@zebra-host")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "4711")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("KOWALSKA_TOKEN", "s3cr3t")
    found = dict(software.environment())
    assert found["https_proxy"] == found["RAY_AUTH_TOKEN"] == "set"
    assert found["OMP_NUM_THREADS"] == "2"
    assert "KOWALSKA_TOKEN" not in found


def test_the_command_writes_a_file_for_its_owner(config: Path, tmp_path: Path) -> None:
    output = tmp_path / "support.md"
    app(["doctor", "--config", str(config), "--output", str(output)], standalone_mode=False)
    assert output.read_text(encoding="utf-8").startswith("# FLORIST support report")
    assert output.stat().st_mode & 0o777 == 0o600


@given(st.lists(st.from_regex(r"[A-Za-z0-9@_:/.'\"-]{1,30}", fullmatch=True), max_size=8))
def test_only_own_words_survive(words: list[str]) -> None:
    for word in Scrubber().scrub(" ".join(words)).split():
        core = word.strip(".,;:!?()[]{}<>'\"`→")
        assert word == HIDDEN or core in own_words() or len(word) <= 3
        assert word == HIDDEN or core == "" or not core.isdigit()


def test_own_words_have_no_numbers_and_no_paths() -> None:
    assert "certificate" in own_words()
    assert "network.tls.peer_key_sha256" in own_words()
    assert not [word for word in own_words() if word.isdigit() or "/" in word]


def test_names_of_the_configuration_are_hidden_even_if_they_are_own_words() -> None:
    scrubber = Scrubber(["Certificate", "/data/report"])
    assert scrubber.scrub("the certificate, the report.") == f"the {HIDDEN} the {HIDDEN}"
