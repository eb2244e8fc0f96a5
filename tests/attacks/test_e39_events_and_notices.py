"""E39: notices of what never happened, and events that tell what the pack of a run does not redact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextos.contracts.documents.subscriptions import UNDELIVERED
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import INDEX, Batch, Draft
from contextos.service.outbox.notices import NOTICE_TYPES, Notice
from contextos.service.outbox.sending import Outbox
from tests.world import TENANT, TestWorld, open_world, request, run

LINK = "https://console.acme.example/runs/{run}"
ADDRESS = "ann@acme.example"


async def forge(world: TestWorld, run_id: str, kind: str, entry_kind: str) -> None:
    """Append a line to the index, as a writer of the database can, that names an entry of the run."""
    store = world.stores.tenant(TENANT)
    named = next(one for one in await store.read(run_id) if one.kind == entry_kind)
    body = canonical({"run": run_id, "entries": named.seq, "head": named.hash})
    draft = Draft(kind, run_id, named.at_us, "runtime", body, bytes(16))
    await store.commit(Batch(run=run_id, shared=((INDEX, draft),)))


@pytest.mark.parametrize("kind", ["approval.answered", "run.closed", "effect.settled"])
def test_no_notice_says_what_the_run_does_not_show_and_other_runs_go_on(tmp_path: Path, kind: str) -> None:
    sent: list[Notice] = []

    async def send(notice: Notice) -> None:
        sent.append(notice)

    async def act() -> None:
        world = await open_world(tmp_path)
        box = Outbox(world.deployment, TENANT, "desk", NOTICE_TYPES, LINK, send, 0, 2)
        await box.register()
        waits = (await world.invoke(request(4200, "req_1"))).run_id
        await box.deliver()
        await forge(world, waits, kind, "approval.asked")
        other = (await world.invoke(request(900, "req_2"))).run_id
        for _ in range(3):
            await box.deliver()
            world.clock.at_us += 10_000_000
        assert [(one.run_id, one.type) for one in sent] == [(waits, "question.asked"), (other, "run.finished")]
        lost = [one.body for one in await UNDELIVERED.page(world.stores.tenant(TENANT))]
        assert [(one.run, one.failures) for one in lost] == [(waits, 2)]

    run(act())


def test_events_tell_no_mail_address_though_the_pack_redacts_only_card_numbers(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        body = request(900, "req_1", order_id=ADDRESS)
        run_id = (await world.invoke(body)).run_id
        recorded = b"".join(one.body or b"" for one in await world.stores.tenant(TENANT).read(run_id))
        assert ADDRESS.encode() in recorded, "the attack reaches the journal"
        told = [one async for one in world.runs().stream(TENANT, run_id)]
        assert ADDRESS not in json.dumps([one.document() for one in told])
        assert "ctxpack.support@" in json.dumps([one.document() for one in told]), "a ref is not an address"

    run(act())
