"""Section `alignment`: a party's own settings of the private set union."""

from __future__ import annotations

from pydantic import Field

from florist.common.core.units import MemorySize, size_in_bytes
from florist.common.settings.section import Section


class AlignmentSettings(Section):
    """How this party takes part in the private set union."""

    # Not in the repr: a log that contained it would reveal the true size of the set.
    dummies: int = Field(
        default=0,
        ge=0,
        repr=False,
        description="Number of random IDs added to this party's IDs, to hide the size of its set. "
        "They do not hide the size of the intersection: a random ID never matches. Each costs as "
        "much as a real ID.",
    )
    memory_limit: MemorySize = Field(
        default="2GB",
        description="Memory limit of this party during alignment, including the program itself "
        "(about 130 MB), for tables of any size: larger sets are sorted on disk, in "
        "run_directory. A number with MB, GB, MiB or GiB, at least 256MB.",
    )

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes."""
        return size_in_bytes(self.memory_limit)
