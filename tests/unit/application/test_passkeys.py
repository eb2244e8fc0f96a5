"""Registrations of passkeys, without HTTP. The attacks are in `test_e40_passkeys_over_http.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.application.passkeys import Passkeys
from contextos.errors import ApprovalRefused, Conflict
from tests.passkeys import Passkey
from tests.world import APPROVER, TENANT, open_world, run

ORIGIN = "https://console.acme.example"


def test_a_passkey_is_registered_and_then_published(tmp_path: Path) -> None:
    async def act() -> None:
        world, key = await open_world(tmp_path), Passkey("EdDSA")
        passkeys = Passkeys(world.deployment)
        options = await passkeys.begin(TENANT, APPROVER, origin=ORIGIN)
        made = await passkeys.finish(TENANT, APPROVER, key.create(options), origin=ORIGIN, login_digest="sha256:x")
        assert (made.approver_id, made.login_digest, made.is_published) == (APPROVER, "sha256:x", False)
        assert [one async for one in passkeys.list(TENANT)] == [made]
        assert [one async for one in passkeys.list(TENANT, APPROVER)] == [made]
        assert [one async for one in passkeys.list(TENANT, "nobody")] == []

        def publish(tenant: dict[str, list[dict[str, object]]]) -> None:
            for one in tenant["approvers"]:
                if one["approver_id"] == APPROVER:
                    one["passkeys"] = [made.passkey.to_json()]

        world.edit_directory(publish)
        assert [(one.digest, one.is_published) async for one in passkeys.list(TENANT)] == [(made.digest, True)]
        await world.aclose()

    run(act())


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8765", "https://[::1]", "https://192.0.2.1"])
def test_browsers_make_no_passkeys_for_an_address(tmp_path: Path, origin: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        with pytest.raises(ApprovalRefused, match="use `localhost`"):
            await Passkeys(world.deployment).begin(TENANT, APPROVER, origin=origin)
        await world.aclose()

    run(act())


def test_who_is_no_approver_registers_nothing(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        with pytest.raises(ApprovalRefused) as refused:
            await Passkeys(world.deployment).begin(TENANT, "nobody", origin=ORIGIN)
        assert refused.value.reason == "not_approver"
        await world.aclose()

    run(act())


def test_a_store_that_others_change_all_the_time_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)

        async def conflict(*_args: object) -> None:
            raise Conflict("somebody", "again")

        monkeypatch.setattr(type(world.stores.tenant(TENANT)), "commit", conflict)
        with pytest.raises(Conflict, match="begin the registration again"):
            await Passkeys(world.deployment).begin(TENANT, APPROVER, origin=ORIGIN)

    run(act())
