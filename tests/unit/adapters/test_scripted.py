"""`ScriptedAdapter` answers what it was given, in order, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from contextos.adapters.scripted import ScriptedAdapter
from contextos.contracts.envelopes.tool import AdapterReply, CallContext
from contextos.errors import LostReply
from tests.unit.adapters.function.test_adapter import definition

CONTEXT = CallContext("tenant_a", "run_1", "tool_1", None, 0, 100)


def test_answers_come_in_order_and_calls_are_kept() -> None:
    reply = AdapterReply(output={"n": 2}, cost_cents=1)
    made = ScriptedAdapter(definition(), {"look": [{"n": 1}, reply, LostReply("gone")]})
    assert asyncio.run(made.call("look", {"a": 1}, CONTEXT)).output == {"n": 1}
    assert asyncio.run(made.call("look", {"a": 2}, CONTEXT)) is reply
    with pytest.raises(LostReply, match="gone"):
        asyncio.run(made.call("look", {"a": 3}, CONTEXT))
    assert [(one.capability, one.args["a"]) for one in made.calls] == [("look", 1), ("look", 2), ("look", 3)]


def test_lookups_have_a_script_of_their_own_and_may_know_nothing() -> None:
    made = ScriptedAdapter(definition(), {}, {"act": [None, {"n": 1}]})
    assert asyncio.run(made.lookup("act", "ik_1", CONTEXT)) is None
    assert asyncio.run(made.lookup("act", "ik_2", CONTEXT)) == AdapterReply(output={"n": 1})
    assert [one.lookup for one in made.calls] == ["ik_1", "ik_2"]


def test_a_script_that_is_over_fails_the_test() -> None:
    made = ScriptedAdapter(definition(), {"look": [], "act": [None]})
    with pytest.raises(AssertionError, match="is over"):
        asyncio.run(made.call("look", {}, CONTEXT))
    with pytest.raises(AssertionError, match="no answer for a call"):
        asyncio.run(made.call("act", {}, CONTEXT))


def test_the_description_is_the_given_one() -> None:
    given = definition()
    assert ScriptedAdapter(given, {}).describe() is given
