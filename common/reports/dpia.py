"""A data protection impact assessment as Markdown, filled in from a party's configuration.

What the configuration says is filled in; what only people can answer is marked with `TODO`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.release import RELEASE
from florist.common.session.retention import ARTEFACTS
from florist.common.settings.agreement import AUTO_AGGREGATE_FROM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig

TODO = "**TODO:**"


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table of the party and the names of its columns; None if its file cannot be read here."""

    name: str
    table: Table
    columns: Sequence[str] | None


def assessment(config: PartyConfig, tables: Sequence[TableColumns]) -> str:
    """Return the whole document."""
    sections = (
        _head(config),
        _purpose(),
        _parties(config),
        _data(tables),
        _exchange(config),
        _guarantee(config, tables),
        _risks(config),
        _measures(config),
        _retention(),
        _decision(),
    )
    return "\n".join(line for section in sections for line in (*section, ""))


def retention_rows() -> list[str]:
    """Return the lines of the retention table in Markdown."""
    return [
        "| files in the run directory | kind | contents | may be deleted |",
        "|---|---|---|---|",
        *(
            f"| {artefact.files} | {artefact.kind} | {artefact.contents} | {artefact.deletable} |"
            for artefact in ARTEFACTS
        ),
    ]


def _head(config: PartyConfig) -> Iterator[str]:
    own, peer = _cell(config.party.name), _cell(config.party.peer)
    yield f"# Data protection impact assessment: {own} with {peer}"
    yield ""
    yield (
        f"Written by FLORIST {RELEASE} from the configuration of {own}. It is a draft, not legal "
        "advice: it states what the software does with this configuration, and marks with TODO "
        "what the controller has to add or decide."
    )


def _purpose() -> Iterator[str]:
    yield "## 1. Purpose and legal basis"
    yield ""
    yield f"* Purpose of the model, and who decides what with its predictions: {TODO}"
    yield f"* Legal basis of each party (GDPR Art. 6; Art. 9 for special categories): {TODO}"
    yield f"* Necessity and proportionality; why less intrusive means do not suffice: {TODO}"
    yield f"* How people are informed, and how they can object or be deleted: {TODO}"


def _parties(config: PartyConfig) -> Iterator[str]:
    role = "active (has the labels)" if config.data.train.label else "passive (has features)"
    yield "## 2. Parties"
    yield ""
    yield "| | name in the run | role | organisation, contact, data protection officer |"
    yield "|---|---|---|---|"
    yield f"| this party | {_cell(config.party.name)} | {role} | {TODO} |"
    yield f"| peer | {_cell(config.party.peer)} | the other role | {TODO} |"
    yield ""
    yield f"* Joint controllers, or controller and processor; contract: {TODO}"
    yield f"* Countries in which the parties process data, and transfers between them: {TODO}"


def _data(tables: Sequence[TableColumns]) -> Iterator[str]:
    yield "## 3. Personal data of this party"
    yield ""
    yield "Columns stay on this party's machines; section 4 says what leaves them."
    for each in tables:
        yield ""
        yield f"### Table `{each.name}`: {_cell(each.table.path.name)}"
        yield ""
        yield "| column | use | category of data, source, sensitive? |"
        yield "|---|---|---|"
        for column, use in _uses(each):
            yield f"| {_cell(column)} | {use} | {TODO} |"
        if each.columns is None:
            yield ""
            yield f"{TODO} the file could not be read here; list its feature columns"
    yield ""
    yield f"* Groups of people concerned, and how many: {TODO}"


def _uses(each: TableColumns) -> Iterator[tuple[str, str]]:
    table = each.table
    yield table.id_column, "ID, to align people; leaves encrypted only"
    if table.label is not None:
        yield table.label, "label"
    listed = {
        name: kind
        for kind, names in (("numeric", table.numeric), ("categorical", table.categorical))
        if names != "auto"
        for name in names
    }
    automatic = "auto" in (table.numeric, table.categorical)
    known = each.columns if each.columns is not None else list(listed)
    for column in known:
        if column in (table.id_column, table.label):
            continue
        if column in listed:
            yield column, f"feature ({listed[column]})"
        else:
            yield column, "feature (type found by the software)" if automatic else "not used"


def _exchange(config: PartyConfig) -> Iterator[str]:
    training, evaluation = config.agreement.training, config.agreement.evaluation
    yield "## 4. What is exchanged with the peer"
    yield ""
    yield "| stage | message | what the peer can read |"
    yield "|---|---|---|"
    yield "| alignment | encrypted IDs, shuffled | sizes (section 5); no ID, no link to a person |"
    yield (
        f"| training | embeddings of width {training.wire_width} to the active party, "
        f"{training.epochs} pass(es) | a compressed form of each feature row, or of a stand-in |"
    )
    yield (
        "| training | gradients to the passive party | the label that was used for each row, real "
        "or synthetic |"
    )
    if training.most_aggregate_privacy is not None:
        small = _unless_small(training)
        yield (
            "| training | sums of labels by category, encrypted and noised, to the passive party"
            f"{small} | the sums with noise, and the number of people per class with noise "
            "(section 5) |"
        )
    if evaluation.table:
        learns = "estimated metrics" if evaluation.passive_learns == "figures" else "nothing"
        yield (
            "| evaluation | embeddings to the active party, once per model | as in training; the "
            f"passive party learns {learns} |"
        )
    yield "| serving | embeddings to the active party, predictions back | no ID; predictions |"
    yield ""
    yield "Neither party is told which of its people the other also has."


