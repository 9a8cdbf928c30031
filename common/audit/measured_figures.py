"""Figures of attacks on the default settings that are shown to users, as measured by the study.

`florist experiments default` measures them; decision 3 (docs/decisions) has the tables.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """The lowest and the highest mean over seeds on the data sets of the study."""

    auc: tuple[float, float]
    #: The true positive rate at 1% false positives.
    rate: tuple[float, float]

    def __str__(self) -> str:
        auc, rate = self.auc, self.rate
        return (
            f"a folded AUC of {auc[0]:.2f} to {auc[1]:.2f} (0.5 is chance), and {rate[0]:.0%} to "
            f"{rate[1]:.0%} of people found at 1% false positives"
        )


#: The active party's attack `pair`: its own features against the passive party's share of the
#: logits, on loans, credit card clients and bank marketing (docs/decisions/study).
OWN_FEATURES = MeasuredRange((0.54, 0.64), (0.02, 0.10))


def own_features_notice(columns: int) -> str:
    """Return what an active party with so many feature columns could infer by them."""
    return (
        f"{columns} columns of your own; with the default settings, such features distinguished "
        f"real people from stand-ins with {OWN_FEATURES} on public data; measure yours with "
        "`florist rehearse`"
    )
