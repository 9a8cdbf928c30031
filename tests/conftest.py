"""For all tests: what the libraries must know before they are loaded."""

from __future__ import annotations

import os

# As the commands set it: threads of torch that wait do not fight for the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
