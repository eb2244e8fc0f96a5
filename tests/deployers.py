"""The people of a small deployment: a user, an agent, a publisher and an approver, whose keys a test knows."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from contextos.contracts.envelopes.identity import UserClaims
from contextos.testing import InMemory, in_memory
from contextos.trust.seal import kid_of
from contextos.workspace import make_keys
from contextos.workspace.application import App
from contextos.workspace.opening import Opening
from tests.world import public_key

TENANT = "tenant_dev"
SEEDS = {"olga": bytes(range(32)), "omar": bytes(range(1, 33))}


def approver(name: str, *roles: str) -> dict[str, Any]:
    public = public_key(SEEDS[name])
    key = {"kid": kid_of(public), "public_key": public.hex()}
    return {"approver_id": name, "roles": roles, "granted_by": dict.fromkeys(roles, "ceo"), "keys": [key]}


def people() -> dict[str, Any]:
    """A directory with a user, an agent, a publisher and an approver."""
    agent = {
        "agent_id": "agt_deploy",
        "agent_urn": "agent:acme/deploy@1.0.0",
        "workload_identity": "spiffe://acme/agents/deploy",
        "role": "deploy",
        "owner": "boss",
        "lifecycle": "active",
        "ceiling": "destructive",
        "scopes": [],
    }
    token = {"subject": "ana", "agent_id": "agt_deploy", "scopes": [], "expires_at": 4102444800}
    listed = {
        "users": [{"user_id": "ana", "role": "deployer", "roles": ["deployer"], "scopes": [], "delegation_live": True}],
        "agents": [agent],
        "delegations": {"tok_ana": token},
        "approvers": [approver("olga", "publisher", "policy_admin"), approver("omar", "approver")],
    }
    return {TENANT: listed}


def make_workspace(folder: Path) -> None:
    """A workspace whose three people have keys that the test knows."""
    make_keys(folder / "keys")
    (folder / "directory.json").write_text(json.dumps(people()), "utf-8")
    (folder / "contextos.toml").write_text('witness = "off"\n', "utf-8")


def ana() -> Any:
    token = {"auth_type": "oauth2", "scopes": [], "subject": "ana", "token_ref": "tok_ana"}
    return UserClaims.model_validate({"user_id": "ana", "delegation": token})


class InStore(InMemory):
    """The deployment of `in_memory` over the store of its settings."""

    async def __aenter__(self) -> App:
        app = await Opening.__aenter__(self)
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_exit(self.__aexit__)
            await self._initialise(app)
            on_failure.pop_all()
        return app


def in_store(stores: str, folder: Path, **of: Any) -> InStore:
    """The deployment of `in_memory`, with its rows in SQLite (`sqlite`) or in the database of this URL."""
    made = in_memory(**{"lint": False} | of)
    settings = replace(made._settings, workspace=folder, store="contextos.db" if stores == "sqlite" else stores)
    return InStore(settings, made._given, made._packs, made._declared, made._facts)
