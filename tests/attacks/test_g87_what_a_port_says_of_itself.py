"""G87: a port of the embedding program that says that it is no stand-in, and whose word the record takes for a fact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.code import stated_by
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.trust.seal import KeyRing
from tests.world import TENANT, request, run


class Trusting:
    """A directory that believes everybody, and says nothing of it."""

    unsafe = ()

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def knows_tenant(self, tenant_id: str) -> bool:
        return bool(await self.inner.knows_tenant(tenant_id))

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Any:
        known = await self.inner.resolve(tenant_id, user_id, agent_id)
        return known and known.model_copy(update={"unsafe": ()})

    async def delegation(self, tenant_id: str, token_ref: str) -> Any:
        return await self.inner.delegation(tenant_id, token_ref)

    async def approver(self, tenant_id: str, approver_id: str) -> Any:
        return await self.inner.approver(tenant_id, approver_id)

    async def held_roles(self, tenant_id: str) -> Any:
        return await self.inner.held_roles(tenant_id)


@pytest.mark.parametrize("given", [False, True])
def test_the_record_says_whose_word_it_is(given: bool, tmp_path: Path) -> None:
    async def go() -> None:
        from contextos.adapters.directory import FileDirectory

        path = tmp_path / "shop"
        make_workspace(path, witness="off")
        ports = {"directory": Trusting(FileDirectory(path / "directory.json"))} if given else {}
        async with contextos.open(path, **ports) as app:
            await app.initialise(TENANT, by=example_operator(path))
            await seed_graph(app, Workspace(path, TENANT, {}))
            view = await app.deployment.invoke(request(900, "req_1"))
            assert view.record is not None
            stated = view.record["lineage"].get("unsafe_stated_by", [])
            mine = [f"{Trusting.__module__}.Trusting"] if given else []
            assert [one for one in stated if one.endswith("Trusting")] == mine
            assert ("unsafe_local_directory" in view.record["lineage"]["unsafe"]) is not given

    run(go())


def test_a_class_that_takes_a_name_of_the_runtime_is_not_of_it() -> None:
    lying = type("KeyRing", (), {"__module__": "contextos.trust.seal", "unsafe": ()})
    assert stated_by((lying(), KeyRing({}), None)) == ("contextos.trust.seal.KeyRing",)
    assert stated_by((KeyRing({}),)) == ()
