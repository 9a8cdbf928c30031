"""A group of commands of which one need not be named."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


def default_command(name: str) -> type[TyperGroup]:
    """Make a group in which arguments that start with no command belong to the command `name`."""

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's own types
            if args and args[0] not in {*self.commands, "--help"}:
                args = [name, *args]
            return super().parse_args(ctx, args)

    return Group
