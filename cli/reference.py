"""Writes `docs/reference/configuration.md` from the configuration's own descriptions.

`python -m florist.cli.reference > docs/reference/configuration.md`
"""

from __future__ import annotations

import sys

from florist.cli.templates import yaml_value
from florist.common.settings.keys import Key, describe_keys
from florist.common.settings.party_config import PartyConfig

_BEFORE = """\
# Configuration

Each party has one YAML file (UTF-8), which only it reads; `florist init` writes one with a comment
for every key, and `florist preflight --config FILE` checks it. Relative paths start from the folder
of the file. A key that is unknown, missing, given twice or of the wrong type is refused before the
peer is called; all problems are listed at once, each with its key.

Keys of **both** must be the same in the files of both parties. They are compared when the parties
meet; a difference ends the run on both sides, with a line per key.

<!-- This page is generated: python -m florist.cli.reference > docs/reference/configuration.md -->

| key | default | set by | meaning |
|---|---|---|---|
"""

_AFTER = """
## IDs

Two rows are one person when their IDs are equal: byte for byte, in UTF-8, after the normalisation
on which the parties agreed.

* `none` leaves an ID as it is.
* `strip` removes white space from both ends: U+0009 to U+000D, U+001C to U+0020, U+0085, U+00A0,
  U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F and U+3000. White space inside an ID
  stays. Zero-width characters (U+200B, U+FEFF) are not white space and stay.
* `strip-lower` does that, then turns the letters A to Z into a to z, and no others: `É` stays `É`.
  The rules for other letters change between releases of Unicode, and the two sides must never
  differ.

No Unicode normal form is applied: the same accented letter as one code point (U+00E9) and as two
(U+0065 U+0301) makes two IDs. Where IDs have letters beyond ASCII, both parties should write them
in the same form (NFC) and case when they make their tables.

From CSV files IDs are read as text and never as numbers, so `007` and `7` differ; a value between
double quotes is taken without them; `NA` and `null` are IDs like any other. Lines with nothing on
them are no rows. From Parquet files strings, binary values (when they are UTF-8) and whole numbers
(as decimal digits) are taken; floating-point, decimal, date and other columns are refused, since
their text is not exact: write such IDs as strings.

A table with an ID missing, empty or repeated (after normalisation) is refused before the peer is
called. How many, and the first few, is told to this party only.
"""


def page() -> str:
    """The whole text of `docs/reference/configuration.md`."""
    keys = list(describe_keys(PartyConfig))
    optional_sections = {key.path for key in keys if key.is_section and key.optional}
    rows = [
        _row(key, "required in it" if key.path[:-1] in optional_sections else "required")
        for key in keys
        if not key.is_section or key.optional
    ]
    return _BEFORE + "".join(rows) + _AFTER


def _row(key: Key, required: str) -> str:
    default = required if key.required else f"`{yaml_value(key.default)}`"
    owner = "**both**" if key.agreed else "this party"
    meaning = key.meaning.replace("|", r"\|")
    return f"| `{key.dotted}` | {default} | {owner} | {meaning} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
