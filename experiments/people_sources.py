"""Loads people from any source, public data sets included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.experiments.people import load_people
from florist.experiments.real_data import load_real_data

if TYPE_CHECKING:
    from florist.experiments.people import People, PeopleSettings


def load_any_people(settings: PeopleSettings) -> People:
    """Read or generate the people, and hold some out.

    Raises:
        ConfigurationError: names the key, file or column and the fix.
    """
    if settings.real is None:
        return load_people(settings)
    real = settings.real
    return load_real_data(real.name, real.folder, rows=settings.rows, split=settings.split)
