"""Bundles: a trained half of the model on disk, and whether two halves belong together."""
