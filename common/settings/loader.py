"""Load and check configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from florist.common.core.errors import ConfigurationError
from florist.common.settings.keys import describe_keys
from florist.common.settings.party_config import PartyConfig
from florist.common.settings.problems import describe_problem, listed
from florist.common.settings.renamed_keys import apply_renames
from florist.common.settings.section import Section
from florist.common.settings.yaml_text import parse_yaml

if TYPE_CHECKING:
    from pathlib import Path

S = TypeVar("S", bound=Section)


def load_config(path: Path) -> PartyConfig:
    """Read and check a configuration file; its relative paths start from its folder.

    Raises:
        ConfigurationError: names the file and lists every problem with its key and the fix.
    """
    return load_section(path, PartyConfig, if_absent="`florist init` writes a commented one")


def load_section(path: Path, kind: type[S], *, if_absent: str = "name another") -> S:
    """As `load_config`, of a file with the keys of `kind`.

    Raises:
        ConfigurationError: as `load_config`.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file; {if_absent}") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: is a folder; name the file in it") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path}: line {line} is not UTF-8; save the file with that encoding"
        ) from None
    return parse_section(text, kind, folder=path.absolute().parent, source=str(path))


def parse_config(text: str, *, folder: Path, source: str) -> PartyConfig:
    """As `load_config`, from a text; messages call it `source`.

    Raises:
        ConfigurationError: as `load_config`.
    """
    return parse_section(text, PartyConfig, folder=folder, source=source)


def parse_section(text: str, kind: type[S], *, folder: Path, source: str) -> S:
    """As `load_section`, from a text; messages call it `source`.

    Raises:
        ConfigurationError: as `load_config`.
    """
    values = parse_yaml(text, source)
    if not isinstance(values, dict):
        found = "is empty" if values is None else "holds no keys at its top level"
        raise ConfigurationError(f"{source}: {found}; it must have {listed(kind.model_fields)}")
    values = apply_renames(values, kind.renamed_keys, source)
    try:
        return kind.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        known = {key.path: key for key in describe_keys(kind)}
        problems = [describe_problem(details, known) for details in error.errors(include_url=False)]
    if len(problems) == 1:
        raise ConfigurationError(f"{source}: {problems[0]}")
    raise ConfigurationError("\n  ".join([f"{source}: {len(problems)} problems:", *problems]))
