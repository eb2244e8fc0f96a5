"""The tools of the refund example as the skills of an A2A agent made with the SDK.

`shop_agent.py FOLDER` prints the port on which it serves; `shop_agent.py FOLDER SECONDS` works so long on a refund that
it has already paid.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from a2a.helpers import get_data_parts, new_data_part, new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "support_refund" / "shop.py"
JSON = ["application/json"]
SKILLS = {
    "lookup": "One order by its id.",
    "eval": "Whether this refund is allowed.",
    "issue_refund": "Pay money back.",
}


class ShopAgent(AgentExecutor):
    """Does what the metadata of a message name as its skill. A message pays once, by its id."""

    def __init__(self, shop: Any, folder: Path, work_s: float) -> None:
        self._work_s = work_s
        books = shop.Shop(folder / "shop.db")
        self._error: type[Exception] = shop.BusinessError
        self._skills: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
            "lookup": lambda args, _key: books.order(args["order_id"]),
            "eval": lambda args, _key: books.eligibility(args["order_id"], int(args["amount_inr"])),
            "issue_refund": lambda args, key: books.refund(
                args["order_id"], int(args["amount_inr"]), args["currency"], key, "keyed"
            ),
        }

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        [args] = get_data_parts(context.message.parts)
        try:
            answer = self._skills[context.message.metadata["skillId"]](args, context.message.message_id)
        except self._error as error:
            await updater.failed(updater.new_agent_message([Part(text=str(error))]))
            return
        if "transaction_id" in answer:
            await asyncio.sleep(self._work_s)
        await updater.add_artifact([new_data_part(answer)])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def card_at(port: int) -> AgentCard:
    """The card of the agent on this port of the loopback."""
    return AgentCard(
        name="Shop",
        description="The books of a shop.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/a2a", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(),
        default_input_modes=JSON,
        default_output_modes=JSON,
        skills=[AgentSkill(id=one, name=one, description=said, tags=["shop"]) for one, said in SKILLS.items()],
    )


def app_of(agent: AgentExecutor, card: AgentCard) -> Starlette:
    """The web application of an agent."""
    chosen = DefaultRequestHandler(agent_executor=agent, task_store=InMemoryTaskStore(), agent_card=card)
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(chosen, "/a2a")])


def main(folder: str, work_s: str = "0") -> None:
    spec = importlib.util.spec_from_file_location("shop", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    shop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shop)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    port = bound.getsockname()[1]
    print(port, flush=True)
    config = uvicorn.Config(
        app_of(ShopAgent(shop, Path(folder), float(work_s)), card_at(port)), log_level="critical", access_log=False
    )
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main(*sys.argv[1:])
