"""Section `serving`: how predictions are served and requested."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.addresses import Address
from florist.common.settings.field_types import FilePath, Seconds
from florist.common.settings.section import Section


class ServingLimits(Section):
    """How much the peer may ask: predictions can be used to copy a model, or to probe labels."""

    rows_per_request: int = Field(
        default=4096, ge=1, description="Rows that one request may have; more are refused."
    )
    rows_per_minute: int = Field(
        default=600_000,
        ge=1,
        description="Rows that the peer may ask for in a minute. Beyond it single requests are "
        "refused, and streams wait.",
    )
    calls: int = Field(
        default=64,
        ge=1,
        le=1024,
        description="Single requests of the peer under way at once; more are refused.",
    )
    streams: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Streams of requests of the peer under way at once; more are refused.",
    )


class Batching(Section):
    """How requests that come at the same time are computed together."""

    rows: int = Field(
        default=8192, ge=1, description="Rows that are computed together, from several requests."
    )
    delay: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Seconds that requests which had to wait for the model wait on for others to "
        "join them. A request that finds the model idle never waits.",
    )


class Http(Section):
    """The service for the organisation's own applications, at the passive party."""

    address: Address = Field(
        default="127.0.0.1:8088",
        description="host:port where our own applications get predictions; 127.0.0.1 is this "
        "machine alone. It has no TLS of its own: elsewhere, put it behind something that has.",
    )
    token_file: FilePath | None = Field(
        default=None,
        description="File with the token that applications must show, readable by us alone; "
        "made when it is not there. null: serving/http-token in run_directory.",
    )
    max_rows: int = Field(default=1024, ge=1, description="Rows of one request.")
    max_bytes: int = Field(
        default=4 << 20, ge=1024, description="Length of a request's body, in bytes."
    )


class Serving(Section):
    """How predictions are given (active party) and got (passive party)."""

    address: Address | None = Field(
        default=None,
        description="host:port where the active party gives predictions and which the passive "
        "party dials. null: network.address.",
    )
    threads: int = Field(
        default=1,
        ge=0,
        description="Number of cores for a model's arithmetic; 0 stands for all of them. One is "
        "best for small requests.",
    )
    limits: ServingLimits = Field(
        default=ServingLimits(), description="How much the peer may ask, at the active party."
    )
    batching: Batching = Field(
        default=Batching(),
        description="How requests at the same time are computed together, at the active party.",
    )
    idle: Seconds = Field(
        default=60.0,
        description="Seconds without progress after which the active party ends a stream: its "
        "peer neither sends nor reads.",
    )
    answer: Seconds = Field(
        default=30.0, description="Seconds that the passive party waits for an answer."
    )
    drain: Seconds = Field(
        default=20.0,
        description="Seconds that requests under way have to finish when a party is stopped.",
    )
    http: Http = Field(
        default=Http(),
        description="The service for our own applications, at the passive party.",
    )
