"""The passive party: has features and the bottom model; dials."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from florist.common.session.open_session import own_credentials
from florist.common.stages.role import Role
from florist.common.transport.grpc_dialer import dial
from florist.passive_party.psu_role import run_psu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.bundle.bundle import PassiveBundle
    from florist.common.core.progress import StepProgress
    from florist.common.evaluation.evaluation import Evaluation
    from florist.common.evaluation.parts import EvaluationParts
    from florist.common.settings.party_config import PartyConfig
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Half, Run
    from florist.common.transport.channel import Channel, Link

log = logging.getLogger("florist.passive")


@contextmanager
def dial_peer(
    config: PartyConfig,
    plaintext: bool,  # noqa: FBT001
    timeout: float,
) -> Iterator[Link]:
    """Dial the peer's address until it is up, for `timeout` seconds at most."""
    credentials = own_credentials(config, plaintext=plaintext)
    link = dial(
        config.network.address,
        credentials,
        config.party.peer,
        timeout,
        on_wait=lambda reason: log.info("waiting for %s: %s", config.party.peer, reason),
    )
    try:
        yield link
    finally:
        link.close()


def _make_half() -> Callable[[HalfSetup, Channel, Run], Half[Any]]:
    from florist.passive_party.training import make_passive_half  # noqa: PLC0415 - loads torch

    return make_passive_half


def _make_evaluator() -> Callable[
    [PassiveBundle, EvaluationParts, Channel, StepProgress], Evaluation | None
]:
    from florist.passive_party.evaluation import evaluate_passive  # noqa: PLC0415 - loads torch

    return evaluate_passive


PASSIVE = Role(
    name="passive",
    import_path="florist.passive_party.role:PASSIVE",
    connect=dial_peer,
    make_half=_make_half,
    run_psu=run_psu,
    make_evaluator=_make_evaluator,
)
