"""A provider of models on the loopback, as a process of its own: `python benchmarks/model_provider.py`.

It speaks Chat Completions, whole and streamed, over connections that are kept as long as the client keeps them. Its
first line says its port. Without tools it answers a sentence; with them, the model `agent-N` asks for N lookups, one
after the other, before it ends. In a stream the first piece comes at once and the rest 5 ms later.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

SENTENCE = "The order was delivered, so the refund is within the policy of returns."
LATER_S = 0.005
USAGE = {"completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 0}}


def said(body: dict[str, Any]) -> dict[str, Any]:
    """Return the message of the assistant."""
    if "tools" not in body:
        return {"role": "assistant", "content": SENTENCE, "refusal": None}
    most = int(body["model"].removeprefix("agent-"))
    made = sum(len(one.get("tool_calls") or ()) for one in body["messages"])
    tools = {one["function"]["name"] for one in body["tools"]}
    if made < most:
        name, args = next(one for one in tools if "lookup" in one), {"order_id": f"ord_{made}"}
    elif "finish" in tools:
        name, args = "finish", {"outcome": "escalated", "reason": "done"}
    else:
        return {"role": "assistant", "content": "done", "refusal": None}
    function = {"name": name, "arguments": json.dumps(args)}
    call = {"id": f"call_{made}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}


def whole(body: dict[str, Any], length: int, number: int) -> dict[str, Any]:
    """Return the answer to a request of so many bytes."""
    message, tokens = said(body), length // 4
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
            }
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens + 20, **USAGE},
    }


def events(answer: dict[str, Any]) -> list[bytes]:
    """Return an answer that has text as the events of a stream, a word in each."""
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice], "usage": None}

    words = answer["choices"][0]["message"]["content"].split(" ")
    texts = [words[0], *(f" {one}" for one in words[1:])]
    found = [chunk({"role": "assistant", "content": one}) for one in texts]
    found += [chunk({}, "stop"), {**head, "choices": [], "usage": answer["usage"]}]
    return [*(b"data: %b\n\n" % json.dumps(one).encode() for one in found), b"data: [DONE]\n\n"]


class Connection(asyncio.Protocol):
    """One connection, with one request after the other."""

    answered = 0

    def connection_made(self, transport: Any) -> None:
        self._transport, self._received = transport, bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = bytes(self._received[:end]).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        last = end + 4 + int(headers.get("content-length", 0))
        if len(self._received) < last:
            return
        body = bytes(self._received[end + 4 : last])
        del self._received[:last]
        if not first.startswith("POST "):
            self._transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        self._answer(body, closes=headers.get("connection", "").lower() == "close")

    def _answer(self, raw: bytes, *, closes: bool) -> None:
        body = json.loads(raw)
        Connection.answered += 1
        answer = whole(body, len(raw), Connection.answered)
        if not body.get("stream"):
            text = json.dumps(answer).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text)
            self._write(head + text, closes)
            return
        first, *rest = (b"%x\r\n%b\r\n" % (len(one), one) for one in events(answer))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self._transport.write(head + first)
        asyncio.get_running_loop().call_later(LATER_S, self._write, b"".join(rest) + b"0\r\n\r\n", closes)

    def _write(self, data: bytes, closes: bool) -> None:
        self._transport.write(data)
        if closes:
            self._transport.close()


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
