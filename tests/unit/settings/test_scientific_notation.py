"""Scientific notation that YAML 1.1 parses as a string is accepted in numeric fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.settings.loader import parse_section
from florist.common.settings.section import Section
from tests.support.settings import parse, with_value


class Numbers(Section):
    """One field of each kind."""

    rate: float = 0.5
    count: int = 1
    limit: float | None = None
    sizes: list[int] | None = None
    rates: list[float] | None = None
    name: str = "x"
    pair: tuple[float, ...] = ()


def load(text: str) -> Numbers:
    return parse_section(text, Numbers, folder=Path(), source="numbers.yml")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("1E3", 1000.0), ("1.5e3", 1500.0), ("-2e+1", -20.0), (".5e1", 5.0)],
)
def test_scientific_notation_is_a_number(text: str, value: float) -> None:
    assert load(f"rate: {text}").rate == value
    assert load(f"limit: {text}").limit == value
    assert load(f"rates: [1, {text}]").rates == [1.0, value]


def test_whole_numbers_in_scientific_notation() -> None:
    assert load("count: 6e5").count == 600_000
    assert load("sizes: [1e2, 3]").sizes == [100, 3]


def test_nested_sections() -> None:
    config = parse(with_value("optimiser.learning_rate", "1e-4"))
    assert config.optimiser.learning_rate == 0.0001
    assert parse(with_value("model.hidden", ["1e2", 64])).model.hidden == [100, 64]


def test_a_tuple_is_accepted_from_json() -> None:
    assert Numbers.model_validate_json('{"pair": [1, 2.5]}').pair == (1.0, 2.5)


def test_text_stays_text() -> None:
    assert load("name: 1e3").name == "1e3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count: 1e-3", "count: must be a whole number without quotes, not '1e-3'"),
        ("count: 1e300", "count: must be a whole number without quotes, not '1e300'"),
        ("rate: 1e999", "rate: must be a finite number"),
        ("rate: e3", "rate: must be a number without quotes, not 'e3'"),
        ("rate: 1e", "rate: must be a number without quotes, not '1e'"),
        ("rate: '5'", "rate: must be a number without quotes, not '5'"),
        ("rate: '\u0661e1'", "rate: must be a number without quotes"),
    ],
)
def test_anything_else_is_still_rejected(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(text)
    assert str(caught.value).startswith(f"numbers.yml: {expected}")
