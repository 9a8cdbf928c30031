"""The implementation of the public Python API, which `florist` re-exports."""
