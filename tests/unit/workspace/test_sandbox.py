"""A run in a sandbox is a run: the same compiler, policy and gateway, with tools, people and facts that are stated."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from contextos.contracts.envelopes.pack import ContextPack
from contextos.errors import InvalidInput
from contextos.packs.checking import read_unsigned
from contextos.server.console.scenarios import example_scenario, sandbox_request
from contextos.server.control.sandboxes import LEFT_OUT
from contextos.workspace.sandbox import PolicyAbove, Sandbox, SandboxRun, StatedFacts, StatedWorld, run_in_sandbox
from tests.world import example

AT_US = 1_790_000_000_000_000


def run(name: str, *, document: str = "", **world: Any) -> SandboxRun:
    """What becomes of an example, with other parts of its world."""
    stated = sandbox_request(example_scenario(name, "tenant_x"))
    tools = stated.adapters or ()
    pack, _ = read_unsigned((document or stated.document).encode(), lambda: tools)
    assert isinstance(pack, ContextPack)
    parts = {field: getattr(stated, field) for field in StatedWorld.model_fields}
    request = {**LEFT_OUT, **stated.request, "context_pack_refs": [pack.pin]}
    return asyncio.run(run_in_sandbox(pack, tools, Sandbox(**{**parts, "at_us": AT_US, **world}), request))


def test_a_policy_in_force_counts() -> None:
    rule = {"rule_id": "R_NO", "if": {"==": [{"var": "user.role"}, "support_agent"]}, "then": {"allow": False}}
    bundle = {"bundle_id": "POLICY_NO", "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
    above = PolicyAbove(level="tenant", document={"tenant": "tenant_x", "version": "1.0.0", "bundle": bundle})
    assert run("refund").state == "waiting"
    assert run("refund", policies=(above,)).state == "refused"


def test_an_agent_that_chooses_makes_the_stated_calls() -> None:
    asked = run("deploy")
    assert (asked.state, asked.waits_for) == ("waiting", "approval")
    done = run("deploy", answer="approved")
    assert (done.waits_for, done.made_up) == ("agent", ["deploy.rollback"])
    with pytest.raises(InvalidInput) as refused:
        run("refund", answer="approved", calls=({"tool": "adp_orders.lookup", "args": {}},))
    assert refused.value.problems[0].pointer.startswith("/calls/0")


def test_without_people_nobody_is_known() -> None:
    nobody = run("refund", principals=None)
    assert (nobody.compiled, nobody.run_context) == (None, None)
    assert nobody.record is not None


def test_the_whole_pack_of_the_example_asks_too() -> None:
    pack = ContextPack.model_validate(example("pack.json"))
    stated = sandbox_request(example_scenario("refund", "tenant_acme_prod"))
    parts = {field: getattr(stated, field) for field in StatedWorld.model_fields}
    request = {**LEFT_OUT, **stated.request, "context_pack_refs": [pack.pin]}
    found = asyncio.run(run_in_sandbox(pack, stated.adapters or (), Sandbox(**parts, at_us=AT_US), request))
    assert found.waits_for == "approval"
    assert found.compiled is not None
    assert found.compiled.runtime_controls.approval_gates_active == ("GATE_FINANCE_APPROVAL",)


def test_a_memory_is_recalled_as_data_and_proves_nothing() -> None:
    memory = {"subject": "order:ord_881", "predicate": "identity_verified", "value": True}
    facts = StatedFacts(edges=[one for one in graph_of("refund") if one["predicate"] == "placed_by"])
    whole = json.dumps({**(pack := example("pack.json")), "pack_meta": {**pack["pack_meta"], "tenant": "tenant_x"}})
    forgot, remembered = (run("refund", document=whole, facts=facts, memories=of) for of in ((), (memory,)))
    assert (forgot.state, remembered.state) == ("escalated", "escalated"), "required evidence is missing"
    assert remembered.compiled is not None
    [block] = [one for one in remembered.compiled.compiled_prompt.context_blocks if one.bucket == "memory"]
    assert "identity_verified" in block.content
    assert block.provenance is not None
    assert block.provenance.instruction_treatment == "data_only"
    with pytest.raises(InvalidInput) as refused:
        run("refund", memories=(memory, memory))
    assert refused.value.problems[0].pointer == "/memories/1"


def graph_of(name: str) -> list[dict[str, Any]]:
    stated = sandbox_request(example_scenario(name, "tenant_x"))
    return [*stated.facts.edges]
