"""Describe the HTTP service: as OpenAPI 3.1, and as an HTML page."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from florist.common.core.release import RELEASE
from florist.common.reports import html as web
from florist.passive_party.row_encoder import INTEGER_LIMIT

if TYPE_CHECKING:
    from florist.common.data.raw_table import FeatureColumns

#: A part of the description, as it is written to JSON.
OpenApi = dict[str, object]

#: The error responses, by status.
ERRORS = {
    400: "The body is not valid JSON.",
    401: "The token is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is too long.",
    415: "The content type is not application/json.",
    421: "The Host header does not name this machine.",
    422: "A row or ID cannot be predicted; `error` gives the reason.",
    429: "A limit of the other party is reached; Retry-After gives the seconds to wait.",
    502: "The other party refused the request, or its reply is invalid.",
    503: "The other party cannot be reached, or too many requests are open.",
}


@dataclass(frozen=True, slots=True)
class ApiSchema:
    """The shape of requests and responses."""

    #: Whether predictions are requested by ID instead of by row.
    by_id: bool
    #: The columns of a row; None if they are not shown.
    columns: FeatureColumns | None
    max_rows: int
    #: The number of probabilities per row.
    classes: int

    @property
    def key(self) -> str:
        """The key of the rows or IDs in the body."""
        return "ids" if self.by_id else "rows"

    def without_columns(self) -> ApiSchema:
        """Return the schema for readers without the token, who must not see the column names."""
        return replace(self, columns=None)


def describe(schema: ApiSchema) -> OpenApi:
    """Return the OpenAPI description."""
    errors: OpenApi = {
        str(status): _response(meaning, _reference("Error")) for status, meaning in ERRORS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FLORIST predictions",
            "version": RELEASE,
            "description": "Calibrated probabilities of a model that two parties trained together.",
        },
        "paths": {
            "/predict": {"post": _predict(schema, errors)},
            "/health": {"get": _status("health", "Whether this service is running", errors, "421")},
            "/ready": {
                "get": _status("ready", "Whether predictions are available", errors, "421", "503")
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(schema),
        },
    }


def _predict(schema: ApiSchema, errors: OpenApi) -> OpenApi:
    meaning = (
        "The probability of class 1 of each row"
        if schema.classes == 1
        else "The probabilities of all classes of each row"
    )
    return {
        "operationId": "predict",
        "summary": "Predict rows or IDs; the response has the same order",
        "security": [{"token": []}],
        "requestBody": {"required": True, "content": _json(_reference("Request"))},
        "responses": {"200": _response(meaning, _reference("Response")), **errors},
    }


def _status(name: str, summary: str, errors: OpenApi, *possible: str) -> OpenApi:
    body: OpenApi = {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"const": "ok"}},
    }
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": _response("Yes", body), **{code: errors[code] for code in possible}},
    }


def _response(meaning: str, body: OpenApi) -> OpenApi:
    return {"description": meaning, "content": _json(body)}


def _json(body: OpenApi) -> OpenApi:
    return {"application/json": {"schema": body}}


def _reference(name: str) -> OpenApi:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas(schema: ApiSchema) -> OpenApi:
    number = {"type": "number", "minimum": 0, "maximum": 1}
    probabilities = number if schema.classes == 1 else {"type": "array", "items": number}
    return {
        "Request": {
            "type": "object",
            "required": [schema.key],
            "additionalProperties": False,
            "properties": {
                schema.key: {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": schema.max_rows,
                    "items": _entry(schema),
                }
            },
        },
        "Response": {
            "type": "object",
            "required": ["probabilities"],
            "properties": {"probabilities": {"type": "array", "items": probabilities}},
        },
        "Error": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"type": "string"}},
        },
    }


def _entry(schema: ApiSchema) -> OpenApi:
    if schema.by_id:
        return {"type": "string", "description": "An ID in this party's aligned table"}
    if schema.columns is None:
        return {
            "type": "object",
            "description": "A value for each column. Requests for this description that send the "
            "token see the columns.",
        }
    columns = schema.columns
    number = {"type": ["number", "null"], "description": "A number; null if missing"}
    category = {
        "type": ["string", "integer", "null"],
        "exclusiveMinimum": -INTEGER_LIMIT,
        "exclusiveMaximum": INTEGER_LIMIT,
        "description": "A category; null if missing",
    }
    date = {
        "type": ["string", "null"],
        "description": f"A date, written as in training ({columns.rules.date_format}); null if "
        "missing",
    }
    return {
        "type": "object",
        "required": list(columns.names),
        "additionalProperties": False,
        "properties": {
            **dict.fromkeys(columns.numeric, number),
            **dict.fromkeys(columns.categorical, category),
            **dict.fromkeys(columns.dates, date),
        },
    }


def page(schema: ApiSchema, address: str) -> str:
    """Return the documentation page: a single HTML file without external resources."""
    body = shlex.quote(json.dumps({schema.key: [_example(schema)]}))
    call = (
        f"curl http://{address}/predict \\\n"
        '  -H "Authorization: Bearer $(cat TOKEN-FILE)" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {body}"
    )
    answer = (
        f"An object with the key probabilities: a list with one entry per entry of {schema.key}."
    )
    statuses = {"200": answer} | {str(status): meaning for status, meaning in ERRORS.items()}
    sections = [
        web.titled_section("Request", web.code_block(call)),
        web.titled_section("Responses", web.facts_table(statuses)),
    ]
    if schema.columns is not None:
        kinds = dict.fromkeys(schema.columns.numeric, "number, or null")
        kinds |= dict.fromkeys(schema.columns.categorical, "text or integer, or null")
        kinds |= dict.fromkeys(schema.columns.dates, "date as text, or null")
        sections.append(web.titled_section("Columns of a row", web.facts_table(kinds)))
    elif not schema.by_id:
        how = web.code_block(
            f'curl http://{address}/openapi.json -H "Authorization: Bearer $(cat TOKEN-FILE)"'
        )
        note = web.tag("p", "Only requests with the token see the columns:")
        sections.append(web.titled_section("Columns of a row", web.tag("div", note, how)))
    note = web.tag(
        "p",
        "TOKEN-FILE is the file that the service names in its log when it starts. OpenAPI "
        "description: ",
        web.tag("a", "openapi.json", href="openapi.json"),
    )
    title = "FLORIST predictions"
    return web.page(title, web.tag("h1", title), note, *sections, script=web.COPY_SCRIPT)


def _example(schema: ApiSchema) -> object:
    if schema.by_id:
        return "ID"
    if schema.columns is None:
        return {"COLUMN": 0}
    columns = schema.columns
    return {
        **dict.fromkeys(columns.numeric, 0),
        **dict.fromkeys(columns.categorical, "text"),
        **dict.fromkeys(columns.dates),
    }
