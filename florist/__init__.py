"""Vertical federated learning that does not reveal which people two organisations share."""

from florist.common.core.release import RELEASE

__version__ = RELEASE

__all__ = ["__version__"]
