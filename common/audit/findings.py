"""What a self-audit found: aggregates alone, judged by this party's limits, on file line by line.

Nothing here tells of single people or batches: figures are over `FEWEST` UIDs of each kind at
least, rounded so that they do not tell how many there were of each.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from florist.common.audit.statistics import Estimate
from florist.common.core.errors import ConfigurationError
from florist.common.settings.audit import AuditSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from florist.common.audit.statistics import AttackResult
    from florist.common.core.roles import RoleName

#: Raised when what is written changes so that an older reader would misread it.
FORMAT = 1

#: UIDs of each kind, real and synthetic, from which an AUC is told.
FEWEST = 100
#: The same for what is found at `FALSE_POSITIVES`: fewer allow no more than a few of these.
FEWEST_FOR_RATES = 500
#: The share of the others that an attacker may be wrong about.
FALSE_POSITIVES = 0.01

#: What an audit looks at: the last batches before it, or some UIDs in all epochs.
Scope = Literal["batches", "epochs"]
Verdict = Literal["fine", "warn", "stop"]


@dataclass(frozen=True, slots=True)
class Finding:
    """How well an attack tells our real rows from our synthetic ones."""

    attack: str
    #: Folded: 0.5 is chance.
    auc: Estimate
    #: The share found at `FALSE_POSITIVES`, real or synthetic, whichever is more; None for few.
    tpr: Estimate | None

    @classmethod
    def of(cls, result: AttackResult) -> Finding | None:
        """None where the attack scored too few UIDs to be told of."""
        fewest = min(result.real, result.synthetic)
        if fewest < FEWEST:
            return None
        tells_rates = fewest >= FEWEST_FOR_RATES
        return cls(
            result.attack,
            _rounded(result.folded_auc),
            _rounded(result.true_positive_rate(FALSE_POSITIVES)) if tells_rates else None,
        )


def shown(estimate: Estimate) -> str:
    """With its interval: 0.53 (0.51-0.55)."""
    return f"{estimate.value:.2f} ({estimate.low:.2f}\N{EN DASH}{estimate.high:.2f})"


def _rounded(estimate: Estimate) -> Estimate:
    return Estimate(*(round(value, 4) for value in asdict(estimate).values()))


@dataclass(frozen=True, slots=True)
class Figures:
    """One audit: after how many steps, of what, and what each attack found."""

    step: int
    over: Scope
    findings: tuple[Finding, ...]

    @property
    def strongest(self) -> Finding | None:
        """None if no attack could be judged."""
        return max(self.findings, key=lambda finding: finding.auc.value, default=None)


@dataclass(frozen=True, slots=True)
class Excess:
    """An attack that is above one of our limits, with all of its interval."""

    finding: Finding
    estimate: Estimate
    #: The setting under `audit`, and its value.
    key: str
    limit: float

    def __str__(self) -> str:
        what = f"finds {shown(self.estimate)} of the people at {FALSE_POSITIVES:.0%} wrongly found"
        if self.estimate is self.finding.auc:
            what = f"AUC {shown(self.estimate)}"
        return f"{what}, above audit.{self.key} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """All audits of a run, in order."""

    #: Ours; the attacker is the other one.
    role: RoleName
    settings: AuditSettings
    #: UIDs that were followed through all epochs.
    followed: int
    audits: list[Figures] = field(default_factory=list)

    @property
    def last(self) -> list[Figures]:
        """The newest audit of each scope, of which that of all epochs comes first."""
        newest = {figures.over: figures for figures in self.audits if figures.findings}
        return [newest[scope] for scope in ("epochs", "batches") if scope in newest]

    @property
    def verdict(self) -> Verdict:
        """The worst of the run."""
        everything = [finding for figures in self.audits for finding in figures.findings]
        return verdict(everything, self.settings)

    def summary(self) -> dict[str, Any]:
        """For `metrics.json`: the strongest attack of the newest audit, and the verdict."""
        found = self.last[0].strongest if self.last else None
        strongest = asdict(found) | {"step": self.last[0].step} if found else None
        return {"verdict": self.verdict, "strongest": strongest}

    # -- on file: a header, then a line for each audit --

    def begin(self, path: Path) -> None:
        """Write what is there so far."""
        header = {
            "format": FORMAT,
            "role": self.role,
            "followed": self.followed,
            "settings": self.settings.model_dump(mode="json"),
        }
        lines = [header, *map(asdict, self.audits)]
        path.write_text("".join(map(_line, lines)), encoding="utf-8")

    @staticmethod
    def append(figures: Figures, path: Path) -> None:
        """Write one more."""
        with path.open("a", encoding="utf-8") as file:
            file.write(_line(asdict(figures)))

    @classmethod
    def load(cls, path: Path) -> AuditRecord:
        """Read a record, also one that is being written.

        Raises:
            ConfigurationError: it cannot be read, or not by this release.
        """
        try:
            header, *rest = path.read_text(encoding="utf-8").splitlines(keepends=True)
            facts = json.loads(header)
            if facts["format"] != FORMAT:
                raise ConfigurationError(
                    f"{path} is of format {facts['format']}, and this release reads {FORMAT}; read "
                    "it with the release that wrote it"
                )
            # The last line may be half-written.
            audits = [_figures(json.loads(line)) for line in rest if line.endswith("\n")]
            settings = AuditSettings.model_validate(facts["settings"])
            return cls(facts["role"], settings, facts["followed"], audits)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigurationError(
                f"{path} is damaged; train again with --force, or delete it"
            ) from None


def excesses(
    findings: Iterable[Finding], settings: AuditSettings, then: Verdict
) -> Iterator[Excess]:
    """Attacks above the limits that would make us `warn` or `stop`, the strongest first."""
    for finding in sorted(findings, key=lambda finding: -finding.auc.value):
        for name, estimate in (("above", finding.auc), ("tpr_above", finding.tpr)):
            limit = getattr(settings, f"{then}_{name}")
            if limit is not None and estimate is not None and estimate.low > limit:
                yield Excess(finding, estimate, f"{then}_{name}", limit)


def verdict(findings: Iterable[Finding], settings: AuditSettings) -> Verdict:
    """The worst that the limits make of these."""
    found = list(findings)
    worst: tuple[Verdict, ...] = ("stop", "warn")
    return next((then for then in worst if any(excesses(found, settings, then))), "fine")


def _line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, sort_keys=True) + "\n"


def _figures(facts: dict[str, Any]) -> Figures:
    if facts["over"] not in get_args(Scope):
        raise ValueError(facts["over"])
    findings = [
        Finding(
            found["attack"],
            Estimate(**found["auc"]),
            None if found["tpr"] is None else Estimate(**found["tpr"]),
        )
        for found in facts["findings"]
    ]
    return Figures(facts["step"], facts["over"], tuple(findings))
