"""The names of the two parties' roles."""

from __future__ import annotations

from typing import Literal

RoleName = Literal["active", "passive"]
