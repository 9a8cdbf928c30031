"""What a training run is started with: settings and fingerprints of the tables.

A run resumes only with the same inputs; otherwise it would be trained partly on each. The record is
kept in the checkpoints and with the finished model. Fingerprints are salted there, so that the
records of two runs cannot be compared; like the model, they are private files.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from pydantic import Field, JsonValue

from florist.common.core.text import quoted_few
from florist.common.session.retention import if_damaged
from florist.common.settings.section import StrictModel
from florist.common.storage.manifest import DamagedFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from florist.common.session.run_directory import RunDirectory
    from florist.common.session.stage_state import StageName
    from florist.common.settings.party_config import PartyConfig

#: The record in the folder of a stage's result.
INPUTS_FILE = "inputs.json"

#: Settings of a training run that must stay the same: sections and keys of the configuration.
_COMPARED = ("agreement", "model", "optimiser", "data", "training.seed")
#: Settings among them that may change: where files are, and what concerns other stages.
_FREE = ("data.evaluation", "agreement.serving", "agreement.evaluation")
#: Settings whose values are not shown.
_SECRET = ("training.seed",)


@dataclass(frozen=True, slots=True, repr=False)
class TableContent:
    """The fingerprints of a table as it was read; see `ContentFingerprint`."""

    #: Of each feature column, in the order in which the model takes them.
    columns: Mapping[str, str]
    #: Of the classes; None without labels.
    labels: str | None = None
    #: The state of its files, which differs once one is modified.
    stamp: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Inputs:
    """What a run is started with now."""

    settings: dict[str, JsonValue]
    tables: dict[str, TableContent]


class InputRecord(StrictModel):
    """What a run was started with, as it is stored."""

    #: When, as an ISO date in UTC.
    started: str
    #: By dotted key of the configuration. Secret ones are replaced by a salted digest.
    settings: dict[str, JsonValue]
    salt: str = Field(repr=False)
    #: The salted fingerprint of each column, by table; that of the labels has an empty name.
    tables: dict[str, dict[str, str]] = Field(repr=False)
    #: The state of the files of each table.
    stamps: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Inputs, started: datetime | None = None) -> Self:
        """Record the inputs of a run that starts now."""
        return cls._salted(
            inputs,
            (started or datetime.now(UTC)).isoformat(timespec="seconds"),
            secrets.token_bytes(16),
        )

    @classmethod
    def _salted(cls, inputs: Inputs, started: str, salt: bytes) -> Self:
        def salted(value: str) -> str:
            return hmac.digest(salt, value.encode(), hashlib.sha256).hex()

        settings = {
            key: salted(json.dumps(value)) if key in _SECRET else value
            for key, value in inputs.settings.items()
        }
        tables = {
            name: {column: salted(tag) for column, tag in _named(content).items()}
            for name, content in inputs.tables.items()
        }
        stamps = {name: content.stamp for name, content in inputs.tables.items()}
        return cls(
            started=started, settings=settings, salt=salt.hex(), tables=tables, stamps=stamps
        )

    def save(self, folder: Path) -> None:
        """Write the record into the new folder of a result; the order of the columns is kept."""
        text = self.model_dump_json(indent=2)
        (folder / INPUTS_FILE).write_text(text + "\n", encoding="utf-8")

    def differences(self, inputs: Inputs) -> list[str]:
        """Return what has changed since, one sentence each; names keys and columns, no values."""
        now = self._salted(inputs, self.started, bytes.fromhex(self.salt))
        return [*self._changed_settings(now), *self._changed_tables(now)]

    def changed_settings(self, settings: dict[str, JsonValue]) -> list[str]:
        """Return which settings have changed since, one sentence each."""
        return self._changed_settings(
            self._salted(Inputs(settings, {}), self.started, bytes.fromhex(self.salt))
        )

    def changed_content(self, name: str, content: TableContent) -> str:
        """Return what has changed in one table since, as a sentence; "" if nothing."""
        now = self._salted(Inputs({}, {name: content}), self.started, bytes.fromhex(self.salt))
        return "; ".join(self._changed_tables(now))

    def _changed_settings(self, now: InputRecord) -> list[str]:
        found = []
        # Another release may have other keys.
        for key in sorted(self.settings.keys() & now.settings.keys()):
            before, after = self.settings[key], now.settings[key]
            if before == after:
                continue
            if key in _SECRET:
                found.append(f"{key} has changed")
            else:
                found.append(f"{key} was {json.dumps(before)}, now {json.dumps(after)}")
        return found

    def _changed_tables(self, now: InputRecord) -> list[str]:
        found = []
        for name, columns in now.tables.items():
            if (before := self.tables.get(name)) is None:
                continue
            names = [column for column in (*before, *columns) if column]
            changed = [
                column
                for column in dict.fromkeys(names)
                if before.get(column) != columns.get(column)
            ]
            if changed:
                which = "column {} has" if len(changed) == 1 else "columns {} have"
                found.append(
                    f"data.{name}: {which.format(quoted_few(changed, 5))} changed since "
                    f"{self.started}"
                )
            elif list(filter(None, before)) != list(filter(None, columns)):
                found.append(f"data.{name}: the order of the features has changed")
            if "" in columns and before.get("") != columns[""]:
                found.append(f"data.{name}: the labels have changed since {self.started}")
        return found


def _named(content: TableContent) -> dict[str, str]:
    labels = {} if content.labels is None else {"": content.labels}
    return {**content.columns, **labels}


def load_record(runs: RunDirectory, stage: StageName) -> InputRecord | None:
    """Return what a finished stage was started with; None if an earlier release did not record it.

    Raises:
        DamagedFile: the record is damaged.
    """
    path = runs.result(stage) / INPUTS_FILE
    runs.require_intact(path)
    try:
        return InputRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        text = if_damaged(f"{path.parent.name}/{INPUTS_FILE}")
        raise DamagedFile(f"{path} is damaged; {text}") from None


def compared_settings(config: PartyConfig) -> dict[str, JsonValue]:
    """Return the settings that must stay the same while a run is interrupted, by dotted key."""
    found = dict(_flat(config.model_dump(mode="json"), ""))
    return {
        key: value
        for key, value in found.items()
        if _is_below(key, _COMPARED) and not _is_below(key, _FREE) and not key.endswith(".path")
    }


def _is_below(key: str, sections: tuple[str, ...]) -> bool:
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def _flat(value: JsonValue, key: str) -> list[tuple[str, JsonValue]]:
    if not isinstance(value, dict) or not value:
        return [(key, value)]
    return [
        found
        for name, inner in value.items()
        for found in _flat(inner, f"{key}.{name}" if key else name)
    ]
