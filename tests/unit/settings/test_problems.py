"""Invalid keys and values: the error names each key and the fix."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.settings import MINIMAL, problem, with_value


@pytest.mark.parametrize(
    ("dotted", "value", "expected"),
    [
        ("network.adress", "x", "network.adress: unknown key; did you mean `address`?"),
        ("agreement.grup", "x25519", "agreement.grup: unknown key; did you mean `group`?"),
        ("threads", 4, "threads: unknown key; did you mean `compute.threads`?"),
        (
            "compute.xyz",
            4,
            "compute.xyz: unknown key; expected one of `engine`, `threads`, `executor`, `ray",
        ),
        ("compute.1", 4, "compute.1: unknown key; expected one of"),
        ("compute.a\x1bb", 4, r"compute.'a\x1bb': unknown key"),
        ("party.name", "Clinic", "party.name: must be 1 to 63 lower-case letters, digits and hyph"),
        ("party.name", "-a", "party.name: must be 1 to 63"),
        ("party.name", "a" * 64, "party.name: must be 1 to 63"),
        ("party.name", "", "party.name: must be 1 to 63"),
        ("party.name", "a\n", "party.name: must be 1 to 63"),
        ("party.name", 7, "party.name: must be text, not 7; put it in quotes"),
        ("party.peer", "clinic", "party.peer: must differ from party.name, not 'clinic'"),
        ("party", None, "party: is empty; expected `name`, `peer`"),
        ("party", "clinic", "party: has no keys; expected `name`, `peer`"),
        ("network.address", "localhost", "network.address: must be host:port"),
        ("network.tls", {}, "network.tls.authority: missing; add it. PEM file with"),
        ("data.train.path", 5, "data.train.path: must be text, not 5"),
        ("data.train.path", None, "data.train.path: must be text, not empty"),
        ("data.train.path", ["a"], "data.train.path: must be text, not a list"),
        ("data.train.id_column", "", "data.train.id_column: must have at least 1 character, not"),
        ("data.train.id_column", True, "data.train.id_column: must be text, not True; put it in"),
        ("data.train.delimiter", ";;", "data.train.delimiter: must be one ASCII character"),
        ("data.train.delimiter", '"', "data.train.delimiter: must be one ASCII character"),
        ("data.train.delimiter", "\u00a7", "data.train.delimiter: must be one ASCII character"),
        ("data.test", {}, "data.test.path: missing; add it. Table with the same columns"),
        (
            "data.test",
            {"path": "a", "label": "y"},
            "data.test.label: unknown key; did you mean `data.",
        ),
        ("data.test", {"path": "a", "format": "x"}, "must be one of `same`, `plain`, `criteo`, `a"),
        ("data.test", {"path": "a", "delimiter": ";;"}, "data.test.delimiter: must be one ASCII c"),
        (
            "data.test",
            {"path": "a", "format": "criteo", "delimiter": ";"},
            "data.test.delimiter: must be '\\t' in this format, or omitted, not ';'",
        ),
        ("data.preprocessing.min_count", 0, "min_count: must be greater than or equal to 1, not"),
        ("data.preprocessing.scaling", "sqrt", "must be one of `linear`, `log`, not 'sqrt'"),
        ("alignment.dummies", -1, "alignment.dummies: must be greater than or equal to 0, not -1"),
        ("alignment.dummies", 1.5, "alignment.dummies: must be a whole number without quotes"),
        ("alignment.dummies", "5", "alignment.dummies: must be a whole number without quotes"),
        (
            "alignment.memory_limit",
            "much",
            "alignment.memory_limit: must be a number with a unit",
        ),
        ("alignment.memory_limit", "512", "alignment.memory_limit: must be a number with a unit"),
        ("training.table_memory", "0", "training.table_memory: must be a number with a unit"),
        ("alignment.memory_limit", "100MB", "alignment.memory_limit: must be at least 256MB"),
        ("alignment.memory_limit", 512, "alignment.memory_limit: must be text, not 512"),
        ("alignment.dummies", True, "alignment.dummies: must be a whole number without quotes"),
        (
            "compute.engine",
            "gpu",
            "must be one of `auto`, `ifma`, `avx2`, `cryptography`, `gmpy2`, not 'gpu'",
        ),
        ("timeouts.connect", 0, "timeouts.connect: must be greater than 0, not 0"),
        ("timeouts.connect", "5", "timeouts.connect: must be a number without quotes, not '5'"),
        ("timeouts.connect", float("inf"), "timeouts.connect: must be a finite number"),
        ("timeouts.connect", float("nan"), "timeouts.connect: must be a finite number"),
        ("timeouts.silence", 2.9, "timeouts.silence: must be greater than or equal to 3, not 2.9"),
        ("timeouts.silence", 14, "timeouts.silence: must be less than or equal to 13, not 14"),
        ("timeouts.stall", -5, "timeouts.stall: must be greater than 0"),
        (
            "agreement.id_normalisation",
            "lower",
            "agreement.id_normalisation: must be one of `none`, `strip`, `strip-lower`, not",
        ),
    ],
)
def test_the_error_names_the_key_and_the_fix(dotted: str, value: object, expected: str) -> None:
    assert expected in problem(with_value(dotted, value))


def test_the_error_for_a_missing_key_describes_it() -> None:
    values = {**MINIMAL, "party": {"name": "clinic"}}
    assert problem(values).startswith("party.peer: missing; add it. Name of the peer")


def test_a_key_that_is_not_text() -> None:
    values: dict[Any, Any] = {**MINIMAL, True: 1}
    assert "put it in quotes" in problem(values)


def test_all_problems_are_listed() -> None:
    values = with_value("compute.engine", "gpu")
    values["timeouts"] = {"silence": 99}
    values["colour"] = "red"
    del values["run_directory"]
    first, *lines = problem(values).split("\n")
    assert first == "4 problems:"
    assert [line.split(":")[0] for line in lines] == [
        "  run_directory",
        "  compute.engine",
        "  timeouts.silence",
        "  colour",
    ]


def test_a_pasted_private_key_is_not_shown() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----\n"
    tls = {"authority": "ca.pem", "certificate": "cert.pem", "key": pem}
    text = problem(with_value("network.tls", tls))
    assert text.startswith("network.tls.key: must be a path on one line")
    assert "MC4C" not in text
    assert "\n" not in text


def test_long_values_are_shortened() -> None:
    assert len(problem(with_value("compute.engine", "x" * 10_000))) < 300
