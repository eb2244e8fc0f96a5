"""The tools of an example as the skills of an A2A agent made with the SDK.

`shop_agent.py FOLDER` prints the port on which it serves the tools of the refund example, and `cluster_agent.py FOLDER`
those of the deploy example. With another argument, `SECONDS`, it works so long on a write that it has already done. The
shop does the skill that a third argument names, and then asks for input.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from a2a.helpers import get_data_parts, new_data_part, new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from listening import load_module, serve_on
from starlette.applications import Starlette

from contextos.adapters.function.adapter import BusinessError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "support_refund" / "shop.py"
JSON = ["application/json"]

Skill = Callable[[dict[str, Any], str], dict[str, Any]]
"""(arguments, id of the message) -> the data of the answer."""


class SkilledAgent(AgentExecutor):
    """Does what the metadata of a message name as its skill. Each of `writes` happens once for a message, by its id."""

    def __init__(self, skills: Mapping[str, Skill], writes: frozenset[str], work_s: float, asks: str) -> None:
        self._skills, self._writes, self._work_s, self._asks = skills, writes, work_s, asks

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        [args] = get_data_parts(context.message.parts)
        skill = context.message.metadata["skillId"]
        try:
            answer = self._skills[skill](args, context.message.message_id)
        except BusinessError as error:
            await updater.failed(updater.new_agent_message([Part(text=str(error))]))
            return
        if skill == self._asks:
            await updater.requires_input(updater.new_agent_message([Part(text="Which account?")]))
            return
        if skill in self._writes:
            await asyncio.sleep(self._work_s)
        await updater.add_artifact([new_data_part(answer)])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def card_at(port: int, name: str, skills: Mapping[str, Skill]) -> AgentCard:
    """The card of the agent on this port of the loopback."""
    return AgentCard(
        name=name,
        description=f"The tools of a {name}.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/a2a", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(),
        default_input_modes=JSON,
        default_output_modes=JSON,
        skills=[AgentSkill(id=one, name=one, description=f"Does `{one}`.", tags=[name]) for one in skills],
    )


def app_of(agent: AgentExecutor, card: AgentCard) -> Starlette:
    """The web application of an agent."""
    chosen = DefaultRequestHandler(agent_executor=agent, task_store=InMemoryTaskStore(), agent_card=card)
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(chosen, "/a2a")])


def serve_agent(name: str, skills: Mapping[str, Skill], writes: frozenset[str], work_s: str, asks: str = "") -> None:
    """Print the port and serve the agent there."""
    bound = socket.create_server(("127.0.0.1", 0))
    port: int = bound.getsockname()[1]
    print(port, flush=True)
    serve_on(bound, app_of(SkilledAgent(skills, writes, float(work_s), asks), card_at(port, name, skills)))


def main(folder: str, work_s: str = "0", asks: str = "") -> None:
    books = load_module(EXAMPLE).Shop(Path(folder) / "shop.db")
    skills: dict[str, Skill] = {
        "lookup": lambda args, _key: books.order(args["order_id"]),
        "eval": lambda args, _key: books.eligibility(args["order_id"], int(args["amount_inr"])),
        "issue_refund": lambda args, key: books.refund(
            args["order_id"], int(args["amount_inr"]), args["currency"], key, "keyed"
        ),
    }
    serve_agent("shop", skills, frozenset({"issue_refund"}), work_s, asks)


if __name__ == "__main__":
    main(*sys.argv[1:])
