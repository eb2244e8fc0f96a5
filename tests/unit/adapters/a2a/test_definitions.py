"""What the adapter file of an A2A agent can say, and the digest of a skill."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.a2a.definitions import (
    CARD_MEMBERS,
    SKILL_MEMBERS,
    A2aConnection,
    SkillOperation,
    is_pinned,
    skill_digest,
)
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput
from tests.servers.adapters import agent_adapter
from tests.unit.adapters.foreign.test_adapter_file import CAPABILITY, file

SKILL: dict[str, Any] = {"id": "say", "name": "Say", "description": "Says.", "tags": ["text"]}
CARD: dict[str, Any] = {"name": "Lab", "supportedInterfaces": [{"url": "https://x.example"}], "skills": [SKILL]}
AGENT = {"kind": "a2a", "url": "https://x.example/a2a", "card_url": "https://x.example/card.json"}
REACHES = {"type": "a2a", "external": True, "egress": ["x.example:443"]}
OPERATION = {"skill": "say", "digest": "sha256:" + "0" * 64, "input": "data", "output": "text"}


@pytest.mark.parametrize("member", CARD_MEMBERS)
def test_every_pinned_member_of_a_card_changes_the_digest(member: str) -> None:
    assert skill_digest(CARD, SKILL) != skill_digest({**CARD, member: "other"}, SKILL)


@pytest.mark.parametrize("member", SKILL_MEMBERS)
def test_every_pinned_member_of_a_skill_changes_the_digest(member: str) -> None:
    assert skill_digest(CARD, SKILL) != skill_digest(CARD, {**SKILL, member: "other"})


def test_the_order_of_members_and_what_no_model_is_shown_do_not_change_the_digest() -> None:
    turned = {name: CARD[name] for name in reversed(CARD)} | {"version": "2", "iconUrl": "x", "signatures": []}
    assert skill_digest(turned, SKILL | {"examples": ["a"]}) == skill_digest(CARD, SKILL)


def test_a_member_of_the_card_is_not_one_of_the_skill() -> None:
    assert skill_digest({"name": "a"}, {"id": "b"}) != skill_digest({}, {"id": "b", "name": "a"})


def test_a_skill_is_pinned_if_it_is_there_once_and_the_same() -> None:
    operation = SkillOperation.model_validate(OPERATION | {"digest": skill_digest(CARD, SKILL)})
    assert is_pinned(operation, CARD)
    for skills in ([], [SKILL, SKILL], [SKILL | {"name": "b"}], [{"name": "Say"}]):
        assert not is_pinned(operation, {**CARD, "skills": skills})


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "http://x.example/a2a", "card_url": "http://x.example/card.json"},
        {"url": "https://10.0.0.1/", "card_url": "https://10.0.0.1/card.json"},
        {"card_url": "https://other.example/card.json"},
        {"card_url": "https://x.example:8443/card.json"},
        {"card_url": "http://x.example:443/card.json"},
        {"url": "https://user:word@x.example/"},
        {"url": "file:///x"},
    ],
    ids=str,
)
def test_a_connection_that_is_none_is_refused(changed: dict[str, Any]) -> None:
    A2aConnection.model_validate(AGENT).check()
    with pytest.raises(InvalidInput) as error:
        A2aConnection.model_validate(AGENT | changed).check()
    assert error.value.problems[0].code in ("bad_connection", "bad_url")


def test_an_internal_agent_is_one_that_a_person_stated() -> None:
    inside = AGENT | {"url": "http://127.0.0.1:80/", "card_url": "http://127.0.0.1:80/card.json"}
    named = A2aConnection.model_validate(inside | {"internal": True})
    named.check()
    assert (named.is_remote, A2aConnection.model_validate(AGENT).is_remote) == (False, True)
    with pytest.raises(InvalidInput):
        A2aConnection.model_validate(inside).check()


def test_the_secret_of_a_connection_is_its_token() -> None:
    named = A2aConnection.model_validate(AGENT | {"token_env": "LAB_TOKEN"})
    assert named.secrets({"LAB_TOKEN": "a", "OTHER_TOKEN": "b"}) == ["a"]
    assert named.secrets({}) == A2aConnection.model_validate(AGENT).secrets({"LAB_TOKEN": "a"}) == []


KEYED = {"idempotency": {"strategy": "keyed"}}
LOOKUP = {"idempotency": {"strategy": "lookup"}}
READ = {"kind": "read", "risk_level": "read", "approval_mode": "read_only"}
TEXT = {"type": "object", "additionalProperties": False, "properties": {"text": {"type": "string"}}}
NUMBER = TEXT | {"required": ["text"], "properties": {"text": {"type": "integer"}}}

CLOSED = {"type": "object", "additionalProperties": False, "properties": {"paid": {"type": "integer"}}}
MISFITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an end of its time": ({"idempotency": {"strategy": "lookup", "honours_not_after": True}}, {}),
    "a key that nobody stated": (KEYED, {}),
    "a statement without a key": ({}, {"stated_idempotent": True}),
    "a lookup that is stated to be keyed": (LOOKUP, {"stated_idempotent": True}),
    "a key of a read": ({**READ, **KEYED}, {"stated_idempotent": True, "stated_read": True}),
    "a lookup of a read": ({**READ, **LOOKUP}, {"stated_read": True}),
    "a read that nobody stated": (READ, {}),
    "a write that was stated to read": ({}, {"stated_read": True}),
    "texts that its schema does not list": ({"output_schema": CLOSED}, {}),
    "a text without an argument": ({}, {"input": "text"}),
    "a text that can be absent": ({"input_schema": TEXT}, {"input": "text"}),
    "a text that is a number": ({"input_schema": NUMBER}, {"input": "text"}),
}


def agent_file(capability: dict[str, Any], operation: dict[str, Any], **changed: Any) -> dict[str, Any]:
    definition = REACHES | {"capabilities": [CAPABILITY | capability]} | changed.pop("definition", {})
    return file(connection=AGENT, definition=definition, operations={"say": OPERATION | operation})


@pytest.mark.parametrize("name", MISFITS)
def test_what_a_capability_declares_and_its_operation_does_not_do_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        agent_adapter(agent_file(*MISFITS[name]))
    assert error.value.problems[0].code == "misfit"


@pytest.mark.parametrize(
    ("capability", "operation"),
    [
        ({}, {}),
        (LOOKUP, {}),
        (KEYED, {"stated_idempotent": True}),
        (READ, {"stated_read": True}),
        ({"input_schema": TEXT | {"required": ["text"]}}, {"input": "text"}),
    ],
    ids=str,
)
def test_what_fits_is_made(capability: dict[str, Any], operation: dict[str, Any]) -> None:
    described = agent_adapter(agent_file(capability, operation)).describe()
    assert canonical(described.to_json())


def test_a_remote_agent_is_in_its_own_egress_list() -> None:
    with pytest.raises(InvalidInput, match=r"x\.example:443"):
        agent_adapter(agent_file({}, {}, definition={"egress": ["other.example:443"]}))
