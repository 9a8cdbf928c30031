"""The exchanges of Algorithm 1; `active_party/psu_role.py` and its twin put them in order."""

from __future__ import annotations

from florist.common.psu.exchanges import Exchange
from florist.common.transport.messages import Step

ACTIVE_FIRST_ROUND = Exchange(
    "psu.first-round.active",
    "steps 3-4: the active party's IDs, first round",
    Step.ACTIVE_FIRST_ROUND,
    Step.ACTIVE_FIRST_ROUND_BACK,
)
PASSIVE_FIRST_ROUND = Exchange(
    "psu.first-round.passive",
    "steps 5-6: the passive party's IDs, first round",
    Step.PASSIVE_FIRST_ROUND,
    Step.PASSIVE_FIRST_ROUND_BACK,
)
SECOND_ROUND = Exchange(
    "psu.second-round",
    "steps 7-10: the union, second round",
    Step.SECOND_ROUND,
    Step.SECOND_ROUND_BACK,
)
ACTIVE_HASHING = Exchange(
    "psu.hashing.active",
    "step 11: the active party's IDs to UIDs",
    Step.ACTIVE_HASHING,
    Step.ACTIVE_HASHING_BACK,
)
PASSIVE_HASHING = Exchange(
    "psu.hashing.passive",
    "step 12: the passive party's IDs to UIDs",
    Step.PASSIVE_HASHING,
    Step.PASSIVE_HASHING_BACK,
)

EXCHANGES = (
    ACTIVE_FIRST_ROUND,
    PASSIVE_FIRST_ROUND,
    SECOND_ROUND,
    ACTIVE_HASHING,
    PASSIVE_HASHING,
)
