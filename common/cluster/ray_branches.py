"""Branches on a party's own Ray cluster.

Ray places them, one process each, and starts them again when they are lost; a branch that was lost
ends the attempt, and the next goes on from what branches have on disk. What is said to a branch,
and between branches, is sealed as it is for workers: see `psu/sealed_jobs.py`.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from florist.common.cluster import ray_cluster
from florist.common.cluster.branch import Branch
from florist.common.cluster.branch_calls import OF_HEAD, OF_SIBLINGS, answered, asked, result
from florist.common.cluster.ray_worker import UNKNOWN_SESSION, Greeting, incompatibility
from florist.common.cluster.sealed_jobs import KeyExchange, SealedSession, UnsealError
from florist.common.core.errors import BranchLost, ConfigurationError, InternalError
from florist.common.core.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from florist.common.cluster.branch_calls import Signature, Signatures
    from florist.common.cluster.branch_messages import BranchOrder
    from florist.common.settings.party_config import PartyConfig

log = logging.getLogger("florist.align")

#: Seconds for all branches to be there.
PATIENCE = 120.0

#: Calls of the head and of siblings that a branch takes at a time; one runs as long as the union.
_CALLS = 16

#: Seconds after which a branch that does not answer is restarted.
_ANSWER = 600.0

_KEY_BYTES = 32

_LOST = "a branch of ours was lost"


class BranchHost:
    """A branch as a Ray actor."""

    def __init__(self, group: str, engine: str, cores: int) -> None:
        """As `Branch`."""
        self._settings = group, engine, cores
        self._branch: Branch | None = None
        self._head: tuple[bytes, SealedSession] | None = None
        self._crew: SealedSession | None = None

    def introduce(self, head: bytes) -> Greeting:
        """Begin a conversation with the head whose public half this is, which names it."""
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
        """The address of this machine, as the cluster knows it."""
        import ray  # noqa: PLC0415 - it is there, as we are on its cluster

        return str(ray.util.get_node_ip_address())

    def call(self, head: bytes, sealed: bytes, actors: Sequence[Any] = ()) -> bytes:
        """The sealed answer of the branch to a sealed call, or `UNKNOWN_SESSION`.

        `actors` are all siblings, for `begin`: handles of Ray's are no secret, and stay its own.
        """
        if self._head is None or self._head[0] != head:
            return UNKNOWN_SESSION
        branch = self._own_branch

        def find(method: str) -> Callable[..., object]:
            return partial(self._begin, actors) if method == "begin" else getattr(branch, method)

        return _answered(OF_HEAD, self._head[1], sealed, find)

    def call_of_sibling(self, sealed: bytes) -> bytes:
        """The same for a sibling, of our mailbox."""
        if self._crew is None:
            return UNKNOWN_SESSION

        def find(method: str) -> Callable[..., object]:
            def work(attempt: bytes, *arguments: object) -> object:
                return getattr(self._own_branch.mailbox(attempt), method)(*arguments)

            return work

        return _answered(OF_SIBLINGS, self._crew, sealed, find)

    def _begin(self, actors: Sequence[Any], order: BranchOrder, crew_key: bytes) -> None:
        self._crew = SealedSession(crew_key, crew_key)
        members = [RayMember(actor, self._crew, order.attempt) for actor in actors]
        self._own_branch.begin(order, members)

    @property
    def _own_branch(self) -> Branch:
        assert self._branch is not None, "introduced before it was made"
        return self._branch


def _answered(
    signatures: Signatures,
    conversation: SealedSession,
    sealed: bytes,
    find: Callable[[str], Callable[..., object]],
) -> bytes:
    answer = answered(signatures, find, conversation.open(sealed))
    return conversation.seal(answer, answers=sealed)


def _called(
    actor: Any,  # noqa: ANN401 - Ray's own
    signature: Signature,
    conversation: SealedSession,
    plain: bytes,
    send: Callable[[bytes], Any],
    timeout: float | None,
) -> Any:  # noqa: ANN401 - as the signature says
    """What a branch gives to a call, or raises.

    Raises:
        BranchLost: it is gone.
    """
    import ray  # noqa: PLC0415 - an extra; it is there, as we have joined

    sealed = conversation.seal(plain)
    try:
        answer: bytes = ray.get(send(sealed), timeout=timeout)
        if answer == UNKNOWN_SESSION:
            raise BranchLost(_LOST)
        opened = conversation.open(answer, answers=sealed)
    except (ray.exceptions.RayTaskError, UnsealError) as error:
        raise InternalError(f"a branch of ours failed: {error}") from None
    except ray.exceptions.GetTimeoutError:
        log.warning("a branch of ours does not answer and is restarted")
        ray.kill(actor, no_restart=False)
        raise BranchLost(_LOST) from None
    except ray.exceptions.RayError:
        raise BranchLost(_LOST) from None
    return result(signature, opened)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RayMember:
    """A sibling, as another branch sees it."""

    actor: Any
    workers: SealedSession
    attempt: bytes

    def tell(self, label: str, sender: int, number: int) -> None:
        self._call("tell", label, sender, number)

    def rows(self, label: str, owner: int, start: int) -> tuple[int, bytes]:
        found: tuple[int, bytes] = self._call("rows", label, owner, start)
        return found

    def _call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - as the mailbox gives it
        call = asked(OF_SIBLINGS, method, (self.attempt, *arguments))
        send = self.actor.call_of_sibling.remote
        return _called(self.actor, OF_SIBLINGS[method], self.workers, call, send, _ANSWER)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RayBranch:
    """A branch, as the head sees it."""

    actor: Any
    #: How the branch knows with whom it speaks.
    head: bytes
    conversation: SealedSession
    siblings: Sequence[Any]
    crew_key: bytes

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - as `Branch` gives it
        return self._call(method, arguments, ())

    def begin(self, order: BranchOrder) -> None:
        self._call("begin", (order, self.crew_key), self.siblings)

    def _call(self, method: str, arguments: Sequence[object], actors: Sequence[Any]) -> Any:  # noqa: ANN401 - as `Branch` gives it
        def send(sealed: bytes) -> Any:  # noqa: ANN401 - Ray's own
            return self.actor.call.remote(self.head, sealed, list(actors))

        call = asked(OF_HEAD, method, arguments)
        # A run takes as long as a union; the head looks at it by other calls meanwhile.
        timeout = None if method == "run" else _ANSWER
        return _called(self.actor, OF_HEAD[method], self.conversation, call, send, timeout)

    def host(self) -> str:
        import ray  # noqa: PLC0415 - it is there, as we have joined

        try:
            return str(ray.get(self.actor.host.remote(), timeout=PATIENCE))
        except ray.exceptions.RayError:
            raise BranchLost(_LOST) from None


class RayBranches:
    """Branches with as many cores each as the cluster's nodes allow."""

    def __init__(self, config: PartyConfig) -> None:
        """Connect, and wait until all branches are there.

        Raises:
            ConfigurationError: there is no such cluster, or it has no room for them.
        """
        count, compute = config.agreement.branches, config.compute
        self._joined = ray_cluster.join(compute.ray_address, compute.ray_workers)
        import ray  # noqa: PLC0415 - an extra; it is there, as we have joined

        self._ray = ray
        self._actors: list[Any] = []
        try:
            cores = cores_of_each(_cores_of_nodes(ray), count)
            remote = ray.remote(BranchHost).options(
                num_cpus=cores,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=_CALLS,
                scheduling_strategy="SPREAD",
            )
            settings = config.agreement.group, compute.engine, cores
            self._actors += [remote.remote(*settings) for _ in range(count)]
            self.engine = ""
            self.branches()
        except BaseException:
            self.close()
            raise
        self.name = f"ray, {count} branches of {cores} {'core' if cores == 1 else 'cores'}"
        log.info("executor %s, engine %s", self.name, self.engine)

    def branches(self) -> Sequence[RayBranch]:
        introductions = [KeyExchange() for _ in self._actors]
        # Tried again by Ray until the branch is there: it may be about to be restarted.
        calls = [
            actor.introduce.options(max_task_retries=-1).remote(ours.public)
            for actor, ours in zip(self._actors, introductions, strict=True)
        ]
        try:
            greetings: list[Greeting] = self._ray.get(calls, timeout=PATIENCE)
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[-300:]
            raise ConfigurationError(
                f"compute.executor: not all branches are up after {PATIENCE:.0f} s; look at the "
                f"cluster with `ray status`, then start again: the run goes on ({reason})"
            ) from None
        for greeting in greetings:
            if why := incompatibility(greeting):
                raise ray_cluster.unusable_node(why)
        self.engine = greetings[0]["engine"]
        crew_key = secrets.token_bytes(_KEY_BYTES)
        return [
            RayBranch(
                actor, ours.public, ours.as_driver(greeting["public"]), self._actors, crew_key
            )
            for actor, ours, greeting in zip(self._actors, introductions, greetings, strict=True)
        ]

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        if self._joined:
            ray_cluster.leave()


def _cores_of_nodes(ray: Any) -> list[int]:  # noqa: ANN401 - Ray has no types
    return [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]


def cores_of_each(nodes: Sequence[int], branches: int) -> int:
    """The most cores that so many branches can have, on nodes with so many cores each.

    Raises:
        ConfigurationError: there are fewer cores than branches.
    """
    for cores in range(max(nodes, default=0), 0, -1):
        if sum(node // cores for node in nodes) >= branches:
            return cores
    raise ConfigurationError(
        f"agreement.branches: {branches} branches need a core each, and the Ray cluster has "
        f"{sum(nodes)}; add nodes, or agree on fewer branches"
    )
