"""Connects this process to a Ray cluster, and disconnects it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from florist.common.core.errors import ConfigurationError
from florist.common.core.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ray import ObjectRef
    from ray.actor import ActorHandle

log = logging.getLogger("florist.align")

R = TypeVar("R")

#: Bytes of shared memory for objects in transit, on a cluster of this machine only.
_LOCAL_STORE = 256_000_000

#: Seconds for the head node of a cluster to answer.
_ANSWER_TIMEOUT = 10.0

#: Ray reads these when it is imported. They disable its usage statistics and its output about
#: workers that end, which would be mixed with our own output.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}


class RemoteMethod(Protocol[R]):
    """A method of a Ray actor, whose calls return `R`."""

    def remote(self, *arguments: object) -> ObjectRef[R]:
        """Start a call."""
        ...

    def options(self, *, max_task_retries: int) -> RemoteMethod[R]:
        """Return the same method with other options."""
        ...


def join(address: str, cores: int) -> bool:
    """Connect this process to a cluster; return False if it is connected to one already.

    Args:
        address: `auto` for the cluster that this machine is part of; `local` for a new cluster on
            this machine only; or `host:port` of a cluster's head node.
        cores: the number of cores of a new local cluster; 0 means all.

    Raises:
        ConfigurationError: Ray is not installed, or there is no usable cluster at the address.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigurationError(
            "compute.executor: ray is not installed; install it with "
            "`pip install 'florist[ray]'`, or use `local`"
        ) from None
    if ray.is_initialized():
        return False

    def start_local() -> None:
        with _our_own_signals():
            ray.init(
                address=address,
                num_cpus=cores or len(os.sched_getaffinity(0)),
                object_store_memory=_LOCAL_STORE,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )

    try:
        if address == "local":
            _try_twice(start_local)
        else:
            if address != "auto":
                _check_reachable(address)
            with _our_own_signals():
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, OSError, RuntimeError, TimeoutError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigurationError(
            f"compute.ray_address: no usable Ray cluster at {address!r}: {reason}"
        ) from None
    return True


def _try_twice(start: Callable[[], None]) -> None:
    """Start a local cluster; on a busy machine it sometimes does not start in time.

    Raises:
        RuntimeError: the second try failed too.
    """
    for is_last in (False, True):
        try:
            start()
        except Exception as error:  # Ray raises exactly this type after its own timeout
            leave()
            if is_last:
                raise RuntimeError(str(error)) from error
            log.warning("the local Ray cluster did not start in time; trying again")
        else:
            return


def kill(actor: object, *, restart: bool) -> None:
    """End the process of an actor; with `restart`, Ray starts it again."""
    import ray  # noqa: PLC0415 - an extra

    ray.kill(cast("ActorHandle[object]", actor), no_restart=not restart)


def unusable_node(why: str) -> ConfigurationError:
    """Return the error for a node of the cluster on which our processes cannot work."""
    return ConfigurationError(
        f"compute.executor: {why}; every node of the Ray cluster needs FLORIST {RELEASE} and its "
        "dependencies, in the environment in which Ray was started"
    )


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at the address: Ray itself would take minutes."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_TIMEOUT).close()


def leave() -> None:
    """Disconnect; a local cluster that we started ends."""
    import ray  # noqa: PLC0415 - an extra

    with _our_own_signals():
        ray.shutdown()


@contextmanager
def _our_own_signals() -> Iterator[None]:
    """Restore our signal handlers: with Ray's, SIGTERM would end the process uncleanly."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can install handlers
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
