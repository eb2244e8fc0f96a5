"""An A2A agent that changes, floods, lies, hangs or leads elsewhere is bounded, and its text stays out of logs and
errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress

import pytest

from contextos.adapters.a2a.adapter import A2aAdapter
from contextos.adapters.a2a.connection import MAX_SKILLS, AgentConnection
from contextos.adapters.a2a.definitions import A2aConnection
from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import MAX_SAID_CHARS, AdapterReply
from contextos.errors import InvalidInput, LostReply, Unavailable
from tests.servers.adapters import agent_at, call_context, drafted_agent
from tests.servers.hostile_agent import BODIES, CARDS, DRIFT, SECRET, hostile_agent
from tests.servers.processes import hostile_skill

TOKEN = "sk_live_4711471147"
HIDDEN = ["\u200b", "\u202e", "\U000e0041", "\x1b[8m"]
WRONG = sorted(BODIES.keys() - {"refuses", "http_401", "http_403"})


def said(adapter: A2aAdapter, text: str = "a", timeout_ms: int = 20_000, *, key: str | None = None) -> AdapterReply:
    return asyncio.run(adapter.call("say", {"text": text}, call_context(timeout_ms, key=key)))


@pytest.mark.parametrize("mode", DRIFT)
def test_an_agent_that_changed_between_two_calls_gets_no_second_one(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with hostile_skill() as (agent, adapter):
        first = said(adapter)
        agent.mode = mode
        second = said(adapter)
        assert asyncio.run(adapter.drifted()) == {"say"}
    assert (first.output, second.output) == ({"texts": ["a"], "omitted": 0}, None)
    assert second.error is not None
    assert (second.error.code, second.error.retryable, second.mutations) == ("definition_drift", False, ())
    assert "`contextos adapters add a2a`" in str(second.error.remedy)
    assert len(agent.messages) == 1
    shown = caplog.text + json.dumps(second.to_json())
    assert SECRET not in shown
    assert "evil" not in shown


def test_what_no_person_reviewed_and_no_model_is_shown_is_no_drift() -> None:
    with hostile_skill() as (agent, adapter):
        card = agent.card()
        agent.card = lambda: card | {"version": "2", "iconUrl": "https://evil.example/x"}  # type: ignore[method-assign]
        assert said(adapter).error is None


@pytest.mark.parametrize("mode", [*CARDS, "card_many"])
def test_a_card_that_is_none_sends_nothing_and_is_no_drift(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with hostile_skill(mode) as (agent, adapter):
        with pytest.raises(Unavailable) as error:
            said(adapter)
        with pytest.raises(Unavailable):
            asyncio.run(adapter.drifted())
        agent.mode = "plain"
        assert said(adapter).error is None
    assert len(agent.messages) == 1
    assert SECRET not in caplog.text + str(error.value)
    assert (f"more than {MAX_SKILLS} skills" in str(error.value)) == (mode == "card_many")


WITHHELD = {
    *((mode, True) for mode in ("deep", "gigabytes", "not_utf8", "twice_the_same_member", "wide")),
    ("not_utf8", False),
}
"""The modes whose answer came and cannot be taken, and whether a read was asked; the one write says that it is done."""


@pytest.mark.parametrize("mode", WRONG)
def test_what_an_agent_answers_wrong_is_in_no_log_and_no_error(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for read, expected in ((False, LostReply), (True, Unavailable)):
        with hostile_skill(mode, read=read) as (agent, adapter):
            if (mode, read) in WITHHELD:
                withheld = said(adapter).withheld
                assert withheld is not None
                shown = str(withheld)
            else:
                with pytest.raises(expected) as error:
                    said(adapter)
                shown = str(error.value)
        assert len(agent.messages) == 1
        assert SECRET not in caplog.text + shown


@pytest.mark.parametrize("mode", ["another_task", "another_context", "polls_refused"])
def test_an_agent_that_lies_about_the_ids_of_its_task_is_not_believed(mode: str) -> None:
    with hostile_skill(mode) as (agent, adapter), pytest.raises(LostReply) as error:
        said(adapter)
    assert agent.asked == ["SendMessage", "GetTask"]
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("mode", ["no_id", "state_of_its_own", "unspecified", "neither"])
def test_an_answer_without_a_task_that_can_be_followed_may_have_happened(mode: str) -> None:
    with hostile_skill(mode) as (_, adapter), pytest.raises(LostReply) as error:
        said(adapter)
    assert SECRET not in str(error.value)


def test_a_task_in_another_context_than_the_call_is_not_believed() -> None:
    with hostile_skill("in_a_context_of_its_own", strategy="lookup") as (_, adapter), pytest.raises(LostReply):
        said(adapter, key="key_1")


def test_endless_work_ends_with_the_time_of_the_call() -> None:
    with hostile_skill("working") as (agent, adapter), pytest.raises(LostReply):
        said(adapter, timeout_ms=2_000)
    assert len(agent.messages) == 1


def test_the_text_of_an_error_is_bounded() -> None:
    with hostile_skill("long_error") as (_, adapter):
        error = said(adapter).error
    assert error is not None
    assert len(error.message) == MAX_SAID_CHARS


@pytest.mark.parametrize("text", ["a", "fail"])
def test_a_token_that_comes_back_is_in_no_result_no_error_and_no_log(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("LAB_TOKEN", TOKEN)
    with hostile_skill("echoes_token", token_env="LAB_TOKEN") as (agent, adapter):
        reply = said(adapter, text)
        assert agent.seen[-1]["authorization"] == f"Bearer {TOKEN}"
    assert "[credential]" in json.dumps(reply.to_json())
    assert TOKEN not in caplog.text + json.dumps(reply.to_json()) + repr(adapter.__dict__)


def test_a_token_goes_to_the_reviewed_endpoint_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second agent of the same machine is where the card leads after the review."""
    monkeypatch.setenv("LAB_TOKEN", TOKEN)
    with hostile_agent() as other, hostile_skill(token_env="LAB_TOKEN") as (agent, adapter):
        lured = agent.card() | {"supportedInterfaces": other.card()["supportedInterfaces"]}
        agent.card = lambda: lured  # type: ignore[method-assign]
        reply = said(adapter)
    assert reply.error is not None
    assert (reply.error.code, other.seen, agent.messages) == ("definition_drift", [], [])


