"""Anthropic's Messages protocol as a provider speaks it: messages, their events, errors, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from contextos.contracts.envelopes.models import ModelWire
from tests.model_servers import USAGE, Asked, Said, Served, event, pieces

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
PING = event({"type": "ping"})


class MessagesWords:
    """Messages (`tests.model_servers.Words`)."""

    wire: ModelWire = "anthropic"
    path = "/v1/messages"
    _STOPS = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal", "filter": "refusal"}

    def usage(self, **counts: Any) -> dict[str, Any]:
        count = {**USAGE, **counts}
        prompt = count["prompt"]
        return {
            "input_tokens": prompt - count["cached"] if type(prompt) is int else prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": count["cached"],
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": count["completion"],
            "output_tokens_details": {"thinking_tokens": count["reasoning"]},
            "service_tier": "standard",
        }

    def whole(self, said: Said) -> dict[str, Any]:
        blocks = [text(said.text)] if said.text else []
        blocks += [
            {"type": "tool_use", "id": call_id, "name": name, "input": written(args)}
            for call_id, name, args in said.calls
        ]
        stop = "tool_use" if said.calls and said.ends == "stop" else self._STOPS[said.ends]
        stated = {} if said.usage is None else {"usage": said.usage or self.usage()}
        return message(blocks, stop, **stated)

    def events(self, said: Said) -> list[bytes]:
        return [event(one) for one in stream_of(self.whole(said))]


def written(args: str) -> object:
    """The input of a call; what is not JSON stays text, which an input cannot be."""
    try:
        found = json.loads(args)
    except ValueError:
        return args
    return found if json.dumps(found, ensure_ascii=False) == args else args


def message(blocks: Sequence[Mapping[str, Any]], stop: str | None = "end_turn", **fields: Any) -> dict[str, Any]:
    """A whole message."""
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "model-1-2026",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        **fields,
    }


def text(written: str) -> dict[str, Any]:
    return {"type": "text", "text": written}


def tool_use(name: str, args: object, call_id: str = "toolu_01") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": args}


def stream_of(stated: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events by which the API sends a message. The usage of the beginning is that of its first token."""
    begun, ended = {**stated, "content": [], "stop_reason": None}, {}
    if "usage" in stated:
        usage = stated["usage"]
        begun["usage"] = {**usage, "output_tokens": 1, "output_tokens_details": None}
        named = ("input_tokens", "cache_read_input_tokens", "output_tokens", "output_tokens_details")
        ended = {"usage": {name: usage[name] for name in named if name in usage}}
    stream: list[dict[str, Any]] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for index, block in enumerate(stated["content"]):
        stream += _block(index, block)
    delta = {"stop_reason": stated["stop_reason"], "stop_sequence": None}
    return [*stream, {"type": "message_delta", "delta": delta, **ended}, {"type": "message_stop"}]


def _block(index: int, block: Mapping[str, Any]) -> list[dict[str, Any]]:
    kind, name, empty = {
        "text": ("text_delta", "text", {"text": ""}),
        "thinking": ("thinking_delta", "thinking", {"thinking": "", "signature": ""}),
        "tool_use": ("input_json_delta", "partial_json", {"input": {}}),
    }[block["type"]]
    said = block["input"] if kind == "input_json_delta" else block[name]
    said = said if isinstance(said, str) else json.dumps(said)
    deltas = [{"type": kind, name: piece} for piece in ["", *pieces("" if said == "{}" else said)]]
    return [
        {"type": "content_block_start", "index": index, "content_block": {**block, **empty}},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def error(kind: str, said: str = "It failed.", code: str = "") -> dict[str, Any]:
    """An error in the form of the API, which is also the one in a stream."""
    details = {"details": {"error_code": code}} if code else {}
    return {"type": "error", "error": {"type": kind, "message": said, **details}, "request_id": "req_1"}


def failed(status: int, kind: str, said: str = "It failed.", code: str = "", **headers: str) -> Served:
    """An answer that is an error."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Served([json.dumps(error(kind, said, code)).encode()], status, "application/json", named)


def fault_of(asked: Asked) -> str | None:
    """What the API says of a request that it does not take; None where it takes it."""
    body, headers = asked.body, asked.headers
    if asked.target != "/v1/messages" or headers.get("content-type") != "application/json":
        return "Not found"
    if headers.get("anthropic-version") != "2026-10-21":
        return "anthropic-version: this version is not known"
    known = {"max_tokens", "messages", "model", "output_config", "stream", "system", "tool_choice", "tools"}
    if unknown := body.keys() - known:
        return f"{sorted(unknown)[0]}: Extra inputs are not permitted"
    if not isinstance(body.get("model"), str) or not isinstance(body.get("max_tokens"), int):
        return "model, max_tokens: Field required"
    if any(
        not _NAME.fullmatch(tool["name"]) or tool["input_schema"]["type"] != "object" for tool in body.get("tools", ())
    ):
        return "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"
    return _fault_of_turns(body["messages"])


def _fault_of_turns(turns: Sequence[Mapping[str, Any]]) -> str | None:
    asked: set[str] = set()
    for number, turn in enumerate(turns):
        blocks = turn["content"]
        if turn["role"] != ("user", "assistant")[number % 2] or not blocks:
            return f"messages.{number}: roles must alternate"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return f"messages.{number}: text content blocks must be non-empty"
        if asked != {block.get("tool_use_id") for block in blocks[: len(asked)]}:
            return f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after"
        asked = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if not all(map(_NAME.fullmatch, asked)):
            return f"messages.{number}: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    return None if turns and turns[-1]["role"] == "user" else "the conversation must end with a user message"
