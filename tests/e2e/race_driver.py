"""One of several processes that race: a hundred callers on as many event loops as its plan says, over one deployment.

`python -m tests.e2e.race_driver PLAN.json OUT.json`: waits until the file `go` exists beside the plan, so that all
processes start together. Each caller sends its request until it has an answer that is not retryable. The tests beside
it start it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.errors import ContextOSError, Unavailable
from contextos.store.shared.clock import SystemClock
from tests.world import TestWorld, open_world, place_of

MAX_TRIES = 200
PAYMENTS = "adp_payments"


class ChangedPayments:
    """The shop's payments, slower, or with other arguments that identify an act."""

    def __init__(self, inner: Any, slow_ms: int, identity_args: list[str] | None) -> None:
        self._inner, self._slow_ms = inner, slow_ms
        body = inner.describe().to_json()
        if identity_args is not None:
            body["capabilities"][0]["idempotency"]["identity_args"] = identity_args
        self._definition = AdapterDefinition.model_validate(body)

    def describe(self) -> AdapterDefinition:
        return self._definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        await asyncio.sleep(self._slow_ms / 1e3)
        reply: AdapterReply = await self._inner.call(capability, args, context)
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        reply: AdapterReply | None = await self._inner.lookup(capability, idempotency_key, context)
        return reply


def ready(plan: Path, name: str) -> None:
    """Say that this process is open, and wait for the others."""
    (plan.parent / f"{name}.ready").touch()
    while not (plan.parent / "go").exists():
        time.sleep(0.002)


async def answer_of(world: TestWorld, body: dict[str, Any]) -> dict[str, Any]:
    """What a caller gets who tries again where the answer says so: a view, or the typed error that is final."""
    for tries in range(MAX_TRIES):
        try:
            view = await world.invoke(body)
        except Unavailable as error:
            await asyncio.sleep(error.retry_after_ms / 1e3)
            continue
        except ContextOSError as error:
            return {"error": error.code, "tries": tries}
        if view.ended or view.state == "waiting":
            record = None if view.record is None else canonical(view.record).decode()
            return {"run_id": view.run_id, "state": view.state, "record": record, "tries": tries}
        await asyncio.sleep(0.05)
    return {"error": "no answer", "tries": MAX_TRIES}


def main(plan: Path, out: Path) -> None:
    stated = json.loads(plan.read_text("utf-8"))
    workspace = Path(stated["workspace"])
    world = asyncio.run(open_world(workspace, stores=place_of(workspace), clock=SystemClock()))
    payments = ChangedPayments(world.adapters[PAYMENTS], stated["slow_ms"], stated["identity_args"])
    world.adapters[PAYMENTS] = payments
    bodies = stated["bodies"]
    loops = min(stated["loops"], len(bodies))
    together = Barrier(loops)

    async def callers(part: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return await asyncio.gather(*(answer_of(world, body) for body in part))

    def loop(number: int) -> list[dict[str, Any]]:
        together.wait()
        return asyncio.run(callers(bodies[number::loops]))

    ready(plan, out.name)
    answers: list[Any] = [None] * len(bodies)
    with ThreadPoolExecutor(loops) as threads:
        for number, part in enumerate(threads.map(loop, range(loops))):
            answers[number::loops] = part
    out.write_text(json.dumps(answers), "utf-8")
    world.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
