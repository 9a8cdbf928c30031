"""Section `compute`: the cores, the arithmetic engine and the Ray cluster of a party."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from florist.common.settings.addresses import RayAddress
from florist.common.settings.section import Section

EngineName = Literal["auto", "ifma", "avx2", "cryptography", "gmpy2"]
ExecutorName = Literal["local", "ray"]


class ComputeSettings(Section):
    """What this party computes the alignment with."""

    engine: EngineName = Field(
        default="auto",
        description="Implementation of the group arithmetic; all give the same results. auto: the "
        "fastest one available here. ifma, avx2, cryptography and gmpy2 select one, which must "
        "support the group and this CPU.",
    )
    threads: int = Field(default=0, ge=0, description="Number of cores to use; 0: all of them.")
    executor: ExecutorName = Field(
        default="local",
        description="Where alignment hashes, encrypts and sorts. local: on this machine. ray: on "
        "this party's own Ray cluster; all data sent to it is encrypted. ray requires `pip install "
        "florist[ray]` here and the same FLORIST release on every node.",
    )
    ray_address: RayAddress = Field(
        default="auto",
        description="The Ray cluster. auto: the one that this machine belongs to; host:port: the "
        "address of its head node; local: a temporary one on this machine only. A cluster must use "
        "Ray's token authentication.",
    )
    ray_workers: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="Number of worker processes on the Ray cluster, with one core each; 0: one per "
        "core of the cluster.",
    )
    ray_branch_port: int = Field(
        default=0,
        ge=0,
        le=65_000,
        description="Only at the active party, with agreement.branches above 1: branch k listens "
        "on this port plus k, on whichever node of the Ray cluster it runs, and the peer's nodes "
        "must be able to connect to it. 0: any free ports.",
    )
