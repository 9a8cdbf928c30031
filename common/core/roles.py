"""The names of the two roles."""

from __future__ import annotations

from typing import Literal

RoleName = Literal["active", "passive"]
