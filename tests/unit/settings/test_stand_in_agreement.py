"""With which other settings stand-ins can be oblivious."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from florist.common.settings.agreement import MAX_OFFERS, TrainingAgreement


def test_stand_ins_are_oblivious_unless_agreed_otherwise() -> None:
    agreement = TrainingAgreement()
    assert agreement.stand_ins == "oblivious"
    assert agreement.offers == 2


@pytest.mark.parametrize("classes", [2, 3, MAX_OFFERS])
@pytest.mark.parametrize("labels", ["label-random-pred", "label-random-pos", "label-neighbors"])
def test_there_is_one_offer_per_class(classes: int, labels: str) -> None:
    values = {"classes": classes, "labels": {"strategy": labels}}
    assert TrainingAgreement.model_validate(values).offers == classes
    plain = TrainingAgreement.model_validate({**values, "stand_ins": "plain"})
    assert plain.offers == 1


IMPOSSIBLE = [
    ({"wide": False, "cut_width": 8}, "wide: true"),
    ({"features": {"strategy": "fea-gaussian"}}, "features.strategy: fea-sampling"),
    ({"features": {"strategy": "fea-random"}}, "features.strategy: fea-sampling"),
    ({"labels": {"strategy": "label-majority"}}, "another labels.strategy"),
    ({"labels": {"strategy": "label-minority"}}, "another labels.strategy"),
    ({"classes": MAX_OFFERS + 1}, f"at most {MAX_OFFERS} classes"),
]


@pytest.mark.parametrize(("values", "needs"), IMPOSSIBLE)
def test_impossible_combinations_are_refused_with_the_way_out(
    values: dict[str, object], needs: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainingAgreement.model_validate(values)
    (error,) = caught.value.errors()
    assert f"stand_ins: oblivious needs {needs}" in error["msg"]
    assert error["msg"].endswith("; or set stand_ins: plain")
    TrainingAgreement.model_validate({**values, "stand_ins": "plain"})
