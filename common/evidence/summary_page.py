"""A printable page that summarises the evidence of a run: promised, exchanged, measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from florist.common.core.text import printable
from florist.common.evidence.record import AggregateFacts
from florist.common.reports.html import (
    Html,
    facts_table,
    figures_table,
    markup,
    page,
    tag,
    titled_section,
)
from florist.common.reports.shown_values import byte_count, number
from florist.common.reports.size_statements import estimate_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from florist.common.evidence.evidence_file import StageEvidence

#: One page of A4, also where a table has many rows.
_PRINT = Html(
    "<style>.figures+.figures{margin-top:1rem}@page{size:A4;margin:12mm}"
    "@media print{html{font-size:8.5pt}main{padding:0;max-width:none}h2{margin:1rem 0 .3rem}"
    "p{margin:.2rem 0;max-width:none}th,td{padding:.12rem .4rem}.facts{max-width:none}"
    "footer{margin-top:.8rem}}</style>\n"
)
_NAMES = {"align": "alignment", "train": "training", "evaluate": "evaluation"}
#: What a message contains, for readers who do not know the protocol.
_CONTENTS = {
    "SetChunk": "encrypted IDs, shuffled",
    "EmbeddingBlock": "embeddings of training rows",
    "TransferRequest": "base oblivious transfers",
    "TransferReply": "base oblivious transfers",
    "TransferBlock": "random oblivious transfers",
    "ChoiceBlock": "encrypted choices",
    "OfferBlock": "embeddings of training rows, encrypted, one per class",
    "GradientBlock": "gradients of training rows",
    "TestEmbeddingBlock": "embeddings of test rows",
    "EvaluationEmbeddingBlock": "embeddings of evaluation rows",
    "EpochSummary": "loss and metrics of an epoch",
    "EvaluationSummary": "estimated metrics",
}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the page shows of a run."""

    stages: Sequence[StageEvidence]
    #: Metrics that the evaluation estimated, as text, by name.
    estimates: Mapping[str, str] = field(default_factory=dict)


def render(run: RunFacts) -> str:
    """Return the whole page; there is at least one stage."""
    first = run.stages[0]
    parties = first.record["statement"]["parties"]
    active, passive = str(parties["active"]), str(parties["passive"])
    title = f"Evidence of the run of {active} and {passive}"
    role = first.local["role"]
    account = first.record["accounts"][role]
    source = (
        f"Written by {account['name']}, the {role} party · FLORIST {account['release']} · "
        f"agreement {first.record['statement']['agreement_sha256'][:16]}…"
    )
    return page(
        title,
        _PRINT,
        tag("header", tag("h1", title), tag("p", source, class_="muted")),
        titled_section("Promised", _promised(run)),
        titled_section("Exchanged", _exchanged(run)),
        titled_section("Measured", _measured(run)),
        titled_section("Signatures", _signatures(run)),
        tag(
            "footer",
            tag(
                "p",
                "Check both signatures with: florist evidence verify evidence.json --authority "
                "CA.pem. This page itself is not signed.",
                class_="muted",
            ),
        ),
    )


def _promised(run: RunFacts) -> Html:
    agreement = run.stages[0].record["agreement"]
    union, training = agreement["union"], agreement["training"]
    privacy, overlap = union["privacy"], union["overlap"]
    unions = sum(len(_made(stage)) for stage in run.stages)
    if privacy is None:
        guarantee = "none: by agreement the exact sizes are revealed"
    else:
        guarantee = (
            f"ε = {privacy['epsilon']:g}, δ = {privacy['delta']:g} for each union; "
            f"{unions} unions: ε = {unions * privacy['epsilon']:g}, "
            f"δ = {unions * privacy['delta']:.2g} in all"
        )
    facts = {
        "who is shared": "neither party is told which of its people the other also has",
        "sizes (differential privacy)": guarantee,
        "labels (differential privacy)": _aggregate(run),
        "limits on the overlap": f"at least {overlap['minimum']:,} people, and "
        f"{overlap['minimum_share']:.0%} to {overlap['maximum_share']:.0%} of the smaller table",
        "planted pairs": f"{union['planted_pairs']:,}",
        "training": f"{training['epochs']} pass(es) over the union, a cut of width "
        f"{training['cut_width']} with noise {training['embedding_noise']:g}; what they reveal is "
        "measured, not proven",
    }
    return facts_table(facts)


def _aggregate(run: RunFacts) -> str:
    """Describe the label aggregate; records of earlier releases do not mention any."""
    stated = [stage.record["statement"].get("aggregate") for stage in run.stages]
    found = [AggregateFacts.from_statement(each) for each in stated if each is not None]
    if None in found:
        return "the facts of the label aggregate are malformed"
    texts = [
        f"label aggregate: ε = {facts.epsilon:g}, δ = {facts.delta:g} for each person of the "
        f"active party; {facts.coordinates:,} sums over {facts.columns:,} columns, each with noise "
        f"of deviation {facts.deviation:.4g}"
        for facts in found
        if facts is not None
    ]
    return "; ".join(texts) or "no label aggregate in these stages"


def _made(stage: StageEvidence) -> dict[str, Any]:
    """The unions that a stage made; training uses one that the alignment made."""
    statement = stage.record["statement"]
    unions: dict[str, Any] = statement["unions"]
    return {} if statement["stage"] == "train" else unions


