"""A notice says what is asked of whom, and nothing that was erased, redacted or written to deceive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.contracts.trace import parse_traceparent, parse_tracestate
from contextos.deployment.queries.checked_run import read_checked
from contextos.deployment.queries.positions import line_at
from contextos.deployment.queries.run_events import RunEvent, read_events
from contextos.service.outbox.notices import NOTICED, Notice, notice_of
from tests.world import TENANT, TestWorld, open_world, request, run

LINK = "https://c.example/runs/{run}"


async def notices(world: TestWorld) -> list[Notice]:
    store, found = world.stores.tenant(TENANT), []
    events, _ = await read_events(store, TENANT, world.keys, None)
    for event in events:
        if event.event in NOTICED:
            line = await line_at(store, TENANT, event.cursor)
            assert line is not None
            entries = (await read_checked(store, TENANT, world.keys, event.run_id)).entries
            found.append(notice_of("outbox:desk", event, entries[: read_body(line)["entries"]], LINK))
    return found


def test_a_notice_is_in_the_trace_of_its_run_and_carries_no_baggage(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        body = request(4200, "req_1")
        body["trace"] |= {"baggage": "customer=secret", "tracestate": "vendor=1"}
        await world.approve((await world.invoke(body)).run_id)
        found = await notices(world)
        parents = [parse_traceparent(one.trace["traceparent"]) for one in found]
        assert {one and one.trace_id for one in parents} == {body["trace"]["trace_id"]}
        assert len({one and one.parent_id for one in parents}) == len(found) > 1
        for one in found:
            assert one.trace.keys() == {"traceparent", "tracestate"}
            assert [key for key, _ in parse_tracestate(one.trace["tracestate"])] == ["contextos"]

    run(act())


def test_what_is_erased_is_left_out_and_the_notice_still_goes(tmp_path: Path) -> None:
    from contextos.deployment.operator import erase_entry

    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        await world.approve(run_id)
        before = await notices(world)
        for entry in await world.stores.tenant(TENANT).read(run_id):
            if entry.kind in ("approval.asked", "approval.answered", "run.ended"):
                await erase_entry(world.deployment, TENANT, run_id, entry.seq, by=world.actor(), reason="law")
        after = await notices(world)
        assert [one.id for one in after] == [one.id for one in before]
        assert [dict(one.told) for one in after] == [
            {"waits_for": "approval"},
            {"waits_for": "approval"},
            {"end": "erased"},
        ]
        assert after[0].subject() == "a person is asked about a call"

    run(act())


@pytest.mark.parametrize("name", ["mail@acme.example", "pay\u202enow\r\nSubject: paid"])
def test_text_from_outside_is_redacted_and_escaped(name: str) -> None:
    told: dict[str, Any] = {"waits_for": "slot", "principal_id": name, "slot_id": "s"}
    one = Notice("msg_1", "question.asked", "t", "run_1", 1, 5, told, "https://c.example/run_1")
    assert not {"\u202e", "\r"} & set(one.subject() + one.text())
    assert "\n" not in one.subject()


def test_a_mail_address_in_a_question_is_redacted() -> None:
    from contextos.contracts.journal import Draft, genesis, link

    asked = {"slot": {"slotId": "s"}, "actor": {"principal_id": "ann@acme.example"}}
    draft = Draft("slot.asked", "", 5, "runtime", json.dumps(asked).encode(), bytes(16))
    entry = link("t", "run_1", 1, genesis("t", "run_1"), draft)
    event = RunEvent("t", "run_1", "run.waiting", 3, "3.x", 1_793_000_000_000_000, "slot", None)
    found = notice_of("outbox:desk", event, [entry], LINK)
    assert found.told["principal_id"] == "[redacted:email]"
    body = json.loads(found.body())
    assert (body["timestamp"], body["data"]["link"]) == ("2026-10-26T07:33:20Z", "https://c.example/runs/run_1")
    assert found.id != notice_of("outbox:other", event, [entry], LINK).id
