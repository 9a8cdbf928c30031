"""The active party: has the labels and the top model; listens."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from florist.active_party.psu_role import run_psu
from florist.common.session.open_session import own_credentials
from florist.common.stages.role import Role
from florist.common.transport.grpc_listener import GrpcListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.bundle.bundle import ActiveBundle
    from florist.common.core.progress import StepProgress
    from florist.common.evaluation.evaluation import Evaluation
    from florist.common.evaluation.parts import EvaluationParts
    from florist.common.settings.party_config import PartyConfig
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Half, Run
    from florist.common.transport.channel import Channel, Link

log = logging.getLogger("florist.active")


@contextmanager
def wait_for_peer(
    config: PartyConfig,
    plaintext: bool,  # noqa: FBT001
    timeout: float,
) -> Iterator[Link]:
    """Listen at our address until the peer comes, for `timeout` seconds at most."""
    credentials = own_credentials(config, plaintext=plaintext)
    listener = GrpcListener(config.network.address, credentials, config.party.peer)
    try:
        log.info("listening at %s for %s", listener.start(), config.party.peer)
        link = listener.accept(
            timeout,
            on_wait=lambda reason: log.info("waiting for %s: %s", config.party.peer, reason),
        )
        try:
            yield link
        finally:
            link.close()
    finally:
        listener.close()


def _make_half() -> Callable[[HalfSetup, Channel, Run], Half[Any]]:
    from florist.active_party.training import make_active_half  # noqa: PLC0415 - loads torch

    return make_active_half


def _make_evaluator() -> Callable[
    [ActiveBundle, EvaluationParts, Channel, StepProgress], Evaluation | None
]:
    from florist.active_party.evaluation import evaluate_active  # noqa: PLC0415 - loads torch

    return evaluate_active


ACTIVE = Role(
    name="active",
    import_path="florist.active_party.role:ACTIVE",
    connect=wait_for_peer,
    make_half=_make_half,
    run_psu=run_psu,
    make_evaluator=_make_evaluator,
)
