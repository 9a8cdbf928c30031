"""Strategies by name, as in the settings."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from florist.common.core.errors import ConfigurationError


class Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Registry(Generic[Entry]):
    """The known entries of one kind; a name stands for one entry only."""

    def __init__(self, kind: str) -> None:
        """`kind` is the word that errors use, such as "label strategy"."""
        self._kind = kind
        self._entries: dict[str, Entry] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of registration."""
        return tuple(self._entries)

    def register(self, entry: Entry) -> Entry:
        """Add `entry` and return it, so that this also decorates a class.

        Raises:
            ValueError: the name is taken.
        """
        if entry.name in self._entries:
            raise ValueError(f"{self._kind} {entry.name!r} is already registered")
        self._entries[entry.name] = entry
        return entry

    def __getitem__(self, name: str) -> Entry:
        """The entry of this name.

        Raises:
            ConfigurationError: there is none.
        """
        try:
            return self._entries[name]
        except KeyError:
            known = ", ".join(self.names)
            raise ConfigurationError(
                f"{self._kind} {name!r} is unknown; known are: {known}"
            ) from None
