"""Registrations of passkeys, without HTTP. The attacks are in `test_e40_passkeys_over_http.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import ApprovalRefused, Conflict, InvalidInput
from contextos.service.passkeys import Passkeys
from tests.passkeys import Passkey
from tests.world import APPROVER, OPERATOR, TENANT, open_world, run

ORIGIN = "https://console.acme.example"


def test_a_passkey_is_registered_and_then_published(tmp_path: Path) -> None:
    async def act() -> None:
        world, key = await open_world(tmp_path), Passkey("EdDSA")
        passkeys = Passkeys(world.deployment)
        options = await passkeys.begin(TENANT, APPROVER, origin=ORIGIN)
        made = await passkeys.finish(TENANT, APPROVER, key.create(options), origin=ORIGIN, login_digest="sha256:x")
        assert (made.approver_id, made.login_digest, made.is_published) == (APPROVER, "sha256:x", False)
        assert (await passkeys.list(TENANT)).items == (made,)
        assert (await passkeys.list(TENANT, APPROVER)).items == (made,)
        assert (await passkeys.list(TENANT, "nobody")).items == ()

        def publish(tenant: dict[str, list[dict[str, object]]]) -> None:
            for one in tenant["approvers"]:
                if one["approver_id"] == APPROVER:
                    one["passkeys"] = [made.passkey.to_json()]

        world.edit_directory(publish)
        [listed] = (await passkeys.list(TENANT)).items
        assert (listed.digest, listed.is_published) == (made.digest, True)
        await world.aclose()

    run(act())


async def pages(passkeys: Passkeys, limit: int, person: str | None = None) -> list[str]:
    """The digests of what is listed, page by page."""
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await passkeys.list(TENANT, person, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found, cursor = [*found, *(one.digest for one in page.items)], page.cursor
    return found


def test_the_pages_are_the_list_also_where_somebody_only_began_or_the_oldest_went(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        passkeys = Passkeys(world.deployment)

        async def register(person: str, number: int) -> str:
            key = Passkey("EdDSA", credential_id=b"%s-%d" % (person.encode(), number))
            made = key.create(await passkeys.begin(TENANT, person, origin=ORIGIN))
            kept = await passkeys.finish(TENANT, person, made, origin=ORIGIN, login_digest="sha256:x")
            return kept.digest

        for person in (APPROVER, "user_support_lead_5"):
            for number in range(5):
                await register(person, number)
        await passkeys.begin(TENANT, OPERATOR, origin=ORIGIN)
        whole = [one.digest for one in (await passkeys.list(TENANT)).items]
        own = [one.digest for one in (await passkeys.list(TENANT, APPROVER)).items]
        assert (len(set(whole)), len(own)) == (10, 5)
        for limit in range(1, 12):
            assert await pages(passkeys, limit) == whole
            assert await pages(passkeys, limit, APPROVER) == own

        first = await passkeys.list(TENANT, APPROVER, limit=2)
        made = [await register(APPROVER, number) for number in range(5, 11)]
        rest = await passkeys.list(TENANT, APPROVER, cursor=first.cursor or "")
        assert [one.digest for one in rest.items] == [*own[3:], *made], "those before went, as the oldest do"
        await world.aclose()

    run(act())


@pytest.mark.parametrize("cursor", ["x", "0" * 64, f"{'0' * 64}.", f"{'0' * 64}.{'0' * 64}", "é" * 64 + "."])
def test_a_cursor_of_another_list_is_refused(tmp_path: Path, cursor: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        with pytest.raises(InvalidInput) as refused:
            await Passkeys(world.deployment).list(TENANT, APPROVER, cursor=cursor)
        assert refused.value.problems[0].code == "unknown_cursor"
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
