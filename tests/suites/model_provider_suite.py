"""What every `ModelProvider` does, over a server that speaks its protocol. A subclass gives `words` and `make`.

`FAULTS` are what can go wrong with a call, and what becomes of each. The table of docs/models.md lists the same.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from contextos.adapters.outbound import OutboundClient
from contextos.contracts.envelopes.models import ModelOutcome
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelProvider, ModelReply, ModelTool, ProposedCall
from contextos.errors import InvalidInput
from tests.model_servers import KEY, ModelServer, Said, Served, Words, model_call, model_server
from tests.raw_http import raw_server

SAID = Said("it is sunny in Zürich 🌞", [("call_1", "crm_read_order", '{"order_id": "ord_1", "note": "für"}')])
COUNTS = {"input": 30, "cached_input": 60, "output": 10, "reasoning": 20, "requests": 1}
HTML = b"<html><body>502 Bad Gateway from the proxy</body></html>"


def one_tool(*names: str) -> tuple[ModelTool, ...]:
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
    return tuple(ModelTool(name, "Reads an order.", schema) for name in names)


def as_body(stated: object) -> bytes:
    return stated if isinstance(stated, bytes) else json.dumps(stated).encode()


@dataclass(frozen=True)
class Fault:
    """`served` is what the provider answers, streamed or not. `usage`: whether the reply has it."""

    name: str
    served: Callable[[Words, bool], Served]
    outcome: ModelOutcome
    billed: bool = True
    usage: bool = False
    retry_after_ms: int = 0
    call: Mapping[str, Any] = field(default_factory=dict)
    streamed: bool | None = None
    """None for both."""


def status(number: int, body: object = None, **headers: str) -> Callable[[Words, bool], Served]:
    """An answer with a status, by default with an error that tells nothing."""
    stated = error(None) if body is None else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    kind = "text/html" if isinstance(stated, bytes) else "application/json"
    return lambda _words, _streamed: Served([as_body(stated)], number, kind, named)


def said(what: Said) -> Callable[[Words, bool], Served]:
    """A whole answer."""

    def served(words: Words, streamed: bool) -> Served:
        return Served(words.events(what)) if streamed else Served([as_body(words.whole(what))], kind="application/json")

    return served


def sent(*parts: bytes, kind: str = "text/event-stream", begin: int = 0, **how: Any) -> Callable[[Words, bool], Served]:
    """The first `begin` events of an answer, and then `parts`."""
    return lambda words, _streamed: Served([*words.events(SAID)[:begin], *parts], kind=kind, **how)


def called(args: str) -> Said:
    return Said("", [("call_1", "crm_read_order", args)])


def error(code: str | None, message: str = "planted", kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def refusal(
    name: str, number: int, outcome: ModelOutcome, retry_after_ms: int = 0, body: object = None, **headers: str
) -> Fault:
    """A status by which a provider says that it does nothing, so that nothing can be billed."""
    return Fault(name, status(number, body, **headers), outcome, False, retry_after_ms=retry_after_ms)


MOMENTS = {"Retry_After": "Sun, 06 Nov 1994 08:50:07 GMT", "Date": "Sun, 06 Nov 1994 08:49:37 GMT"}
HTTP_FAULTS: Sequence[Fault] = [
    refusal("429", 429, "overloaded"),
    refusal("429, `Retry-After` in seconds", 429, "overloaded", 7_000, Retry_After="7"),
    refusal("429, `Retry-After-Ms`", 429, "overloaded", 251, Retry_After="9", Retry_After_Ms="250.5"),
    refusal("429, `Retry-After` as a date", 429, "overloaded", 30_000, **MOMENTS),
    refusal("429, `Retry-After` that is not a time", 429, "overloaded", Retry_After="-1 fortnight"),
    Fault("500", status(500), "unavailable"),
    Fault("502 with HTML", status(502, HTML), "unavailable"),
    refusal("503", 503, "unavailable", 2_000, Retry_After="2"),
    refusal("401", 401, "unauthorized"),
    refusal("403", 403, "unauthorized"),
    refusal("404", 404, "unknown_model"),
    refusal("410", 410, "unknown_model"),
    refusal("413", 413, "too_large"),
    refusal("400", 400, "rejected"),
    refusal("422", 422, "rejected"),
    refusal("a redirect", 307, "rejected", body=b"", Location="http://127.0.0.1:9/"),
    Fault("200 with HTML", status(200, HTML), "malformed"),
    Fault("200 without a body", sent(kind="application/json"), "malformed"),
    Fault("204", sent(status=204, kind="", then="closed"), "malformed"),
    Fault("JSON instead of a stream", lambda words, _: said(SAID)(words, False), "malformed", streamed=True),
    Fault("a stream instead of JSON", lambda words, _: said(SAID)(words, True), "malformed", streamed=False),
    Fault("text that is not JSON", sent(b"{not json", kind="application/json"), "malformed", streamed=False),
    Fault("JSON that is not UTF-8", sent(b'{"a": "\xff"}', kind="application/json"), "malformed", streamed=False),
    Fault("JSON nested too deep", sent(b"[" * 200_000, kind="application/json"), "malformed", streamed=False),
    Fault("an event that is not JSON", sent(b"data: {not json\n\n", begin=3), "malformed", streamed=True),
    Fault("an event that is not an object", sent(b"data: [1]\n\n", begin=3), "malformed", streamed=True),
    Fault("an event that is not UTF-8", sent(b'data: {"a": "\xff"}\n\n', begin=3), "malformed", streamed=True),
    Fault(
        "more bytes than the answer can have",
        sent(*[b"data: " + b"a" * 65_536 + b"\n"] * 80, then="closed"),
        "malformed",
        streamed=True,
    ),
    Fault(
        "no first piece in time, but comments",
        sent(*[b": ping\n\n"] * 400, delay_s=0.01, then="hangs"),
        "timed_out",
        call={"first_token_ms": 300},
        streamed=True,
    ),
    Fault("no end in time", sent(begin=5, then="hangs"), "timed_out", call={"timeout_ms": 300}, streamed=True),
    Fault(
        "no answer in time",
        sent(b" ", kind="application/json", then="hangs"),
        "timed_out",
        call={"timeout_ms": 300},
        streamed=False,
    ),
    Fault("the connection is lost in the answer", sent(begin=5, then="closed"), "cut", streamed=True),
    Fault(
        "the connection is lost in the JSON",
        sent(b'{"id": ', kind="application/json", then="closed"),
        "cut",
        streamed=False,
    ),
    Fault("the stream ends before its last event", sent(begin=5), "cut", streamed=True),
]
ANSWER_FAULTS: Sequence[Fault] = [
    Fault("the answer stops at its token limit", said(replace(SAID, ends="length")), "truncated", usage=True),
    Fault("the model declines", said(Said("I cannot help with that", ends="refusal")), "refused", usage=True),
    Fault("a filter of the provider declines", said(Said("it is", ends="filter")), "refused", usage=True),
    Fault("the answer is empty", said(Said()), "malformed", usage=True),
    Fault("arguments that are not JSON", said(called('{"order_id": "ord_1"')), "malformed", usage=True),
    Fault("arguments that are not an object", said(called('["ord_1"]')), "malformed", usage=True),
    Fault("arguments that name a field twice", said(called('{"a": 1, "a": 2}')), "malformed", usage=True),
    Fault("two calls with one id", said(Said("", [("c", "a", "{}"), ("c", "b", "{}")])), "malformed", usage=True),
    Fault("a call without a name", said(Said("", [("call_1", "", "{}")])), "malformed", usage=True),
    Fault("text with half a character", said(Said("it \ud83c")), "malformed"),
]
FAULTS = [*HTTP_FAULTS, *ANSWER_FAULTS]


def cases(faults: Sequence[Fault]) -> list[Any]:
    return [
        pytest.param(fault, streamed, id=f"{fault.name}{', streamed' if streamed else ''}")
        for fault in faults
        for streamed in ((True, False) if fault.streamed is None else (fault.streamed,))
    ]


class ModelProviderSuite:
    """The promises of the port. `words` spells what a model says in the protocol."""

    words: Words
    make: Callable[[OutboundClient], ModelProvider]

    def asked(self, call: Callable[[ModelServer], ModelCall], *answers: Served) -> tuple[ModelReply, ModelServer]:
        """Return what became of a call, and the server that was asked."""

        async def ask() -> tuple[ModelReply, ModelServer]:
            async with model_server(*answers) as server:
                return await type(self).make(server.client()).complete(call(server)), server

        return asyncio.run(ask())

    def answered(self, what: Said, *, streamed: bool = True, **changes: Any) -> tuple[ModelReply, ModelServer]:
        answer = said(what)(self.words, streamed)
        return self.asked(lambda server: model_call(server, self.words.wire, streamed=streamed, **changes), answer)

    @pytest.mark.parametrize("streamed", [True, False])
    def test_a_whole_answer_has_its_text_its_calls_and_each_token_once(self, streamed: bool) -> None:
        reply, server = self.answered(SAID, streamed=streamed, tools=one_tool("crm.read_order"))
        assert (reply.outcome, reply.text, reply.billed) == ("answered", SAID.text, True)
        assert reply.calls == (ProposedCall("call_1", "crm.read_order", {"order_id": "ord_1", "note": "für"}),)
        assert (reply.model, bool(reply.reply_id), reply.detail) == ("model-1-2026", True, "")
        assert reply.usage is not None
        assert (reply.usage.counts, reply.usage.tier) == (COUNTS, "")
        assert reply.usage.reported == self.words.usage()
        assert [one.target for one in server.asked] == [self.words.path]

    @pytest.mark.parametrize(("fault", "streamed"), cases(FAULTS))
    def test_each_fault_has_its_outcome(self, fault: Fault, streamed: bool) -> None:
        reply, server = self.asked(
            lambda server: model_call(server, self.words.wire, streamed=streamed, **fault.call),
            fault.served(self.words, streamed),
        )
        assert (reply.outcome, reply.billed) == (fault.outcome, fault.billed), reply
        assert reply.retry_after_ms == fault.retry_after_ms
        assert (reply.text, reply.calls) == ("", ()), "nothing of it can be used"
        if fault.usage:
            assert reply.usage is not None
            assert reply.usage.counts == COUNTS
        assert reply.detail
        assert not any(word in repr(reply) for word in ("Bad Gateway", "planted", "sunny", KEY))
        assert len(server.asked) == 1, "it is sent once"

    def test_a_stream_that_is_cut_anywhere_is_never_an_answer(self) -> None:
        whole = self.words.events(SAID)
        last = self.last_event()
        cuts = [whole[:number] for number in range(last)]
        for number, event in enumerate(whole[:last]):
            size = len(event)
            cuts += [[*whole[:number], event[:end]] for end in (1, size // 4, size // 2, size - 2, size - 1)]
        answers = [Served(parts, then=then) for parts in cuts for then in ("whole", "closed")]

        async def ask() -> None:
            async with model_server(*answers) as server:
                provider = type(self).make(server.client())
                for answer in answers:
                    reply = await provider.complete(model_call(server, self.words.wire))
                    assert (reply.outcome, reply.text, reply.calls, reply.billed) == ("cut", "", (), True), answer

        asyncio.run(ask())

    def last_event(self) -> int:
        """The number of events after which an answer is whole."""
        raise NotImplementedError

    def test_any_grouping_of_the_bytes_is_the_same_answer(self) -> None:
        sent = b"".join(self.words.events(SAID))
        answers = [Served([sent[at : at + size] for at in range(0, len(sent), size)]) for size in (len(sent), 97, 7, 1)]
        replies = [self.asked(lambda server: model_call(server, self.words.wire), answer)[0] for answer in answers]
        assert {reply.outcome for reply in replies} == {"answered"}
        assert all(reply == replies[0] for reply in replies)

    def test_pieces_are_handed_on_while_the_answer_comes(self) -> None:
        heard, began = list[str](), asyncio.Event()

        def hear(piece: str) -> None:
            heard.append(piece)
            began.set()

        async def ask() -> None:
            async with model_server(Served(self.words.events(SAID)[:8], then="hangs")) as server:
                call = model_call(server, self.words.wire)
                task = asyncio.create_task(type(self).make(server.client()).complete(call, hear))
                async with asyncio.timeout(20):
                    await began.wait()
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    await server.ended.wait()

        asyncio.run(ask())
        assert SAID.text.startswith("".join(heard))

    def test_a_late_first_piece_that_is_in_time_does_not_shorten_the_rest(self) -> None:
        reply, _ = self.asked(
            lambda server: model_call(server, self.words.wire, first_token_ms=4_000),
            Served(self.words.events(SAID), delay_s=0.01),
        )
        assert reply.outcome == "answered"

    def test_nobody_listens_so_nothing_can_be_billed(self) -> None:
        async def ask() -> ModelReply:
            async with model_server(Served()) as server:
                call, client = model_call(server, self.words.wire), server.client()
            return await type(self).make(client).complete(call)

        reply = asyncio.run(ask())
        assert (reply.outcome, reply.billed) == ("unavailable", False)

    @pytest.mark.parametrize("streamed", [True, False])
    def test_a_connection_that_ends_before_an_answer_can_be_billed(self, streamed: bool) -> None:
        async def ask() -> ModelReply:
            async with raw_server(b"") as raw:
                server = ModelServer(port=raw.port)
                call = model_call(server, self.words.wire, streamed=streamed)
                return await type(self).make(server.client()).complete(call)

        reply = asyncio.run(ask())
        assert (reply.outcome, reply.billed) == ("unavailable", True)

    def test_a_limit_that_ends_before_anything_was_sent_cannot_be_billed(self) -> None:
        async def never(_host: str, _port: int) -> Sequence[str]:
            return await asyncio.Future()

        profile = {"endpoint": "https://models.example/v1"}
        call = model_call(ModelServer(), self.words.wire, timeout_ms=200, egress=("models.example",), profile=profile)
        reply = asyncio.run(type(self).make(OutboundClient(resolve=never)).complete(call))
        assert (reply.outcome, reply.billed) == ("timed_out", False)

    def test_an_endpoint_outside_the_egress_list_is_refused_before_anything_is_sent(self) -> None:
        async def ask() -> None:
            async with model_server(Served()) as server:
                with pytest.raises(InvalidInput) as refused:
                    await type(self).make(server.client()).complete(model_call(server, self.words.wire, egress=()))
                assert refused.value.problems[0].code == "egress_refused"
                assert server.asked == []

        asyncio.run(ask())

    def test_nothing_of_the_environment_is_sent_and_no_key_where_none_is_named(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name, value in {
            "API_KEY": "sk-planted",
            "ADMIN_KEY": "sk-planted",
            "AUTH_TOKEN": "sk-planted",
            "ORG_ID": "planted",
            "PROJECT_ID": "planted",
            "LOG": "debug",
            "BASE_URL": "http://127.0.0.1:9/planted",
            "CUSTOM_HEADERS": "X-Planted: planted\nAuthorization: planted",
        }.items():
            monkeypatch.setenv(f"OPENAI_{name}", value)
            monkeypatch.setenv(f"ANTHROPIC_{name}", value)
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        caplog.set_level(logging.DEBUG)
        self.forget_the_sdk()
        for key in (None, KEY):
            reply, server = self.answered(SAID, key=key, headers={"traceparent": "00-1-2-01"})
            assert reply.outcome == "answered"
            headers = server.asked[0].headers
            assert headers["traceparent"] == "00-1-2-01"
            assert headers.keys() - set(self.key_names if key else ()) == self.header_names
            assert all(KEY in headers[name] for name in self.key_names if key)
            assert not any("planted" in value.replace(KEY, "") for value in headers.values())
        self.forget_the_sdk()
        assert not any(secret in caplog.text for secret in (KEY, "sk-planted", "weather", "sunny"))

    key_names: Sequence[str] = ("authorization",)
    header_names: Set[str] = {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "traceparent",
    }

    def forget_the_sdk(self) -> None:
        """Make the SDK anew at the next call, so that it reads the environment."""
        raise NotImplementedError

    @pytest.mark.parametrize("streamed", [True, False])
    def test_a_name_of_a_tool_comes_back_as_it_was_and_one_that_nobody_offered_is_kept(self, streamed: bool) -> None:
        offered = one_tool("crm.read_order", "crm_read_order", "x" * 80, "délai")
        calls = [("c0", "crm_read_order_2", "{}"), ("c1", "crm_read_order", "{}"), ("c2", "drop_all", "{}")]
        reply, server = self.answered(Said("", calls), streamed=streamed, tools=offered, tool_choice="required")
        assert [call.tool for call in reply.calls] == ["crm.read_order", "crm_read_order", "drop_all"]
        names = self.sent_tools(server.asked[0].body)
        assert len(set(names)) == 4
        assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isascii() for name in names)

    def sent_tools(self, body: Any) -> list[str]:
        raise NotImplementedError

    def test_a_conversation_is_sent_with_its_calls_and_their_results(self) -> None:
        messages = (
            ModelMessage("system", "be brief"),
            ModelMessage("user", "refund order 1"),
            ModelMessage("assistant", "I look", (ProposedCall("call_1", "crm.read_order", {"order_id": "ord_1"}),)),
            ModelMessage("tool", '{"total": 9}', call_id="call_1"),
        )
        reply, server = self.answered(SAID, messages=messages, tools=one_tool("crm.read_order"))
        assert reply.outcome == "answered"
        assert self.sent_messages(server.asked[0].body) == self.conversation

    conversation: Any

    def sent_messages(self, body: Any) -> Any:
        raise NotImplementedError

    @pytest.mark.parametrize(
        "counts",
        [
            {"cached": 91},
            {"reasoning": 31},
            {"prompt": -1},
            {"completion": 10**18},
            {"cached": 1.0},
            {"prompt": True},
            {"completion": "30"},
            {"prompt": None},
        ],
    )
    def test_usage_that_disagrees_with_itself_is_no_usage_and_the_answer_stays(self, counts: dict[str, Any]) -> None:
        changed = self.words.usage(**counts)
        for streamed in (True, False):
            reply, _ = self.answered(Said("it is sunny", usage=changed), streamed=streamed)
            assert (reply.outcome, reply.text, reply.usage) == ("answered", "it is sunny", None)
            assert "usage" in reply.detail

    @pytest.mark.parametrize("streamed", [True, False])
    def test_an_answer_without_usage_is_an_answer(self, streamed: bool) -> None:
        reply, _ = self.answered(Said("it is sunny", usage=None), streamed=streamed)
        assert (reply.outcome, reply.usage) == ("answered", None)

    def test_one_provider_serves_many_calls_at_once_and_mixes_none(self) -> None:
        async def one(number: int) -> None:
            async with model_server(Served(self.words.events(Said(f"answer {number}")), delay_s=0.002)) as server:
                reply = await type(self).make(server.client()).complete(model_call(server, self.words.wire))
                assert reply.text == f"answer {number}"

        async def ask() -> None:
            await asyncio.gather(*map(one, range(12)))

        for _ in range(2):  # The second time in another loop.
            asyncio.run(ask())
