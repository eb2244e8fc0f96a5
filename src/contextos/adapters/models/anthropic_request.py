"""Builds the request of a call in Anthropic's Messages protocol, as data. Nothing here sends anything.

Names of tools and ids of calls get a form that the provider allows, and two different names stay different. An answer
with a schema is asked for in the output format of the API if that can express the schema exactly, else by a tool that
the model has to call.
Source: Anthropic, "Messages", "Structured outputs" (API version 2026-10-21).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from contextos.adapters.models.tool_names import ToolNames
from contextos.adapters.models.transport import parameters, streams
from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelTool
from contextos.errors import InvalidInput, Problem

ANSWER_TOOL: Final = "give answer"
"""The tool by which a model answers, if the output format cannot express the schema of the answer. No other tool has
this name, because it has a space in it.
"""
MAX_OPTIONAL: Final = 24
MAX_UNIONS: Final = 16
"""The most optional members, and the most unions, that the output format of the API takes in one schema."""
_MAX_SUBSCHEMAS: Final = 2_000
_MAX_DEPTH: Final = 32
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PARAMETERS: Final = {
    "effort": lambda value: {"output_config": {"effort": value}},
    "temperature": lambda value: {"temperature": value},
    "top_k": lambda value: {"top_k": value},
    "top_p": lambda value: {"top_p": value},
}
"""The parameters of sampling that this protocol takes. Current models take `effort` alone."""
_SCHEMA_WORDS: Final = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "definitions", "description"}
    | {"enum", "format", "items", "minItems", "properties", "required", "title", "type"}
)
_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
)


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """The body of a request, and the names of its tools. `by_tool`: the model has to answer by `ANSWER_TOOL`."""

    body: Mapping[str, Any]
    names: ToolNames
    by_tool: bool = False


def messages_request(call: ModelCall) -> MessagesRequest:
    """Return the request of a call.

    Raises:
        InvalidInput: the protocol cannot express the call.
    """
    body = parameters(call, _PARAMETERS)
    schema = call.output_schema
    by_tool = schema is not None and not _has_output_format(call, schema)
    names = ToolNames.of(call, *([ANSWER_TOOL] if by_tool else []))
    tools = [_tool(tool, names.sent(tool.name)) for tool in call.tools]
    choice: dict[str, Any] = {"type": "any" if call.tool_choice == "required" else "auto"}
    if schema is not None and by_tool:
        choice = {"type": "any"} if tools else {"type": "tool", "name": names.sent(ANSWER_TOOL)}
        tools.append(_answer_tool(names.sent(ANSWER_TOOL), schema))
    elif schema is not None:
        body["output_config"] = {**body.get("output_config", {}), "format": {"type": "json_schema", "schema": schema}}
    optional = {
        "system": "\n\n".join(message.text for message in call.messages if message.role == "system" and message.text),
        "tools": tools,
        "tool_choice": choice if tools else None,
        "stream": streams(call),
    }
    body |= {
        "model": call.profile.model,
        "max_tokens": call.max_output_tokens,
        **{name: value for name, value in optional.items() if value},
        "messages": _turns(call.messages, names),
    }
    return MessagesRequest(body, names, by_tool)


def _tool(tool: ModelTool, name: str) -> dict[str, Any]:
    return {"name": name, "description": tool.description, "input_schema": {"type": "object", **tool.input_schema}}


def _answer_tool(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        detail = "the schema of the answer is not that of an object, and the output format cannot express it"
        raise InvalidInput(Problem("/output_schema", "schema_not_expressible", detail, "ask for an object"))
    return {"name": name, "description": "Give the answer.", "input_schema": {"type": "object", **schema}}


def _turns(messages: Sequence[ModelMessage], names: ToolNames) -> list[dict[str, Any]]:
    """Return the turns of a conversation, which alternate. Results of tool calls come first in their turn."""
    turns = list[dict[str, Any]]()
    for message in messages:
        if message.role == "system":
            continue
        blocks = _blocks(message, names)
        role = "assistant" if message.role == "assistant" else "user"
        if blocks and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] != "user" or turns[-1]["role"] != "user":
        detail = "a conversation begins and ends with a message of the role `user` or `tool` that is not empty"
        raise InvalidInput(Problem("/messages", "bad_conversation", detail, "add the question to it"))
    for turn in turns[::2]:
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    return turns


def _blocks(message: ModelMessage, names: ToolNames) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": _allowed_id(message.call_id), "content": message.text}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return blocks + [
        {"type": "tool_use", "id": _allowed_id(call.call_id), "name": names.sent(call.tool), "input": call.args}
        for call in message.calls
    ]


def _allowed_id(call_id: str) -> str:
    """Return the id of a call in the form that the provider allows, also if another provider made the id."""
    return call_id if _CALL_ID.fullmatch(call_id) else f"call_{sha256(call_id.encode()).hexdigest()[:32]}"


def _has_output_format(call: ModelCall, schema: Mapping[str, Any]) -> bool:
    return "structured_output" in call.profile.capabilities and fits_output_format(schema)


def fits_output_format(schema: Mapping[str, Any]) -> bool:
    """Return whether the output format of the API can express a JSON Schema exactly.

    >>> fits_output_format({"type": "object", "properties": {}, "additionalProperties": False})
    True
    >>> fits_output_format({"type": "integer", "minimum": 1})
    False
    """
    parts = list(islice(_subschemas(schema, schema, 0), _MAX_SUBSCHEMAS + 1))
    if len(parts) > _MAX_SUBSCHEMAS or not all(map(_is_expressible, parts)):
        return False
    optional = sum(len(part.get("properties", {}).keys() - set(part.get("required", ()))) for part in parts)
    unions = sum("anyOf" in part or isinstance(part.get("type"), list | tuple) for part in parts)
    return optional <= MAX_OPTIONAL and unions <= MAX_UNIONS


def _subschemas(schema: Any, root: Any, depth: int) -> Iterator[Any]:
    """Yield a schema, all schemas in it, and the schemas that it refers to. If there is no end to them, yield None."""
    if depth > _MAX_DEPTH or not isinstance(schema, Mapping):
        yield None
        return
    yield schema
    inner = [*_values(schema.get("properties")), *_items(schema.get("anyOf")), *(_optional_member(schema, "items"))]
    if "$ref" in schema:
        ref = schema["$ref"]
        target = resolve_pointer(root, ref[1:]) if isinstance(ref, str) and ref.startswith("#/") else MISSING
        inner.append(None if target is MISSING else target)
    for subschema in inner:
        yield from _subschemas(subschema, root, depth + 1)


def _values(schemas: Any) -> list[Any]:
    return list(schemas.values()) if isinstance(schemas, Mapping) else []


def _items(schemas: Any) -> list[Any]:
    return list(schemas) if isinstance(schemas, list | tuple) else []


def _optional_member(schema: Mapping[str, Any], word: str) -> list[Any]:
    return [schema[word]] if word in schema else []


def _is_expressible(schema: Any) -> bool:
    if schema is None or not schema.keys() <= _SCHEMA_WORDS or schema.get("format", "date") not in _FORMATS:
        return False
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return False
    literals = [*_items(schema.get("enum")), *_optional_member(schema, "const")]
    return (
        any(word in schema for word in ("type", "anyOf", "$ref", "enum", "const"))
        and schema.get("minItems", 0) in (0, 1)
        and not any(isinstance(literal, list | tuple | Mapping) for literal in literals)
    )
