"""Connects this process to a Ray cluster, and disconnects it."""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from florist.common.cluster.ray_session_folder import session_folder
from florist.common.cluster.ray_tokens import (
    HOW_TO_ENABLE,
    check_cluster,
    check_own_token,
    fresh_token,
    use_token,
)
from florist.common.core.errors import ConfigurationError
from florist.common.core.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ray import ObjectRef
    from ray.actor import ActorHandle

log = logging.getLogger("florist.align")

R = TypeVar("R")

#: Bytes of shared memory for objects in transit, on a cluster of this machine only.
_LOCAL_STORE = 256_000_000

#: Seconds for the head node of a cluster to answer.
_ANSWER_TIMEOUT = 10.0

#: Ray's errors contain this if the head of a cluster refuses a token.
_WRONG_TOKEN = "InvalidAuthToken"  # noqa: S105 - not a token

#: Ray reads these when it is imported. They disable its usage statistics and its output about
#: workers that end, which would be mixed with our own output.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Seconds for the head's first process, of which Ray otherwise allows 20.
    "RAY_gcs_server_port_wait_time_s": "120",
}

#: Attempts to start a local cluster.
_STARTS = 4
#: Seconds for a cluster that has started to report its node.
_HEALTHY = 60.0


#: What to release after this process has left its cluster.
_resources = ExitStack()


class RemoteMethod(Protocol[R]):
    """A method of a Ray actor, whose calls return `R`."""

    def remote(self, *arguments: object) -> ObjectRef[R]:
        """Start a call."""
        ...

    def options(self, *, max_task_retries: int) -> RemoteMethod[R]:
        """Return the same method with other options."""
        ...


def join(address: str, cores: int, folder: Path | None = None) -> bool:
    """Connect this process to a cluster; return False if it is connected to one already.

    Args:
        address: `auto` for the cluster that this machine is part of; `local` for a new cluster on
            this machine only; or `host:port` of a cluster's head node.
        cores: the number of cores of a new local cluster; 0 means all.
        folder: where a new local cluster keeps its files until this process leaves it; None
            means the system's folder for temporary files.

    Raises:
        ConfigurationError: Ray is not installed, there is no usable cluster at the address, or it
            does not use token authentication.
    """
    for name, value in _ENVIRONMENT.items():
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

    try:
        if address == "local":
            _resources.enter_context(fresh_token())
            session = _resources.enter_context(session_folder(folder))
            start_healthy(lambda: _start_local(session, cores))
        else:
            if address != "auto":
                _check_reachable(address)
                check_cluster(address)  # before Ray sends our token there
            check_own_token()
            use_token()
            with _our_own_signals():
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        check_cluster(ray.get_runtime_context().gcs_address)
    except (
        ConnectionError,
        OSError,
        RuntimeError,
        TimeoutError,
        ValueError,
        ray.exceptions.AuthenticationError,
    ) as error:
        leave()
        raise _unusable_cluster(address, error) from None
    except BaseException:
        leave()
        raise
    return True


def _unusable_cluster(address: str, error: Exception) -> ConfigurationError:
    cause: BaseException | None = error
    while cause is not None:
        if _WRONG_TOKEN in str(cause):
            return ConfigurationError(
                f"compute.ray_address: the Ray cluster at {address!r} does not accept the token of "
                f"this process; use the token file of the cluster's head. {HOW_TO_ENABLE}"
            )
        cause = cause.__cause__
    reason = " ".join(str(error).split())[:300]
    return ConfigurationError(
        f"compute.ray_address: no usable Ray cluster at {address!r}: {reason}"
    )


def _start_local(session: Path, cores: int) -> None:
    """Start a cluster that listens on the loopback interface only.

    Raises:
        RuntimeError: Ray does not start, or listens elsewhere.
    """
    import ray  # noqa: PLC0415 - an extra

    with _our_own_signals(), _single_node():
        ray.init(
            address="local",
            num_cpus=cores or len(os.sched_getaffinity(0)),
            object_store_memory=_LOCAL_STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(session),
        )
    session.chmod(0o700)  # Ray lets all users access it
    if not ipaddress.ip_address(ray.util.get_node_ip_address()).is_loopback:
        raise RuntimeError("this release of Ray does not listen on the loopback interface only")


@contextmanager
def _single_node() -> Iterator[None]:
    """Make Ray use the loopback address for a new cluster.

    Ray replaces it by an address of the machine where clusters may have several nodes, which is
    everywhere but on macOS and Windows.
    """
    from ray._private import ray_constants  # noqa: PLC0415 - an extra

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def start_healthy(start: Callable[[], None]) -> None:
    """Start a local cluster, again if needed, until it answers.

    Ray gives each start half a minute, which a busy machine exceeds now and then.

    Raises:
        RuntimeError: the last attempt failed too.
    """
    for attempts_left in reversed(range(_STARTS)):
        try:
            start()
            _await_health()
        except Exception as error:  # noqa: BLE001 - what Ray raises after its own timeout
            with _remains_ignored():
                _shut_down()
            if not attempts_left:
                raise RuntimeError(str(error)) from None
            log.warning("the local Ray cluster did not start in time; trying again")
        else:
            return


def _await_health() -> None:
    """Wait until the head of the cluster reports a node that is alive.

    Raises:
        RuntimeError: there is none in time.
    """
    import ray  # noqa: PLC0415 - an extra

    deadline = time.monotonic() + _HEALTHY
    while not any(node["Alive"] and node["Resources"].get("CPU") for node in ray.nodes()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no node of the cluster was alive within {_HEALTHY:.0f} s")
        time.sleep(0.1)


@contextmanager
def _remains_ignored() -> Iterator[None]:
    """Ignore exceptions in the destructors of what a failed start has left; they are not ours."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda what: log.debug("after a failed start of Ray: %s", what.exc_value)
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = before


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


def host_of_this_node() -> str:
    """Return an address of this machine at which others can reach it.

    It is the address by which the cluster knows the machine; on a local cluster, which uses the
    loopback interface, that of the interface with the default route.
    """
    import ray  # noqa: PLC0415 - an extra

    known = str(ray.util.get_node_ip_address())
    if not ipaddress.ip_address(known).is_loopback:
        return known
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # for documentation only; nothing is sent
        except OSError:
            return known
        return str(probe.getsockname()[0])


def leave() -> None:
    """Disconnect; a local cluster that we started ends, and its files are deleted."""
    _shut_down()
    _resources.close()


def _shut_down() -> None:
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
