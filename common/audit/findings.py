"""The findings of a self-audit: aggregates only, compared with this party's limits.

Nothing here reveals anything about single people or batches: every figure covers at least `FEWEST`
UIDs of each kind, and is rounded so that it does not reveal how many there were of each.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from florist.common.audit.statistics import IntervalEstimate
from florist.common.audit.training_windows import WindowName
from florist.common.core.errors import ConfigurationError
from florist.common.session.retention import if_damaged
from florist.common.settings.audit import AuditSettings
from florist.common.storage.manifest import DamagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.audit.attack_runner import PeerAttacks
    from florist.common.audit.audit_folder import AuditFolder
    from florist.common.audit.statistics import AttackResult
    from florist.common.audit.strata import StratumResult
    from florist.common.core.roles import RoleName

#: Increased when the file format changes such that an older reader would misread it.
FORMAT = 3
#: Format 1 had no training windows, and format 2 neither strata nor skipped attacks.
_READABLE = (1, 2, FORMAT)

#: The fewest UIDs of each kind, real and synthetic, for which an AUC is reported.
FEWEST = 100
#: The same for rates at `FALSE_POSITIVES`: with fewer UIDs this would allow only a few errors.
FEWEST_FOR_RATES = 500
#: The false positive rate at which true positive rates are reported.
FALSE_POSITIVES = 0.01

#: What an audit covers: the last batches before it, a sample of UIDs in all epochs, or a window.
Scope = Literal["batches", "epochs"] | WindowName
#: The scopes in the order of reports, and their names there.
SCOPE_TEXTS: dict[Scope, str] = {
    "epochs": "all epochs",
    "batch-0": "first batch",
    "batches-0-4": "batches 0\N{EN DASH}4",
    "batches-5-9": "batches 5\N{EN DASH}9",
    "batches-10-19": "batches 10\N{EN DASH}19",
    "later-batches": "all later batches",
    "batches": "last batches",
}
Verdict = Literal["fine", "warn", "stop"]


@dataclass(frozen=True, slots=True)
class StratumFinding:
    """The folded AUC of an attack in the stratum where it does best."""

    stratum: str
    auc: IntervalEstimate


@dataclass(frozen=True, slots=True)
class SkippedAttack:
    """An attack that we cannot make on ourselves, and why."""

    attack: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """How well an attack distinguishes our real rows from our synthetic ones."""

    attack: str
    #: The folded AUC, where 0.5 is chance.
    auc: IntervalEstimate
    #: The share of UIDs found at `FALSE_POSITIVES`, real or synthetic, whichever is more. None if
    #: there are too few UIDs.
    tpr: IntervalEstimate | None
    #: None if no stratum has enough UIDs, or if the audit has no strata.
    worst: StratumFinding | None = None

    @classmethod
    def of(cls, result: AttackResult, worst: StratumResult | None = None) -> Finding | None:
        """Return the finding, or None if the attack scored too few UIDs."""
        fewest = min(result.real, result.synthetic)
        if fewest < FEWEST:
            return None
        has_rates = fewest >= FEWEST_FOR_RATES
        return cls(
            result.attack,
            _rounded(result.folded_auc),
            _rounded(result.true_positive_rate(FALSE_POSITIVES)) if has_rates else None,
            None
            if worst is None
            else StratumFinding(worst.stratum, _rounded(worst.result.folded_auc)),
        )


def _rounded(estimate: IntervalEstimate) -> IntervalEstimate:
    return IntervalEstimate(*(round(value, 4) for value in asdict(estimate).values()))


@dataclass(frozen=True, slots=True)
class Figures:
    """One audit: the number of steps before it, what it covers, and the findings per attack."""

    step: int
    over: Scope
    findings: tuple[Finding, ...]
    skipped: tuple[SkippedAttack, ...] = ()

    @classmethod
    def of(cls, step: int, over: Scope, attacks: PeerAttacks) -> Figures:
        """Return what the peer's attacks found."""
        found = (Finding.of(each, attacks.worst.get(each.attack)) for each in attacks.results)
        return cls(
            step,
            over,
            tuple(finding for finding in found if finding),
            tuple(SkippedAttack(*each) for each in attacks.skipped.items()),
        )

    @property
    def scope_text(self) -> str:
        """What the audit covers, such as "first batch"."""
        text = SCOPE_TEXTS[self.over]
        return f"{text} before step {self.step:,}" if self.over == "batches" else text

    @property
    def strongest(self) -> Finding | None:
        """The finding with the highest AUC, or None if there are no findings."""
        return max(self.findings, key=lambda finding: finding.auc.value, default=None)


