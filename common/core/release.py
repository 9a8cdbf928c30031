"""The release of FLORIST that is installed."""

from importlib.metadata import version

RELEASE = version("florist")
