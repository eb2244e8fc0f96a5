"""A loopback server with the wire of OpenAI's chat API and of Anthropic's messages API, and a scripted model.

It is as strict as the two services about what it is sent: each tool call of a message has exactly one answer right
after it, and names have their form. It keeps nothing: the messages say how far the script is.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
Call = tuple[str, Any, str]
"""The end of a tool's name, its arguments (an object, or a text that is sent as it is), and the id of the call."""


class BadRequest(Exception):
    """What the service would answer with status 400."""


@contextmanager
def served(turns: Sequence[Sequence[Call]]) -> Iterator[str]:
    """Serve a model that makes the calls of each turn, and then says that it is done. Yields the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                answer, status = WIRES[self.path](body, turns), 200
            except BadRequest as error:
                answer, status = {"error": {"type": "invalid_request_error", "message": str(error)}}, 400
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def openai(body: dict[str, Any], turns: Sequence[Sequence[Call]]) -> dict[str, Any]:
    shown = [one["function"]["name"] for one in body["tools"] if one["type"] == "function"]
    said, open_calls = 0, []
    for message in body["messages"]:
        if message["role"] == "tool":
            check(message["tool_call_id"] in open_calls, "a tool message answers no call")
            check(isinstance(message["content"], str), "the content of a tool message is a text")
            open_calls.remove(message["tool_call_id"])
            continue
        check(not open_calls, f"the calls {open_calls} have no tool message")
        if message["role"] == "assistant":
            said += 1
            open_calls = [one["id"] for one in message.get("tool_calls") or ()]
    check(not open_calls, f"the calls {open_calls} have no tool message")
    reply: dict[str, Any] = {"role": "assistant", "content": None if said < len(turns) else "done"}
    if said < len(turns):
        reply["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": named(name, shown), "arguments": text_of(args)}}
            for name, args, call_id in turns[said]
        ]
    stop = "tool_calls" if said < len(turns) else "stop"
    return {
        "id": f"chatcmpl-{said}",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": reply, "finish_reason": stop, "logprobs": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def anthropic(body: dict[str, Any], turns: Sequence[Sequence[Call]]) -> dict[str, Any]:
    shown = [one["name"] for one in body["tools"] if one["input_schema"]["type"] == "object"]
    said, open_calls = 0, []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            said += 1
            open_calls = [one["id"] for one in blocks if one["type"] == "tool_use"]
            continue
        answered = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        check(answered == open_calls, f"the calls {open_calls} have the results {answered}")
        open_calls = []
    check(body["messages"][-1]["role"] == "user", "the last message is the user's")
    check(body["max_tokens"] > 0, "max_tokens is missing")
    done = said == len(turns)
    blocks = [{"type": "text", "text": "done"}] if done else []
    for name, args, call_id in () if done else turns[said]:
        blocks.append({"type": "tool_use", "id": call_id, "name": named(name, shown), "input": args})
    return {
        "id": f"msg_{said}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": blocks,
        "stop_reason": "end_turn" if done else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


WIRES = {"/chat/completions": openai, "/v1/messages": anthropic}


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BadRequest(otherwise)


def named(end: str, shown: Sequence[str]) -> str:
    """The name under which the model sees a tool; a model also makes up tools that it does not see."""
    for name in shown:
        check(bool(NAME.fullmatch(name)), f"`{name}` is no name of a tool")
    return next((one for one in shown if one.endswith(end)), end)


def text_of(args: Any) -> str:
    return args if isinstance(args, str) else json.dumps(args)
