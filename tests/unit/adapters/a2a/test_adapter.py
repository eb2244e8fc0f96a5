"""`A2aAdapter` keeps the promises of the port: what surely did not happen, what may have, and what the agent says."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from contextos.adapters.a2a import adapter as a2a
from contextos.adapters.a2a.adapter import A2aAdapter
from contextos.contracts.envelopes.tool import AdapterReply, CallContext
from contextos.errors import InvalidInput, LostReply, Overloaded, Unavailable
from tests.servers.adapters import agent_adapter, agent_at, call_context, drafted_agent
from tests.servers.hostile_agent import SECRET, hostile_agent
from tests.servers.processes import hostile_skill

TEXT = {"text": "hello"}
KEY = "key_1"
SAID = {"texts": ["hello"], "omitted": 0}


def said(adapter: A2aAdapter, how: CallContext | None = None) -> AdapterReply:
    return asyncio.run(adapter.call("say", TEXT, how or call_context()))


def looked_up(adapter: A2aAdapter, timeout_ms: int = 20_000) -> AdapterReply | None:
    return asyncio.run(adapter.lookup("say", KEY, call_context(timeout_ms, key=KEY)))


@pytest.mark.parametrize("mode", ["plain", "message", "slow"])
def test_the_texts_of_a_task_or_of_a_message_are_the_output(mode: str) -> None:
    with hostile_skill(mode) as (agent, adapter):
        for _ in range(2):
            reply = said(adapter)
            assert (reply.output, reply.error) == (SAID, None)
    assert len(agent.messages) == 2


def test_parts_that_are_no_text_are_counted() -> None:
    with hostile_skill("many_parts") as (_, adapter):
        assert said(adapter).output == {"texts": ["a"], "omitted": 3}


@pytest.mark.parametrize(
    ("mode", "output"), [("data", {"n": 4200, "half": 0.5, "none": None}), ("many_parts", None), ("plain", None)]
)
def test_a_structured_output_is_the_one_data_part_and_nothing_else(mode: str, output: Any) -> None:
    """Numbers travel as doubles. A whole one is an integer again."""
    with hostile_agent() as agent:
        file = asyncio.run(drafted_agent(agent_at(agent.url)))
        file["operations"]["say"]["output"] = "structured"
        agent.mode = mode
        reply = said(agent_adapter(file))
    assert (reply.output, reply.error) == (output, None)
    assert type((reply.output or {"n": 1})["n"]) is int


def test_a_message_names_its_skill_carries_its_key_and_asks_for_an_answer_in_its_form() -> None:
    with hostile_skill(strategy="keyed") as (agent, adapter):
        for _ in range(2):
            said(adapter, call_context(key=KEY))
    assert [one["messageId"] for one in agent.messages] == [KEY, KEY]
    assert agent.messages[0]["metadata"] == {"skillId": "say"}
    assert agent.messages[0]["parts"] == [{"text": "hello", "mediaType": "text/plain"}]
    assert "contextId" not in agent.messages[0]
    assert agent.seen[-1]["a2a-version"] == "1.0"


def test_the_arguments_are_one_data_part_and_whole_numbers_stay_whole() -> None:
    with hostile_agent() as agent:
        file = asyncio.run(drafted_agent(agent_at(agent.url)))
        file["operations"]["say"]["input"] = "data"
        args = {"amount_inr": 4200, "lines": [{"half": 0.5, "note": None}]}
        asyncio.run(agent_adapter(file).call("say", args, call_context()))
    [part] = agent.messages[0]["parts"]
    assert part == {"data": args, "mediaType": "application/json"}
    assert json.dumps(part["data"]["amount_inr"]) == "4200"


def test_a_read_is_a_new_message_each_time() -> None:
    with hostile_skill(read=True) as (agent, adapter):
        for _ in range(2):
            said(adapter)
    assert len({one["messageId"] for one in agent.messages}) == 2


@pytest.mark.parametrize("mode", ["failed", "rejected"])
def test_a_task_that_the_agent_failed_or_refused_is_its_error(mode: str) -> None:
    for read in (False, True):
        with hostile_skill(mode, read=read) as (_, adapter):
            error = said(adapter).error
        assert error is not None
        assert (error.code, error.message) == (f"task_{mode}", "no")


@pytest.mark.parametrize("mode", ["canceled", "input_required", "auth_required"])
def test_a_write_whose_task_stopped_before_its_end_may_have_happened(mode: str) -> None:
    with hostile_skill(mode) as (_, adapter), pytest.raises(LostReply, match="its task"):
        said(adapter)
    with hostile_skill(mode, read=True) as (_, adapter):
        error = said(adapter).error
    assert error is not None
    assert error.code == mode


def test_a_write_that_still_works_when_its_time_is_over_is_lost_and_a_read_is_not() -> None:
    with hostile_skill("working") as (agent, adapter), pytest.raises(LostReply, match="did not end in 2000 ms"):
        said(adapter, call_context(2_000))
    assert len(agent.messages) == 1
    assert "GetTask" in agent.asked
    with hostile_skill("working", read=True) as (_, adapter), pytest.raises(Unavailable):
        said(adapter, call_context(2_000))


def test_a_task_is_asked_for_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a2a, "MAX_POLLS", 3)
    with hostile_skill("working") as (agent, adapter), pytest.raises(LostReply, match="asked 3 times"):
        said(adapter)
    assert agent.asked == ["SendMessage", *["GetTask"] * 3]


@pytest.mark.parametrize("mode", ["polls_fail", "dies"])
def test_an_agent_that_cannot_be_asked_for_its_task_leaves_a_write_uncertain(mode: str) -> None:
    with hostile_skill(mode) as (agent, adapter), pytest.raises(LostReply):
        said(adapter, call_context(2_000))
    assert len(agent.messages) == 1


def test_an_agent_that_answers_again_after_a_fault_is_heard() -> None:
    with hostile_skill("drops_a_poll") as (agent, adapter):
        assert said(adapter).output == SAID
    assert agent.asked == ["SendMessage", "GetTask", "GetTask"]


def test_nothing_happened_where_the_agent_never_got_the_message() -> None:
    for read in (False, True):
        with hostile_skill("card_gone", read=read) as (agent, adapter), pytest.raises(Unavailable):
            said(adapter)
        assert agent.messages == []
    with pytest.raises(Unavailable):
        said(adapter)


def test_a_card_that_never_comes_is_unavailable_when_the_time_is_over() -> None:
    with hostile_skill("card_hangs") as (agent, adapter), pytest.raises(Unavailable, match="its card in 2000 ms"):
        said(adapter, call_context(2_000))
    assert agent.messages == []


def test_a_message_that_was_dropped_or_hangs_is_lost() -> None:
    for mode in ("drops", "hangs"):
        with hostile_skill(mode) as (agent, adapter), pytest.raises(LostReply):
            said(adapter, call_context(2_000))
        assert len(agent.messages) == 1
        with hostile_skill(mode, read=True) as (_, adapter), pytest.raises(Unavailable):
            said(adapter, call_context(2_000))


@pytest.mark.parametrize("mode", ["http_401", "http_403"])
def test_an_agent_that_refuses_the_caller_did_nothing(mode: str) -> None:
    with hostile_skill(mode) as (_, adapter):
        error = said(adapter).error
    assert error is not None
    assert (error.code, SECRET in error.message) == (mode, False)


@pytest.mark.parametrize("mode", ["rpc_401", "rpc_403"])
def test_a_write_may_have_happened_when_only_the_error_of_json_rpc_has_such_a_code(mode: str) -> None:
    with hostile_skill(mode) as (_, adapter), pytest.raises(LostReply):
        said(adapter)


def test_arguments_that_an_agent_refuses_are_an_error_of_a_read_and_may_be_the_end_of_a_write() -> None:
    with hostile_skill("refuses", read=True) as (_, adapter):
        error = said(adapter).error
    assert error is not None
    assert (error.code, error.message) == ("message_refused", "no such text")
    with hostile_skill("refuses") as (_, adapter), pytest.raises(LostReply):
        said(adapter)


def test_a_call_that_waited_too_long_is_not_sent() -> None:
    with hostile_skill() as (agent, adapter), pytest.raises(Overloaded):
        said(adapter, replace(call_context(), is_late=lambda: True))
    assert agent.messages == []


def test_a_variable_that_is_not_set_is_named_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TOKEN", "sk_live_4711471147")
    with hostile_skill(token_env="LAB_TOKEN") as (agent, adapter):
        asked = len(agent.seen)
        monkeypatch.delenv("LAB_TOKEN")
        with pytest.raises(Unavailable, match="LAB_TOKEN"):
            said(adapter)
        assert len(agent.seen) == asked


def test_the_trace_of_the_caller_goes_with_the_message_and_with_the_question_for_the_card() -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "contextos=1"}
    with hostile_skill() as (agent, adapter):
        begun = len(agent.seen)
        said(adapter, replace(call_context(), headers=lambda: trace))
    asked = agent.seen[begun:]
    assert len(asked) >= 2, "the card, and the message"
    for one in asked:
        assert (one["traceparent"], one["tracestate"]) == (trace["traceparent"], "contextos=1")


def test_calls_at_the_same_time_and_of_several_loops_get_their_own_answers() -> None:
    async def several() -> list[str]:
        told = [adapter.call("say", {"text": str(number)}, call_context(key=f"k{number}")) for number in range(5)]
        return [reply.output["texts"][0] for reply in await asyncio.gather(*told) if reply.output]

    with hostile_skill() as (_, adapter):
        for _ in range(2):
            assert asyncio.run(several()) == [str(number) for number in range(5)]


def test_a_lookup_finds_the_task_of_the_call_by_its_context() -> None:
    with hostile_skill(strategy="lookup") as (agent, adapter):
        assert said(adapter, call_context(key=KEY)).output == SAID
        assert agent.messages[0]["contextId"] == KEY
        reply = looked_up(adapter)
    assert reply is not None
    assert reply.output == SAID
    assert len(agent.messages) == 1


def test_a_lookup_of_a_task_that_failed_says_that_it_failed() -> None:
    with hostile_skill("lists_failed", strategy="lookup") as (_, adapter):
        reply = looked_up(adapter)
    assert reply is not None
    assert reply.error is not None
    assert reply.error.code == "task_failed"


def test_a_lookup_waits_for_a_task_that_still_works() -> None:
    with hostile_skill("lists_working", strategy="lookup") as (agent, adapter):
        said(adapter, call_context(key=KEY))
        reply = looked_up(adapter)
    assert reply is not None
    assert reply.output == SAID
    assert agent.asked[-1] == "GetTask"


UNKNOWN = ["lists_none", "lists_two", "lists_others", "lists_a_page", "lists_canceled", "lists_nothing", "card_gone"]


@pytest.mark.parametrize("mode", UNKNOWN)
def test_a_lookup_that_cannot_know_never_says_that_nothing_happened(mode: str) -> None:
    with hostile_skill(mode, strategy="lookup") as (_, adapter), pytest.raises(LostReply) as error:
        looked_up(adapter)
    assert SECRET not in str(error.value)


def test_a_lookup_of_an_agent_that_is_gone_is_still_not_known() -> None:
    with hostile_skill(strategy="lookup") as (_, adapter):
        pass
    with pytest.raises(LostReply):
        looked_up(adapter)


def test_a_lookup_of_a_changed_agent_asks_for_nothing() -> None:
    with hostile_skill("description", strategy="lookup") as (agent, adapter):
        for _ in range(2):
            with pytest.raises(LostReply):
                looked_up(adapter)
        assert agent.asked == []


@pytest.mark.parametrize("strategy", ["none", "keyed"])
def test_what_has_no_lookup_is_settled_by_hand(strategy: str) -> None:
    with hostile_skill(strategy=strategy) as (agent, adapter), pytest.raises(LostReply, match="by hand"):
        looked_up(adapter)
    assert agent.asked == []


def test_an_agent_without_the_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a2a, "find_spec", lambda _name: None)
    with pytest.raises(InvalidInput, match=r"contextos\[a2a\]"):
        a2a.require_a2a()
