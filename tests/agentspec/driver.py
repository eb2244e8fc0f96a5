"""One step of the outreach agent in a process of its own: `begin` or `resume`, the state and the store on disk.

Usage: python -m tests.agentspec.driver DIRECTORY begin
       python -m tests.agentspec.driver DIRECTORY resume ANSWER
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from contextos.contracts.encoding.codec import loads
from contextos.store.sqlite.stores import SqliteStores
from contextos_agentspec.session import SelectionSession
from contextos_agentspec.wayflow import FlowOutcome, FlowPaused, load_flow, selection_tools
from examples.email_outreach.outreach import draft_email
from tests.slots import CuratedArtifacts, actor

AGENT = Path(__file__).resolve().parents[2] / "examples" / "email_outreach" / "cinatra" / "oas.json"
PACKAGE = "@contextos-examples/email-outreach-agent"
INPUTS = {"recipient": "ann@acme.example", "runId": "run_1"}


class TickingClock:
    """A clock for tests: each reading is a microsecond later."""

    def __init__(self) -> None:
        self.at = 10

    def now_us(self) -> int:
        self.at += 1
        return self.at


def session_of(document: Any, repository: CuratedArtifacts) -> SelectionSession:
    return SelectionSession(document, "run_1", PACKAGE, actor(), repository, repository, TickingClock())


def agent(**slot: Any) -> bytes:
    """The example agent with these fields of its slot changed."""
    document = loads(AGENT.read_bytes())
    document["metadata"]["cinatra"]["contextSlots"][0].update(slot)
    return json.dumps(document).encode()


async def step(
    raw: bytes, repository: CuratedArtifacts, state: str | None = None, answer: str = "", **inputs: Any
) -> FlowOutcome:
    """Begin, or resume `state` with `answer`."""
    flow = load_flow(raw, {**selection_tools(session_of(loads(raw), repository)), "draft_email": draft_email})
    return await (flow.begin(INPUTS | inputs) if state is None else flow.resume(state, answer))


def main(folder: Path, what: str, answer: str = "") -> None:
    stores = SqliteStores(folder / "slots.db")
    state = (folder / "state.json").read_text("utf-8") if what == "resume" else None
    try:
        outcome = asyncio.run(step(agent(), stores.artifacts("tenant_acme"), state, answer))
    finally:
        stores.close()
    if isinstance(outcome, FlowPaused):
        (folder / "state.json").write_text(outcome.state, encoding="utf-8")
        print(json.dumps({"shown": outcome.shown}))
    else:
        print(json.dumps({"outputs": outcome.outputs}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
