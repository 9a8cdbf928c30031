"""Configuration files and objects, as the functions of the API accept them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TypeAlias

from florist.common.settings import loader
from florist.common.settings.party_config import PartyConfig

AnyPath: TypeAlias = str | PathLike[str]


def load_config(path: AnyPath) -> PartyConfig:
    """Read and validate a party's configuration file.

    Relative paths in the file start from its folder.

    Args:
        path: a YAML file such as `florist init` writes.

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
    return loader.load_config(Path(path))


def as_config(config: PartyConfig | AnyPath) -> PartyConfig:
    """Return `config` itself, or load it if it is a path."""
    return config if isinstance(config, PartyConfig) else load_config(config)
