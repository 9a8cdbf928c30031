"""The training methods to compare, by name: the paper's methods, its baselines and the default.

Methods with names from the paper do what the paper does: they learn from all rows, redraw synthetic
data in each epoch, send embeddings without noise, and keep the last weights. `default` uses the
defaults of the agreement.
"""

from __future__ import annotations

from itertools import product
from typing import Literal, get_args

from pydantic import Field, ValidationError
from pydantic import field_validator as check_field

from florist.common.core.registry import Registry
from florist.common.settings.agreement import (
    FeatureStrategyName,
    LabelStrategyName,
    TrainingAgreement,
)
from florist.common.settings.section import Section

#: Who is trained on: the union, everybody (no missing data), or shared people only.
Who = Literal["union", "everybody", "shared"]

#: Keys of the agreement that the trial sets.
SET_BY_TRIAL = (
    "classes",
    "epochs",
    "batch_size",
    "learning_rate",
    "checkpoint_every",
    "test_table",
)


class Method(Section):
    """A method: its name, and what it changes in the agreement's defaults."""

    name: str = Field(min_length=1, description="Its name in results.")
    agreement: dict[str, object] = Field(
        default={}, description="Keys of agreement.training that differ from their defaults."
    )
    who: Who = Field(
        default="union", description="Who is trained on: union, everybody, or shared people only."
    )
    bins: int | None = Field(
        default=None, ge=0, description="Quantile bins of each number; null: as the trial says."
    )
    clusters: int = Field(
        default=0,
        ge=0,
        description="Stand-ins also fit the active party's cluster of a person, out of so many; 0: "
        "they do not. Only a simulation knows the clusters.",
    )
    label_shift: bool = Field(
        default=False,
        description="Whether predictions are divided by the fraction of UIDs with a real label, "
        "the only calibration of FLORIST-vanilla. For two classes.",
    )

    @check_field("agreement")
    @classmethod
    def _is_an_agreement(cls, changes: dict[str, object]) -> dict[str, object]:
        if taken := [key for key in SET_BY_TRIAL if key in changes]:
            raise ValueError(f"cannot set {taken[0]}, which the trial sets")
        try:
            TrainingAgreement.model_validate(changes)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
        return changes

    @property
    def is_baseline(self) -> bool:
        """Whether the method uses no synthetic data, so that there is nothing to attack."""
        return self.who != "union"

    def but(self, name: str, **changes: object) -> Method:
        """Return a method with further changes, merged key by key."""
        return self.model_validate(
            self.model_dump() | {"name": name, "agreement": _merged(self.agreement, changes)}
        )

    def by_cluster(self, name: str, clusters: int) -> Method:
        """Return the method with stand-ins that also fit one of so many clusters."""
        return self.model_copy(update={"name": name, "clusters": clusters})


def _merged(base: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    merged = dict(base)
    for key, value in changes.items():
        below = base.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _merged(below, value)
        else:
            merged[key] = value
    return merged


#: What all of the paper's methods have in common.
AS_IN_THE_PAPER = {
    "labels": {"strategy": "label-majority"},
    "features": {"strategy": "fea-sampling"},
    "calibration": "none",
    "sticky": False,
    "masking": False,
    "embedding_noise": 0.0,
    "averaging": False,
    "wide": False,
    "cut_width": 128,
    "stand_ins": "plain",
    "rate_schedule": "constant",
    "aggregate": {"privacy": None},
}
_SUFFIXES = {"": "none", "-tr": "train", "-te": "test"}

METHODS: Registry[Method] = Registry("method")

_PAPER = Method(name="paper", agreement=AS_IN_THE_PAPER, bins=0)
METHODS.register(Method(name="default"))
METHODS.register(_PAPER.but("florist-paper", calibration="train"))
METHODS.register(
    Method(name="florist-vanilla", agreement=AS_IN_THE_PAPER, bins=0, label_shift=True)
)
for _strategy, (_suffix, _when) in product(get_args(LabelStrategyName), _SUFFIXES.items()):
    METHODS.register(
        _PAPER.but(_strategy + _suffix, labels={"strategy": _strategy}, calibration=_when)
    )
for _strategy, (_suffix, _when) in product(get_args(FeatureStrategyName), _SUFFIXES.items()):
    METHODS.register(
        _PAPER.but(_strategy + _suffix, features={"strategy": _strategy}, calibration=_when)
    )
METHODS.register(Method(name="baseline-full", agreement=AS_IN_THE_PAPER, bins=0, who="everybody"))
METHODS.register(Method(name="baseline-partial", agreement=AS_IN_THE_PAPER, bins=0, who="shared"))
# The same learner as `default`, on people without synthetic data.
_SAME_LEARNER = {
    "embedding_noise": 0.0,
    "stand_ins": "plain",
    "aggregate": {"privacy": None},
}
METHODS.register(Method(name="baseline-full-default", agreement=_SAME_LEARNER, who="everybody"))
METHODS.register(Method(name="baseline-partial-default", agreement=_SAME_LEARNER, who="shared"))
