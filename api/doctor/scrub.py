"""Removes everything from a message that is not one of FLORIST's own words.

A list of what to remove would always miss something. So a word is kept only if it occurs in the
texts of FLORIST's source code, in an error message of the operating system, or is the name of a
setting or of an error. IDs, values, paths, host names and all numbers are therefore hidden.
"""

from __future__ import annotations

import ast
import builtins
import errno
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from florist.common.core.errors import FloristError
from florist.common.settings.party_config import PartyConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Stands for one or more words that were removed.
HIDDEN = "[…]"

_PUNCTUATION = ".,;:!?()[]{}<>'\"`→"
_PACKAGES = ("common", "active_party", "passive_party", "api", "cli")


class Scrubber:
    """Keeps FLORIST's own words, except those that the configuration uses as names or values."""

    def __init__(self, private: Iterable[str] = ()) -> None:
        """`private` are words to hide in any case, in any spelling of upper and lower case."""
        self._private = {part.lower() for word in private for part in _parts(word)}

    def scrub(self, text: str) -> str:
        """Return the text on one line, with other words replaced by `HIDDEN`."""
        kept: list[str] = []
        for word in text.split():
            shown = word if self._is_known(word) else HIDDEN
            if shown != HIDDEN or kept[-1:] != [HIDDEN]:
                kept.append(shown)
        return " ".join(kept)

    def name(self, text: object) -> str:
        """Return a single known word as it is, anything else as `HIDDEN`."""
        return text if isinstance(text, str) and self._is_known(text) else HIDDEN

    def _is_known(self, word: str) -> bool:
        core = word.strip(_PUNCTUATION)
        if not core:
            return len(word) <= 3
        return core in own_words() and core.lower() not in self._private


def private_words(config: PartyConfig) -> Iterator[str]:
    """Yield the names, values and paths of a configuration."""
    yield str(config.run_directory)
    for section in (config.party, config.network, config.data):
        yield from _texts(section.model_dump(mode="json"))


@cache
def own_words() -> frozenset[str]:
    """Return the words that may be shown."""
    found = {"a", *_error_names(FloristError)}
    found.update(name for name in vars(builtins) if name.endswith(("Error", "Exception")))
    for text in (*_source_texts(), *map(os.strerror, errno.errorcode)):
        found.update(word.strip(_PUNCTUATION) for word in text.split())
    letters = {word for word in found if (word.isalpha() and len(word) > 1) or word == "a"}
    names = {word for word in found if _is_name(word)}
    return frozenset(letters | names | set(setting_names(PartyConfig)))


def setting_names(section: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield the dotted names of all sections and keys of a configuration."""
    for key, field in section.model_fields.items():
        yield above + key
        for kind in _sections(field.annotation):
            yield from setting_names(kind, f"{above}{key}.")


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - any type
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _sections(argument)


def _is_name(word: str) -> bool:
    """Whether it is a term such as `florist.session`, `peer_key_sha256`, `--force` or `read-only`.

    Not a number, nor a path.
    """
    plain = word.lstrip("-").replace(".", "_").replace("-", "_")
    return plain.isidentifier() and plain.isascii() and not plain.startswith("_")


@cache
def source_files() -> dict[str, Path]:
    """Return FLORIST's source files by their path in the package, such as `common/core/text.py`."""
    found = {}
    for package in _PACKAGES:
        spec = find_spec(f"florist.{package}")
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in folder.rglob("*.py"):
                found[f"{package}/{path.relative_to(folder)}"] = path
    return found


def _source_texts() -> Iterator[str]:
    for path in source_files().values():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _error_names(kind: type[FloristError]) -> Iterator[str]:
    yield kind.__name__
    for special in kind.__subclasses__():
        yield from _error_names(special)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)


def _parts(text: str) -> Iterator[str]:
    """Yield the text, its words, and the parts of a path or address."""
    yield text
    for word in text.split():
        yield word.strip(_PUNCTUATION)
        yield from (part for part in word.replace(":", "/").split("/") if part)
