"""A provider of models on the loopback: it reads a real request and answers with the bytes that a test gives it.

`ChatWords` and `ResponsesWords` spell what a model says in the two protocols of OpenAI, whole or as events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from contextos.adapters.outbound import OutboundClient
from contextos.contracts.envelopes.models import ModelPrices, ModelProfile, ModelWire
from contextos.contracts.ports.models import ModelCall, ModelMessage

KEY = "sk-planted-0123456789"
USAGE = {"prompt": 90, "cached": 60, "completion": 30, "reasoning": 20}


@dataclass(frozen=True)
class Served:
    """One answer: its parts are sent one after the other, after `delay_s` each. What comes then: the end of HTTP
    (`whole`), the end of the connection (`closed`), or nothing (`hangs`).
    """

    parts: Sequence[bytes] = ()
    status: int = 200
    kind: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0
    then: Literal["whole", "closed", "hangs"] = "whole"

    def head(self) -> bytes:
        fields = {"Content-Type": self.kind, "Transfer-Encoding": "chunked", **self.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
        return f"HTTP/1.1 {self.status} x\r\n{lines}\r\n".encode()


@dataclass(frozen=True)
class Asked:
    """One request. The names of the headers are in lower case."""

    target: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class ModelServer:
    """Gives its answers in order, the last one for ever. `ended` is set when a connection has ended."""

    answers: list[Served] = field(default_factory=list)
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> OutboundClient:
        return OutboundClient(internal=[self.endpoint])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self.ended.set()
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append(Asked(first.split()[1], headers, json.loads(body)))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        gone = asyncio.ensure_future(reader.read())
        gone.add_done_callback(lambda done: done.cancelled() or done.exception())
        writer.write(answer.head())
        for part in answer.parts:
            await asyncio.wait({gone}, timeout=answer.delay_s)
            if part:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                await writer.drain()
        if answer.then == "whole":
            writer.write(b"0\r\n\r\n")
        if answer.then == "hangs":
            await gone
        gone.cancel()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def model_server(*answers: Served) -> AsyncIterator[ModelServer]:
    """Serve on a free port."""
    made = ModelServer(list(answers))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in made._open:
            task.cancel()
        await asyncio.gather(*made._open, return_exceptions=True)
        await asyncio.sleep(0)


def model_call(server: ModelServer, wire: ModelWire, *, streamed: bool = True, **changes: Any) -> ModelCall:
    """Return a call of the model behind a server; `profile` are changes of its profile."""
    profile = {
        "profile_id": "p",
        "version": "1.0.0",
        "tenant": "tenant_acme_prod",
        "wire": wire,
        "model": "model-1",
        "endpoint": f"http://{server.endpoint}/v1",
        "context_window": 10_000,
        "max_output_tokens": 1_000,
        "capabilities": ["tool_calls", "structured_output", *(["streaming"] if streamed else [])],
        "regions": ["eu"],
        "data_class": "INTERNAL",
        "retention": "none",
        "prices": ModelPrices(currency="USD", as_of="2026-11-01", prices={"input": "1", "output": "2"}),
        **changes.pop("profile", {}),
    }
    fields = {
        "messages": (ModelMessage("user", "what is the weather?"),),
        "max_output_tokens": 500,
        "timeout_ms": 20_000,
        "first_token_ms": 20_000,
        "egress": (server.endpoint,),
        "key": KEY,
    }
    return ModelCall(ModelProfile.model_validate(profile), **{**fields, **changes})


@dataclass(frozen=True)
class Said:
    """What a model says. `ends`: how it ends. `usage` replaces that of the protocol; None leaves it out."""

    text: str = ""
    calls: Sequence[tuple[str, str, str]] = ()
    ends: Literal["stop", "length", "refusal", "filter"] = "stop"
    usage: Mapping[str, Any] | None = field(default_factory=dict)


class Words(Protocol):
    """The protocol of a provider: the same thing said whole and as events, each event as it is sent."""

    wire: ModelWire
    path: str

    def whole(self, said: Said) -> dict[str, Any]: ...
    def events(self, said: Said) -> list[bytes]: ...
    def usage(self, **counts: Any) -> dict[str, Any]: ...


def event(data: object) -> bytes:
    kind = f"event: {data['type']}\n" if isinstance(data, dict) and isinstance(data.get("type"), str) else ""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    try:
        return f"{kind}data: {text}\n\n".encode()
    except UnicodeEncodeError:  # Half a character can only be sent escaped.
        return f"{kind}data: {json.dumps(data)}\n\n".encode()


def pieces(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


class ChatWords:
    """Chat Completions."""

    wire: ModelWire = "openai"
    path = "/v1/chat/completions"
    _ENDS = {"stop": "stop", "length": "length", "refusal": "stop", "filter": "content_filter"}

    def usage(self, **counts: Any) -> dict[str, Any]:
        count = {**USAGE, **counts}
        return {
            "prompt_tokens": count["prompt"],
            "completion_tokens": count["completion"],
            "prompt_tokens_details": {"cached_tokens": count["cached"]},
            "completion_tokens_details": {"reasoning_tokens": count["reasoning"]},
            **({} if counts else {"total_tokens": 120}),
        }

    def _finish(self, said: Said) -> str:
        return "tool_calls" if said.calls and said.ends == "stop" else self._ENDS[said.ends]

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "model-1-2026", "service_tier": "default"}

    def whole(self, said: Said) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": None}
        if said.ends == "refusal":
            message |= {"content": None, "refusal": said.text}
        if said.calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": args}}
                for call_id, name, args in said.calls
            ]
        body = self._head("chat.completion")
        body["choices"] = [{"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(said)}]
        return body | ({"usage": said.usage or self.usage()} if said.usage is not None else {})

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head("chat.completion.chunk"), "choices": [choice], "usage": None})

    def events(self, said: Said) -> list[bytes]:
        key = "refusal" if said.ends == "refusal" else "content"
        found = [self.chunk({"role": "assistant", "content": ""})]
        found += [self.chunk({key: piece}) for piece in pieces(said.text)]
        for index, (call_id, name, args) in enumerate(said.calls):
            first = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            found.append(self.chunk({"tool_calls": [first]}))
            found += [
                self.chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
                for piece in pieces(args)
            ]
        found.append(self.chunk({}, self._finish(said)))
        if said.usage is not None:
            last = {**self._head("chat.completion.chunk"), "choices": [], "usage": said.usage or self.usage()}
            found.append(event(last))
        return [*found, event("[DONE]")]


class ResponsesWords:
    """Responses."""

    wire: ModelWire = "openai_responses"
    path = "/v1/responses"

    def usage(self, **counts: Any) -> dict[str, Any]:
        count = {**USAGE, **counts}
        return {
            "input_tokens": count["prompt"],
            "input_tokens_details": {"cached_tokens": count["cached"]},
            "output_tokens": count["completion"],
            "output_tokens_details": {"reasoning_tokens": count["reasoning"]},
            **({} if counts else {"total_tokens": 120}),
        }

    def whole(self, said: Said) -> dict[str, Any]:
        items: list[dict[str, Any]] = [{"id": "rs_1", "type": "reasoning", "summary": []}]
        if said.text:
            refusal = {"type": "refusal", "refusal": said.text}
            text = {"type": "output_text", "text": said.text, "annotations": []}
            part = refusal if said.ends == "refusal" else text
            items.append(
                {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
            )
        items += [
            {
                "id": f"fc_{call_id}",
                "type": "function_call",
                "status": "completed",
                "call_id": call_id,
                "name": name,
                "arguments": args,
            }
            for call_id, name, args in said.calls
        ]
        reasons = {"length": "max_output_tokens", "filter": "content_filter"}
        reason = reasons.get(said.ends)
        body: dict[str, Any] = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": "model-1-2026",
            "output": items,
            "service_tier": "default",
            "usage": None,
        }
        return body | ({"usage": said.usage or self.usage()} if said.usage is not None else {})

    def events(self, said: Said) -> list[bytes]:
        last = self.whole(said)
        begun = {**last, "status": "in_progress", "output": [], "usage": None}
        found: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        for index, item in enumerate(last["output"]):
            found.append({"type": "response.output_item.added", "output_index": index, "item": {"type": item["type"]}})
            kind = {"message": "output_text", "function_call": "function_call_arguments", "reasoning": ""}[item["type"]]
            text = item.get("arguments", "")
            if kind == "output_text":
                part = item["content"][0]
                kind, text = part["type"], part.get("text") or part.get("refusal")
            for piece in pieces(text) if kind else ():
                found.append({"type": f"response.{kind}.delta", "output_index": index, "delta": piece})
            found.append({"type": "response.output_item.done", "output_index": index, "item": item})
        found.append({"type": f"response.{last['status']}", "response": last})
        return [event({**one, "sequence_number": number}) for number, one in enumerate(found)]
