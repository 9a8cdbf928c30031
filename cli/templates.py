"""The configuration files that `florist init` writes: every key, with a comment."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from florist.common.core.errors import ConfigurationError
from florist.common.settings.keys import describe_keys
from florist.common.settings.loader import parse_config
from florist.common.settings.party_config import PartyConfig
from florist.common.settings.section import Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from florist.common.core.roles import RoleName
    from florist.common.settings.keys import Key
    from florist.common.settings.network import Tls

_WIDTH = 92


def party_config_text(
    *,
    role: RoleName,
    name: str,
    peer: str,
    address: str,
    data_path: Path,
    id_column: str,
    run_directory: Path,
    tls: Tls | None = None,
    changes: Mapping[str, object] | None = None,
) -> str:
    """Return a commented YAML file with every key; optional keys have their defaults.

    Args:
        role: value of `role`.
        name: value of `party.name`.
        peer: value of `party.peer`.
        address: value of `network.address`.
        data_path: value of `data.train.path`; paths are written as they are given.
        id_column: value of `data.train.id_column`.
        run_directory: value of `run_directory`.
        tls: value of `network.tls`; None writes `null`.
        changes: further values by dotted key, such as `{"compute.threads": 2}`; None for the key of
            an optional section writes `null` instead of its keys.

    Raises:
        ConfigurationError: a value is invalid, or `changes` contains an unknown key.
    """
    values: dict[str, object] = {
        "role": role,
        "party.name": name,
        "party.peer": peer,
        "network.address": address,
        "data.train.path": data_path,
        "data.train.id_column": id_column,
        "run_directory": run_directory,
        **({f"network.tls.{file}": path for file, path in tls} if tls else {}),
        **(changes or {}),
    }
    text = "\n".join([*_heading(role, name, peer), *_body(values)]) + "\n"
    parse_config(text, folder=Path(), source="the new configuration")
    return text


def _heading(role: RoleName, name: str, peer: str) -> Iterator[str]:
    other = "passive" if role == "active" else "active"
    yield f"# FLORIST configuration of {name} ({role} party); its peer is {peer} ({other} party)."
    yield "#"
    yield "#   check:  florist preflight --config FILE"
    yield "#   run:    florist-party --config FILE"
    yield "#"
    yield "# Relative paths start from the folder of this file. Optional keys show their defaults."


def _body(values: dict[str, object]) -> Iterator[str]:
    keys = list(describe_keys(PartyConfig))
    nulls = {key.dotted for key in keys if key.is_section and key.nullable and key.dotted in values}
    known = nulls | {key.dotted for key in keys if not key.is_section}
    if unknown := values.keys() - known:
        raise ConfigurationError(f"{min(unknown)}: unknown key")
    skipped = ""
    for key in keys:
        if skipped and key.dotted.startswith(skipped):
            continue
        indent = "  " * (len(key.path) - 1)
        if not indent:
            yield ""
        yield from textwrap.wrap(
            key.meaning, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        entry = f"{indent}{key.path[-1]}:"
        if not key.is_section:
            yield f"{entry} {yaml_value(values.get(key.dotted, key.default))}"
        elif key.dotted in nulls or (
            _has_no_keys(key) and not any(name.startswith(f"{key.dotted}.") for name in values)
        ):
            skipped = f"{key.dotted}."
            yield f"{entry} {yaml_value(None if key.dotted in nulls else key.default)}"
        else:
            yield entry


def _has_no_keys(key: Key) -> bool:
    """Return whether a section is, by default, null or a value such as `auto`."""
    return not key.required and not isinstance(key.default, Section)


def yaml_value(value: object) -> str:
    """Return a value as YAML on one line; parsing it returns the same value."""
    plain = str(value) if isinstance(value, Path) else value
    text = yaml.safe_dump(
        plain,
        default_style=None if str(plain).isprintable() else '"',
        default_flow_style=True,
        allow_unicode=True,
        width=float("inf"),
    )
    return text.removesuffix("\n").removesuffix("\n...")