@dataclass(frozen=True, slots=True)
class Excess:
    """A finding whose whole interval is above one of our limits."""

    finding: Finding
    estimate: IntervalEstimate
    #: The setting under `audit` and its value.
    key: str
    limit: float

    def __str__(self) -> str:
        what = f"finds {self.estimate} of the UIDs at {FALSE_POSITIVES:.0%} false positives"
        worst = self.finding.worst
        if self.estimate is self.finding.auc:
            what = f"AUC {self.estimate}"
        elif worst is not None and self.estimate is worst.auc:
            what = f"AUC {self.estimate} in {worst.stratum}"
        return f"{what}, above audit.{self.key} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """All audits of a run, in order."""

    #: Our own role. The attacker is the other party.
    role: RoleName
    settings: AuditSettings
    #: The number of UIDs that are followed through all epochs.
    followed: int
    audits: list[Figures] = field(default_factory=list)

    @property
    def last(self) -> list[Figures]:
        """The newest audit of each scope; the one over all epochs comes first."""
        newest = {figures.over: figures for figures in self.audits if figures.findings}
        return [newest[scope] for scope in SCOPE_TEXTS if scope in newest]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the run."""
        everything = [finding for figures in self.audits for finding in figures.findings]
        return verdict(everything, self.settings)

    def summary(self) -> dict[str, Any]:
        """Return the verdict, the strongest attack of the newest audit, and where attacks do best.

        This is for `metrics.json`.
        """
        found = self.last[0].strongest if self.last else None
        strongest = asdict(found) | {"step": self.last[0].step} if found else None
        worst = worst_window(self.audits)
        window = None
        if worst:
            figures, finding = worst
            window = asdict(finding) | {"over": figures.over, "step": figures.step}
        stratum = worst_stratum_of(self.last)
        return {
            "verdict": self.verdict,
            "strongest": strongest,
            "worst_window": window,
            "worst_stratum": None
            if stratum is None
            else {"attack": stratum[0]} | asdict(stratum[1]),
        }

    # The file holds a header line and then one line per audit.

    def save(self, folder: AuditFolder) -> None:
        """Write the header and all audits so far, replacing the file.

        Raises:
            ConfigurationError: it cannot be written.
        """
        header = {
            "format": FORMAT,
            "role": self.role,
            "followed": self.followed,
            "settings": self.settings.model_dump(mode="json"),
        }
        lines = [header, *map(asdict, self.audits)]
        folder.files.write(folder.record.name, "".join(map(_line, lines)).encode())

    @classmethod
    def load(cls, folder: AuditFolder) -> AuditRecord:
        """Read a record, even while it is being written.

        Raises:
            ConfigurationError: the file cannot be read, is damaged, or has another format.
        """
        path = folder.record
        content = folder.files.read(path.name)
        try:
            header, *rest = content.decode().splitlines(keepends=True)
            facts = json.loads(header)
            if facts["format"] not in _READABLE:
                raise ConfigurationError(
                    f"{path} has format {facts['format']}, but this release reads {FORMAT}; read "
                    "it with the release that wrote it"
                )
            # Earlier releases appended lines; the last one may be half-written.
            audits = [_figures(json.loads(line)) for line in rest if line.endswith("\n")]
            settings = AuditSettings.model_validate(facts["settings"])
            return cls(facts["role"], settings, facts["followed"], audits)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DamagedFile(f"{path} is damaged; {if_damaged(f'audit/{path.name}')}") from None


def worst_window(
    audits: Iterable[Figures], attack: str | None = None
) -> tuple[Figures, Finding] | None:
    """Return the audit of part of the run, and its finding, with the highest lower end of the AUC.

    The lower end is what limits apply to. The AUC itself would be highest in the window with the
    fewest rows. None if there is no such audit.

    Args:
        audits: audits of any scope.
        attack: look for findings of this attack only.
    """
    found = (
        (figures, finding)
        for figures in audits
        if figures.over != "epochs"
        for finding in figures.findings
        if attack in (None, finding.attack)
    )
    return max(found, key=lambda pair: (pair[1].auc.low, pair[1].auc.value), default=None)


def worst_stratum_of(audits: Iterable[Figures]) -> tuple[str, StratumFinding] | None:
    """Return the attack and stratum with the highest lower end of the AUC; None without any."""
    found = (
        (finding.attack, finding.worst)
        for figures in audits
        for finding in figures.findings
        if finding.worst is not None
    )
    return max(found, key=lambda pair: (pair[1].auc.low, pair[1].auc.value), default=None)


def excesses(
    findings: Iterable[Finding], settings: AuditSettings, then: Verdict
) -> Iterator[Excess]:
    """Yield the findings above our limits for `then`, the strongest attack first."""
    for finding in sorted(findings, key=lambda finding: -finding.auc.value):
        in_stratum = finding.worst.auc if finding.worst is not None else None
        for name, estimate in (
            ("above", finding.auc),
            ("above", in_stratum),
            ("tpr_above", finding.tpr),
        ):
            limit = getattr(settings, f"{then}_{name}")
            if limit is not None and estimate is not None and estimate.low > limit:
                yield Excess(finding, estimate, f"{then}_{name}", limit)


def verdict(findings: Iterable[Finding], settings: AuditSettings) -> Verdict:
    """Return the worst verdict that our limits give for these findings."""
    found = list(findings)
    worst: tuple[Verdict, ...] = ("stop", "warn")
    return next((then for then in worst if any(excesses(found, settings, then))), "fine")


def _line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, sort_keys=True) + "\n"


def _figures(facts: dict[str, Any]) -> Figures:
    if facts["over"] not in SCOPE_TEXTS:
        raise ValueError(facts["over"])
    findings = [
        Finding(
            found["attack"],
            IntervalEstimate(**found["auc"]),
            None if found["tpr"] is None else IntervalEstimate(**found["tpr"]),
            _stratum(found.get("worst")),
        )
        for found in facts["findings"]
    ]
    skipped = tuple(SkippedAttack(**each) for each in facts.get("skipped", ()))
    return Figures(facts["step"], facts["over"], tuple(findings), skipped)


def _stratum(facts: dict[str, Any] | None) -> StratumFinding | None:
    if facts is None:
        return None
    return StratumFinding(facts["stratum"], IntervalEstimate(**facts["auc"]))
