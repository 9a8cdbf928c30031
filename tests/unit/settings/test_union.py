"""The sections `agreement.union` and `privacy`: defaults, null, limits, differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.settings.agreement_differences import differences
from florist.common.settings.loader import parse_config
from florist.common.settings.union import CountPrivacy, OverlapLimits

if TYPE_CHECKING:
    from florist.common.settings.agreement import Agreement

BEFORE = """\
party: {name: clinic, peer: bank}
network: {address: "localhost:7000"}
data: {train: {path: people.csv, id_column: id}}
run_directory: runs/first
"""


def union(text: str) -> Agreement:
    whole = f"{BEFORE}agreement:\n  union:\n    {text}\n"
    return parse_config(whole, folder=Path("/somewhere"), source="file").agreement


def test_agreements_without_the_keys_have_the_defaults() -> None:
    config = parse_config(BEFORE, folder=Path("/somewhere"), source="file")
    assert config.agreement.union.privacy == CountPrivacy(epsilon=1.0, delta=1e-9)
    limits = OverlapLimits(minimum=1000, minimum_share=0.05, maximum_share=0.95)
    assert config.agreement.union.overlap == limits
    assert config.agreement.union.planted_pairs == 64
    assert config.privacy.ledger is None
    assert config.privacy.budget is not None
    assert (config.privacy.budget.epsilon, config.privacy.budget.delta) == (10, 1e-6)
    assert config.privacy.minimum_change == 1000


def test_null_and_partial_sections() -> None:
    assert union("privacy: null").union.privacy is None
    assert union("privacy: {epsilon: 0.1}").union.privacy == CountPrivacy(epsilon=0.1)
    assert union("privacy: {delta: 1e-12}").union.privacy == CountPrivacy(delta=1e-12)
    config = parse_config(
        f"{BEFORE}privacy: {{ledger: books, budget: null}}", folder=Path("/there"), source="file"
    )
    assert config.privacy.budget is None
    assert config.privacy.ledger == Path("/there/books")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("privacy: {epsilon: 0}", r"agreement\.union\.privacy\.epsilon: must be greater"),
        ("privacy: {delta: 0}", r"agreement\.union\.privacy\.delta: must be greater"),
        ("privacy: {delta: 1.0}", r"agreement\.union\.privacy\.delta: must be less"),
        ("privacy: 5", r"agreement\.union\.privacy: has no keys; expected `epsilon`, `delta`"),
        ("privacy: {epsilon: .nan}", r"agreement\.union\.privacy\.epsilon: must be"),
        ("overlap: {minimum: -1}", r"agreement\.union\.overlap\.minimum: must be greater"),
        ("overlap: null", r"agreement\.union\.overlap: is empty; expected `minimum`"),
        (
            "overlap: {minimum_share: 0.6, maximum_share: 0.5}",
            r"agreement\.union\.overlap\.maximum_share: must be at least minimum_share, not 0\.5",
        ),
        ("planted_pairs: -1", r"agreement\.union\.planted_pairs: must be greater"),
        ("privcy: null", "did you mean `privacy`"),
    ],
)
def test_invalid_values(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        union(text)


def test_different_settings_are_described_by_key() -> None:
    ours = union("{}").canonical()
    assert differences(ours, union("privacy: {epsilon: 0.1}").canonical()) == [
        "agreement.union.privacy.epsilon: 1.0 here, 0.1 at the peer"
    ]
    assert differences(ours, union("overlap: {minimum: 0}").canonical()) == [
        "agreement.union.overlap.minimum: 1000 here, 0 at the peer"
    ]


def test_a_section_that_is_null_at_one_party_is_one_line() -> None:
    ours, theirs = union("{}").canonical(), union("privacy: null").canonical()
    assert differences(ours, theirs) == [
        "agreement.union.privacy: {delta: 1e-09, epsilon: 1.0} here, null at the peer"
    ]
    assert differences(theirs, ours) == [
        "agreement.union.privacy: null here, {delta: 1e-09, epsilon: 1.0} at the peer"
    ]
