"""What makes a party active or passive: how it meets its peer, and its part in each protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from florist.common.audit.findings import AuditRecord
    from florist.common.core.progress import Progress, StepProgress
    from florist.common.core.roles import RoleName
    from florist.common.evaluation.evaluation import Evaluation
    from florist.common.evaluation.parts import EvaluationParts
    from florist.common.psu.alignment import UnionView
    from florist.common.psu.union_work import UnionWork
    from florist.common.settings.party_config import PartyConfig
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Half, Run
    from florist.common.transport.channel import Channel, Link


@dataclass(frozen=True, slots=True)
class Role:
    """One of the two. Stages are written once, over this."""

    name: RoleName
    #: Where another process finds it: `module:name`.
    import_path: str
    #: Meets the peer, with mutual TLS unless `plaintext`, within so many seconds; the link ends
    #: with the context.
    connect: Callable[[PartyConfig, bool, float], AbstractContextManager[Link]]
    #: The role's half of the model; a function, so that aligning does not load torch.
    make_half: Callable[[], Callable[[HalfSetup, Channel, Run], Half[Any]]]
    run_psu: Callable[[Link, UnionWork, Progress, str], UnionView]
    #: The role's part in an evaluation, with its own kind of bundle; a function, likewise.
    make_evaluator: Callable[
        [], Callable[[Any, EvaluationParts, Channel, StepProgress], Evaluation | None]
    ]
    #: Called when a training run starts, with the record of its self-audit, if there is one.
    on_run_start: Callable[[Run, AuditRecord | None], None] = lambda _run, _audit: None
