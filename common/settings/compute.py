"""Section `compute`: cores, the arithmetic engine and the Ray cluster of a party."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from florist.common.settings.addresses import RayAddress
from florist.common.settings.section import Section

EngineName = Literal["auto", "ifma", "avx2", "cryptography", "gmpy2"]
ExecutorName = Literal["local", "ray"]


class ComputeSettings(Section):
    """What this machine does the work with."""

    engine: EngineName = Field(
        default="auto",
        description="Implementation of the group's arithmetic; all give the same results. auto "
        "takes the fastest there is here; ifma, avx2, cryptography and gmpy2 name one, "
        "which must fit the group and this machine.",
    )
    threads: int = Field(
        default=0, ge=0, description="Number of cores to work with; 0 stands for all of them."
    )
    executor: ExecutorName = Field(
        default="local",
        description="Where alignment hashes, raises and sorts: local, on this machine; ray, on our "
        "own Ray cluster, to which everything goes sealed. ray needs `pip install florist[ray]` "
        "here, and this release of FLORIST on every node.",
    )
    ray_address: RayAddress = Field(
        default="auto",
        description="The Ray cluster: auto, the one that this machine is part of; host:port of its "
        "head; or local, one for this run, on this machine alone.",
    )
    ray_workers: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="Worker processes on the Ray cluster, with one core each; 0 stands for as many "
        "as it has cores.",
    )
    ray_branch_port: int = Field(
        default=0,
        ge=0,
        le=65_000,
        description="With agreement.branches above 1, at the active party: branch k listens at "
        "this port plus k, on whichever node of the Ray cluster it runs, and the peer's nodes must "
        "reach it there. 0 takes any free ports.",
    )
