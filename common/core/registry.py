"""Strategies and other named objects, found by the name that the configuration uses."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from florist.common.core.errors import ConfigurationError


class Named(Protocol):
    """An object with a name."""

    @property
    def name(self) -> str:
        """The name in the configuration."""
        ...


Entry = TypeVar("Entry", bound=Named)


class Registry(Generic[Entry]):
    """All known objects of one kind, each under a unique name."""

    def __init__(self, kind: str) -> None:
        """Create an empty registry; `kind` is what errors call an entry, like "label strategy"."""
        self._kind = kind
        self._entries: dict[str, Entry] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the order of registration."""
        return tuple(self._entries)

    def register(self, entry: Entry) -> Entry:
        """Add `entry` and return it, so that this can be used as a class decorator.

        Raises:
            ValueError: the name is already registered.
        """
        if entry.name in self._entries:
            raise ValueError(f"{self._kind} {entry.name!r} is already registered")
        self._entries[entry.name] = entry
        return entry

    def __getitem__(self, name: str) -> Entry:
        """Return the entry with this name.

        Raises:
            ConfigurationError: the name is unknown. The message lists the known names.
        """
        try:
            return self._entries[name]
        except KeyError:
            known = ", ".join(self.names)
            raise ConfigurationError(
                f"unknown {self._kind} {name!r}; choose one of: {known}"
            ) from None
