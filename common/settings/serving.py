"""Section `serving`: how predictions are served and requested."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.addresses import Address
from florist.common.settings.field_types import FilePath, Seconds
from florist.common.settings.section import Section


class ServingLimits(Section):
    """How much the peer may request: predictions can be abused to copy a model or infer labels."""

    rows_per_request: int = Field(
        default=4096, ge=1, description="Maximum rows per request; larger requests are rejected."
    )
    rows_per_minute: int = Field(
        default=600_000,
        ge=1,
        description="Maximum rows per minute. Above it, single requests are rejected and streams "
        "wait.",
    )
    calls: int = Field(
        default=64,
        ge=1,
        le=1024,
        description="Maximum number of concurrent single requests; further ones are rejected.",
    )
    streams: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Maximum number of concurrent streams of requests; further ones are rejected.",
    )


class Batching(Section):
    """How concurrent requests are combined into batches."""

    rows: int = Field(
        default=8192, ge=1, description="Maximum rows per batch, from several requests."
    )
    delay: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Additional seconds that requests which already had to wait for the model wait "
        "for others to join the batch. A request that finds the model idle never waits.",
    )


class Http(Section):
    """The HTTP service of the passive party for its own applications."""

    address: Address = Field(
        default="127.0.0.1:8088",
        description="host:port where this organisation's applications request predictions; "
        "127.0.0.1 is reachable from this machine only. The service has no TLS: to expose it "
        "further, put it behind a TLS proxy.",
    )
    token_file: FilePath | None = Field(
        default=None,
        description="File with the token that applications must send; only the owner may read it. "
        "Created if it does not exist. null: serving/http-token in run_directory.",
    )
    max_rows: int = Field(default=1024, ge=1, description="Maximum rows per request.")
    max_bytes: int = Field(
        default=4 << 20, ge=1024, description="Maximum size of a request body, in bytes."
    )


class Serving(Section):
    """How predictions are served (active party) and requested (passive party)."""

    address: Address | None = Field(
        default=None,
        description="host:port where the active party serves predictions and to which the passive "
        "party connects. null: network.address.",
    )
    threads: int = Field(
        default=1,
        ge=0,
        description="Number of cores for model inference; 0: all of them. 1 is best for small "
        "requests.",
    )
    limits: ServingLimits = Field(
        default=ServingLimits(),
        description="How much the peer may request, at the active party.",
    )
    batching: Batching = Field(
        default=Batching(),
        description="How concurrent requests are combined into batches, at the active party.",
    )
    idle_timeout: Seconds = Field(
        default=60.0,
        description="Seconds without progress after which the active party closes a stream, "
        "because the peer neither sends nor reads.",
    )
    answer_timeout: Seconds = Field(
        default=30.0, description="Seconds that the passive party waits for an answer."
    )
    drain_timeout: Seconds = Field(
        default=20.0,
        description="Seconds that pending requests have to finish when a party is stopped.",
    )
    http: Http = Field(
        default=Http(),
        description="The HTTP service for this organisation's applications, at the passive party.",
    )
