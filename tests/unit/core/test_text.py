"""Untrusted text becomes short, printable and on one line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.text import abbreviated, printable, quoted, quoted_few


@given(st.text(), st.integers(1, 20))
def test_everything_is_printable_and_short(text: str, limit: int) -> None:
    assert printable(text, limit).isprintable()
    assert len(printable(text, limit)) <= limit
    assert quoted(text, limit).isprintable()
    assert len(abbreviated(text, limit)) <= limit + len("...")


def test_quoted_shows_where_text_was_cut() -> None:
    assert quoted("ab\n") == r"'ab\n'"
    assert quoted("abcdef", 3) == "'abc'..."


def test_quoted_few_counts_the_rest() -> None:
    assert quoted_few(["a", 7], 2) == "'a', '7'"
    assert quoted_few(list("abcd"), 2) == "'a', 'b' and 2 more"
