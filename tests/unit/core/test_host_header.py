from __future__ import annotations

import pytest

from florist.common.core.host_header import allowed_hosts, is_allowed_host


@pytest.mark.parametrize(
    "header", ["127.0.0.5:80", "127.0.0.5", "localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:7", ""]
)
def test_names_of_a_loopback_address(header: str) -> None:
    assert is_allowed_host(header, allowed_hosts("127.0.0.5"))


@pytest.mark.parametrize(
    "header",
    ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.9", "[::", "::"],
)
def test_other_names_are_refused(header: str) -> None:
    assert not is_allowed_host(header, allowed_hosts("127.0.0.5"))


@pytest.mark.parametrize("listening", ["0.0.0.0", "::", "192.0.2.1"])
def test_any_name_on_other_addresses(listening: str) -> None:
    assert is_allowed_host("bank.example.org:8088", allowed_hosts(listening))
