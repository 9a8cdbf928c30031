"""Telling the peer when this party fails before it has connected for a stage."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from florist.common.core.errors import as_florist_error
from florist.common.session.start_notice import is_worth_telling, tell_peer
from florist.common.stages.role import ForwardingRole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.transport.channel import Link


class WatchedStart(ForwardingRole):
    """Forwards to another role; knows whether it has tried to connect in the present stage."""

    def __init__(self, inner: Role, *, plaintext: bool) -> None:
        super().__init__(inner)
        self.has_connected = False
        self._plaintext = plaintext

    def connect(
        self,
        config: PartyConfig,
        plaintext: bool,  # noqa: FBT001
        timeout: float,
    ) -> AbstractContextManager[Link]:
        self.has_connected = True
        return super().connect(config, plaintext, timeout)

    @contextmanager
    def telling_peer(self, config: PartyConfig) -> Iterator[None]:
        """Tell the peer of an error that occurs in the block before this party connects; once."""
        try:
            yield
        except Exception as error:
            known = as_florist_error(error)
            if not self.has_connected and is_worth_telling(known):
                self.has_connected = True
                tell_peer(self._inner, config, known, plaintext=self._plaintext)
            raise
