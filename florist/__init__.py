"""Vertical federated learning that does not reveal which people two organisations share.

The public Python API. Names are imported when they are first used, so that `import florist` is
fast and loads neither torch nor grpc.

Example:
    >>> import florist
    >>> all(check.passed for check in florist.preflight("active.yml"))
    True
    >>> run = florist.run_party("active", "active.yml", on_progress=print)
    >>> run.history.to_pandas()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from florist.common.core.errors import (
    AgreementMismatch,
    ConfigurationError,
    FloristError,
    InternalError,
    Interrupted,
    OverlapOutsideLimits,
    PeerError,
    PeerFailed,
    PeerLost,
    ProtocolViolation,
    StoppedByPolicy,
    TransportError,
)
from florist.common.core.release import RELEASE

if TYPE_CHECKING:
    from florist.api.config import load_config
    from florist.api.doctor.report import doctor
    from florist.api.export import ExportedHalf, export_onnx
    from florist.api.party import run_party
    from florist.api.preflight import Check, preflight
    from florist.api.progress import ProgressEvent
    from florist.api.records import Records
    from florist.api.runs import (
        AuditFinding,
        AuditResult,
        ColumnImportance,
        EpochMetrics,
        EvaluationResult,
        MetricEstimate,
        RunResult,
        RunSizes,
        WorthResult,
        load_run,
    )
    from florist.api.simulation import simulate
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.grpc_prediction_client import PeerBusy
    from florist.experiments.grid import GridSettings, TrialsFailed
    from florist.passive_party.row_encoder import BadRow
    from florist.passive_party.serving import PredictionClient

__version__ = RELEASE

__all__ = [
    "AgreementMismatch",
    "AuditFinding",
    "AuditResult",
    "BadRow",
    "Check",
    "ColumnImportance",
    "ConfigurationError",
    "EpochMetrics",
    "EvaluationResult",
    "ExportedHalf",
    "FloristError",
    "GridSettings",
    "InternalError",
    "Interrupted",
    "MetricEstimate",
    "OverlapOutsideLimits",
    "PartyConfig",
    "PeerBusy",
    "PeerError",
    "PeerFailed",
    "PeerLost",
    "PredictionClient",
    "ProgressEvent",
    "ProtocolViolation",
    "Records",
    "RunResult",
    "RunSizes",
    "StoppedByPolicy",
    "TransportError",
    "TrialsFailed",
    "WorthResult",
    "__version__",
    "doctor",
    "export_onnx",
    "load_config",
    "load_run",
    "preflight",
    "run_party",
    "simulate",
]

#: The modules of the names that are imported when they are first used.
_MODULES = {
    "florist.api.config": ("load_config",),
    "florist.api.doctor.report": ("doctor",),
    "florist.api.export": ("ExportedHalf", "export_onnx"),
    "florist.api.party": ("run_party",),
    "florist.api.preflight": ("Check", "preflight"),
    "florist.api.progress": ("ProgressEvent",),
    "florist.api.records": ("Records",),
    "florist.api.runs": (
        *("AuditResult", "AuditFinding", "EpochMetrics", "EvaluationResult", "MetricEstimate"),
        *("ColumnImportance", "RunResult", "RunSizes", "WorthResult", "load_run"),
    ),
    "florist.api.simulation": ("simulate",),
    "florist.common.settings.party_config": ("PartyConfig",),
    "florist.common.transport.grpc_prediction_client": ("PeerBusy",),
    "florist.experiments.grid": ("GridSettings", "TrialsFailed"),
    "florist.passive_party.row_encoder": ("BadRow",),
    "florist.passive_party.serving": ("PredictionClient",),
}

# Hidden from type checkers, which would otherwise accept any attribute.
if not TYPE_CHECKING:
    _LAZY = {name: module for module, names in _MODULES.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
