"""The format of an ID column, without any ID: what two parties compare before they align."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from florist.common.data.category_counts import sum_counts

#: Patterns that are counted; IDs of more different forms, such as hashes, have no pattern.
_MAX_PATTERNS = 20

#: How a run of characters of each class is shown.
_RUNS = (("[0-9]+", "9"), ("[A-Z]+", "A"), ("[a-z]+", "a"), (r"[^\x00-\x7f]+", "ü"))


@dataclass(frozen=True, slots=True)
class IdFormat:
    """What all IDs of a column look like."""

    column: str
    count: int
    #: In characters.
    shortest: int
    longest: int
    #: Shares of the IDs, from 0 to 1.
    leading_zeros: float
    upper_case: float
    lower_case: float
    only_digits: float
    #: Patterns, most frequent first, with their shares: 9 stands for digits, A and a for letters,
    #: ü for characters that are not ASCII; all others stand for themselves. Empty if IDs have too
    #: many forms.
    patterns: tuple[tuple[str, float], ...]

    def describe(self) -> str:
        """Return the format in a sentence that contains no ID, so the peer may read it."""
        length = (
            f"{self.shortest}"
            if self.shortest == self.longest
            else f"{self.shortest} to {self.longest}"
        )
        letters = {
            (True, True): "upper and lower case",
            (True, False): "upper case",
            (False, True): "lower case",
            (False, False): "no letters",
        }[self.upper_case > 0, self.lower_case > 0]
        zeros = f"{_percent(self.leading_zeros)} start with 0"
        few = ", ".join(f"{pattern} ({_percent(share)})" for pattern, share in self.patterns[:3])
        return (
            f"{length} characters; {zeros}; {letters}; {_percent(self.only_digits)} digits only; "
            f"patterns: {few or 'too many different ones'}"
        )


class IdFormatReader:
    """Reads the format of an ID column part by part."""

    def __init__(self, column: str) -> None:
        self.column = column
        self._count = 0
        self._shortest, self._longest = 1 << 62, 0
        self._shares = {"zeros": 0, "upper": 0, "lower": 0, "digits": 0}
        self._patterns: pa.StructArray | None = None
        self._has_patterns = True

    def add(self, ids: pa.Array) -> None:
        """Add the next IDs, at least one, as normalised."""
        self._count += len(ids)
        lengths = pc.min_max(pc.utf8_length(ids)).as_py()
        self._shortest = min(self._shortest, lengths["min"])
        self._longest = max(self._longest, lengths["max"])
        for name, pattern in (
            ("zeros", "^0."),
            ("upper", "[A-Z]"),
            ("lower", "[a-z]"),
            ("digits", "^[0-9]+$"),
        ):
            found = pc.sum(pc.match_substring_regex(ids, pattern)).as_py()
            self._shares[name] += found or 0
        if self._has_patterns:
            self._add_patterns(ids)

    def _add_patterns(self, ids: pa.Array) -> None:
        for pattern, shown in _RUNS:
            ids = pc.replace_substring_regex(ids, pattern, shown)
        counted = pc.value_counts(ids)
        known = [] if self._patterns is None else [self._patterns]
        self._patterns = sum_counts([*known, counted])
        self._has_patterns = len(self._patterns) <= _MAX_PATTERNS

    def format(self) -> IdFormat:
        """Return the format of all IDs so far, at least one."""
        patterns: tuple[tuple[str, float], ...] = ()
        if self._has_patterns and self._patterns is not None:
            counted = sorted(
                self._patterns.to_pylist(), key=lambda each: (-each["counts"], each["values"])
            )
            patterns = tuple((each["values"], each["counts"] / self._count) for each in counted)
        shares = {name: count / self._count for name, count in self._shares.items()}
        return IdFormat(
            self.column,
            self._count,
            self._shortest,
            self._longest,
            shares["zeros"],
            shares["upper"],
            shares["lower"],
            shares["digits"],
            patterns,
        )


def _percent(share: float) -> str:
    return f"{share:.0%}" if share in (0, 1) or 0.005 <= share <= 0.995 else f"{share:.2%}"
