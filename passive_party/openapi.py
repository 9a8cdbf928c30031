"""The HTTP service's own description: OpenAPI 3.1, and a page for people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from florist.common.core.release import RELEASE
from florist.common.reports import html as web
from florist.passive_party.row_encoder import WHOLE_LIMIT

if TYPE_CHECKING:
    from florist.common.data.raw_table import FeatureColumns

#: Why a request is not answered, by status.
REFUSALS = {
    400: "The body is no JSON, or not what it is said to be.",
    401: "The token is missing or wrong.",
    408: "The body did not come in time.",
    413: "The body is too long.",
    415: "The body is not said to be application/json.",
    422: "A row cannot be predicted; `error` names the row and the column.",
    429: "The limits of the other party are reached; Retry-After has the seconds to wait.",
    502: "The other party refuses this one, or answered what it may not.",
    503: "The other party cannot be reached now.",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked for, and what is answered."""

    #: None where people are asked for by their IDs.
    columns: FeatureColumns | None
    max_rows: int
    #: Probabilities per row.
    classes: int

    @property
    def key(self) -> str:
        """Under which the rows stand."""
        return "ids" if self.columns is None else "rows"


def describe(shape: Shape) -> dict[str, Any]:
    """The description as OpenAPI has it."""
    number = {"type": "number", "minimum": 0, "maximum": 1}
    answers = number if shape.classes == 1 else {"type": "array", "items": number}
    refusal = {"schema": {"$ref": "#/components/schemas/Refusal"}}
    refused = {
        str(status): {"description": why, "content": {"application/json": refusal}}
        for status, why in REFUSALS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FLORIST predictions",
            "version": RELEASE,
            "description": "Calibrated probabilities from the model of both parties.",
        },
        "paths": {
            "/predict": {
                "post": {
                    "operationId": "predict",
                    "summary": "Probabilities for rows, in their order",
                    "security": [{"token": []}],
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Ask"}}
                        },
                    },
                    "responses": {
                        "200": {
                            "description": "One probability of class 1 for each row"
                            if shape.classes == 1
                            else "The probabilities of all classes for each row",
                            "content": {
                                "application/json": {
                                    "schema": {"$ref": "#/components/schemas/Answer"}
                                }
                            },
                        },
                        **refused,
                    },
                }
            },
            "/health": {"get": _state("health", "Whether this service runs")},
            "/ready": {
                "get": _state("ready", "Whether predictions can be had now", unready=refused["503"])
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Ask": {
                    "type": "object",
                    "required": [shape.key],
                    "additionalProperties": False,
                    "properties": {
                        shape.key: {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": shape.max_rows,
                            "items": _row(shape.columns),
                        }
                    },
                },
                "Answer": {
                    "type": "object",
                    "required": ["probabilities"],
                    "properties": {"probabilities": {"type": "array", "items": answers}},
                },
                "Refusal": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {"error": {"type": "string"}},
                },
            },
        },
    }


def _state(name: str, summary: str, unready: dict[str, Any] | None = None) -> dict[str, Any]:
    said = {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}}
    yes = {"description": "It is so", "content": {"application/json": {"schema": said}}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": yes, **({"503": unready} if unready else {})},
    }


def _row(columns: FeatureColumns | None) -> dict[str, Any]:
    if columns is None:
        return {"type": "string", "description": "An ID of this party's aligned table"}
    number = {"type": ["number", "null"], "description": "A number; null where it is missing"}
    category = {
        "type": ["string", "integer", "null"],
        "exclusiveMinimum": -WHOLE_LIMIT,
        "exclusiveMaximum": WHOLE_LIMIT,
        "description": "A category; null where it is missing",
    }
    return {
        "type": "object",
        "required": [*columns.numeric, *columns.categorical],
        "additionalProperties": False,
        "properties": {
            **dict.fromkeys(columns.numeric, number),
            **dict.fromkeys(columns.categorical, category),
        },
    }


def page(shape: Shape, address: str) -> str:
    """The same for people, in one HTML page that needs nothing else."""
    example = {shape.key: [_example(shape.columns)]}
    call = (
        f"curl http://{address}/predict \\\n"
        '  -H "Authorization: Bearer $(cat TOKEN-FILE)" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{json.dumps(example)}'"
    )
    sections = [
        web.titled_section("How to ask", web.tag("pre", call)),
        web.titled_section(
            "Answers",
            web.figures_table(
                ("status", "meaning"),
                [
                    ("200", f"{{'probabilities': [...]}}, one for each of `{shape.key}`"),
                    *((str(status), why) for status, why in REFUSALS.items()),
                ],
            ),
        ),
    ]
    if shape.columns is not None:
        kinds = [(name, "number, or null") for name in shape.columns.numeric]
        kinds += [(name, "text or whole number, or null") for name in shape.columns.categorical]
        table = web.figures_table(("column", "value"), kinds)
        sections.append(web.titled_section("Columns of a row", table))
    more = web.tag("p", "Machine-readable: ", web.tag("a", "openapi.json", href="openapi.json"))
    return web.page("FLORIST predictions", web.tag("h1", "FLORIST predictions"), more, *sections)


def _example(columns: FeatureColumns | None) -> object:
    if columns is None:
        return "ID"
    return {
        **dict.fromkeys(columns.numeric, 0),
        **dict.fromkeys(columns.categorical, "text"),
    }
