"""Comparing agreements: canonical text, one line per difference, untrusted input."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from florist.common.core.errors import ProtocolViolation
from florist.common.settings.agreement import Agreement
from florist.common.settings.agreement_differences import (
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_TEXT,
    differences,
)

OURS = Agreement().canonical()

names = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.lists(st.integers(0, 3), max_size=3)
)
objects = st.dictionaries(
    names,
    st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=5),
    max_size=4,
)


def canonical(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def fields(lines: list[str]) -> set[str]:
    return {line.partition(": ")[0] for line in lines}


def test_canonical_text() -> None:
    assert '"group":"x25519","id_normalisation":"strip",' in OURS
    assert canonical(json.loads(OURS)) == OURS
    assert differences(OURS, OURS) == []


def test_one_line_per_field() -> None:
    theirs = Agreement(group="modp2048", id_normalisation="none").canonical()
    assert differences(OURS, theirs) == [
        "agreement.group: x25519 here, modp2048 at the peer",
        "agreement.id_normalisation: strip here, none at the peer",
    ]


def test_nested_fields_and_fields_of_one_party() -> None:
    ours = canonical({"training": {"epochs": 3, "batch": 8192}, "same": [1, 2]})
    theirs = canonical({"training": {"epochs": 1, "rate": 0.1}, "same": [1, 2]})
    assert differences(ours, theirs) == [
        "agreement.training.batch: 8192 here, not set at the peer",
        "agreement.training.epochs: 3 here, 1 at the peer",
        "agreement.training.rate: not set here, 0.1 at the peer",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0, False), ("1", 1), ("null", None), ("true", True), ({}, None)],
)
def test_similar_values_are_distinguished(one: object, other: object) -> None:
    (line,) = differences(canonical({"x": one}), canonical({"x": other}))
    here, there = re.fullmatch(r"agreement\.x: (.*) here, (.*) at the peer", line).groups()  # type: ignore[union-attr]
    assert here != there


@given(objects, objects)
def test_differences_are_empty_if_equal_and_symmetric(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = canonical(one), canonical(other)
    assert (differences(first, second) == []) == (first == second)
    assert fields(differences(first, second)) == fields(differences(second, first))
    assert differences(first, first) == []


@pytest.mark.parametrize(
    "theirs",
    [
        "",
        "not JSON",
        "[]",
        "1",
        "null",
        '"text"',
        '{"a":1',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1,"a":2}',
        '{"a.b":1}',
        '{"":1}',
        '{"\\u001b[31m":1}',
        '{"a":"\n"}',
        '{"a":' + "9" * 5000 + "}",
        "[" * 60_000,
        '{"a":' * 10_000,
        '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
        '{"a":"' + "x" * MAX_TEXT + '"}',
        canonical({f"f{number}": 1 for number in range(MAX_FIELDS + 1)}),
    ],
)
def test_invalid_agreements(theirs: str) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        differences(OURS, theirs)
    assert len(str(caught.value)) < 100
    assert str(caught.value).isprintable()


@given(st.text() | st.text('{}[]":,a1\\u0', max_size=40))
def test_any_text_gives_short_printable_lines_or_an_error(theirs: str) -> None:
    try:
        lines = differences(OURS, theirs)
    except ProtocolViolation:
        return
    assert all(line.isascii() and line.isprintable() and len(line) < 1000 for line in lines)


def test_long_and_unprintable_values_are_shortened_and_escaped() -> None:
    theirs = canonical(json.loads(OURS) | {"group": "\x1b[2J\u202e" + "x" * 5000})
    (line,) = differences(OURS, theirs)
    assert line.startswith('agreement.group: x25519 here, "\\u001b[2J\\u202exxx')
    assert line.endswith("xxx... at the peer")
    assert len(line) < 150


def test_unknown_keys_and_values_are_rejected() -> None:
    with pytest.raises(ValidationError):
        Agreement.model_validate({"group": "x448"})
    with pytest.raises(ValidationError):
        Agreement.model_validate({"grup": "x25519"})
    with pytest.raises(ValidationError):
        Agreement().group = "modp2048"