def _exchanged(run: RunFacts) -> Html:
    parties = run.stages[0].record["statement"]["parties"]
    senders = [f"{parties[role]} sent" for role in ("active", "passive")]
    heads = ("messages · bytes", *senders)
    rows = []
    for stage in run.stages:
        name = _NAMES.get(stage.record["statement"]["stage"], "stage")
        sent = {role: _sent(stage, role) for role in ("active", "passive")}
        kinds = sorted(
            sent["active"].keys() | sent["passive"].keys(),
            key=lambda kind: -sum(each.get(kind, (0, 0))[1] for each in sent.values()),
        )
        shown = [kind for kind in kinds if kind in _CONTENTS]
        other = [kind for kind in kinds if kind not in _CONTENTS]
        for kind in shown:
            cells = [_cell(sent[role].get(kind, (0, 0))) for role in sent]
            rows.append((f"{name}: {_CONTENTS[kind]} ({kind})", *cells))
        rest = [_cell(_sum(sent[role], other)) for role in sent]
        rows.append((f"{name}: handshakes, counts, digests ({len(other)} other types)", *rest))
    return markup(_unions(run), figures_table(heads, rows))


def _unions(run: RunFacts) -> Html:
    rows = []
    for stage in run.stages:
        for table, union in _made(stage).items():
            shared = estimate_text(union["shared_estimate"], union["shared_deviation"])
            rows.append(
                (
                    f"union of the {table} tables",
                    f"{union['active_size']:,}",
                    f"{union['passive_size']:,}",
                    f"{union['union_size']:,}",
                    shared,
                    f"{union['sha256'][:16]}…",
                )
            )
    heads = ("announced sizes", "active", "passive", "union", "shared (estimated)", "SHA-256")
    return figures_table(heads, rows) if rows else markup()


def _sent(stage: StageEvidence, role: str) -> dict[str, tuple[int, int]]:
    """The messages and bytes of each type, over all sessions."""
    account = stage.record["accounts"].get(role) or {"sent": {}, "sent_in_earlier_sessions": {}}
    found: dict[str, tuple[int, int]] = {}
    for part in (account["sent"], account["sent_in_earlier_sessions"]):
        for kind, count in part.items():
            messages, size = found.get(kind, (0, 0))
            found[kind] = (messages + count["messages"], size + count["bytes"])
    return found


def _sum(sent: dict[str, tuple[int, int]], kinds: list[str]) -> tuple[int, int]:
    found = [sent.get(kind, (0, 0)) for kind in kinds]
    return sum(messages for messages, _ in found), sum(size for _, size in found)


def _cell(count: tuple[int, int]) -> str:
    messages, size = count
    return f"{number(messages)} · {byte_count(size)}" if messages else number(None)


def _measured(run: RunFacts) -> Html:
    facts = {}
    audits = [stage.local["audit"] for stage in run.stages if stage.local.get("audit")]
    for audit in audits:
        facts["self-audit"] = _audit_text(audit)
    if not audits:
        facts["self-audit"] = "none"
    facts |= {f"evaluation: {name}": text for name, text in run.estimates.items()}
    return facts_table(facts)


def _audit_text(audit: dict[str, Any]) -> str:
    strongest = audit.get("strongest")
    if strongest is None:
        return f"verdict: {audit.get('verdict') or audit.get('why')}; too few rows for any figure"
    text = (
        f"verdict: {audit['verdict']}; strongest attack of the peer on what we sent: "
        f"{_finding(strongest)}; 0.5 is chance"
    )
    if worst := audit.get("worst_stratum"):
        text += f". Worst group, {worst['stratum']}: {_finding(worst)}"
    if worst := audit.get("worst_window"):
        text += f". Worst part of training: {_finding(worst)}"
    return text


def _finding(finding: dict[str, Any]) -> str:
    auc = finding["auc"]
    interval = f"{auc['low']:.3f} to {auc['high']:.3f}"
    return f"{finding['attack']}, AUC {auc['value']:.3f} (95% interval {interval})"


def _signatures(run: RunFacts) -> Html:
    rows = []
    for stage in run.stages:
        statement = stage.record["statement"]
        states = [_state(stage, role) for role in ("active", "passive")]
        rows.append((_NAMES.get(statement["stage"], "stage"), statement["outcome"], *states))
    certificates = [
        f"{account['name']}: certificate SHA-256 {account['certificate_sha256'] or 'none'}"
        for account in run.stages[0].record["accounts"].values()
    ]
    heads = ("stage", "outcome", "active", "passive")
    return markup(
        figures_table(heads, rows), *(tag("p", text, class_="muted") for text in certificates)
    )


def _state(stage: StageEvidence, role: Any) -> str:  # noqa: ANN401 - a literal of both roles
    stored = stage.signatures.get(role)
    account = stage.record["accounts"].get(role)
    if stored is None or account is None or not stored.signature:
        problem = stored.problem if stored is not None else ""
        return f"not signed: {printable(problem, 120)}" if problem else "not signed"
    if stored.problem:
        return f"not valid: {printable(stored.problem, 120)}"
    return f"signed {account['time'].replace('T', ' ')[:16]} UTC"
