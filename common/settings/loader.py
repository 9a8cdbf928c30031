"""Load configuration files, and report every problem with its key and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from florist.common.core.errors import ConfigurationError
from florist.common.settings.keys import describe_keys
from florist.common.settings.party_config import Contact, PartyConfig
from florist.common.settings.problems import describe_problem, listed
from florist.common.settings.renamed_keys import apply_renames
from florist.common.settings.scientific_notation import convert_scientific
from florist.common.settings.section import Section
from florist.common.settings.yaml_text import parse_yaml

if TYPE_CHECKING:
    from pathlib import Path

S = TypeVar("S", bound=Section)


def load_config(path: Path) -> PartyConfig:
    """Load and validate a party's configuration. Relative paths start from the file's folder.

    Raises:
        ConfigurationError: the message names the file and lists every problem.
    """
    return load_section(path, PartyConfig, if_missing="`florist init` creates one")


def load_contact(path: Path) -> PartyConfig | None:
    """Load of an invalid file what is needed to contact the peer; None if that is invalid too.

    All else of the result has its default or is missing.
    """
    try:
        values = parse_yaml(path.read_bytes().decode("utf-8-sig"), str(path))
        if not isinstance(values, dict):
            return None
        values = apply_renames(values, PartyConfig.renamed_keys, str(path))
        known = {key: value for key, value in values.items() if key in Contact.model_fields}
        folder = path.absolute().parent
        contact = Contact.model_validate(
            convert_scientific(known, Contact), context={"folder": folder}
        )
    except (ConfigurationError, ValidationError, OSError, ValueError):
        return None
    return PartyConfig.model_construct(**dict(contact))


def load_section(path: Path, kind: type[S], *, if_missing: str = "check the path") -> S:
    """Load and validate a file that has the keys of `kind`; otherwise like `load_config`.

    Args:
        path: the file.
        kind: the section that the file contains.
        if_missing: what to do if the file does not exist, for the error message.

    Raises:
        ConfigurationError: the message names the file and lists every problem.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file; {if_missing}") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: this is a folder; give the path of a file") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path}: line {line} is not valid UTF-8; save the file as UTF-8"
        ) from None
    return parse_section(text, kind, folder=path.absolute().parent, source=str(path))


def parse_config(text: str, *, folder: Path, source: str) -> PartyConfig:
    """Validate the text of a party's configuration; messages call it `source`.

    Raises:
        ConfigurationError: the message lists every problem.
    """
    return parse_section(text, PartyConfig, folder=folder, source=source)


def parse_section(text: str, kind: type[S], *, folder: Path, source: str) -> S:
    """Validate a text that has the keys of `kind`; messages call it `source`.

    Raises:
        ConfigurationError: the message lists every problem.
    """
    values = parse_yaml(text, source)
    if not isinstance(values, dict):
        found = "is empty" if values is None else "has no keys at the top level"
        raise ConfigurationError(f"{source}: {found}; expected {listed(kind.model_fields)}")
    values = convert_scientific(apply_renames(values, kind.renamed_keys, source), kind)
    try:
        return kind.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        known = {key.path: key for key in describe_keys(kind)}
        problems = [describe_problem(details, known) for details in error.errors(include_url=False)]
    if len(problems) == 1:
        raise ConfigurationError(f"{source}: {problems[0]}")
    raise ConfigurationError("\n  ".join([f"{source}: {len(problems)} problems:", *problems]))
