"""A read through the gate of a warm session beside the same read in a plan, and an agent of ten calls, governed, beside
the same agent in the durable wrapper of DBOS: `python -m benchmarks.sessions`.

The read costs nothing. What a read costs in a plan is the difference between a run with eleven of them, one after the
other, and a run with one, divided by ten. The agents have the same scripted model. The second comparison needs
`pydantic-ai-slim` and `dbos` in the interpreter that runs this.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, note, ratio, report_bar, skip
from benchmarks.deployed import new_folder
from contextos.adapters.function.adapter import FunctionAdapter
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import UserClaims
from contextos.contracts.envelopes.run import RuntimeHints
from contextos.contracts.ports.gates import Done
from contextos.contracts.ports.planning import PlanRequest
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.deployment import Deployment
from contextos.deployment.gate.gate import Gate
from contextos.deployment.gate.opening import open_session
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.stores import SqliteStores
from contextos.trust.seal import seal
from contextos.workspace.engine.lease_owner import Owner

LOOKUP = "adp_orders.lookup"
CALLS = 10
BAR, BESIDE_DBOS = 1.2, 1.0
AGENT_LABEL = f"Pydantic AI agent of {CALLS} calls: DBOS's wrapper / governed"


class ReadPlanner:
    """Proposes a plan of `reads` lookups, each after the one before it."""

    name = "bench.reads@1"

    def __init__(self, reads: int) -> None:
        self.reads = reads

    async def propose(self, request: PlanRequest) -> Mapping[str, Any]:
        step = {"tool": LOOKUP, "approval_mode": "read_only"}
        steps = [
            {
                **step,
                "id": f"read{number}",
                "params": {"order_id": f"ord_{number}"},
                "depends_on": [f"read{number - 1}"] if number else [],
            }
            for number in range(self.reads)
        ]
        return {"template_id": request.templates[0], "steps": steps}


def order(order_id: str) -> dict[str, Any]:
    """Return an order, at no cost."""
    return {"order_id": order_id, "customer_id": "cus_77", "total_inr": 9900, "currency": "INR", "status": "delivered"}


async def lookup(args: Mapping[str, Any], _context: Any) -> dict[str, Any]:
    return order(args["order_id"])


def body_of_pack(*, of_agent: bool) -> dict[str, Any]:
    """Return the example's pack with room for the calls; its agent chooses them if `of_agent`."""
    body = refund_pack.pack(0)
    body["pack_meta"]["run_budget"] |= {"max_tool_calls": 50}
    template = body["decision_layer"]["task_templates"][0]
    if of_agent:
        template["chosen_by"] = "agent"
        for step in template["steps"]:
            step.pop("depends_on", None)
            step.pop("params")
        template["decision_checkpoints"] = [{"decision_id": "support.refund.execute"}]
    return body


async def opened(path: Path, *, of_agent: bool) -> Deployment:
    """Return a deployment over SQLite in the folder `path`."""
    stores = SqliteStores(path / "contextos.db", clock=SystemClock())
    deployment = refund_pack.deploy(path, outside.Stubs(), stores, Owner(None))
    envelope = seal(PACK_TYPE, canonical(body_of_pack(of_agent=of_agent)), deployment.ports.keys, "pack")
    await refund_pack.put_in_force(deployment, refund_pack.TENANT, envelope)
    adapters = dict(deployment.ports.adapters(refund_pack.TENANT))
    adapters["adp_orders"] = FunctionAdapter(adapters["adp_orders"].describe(), {"lookup": lookup})
    deployment.ports = replace(deployment.ports, adapters=lambda _tenant: adapters)
    return deployment


def request(number: int) -> dict[str, Any]:
    body = outside.request(number, 900)
    body["runtime"] |= {"max_tool_calls": 50}
    return body


async def planned_ms(deployment: Deployment, number: int, reads: int) -> float:
    """Return the milliseconds of a run with this many reads."""
    deployment.ports = replace(deployment.ports, planner=ReadPlanner(reads))
    began = time.perf_counter_ns()
    view = await deployment.invoke(request(number))
    took_ms = (time.perf_counter_ns() - began) / 1e6
    assert view.record["budget_usage"]["tool_calls"] == reads, view
    return took_ms


async def session(deployment: Deployment, number: int) -> Gate:
    body = request(number)
    return await open_session(
        deployment,
        refund_pack.TENANT,
        f"ses_bench{number:06d}",
        user=UserClaims.model_validate(body["user"]),
        agent=body["agent"]["agent_id"],
        context=body["input"]["context"],
        hints=RuntimeHints.model_validate(body["runtime"]),
    )


async def read(gate: Gate, number: int) -> None:
    """Make the session's read of this number."""
    answer = await gate.call(LOOKUP, {"order_id": f"ord_{number}"}, call_id=f"c{number}")
    assert isinstance(answer, Done), answer
    assert answer.error is None, answer


