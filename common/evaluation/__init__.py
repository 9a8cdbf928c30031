"""Metrics, and their private estimate when it is unknown whose features are real."""
