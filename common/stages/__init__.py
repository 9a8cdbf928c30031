"""The stages of a run, written once for both roles: align, train, evaluate, and the service."""
