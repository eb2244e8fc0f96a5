"""The HTTP API over the refund of the benchmarks, as a process: `python -m benchmarks.http_server FOLDER`.

It is what `contextos serve` runs (the same engine, limits and server) with the tools of the benchmarks. Its first line
has its port and the tokens of the user and of the approver, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import outside, refund_pack
from contextos.adapters.directory import FileDirectory
from contextos.cli.operations.worker import spare_collections
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.deployment.deployment import Deployment
from contextos.server.assembly import http_api
from contextos.server.hosting import serve_api
from contextos.server.serving import listen
from contextos.trust.identity.development import mint_development_token
from contextos.workspace import App
from contextos.workspace.engine.admission_controller import AdmissionController
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos.workspace.engine.lease_owner import Owner
from contextos.workspace.engine.run_watch import RunWatch
from contextos.workspace.engines import local_engine
from contextos.workspace.logins.bearer import BearerTokens
from contextos.workspace.settings import Settings

AGENT, USER = "agt_support", "usr_771"


async def open_app(path: Path) -> App:
    """Open the refund over SQLite in `path`, with the limits of a served deployment."""
    tools = refund_pack.Tools(outside.Shop(path, keyed=True), "", keyed=True)
    deployment: Deployment = await refund_pack.open_deployment(path, tools, 0)
    ports = deployment.ports
    # Each client of a benchmark has the same address.
    settings = Settings(workspace=path, pressure=AdmissionLimits(max_http_percent_per_address=100))
    watch = RunWatch(ports.stores, ports.keys)
    deployment.ports = replace(
        ports,
        stores=watch.watched(),
        admission=AdmissionController(settings.pressure, ports.clock),
        concurrency=AsyncioConcurrency(),
    )
    engine = local_engine(deployment, None)
    return App(settings, deployment, ports.stores, Owner(None), engine, ports.keys, None, watch)


@asynccontextmanager
async def running(app: App) -> AsyncIterator[App]:
    """Drive due runs until the block ends, as `contextos serve` does."""
    await app.engine.start()
    spare_collections()
    try:
        yield app
    finally:
        await app.engine.stop()
        app.close()


def token_of(app: App) -> str:
    """Return a token of the user of the example, for the agent of the example."""
    reference = outside.request(0, 900)["user"]["delegation"]["token_ref"]
    return _token(app, USER, agent_id=AGENT, delegation=reference, scopes=("orders.read", "payments.refund"))


def approver_token(app: App) -> str:
    """Return a token of the finance lead of the example."""
    return _token(app, refund_pack.APPROVER, agent_id=None, delegation=None, scopes=())


def _token(app: App, user_id: str, **more: Any) -> str:
    ports = app.deployment.ports
    now_us, tenant_id = ports.clock.now_us(), refund_pack.TENANT
    return mint_development_token(
        ports.keys, tenant_id=tenant_id, user_id=user_id, roles=(), now_us=now_us, ttl_s=3_600, **more
    )


async def main() -> None:
    async with running(await open_app(Path(sys.argv[1]))) as app:
        directory = app.deployment.ports.directory
        assert isinstance(directory, FileDirectory)
        tokens = BearerTokens(directory, app.deployment.ports.clock, app.keys, development=True)
        with listen("127.0.0.1:0") as bound:
            said = {"port": bound.getsockname()[1], "token": token_of(app), "approver": approver_token(app)}
            print(json.dumps(said), flush=True)
            await serve_api(http_api(app, tokens), bound)


if __name__ == "__main__":
    asyncio.run(main())
