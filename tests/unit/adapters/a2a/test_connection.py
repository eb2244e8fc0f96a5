"""`AgentConnection` asks the reviewed agent, in its tenant, and reads nothing that is not the answer to its request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextos.adapters.a2a.connection import AgentConnection, message_of
from contextos.adapters.a2a.definitions import A2aConnection, SkillOperation
from contextos.adapters.a2a.tasks import AgentRefusal, BadAnswer, UnreadableTask
from contextos.errors import Unavailable
from tests.servers.adapters import agent_at
from tests.servers.hostile_agent import SECRET, HostileAgent, hostile_agent
from tests.unit.adapters.a2a.test_definitions import OPERATION

SAY = SkillOperation.model_validate(OPERATION)


def connection(agent: HostileAgent, environment: dict[str, str] | None = None, **stated: Any) -> AgentConnection:
    named = A2aConnection.model_validate(agent_at(agent.url, **stated))
    return AgentConnection(named, environment or {}, {})


def test_a_card_is_what_the_agent_wrote() -> None:
    with hostile_agent() as agent:
        assert asyncio.run(connection(agent).card()) == agent.card()


def test_the_parts_of_all_artifacts_are_read_and_the_message_of_the_status() -> None:
    with hostile_agent() as agent:
        agent.mode = "many_parts"
        answer = asyncio.run(connection(agent).send(message_of(SAY, {}, "m", None)))
        assert answer.parts == [{"text": "a"}, {}, {"data": {"n": 1}}, {"data": [1]}]
        assert (answer.said, answer.context_id) == ([{"text": "no"}], "ctx_1")
        agent.mode = "message"
        answer = asyncio.run(connection(agent).send(message_of(SAY, {"a": 1}, "m", None)))
        assert (answer.task_id, answer.state, answer.parts) == ("", "completed", [{"data": {"a": 1}}])


def test_a_message_and_every_question_go_to_the_tenant_of_the_interface() -> None:
    with hostile_agent() as agent:
        asked: list[dict[str, Any]] = []
        answer = agent.body
        agent.body = lambda one: asked.append(one["params"]) or answer(one)  # type: ignore[method-assign, func-returns-value]
        linked = connection(agent, tenant="acme")

        async def all_of_them() -> None:
            first = await linked.send(message_of(SAY, {"a": 1}, "m", "c"))
            assert (first.task_id, first.context_id, first.state) == ("task_m", "c", "completed")
            assert (await linked.task(first.task_id)).task_id == "task_m"
            assert (await linked.only_task("c")).context_id == "c"

        asyncio.run(all_of_them())
    assert agent.asked == ["SendMessage", "GetTask", "ListTasks"]
    assert [one["tenant"] for one in asked] == ["acme"] * 3
    assert asked[0]["configuration"]["returnImmediately"] is True
    assert asked[0]["configuration"]["acceptedOutputModes"] == ["text/plain"]
    assert "extendedAgentCard" not in str(agent.asked)


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        ("no_id", BadAnswer),
        ("rpc_error", AgentRefusal),
        ("error_is_a_text", AgentRefusal),
        ("http_401", AgentRefusal),
        ("wrong_id", BadAnswer),
        ("no_version", BadAnswer),
        ("http_500", BadAnswer),
        ("redirects", BadAnswer),
        ("twice_the_same_member", UnreadableTask),
        ("gigabytes", UnreadableTask),
    ],
)
def test_what_is_no_answer_to_the_request_is_refused_without_its_text(mode: str, error: type[Exception]) -> None:
    with hostile_agent() as agent:
        agent.mode = mode
        with pytest.raises(error) as raised:
            asyncio.run(connection(agent).send(message_of(SAY, {}, "m", None)))
    assert SECRET not in str(raised.value) + repr(raised.value)


def test_a_token_is_sent_with_each_request_and_its_variable_has_to_exist() -> None:
    with hostile_agent() as agent:
        linked = connection(agent, {"LAB_TOKEN": "t0ken"}, token_env="LAB_TOKEN")
        asyncio.run(linked.card())
        asyncio.run(linked.send(message_of(SAY, {}, "m", None)))
        assert [one["authorization"] for one in agent.seen] == ["Bearer t0ken"] * 2
        with pytest.raises(Unavailable, match="LAB_TOKEN"):
            connection(agent, token_env="LAB_TOKEN")
    with hostile_agent() as agent:
        asyncio.run(connection(agent, {"LAB_TOKEN": "t0ken"}).card())
        assert "authorization" not in agent.seen[0]


def test_a_token_that_no_header_can_carry_sends_nothing_and_is_not_quoted() -> None:
    with hostile_agent() as agent:
        linked = connection(agent, {"LAB_TOKEN": "t0ken\nx: y"}, token_env="LAB_TOKEN")
        with pytest.raises(Unavailable) as error:
            asyncio.run(linked.card())
    assert (agent.seen, "t0ken" in str(error.value)) == ([], False)


def test_an_agent_that_nobody_stated_to_be_internal_is_not_asked() -> None:
    with hostile_agent() as agent:
        with pytest.raises(Unavailable, match="not public"):
            asyncio.run(connection(agent, internal=False).card())
        assert agent.seen == []
