"""What each state of a task means for the call that began it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from contextos.action.secret_redactor import SecretRedactor
from contextos.adapters.a2a.definitions import SkillOperation
from contextos.adapters.a2a.tasks import AgentAnswer, AgentRefusal, BadAnswer, reply_of
from contextos.contracts.envelopes.tool import AdapterReply, CapabilityDefinition
from contextos.errors import LostReply
from tests.unit.adapters.a2a.test_definitions import OPERATION
from tests.unit.adapters.foreign.test_adapter_file import CAPABILITY

WRITE = CapabilityDefinition.model_validate(CAPABILITY)
READ = CapabilityDefinition.model_validate(
    CAPABILITY | {"kind": "read", "risk_level": "read", "approval_mode": "read_only"}
)
TEXT = SkillOperation.model_validate(OPERATION)
STRUCTURED = TEXT.model_copy(update={"output": "structured"})
TOKEN = "sk_live_4711471147"


def reply(state: str, parts: list[dict[str, Any]], *, read: bool = False, operation: Any = TEXT) -> AdapterReply:
    answer = AgentAnswer("t", "c", state, parts, parts)
    return reply_of(answer, operation, READ if read else WRITE, SecretRedactor([TOKEN]).redact)


@pytest.mark.parametrize("read", [True, False])
def test_what_ended_is_done_or_the_error_that_the_agent_states(read: bool) -> None:
    parts = [{"text": "a"}, {"text": "b"}, {"url": "x"}]
    assert reply("completed", parts, read=read).output == {"texts": ["a", "b"], "omitted": 1}
    for state in ("failed", "rejected"):
        error = reply(state, parts, read=read).error
        assert error is not None
        assert (error.code, error.message) == (f"task_{state}", "a\nb")


@pytest.mark.parametrize("state", ["canceled", "input_required", "auth_required"])
def test_what_stopped_is_an_error_of_a_read_and_unknown_of_a_write(state: str) -> None:
    error = reply(state, [], read=True).error
    assert error is not None
    assert error.code == state
    with pytest.raises(LostReply):
        reply(state, [])


@pytest.mark.parametrize("state", ["", "unspecified", "working", "submitted", "paid"])
def test_any_other_state_is_no_answer(state: str) -> None:
    for read in (True, False):
        with pytest.raises(BadAnswer):
            reply(state, [], read=read)


@pytest.mark.parametrize(
    ("parts", "output"),
    [
        ([{"data": {"a": 1}}], {"a": 1}),
        ([{"text": "x"}, {"data": {"a": 1}}], {"a": 1}),
        ([{"data": {"a": 1}}, {"data": {"a": 2}}], None),
        ([{"data": [1]}], None),
        ([{"data": None}], None),
        ([], None),
    ],
    ids=str,
)
def test_a_structured_output_is_the_one_object_of_the_answer(parts: list[dict[str, Any]], output: Any) -> None:
    assert reply("completed", parts, operation=STRUCTURED).output == output


def test_no_secret_of_the_connection_comes_back() -> None:
    for parts in ([{"text": f"a {TOKEN}"}], [{"data": {TOKEN: [TOKEN]}}]):
        for operation in (TEXT, STRUCTURED):
            for state in ("completed", "failed"):
                assert TOKEN not in str(reply(state, parts, operation=operation))


def test_the_text_of_a_refusal_is_in_none_of_its_representations() -> None:
    refusal = AgentRefusal(-32603, TOKEN)
    assert (TOKEN in str(refusal) + repr(refusal), refusal.said) == (False, TOKEN)


def test_the_artifacts_of_a_task_are_those_of_the_reply_without_the_secrets_of_the_connection() -> None:
    parts = [{"text": "a"}]
    raw = base64.b64encode(f"key {TOKEN}".encode()).decode()
    made = [
        {"name": "a.txt", "media_type": "", "content": f"key {TOKEN}", "raw": False},
        {"name": TOKEN, "media_type": "application/json", "content": {"a": 1}, "raw": False},
        {"name": "b", "media_type": "application/octet-stream", "content": raw, "raw": True},
    ]
    answer = AgentAnswer("t", "c", "completed", parts, artifacts=made)
    found = reply_of(answer, TEXT, READ, SecretRedactor([TOKEN]).redact).artifacts
    assert [one.media_type for one in found] == ["text/plain", "application/json", "application/octet-stream"]
    assert (found[0].name, found[1].content) == ("a.txt", {"a": 1})
    assert TOKEN not in str(found)
    assert raw not in str(found)


def test_beside_an_answer_without_an_output_there_are_no_artifacts() -> None:
    made = [{"name": "a", "media_type": "", "content": "a", "raw": False}]
    answer = AgentAnswer("t", "c", "completed", [{"text": "a"}], artifacts=made)
    assert reply_of(answer, STRUCTURED, READ, SecretRedactor([TOKEN]).redact).artifacts == ()
