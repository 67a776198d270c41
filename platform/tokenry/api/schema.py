"""The OpenAPI schema's real fields: bodies here are the strict codec's, so their JSON Schemas come from the wire types.

drf-spectacular finds the DRF views; what they take and give, and the endpoints that are Channels consumers, are said in one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from inference.compatibility import Capabilities
from inference.protocol.chat import ChatChunk, ChatCompletion, ChatCompletionRequest
from inference.protocol.completions import Completion, CompletionChunk, CompletionRequest
from inference.protocol.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
    DerenderedChatChunk,
    DerenderedCompletionChunk,
)
from inference.protocol.generate import GenerateChunk, GenerateRequest, GenerateResponse
from inference.protocol.openai import ModelCard, ModelList
from inference.protocol.tokenize import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse
from tokenry.api.autoschema import operation_id
from tokenry.api.defaults import Defaults
from tokenry.api.keys import CreateKeyRequest, RotateKeyRequest
from tokenry.api.tickets import Ticket, TicketRequest
from tokenry.consumers.abort import AbortRequest

Json = dict[str, Any]
TEMPLATE = "#/components/schemas/{name}"
MODEL = {"name": "model", "in": "query", "schema": {"type": "string"}, "description": "Default: the first that this key may use."}
ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "Dotted path of the field at fault."},
                "code": {"type": ["string", "integer"]},
            },
        }
    },
}


@dataclass(frozen=True)
class Operation:
    """What one method of one path takes and gives: a wire type, several of which one holds, or None where nothing is said."""

    summary: str
    takes: Any = None
    gives: Any = None
    streams: Any = None  # the type of one server-sent event
    query: tuple[Json, ...] = ()


OPERATIONS: Mapping[tuple[str, str], Operation] = MappingProxyType({
    ("post", "/v1/chat/completions"): Operation("Chat, as JSON or as a stream", ChatCompletionRequest, ChatCompletion, ChatChunk),
    ("post", "/v1/completions"): Operation("Completions, as JSON or as a stream", CompletionRequest, Completion, CompletionChunk),
    ("post", "/v1/chat/completions/render"): Operation("A chat as the body of generate", ChatCompletionRequest, GenerateRequest),
    ("post", "/v1/completions/render"): Operation("Prompts as bodies of generate", CompletionRequest, list[GenerateRequest]),
    ("post", "/v1/chat/completions/derender"): Operation(
        "What generate answered, as a chat: whole, or one call per chunk",
        (DerenderChatRequest, DerenderChatStreamRequest), (ChatCompletion, DerenderedChatChunk)),
    ("post", "/v1/completions/derender"): Operation(
        "What generate answered, as completions: whole, or one call per chunk",
        (DerenderCompletionRequest, DerenderCompletionStreamRequest), (Completion, DerenderedCompletionChunk)),
    ("post", "/inference/v1/generate"): Operation("Token ids in, tokens or text out", GenerateRequest, GenerateResponse, GenerateChunk),
    ("post", "/inference/v1/abort_requests"): Operation("End requests by their ids", AbortRequest),
    ("post", "/tokenize"): Operation("Text or a chat to token ids", TokenizeRequest, TokenizeResponse),
    ("post", "/detokenize"): Operation("Token ids to text", DetokenizeRequest, DetokenizeResponse),
    ("get", "/v1/models"): Operation("The models of this key", gives=ModelList),
    ("get", "/v1/models/{name}"): Operation("One model", gives=ModelCard),
    ("get", "/v1/defaults"): Operation("What applies to a request that sets nothing, and why", gives=Defaults, query=(MODEL,)),
    ("get", "/v1/scale_out/capabilities"): Operation("What the pipeline's endpoints can do here", gives=Capabilities, query=(MODEL,)),
    ("post", "/v1/tickets"): Operation("A browser's ticket for one WebSocket", TicketRequest, Ticket),
    ("post", "/v1/keys"): Operation("Make a key; its text is shown this once", CreateKeyRequest),
    ("post", "/v1/keys/{public_id}/rotate"): Operation("Give a key another secret", RotateKeyRequest),
})  # fmt: skip


def with_wire_types(result: Json, generator: Any, request: Any, public: bool) -> Json:
    """drf-spectacular's post-processing hook: the table over what it found."""
    schemas, components = wire_schemas()
    for (method, path), operation in OPERATIONS.items():
        own = result["paths"].setdefault(path, {}).setdefault(method, {"operationId": operation_id(method, path), "responses": {}})
        own |= described(operation, own, schemas)
    for own in operations(result):
        refused = json_content({"$ref": TEMPLATE.format(name="Error")})
        own["responses"]["default"] = {"description": "Refused, or failed.", "content": refused}
        own["responses"].setdefault("200", {"description": "Done."})
        own["security"] = [{"key": []}]
    result["components"] = {
        "schemas": {**result.get("components", {}).get("schemas", {}), **components, "Error": ERROR},
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A tenant's key."}},
    }
    return result


def wire_schemas() -> tuple[dict[Any, Json], Json]:
    """(schema of every type in the table, the components that these refer to)."""
    said = [shape for own in OPERATIONS.values() for shape in (own.takes, own.gives, own.streams) if shape is not None]
    shapes = list(dict.fromkeys(shape for each in said for shape in alternatives(each)))
    found, components = msgspec.json.schema_components(shapes, ref_template=TEMPLATE)
    schemas = dict(zip(shapes, found, strict=True))
    return {each: one_of([schemas[shape] for shape in alternatives(each)]) for each in said}, components


def alternatives(shape: Any) -> tuple[Any, ...]:
    return shape if isinstance(shape, tuple) else (shape,)


def one_of(schemas: list[Json]) -> Json:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def described(operation: Operation, own: Json, schemas: Mapping[Any, Json]) -> Json:
    made: Json = {"summary": operation.summary, "parameters": [*own.get("parameters", []), *operation.query], "responses": own["responses"]}
    if operation.takes is not None:
        made["requestBody"] = {"required": True, "content": json_content(schemas[operation.takes])}
    if operation.gives is not None:
        content = json_content(schemas[operation.gives])
        if operation.streams is not None:
            content["text/event-stream"] = {"schema": schemas[operation.streams]}
        made["responses"] = {"200": {"description": operation.summary, "content": content}}
    return made


def operations(result: Json) -> Iterable[Json]:
    return (operation for methods in result["paths"].values() for operation in methods.values() if "responses" in operation)


def json_content(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
