"""The commands `florist` and `florist-party`; they use `florist.api`.

Sets environment variables that libraries read when they are loaded.
"""

import os

# gRPC logs errors only.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Threads of torch sleep while they wait, so that two parties can share the cores of a machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
