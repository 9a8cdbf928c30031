"""Network addresses: valid and invalid ones."""

from __future__ import annotations

import pytest

from florist.common.settings.addresses import split_address
from tests.support.settings import parse, problem, with_value


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("localhost:7000", "localhost", 7000),
        ("0.0.0.0:1", "0.0.0.0", 1),
        ("active_party:65535", "active_party", 65535),
        ("a.example.:80", "a.example.", 80),
        ("[::1]:7000", "::1", 7000),
        ("[fe80::1%eth0]:7000", "fe80::1%eth0", 7000),
    ],
)
def test_valid_addresses(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)
    assert parse(with_value("network.address", address)).network.address == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":7000",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:+80",
        "host:80 ",
        "host:\u0663",
        "::1:7000",
        "[::1]",
        "[::1:7000",
        "[host]:7000",
        "[127.0.0.1]:7000",
        "1.2.3:7000",
        "1.2.3.256:7000",
        "a b:7000",
        "a..b:7000",
        "-a:7000",
        "http://host:7000",
        "user@host:7000",
        "a" * 64 + ":7000",
        ".".join(["a" * 60] * 5) + ":7000",
        "h\u00f4te:7000",
    ],
)
def test_invalid_addresses(address: str) -> None:
    with pytest.raises(ValueError, match="must "):
        split_address(address)
    assert problem(with_value("network.address", address)).startswith("network.address: must ")
