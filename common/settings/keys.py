"""The keys of a configuration, for error messages, generated files and the reference page."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration, or a section of keys."""

    path: tuple[str, ...]
    meaning: str
    #: The value if the file does not set the key; None if the key is `required`.
    default: object
    required: bool
    #: The allowed values, if there is a fixed list.
    choices: tuple[str, ...]
    is_section: bool
    #: Whether the file may set the key, or the whole section, to null.
    nullable: bool

    @property
    def dotted(self) -> str:
        """The path as it appears in messages, such as `network.address`."""
        return ".".join(self.path)

    @property
    def optional(self) -> bool:
        """Whether the key may be omitted and then has no value."""
        return not self.required and self.default is None

    @property
    def agreed(self) -> bool:
        """Whether both parties must have the same value."""
        return self.path[0] == "agreement"


def describe_keys(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[Key]:
    """Yield every section and key of `model` in file order, each section before its keys."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        section = _section(field)
        yield Key(
            path=path,
            meaning=field.description or "",
            default=None if field.is_required() else field.default,
            required=field.is_required(),
            choices=get_args(field.annotation) if get_origin(field.annotation) is Literal else (),
            is_section=section is not None,
            nullable=NoneType in get_args(field.annotation),
        )
        if section is not None:
            yield from describe_keys(section, path)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a section, even an optional one; None otherwise."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None
