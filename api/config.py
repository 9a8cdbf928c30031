"""Configuration files and objects, as the functions of the API accept them."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path, PurePath
from typing import TypeAlias

import yaml

from florist.common.settings import loader
from florist.common.settings.party_config import PartyConfig

AnyPath: TypeAlias = str | PathLike[str]


def load_config(source: AnyPath | Mapping[str, object]) -> PartyConfig:
    """Read and validate a party's configuration.

    Args:
        source: a YAML file such as `florist init` writes, or a mapping with the same keys.
            Relative paths start from the folder of the file, or from the working directory.

    Returns:
        The configuration, with defaults filled in. It is immutable.

    Raises:
        ConfigurationError: the file cannot be read, or is invalid; the message lists every problem
            with its key and the fix.

    Example:
        >>> config = florist.load_config("active.yml")
        >>> config.party.name
        'bank'
    """
    if isinstance(source, Mapping):
        return loader.parse_config(as_yaml(source), folder=Path.cwd(), source="configuration")
    return loader.load_config(Path(source))


def as_yaml(values: Mapping[str, object]) -> str:
    """Return the text of a configuration file with these values."""
    return yaml.dump(dict(values), Dumper=_Dumper)


class _Dumper(yaml.SafeDumper):
    """Writes paths as strings and tuples as lists, without references."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class has it
        return True


_Dumper.add_multi_representer(PurePath, lambda dumper, path: dumper.represent_str(str(path)))


def as_config(config: PartyConfig | AnyPath) -> PartyConfig:
    """Return `config` itself, or load it if it is a path."""
    return config if isinstance(config, PartyConfig) else load_config(config)
