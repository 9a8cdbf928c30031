"""Our connection to a Ray cluster: made quietly, and undone."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from florist.common.core.errors import ConfigurationError
from florist.common.core.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("florist.align")

#: Bytes of shared memory for what is under way on a cluster of this machine alone.
_LOCAL_STORE = 256_000_000

#: Seconds for a cluster's head to answer.
_ANSWER = 10.0

#: Ray reads these when it is imported. It tells its makers nothing, and prints nothing of workers
#: that end: its lines would be among ours, which other programs read.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}


def join(address: str, cores: int) -> bool:
    """Connect this process; False if it is connected already, and then to whatever it is.

    Args:
        address: `auto`, the cluster that this machine is part of; `local`, one of our own, on this
            machine alone; or `host:port` of a cluster's head.
        cores: of one of our own; 0 stands for all.

    Raises:
        ConfigurationError: there is no Ray here, or no cluster there.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigurationError(
            "compute.executor: ray is not installed here; install it with "
            "`pip install 'florist[ray]'`, or take `local`"
        ) from None
    if ray.is_initialized():
        return False
    own: dict[str, Any] = {
        "num_cpus": cores or len(os.sched_getaffinity(0)),
        "object_store_memory": _LOCAL_STORE,
        "include_dashboard": False,
    }

    def init(**more: Any) -> None:  # noqa: ANN401 - as `ray.init`
        with _our_own_signals():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **more)

    try:
        if address == "local":
            _twice(lambda: init(**own))
        else:
            if address != "auto":
                _check_reachable(address)
            init()
    except (ConnectionError, OSError, RuntimeError, TimeoutError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigurationError(
            f"compute.ray_address: no Ray cluster can be used at {address!r}: {reason}"
        ) from None
    return True


def _twice(start: Callable[[], None]) -> None:
    """Start a cluster of our own; on a busy machine one now and then does not come up in time.

    Raises:
        RuntimeError: the next one did not either.
    """
    for is_last in (False, True):
        try:
            start()
        except Exception as error:  # Ray raises this very type, of its own time limit
            leave()
            if is_last:
                raise RuntimeError(str(error)) from error
            log.warning("a Ray cluster of our own did not come up and is started again")
        else:
            return


def unusable_node(why: str) -> ConfigurationError:
    """A process of ours on a node cannot do its work; for the raising."""
    return ConfigurationError(
        f"compute.executor: {why}; every node of the Ray cluster needs FLORIST {RELEASE} and what "
        "it needs, in the environment that Ray was started in"
    )


def _check_reachable(address: str) -> None:
    """Whether anyone is there: Ray itself would take minutes to find out."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()


def leave() -> None:
    """End the connection; a cluster of our own ends with it."""
    import ray  # noqa: PLC0415 - an extra

    with _our_own_signals():
        ray.shutdown()


@contextmanager
def _our_own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself: it would end the process where we end the run in good order."""
    if threading.current_thread() is not threading.main_thread():
        yield  # then it cannot
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
