"""A line between two parties that can be cut, and mended, by a test."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Relay:
    """Passes bytes on between whoever connects and `target`; cut, it takes no more connections."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self._whole = Event()
        self._whole.set()
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        #: Bytes that went through, either way.
        self.passed = 0

    def cut(self) -> None:
        """Every connection breaks, and none can be made."""
        with self._lock:
            self._whole.clear()
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._whole.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                if self._whole.is_set():
                    Thread(target=self._connect, args=(near,), daemon=True).start()
                else:
                    near.close()

    def _connect(self, near: socket.socket) -> None:
        host, _, port = self._target.rpartition(":")
        try:
            far = socket.create_connection((host, int(port)))
        except OSError:
            near.close()
            return
        with self._lock:
            self._open |= {near, far}
        back = Thread(target=self._pass_on, args=(far, near), daemon=True)
        back.start()
        self._pass_on(near, far)
        back.join()
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.passed += len(data)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        self._server.close()