async def gated_ms(gate: Gate) -> float:
    """Return the milliseconds of a read in a session that made one before, the mean of `CALLS`."""
    for number in range(CALLS + 1):
        if number == 1:
            began = time.perf_counter_ns()
        await read(gate, number)
    return (time.perf_counter_ns() - began) / 1e6 / CALLS


async def measure_calls(path: Path, rounds: int) -> None:
    plans, sessions = (
        await opened(new_folder(path, "plans"), of_agent=False),
        await opened(new_folder(path, "sessions"), of_agent=True),
    )
    whole, more, gated = [], [], []
    for number in range(rounds):
        one = await planned_ms(plans, 2 * number, 1)
        many = await planned_ms(plans, 2 * number + 1, CALLS + 1)
        whole.append(one)
        more.append((many - one) / CALLS)
        gated.append(await gated_ms(await session(sessions, number)))
    # The difference of two runs is noisy, so the medians are compared and not the rounds.
    middle = median(gated) / median(more)
    report_bar("gate.call of a read, warm session / one more read in a plan", middle, BAR, "x")
    note("gate.call of a read, warm session / a run with that one read", f"{ratio(gated, whole)[0]:9.2f}x")
    text = f"{median(gated):9.2f} ms, {median(more):.2f} ms, {median(whole):.2f} ms"
    note("gate.call, one more read, a run with one read, p50", text)
    outside.close(plans)
    outside.close(sessions)


def scripted(tool: str) -> Any:
    """Return a model that makes the calls one after the other."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def say(messages: list[Any], _info: Any) -> ModelResponse:
        said = sum(isinstance(one, ModelResponse) for one in messages)
        if said == CALLS:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart(tool, {"order_id": f"ord_{said}"}, tool_call_id=f"call_{said}")])

    return FunctionModel(say)


async def governed_ms(deployment: Deployment, number: int) -> float:
    """Return the milliseconds of a governed agent: open the session, make the calls, finish."""
    from pydantic_ai import Agent, DeferredToolRequests

    from contextos.frameworks.pydantic_ai import GateToolset

    began = time.perf_counter_ns()
    gate = await session(deployment, number)
    toolset: GateToolset[None] = GateToolset(gate)
    tool = next(name for name, one in toolset._offered.items() if one.tool_id == LOOKUP)
    agent = Agent(scripted(tool), toolsets=[toolset], output_type=[str, DeferredToolRequests])
    result = await agent.run("look the orders up")
    view = await gate.finish("escalated")
    took_ms = (time.perf_counter_ns() - began) / 1e6
    assert (result.output, view.record["budget_usage"]["tool_calls"]) == ("done", CALLS)
    return took_ms


def launched(path: Path) -> Any:
    """Return the agent in DBOS's wrapper, whose tool is a step. It is tuned as the peers are, but has the serializer of
    DBOS itself: the portable one takes no messages of an agent.
    """
    from dbos import DBOS
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.dbos import DBOSAgent

    outside.connect(path).close()
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
            "sys_db_pool_size": 4,
            "application_version": "1",
            "log_level": "ERROR",
        }
    )

    @DBOS.step()
    async def lookup_order(order_id: str) -> dict[str, Any]:
        return order(order_id)

    agent = DBOSAgent(Agent(scripted("lookup_order"), name="bench", tools=[lookup_order]))
    DBOS.launch()
    return agent


async def wrapped_ms(agent: Any, number: int) -> float:
    from dbos import SetWorkflowID

    began = time.perf_counter_ns()
    with SetWorkflowID(f"bench_{number}"):
        result = await agent.run("look the orders up")
    took_ms = (time.perf_counter_ns() - began) / 1e6
    assert result.output == "done"
    return took_ms


async def measure_agents(path: Path, rounds: int) -> None:
    missing = [name for name in ("pydantic_ai", "dbos") if importlib.util.find_spec(name) is None]
    if missing:
        skip(AGENT_LABEL, f"`{missing[0]}` is not installed")
        return
    from dbos import DBOS

    deployment, agent = await opened(new_folder(path, "agents"), of_agent=True), launched(path / "dbos.db")
    governed, wrapped = [], []
    for number in range(rounds):
        governed.append(await governed_ms(deployment, number))
        wrapped.append(await wrapped_ms(agent, number))
    middle, best = ratio(wrapped, governed)
    report_bar(AGENT_LABEL, middle, BESIDE_DBOS, "x", best=best, at_least=True, against=governed)
    note("governed, DBOS's wrapper, p50", f"{median(governed):9.2f} ms, {median(wrapped):.2f} ms")
    outside.close(deployment)
    DBOS.destroy()


def main() -> None:
    rounds = 5 if is_quick() else 30
    for measure in (measure_calls, measure_agents):
        with folder() as name:
            asyncio.run(measure(Path(name), rounds))


if __name__ == "__main__":
    main()
