"""The registry finds entries by name and rejects duplicates."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.core.registry import Registry


@dataclass(frozen=True)
class Entry:
    name: str


def test_entries_are_found_in_the_order_of_registration() -> None:
    registry = Registry[Entry]("label strategy")
    entries = [registry.register(Entry(name)) for name in ("b", "a")]
    assert registry.names == ("b", "a")
    assert [registry["b"], registry["a"]] == entries


def test_duplicate_names_are_rejected() -> None:
    registry = Registry[Entry]("label strategy")
    registry.register(Entry("a"))
    with pytest.raises(ValueError, match="label strategy 'a' is already registered"):
        registry.register(Entry("a"))


def test_the_error_for_an_unknown_name_lists_the_known_ones() -> None:
    registry = Registry[Entry]("label strategy")
    registry.register(Entry("a"))
    registry.register(Entry("b"))
    with pytest.raises(ConfigurationError, match="unknown label strategy 'c'; choose one of: a, b"):
        registry["c"]