def _guarantee(config: PartyConfig, tables: Sequence[TableColumns]) -> Iterator[str]:
    privacy, overlap = config.agreement.union.privacy, config.agreement.union.overlap
    budget = config.privacy.budget
    yield "## 5. Guarantees of differential privacy"
    yield ""
    if privacy is None:
        yield (
            "* **None**: `agreement.union.privacy` is null. The exact number of shared people is "
            "revealed, and repeated runs reveal by difference who joined or left."
        )
    else:
        sizes, epsilon, delta = _sizes(config, tables), privacy.epsilon, privacy.delta
        yield (
            f"* Each union is (ε, δ)-differentially private with ε = {epsilon:g} and "
            f"δ = {delta:g} for each person of either party."
        )
        yield (
            f"* Tables to align in this configuration: {len(tables)}. One run announces {sizes} "
            f"sizes, which costs ε = {sizes * epsilon:g}, δ = {sizes * delta:g}."
        )
    yield from _aggregate(config)
    if budget is None:
        yield "* Budget over all runs with this peer: **none** (`privacy.budget` is null)."
    else:
        spent = f"ε = {budget.epsilon:g}, δ = {budget.delta:g}"
        yield f"* Budget over all runs with this peer: {spent}."
    yield (
        f"* A run stops unless the estimated overlap is at least {overlap.minimum:,} people and "
        f"{overlap.minimum_share:.0%} to {overlap.maximum_share:.0%} of the smaller table."
    )
    yield (
        "* A run is rejected if this party's table changed by 1 to "
        f"{config.privacy.minimum_change:,} people since the last run with this peer."
    )
    yield "* Embeddings, gradients and predictions are **not** covered: see section 6."


def _sizes(config: PartyConfig, tables: Sequence[TableColumns]) -> int:
    """The number of sizes that one run announces; an evaluation may announce a second one."""
    twice = config.agreement.evaluation.stand_ins == "once"
    return sum(2 if each.name == "evaluation" and twice else 1 for each in tables)


def _aggregate(config: PartyConfig) -> Iterator[str]:
    training = config.agreement.training
    privacy = training.most_aggregate_privacy
    if privacy is None:
        yield "* There is no label aggregate."
        return
    whose = "this party" if config.data.train.label else "the peer"
    cost = f"ε = {privacy.epsilon:g}, δ = {privacy.delta:g}"
    yield (
        f"* The label aggregate{_unless_small(training)} is (ε, δ)-differentially private with "
        f"{cost} for each person of the active party, {whose}. Each run costs the active party "
        "this in addition."
    )


def _unless_small(training: TrainingAgreement) -> str:
    if training.aggregate.privacy != "auto":
        return ""
    return f" (if the union has at least {AUTO_AGGREGATE_FROM:,} people)"


def _risks(config: PartyConfig) -> Iterator[str]:
    audit = config.audit
    limit = audit.stop_above
    measured = "off (`audit.enabled`)"
    if audit.enabled:
        action = "warns only" if limit is None else f"stops the run above AUC {limit:g}"
        measured = f"on; {action}"
    yield "## 6. Residual risks"
    yield ""
    yield "| risk | what limits it | likelihood, severity, accepted by |"
    yield "|---|---|---|"
    yield (
        "| the peer infers from embeddings or gradients which people are shared | stand-ins, "
        f"noise, few passes; measured by the self-audit: {measured} | {TODO} |"
    )
    yield (
        "| the passive party reads labels off the gradients | which of them are real is hidden, "
        f"not the labels themselves | {TODO} |"
    )
    yield (
        "| the peer puts invented people into its set to look for single people | limits on the "
        f"overlap, noise on counts, set commitments that an auditor can open | {TODO} |"
    )
    yield f"| the peer runs modified software | signed evidence; a contract | {TODO} |"
    yield f"| the trained model memorises people | treat both halves as personal data | {TODO} |"
    yield f"| a machine of this party is compromised | access control, section 7 | {TODO} |"


def _measures(config: PartyConfig) -> Iterator[str]:
    tls = config.network.tls
    yield "## 7. Technical and organisational measures"
    yield ""
    if tls is None:
        yield "* **No TLS is configured** (`network.tls`): messages are readable on the network."
    else:
        pinned = "pinned" if tls.peer_key_sha256 else "not pinned (`network.tls.peer_key_sha256`)"
        yield f"* Mutual TLS 1.3; the peer's key is {pinned}."
    agreement = config.agreement
    yield f"* Group `{agreement.group}`, IDs normalised by `{agreement.id_normalisation}`."
    yield (
        f"* Synthetic data of a person stay the same: {_yes(agreement.training.sticky)}; noise on "
        f"embeddings: {agreement.training.embedding_noise:g} standard deviations."
    )
    yield "* The run directory is accessible to its owner only (modes 0600 and 0700)."
    yield "* Both parties sign a record of each stage; `florist evidence` writes it for auditors."
    yield f"* Who may start runs and read the run directory: {TODO}"
    yield f"* Encryption of disks and backups; handling of incidents: {TODO}"


def _retention() -> Iterator[str]:
    yield "## 8. Retention"
    yield ""
    yield "`florist purge RUN` deletes what is marked secret or working; `--all` deletes the run."
    yield ""
    yield from retention_rows()
    yield ""
    yield f"* Period after which the run and the model are deleted, and by whom: {TODO}"


def _decision() -> Iterator[str]:
    yield "## 9. Opinion and decision"
    yield ""
    yield f"* Views of the people concerned or their representatives: {TODO}"
    yield f"* Opinion of the data protection officer: {TODO}"
    yield f"* Decision of the controller, date, signature: {TODO}"
    yield f"* Review at the latest on: {TODO}"


def _yes(value: bool) -> str:  # noqa: FBT001 - a value to show
    return "yes" if value else "no"


def _cell(text: str) -> str:
    """Make a name safe for a cell of a Markdown table."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return "".join(f"\\{c}" if c in r"\`*_{}[]<>#|" else c for c in shown)
