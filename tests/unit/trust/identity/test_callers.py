"""What a caller can state. The attacks are in `tests/attacks/test_e33_bearer_tokens.py` and `test_e34_workloads.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextos.errors import InvalidInput
from contextos.trust.identity.callers import Acting, Caller, identified_request, stated_identity

PERSON = Caller("user", "tenant_acme", "ana", "https://login", None, ("lead",), (), 0, "sha256:0")
WORKLOAD = replace(PERSON, kind="workload", subject="spiffe://acme/a", agent_ids=("a", "b"), roles=())


def test_a_person_acts_for_themselves_and_names_the_agent() -> None:
    assert (PERSON.user_named(None), PERSON.user_named("ana"), PERSON.agent_named("a")) == ("ana", "ana", "a")
    for named in (lambda: PERSON.user_named("bob"), lambda: PERSON.agent_named(None)):
        with pytest.raises(InvalidInput):
            named()


def test_a_workload_acts_as_its_own_agents_for_the_user_that_it_names() -> None:
    assert (WORKLOAD.user_named("bob"), WORKLOAD.agent_named("b")) == ("bob", "b")
    assert replace(WORKLOAD, agent_ids=("a",)).agent_named(None) == "a"
    for named in (
        lambda: WORKLOAD.user_named(None),
        lambda: WORKLOAD.agent_named("c"),
        lambda: WORKLOAD.agent_named(None),
    ):
        with pytest.raises(InvalidInput):
            named()


def test_what_a_body_states_is_read() -> None:
    stated: Any = {"user": {"user_id": "ana", "delegation": {"token_ref": "tok"}}, "agent": {"agent_id": "a"}}
    assert stated_identity(stated) == ("ana", "a", True, "tok")
    assert stated_identity({}) == (None, None, False, None)
    assert stated_identity({"user": {"delegation": {}}}) == (None, None, True, None)


def test_a_body_keeps_what_says_nothing_of_identity() -> None:
    body: Any = {"input": {"intent": "x"}, "user": {"tenure_days": 3, "delegation": {"scopes": ["s"]}}, "agent": {}}
    made = identified_request(body, WORKLOAD, Acting("bob", "a", "tok", "spiffe://acme/a"))
    assert made == {
        "input": {"intent": "x"},
        "tenant_id": "tenant_acme",
        "user": {"tenure_days": 3, "user_id": "bob", "delegation": {"scopes": ["s"], "token_ref": "tok"}},
        "agent": {"agent_id": "a", "workload_identity": "spiffe://acme/a"},
    }
    assert body["agent"] == {}, "the caller's own body is not changed"
