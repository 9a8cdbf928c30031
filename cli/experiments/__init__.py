"""Experiments that need the truth: both parties in one process, audited, over grids of settings."""
