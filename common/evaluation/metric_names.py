"""Display names and short explanations of the metrics."""

from __future__ import annotations

#: By key in reports: the display name and a short explanation.
METRICS = {
    "auc": ("AUC", "0.5 is chance, 1 is perfect"),
    "ace": ("ACE", "calibration error, 0 is perfect"),
    "log_loss": ("log loss", "natural logarithm"),
}
