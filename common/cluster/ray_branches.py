"""Branches on a party's own Ray cluster.

Ray schedules them, one process each, and restarts them when they are lost. A lost branch ends the
attempt, and the next attempt resumes from what the branches have on disk. Requests to a branch, and
between branches, are sealed as jobs for workers are: see `sealed_jobs.py`.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from florist.common.cluster import ray_cluster
from florist.common.cluster.branch import Branch
from florist.common.cluster.branch_codec import decode_reply, encode
from florist.common.cluster.branch_messages import Begin, BranchMessage, RunUnion
from florist.common.cluster.branch_server import answer_head, answer_member
from florist.common.cluster.ray_worker import UNKNOWN_SESSION, Greeting, incompatibility
from florist.common.cluster.remote_branch import RemoteBranch, RemoteMember
from florist.common.cluster.sealed_jobs import KeyExchange, SealedSession, UnsealError
from florist.common.core.errors import BranchLost, ConfigurationError, InternalError
from florist.common.core.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray import ObjectRef

    from florist.common.cluster.branch_messages import BranchOrder, Request
    from florist.common.cluster.ray_cluster import RemoteMethod
    from florist.common.settings.party_config import PartyConfig

log = logging.getLogger("florist.align")

R = TypeVar("R", bound=BranchMessage)

#: Seconds for all branches to be up.
STARTUP_TIMEOUT = 120.0

#: Requests that a branch handles concurrently; one of them runs as long as the union.
_CONCURRENT_REQUESTS = 16

#: Seconds after which a branch that does not answer is restarted.
_ANSWER_TIMEOUT = 600.0

_KEY_BYTES = 32

_LOST = "a branch of ours was lost"


class BranchActor(Protocol):
    """Ray's handle of a `BranchHost`."""

    @property
    def handshake(self) -> RemoteMethod[Greeting]: ...

    @property
    def host(self) -> RemoteMethod[str]: ...

    @property
    def call(self) -> RemoteMethod[bytes]: ...

    @property
    def call_from_member(self) -> RemoteMethod[bytes]: ...


class BranchHost:
    """A branch as a Ray actor."""

    def __init__(self, group: str, engine: str, cores: int) -> None:
        """Take the arguments of `Branch`, which is created by the first handshake."""
        self._settings = group, engine, cores
        self._branch: Branch | None = None
        self._head: tuple[bytes, SealedSession] | None = None
        self._members: SealedSession | None = None

    def handshake(self, head: bytes) -> Greeting:
        """Open a sealed session with the head that has this public key."""
        greeting = Greeting(public=b"", release=RELEASE, engine="", obstacle="")
        if self._branch is None:
            try:
                self._branch = Branch(*self._settings)
            except ConfigurationError as error:
                return {**greeting, "obstacle": str(error)}
        ours = KeyExchange()
        self._head = head, ours.as_worker(head)
        return {**greeting, "public": ours.public, "engine": self._branch.engine}

    def host(self) -> str:
        """Return the address of this machine for the peer's branches."""
        return ray_cluster.host_of_this_node()

    def call(self, head: bytes, sealed: bytes, actors: Sequence[BranchActor] = ()) -> bytes:
        """Return the sealed reply to a sealed request of the head, or `UNKNOWN_SESSION`.

        `actors` are all branches, for `Begin`: Ray's handles are not secret, and only Ray can
        transmit them.
        """
        if self._head is None or self._head[0] != head:
            return UNKNOWN_SESSION
        session = self._head[1]

        def connect(begin: Begin) -> Sequence[RemoteMember]:
            self._members = members = SealedSession(begin.group_key, begin.group_key)
            attempt = begin.order.attempt
            return [RemoteMember(RayMember(actor, members), attempt) for actor in actors]

        reply = answer_head(self._own_branch, session.open(sealed), connect)
        return session.seal(reply, answers=sealed)

    def call_from_member(self, sealed: bytes) -> bytes:
        """Return the sealed reply to a sealed request of another branch of the party."""
        if self._members is None:
            return UNKNOWN_SESSION
        session = self._members
        return session.seal(answer_member(self._own_branch, session.open(sealed)), answers=sealed)

    @property
    def _own_branch(self) -> Branch:
        assert self._branch is not None, "called before the handshake"
        return self._branch


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RayMember:
    """Sends requests from one branch to another of the same party."""

    actor: BranchActor
    session: SealedSession

    def send(self, request: Request[R]) -> R:
        sealed = self.session.seal(encode(request))
        reply = self.actor.call_from_member.remote(sealed)
        opened = _opened(self.actor, reply, self.session, sealed, _ANSWER_TIMEOUT)
        return decode_reply(request.reply_type(), opened)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RayBranch(RemoteBranch):
    """Sends requests from the head to a branch."""

    actor: BranchActor
    #: The head's public key, by which the branch finds the session.
    head: bytes
    session: SealedSession
    #: All branches.
    actors: Sequence[BranchActor]
    group_key: bytes

    def host(self) -> str:
        import ray  # noqa: PLC0415 - an extra; installed, as we have joined the cluster

        try:
            return ray.get(self.actor.host.remote(), timeout=STARTUP_TIMEOUT)
        except ray.exceptions.RayError:
            raise BranchLost(_LOST) from None

    def begin(self, order: BranchOrder) -> None:
        self._send(Begin(order=order, group_key=self.group_key), self.actors)

    def send(self, request: Request[R]) -> R:
        return self._send(request, ())

    def _send(self, request: Request[R], actors: Sequence[BranchActor]) -> R:
        sealed = self.session.seal(encode(request))
        reply = self.actor.call.remote(self.head, sealed, list(actors))
        # A run takes as long as the union; meanwhile the head asks for the status.
        timeout = None if isinstance(request, RunUnion) else _ANSWER_TIMEOUT
        opened = _opened(self.actor, reply, self.session, sealed, timeout)
        return decode_reply(request.reply_type(), opened)


