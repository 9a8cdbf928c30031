"""What the figures are called, and what they mean."""

from __future__ import annotations

METRICS = {
    "auc": ("AUC", "0.5 is chance, 1 perfect"),
    "ace": ("ACE", "calibration error, 0 perfect"),
    "log_loss": ("log loss", "natural logarithm"),
}
