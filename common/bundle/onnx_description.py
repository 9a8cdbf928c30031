"""What is written next to an exported half: how to encode rows, and what goes in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.bundle.bundle import PassiveBundle
from florist.common.core.release import RELEASE
from florist.common.data.column_values import MISSING
from florist.common.data.date_parts import FIRST_DAY, part_names

if TYPE_CHECKING:
    from florist.common.bundle.bundle import ActiveBundle
    from florist.common.data.preprocessing import Preprocessing


def describe_half(bundle: ActiveBundle | PassiveBundle) -> dict[str, object]:
    """Return a description in plain data, which contains the categories of the training table."""
    training = bundle.agreement.training
    is_passive = isinstance(bundle, PassiveBundle)
    description: dict[str, object] = {
        "kind": "florist half",
        "release": RELEASE,
        "role": bundle.role,
        "run": bundle.run.hex(),
        "output": "embeddings" if is_passive else "probabilities",
        "embedding_width": training.wire_width,
        "preprocessing": _describe_preprocessing(bundle.preprocessing),
    }
    if not isinstance(bundle, PassiveBundle):
        description["classes"] = [*bundle.class_names]
    return description


def _describe_preprocessing(preprocessing: Preprocessing) -> dict[str, object]:
    """Describe the columns of the inputs `numeric` and `categories`, in their order."""
    scaling = preprocessing.settings.scaling
    numeric = [
        {
            "column": each.column,
            "scaling": scaling,
            "minimum": each.minimum,
            "maximum": each.maximum,
        }
        for each in preprocessing.ranges
    ]
    categories: list[dict[str, object]] = [
        {"column": each.column, "categories": each.categories.to_pylist()}
        for each in preprocessing.vocabularies
    ]
    categories += [{"column": each.column, "edges": each.edges} for each in preprocessing.bins]
    return {
        "numeric": numeric,
        "categories": categories,
        "missing": [*MISSING, *preprocessing.rules.na_values],
        "dates": {
            "format": preprocessing.rules.date_format,
            "first_day": f"{FIRST_DAY:%Y-%m-%d}",
            "columns": {name: [*part_names(name)] for name in preprocessing.dates},
        },
    }
