"""Section `alignment`: a party's own settings of the private set union."""

from __future__ import annotations

from pydantic import Field

from florist.common.core.units import MemorySize, size_in_bytes
from florist.common.settings.section import Section


class AlignmentSettings(Section):
    """How we take part in the private set union."""

    # Not in the repr: a log that held it would tell the true size.
    dummies: int = Field(
        default=0,
        ge=0,
        repr=False,
        description="Number of random IDs added to ours, to hide the true sizes of our set and of "
        "the overlap. Each costs as much as an ID.",
    )
    memory_limit: MemorySize = Field(
        default="2GB",
        description="Memory for this party while it aligns, all included, whatever the sizes: the "
        "program (about 130 MB) too. What does not fit is sorted on disk, in run_directory. A "
        "number with MB, GB, MiB or GiB, 256MB at least.",
    )

    @property
    def memory_bytes(self) -> int:
        return size_in_bytes(self.memory_limit)