def _opened(
    actor: BranchActor,
    reply: ObjectRef[bytes],
    session: SealedSession,
    sealed: bytes,
    timeout: float | None,
) -> bytes:
    """Wait for the sealed reply to `sealed` and open it.

    Raises:
        BranchLost: the branch is gone, or does not answer and is restarted.
    """
    import ray  # noqa: PLC0415 - an extra; installed, as we have joined the cluster

    try:
        answer = ray.get(reply, timeout=timeout)
        if answer == UNKNOWN_SESSION:
            raise BranchLost(_LOST)
        return session.open(answer, answers=sealed)
    except (ray.exceptions.RayTaskError, UnsealError) as error:
        raise InternalError(f"a branch of ours failed: {error}") from None
    except ray.exceptions.GetTimeoutError:
        log.warning("a branch of ours does not answer and is restarted")
        ray_cluster.kill(actor, restart=True)
        raise BranchLost(_LOST) from None
    except ray.exceptions.RayError:
        raise BranchLost(_LOST) from None


class RayBranches:
    """The branches of a party, each with as many cores as the cluster's nodes allow."""

    def __init__(self, config: PartyConfig) -> None:
        """Connect to the cluster and wait until all branches are up.

        Raises:
            ConfigurationError: there is no such cluster, or it has too few cores.
        """
        count, compute = config.agreement.branches, config.compute
        self._joined = ray_cluster.join(
            compute.ray_address, compute.ray_workers, config.run_directory
        )
        import ray  # noqa: PLC0415 - an extra; installed, as we have joined the cluster

        self._actors: list[BranchActor] = []
        try:
            cores = cores_per_branch(_cores_of_nodes(), count)
            actor = ray.remote(BranchHost).options(
                num_cpus=cores,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=_CONCURRENT_REQUESTS,
                scheduling_strategy="SPREAD",
            )
            group, engine = config.agreement.group, compute.engine
            self._actors += [
                cast("BranchActor", actor.remote(group, engine, cores)) for _ in range(count)
            ]
            self.engine = ""
            self.branches()
        except BaseException:
            self.close()
            raise
        self.name = f"ray, {count} branches of {cores} {'core' if cores == 1 else 'cores'}"
        log.info("executor %s, engine %s", self.name, self.engine)

    def branches(self) -> Sequence[RayBranch]:
        import ray  # noqa: PLC0415 - an extra; installed, as we have joined the cluster

        exchanges = [KeyExchange() for _ in self._actors]
        # Ray retries until the branch is up: it may be about to be restarted.
        calls = [
            actor.handshake.options(max_task_retries=-1).remote(ours.public)
            for actor, ours in zip(self._actors, exchanges, strict=True)
        ]
        try:
            greetings = ray.get(calls, timeout=STARTUP_TIMEOUT)
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[-300:]
            raise ConfigurationError(
                f"compute.executor: not all branches are up after {STARTUP_TIMEOUT:.0f} s; check "
                "the cluster with `ray status`, then start again: the run resumes where it stopped "
                f"({reason})"
            ) from None
        for greeting in greetings:
            if why := incompatibility(greeting):
                raise ray_cluster.unusable_node(why)
        self.engine = greetings[0]["engine"]
        group_key = secrets.token_bytes(_KEY_BYTES)
        return [
            RayBranch(
                actor, ours.public, ours.as_driver(greeting["public"]), self._actors, group_key
            )
            for actor, ours, greeting in zip(self._actors, exchanges, greetings, strict=True)
        ]

    def close(self) -> None:
        for actor in self._actors:
            ray_cluster.kill(actor, restart=False)
        if self._joined:
            ray_cluster.leave()


def _cores_of_nodes() -> list[int]:
    import ray  # noqa: PLC0415 - an extra; installed, as we have joined the cluster

    return [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]


def cores_per_branch(nodes: Sequence[int], branches: int) -> int:
    """Return the most cores that every branch can have, on nodes with these numbers of cores.

    Raises:
        ConfigurationError: there are fewer cores than branches.
    """
    for cores in range(max(nodes, default=0), 0, -1):
        if sum(node // cores for node in nodes) >= branches:
            return cores
    raise ConfigurationError(
        f"agreement.branches: {branches} branches need at least one core each, and the Ray cluster "
        f"has {sum(nodes)}; add nodes, or agree on fewer branches"
    )
