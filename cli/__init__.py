"""The commands, and what the libraries beneath must know before they are loaded."""

import os

# gRPC's own log shows errors only: everything else we say ourselves.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Torch's threads sleep while they wait: two parties on one machine would else fight for its cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
