"""The error types: the tree in the docstring is complete, and peers see no private details."""

from __future__ import annotations

import re

import pytest

from florist.common.core import errors
from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    InternalError,
    Interrupted,
    PeerFailed,
    as_florist_error,
)


def test_the_tree_in_the_docstring_matches_the_classes() -> None:
    documented = re.findall(r"[├└]── (\w+) +(\d+) ", errors.__doc__ or "")
    defined = [
        (name, str(kind.exit_code))
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, FloristError) and kind is not FloristError
    ]
    assert documented == defined


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigurationError("x"), ConfigurationError),
        (KeyboardInterrupt(), Interrupted),
        (ValueError("x"), InternalError),
    ],
)
def test_any_exception_becomes_a_florist_error(
    error: BaseException, kind: type[FloristError]
) -> None:
    assert type(as_florist_error(error)) is kind


def test_the_peer_does_not_see_private_details() -> None:
    for error in (ConfigurationError("/home/a/people.csv"), as_florist_error(ValueError("secret"))):
        assert error.reason not in error.for_peer


def test_only_a_party_that_will_be_started_again_makes_the_peer_wait() -> None:
    assert Interrupted("stopped").will_reconnect
    assert PeerFailed("stopped", will_reconnect=True).will_reconnect
    assert not PeerFailed("failed").will_reconnect
    assert not InternalError("bug").will_reconnect
