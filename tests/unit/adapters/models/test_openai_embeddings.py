"""Embeddings over a server that speaks them: what is sent, and what each fault of an answer becomes for a run."""

from __future__ import annotations

import asyncio
import json
import threading
from struct import pack, unpack
from typing import Any

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.action.models.sending import ModelSender
from contextos.adapters.models.openai_chat import OpenAIChat
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.ports.models import ModelReply
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from tests.model_servers import KEY, ModelServer, Served, model_call, model_server
from tests.modelled import embedder

TEXTS = ("how do I pay?", "Zürich 🌞")
EMBEDS = {name: embedder()[name] for name in ("capabilities", "dimensions", "max_output_tokens")}
FLOAT32 = lambda number: unpack("<f", pack("<f", number))[0]  # noqa: E731
USAGE = {"prompt_tokens": 9, "total_tokens": 9}


def item(index: Any = 0, numbers: Any = (0.1, -0.2, 1)) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": numbers}


def answer(*data: Any, usage: Any = USAGE, **of: Any) -> dict[str, Any]:
    return {"object": "list", "model": "model-1-2026", "data": list(data), "usage": usage, **of}


GOOD = answer(item(), item(1, [0.5, 0, 0]))


async def no_pause(_duration_us: int) -> None: ...


def sent(body: Any, status: int = 200, headers: Any = (), **profile: Any) -> tuple[ModelReply, ModelServer]:
    """What the sender of a process makes of an answer, so with all that is checked of any provider."""

    async def ask() -> tuple[ModelReply, ModelServer]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with model_server(Served([raw], status, "application/json", dict(headers))) as server:
            call = model_call(server, "openai", messages=(), texts=TEXTS, profile=EMBEDS | profile)
            breakers = CircuitBreakers(AdmissionLimits(), threading.Lock())
            provider, clock = OpenAIChat(server.client()), SystemClock()
            sender = ModelSender({"openai": provider}, str, clock, breakers, AsyncioConcurrency(), no_pause)
            return await sender.send("t", call), server

    return asyncio.run(ask())


def test_texts_become_vectors_in_their_order() -> None:
    reply, server = sent(answer(item(1, [0.5, 0, 0]), item(0)), parameters={"dimensions": 3})
    assert (reply.outcome, reply.vectors) == ("answered", ((FLOAT32(0.1), FLOAT32(-0.2), 1.0), (0.5, 0.0, 0.0)))
    assert reply.usage is not None
    assert (reply.usage.counts, reply.usage.reported) == ({"input": 9, "output": 0, "requests": 1}, USAGE)
    assert (reply.model, reply.text, reply.calls) == ("model-1-2026", "", ())
    (asked,) = server.asked
    assert asked.target == "/v1/embeddings"
    sent_body = {"model": "model-1", "input": list(TEXTS), "encoding_format": "float", "dimensions": 3}
    assert asked.body == sent_body


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (answer(item(0, [0.1, 0.2]), item(1)), "has not 3 numbers"),
        (answer(item(0, [float("nan"), 0, 1]), item(1)), "float32"),
        (answer(item(0, [1e39, 0, 1]), item(1)), "float32"),
        (answer(item(0, [10**400, 0, 1]), item(1)), "too large"),
        (answer(item(0, [0, 0, 0]), item(1)), "no direction"),
        (answer(item(0, [1e-60, 0, 0]), item(1)), "no direction"),
        (answer(item(0), item(0, [1, 0, 0]), item(1)), "one vector for each"),
        (answer(item(0, ["0.1", 0, 1]), item(1)), "not a number"),
        (answer(item(0, [True, 0, 1]), item(1)), "not a number"),
        (answer(item(0, "zczMPc3MTL4="), item(1)), "not a list"),
        (answer(item(0)), "one vector for each of the 2 texts"),
        (answer(), "one vector for each"),
        (answer(item(0), item(0)), "one vector for each"),
        (answer(item(0), item(1), item(2)), "one vector for each"),
        (answer(item(0), item(-1)), "one vector for each"),
        (answer(item(None), item(1)), "no index"),
        (answer(1, item(1)), "not a JSON object"),
        ({"choices": []}, "one vector for each"),
        (b"[", "not JSON"),
    ],
)
def test_an_answer_that_has_not_the_vectors_of_the_texts_is_malformed(body: Any, said: str) -> None:
    reply, _ = sent(body)
    assert (reply.outcome, reply.vectors, reply.billed) == ("malformed", (), True)
    assert said in reply.detail
    assert not any(text in repr(reply) for text in (*TEXTS, KEY))


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "billed", "retry_after_ms"),
    [
        (429, {"Retry-After": "7"}, "overloaded", False, 7_000),
        (500, {}, "unavailable", True, 0),
        (401, {}, "unauthorized", False, 0),
        (404, {}, "unknown_model", False, 0),
        (400, {}, "rejected", False, 0),
    ],
)
def test_a_refusal_is_that_of_every_call(
    status: int, headers: dict[str, str], outcome: str, billed: bool, retry_after_ms: int
) -> None:
    reply, server = sent({"error": {"message": "planted"}}, status, headers)
    assert (reply.outcome, reply.billed, reply.retry_after_ms) == (outcome, billed, retry_after_ms)
    assert "planted" not in repr(reply)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": -1}, {"prompt_tokens": 9, "total_tokens": 8}, {"prompt_tokens": "9"}]
)
def test_usage_that_is_missing_or_wrong_is_none_and_the_vectors_count(usage: Any) -> None:
    reply, _ = sent(GOOD | {"usage": usage})
    assert (reply.outcome, reply.usage, len(reply.vectors)) == ("answered", None, 2)


def test_a_parameter_that_the_protocol_does_not_have_is_refused_before_anything_is_sent() -> None:
    reply, server = sent(GOOD, parameters={"temperature": 1})
    assert (reply.outcome, reply.billed, server.asked) == ("rejected", False, [])
