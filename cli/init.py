"""`florist init`: the files for a first run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from florist.cli.own_tables import OwnTable
from florist.cli.templates import party_config_text
from florist.common.core.errors import ConfigurationError
from florist.common.privacy.ledger import ledger_folder
from florist.common.settings.addresses import split_address
from florist.common.settings.loader import load_config
from florist.common.settings.network import Tls
from florist.common.storage.private_files import make_private_folder
from florist.common.transport.certificates import create_authority, issue
from florist.experiments.sample_data import evaluation_path, held_out_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from florist.common.core.roles import RoleName
    from florist.experiments.sample_data import Sample

#: Validity of the certificates of a trial, in days.
VALID_DAYS = 365


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the parties, which are also the common names of their certificates."""

    active: str
    passive: str

    def __getitem__(self, role: RoleName) -> str:
        return self.active if role == "active" else self.passive


def write_first_files(
    directory: Path,
    names: Names,
    address: str,
    sample: Sample | None,
    observability: str | None = None,
    own_tables: Mapping[RoleName, OwnTable] | None = None,
) -> list[Path]:
    """Write both configurations, an authority, both certificates and, optionally, sample tables.

    For trials only: each of two organisations uses `write_own_files`. Existing files are never
    overwritten. The run directories and the folders of the privacy ledgers are created too, because
    a container engine can mount only existing folders.

    Args:
        directory: where to write; created if it does not exist.
        names: the names of the parties.
        address: value of `network.address` of both parties.
        sample: the tables to write; None writes none.
        observability: value of `observability.address` of both parties.
        own_tables: the parties' tables, instead of `sample`.

    Returns:
        The paths written, configurations first.

    Raises:
        ConfigurationError: a file exists already, or a name or the address is invalid.
    """
    configs = {role: _new_config(directory, role) for role in _ROLES}
    host = _host(address)
    certificates = directory / "certificates"
    suffix = sample.suffix if sample else ".csv"
    tables = {role: directory / "data" / f"{names[role]}{suffix}" for role in _ROLES}
    described = own_tables or {
        role: OwnTable(
            tables[role].relative_to(directory),
            sample.id_column if sample else "id",
            _changes(sample, role, tables[role].relative_to(directory)),
        )
        for role in _ROLES
    }
    texts = {
        role: _config_text(role, names, address, observability, described[role]) for role in _ROLES
    }
    authority = create_authority(certificates, "FLORIST trial", VALID_DAYS)
    for role in _ROLES:
        # The host may have the name of one party, which only that party's certificate may list.
        others = {names[each] for each in _ROLES if each != role}
        issue(authority, names[role], {host} - others, certificates, VALID_DAYS)
    if sample is not None:
        tables["active"].parent.mkdir(parents=True, exist_ok=True)
        sample.write(tables["active"], tables["passive"])
    for role in _ROLES:
        _write_config(configs[role], texts[role])
    written = [*configs.values(), certificates]
    return [*written, *tables.values()] if sample is not None else written


def write_own_files(
    directory: Path,
    role: RoleName,
    names: Names,
    address: str,
    observability: str | None = None,
    own_table: OwnTable | None = None,
) -> list[Path]:
    """Write the configuration of one organisation, without certificates: no key is created.

    Args:
        directory: where to write; created if it does not exist.
        role: the organisation's role.
        names: the names of both parties.
        address: value of `network.address`.
        observability: value of `observability.address`.
        own_table: its table; None: to be written into the configuration later.

    Returns:
        The path of the configuration.

    Raises:
        ConfigurationError: the file exists already, or a name or the address is invalid.
    """
    path = _new_config(directory, role)
    _host(address)
    table = own_table or OwnTable(Path("data") / f"{names[role]}.csv", "id", {})
    text = _config_text(role, names, address, observability, table)
    directory.mkdir(parents=True, exist_ok=True)
    _write_config(path, text)
    return [path]


def _new_config(directory: Path, role: RoleName) -> Path:
    path = directory / f"{role}.yml"
    if path.exists():
        raise ConfigurationError(f"{path} exists already; remove it or choose another folder")
    return path


def _config_text(
    role: RoleName, names: Names, address: str, observability: str | None, table: OwnTable
) -> str:
    name, certificates = names[role], Path("certificates")
    return party_config_text(
        role=role,
        name=name,
        peer=names["passive" if role == "active" else "active"],
        address=address,
        data_path=table.path,
        id_column=table.id_column,
        run_directory=Path("runs") / name,
        tls=Tls.model_construct(
            authority=certificates / "authority.pem",
            certificate=certificates / f"{name}.pem",
            key=certificates / f"{name}.key",
        ),
        changes={"observability.address": observability, **table.settings},
    )


def _write_config(path: Path, text: str) -> None:
    """Write a configuration, and create the run directory and the ledger's folder."""
    path.write_text(text, encoding="utf-8")
    config = load_config(path)
    make_private_folder(config.run_directory)
    make_private_folder(ledger_folder(config))


_ROLES: tuple[RoleName, RoleName] = ("active", "passive")


def _changes(sample: Sample | None, role: RoleName, table: Path) -> dict[str, object]:
    if sample is None:
        return {}
    settings = sample.settings(role)
    if settings.get("agreement.training.test_table"):
        settings["data.test.path"] = held_out_path(table)
    if settings.get("agreement.evaluation.table"):
        settings["data.evaluation.path"] = evaluation_path(table)
    return settings


def _host(address: str) -> str:
    try:
        return split_address(address)[0]
    except ValueError as error:
        raise ConfigurationError(f"--address {address!r} {error}") from None
