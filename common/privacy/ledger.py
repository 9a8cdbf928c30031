"""The privacy ledger of a party with one peer: what its releases cost, and what more they may.

A size is charged right before this party announces it, so a run that fails afterwards is charged
too; so is a label aggregate, by the active party. All costs are added up (basic composition).
Before a run connects, the ledger refuses it if the budget does not suffice, or if this party's set
differs from the previous one by so few people that the results of both runs together would tell
about just them.

    <privacy.ledger>/<party>-with-<peer>/
      ledger.jsonl, ledger.head, ledger.key   see `ledger_file`
      train.hashes, test.hashes, ...          the set of the last charge of each kind of table
      .lock                                   locked while a run uses the ledger
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.privacy.count_noise import exact_fraction
from florist.common.privacy.ledger_entries import Charge, Settlement, now
from florist.common.privacy.ledger_file import LedgerFile
from florist.common.privacy.set_hashes import count_difference, file_digest, write_set_hashes
from florist.common.storage.durable import sync
from florist.common.storage.files import FolderStorage
from florist.common.storage.private_files import locked_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from florist.common.privacy.ledger_entries import Announced, Cost, Entry, Outcome, TableKind
    from florist.common.settings.agreement import AggregatePrivacy, Agreement
    from florist.common.settings.party_config import PartyConfig
    from florist.common.settings.privacy import PrivacySettings
    from florist.common.settings.union import CountPrivacy
    from florist.common.storage.id_column import Ids

log = logging.getLogger("florist.privacy")

#: Charges that an error message lists.
_SHOWN = 5


def ledger_folder(config: PartyConfig) -> Path:
    """Return the folder of the ledger with the configured peer."""
    above = config.privacy.ledger or config.run_directory.absolute().parent / "ledger"
    return above / f"{config.party.name}-with-{config.party.peer}"


@contextmanager
def open_ledger(config: PartyConfig) -> Iterator[Ledger]:
    """Open the ledger with the configured peer, or create it, and lock it for one run.

    Raises:
        ConfigurationError: another run uses it, it is damaged, or it cannot be written.
    """
    folder = ledger_folder(config)
    with locked_folder(
        folder,
        "the privacy ledger",
        if_not_writable="set privacy.ledger to a folder that is kept from run to run",
        if_in_use=f"another run with {config.party.peer}; wait until it has finished",
    ):
        file = LedgerFile(folder)
        file.open(config.party.name, config.party.peer)
        ledger = Ledger(file, config.privacy, config.agreement)
        try:
            yield ledger
        except BaseException:
            ledger.settle_failed()
            raise
        finally:
            ledger.forget_prepared()


@dataclass(slots=True)
class _Prepared:
    """A set that may be charged."""

    digest: str
    accepted_difference: str | None = None


@dataclass(slots=True)
class Ledger:
    """An open ledger; see the top of this module."""

    file: LedgerFile
    settings: PrivacySettings
    agreement: Agreement
    _prepared: dict[TableKind, _Prepared] = field(default_factory=dict)
    #: The charges of this run that have no outcome yet.
    _open: dict[TableKind, list[int]] = field(default_factory=dict)
    _open_labels: list[int] = field(default_factory=list)

    @property
    def charges(self) -> list[Charge]:
        """All charges, oldest first."""
        return charges(self.file.entries)

    def prepare(
        self, sets: Mapping[TableKind, Ids], *, accept_difference: str | None = None
    ) -> None:
        """Apply the difference guard to the sets of a run; only these can be charged.

        Args:
            sets: this party's people, for each table that the run may align.
            accept_difference: why small differences are accepted; None rejects them.

        Raises:
            ConfigurationError: a set differs a little from the previous one of its kind.
        """
        for table, ids in sets.items():
            self._prepare(table, ids, accept_difference)

    def is_charged(self, table: TableKind) -> bool:
        """Whether the last set of this table was charged for this set and this agreement.

        `prepare` names the set. Charges of labels make no difference.
        """
        last = _last_set(self.charges, table)
        return last is not None and (last.set_digest, last.agreement_digest) == (
            self._prepared[table].digest,
            agreement_digest(self.agreement),
        )

    def is_aggregate_charged(self) -> bool:
        """Whether labels were charged since the last union of training tables, by this agreement.

        If so, a run that kept the secret of its noise releases the same numbers again, for free.
        """
        charged = [charge for charge in self.charges if charge.table == "train"]
        return (
            bool(charged)
            and charged[-1].announced == "labels"
            and charged[-1].agreement_digest == agreement_digest(self.agreement)
        )

    def check_budget(self, releases: int, aggregate: AggregatePrivacy | None = None) -> None:
        """Check that this much can still be released within the budget.

        Args:
            releases: the number of sizes to announce.
            aggregate: the guarantee of a label aggregate, for a party that releases one.

        Raises:
            ConfigurationError: names the cost, what is left, and the history.
        """
        budget = self.settings.budget
        if budget is None or not (releases or aggregate):
            return
        privacy = self.agreement.union.privacy
        if releases and privacy is None:
            raise ConfigurationError(
                "agreement.union.privacy is null, so the union reveals exact sizes, which no "
                "privacy.budget covers: set privacy.budget to null too, or agree on "
                "agreement.union.privacy"
            )
        cost = _cost(privacy, releases, aggregate)
        limit = exact_fraction(budget.epsilon), exact_fraction(budget.delta)
        spent = total_cost(self.charges)
        if spent is None:
            raise ConfigurationError(
                "privacy.budget cannot hold: an earlier union with this peer revealed exact sizes "
                f"(agreement.union.privacy: null). {history(self.file.entries)} Set privacy.budget "
                "to null, or privacy.ledger to a new folder"
            )
        if any(used + more > most for used, more, most in zip(spent, cost, limit, strict=True)):
            left = tuple(
                max(most - used, Fraction(0)) for most, used in zip(limit, spent, strict=True)
            )
            sizes = [(f"announce {releases} sizes", "agreement.union.privacy.epsilon")]
            sums = [("release a label aggregate", "agreement.training.aggregate.privacy.epsilon")]
            planned = (sizes if releases else []) + (sums if aggregate else [])
            raise ConfigurationError(
                f"privacy.budget: this run would {' and '.join(what for what, _ in planned)} at a "
                f"cost of {shown(cost)}, but of {shown(limit)} for this peer only {shown(left)} is "
                f"left. {history(self.file.entries)} `florist ledger --config FILE` shows all. To "
                "continue, raise privacy.budget, which weakens the guarantee for everybody in the "
                f"table, or agree on a smaller {' or '.join(key for _, key in planned)}"
            )

    def charge(self, table: TableKind, size: int, announced: Announced = "union") -> None:
        """Record the cost of announcing a size, durably; call it right before that.

        Raises:
            ConfigurationError: the budget does not suffice, or the ledger cannot be written.
        """
        self.check_budget(1)
        prepared = self._prepared[table]
        privacy = self.agreement.union.privacy
        self.file.append(
            Charge(
                number=len(self.charges) + 1,
                date=now(),
                table=table,
                announced=announced,
                set_digest=prepared.digest,
                own_size=size,
                epsilon=None if privacy is None else privacy.epsilon,
                delta=None if privacy is None else privacy.delta,
                agreement_digest=agreement_digest(self.agreement),
                accepted_difference=prepared.accepted_difference,
            )
        )
        self._open.setdefault(table, []).append(len(self.charges))
        self._keep_hashes(table)

    def charge_aggregate(self, privacy: AggregatePrivacy, people: int) -> None:
        """Record the cost of a label aggregate, durably; call it right before the first release.

        The set of the training table need not be prepared: it is that of the last union.

        Args:
            privacy: the guarantee of the class counts and sums together.
            people: the number of this party's people whose labels are summed; it stays here.

        Raises:
            ConfigurationError: the budget does not suffice, or the ledger cannot be written.
        """
        self.check_budget(0, privacy)
        aligned = _last_set(self.charges, "train")
        self.file.append(
            Charge(
                number=len(self.charges) + 1,
                date=now(),
                table="train",
                announced="labels",
                set_digest=None if aligned is None else aligned.set_digest,
                own_size=people,
                epsilon=privacy.epsilon,
                delta=privacy.delta,
                agreement_digest=agreement_digest(self.agreement),
            )
        )
        self._open_labels.append(len(self.charges))

    def settle(
        self,
        table: TableKind,
        outcome: Outcome,
        *,
        peer_size: int | None = None,
        union_size: int | None = None,
    ) -> None:
        """Record what became of this run's charges of a table, or else of the last one, if any.

        Raises:
            ConfigurationError: the ledger cannot be written.
        """
        last = _last_set(self.charges, table)
        for number in self._open.pop(table, [last.number] if last else []):
            self._settle(
                Settlement(
                    date=now(),
                    charge=number,
                    outcome=outcome,
                    peer_size=peer_size,
                    union_size=union_size,
                )
            )

    def settle_aggregate(self, outcome: Outcome) -> None:
        """Record what became of this run's label aggregate, or else of the last one, if any.

        Raises:
            ConfigurationError: the ledger cannot be written.
        """
        last = [charge.number for charge in self.charges if charge.announced == "labels"][-1:]
        numbers, self._open_labels = self._open_labels or last, []
        for number in numbers:
            self._settle(Settlement(date=now(), charge=number, outcome=outcome))

    def _settle(self, entry: Settlement) -> None:
        known = settlements(self.file.entries).get(entry.charge)
        if known is None or known.model_copy(update={"date": entry.date}) != entry:
            self.file.append(entry)

    def settle_failed(self) -> None:
        """Record that the charges of this run that have no outcome yet failed, if that is possible.

        They count whether or not it is.
        """
        for table in list(self._open):
            with suppress(ConfigurationError):
                self.settle(table, "failed")
        if self._open_labels:
            with suppress(ConfigurationError):
                self.settle_aggregate("failed")

    def forget_prepared(self) -> None:
        """Delete the hashes of sets that were not charged."""
        for table in self._prepared:
            (self.file.folder / _new(table)).unlink(missing_ok=True)

    def _prepare(self, table: TableKind, ids: Ids, accept: str | None) -> None:
        storage = FolderStorage(self.file.folder)
        if self.settings.minimum_change:
            self._recover_hashes(table)
        digest = write_set_hashes(storage, _new(table), ids, self.file.key)
        self._prepared[table] = prepared = _Prepared(digest)
        previous = _last_set(self.charges, table)
        if previous is None or previous.set_digest == digest or not self.settings.minimum_change:
            return
        differing = count_difference(storage, _hashes(table), _new(table))
        if not 1 <= differing <= self.settings.minimum_change:
            return
        if accept is None:
            raise ConfigurationError(
                f"our {table} table differs from that of the union of {previous.date} with this "
                f"peer by at most {self.settings.minimum_change:,} people "
                "(privacy.minimum_change): comparing the two results would tell about just them. "
                "Use the same table as before or change more people; or give "
                "--accept-difference REASON, which the ledger records"
            )
        prepared.accepted_difference = accept
        log.warning("a small difference to the previous %s table was accepted: %s", table, accept)

    def _recover_hashes(self, table: TableKind) -> None:
        """Make sure that the stored hashes are those of the last charge.

        A crash between a charge and the replacement of the hashes leaves them in the new file.
        """
        previous = _last_set(self.charges, table)
        if previous is None:
            return
        storage = FolderStorage(self.file.folder)
        for name in (_hashes(table), _new(table)):
            if storage.size(name) is None:
                continue
            if file_digest(storage, name, self.file.key) == previous.set_digest:
                if name == _new(table):
                    self._keep_hashes(table)
                return
        raise ConfigurationError(
            f"{self.file.folder / _hashes(table)}: missing or damaged, so that the difference to "
            "the previous set is unknown; restore the folder from a backup, or set "
            "privacy.minimum_change to 0 for this run"
        )

    def _keep_hashes(self, table: TableKind) -> None:
        folder = self.file.folder
        if (folder / _new(table)).exists():
            (folder / _new(table)).rename(folder / _hashes(table))
            sync(folder)


def charges(entries: Sequence[Entry]) -> list[Charge]:
    """Return all charges, oldest first."""
    return [entry for entry in entries if isinstance(entry, Charge)]


def settlements(entries: Sequence[Entry]) -> dict[int, Settlement]:
    """Return the last settlement of each charge, by its number."""
    return {entry.charge: entry for entry in entries if isinstance(entry, Settlement)}


def total_cost(charged: Sequence[Charge]) -> Cost | None:
    """Add up all costs; None if a union had exact sizes."""
    epsilon = delta = Fraction(0)
    for charge in charged:
        if charge.cost is None:
            return None
        epsilon, delta = epsilon + charge.cost[0], delta + charge.cost[1]
    return epsilon, delta


def shown(cost: Sequence[Fraction]) -> str:
    """Return epsilon and delta as text."""
    epsilon, delta = cost
    return f"epsilon {float(epsilon):.6g} and delta {float(delta):.3g}"


def outcome_of(charge: Charge, settled: Mapping[int, Settlement]) -> str:
    """Return what became of a charge, in words."""
    return settled[charge.number].outcome if charge.number in settled else "not recorded"


def history(entries: Sequence[Entry]) -> str:
    """Describe the last charges in one sentence."""
    charged, settled = charges(entries), settlements(entries)
    if not charged:
        return "Nothing was released to this peer so far."
    lines = [
        f"{charge.date[:10]} {charge.table}{' labels' if charge.announced == 'labels' else ''}, "
        f"{shown(charge.cost) if charge.cost else 'exact sizes'} ({outcome_of(charge, settled)})"
        for charge in charged[-_SHOWN:]
    ]
    which = "The last of" if len(charged) > _SHOWN else "The"
    return f"{which} {len(charged)} releases so far: {'; '.join(lines)}."


def agreement_digest(agreement: Agreement) -> str:
    """Return the SHA-256 of the agreement (hexadecimal)."""
    return hashlib.sha256(agreement.canonical().encode()).hexdigest()


def _cost(privacy: CountPrivacy | None, sizes: int, aggregate: AggregatePrivacy | None) -> Cost:
    """Return the cost of a number of sizes, and of a label aggregate."""
    epsilon = delta = Fraction(0)
    for times, each in ((sizes, privacy), (1, aggregate)):
        if each is not None:
            epsilon += times * exact_fraction(each.epsilon)
            delta += times * exact_fraction(each.delta)
    return epsilon, delta


def _last_set(charged: Sequence[Charge], table: TableKind) -> Charge | None:
    """Return the last charge of a set of this kind; labels are of a set that was charged before."""
    of_sets = (
        charge
        for charge in reversed(charged)
        if charge.table == table and charge.announced != "labels"
    )
    return next(of_sets, None)


def _hashes(table: TableKind) -> str:
    return f"{table}.hashes"


def _new(table: TableKind) -> str:
    return f"{table}.hashes.new"
