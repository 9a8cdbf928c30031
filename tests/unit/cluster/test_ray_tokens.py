"""Only Ray clusters with token authentication are used, with a token that nobody else can read."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
import pytest

from florist.common.cluster import ray_tokens
from florist.common.cluster.ray_tokens import (
    MODE,
    TOKEN,
    TOKEN_FILE,
    check_cluster,
    check_own_token,
)
from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (MODE, TOKEN, TOKEN_FILE, "RAY_USE_TLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".ray" / "auth_token"
    file.parent.mkdir()
    file.write_text("secret")
    file.chmod(0o600)
    return file


# -- our token -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, "token", "TOKEN"])
def test_a_token_file_of_the_owner_is_accepted(
    token_file: Path, monkeypatch: pytest.MonkeyPatch, mode: str | None
) -> None:
    assert token_file.exists()
    if mode:
        monkeypatch.setenv(MODE, mode)
    check_own_token()


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o644])
def test_a_token_file_that_others_can_access_is_refused(token_file: Path, bits: int) -> None:
    token_file.chmod(bits)
    with pytest.raises(ConfigurationError, match=r"auth_token: other users can .*`chmod 600`"):
        check_own_token()


def test_the_file_that_the_environment_names_is_checked(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = token_file.with_name("named")
    monkeypatch.setenv(TOKEN_FILE, str(named))
    with pytest.raises(ConfigurationError, match=r"named: the token .*No such file.*chmod 600"):
        check_own_token()
    named.touch(0o600)
    with pytest.raises(ConfigurationError, match="named: the token of the Ray cluster is empty"):
        check_own_token()
    named.write_text("secret")
    named.chmod(0o644)
    with pytest.raises(ConfigurationError, match="named: other users"):
        check_own_token()
    monkeypatch.setenv(TOKEN, "takes precedence")
    check_own_token()


def test_disabled_authentication_is_refused(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert token_file.exists()
    monkeypatch.setenv(MODE, "disabled")
    with pytest.raises(
        ConfigurationError, match=r"RAY_AUTH_MODE is 'disabled'.*ray get-auth-token --generate"
    ):
        check_own_token()


def test_a_fresh_token_is_in_the_environment_only_while_it_is_used(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_tokens, "use_token", lambda: os.environ.update({MODE: "token"}))
    monkeypatch.setenv(TOKEN, "theirs")
    tokens = []
    for _ in range(2):
        with ray_tokens.fresh_token():
            assert os.environ[MODE] == "token"
            tokens.append(os.environ[TOKEN])
    assert len({*tokens, "theirs"}) == 3
    assert all(len(token) == 64 for token in tokens)
    assert os.environ[TOKEN] == "theirs"
    assert MODE not in os.environ
    assert token_file.read_text() == "secret"


# -- the cluster -----------------------------------------------------------------------------------


@contextmanager
def head(code: grpc.StatusCode) -> Iterator[str]:
    """Run a server that ends every call without a token with this code; return its address."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            assert details.method.startswith("/ray.rpc.")
            assert "authorization" not in dict(details.invocation_metadata or ())

            def answer(_request: bytes, context: grpc.ServicerContext) -> bytes:
                if code is not grpc.StatusCode.OK:
                    context.abort(code, "no")
                return b"alive"

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.mark.usefixtures("token_file")
def test_a_cluster_that_requires_a_token_is_accepted() -> None:
    with head(grpc.StatusCode.UNAUTHENTICATED) as address:
        check_cluster(address)


@pytest.mark.usefixtures("token_file")
def test_a_cluster_that_answers_without_a_token_is_refused() -> None:
    with (
        head(grpc.StatusCode.OK) as address,
        pytest.raises(
            ConfigurationError,
            match=f"the Ray cluster at {address} does not use token.*RAY_AUTH_MODE=token",
        ),
    ):
        check_cluster(address)


@pytest.mark.usefixtures("token_file")
def test_a_cluster_that_cannot_be_checked_is_refused() -> None:
    with (
        head(grpc.StatusCode.UNIMPLEMENTED) as address,
        pytest.raises(ConnectionError, match="UNIMPLEMENTED"),
    ):
        check_cluster(address)
