"""Ray's token authentication: the token of this process, and whether a cluster requires one."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.transport.grpc_token_probe import ProbeTls, requires_token

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Environment variables that Ray reads. The token itself takes precedence over its file.
MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - a name
TOKEN_FILE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - a name

HOW_TO_ENABLE = (
    "To enable token authentication, run `ray get-auth-token --generate` and `chmod 600 "
    "~/.ray/auth_token` on one node, copy this file to all nodes and to the machine of the party "
    f"with the same mode, set {MODE}=token on all of them, and restart the cluster "
    "(docs/how-to/scale.md)"
)

#: A method of the cluster's head that changes nothing.
_METHOD = "/ray.rpc.NodeInfoGcsService/CheckAlive"

#: Seconds for the head to answer.
_ANSWER_TIMEOUT = 10.0


def check_own_token() -> None:
    """Check that this process has a token for a cluster, and that only its owner can read it.

    Raises:
        ConfigurationError: the message names the file or the variable, and the fix.
    """
    mode = os.environ.get(MODE, "token")
    if mode.lower() != "token":
        raise ConfigurationError(
            f"compute.ray_address: {MODE} is {mode!r}, but FLORIST uses only Ray clusters with "
            f"token authentication. {HOW_TO_ENABLE}"
        )
    if os.environ.get(TOKEN):
        return
    file = _token_file()
    try:
        status = file.stat()
    except OSError as error:
        raise ConfigurationError(
            f"compute.ray_address: {file}: the token of the Ray cluster cannot be read: "
            f"{error.strerror}. {HOW_TO_ENABLE}"
        ) from None
    if status.st_mode & 0o077:
        raise ConfigurationError(
            f"{file}: other users can access the token of the Ray cluster, and with it the "
            "cluster; run `chmod 600` on it, and replace the token if somebody may have read it"
        )
    if not status.st_size:
        raise ConfigurationError(f"{file}: the token of the Ray cluster is empty. {HOW_TO_ENABLE}")


def _token_file() -> Path:
    if named := os.environ.get(TOKEN_FILE):
        return Path(named)
    return Path.home() / ".ray" / "auth_token"


def check_cluster(address: str) -> None:
    """Check that the cluster whose head listens at `address` refuses calls without a token.

    Raises:
        ConfigurationError: it does not.
        ConnectionError: the head does not answer.
    """
    if not requires_token(address, _METHOD, _ANSWER_TIMEOUT, _tls()):
        raise ConfigurationError(
            f"compute.ray_address: the Ray cluster at {address} does not use token authentication: "
            "anybody who can reach it can run programs as this party, and read its table and "
            f"secrets. {HOW_TO_ENABLE}"
        )


def _tls() -> ProbeTls | None:
    """Return the TLS files that Ray uses, if any."""
    names = ("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY")
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    return ProbeTls(*(Path(os.environ.get(name, "")) for name in names))


def use_token() -> None:
    """Make Ray in this process use token authentication with the token of the environment."""
    from ray._raylet import (  # type: ignore[attr-defined]  # noqa: PLC0415 - an extra; no stubs
        AuthenticationTokenLoader,
        Config,
    )

    os.environ[MODE] = "token"
    Config.initialize("")  # Ray may have read the environment when it was imported
    AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def fresh_token() -> Iterator[None]:
    """Use a new token, in memory only, in this process and in the processes that it starts."""
    before = {name: os.environ.get(name) for name in (MODE, TOKEN)}
    os.environ[TOKEN] = secrets.token_hex(32)
    try:
        use_token()
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
