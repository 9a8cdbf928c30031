"""`florist certs`: certificates for mutual TLS, with or without exchanging keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from florist.cli.default_command import default_command
from florist.common.core.errors import ConfigurationError

out = Console()

app = typer.Typer(
    cls=default_command("create"),
    no_args_is_help=True,
    help="Create certificates. `florist certs DIRECTORY` means `florist certs create DIRECTORY`.",
)

AtOption = Annotated[
    list[str] | None,
    typer.Option(help="Additional host name or IP address of the party; repeatable."),
]
DaysOption = Annotated[int, typer.Option(help="Days for which certificates are valid.")]


@app.command()
def create(
    directory: Annotated[
        Path, typer.Argument(help="Folder of the authority; created if it does not exist.")
    ],
    party: Annotated[
        list[str] | None,
        typer.Option(
            help="Issue a certificate for this party (its name in both configurations); repeatable."
        ),
    ] = None,
    at: AtOption = None,
    days: DaysOption = 365,
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing files of the party.")
    ] = False,
) -> None:
    """Create a private certificate authority, if there is none, and certificates for parties.

    With --party, also creates the party's key: use it for your own party only, or for a trial. Each
    organisation creates its own key with `florist certs request`.
    """
    from florist.common.transport.certificates import (  # noqa: PLC0415 - keeps --help fast
        AuthorityFiles,
        check_names,
        create_authority,
        issue,
    )

    check_names(directory, party or [], at or [])
    files = AuthorityFiles.in_directory(directory)
    if not files.certificate.exists():
        files = create_authority(directory, "FLORIST", days)
        _done(f"{files.certificate}, {files.key} (keep this key secret)")
    for name in party or []:
        made = issue(files, name, at or [], directory, days, force=force)
        _done(f"{made.certificate}, {made.key}")


@app.command()
def request(
    directory: Annotated[
        Path, typer.Argument(help="Folder for the key and the request; created if needed.")
    ],
    party: Annotated[str, typer.Option(help="Your party's name, as in both configurations.")],
    at: AtOption = None,
    keep_key: Annotated[
        bool, typer.Option("--keep-key", help="Use the existing key, to renew a certificate.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing key and request.")
    ] = False,
) -> None:
    """Create your party's key, which stays here, and a request for its certificate.

    Send the .csr file to whoever runs the authority; it contains no secret.
    """
    from florist.common.transport.certificate_requests import (  # noqa: PLC0415
        create_request,
    )

    made = create_request(directory, party, at or [], keep_key=keep_key, force=force)
    _done(f"{made.key} (keep this key secret; never send it)")
    _done(f"{made.request} (send this to the authority)")
    out.print(f"The SHA-256 of your public key is\n  {made.key_sha256}", highlight=False)
    out.print("Tell it to the authority by telephone or another channel than the file.")


@app.command()
def sign(
    request_file: Annotated[
        Path, typer.Argument(metavar="REQUEST", help="The .csr file of a party.")
    ],
    authority: Annotated[
        Path, typer.Option(help="Folder of the authority, as `florist certs create` made it.")
    ],
    key_sha256: Annotated[
        str | None,
        typer.Option(help="The SHA-256 that the owner of the key told you; default: ask."),
    ] = None,
    days: DaysOption = 365,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier certificate of the party.")
    ] = False,
) -> None:
    """Check a party's request, compare its fingerprint with the owner, and issue the certificate.

    Send back the party's .pem file and authority.pem; neither is secret.
    """
    from florist.common.transport.certificate_requests import (  # noqa: PLC0415
        load_request,
        sign_request,
    )
    from florist.common.transport.certificates import AuthorityFiles  # noqa: PLC0415

    found = load_request(request_file)
    names = ", ".join((found.party_name, *found.names_and_addresses))
    out.print(f"Request of {names}", highlight=False, markup=False)
    out.print(f"SHA-256 of its public key: {found.key_sha256}", highlight=False, soft_wrap=True)
    if key_sha256 is None:
        typer.confirm(
            f"Has {found.party_name} read out the same value to you, for example by telephone?",
            abort=True,
        )
    elif key_sha256.strip().lower() != found.key_sha256:
        raise ConfigurationError(
            f"{request_file}: the SHA-256 of its public key is not the one of --key-sha256; "
            "somebody may have replaced the file. Ask its owner for both again"
        )
    files = AuthorityFiles.in_directory(authority)
    certificate = sign_request(files, found, days, force=force)
    _done(f"{certificate} (send this and {files.certificate} to {found.party_name})")


def _done(text: str) -> None:
    out.print("[green]✓[/]", end=" ")
    out.print(text, markup=False, highlight=False, soft_wrap=True)
