"""A worker drives what comes due until it is stopped; what failed for good is listed and can be tried again."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import signal
import sqlite3
import subprocess
import time
from contextlib import closing

import pytest
from standardwebhooks.webhooks import Webhook

from contextos.cli.operations.worker import spare_collections
from contextos.deployment import dead_letters
from contextos.workspace import open_app
from contextos.workspace.settings import Settings
from tests.loopback import Answer, Asked, serving
from tests.processes import ended
from tests.segments import drop_triggers
from tests.world import TENANT, open_world, request, run

HOOK_SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def worker(shop, command):
    start, environment = command
    process = subprocess.Popen(
        [*start, "worker"],
        env=environment | {"CONTEXTOS_WORKSPACE": str(shop.path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "interrupt to stop" in process.stderr.readline()
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_drives_what_another_left_and_ends_well_when_it_is_stopped(shop, command, worker, number) -> None:
    start, environment = command
    killed = subprocess.run(
        [*start, "invoke", shop.request("lost")],
        capture_output=True,
        check=False,
        env=environment | {"SHOP_FAILPOINT": "after_payment", "CONTEXTOS_WORKSPACE": str(shop.path)},
    )
    assert killed.returncode == -signal.SIGKILL
    # The lease of a dead worker is checked every 30 s; let it run out now.
    with closing(sqlite3.connect(shop.path / "contextos.db", timeout=60)) as store:
        store.execute("UPDATE runs SET wake_at_us = 1 WHERE wake_at_us > 0")
        store.commit()
    for _ in range(600):
        if shop.say("runs", "show", "req_lost", "--json").json["state"] == "completed":
            break
    assert shop.say("runs", "show", "req_lost", "--json").json["state"] == "completed"
    assert shop.refunds().count(("ord_882", 1200)) == 1
    worker.send_signal(number)
    out, _ = worker.communicate(timeout=60)
    assert (worker.returncode, out) == (0, "")


@pytest.mark.requirement("E-DEAD-LETTERS")
def test_a_run_that_cannot_be_driven_on_is_reported_listed_and_retried(shop, worker) -> None:
    assert shop.say("invoke", shop.request("next")).code == 5
    run_id = shop.say("runs", "show", "req_next", "--json").json["run_id"]

    def rewrite(body: bytes, *more: str) -> bytes:
        with closing(sqlite3.connect(shop.path / "contextos.db", timeout=60)) as store:
            drop_triggers(store)
            [[kept]] = store.execute("SELECT min(body) FROM segments WHERE run = ?", (run_id,)).fetchall()
            store.execute("UPDATE segments SET body = ? WHERE run = ? AND seq = entries", (body, run_id))
            for statement in more:
                store.execute(statement, (run_id,))
            store.commit()
        return bytes(kept)

    def listed(failures: int) -> list[dict[str, object]]:
        while True:
            found = shop.say("runs", "dead-letters", "--json").json["dead_letters"]
            if found and found[0]["failures"] >= failures:
                return found

    kept = rewrite(b"{}", "UPDATE runs SET wake_at_us = 1 WHERE run = ?")
    assert run_id in worker.stderr.readline()
    assert [(one["run_id"], one["code"], one["failures"]) for one in listed(1)] == [(run_id, "chain_broken", 1)]
    assert f"{run_id}  chain_broken" in shop.say("runs", "dead-letters").out
    # What it rests on does not verify, so nothing is recorded and nothing is driven.
    assert shop.say("runs", "retry", run_id, *shop.by).code == 3
    assert [one["failures"] for one in listed(1)] == [1]
    rewrite(kept)
    assert shop.say("runs", "retry", run_id, *shop.by).code == 5
    assert shop.say("runs", "dead-letters").out == "there are no dead letters\n"


def test_only_a_dead_letter_can_be_retried(shop) -> None:
    shop.say("invoke", shop.request("next"))
    for name in ("req_next", "run_0000000000000000", "req_no_such"):
        said = shop.say("runs", "retry", name, *shop.by, "--json")
        assert (said.code, json.loads(said.out)["error"]["code"]) == (2, "not_found")
    assert shop.say("runs", "dead-letters").out == "there are no dead letters\n"


def test_a_run_that_is_driven_on_leaves_the_dead_letter_list(shop) -> None:
    shop.say("invoke", shop.request("next"))
    run_id = shop.say("runs", "show", "req_next", "--json").json["run_id"]

    async def bury() -> None:
        app = await open_app(Settings.read(shop.path))
        store = app.stores.tenant("tenant_acme_prod")
        seen = await dead_letters.journal_length(store, run_id)
        assert await dead_letters.add(store, run_id, ("bug", "\x1b[31mhidden"), 1, seen=seen)
        app.close()

    asyncio.run(bury())
    said = shop.say("runs", "dead-letters")
    assert "\x1b" not in said.out
    assert run_id in said.out
    with closing(sqlite3.connect(shop.path / "contextos.db", timeout=60)) as store:
        store.execute("UPDATE runs SET wake_at_us = 1 WHERE run = ?", (run_id,))
        store.commit()
    assert shop.say("runs", "resume").out == "nothing was due\n"
    assert shop.say("approvals", "approve", run_id, *shop.binding(run_id), *shop.key).code == 0
    assert shop.say("runs", "dead-letters").out == "there are no dead letters\n"


def started_worker(shop, command):
    start, environment = command
    process = subprocess.Popen(
        [*start, "worker"],
        env=environment | {"CONTEXTOS_WORKSPACE": str(shop.path), "HOOK_SECRET": HOOK_SECRET},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"interrupt to stop" in process.stderr.readline()
    return ended(process)


def test_a_worker_that_is_killed_while_the_receiver_is_down_loses_no_notice(shop, command) -> None:
    down, took, tries = True, [], []

    def receive(asked: Asked) -> Answer:
        tries.append(asked)
        if down:
            return 503, b"", {}
        took.append(Webhook(HOOK_SECRET).verify(asked.body, dict(asked.headers.items())))
        return 204, b"", {}

    with serving(receive) as url:
        with (shop.path / "contextos.toml").open("a", encoding="utf-8") as settings:
            settings.write(
                f'[[outbox.webhooks]]\nname = "desk"\ntenant = "{TENANT}"\nurl = "{url}/hook"\ninternal = true\n'
                'secret_env = "HOOK_SECRET"\nlink = "https://console.acme.example/runs/{run}"\n'
            )
        with started_worker(shop, command) as first:
            made = [shop.say("invoke", shop.request(name), "--json").json for name in ("lost", "next")]
            wait_until(lambda: tries)
            first.send_signal(signal.SIGKILL)
            first.wait(30)
        down = False
        with started_worker(shop, command) as second:
            wait_until(lambda: len(took) >= 2)
            second.send_signal(signal.SIGTERM)
            assert second.wait(60) == 0
    by_run = {one["data"]["run_id"]: one["type"] for one in took}
    assert by_run == {made[0]["run_id"]: "run.finished", made[1]["run_id"]: "question.asked"}


def wait_until(happened) -> None:
    for _ in range(1200):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within a minute")


def test_a_process_that_drives_runs_collects_no_garbage_for_a_few_of_them(tmp_path) -> None:
    async def act() -> None:
        world, before, collected = await open_world(tmp_path), gc.get_threshold(), []
        spare_collections()
        gc.callbacks.append(lambda *said: collected.append(said))
        try:
            for number in range(5):
                assert (await world.invoke(request(900, f"req_{number}"))).ended
        finally:
            gc.callbacks.pop()
            gc.set_threshold(*before)
        assert not collected
        world.close()

    run(act())
