"""Implementations of Curve25519 multiplication. All give the same bytes; they differ in speed.

| engine         | how                                                         | requires     |
|----------------|-------------------------------------------------------------|--------------|
| `ifma`         | native kernel, eight points at a time, on threads           | AVX-512 IFMA |
| `avx2`         | native kernel, four points at a time, on threads            | AVX2, FMA    |
| `cryptography` | Python package (OpenSSL), one by one, in worker processes   | nothing      |

All three are constant-time: neither branches nor addresses depend on the scalar or the points.
"""

from __future__ import annotations

import subprocess
import sys
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

import numpy as np

from florist.common.core.errors import ConfigurationError, InternalError
from florist.common.groups import kernels, x25519_worker
from florist.common.groups.curve25519 import WIDTH, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.groups.kernels import Bytes
    from florist.common.groups.parallel import Threads
    from florist.common.storage.elements import Elements

    Kernel = Callable[[Bytes, Bytes, Bytes], None]

#: Fastest first: the order in which `auto` tries them.
X25519_ENGINES = ("ifma", "avx2", "cryptography")

#: The first iteration of RFC 7748: a kernel must compute it correctly before it is used.
_NINE = encode(9)
_NINE_TIMES_NINE = bytes.fromhex("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079")


class Engine(Protocol):
    """Multiplies arrays of points by one scalar."""

    @property
    def name(self) -> str:
        """The name in the configuration."""
        ...

    def multiply(self, points: Elements, scalar: bytes) -> Elements:
        """Multiply each canonical u-coordinate by a clamped scalar; 0 for the neutral element."""
        ...

    def close(self) -> None:
        """Stop the engine's own workers."""
        ...


def make_engine(name: str, threads: Threads) -> Engine:
    """Create the named engine, or with `auto` the fastest one that runs on this machine.

    Raises:
        ConfigurationError: the engine cannot run here. The message says why, and which ones can.
    """
    if name not in ("auto", *X25519_ENGINES):
        raise ConfigurationError(
            f"group 'x25519' has no engine {name!r}; "
            f"choose one of: auto, {', '.join(X25519_ENGINES)}"
        )
    engines: dict[str, Engine] = {}
    obstacles: dict[str, str] = {}
    for candidate in X25519_ENGINES:
        try:
            engines[candidate] = _start(candidate, threads)
        except (ConfigurationError, RuntimeError) as error:
            obstacles[candidate] = str(error)
    if name == "auto":
        return next(iter(engines.values()))
    if name in obstacles:
        raise ConfigurationError(
            f"engine {name!r} cannot run here: {obstacles[name]}; "
            f"available: auto, {', '.join(engines)}"
        )
    return engines[name]


def _start(name: str, threads: Threads) -> Engine:
    """Create an engine and test it.

    Raises:
        ConfigurationError: it cannot run here; the message says why.
    """
    if name == "cryptography":
        return CryptographyEngine(threads)
    native = kernels.native
    if native is None:
        raise ConfigurationError(f"the native kernels are not built ({kernels.why_missing})")
    if name == "ifma":
        kernel, runs, required = native.x25519_ifma, native.ifma_available(), "AVX-512 IFMA"
    else:
        kernel, runs, required = native.x25519_avx2, native.avx2_available(), "AVX2 and FMA"
    if not runs:
        raise ConfigurationError(f"it requires {required}")
    products = bytearray(WIDTH * 9)  # one more point than a kernel has lanes
    kernel(_NINE * 9, _NINE, products)
    if products != _NINE_TIMES_NINE * 9:
        raise ConfigurationError("it computes wrong results on this CPU")
    return KernelEngine(name, kernel, threads)


class KernelEngine:
    """A native kernel on the threads of the group; it releases the GIL."""

    #: Slices of this many points take about ten milliseconds.
    _LARGEST_SLICE = 1 << 11

    def __init__(self, name: str, kernel: Kernel, threads: Threads) -> None:
        self.name = name
        self._kernel = kernel
        self._threads = threads

    def multiply(self, points: Elements, scalar: bytes) -> Elements:
        out = np.empty_like(points)

        def multiply_slice(start: int, stop: int) -> None:
            self._kernel(points[start:stop], scalar, out[start:stop])

        self._threads.map_slices(multiply_slice, len(points), self._LARGEST_SLICE)
        return out

    def close(self) -> None:
        """Do nothing: the threads belong to the group."""


class CryptographyEngine:
    """The `cryptography` package in worker processes, one per thread of the group.

    The workers start when they are first needed. Small arrays are computed in this process.
    """

    name = "cryptography"
    _IN_PLACE_BELOW = 512
    _LARGEST_SLICE = 1 << 10

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._idle: SimpleQueue[_Worker] = SimpleQueue()

    def multiply(self, points: Elements, scalar: bytes) -> Elements:
        out = np.empty_like(points)
        if len(points) < self._IN_PLACE_BELOW:
            out[:] = _from_bytes(x25519_worker.multiply(points.tobytes(), scalar))
            return out

        def multiply_slice(start: int, stop: int) -> None:
            # A thread that finds no idle worker starts one: there is at most one per thread.
            try:
                worker = self._idle.get_nowait()
            except Empty:
                worker = _Worker()
            try:
                out[start:stop] = _from_bytes(worker.multiply(points[start:stop].tobytes(), scalar))
            except BaseException:
                worker.kill()
                raise
            self._idle.put(worker)

        self._threads.map_slices(multiply_slice, len(points), self._LARGEST_SLICE)
        return out

    def close(self) -> None:
        """Stop the workers. Call it after the threads have stopped, when all workers are idle."""
        while not self._idle.empty():
            self._idle.get().close()


def _from_bytes(data: bytes) -> Elements:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, WIDTH)


class _Worker:
    """A process that runs `x25519_worker.py`. Secrets are sent only through its pipe."""

    _SECONDS_TO_END = 10

    def __init__(self) -> None:
        # Not `multiprocessing`: a fork would copy threads and locks, and the other start methods
        # import the main module again. With its own process group, the worker does not receive
        # Ctrl-C from the terminal.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", x25519_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )

    def multiply(self, points: bytes, scalar: bytes) -> bytes:
        jobs, answers = self._process.stdin, self._process.stdout
        assert jobs is not None
        assert answers is not None
        try:
            jobs.write(x25519_worker.HEADER.pack(len(points) // WIDTH, scalar) + points)
            jobs.flush()
            products = answers.read(len(points))
        except BrokenPipeError:
            products = b""
        if len(products) != len(points):
            raise InternalError("a worker process of the `cryptography` engine ended unexpectedly")
        return products

    def close(self) -> None:
        """Close the input, which ends the worker, and wait for it."""
        try:
            self._process.communicate(timeout=self._SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
