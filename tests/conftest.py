"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# As the commands set it: waiting torch threads sleep instead of competing for the cores. It must be
# set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

# A property holds however busy the machine is.
settings.register_profile("florist", deadline=None)
settings.load_profile("florist")
