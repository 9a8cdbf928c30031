"""The groups in which IDs are encrypted; `make_group` creates one."""

from __future__ import annotations

from florist.common.groups.registry import ENGINE_NAMES, GROUP_NAMES, make_group

__all__ = ["ENGINE_NAMES", "GROUP_NAMES", "make_group"]
