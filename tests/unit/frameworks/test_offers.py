"""What a model is shown of a session's tools, and the texts of the answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from contextos import read, toolset
from contextos.contracts.envelopes.tool import ToolError
from contextos.contracts.ports.gates import Done, Reason, Refused
from contextos.deployment.gate.gate import Gate
from contextos.errors import ConflictingRequest, InvalidArtifact, InvalidInput, Problem
from contextos.frameworks.offers import answer_text, ask, offered_tools, offers_of


@read(integrity="trusted")
def look(order: str) -> bool:
    """Look an order up."""
    return True


def gate_of(*tools: str, adapters: Any = None) -> Any:
    """A gate with these tools, over a toolset `shop`."""
    known = {"shop": toolset("shop", [look])} if adapters is None else adapters
    ports = SimpleNamespace(adapters=lambda tenant_id: known)
    deployment: Any = SimpleNamespace(ports=ports)
    return Gate(deployment, "tenant_a", "run_1", "session_1", tools)


def test_a_tool_is_shown_under_a_name_without_a_dot() -> None:
    (offered,) = offered_tools(gate_of("shop.look")).values()
    assert (offered.name, offered.tool_id) == ("shop__look", "shop.look")
    assert offered.description == "Look an order up."
    assert offered.input_schema["required"] == ["order"]


def test_a_tool_whose_adapter_is_gone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no adapter of this process"):
        offered_tools(gate_of("shop.look", adapters={}))


def test_a_name_that_is_too_long_for_a_model_is_cut_and_costs_the_others_nothing() -> None:
    names = ["s" * 70, "s" * 71]
    adapters = {name: toolset("shop", [look]) for name in (*names, "shop")}
    offered = offered_tools(gate_of(*(f"{name}.look" for name in (*names, "shop")), adapters=adapters))
    assert [one.tool_id for one in offered.values()] == [*(f"{name}.look" for name in names), "shop.look"]
    assert all(len(name) == 64 for name in [*offered][:2])
    assert [*offered][2] == "shop__look"


def test_two_tools_whose_shown_names_are_one_are_both_offered() -> None:
    adapters = {name: toolset("shop", [look]) for name in ("shop__look", "shop")}
    known = gate_of("shop.look", adapters=adapters).described_tools()["shop.look"]
    offered = offers_of(["a.b__c", "a__b.c"], {"a.b__c": known, "a__b.c": known})
    assert [one.tool_id for one in offered.values()] == ["a.b__c", "a__b.c"]


def test_an_answer_is_text_for_the_model() -> None:
    assert answer_text(Done("c", {"result": True})) == '{"result":true}'
    failed = Done("c", None, ToolError(code="closed", message="the shop is closed", retryable=False))
    assert answer_text(failed) == "the tool failed: closed: the shop is closed; do not repeat the same call"
    assert answer_text(Refused("c", (Reason("x", "not today", "come back"),))) == "refused: not today; come back"


def test_the_answer_of_an_earlier_call_says_so() -> None:
    assert answer_text(Done("c", {"result": True}, replayed=True)) == (
        'the recorded answer of an earlier call: {"result":true}'
    )


def gate_that(call: Any) -> Any:
    return SimpleNamespace(call=call)


@pytest.mark.parametrize(
    "written", ['{"order": "a"}', "", {"order": "a"}, [], "7", None, '{"order"', '{"a": 1, "a": 2}', '{"a": NaN}']
)
def test_a_call_reaches_the_gate_as_the_model_made_it(written: Any) -> None:
    async def call(name: str, args: Any, *, call_id: str) -> Any:
        return name, args, call_id

    offered = offered_tools(gate_of("shop.look"))
    assert asyncio.run(ask(gate_that(call), offered, "shop__look", written, "c")) == ("shop.look", written, "c")
    assert asyncio.run(ask(gate_that(call), offered, "other", written, "c")) == ("other", written, "c")  # type: ignore[comparison-overlap]


def test_what_the_gate_does_not_take_as_a_call_is_refused_with_what_to_do() -> None:
    async def call(name: str, args: Any, *, call_id: str) -> Any:
        raise ConflictingRequest(Problem("/call_id", "conflicting_call", "it was used", "use a new call id"))

    refused = asyncio.run(ask(gate_that(call), {}, "shop.look", {}, "c"))
    assert refused == Refused("c", (Reason("conflicting_call", "it was used", "use a new call id"),))


def test_what_is_wrong_with_more_than_the_call_is_no_refusal_for_the_model() -> None:
    async def call(name: str, args: Any, *, call_id: str) -> Any:
        raise InvalidArtifact(Problem("/decision_layer", "broken", "the pack is broken", "publish another one"))

    with pytest.raises(InvalidArtifact):
        asyncio.run(ask(gate_that(call), {}, "shop.look", {}, "c"))
