"""What an SDK can do with its transport, and what it cannot; the suite of providers tests the rest over both wires."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from contextos.adapters.models.transport import Answer, ModelTransport, NotTheProtocol, Sdk, exchange
from contextos.contracts.ports.models import ModelReply
from contextos.errors import InvalidInput
from tests.model_servers import ModelServer, Served, model_call, model_server

SDK = Sdk((), lambda _body: None)
HTTP = httpx2.AsyncClient(transport=ModelTransport(), trust_env=False)


async def asked(server: ModelServer, key: dict[str, str], **changes: Any) -> ModelReply:
    """Ask as an SDK would that does what it likes."""

    async def read(answer: Answer) -> ModelReply:
        response = await HTTP.put("https://elsewhere.example/other", json={}, headers={"X-Sdk": "a", "Cookie": "a=b"})
        answer.named("model\n", "a" * 257)
        if response.text == "!":
            raise NotTheProtocol("this is not the protocol")
        return answer.answered(response.text, ())

    call = model_call(server, "openai", streamed=False, **changes)
    return await exchange(server.client(), call, SDK, read, path="/say", headers=key)


def test_the_address_and_the_headers_are_those_of_the_call_whatever_the_sdk_asks() -> None:
    async def ask() -> None:
        async with model_server(Served([b"hello"], kind="application/json", headers={"Set-Cookie": "a=b"})) as server:
            for _ in range(2):
                reply = await asked(server, {"x-api-key": "k"}, headers={"TraceParent": "00-1"})
                assert (reply.outcome, reply.text, reply.model, reply.reply_id) == ("answered", "hello", "", "")
            for sent in server.asked:
                assert sent.target == "/v1/say"
                assert (sent.headers["x-api-key"], sent.headers["traceparent"]) == ("k", "00-1")
                assert not sent.headers.keys() & {"x-sdk", "cookie", "user-agent"}

    asyncio.run(ask())


def test_a_fault_of_the_protocol_says_its_sentence() -> None:
    async def ask() -> None:
        async with model_server(Served([b"!"], kind="application/json")) as server:
            reply = await asked(server, {})
            assert (reply.outcome, reply.detail, reply.billed) == ("malformed", "this is not the protocol", True)

    asyncio.run(ask())


def test_a_key_that_is_not_a_header_is_refused_and_not_shown() -> None:
    async def ask() -> None:
        async with model_server(Served()) as server:
            with pytest.raises(InvalidInput) as refused:
                await asked(server, {"x-api-key": "planted\r\nX-A: b"})
            assert "planted" not in str(refused.value)
            assert server.asked == []

    asyncio.run(ask())


def test_the_transport_of_an_sdk_sends_nothing_outside_of_an_exchange() -> None:
    with pytest.raises(LookupError):
        asyncio.run(HTTP.get("https://elsewhere.example/"))
