"""How much of the privacy budget with the peer is left, read from the ledger."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError
from florist.common.privacy.count_noise import exact_fraction
from florist.common.privacy.ledger import charges, ledger_folder, total_cost
from florist.common.privacy.ledger_file import HEAD, LEDGER, read_ledger

if TYPE_CHECKING:
    from florist.common.core.clock import Clock
    from florist.common.settings.party_config import PartyConfig


class BudgetLeft:
    """Reads the ledger at most once a minute. The costs are settings, which reveal nobody."""

    #: Seconds between two reads of the ledger.
    INTERVAL = 60.0

    def __init__(self, config: PartyConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config = config
        self._clock = clock
        self._lock = Lock()
        self._last_read: float | None = None
        self._left: float | None = None

    def fraction(self) -> float | None:
        """Return the fraction of epsilon or delta that is left, whichever is smaller.

        None without a budget, or if the ledger cannot be read; the run itself reports that.
        """
        with self._lock:
            now = self._clock.now()
            if self._last_read is None or now - self._last_read >= self.INTERVAL:
                self._last_read, self._left = now, self.read()
            return self._left

    def read(self) -> float | None:
        """Return the same, but read now."""
        budget, folder = self._config.privacy.budget, ledger_folder(self._config)
        if budget is None:
            return None
        try:
            if not (folder / LEDGER).exists() and not (folder / HEAD).exists():
                return 1.0
            spent = total_cost(charges(read_ledger(folder)[0].entries))
        except (ConfigurationError, OSError):
            return None
        if spent is None:  # exact sizes: no budget can hold
            return 0.0
        limits = exact_fraction(budget.epsilon), exact_fraction(budget.delta)
        left = min(1 - cost / most for cost, most in zip(spent, limits, strict=True))
        return max(0.0, float(left))
