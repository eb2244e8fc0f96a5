"""C18: the claim of a call is for one audience, with the scopes of that call and its id; files are for their owner.

Not here yet: keys that are separate by purpose, and their rotation.
"""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from contextos.errors import SignatureInvalid
from contextos.store.sqlite.stores import SqliteStores
from contextos.trust.identity.claims import verify_claim
from tests.world import TestWorld, open_world, request


class Listening:
    """An adapter that keeps the token of each call, as a hostile one can."""

    def __init__(self, inner: Any, heard: list[tuple[str, str, str, str]]) -> None:
        self._inner, self._heard = inner, heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        self._heard.append((self._inner.describe().adapter_id, capability, context.tool_call_id, context.claim()))
        return await self._inner.call(capability, args, context)


def test_a_token_that_one_adapter_heard_is_none_for_another(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world: TestWorld = await open_world(tmp_path, stores=stores)
        heard: list[tuple[str, str, str, str]] = []
        for name, adapter in list(world.adapters.items()):
            world.adapters[name] = Listening(adapter, heard)
        view = await world.invoke(request(900, "req_1"))
        assert view.state == "completed"
        audiences = {adapter_id for adapter_id, *_ in heard}
        assert len(audiences) > 1
        (issuer,) = {_said(token)["iss"] for *_, token in heard}
        for adapter_id, capability, call_id, token in heard:
            claim = verify_claim(token, world.keys, issuer=issuer, audience=adapter_id, now_us=world.clock.now_us())
            definition = next(
                one for one in world.adapters[adapter_id].describe().capabilities if one.name == capability
            )
            assert set(claim.scopes) - set(definition.required_scopes) == {f"tools:{definition.kind}"}
            assert claim.jti == call_id
            for other in audiences - {adapter_id}:
                with pytest.raises(SignatureInvalid, match="another issuer or audience"):
                    verify_claim(token, world.keys, issuer=issuer, audience=other, now_us=world.clock.now_us())
        await world.aclose()

    asyncio.run(go())


def _said(token: str) -> dict[str, Any]:
    from contextos.contracts.encoding.codec import loads
    from contextos.trust.seal import decode_base64

    return dict(loads(decode_base64(token.split(".")[1])))


def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        stores = SqliteStores(tmp_path / "contextos.db")
        from contextos.contracts.journal import Batch

        asyncio.run(stores.tenant("acme").commit(Batch("run_a", wake_at_us=1)))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        stores.close()
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}, modes
