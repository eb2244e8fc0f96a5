"""Whatever a provider does is a reply that fits into the journal."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Callable
from typing import Any

import pytest

from contextos.action.models.foreign_provider import MAX_RETRY_MS, provider_reply
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.of_model import AnsweredModel
from contextos.contracts.envelopes.models import ModelProfile
from contextos.contracts.ports.models import (
    MAX_PROPOSED_CALLS,
    MAX_USAGE_COUNT,
    ModelCall,
    ModelMessage,
    ModelReply,
    ModelUsage,
    OnText,
    ProposedCall,
)
from contextos.errors import Conflict, Integrity, InvalidInput, Problem, ReplayMismatch
from tests.attacks.modelled import GOOD, profile

KEY = "k-0123456789abcdef"
Answers = Callable[[ModelCall], Any]


class Provider:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        reply: ModelReply = self._answers(call)
        return reply


def replied(answers: Answers, key: str = KEY) -> tuple[ModelReply, list[BaseException]]:
    known, raised = ModelProfile.model_validate(profile(GOOD)), list[BaseException]()
    call = ModelCall(known, (ModelMessage("user", "?"),), 10, 1_000, 1_000, (), key=key)
    return asyncio.run(provider_reply(Provider(answers), call, None, raised.append)), raised


def raises(error: BaseException) -> Answers:
    def answers(_: ModelCall) -> Any:
        raise error

    return answers


def answers(text: Any = "", calls: Any = (), **more: Any) -> Answers:
    return lambda _: ModelReply("answered", text, calls, **more)


def calls(args: Any = None, tool: Any = "adp_orders.lookup", call_id: Any = "c1") -> Answers:
    return answers(calls=(ProposedCall(call_id, tool, {} if args is None else args),))


def uses(counts: Any, **more: Any) -> Answers:
    return answers("x", usage=ModelUsage(counts, **more))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["itself"] = value
    return value


class Unreadable(ModelReply):
    @property
    def unreadable(self) -> str:
        raise RuntimeError(KEY)

    text = calls = unreadable  # type: ignore[assignment]


def unreadable(_: ModelCall) -> ModelReply:
    reply = object.__new__(Unreadable)
    for name in ("outcome", "usage", "billed", "retry_after_ms", "model", "reply_id", "detail"):
        object.__setattr__(reply, name, "answered" if name == "outcome" else None)
    return reply


def recorded(reply: ModelReply) -> AnsweredModel:
    """The entry that the gateway makes of a reply; raises where the journal would not take it."""
    body = {"outcome": reply.outcome, "cost_units": 0, "text": reply.text, "model": reply.model, "detail": reply.detail}
    body |= {"calls": [{"call_id": one.call_id, "tool": one.tool, "args": dict(one.args)} for one in reply.calls]}
    body |= {"reply_id": reply.reply_id, "retry_at_us": 1_793_000_000_000_000 + reply.retry_after_ms * 1_000}
    if reply.usage is not None:
        counts = {"counts": dict(reply.usage.counts), "tier": reply.usage.tier}
        body["usage"] = {**counts, "reported": dict(reply.usage.reported)}
    canonical(body)
    return AnsweredModel.model_validate(body)


NOT_A_REPLY = {
    "nothing": lambda _: None,
    "a text": lambda _: "hello",
    "an object": lambda _: {"outcome": "answered"},
    "an outcome of nobody": lambda _: ModelReply("fine"),  # type: ignore[arg-type]
    "the outcome of the gateway": lambda _: ModelReply("lost"),  # type: ignore[arg-type]
    "an outcome that is not a text": lambda _: ModelReply([]),  # type: ignore[arg-type]
    "bytes": answers(b"abc"),
    "text that is nothing": answers(None),
    "half a character": answers("a\ud800b"),
    "a text without end": answers("x" * 5_000_000),
    "a text of 257 KB": answers("x" * 263_000),
    "a text of many bytes": answers("\U0001f600" * 262_144, (ProposedCall("c", "t", {"a": "b" * 100_000}),)),
    "calls that are nothing": answers(calls=None),
    "calls of another kind": answers(calls=({"tool": "x"},)),
    "ten thousand calls": answers(calls=tuple(ProposedCall(f"c{one}", "t", {}) for one in range(10_000))),
    "arguments that are nothing": answers(calls=(ProposedCall("c", "t", None),)),  # type: ignore[arg-type]
    "arguments that are a list": calls([1]),
    "arguments that are a text": calls("{}"),
    "not a number": calls({"a": math.nan}),
    "a number without end": calls({"a": math.inf}),
    "a number of forty digits": calls({"a": 10**40}),
    "nested 10,000 deep": calls({"a": nested(10_000)}),
    "nested 100 deep": calls({"a": nested(100)}),
    "200,000 values": calls({"a": [0] * 200_000}),
    "half a character in arguments": calls({"a": "\ud800"}),
    "half a character in a name": calls({"\ud800": 1}),
    "a name that is a number": calls({1: 1}),
    "an object of Python": calls({"a": object()}),
    "arguments that hold themselves": calls(itself()),
    "a tool that is a number": calls(tool=4),
    "a tool of 100,000 characters": calls(tool="t" * 100_000),
    "a tool with half a character": calls(tool="t\ud800"),
    "an id that is nothing": answers(calls=(ProposedCall(None, "t", {}),)),  # type: ignore[arg-type]
    "an id of 100,000 characters": calls(call_id="i" * 100_000),
    "an id with a line break": calls(call_id="a\nb"),
    "an id with NUL": calls(call_id="a\0"),
    "an id with half a character": calls(call_id="\udfff"),
    "a reply that cannot be read": unreadable,
}


@pytest.mark.parametrize("answers", NOT_A_REPLY.values(), ids=NOT_A_REPLY)
def test_an_answer_that_cannot_be_on_record_is_malformed(answers: Answers) -> None:
    reply, raised = replied(answers)
    assert (reply.outcome, reply.text, reply.calls, reply.billed) == ("malformed", "", (), True)
    assert reply.detail
    assert recorded(reply).outcome == "malformed"
    assert not raised


RAISED = (
    RuntimeError(KEY),
    KeyError(1),
    TimeoutError(),
    RecursionError(),
    MemoryError(),
    UnicodeDecodeError("a", b"", 0, 1, "b"),
    Integrity("forged"),
    ReplayMismatch(1, "run.ended", "forged"),
    Conflict("run_1"),
)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_what_a_provider_raises_is_its_own_fault_and_never_the_runtimes(error: Exception) -> None:
    reply, raised = replied(raises(error))
    assert (reply.outcome, reply.billed) == ("unavailable", True)
    assert reply.detail == f"its provider has a defect: it raised `{type(error).__name__}`"
    assert raised == [error]
    recorded(reply)


def test_a_call_that_cannot_be_expressed_was_not_sent() -> None:
    reply, raised = replied(raises(InvalidInput(Problem("/x", "bad", "the schema is not expressible", "change it"))))
    assert (reply.outcome, reply.billed, raised) == ("rejected", False, [])
    assert "the schema is not expressible" in reply.detail


NOT_BELIEVED = {
    "an object": lambda _: ModelReply("answered", "x", usage={"input": 1}),  # type: ignore[arg-type]
    "a negative count": uses({"input": -5, "output": 3}),
    "a truth value": uses({"input": True, "output": 1}),
    "a part of a token": uses({"input": 1.5, "output": 1}),
    "not a number": uses({"input": math.nan, "output": 1}),
    "without end": uses({"input": math.inf, "output": 1}),
    "a text": uses({"input": "12", "output": 1}),
    "more than anybody can use": uses({"input": MAX_USAGE_COUNT + 1, "output": 1}),
    "a kind of nobody": uses({"input": 1, "output": 1, "tea": 1}),
    "no counts": uses({}),
    "no answer": uses({"input": 1}),
    "no prompt": uses({"output": 1}),
    "counts that are nothing": uses(None),
    "a tier that is a number": uses({"input": 1, "output": 1}, tier=4),
}


@pytest.mark.parametrize("answers", NOT_BELIEVED.values(), ids=NOT_BELIEVED)
def test_usage_that_nobody_can_have_counts_as_none(answers: Answers) -> None:
    reply, _ = replied(answers)
    assert (reply.outcome, reply.text, reply.usage) == ("answered", "x", None)


@pytest.mark.parametrize(
    "reported", [{"x": math.nan}, {"x": object()}, {"x": nested(9_000)}, {"x": "y" * 2_000_000}, None, itself()]
)
def test_counts_are_kept_where_the_providers_own_object_cannot_be(reported: Any) -> None:
    reply, _ = replied(uses({"input": 7, "output": 2}, reported=reported))
    assert reply.usage == ModelUsage({"input": 7, "output": 2}, reported={})
    recorded(reply)


def test_what_is_billed_for_an_answer_that_is_not_one_is_kept() -> None:
    reply, _ = replied(answers(None, usage=ModelUsage({"input": 7, "output": 2})))
    assert (reply.outcome, reply.usage) == ("malformed", ModelUsage({"input": 7, "output": 2}))


@pytest.mark.parametrize(
    ("stated", "kept"), [(-5, 0), (10**18, MAX_RETRY_MS), (math.nan, 0), ("7", 0), (True, 0), (30_000, 30_000)]
)
def test_a_retry_time_is_a_time(stated: Any, kept: int) -> None:
    reply, _ = replied(lambda _: ModelReply("overloaded", retry_after_ms=stated))
    assert reply.retry_after_ms == kept
    recorded(reply)


@pytest.mark.parametrize("stated", [None, "no", 0, 1])
def test_only_false_says_that_nothing_was_billed(stated: Any) -> None:
    assert replied(lambda _: ModelReply("cut", billed=stated))[0].billed
    assert not replied(lambda _: ModelReply("cut", billed=False))[0].billed


@pytest.mark.parametrize("stated", [object(), 3, None, "d" * 500_000, "a\udfff", f"{'d' * 7_990} Bearer {'aB39' * 12}"])
def test_what_is_stated_beside_an_answer_is_short_and_has_no_secret_cut_in_two(stated: Any) -> None:
    reply, _ = replied(lambda _: ModelReply("cut", model=stated, reply_id=stated, detail=stated))
    for said in (reply.model, reply.reply_id, reply.detail):
        assert len(said) <= 8_000
        assert "aB39" not in said
    recorded(reply)


@pytest.mark.parametrize(
    "said", [KEY, f"Authorization: Bearer {KEY}", KEY.upper(), base64.b64encode(f"user:{KEY}".encode()).decode()]
)
def test_the_key_of_a_call_is_in_nothing_that_its_provider_states(said: str) -> None:
    usage = ModelUsage({"input": 1, "output": 1}, said, {said: [said]})
    made = ProposedCall(said.replace(" ", ""), said, {said: {"order_id": [said, "ord_881"]}})
    reply, _ = replied(answers(f"it is {said}", [made], usage=usage, model=said, reply_id=said, detail=said))
    assert reply.outcome == "answered"
    assert said not in repr(reply)
    assert KEY not in repr(reply).lower()
    assert "ord_881" in repr(reply.calls)
    recorded(reply)


@pytest.mark.parametrize(
    "refused", [ModelReply("unauthorized", detail=f"`{KEY}` is wrong"), InvalidInput(Problem("/x", "x", KEY, KEY))]
)
def test_a_refusal_does_not_state_the_key(refused: Any) -> None:
    reply, _ = replied(raises(refused) if isinstance(refused, Exception) else lambda _: refused)
    assert reply.outcome in ("unauthorized", "rejected")
    assert KEY not in repr(reply)
    assert "[credential]" in reply.detail


def test_an_answer_that_grows_where_the_key_was_is_still_one_that_fits() -> None:
    reply, _ = replied(calls(tool="k-012345" * 60), key="k-012345")
    assert reply.outcome == "malformed"
    reply, _ = replied(
        uses({"input": 1, "output": 1}, tier="k-012345" * 60, reported={"x": "k-012345" * 2_000}), key="k-012345"
    )
    assert reply.usage is not None
    assert len(reply.usage.tier) <= 512
    assert reply.usage.reported == {}
    recorded(reply)


def test_an_answer_is_a_copy_that_its_provider_cannot_change() -> None:
    args = {"order_id": "ord_881", "more": [1]}
    reply, _ = replied(answers("text", [ProposedCall("c/1", "adp_orders.lookup", args)] * MAX_PROPOSED_CALLS))
    args["more"].append(2)  # type: ignore[attr-defined]
    assert reply.outcome == "answered"
    assert (
        reply.calls
        == (ProposedCall("c/1", "adp_orders.lookup", {"order_id": "ord_881", "more": [1]}),) * MAX_PROPOSED_CALLS
    )


def test_what_a_provider_writes_into_its_call_reaches_nobody() -> None:
    known = ModelProfile.model_validate(profile(GOOD) | {"parameters": {"temperature": 0.5}})
    before = known.to_json()
    made = ProposedCall("c1", "adp_orders.lookup", {"order_id": "o1"})
    call = ModelCall(known, (ModelMessage("assistant", "", (made,)),), 10, 1_000, 1_000, (), headers={"a": "b"})

    def writes(given: ModelCall) -> Any:
        for one in (given.profile.parameters, given.profile.prices.prices, given.profile.prices.tiers, given.headers):
            one["output"] = "0"  # type: ignore[index]
        given.messages[0].calls[0].args["order_id"] = "o2"  # type: ignore[index]
        vars(given.profile.prices)["currency"] = vars(given.profile)["endpoint"] = "x"
        given.profile.model_fields_set.clear()
        return ModelReply("answered", "a")

    reply = asyncio.run(provider_reply(Provider(writes), call, None, lambda _: None))
    assert (reply.outcome, known.to_json(), call.headers, made.args) == (
        "answered",
        before,
        {"a": "b"},
        {"order_id": "o1"},
    )
