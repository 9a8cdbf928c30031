"""Certificates of both parties."""

from __future__ import annotations

from tests.support.tls_fixtures import active, passive, trust

__all__ = ["active", "passive", "trust"]
