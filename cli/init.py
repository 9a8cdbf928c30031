"""`florist init`: the files for a first run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    from pathlib import Path

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
) -> list[Path]:
    """Write both configurations, an authority, both certificates and, optionally, sample tables.

    Existing files are never overwritten. The run directories and the folders of the privacy ledgers
    are created too, because a container engine can mount only existing folders.

    Args:
        directory: where to write; created if it does not exist.
        names: the names of the parties.
        address: value of `network.address` of both parties.
        sample: the tables to write; None writes none.
        observability: value of `observability.address` of both parties.

    Returns:
        The paths written, configurations first.

    Raises:
        ConfigurationError: a file exists already, or a name or the address is invalid.
    """
    configs = {"active": directory / "active.yml", "passive": directory / "passive.yml"}
    for path in configs.values():
        if path.exists():
            raise ConfigurationError(f"{path} exists already; remove it or choose another folder")
    host = _host(address)
    runs = {role: directory / "runs" / names[role] for role in _ROLES}
    certificates = directory / "certificates"
    suffix = sample.suffix if sample else ".csv"
    tables = {role: directory / "data" / f"{names[role]}{suffix}" for role in _ROLES}
    texts = {
        role: party_config_text(
            role=role,
            name=names[role],
            peer=names["passive" if role == "active" else "active"],
            address=address,
            data_path=tables[role].relative_to(directory),
            id_column=sample.id_column if sample else "id",
            run_directory=runs[role].relative_to(directory),
            tls=Tls.model_construct(
                authority=(certificates / "authority.pem").relative_to(directory),
                certificate=(certificates / f"{names[role]}.pem").relative_to(directory),
                key=(certificates / f"{names[role]}.key").relative_to(directory),
            ),
            changes={
                "observability.address": observability,
                **_changes(sample, role, tables[role].relative_to(directory)),
            },
        )
        for role in _ROLES
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
        make_private_folder(runs[role])
        configs[role].write_text(texts[role], encoding="utf-8")
        make_private_folder(ledger_folder(load_config(configs[role])))
    written = [*configs.values(), certificates]
    return [*written, *tables.values()] if sample is not None else written


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
