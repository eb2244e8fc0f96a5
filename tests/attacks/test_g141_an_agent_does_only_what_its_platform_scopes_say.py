"""G141: an agent calls only what its platform scopes allow, at every door: the loop, a session, HTTP, MCP and A2A.

The attacker is an agent with the delegation of a user, the pack and the policy on its side.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.identity import KnownAgent
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.ports.gates import Refused
from contextos.errors import ApprovalRefused, ContextOSError
from contextos.frameworks.offers import function_tools
from tests.sessions import EVAL, LOOKUP, REFUND, in_world, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld, open_world, request, run

PLACE = "`platform_scopes` of the agent `agt_support` in the directory; add it there"


def having(*scopes: str) -> Callable[[dict[str, Any]], None]:
    def change(tenant: dict[str, Any]) -> None:
        for agent in tenant["agents"]:
            agent["platform_scopes"] = list(scopes)

    return change


@pytest.mark.parametrize(
    ("scopes", "lacks"), [((), "tools:read"), (("tools:read",), "tools:write"), (("tools:write",), "tools:read")]
)
def test_a_request_whose_agent_lacks_a_scope_is_refused_with_the_scope_and_its_place(
    tmp_path: Path, scopes: tuple[str, ...], lacks: str
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(having(*scopes))
        view = await world.invoke(request(900, "req_1"))
        assert (view.record or {})["status"] == "REJECTED"
        failures = (view.record or {})["rationale"]["failures"]
        assert {one["code"] for one in failures} == {"platform_scope_missing"}
        assert f"needs the platform scope `{lacks}`, which is not in {PLACE}" in failures[0]["detail"]
        assert world.refunds() == []
        await world.aclose()

    run(go())


def test_an_agent_that_may_only_read_has_no_write_in_its_session_and_none_is_made(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        world.edit_directory(having("tools:read"))
        gate = await refund_session(world, "ses_1", 900)
        assert gate.tools == (LOOKUP, EVAL)
        assert REFUND not in json.dumps([str(one) for one in function_tools(gate)])
        await read_first(gate, 900)
        answer = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(answer, Refused)
        (reason,) = answer.reasons
        assert (reason.code, PLACE in reason.detail) == ("platform_scope_missing", True)
        assert reason.remedy.startswith("an operator adds it to the agent in the directory")
        assert world.refunds() == []

    in_world(tmp_path, play)


def test_a_scope_that_is_taken_away_stops_what_was_approved(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        asked = await world.invoke(request(4200, "req_1"))
        world.edit_directory(having("tools:read"))
        with pytest.raises(ApprovalRefused, match="the requester or the agent changed"):
            await world.approve(asked.run_id)
        assert world.refunds() == []
        await world.aclose()

    run(go())


def test_an_agent_that_states_none_reads_and_writes_and_calls_no_agent(tmp_path: Path) -> None:
    fields = json.loads((Path(__file__).parents[2] / "examples/support_refund/directory.json").read_text())
    agent = fields[TENANT]["agents"][0]
    assert KnownAgent.model_validate({**agent, "platform_scopes": []}).platform == frozenset()
    stated = KnownAgent.model_validate({name: value for name, value in agent.items() if name != "platform_scopes"})
    assert stated.platform == {"tools:read", "tools:write"}
    assert "platform_scopes" not in stated.to_json()


class BehindAnAgent:
    """An adapter whose definition says that it is an agent over A2A; what reaches it is counted."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, 0

    def describe(self) -> AdapterDefinition:
        return AdapterDefinition.model_validate({**self.inner.describe().to_json(), "type": "a2a"})

    async def call(self, *args: Any) -> Any:
        self.calls += 1
        return await self.inner.call(*args)

    async def lookup(self, *args: Any) -> Any:
        return await self.inner.lookup(*args)


@pytest.mark.parametrize("adapter_id", ["adp_orders", "adp_payments"])
def test_a_tool_behind_an_agent_needs_a_scope_of_its_own(tmp_path: Path, adapter_id: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.adapters[adapter_id] = behind = BehindAnAgent(world.adapters[adapter_id])
        world.edit_directory(having("tools:read", "tools:write"))
        view = await world.invoke(request(900, "req_1"))
        failure = (view.record or {})["rationale"]["failures"][0]
        assert failure["code"] == "platform_scope_missing"
        assert "needs the platform scope `a2a:send`" in failure["detail"]
        assert (behind.calls, world.refunds()) == (0, [])
        await world.aclose()

    run(go())


def test_a_scope_that_nobody_knows_is_refused_where_it_is_written(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(having("tools:admin"))
        with pytest.raises(ContextOSError, match="platform_scopes"):
            await world.invoke(request(900, "req_1"))
        assert world.refunds() == []
        await world.aclose()

    run(go())
