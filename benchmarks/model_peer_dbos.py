"""The peer of `benchmarks.models`: an agent of Pydantic AI in the durable wrapper of DBOS, whose tool is a step.

Its model is at the provider of the benchmark, by Pydantic AI's own class for Chat Completions. DBOS is tuned as in the
peers' folder: a file in WAL with `synchronous=FULL` and a pool of four connections. Each line of its input is one run;
it answers with a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from typing import Any

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

CALLS = 10


def launched(path: str, port: str) -> Any:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
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
    async def lookup(order_id: str) -> dict[str, Any]:
        """One order by its id."""
        amount = {"total_inr": 9900, "currency": "INR"}
        return {"order_id": order_id, "customer_id": "cus_77", "status": "delivered", **amount}

    provider = OpenAIProvider(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-benchmark")
    model = OpenAIChatModel(f"agent-{CALLS}", provider=provider)
    agent = DBOSAgent(Agent(model, name="bench", instructions="Look the orders up.", tools=[lookup]))
    DBOS.launch()
    return agent


async def run(agent: Any, name: str) -> dict[str, Any]:
    began = time.perf_counter_ns()
    with SetWorkflowID(name):
        result = await agent.run("Look the orders up.")
    took_ms = (time.perf_counter_ns() - began) / 1e6
    returned = [
        part
        for one in result.all_messages()
        if isinstance(one, ModelRequest)
        for part in one.parts
        if isinstance(part, ToolReturnPart)
    ]
    return {"ms": took_ms, "output": result.output, "calls": len(returned)}


async def main() -> None:
    agent = launched(*sys.argv[1:])
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await run(agent, line.strip())), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())
