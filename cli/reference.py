"""Generates `docs/reference/configuration.md` from the descriptions of the keys.

`python -m florist.cli.reference > docs/reference/configuration.md`
"""

from __future__ import annotations

import sys
from itertools import groupby

from florist.cli.templates import yaml_value
from florist.common.settings.keys import Key, describe_keys
from florist.common.settings.party_config import PartyConfig

_BEFORE = """\
# Configuration

Each party has its own configuration: a YAML file in UTF-8 that only this party reads.
`florist init` writes one with a comment for every key, and `florist preflight --config FILE` checks
it. Relative paths start from the folder of the file. Unknown, missing and duplicate keys and values
of the wrong type are rejected before the parties connect; all problems are listed at once, each
with its key.

Keys marked **both** must have the same value at both parties. The parties compare them when they
connect; if any differ, the run stops at both parties, with one line per key.

Keys of earlier releases still work in this release, with a warning that names the new key.

<!-- This page is generated: python -m florist.cli.reference > docs/reference/configuration.md -->
"""

_TABLE = """
| key | default | set by | meaning |
|---|---|---|---|
"""

_AFTER = """
## IDs

Two rows belong to the same person if their IDs are equal: byte for byte, in UTF-8, after the agreed
normalisation (`agreement.id_normalisation`):

* `none` leaves IDs as they are.
* `strip` removes whitespace from both ends: U+0009 to U+000D, U+001C to U+0020, U+0085, U+00A0,
  U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F and U+3000. Whitespace inside an ID
  is kept. Zero-width characters (U+200B, U+FEFF) are not whitespace and are kept.
* `strip-lower` also converts the letters A to Z to a to z, and no others: `É` stays `É`. The rules
  for other letters change between Unicode versions, and the two parties must never differ.

IDs are not converted to a Unicode normal form: an accented letter as one code point (U+00E9) and as
two (U+0065 U+0301) gives two different IDs. If IDs contain letters beyond ASCII, both parties
should write them in the same form (NFC) and case.

In CSV files, IDs are read as text, never as numbers, so `007` and `7` differ; double quotes around
a value are removed; `NA` and `null` are ordinary IDs; empty lines are skipped. In Parquet files, ID
columns may be strings, binary values (valid UTF-8) or integers (read as decimal digits);
floating-point, decimal, date and other columns are rejected because their text is not exact: write
such IDs as strings.

A table with a missing, empty or duplicate ID (after normalisation) is rejected before the parties
connect. Only this party sees how many there are, and the first few of them.
"""


def page() -> str:
    """Return the text of the page: a table per section of the configuration."""
    keys = list(describe_keys(PartyConfig))
    optional = {key.path for key in keys if key.is_section and key.optional}
    parts = [_BEFORE]
    for name, group in groupby(keys, key=lambda key: key.path[0]):
        section = list(group)
        parts.append(f"\n## `{name}`\n\n{section[0].meaning}\n{_TABLE}")
        parts += [
            _row(key, in_optional_section=key.path[:-1] in optional)
            for key in section
            if not key.is_section or key.optional
        ]
    return "".join(parts) + _AFTER


def _row(key: Key, *, in_optional_section: bool) -> str:
    section = ".".join(key.path[:-1])
    required = f"required if `{section}` is set" if in_optional_section else "required"
    default = required if key.required else f"`{yaml_value(key.default)}`"
    owner = "**both**" if key.agreed else "this party"
    meaning = key.meaning.replace("|", r"\|")
    return f"| `{key.dotted}` | {default} | {owner} | {meaning} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
