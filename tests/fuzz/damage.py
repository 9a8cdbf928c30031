"""Almost correct bytes, as a bad network, disk or peer could produce them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

#: At which lengths, counts, types and parsers break.
_NUMBERS = [b"\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\xff" * 9 + b"\1", b"\x80" * 11]
_TEXTS = [b"null", b"-1", b"1e999", b'"x"', b"[]", b"{}", b"NaN", b"18446744073709551616", b"\n"]
_TELLING = st.sampled_from([*_NUMBERS, *_TEXTS, b"[" * 2000])


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes], most: int = 4) -> bytes:
    """One of the seeds with a few changes; sometimes none of it is left."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from([0, 1, 1, 2, 4, 16, len(data)]))
        kind = draw(st.sampled_from(["replace", "telling", "telling", "repeat", "cut"]))
        if kind == "replace":
            piece = draw(st.binary(min_size=length, max_size=length + 1))
        elif kind == "telling":
            piece = draw(_TELLING)
        elif kind == "repeat":
            piece = data[start : start + length] * 2
        else:
            piece = b""
        data = data[:start] + piece + data[start + length :]
    return data
