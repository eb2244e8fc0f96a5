"""A deployment desk: two plain functions, as any agent has them as tools, and the pack that governs them.

Each file beside it runs an agent of one framework in a workspace that `contextos demo --keep DIR` made. With
`CONTEXTOS_URL` and `CONTEXTOS_TOKEN` set, the tools and their gate are those of a server (`contextos serve`) instead.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

import contextos
from contextos import Actor
from contextos.contracts.envelopes.identity import UserClaims

TENANT, AGENT, APPROVER, OPERATOR = "tenant_acme_prod", "agt_support", "user_finance_lead_77", "user_operator_5"
DELEGATION = {"auth_type": "oauth2", "scopes": [], "subject": "usr_771", "token_ref": "tok_usr_771"}
USER = UserClaims.model_validate({"user_id": "usr_771", "delegation": DELEGATION})

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ci_status", {"service": "api"}),
    ("rollback", {"service": "billing", "env": "prod"}),
    ("rollback", {"service": "api", "env": "prod"}),
]
"""What the scripted models call, one after the other: a read, a call that is refused, and one that a person allows."""


class Build(BaseModel):
    """A build."""

    commit: str = Field(max_length=40)
    green: bool


def ci_status(service: str) -> Build:
    """The newest build of a service."""
    return Build(commit="0f1e2d3c", green=True)


def rollback(service: str, env: Literal["prod", "staging"], request_key: str = "") -> str:
    """Put the build before back into service."""
    books = Path(os.environ.get("DESK_BOOKS", "rollbacks.log"))
    done = books.read_text().splitlines() if books.exists() else []
    if not request_key or f"{service} {env} {request_key}" not in done:
        with books.open("a") as file:
            file.write(f"{service} {env} {request_key}\n")
            file.flush()
            os.fsync(file.fileno())
    if os.environ.get("DESK_DIES") == "after_effect":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{service} in {env} is back"


def decorated() -> contextos.FunctionAdapter:
    """The two functions as governed tools, for a program without a framework's tool objects."""

    @contextos.write(risk="irreversible", idempotency="keyed", name="rollback")
    def keyed_rollback(service: str, env: Literal["prod", "staging"], key: contextos.Key) -> str:
        """Put the build before back into service."""
        return rollback(service, env, key)

    return contextos.toolset("deploy", [contextos.read(integrity="trusted", produces="ci")(ci_status), keyed_rollback])


@asynccontextmanager
async def opened(
    directory: Path, tools: Callable[[], contextos.FunctionAdapter], *, approved: bool
) -> AsyncIterator[Any]:
    """The gate of the session `thread_1`: of a deployment in this process, or of a server."""
    if url := os.environ.get("CONTEXTOS_URL"):
        from contextos.client import connect

        async with connect(url, os.environ["CONTEXTOS_TOKEN"]) as client:
            yield await client.gate(session="thread_1", agent=AGENT, delegation="tok_usr_771", intent="acme.deploy")
        return
    deploy = tools()
    async with contextos.open(directory, adapters=[deploy]) as app:
        gate = await session(app, deploy, directory, "thread_1")
        if approved:
            await approve(app, gate, directory)
        yield gate


async def session(app: contextos.App, deploy: contextos.FunctionAdapter, directory: Path, name: str) -> Any:
    """Open the session of this name, or find it. The pack of the desk is published and pinned once."""
    await publish(app, deploy, directory)
    return await app.gate(session=name, user=USER, agent=AGENT, tenant=TENANT, intent="acme.deploy")


async def publish(app: contextos.App, deploy: contextos.FunctionAdapter, directory: Path) -> None:
    """Publish and pin the pack of the desk."""
    frozen = [
        {"when": 'args.service == "billing"', "because": "billing is frozen"},
        {"when": "evidence.ci.green == False", "because": "the build is red"},
    ]
    declared = contextos.pack(
        "acme.deploy",
        version="1.0.0",
        tenant=TENANT,
        tools=[deploy],
        who=["support_agent"],
        approver="finance_lead",
        deny=frozen,
    )
    await app.install(declared, by=Actor.with_key(OPERATOR, _key(directory, OPERATOR)))


async def approve(app: contextos.App, gate: Any, directory: Path) -> None:
    """A finance lead reads the question and signs the answer."""
    view = await gate.view()
    await contextos.answer_approval(
        app.deployment,
        view.tenant_id,
        view.run_id,
        approver_id=APPROVER,
        verdict="approved",
        reason="looked at the build",
        binding_digest=view.waiting["binding_digest"],
        vouch=contextos.answer_signer(_key(directory, APPROVER)),
    )


def _key(directory: Path, person: str) -> bytes:
    return bytes.fromhex((directory / f"keys/{person}.key").read_text())
