"""A process that was killed leaves nothing behind that `resume` does not finish, at once and once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from contextlib import closing

import pytest

from contextos.workspace import open_app
from contextos.workspace.settings import Settings


@pytest.mark.parametrize("payments", ["keyed", "lookup"])
def test_a_run_that_was_killed_after_it_paid_is_finished_and_not_paid_again(
    shop, command, monkeypatch, payments
) -> None:
    monkeypatch.setenv("SHOP_PAYMENTS", payments)
    start, environment = command
    killed = subprocess.run(
        [*start, "invoke", shop.request("lost")],
        capture_output=True,
        check=False,
        env=environment
        | {"SHOP_FAILPOINT": "after_payment", "SHOP_PAYMENTS": payments, "CONTEXTOS_WORKSPACE": str(shop.path)},
    )
    assert killed.returncode == -signal.SIGKILL
    assert shop.refunds().count(("ord_882", 1200)) == 1
    said = shop.say("runs", "resume", "--json")
    assert (said.code, [one["state"] for one in said.json["driven"]]) == (0, ["completed"])
    assert shop.refunds().count(("ord_882", 1200)) == 1
    assert shop.say("replay", "req_lost").code == 0
    assert shop.say("verify").code == 0


def test_an_engine_that_starts_finishes_the_runs_of_a_killed_process_at_once(shop, command) -> None:
    start, environment = command
    subprocess.run(
        [*start, "invoke", shop.request("lost")],
        capture_output=True,
        check=False,
        env=environment | {"SHOP_FAILPOINT": "after_payment", "CONTEXTOS_WORKSPACE": str(shop.path)},
    )
    assert shop.say("runs", "show", "req_lost", "--json").json["state"] not in ("completed", "rejected")

    async def started() -> None:
        app = await open_app(Settings.read(shop.path))
        try:
            await app.engine.start()
            async with asyncio.timeout(60):
                await app.engine.idle()
            await app.engine.stop()
            assert not app.engine.failures
        finally:
            app.close()

    asyncio.run(started())
    assert shop.say("runs", "show", "req_lost", "--json").json["state"] == "completed"
    assert shop.refunds().count(("ord_882", 1200)) == 1


def test_nothing_due_is_said(shop) -> None:
    shop.say("invoke", shop.request("next"))
    said = shop.say("runs", "resume")
    assert (said.code, said.out) == (0, "nothing was due\n")


def test_a_run_whose_driver_lives_is_left_to_it(shop, command) -> None:
    from contextos.workspace.engine.lease_owner import Owner

    start, environment = command
    subprocess.run(
        [*start, "invoke", shop.request("lost")],
        capture_output=True,
        check=False,
        env=environment | {"SHOP_FAILPOINT": "after_payment", "CONTEXTOS_WORKSPACE": str(shop.path)},
    )
    import sqlite3

    with closing(sqlite3.connect(shop.path / "contextos.db")) as store:
        owner = Owner(shop.path / "contextos.db")
        changed = store.execute(
            "UPDATE documents SET version = version + 1, body = CAST(json_set(body, '$.owner', ?) AS BLOB)"
            " WHERE collection = 'leases' AND json_extract(body, '$.until_us') > 0",
            (owner.id,),
        )
        assert changed.rowcount == 1
        store.commit()
    assert shop.say("runs", "resume", "--json").json["driven"] == []
    owner.close()
    assert [one["state"] for one in shop.say("runs", "resume", "--json").json["driven"]] == ["completed"]