def test_a_redirect_of_the_card_or_of_a_message_is_not_followed() -> None:
    with hostile_skill("card_redirects") as (_, adapter), pytest.raises(Unavailable):
        said(adapter)
    with hostile_skill("redirects") as (_, adapter), pytest.raises(LostReply):
        said(adapter)


@pytest.mark.parametrize("mode", ["another_host", "an_interface_first"])
def test_a_draft_calls_the_endpoint_of_the_card_and_no_other(mode: str) -> None:
    with hostile_agent() as agent:
        agent.mode = mode
        try:
            file = asyncio.run(drafted_agent(agent_at(agent.url)))
        except InvalidInput as refused:
            assert (mode, refused.problems[0].code) == ("another_host", "no_interface")
            return
        assert file["connection"]["url"] == f"{agent.url}/a2a"
        assert file["definition"]["egress"] == [agent.url.removeprefix("http://")]


@pytest.mark.parametrize("host", ["169.254.169.254", "0x7f.1", "2130706433", "[::ffff:169.254.169.254]", "0.0.0.0"])
def test_an_agent_at_an_address_that_is_never_allowed_is_refused(host: str) -> None:
    for internal in (False, True):
        url = f"https://{host}/a2a"
        named = A2aConnection(kind="a2a", url=url, card_url=url, internal=internal)
        with pytest.raises(InvalidInput):
            named.check()
        with pytest.raises((InvalidInput, Unavailable)):
            asyncio.run(AgentConnection(named, os.environ, {}).card())


@pytest.mark.parametrize("hidden", HIDDEN, ids=[f"U+{ord(one[0]):04X}" for one in HIDDEN])
def test_text_that_a_reader_does_not_see_is_refused_wherever_it_is(hidden: str) -> None:
    with hostile_agent() as agent:
        drafted = json.dumps(asyncio.run(drafted_agent(agent_at(agent.url))))
    for visible in ("Says a text.", '"say"', "/a2a"):
        assert visible in drafted
        swapped = visible.replace("a", f"a{json.dumps(hidden)[1:-1]}", 1)
        with pytest.raises(InvalidInput) as error:
            read_adapter_file(canonical(json.loads(drafted.replace(visible, swapped, 1))))
        assert all(ord(character) < 128 for character in str(error.value))


def test_memory_and_requests_stay_bounded_under_a_flood() -> None:
    """Ten calls of an agent that answers three mebibytes each: each is one message, and is refused."""
    with hostile_skill("gigabytes", read=True) as (agent, adapter):
        for _ in range(10):
            with suppress(Unavailable):
                said(adapter)
    assert (len(agent.messages), set(agent.asked)) == (10, {"SendMessage"})
