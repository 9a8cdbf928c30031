"""Starting a local Ray cluster on a busy machine."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from florist.common.cluster import ray_cluster
from florist.common.cluster.ray_cluster import start_healthy


class LeftBehind:
    """What a failed start leaves: an object whose destructor fails, in a reference cycle."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        raise OSError("the socket is gone")


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Without Ray: record when a cluster is shut down."""
    seen: list[str] = []
    monkeypatch.setattr(ray_cluster, "_shut_down", lambda: seen.append("shut down"))
    monkeypatch.setattr(ray_cluster, "_await_health", lambda: None)
    return seen


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    return seen


def test_it_is_started_again_and_what_a_failed_start_leaves_is_ignored(
    stops: list[str], unraisable: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    attempts = 0

    def start() -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            LeftBehind()
            raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray

    start_healthy(start)
    assert (attempts, len(stops)) == (3, 2)
    assert caplog.text.count("did not start in time; trying again") == 2
    assert unraisable == []


def test_a_cluster_without_a_node_is_started_again(
    stops: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([RuntimeError("no node"), None])

    def await_health() -> None:
        if error := next(answers):
            raise error

    monkeypatch.setattr(ray_cluster, "_await_health", await_health)
    start_healthy(lambda: None)
    assert len(stops) == 1
