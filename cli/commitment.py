"""`florist commitment`: prove to an auditor who was in a set, and check such a proof."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    no_args_is_help=True,
    help="Prove to an auditor who was in our set, and check such a proof.",
)
out = Console()


class Table(StrEnum):
    """The tables that are aligned."""

    train = "train"
    test = "test"
    evaluation = "evaluation"


TableOption = Annotated[Table, typer.Option(help="The aligned table.")]


@app.command("open")
def open_(
    run: Annotated[Path, typer.Option(help="Our run directory.")],
    config: Annotated[Path, typer.Option(help="Our configuration file; it names the table.")],
    table: TableOption = Table.train,
    one_id: Annotated[
        list[str] | None, typer.Option("--id", help="The ID of a person; repeatable.")
    ] = None,
    ids: Annotated[Path | None, typer.Option(help="A file of IDs, one per line.")] = None,
    challenge: Annotated[
        str | None,
        typer.Option(help="Instead of IDs: a text that the auditor chose, which draws leaves."),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Leaves to draw by the challenge.")] = 300,
    output: Annotated[Path, typer.Option(help="The proof to write.")] = Path("proof.json"),
) -> None:
    """Write a proof that people were in the set to which we committed before the union.

    It contains their IDs and the number of our people: give it to the auditor, never to the peer.
    """
    from florist.api.commitments import prove_drawn, prove_ids, read_ids  # noqa: PLC0415
    from florist.common.core.errors import ConfigurationError  # noqa: PLC0415
    from florist.common.session.run_directory import RunDirectory  # noqa: PLC0415
    from florist.common.settings.loader import load_config  # noqa: PLC0415
    from florist.common.transport.certificate_files import write_file  # noqa: PLC0415

    wanted = [*(one_id or []), *(read_ids(ids) if ids is not None else [])]
    if bool(wanted) == (challenge is not None):
        raise ConfigurationError("give either IDs (--id, --ids) or a --challenge")
    settings, runs = load_config(config), RunDirectory(run)
    if challenge is None:
        proof = prove_ids(settings, runs, table.value, wanted)
    else:
        proof = prove_drawn(settings, runs, table.value, challenge, sample)
    write_file(output, proof.to_json(), mode=0o600)
    out.print(
        f"[green]✓[/] {output}: opens {len(proof.opened):,} of our {proof.leaves:,} people in the "
        f"{table} table. It contains their IDs: for the auditor only.",
        soft_wrap=True,
    )


@app.command()
def check(
    proof: Annotated[Path, typer.Argument(help="The proof of one party.")],
    root: Annotated[
        str | None, typer.Option(help="The root that the other party received, in hexadecimal.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Or the other party's run directory, which has the root.")
    ] = None,
    table: TableOption = Table.train,
    challenge: Annotated[
        str | None, typer.Option(help="Require that this challenge drew the opened leaves.")
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Require that the challenge drew this number of leaves.")
    ] = 300,
) -> None:
    """Check a proof of the party that committed, against the root that its peer received.

    Prints the proven IDs. The exit code is 0 if the proof is right, otherwise 1.
    """
    from florist.api.commitments import root_at_peer  # noqa: PLC0415
    from florist.common.core.errors import ConfigurationError  # noqa: PLC0415
    from florist.common.core.text import printable  # noqa: PLC0415
    from florist.common.privacy.commitment_proof import (  # noqa: PLC0415
        CommitmentProof,
        WrongProof,
        check_proof,
        require_challenge,
    )
    from florist.common.session.run_directory import RunDirectory  # noqa: PLC0415

    if (root is None) == (run is None):
        raise ConfigurationError("give either --root or --run")
    try:
        expected = bytes.fromhex(root) if root is not None else b""
        content = proof.read_bytes()
    except ValueError:
        raise ConfigurationError("--root: is not hexadecimal") from None
    except OSError as error:
        raise ConfigurationError(f"{proof} cannot be read: {error.strerror}") from None
    if run is not None:
        expected = root_at_peer(RunDirectory(run), table.value)
    try:
        read = CommitmentProof.from_json(content)
        if challenge is not None:
            require_challenge(read, challenge, sample)
        proven = check_proof(read, expected)
    except WrongProof as wrong:
        out.print(f"[red]✗[/] The proof is wrong: {wrong}.", soft_wrap=True)
        raise typer.Exit(1) from None
    for value in proven:
        shown = printable(value.decode(errors="backslashreplace"), 200)
        out.print(shown, markup=False, highlight=False, soft_wrap=True)
    out.print(
        f"[green]✓[/] Each of these {len(proven):,} IDs was one of the {read.leaves:,} people in "
        f"the set with root {expected.hex()[:16]}….",
        soft_wrap=True,
    )
