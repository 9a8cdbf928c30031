"""Which release this is."""

from importlib.metadata import version

RELEASE = version("florist")
