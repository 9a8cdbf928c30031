"""The numbers that the paper reports, in its tables and in its text.

"Vertical Federated Learning without Revealing Intersection Membership", as printed. Its plots have
no numbers. Attack AUCs are not folded at 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

DatasetName = Literal["criteo", "avazu"]

#: Ratios of synthetic data at which the paper gives the AUC of FLORIST.
RATIOS = (0.05, 0.1, 0.25, 0.5, 0.6, 0.75, 0.8, 0.9, 0.95)

#: The ratio of synthetic data in all tables of attacks.
TABLE_RATIO = 0.5

#: Tables 1 and 6: attack AUC by the strategy for labels, β = 0.5.
LABEL_ATTACKS: Mapping[DatasetName, Mapping[str, float]] = {
    "criteo": {
        "label-majority": 0.5761,
        "label-majority-tr": 0.5768,
        "label-majority-te": 0.5764,
        "label-minority": 0.6511,
        "label-random-pos": 0.5342,
        "label-random-pred": 0.5074,
        "label-neighbors": 0.5445,
    },
    "avazu": {
        "label-majority": 0.558341,
        "label-majority-tr": 0.558277,
        "label-majority-te": 0.557430,
        "label-minority": 0.584588,
        "label-random-pos": 0.442587,
        "label-random-pred": 0.500570,
        "label-neighbors": 0.536879,
    },
}

#: Tables 2 and 7: attack AUC by the strategy for features, α = 0.5.
FEATURE_ATTACKS: Mapping[DatasetName, Mapping[str, float]] = {
    "criteo": {
        "fea-gaussian": 0.9766,
        "fea-random": 0.982,
        "fea-sampling": 0.5059,
        "fea-sampling-tr": 0.5067,
        "fea-sampling-te": 0.5064,
    },
    "avazu": {
        "fea-gaussian": 0.896055,
        "fea-random": 0.897465,
        "fea-sampling": 0.540238,
        "fea-sampling-tr": 0.534171,
        "fea-sampling-te": 0.557020,
    },
}

#: Tables 3 and 8: change of FLORIST's AUC against baseline-partial, in percent, by α = β.
AUC_CHANGES: Mapping[DatasetName, Mapping[float, float]] = {
    "criteo": dict(
        zip(
            RATIOS,
            (-0.076, -0.165, -0.408, -1.259, -1.707, -3.081, -3.566, -4.924, -5.119),
            strict=True,
        )
    ),
    "avazu": dict(
        zip(
            RATIOS,
            (-0.066, -0.17, -0.41, -1.14, -1.75, -3.78, -4.71, -11.55, -11.71),
            strict=True,
        )
    ),
}


@dataclass(frozen=True, slots=True)
class SampledLabels:
    """A column of Table 5."""

    auc: float
    attack_auc: float


#: Table 5: label-random-pred on Avazu, β = 0.5, two epochs, by the number of labels averaged.
SAMPLES: Mapping[int, SampledLabels] = {
    1: SampledLabels(0.7465, 0.5001),
    2: SampledLabels(0.7482, 0.5227),
    3: SampledLabels(0.7482, 0.5812),
    4: SampledLabels(0.7486, 0.6249),
    5: SampledLabels(0.7490, 0.6512),
    6: SampledLabels(0.7491, 0.6753),
    7: SampledLabels(0.7489, 0.7041),
    8: SampledLabels(0.7492, 0.7175),
    9: SampledLabels(0.7492, 0.7299),
    10: SampledLabels(0.7493, 0.7438),
}

#: Number of epochs in Table 5; it is three everywhere else.
SAMPLES_EPOCHS = 2


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop of the test AUC against a baseline in percent, as stated in the text."""

    dataset: DatasetName
    method: str
    baseline: str
    #: Ratio of synthetic labels (β) or features (α).
    ratio: float
    percent: float


DROPS = (
    Drop("criteo", "baseline-partial", "baseline-full", 0.95, 3.8),
    Drop("criteo", "label-majority-tr", "baseline-partial", 0.95, 0.67),
    Drop("criteo", "label-majority-tr", "baseline-partial", 0.5, 0.33),
    Drop("criteo", "fea-sampling-tr", "baseline-partial", 0.95, 4.9),
    Drop("criteo", "fea-sampling-tr", "baseline-partial", 0.5, 0.77),
    Drop("avazu", "fea-sampling", "baseline-partial", 0.95, 6.7),
    Drop("avazu", "fea-sampling", "baseline-partial", 0.5, 0.88),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """How the paper trained ("Data Setup and Experimental Details")."""

    #: Number of rows, test included, and rate, as stated; both are approximate.
    rows: int
    positive_rate: float
    test_fraction: float = 0.1
    batch_size: int = 8192
    learning_rate: float = 1e-4
    epochs: int = 3


#: The paper uses a tenth of Criteo's 45 million rows, and all 40 million of Avazu.
SETUPS: Mapping[DatasetName, Setup] = {
    "criteo": Setup(rows=4_500_000, positive_rate=0.25),
    "avazu": Setup(rows=40_000_000, positive_rate=0.17),
}
