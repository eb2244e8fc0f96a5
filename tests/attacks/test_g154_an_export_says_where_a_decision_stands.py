"""G154: an export says of each run where its decision stands, by the acts of people after its end, and by no other.

The attackers: the holder of all keys of the runtime and of an operator's, who adds acts that the run does not allow,
and the owner of the database, who alters one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from contextos.audit.export import signed_exports
from contextos.audit.exported import Export, read_export
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.record import DecisionRecord
from contextos.contracts.journal import CONTROL
from contextos.deployment.acts.ended_runs import close_decision, reopen_run, resolve_escalation
from contextos.errors import ChainBroken
from contextos.trust.journal.entry_acts import acts_on_end
from tests.export_verifier import Refused, verified
from tests.exports import ATTACKERS, RUNTIME, Opened, raw_keys
from tests.unit.contracts.seeds import completed
from tests.world import OPERATOR, TENANT, TestWorld, open_world, request

SHORT = {"max_tool_calls": 2}


def on_world(path: Path, act: Callable[[TestWorld], Awaitable[None]]) -> None:
    async def go() -> None:
        world = await open_world(path)
        try:
            await act(world)
        finally:
            await world.aclose()

    asyncio.run(go())


async def made(world: TestWorld, amount: int = 900, **limits: Any) -> str:
    body = request(amount, f"req_{amount}_{len(limits)}")
    body["runtime"] |= limits
    return (await world.invoke(body)).run_id


async def exported(world: TestWorld, run_id: str) -> tuple[bytes, Export]:
    (file,) = await signed_exports(world.deployment, TENANT, [run_id])
    verified(file.raw, raw_keys(RUNTIME), Opened.of(file.raw).persons())
    return file.raw, read_export(file.raw, RUNTIME)


def test_each_status_is_in_the_export_and_what_a_person_made_of_it_with_who_and_why(tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        async def stands(run_id: str) -> tuple[Any, ...]:
            decision = (await exported(world, run_id))[1].decisions[run_id]
            return (decision.status, decision.by, decision.reason)

        by, on = world.actor(), (world.deployment, TENANT)
        assert await stands(await made(world, 4200)) == ("DEFERRED", None, None)
        small, short, other = await made(world), await made(world, **SHORT), await made(world, 901, **SHORT)
        assert await stands(small) == ("DECIDED", None, None)
        await close_decision(*on, small, by=by, reason="paid")
        assert await stands(small) == ("CLOSED", OPERATOR, "paid")
        assert await stands(short) == ("ESCALATED", None, None)
        await resolve_escalation(*on, short, "REJECTED", by=by, reason="too late")
        assert await stands(short) == ("REJECTED", OPERATOR, "too late")
        await close_decision(*on, short, by=by, reason="told")
        export = (await exported(world, short))[1]
        assert export.decisions[short].status == "CLOSED"
        assert [one.kind for one in export.acts][-2:] == ["decision.resolved", "decision.closed"]
        await reopen_run(*on, other, by=by, reason="more", to=9)
        assert await stands(other) == ("IN_FLIGHT", None, None)
        await world.deployment.advance(TENANT, other)
        assert await stands(other) == ("DECIDED", None, None)

    on_world(tmp_path, act)


@pytest.mark.parametrize("change", ["resolved", "again", "of_another_record", "reopened", "before"])
def test_no_act_is_in_an_export_that_the_run_does_not_allow(change: str, tmp_path: Path) -> None:
    """The holder of every key signs the act and the file anew; both verifiers refuse it."""

    async def act(world: TestWorld) -> None:
        short, small = await made(world, **SHORT), await made(world)
        await resolve_escalation(world.deployment, TENANT, short, "REJECTED", by=world.actor(), reason="too late")
        await close_decision(world.deployment, TENANT, small, by=world.actor(), reason="paid")
        of_short = change in ("again", "before", "reopened")
        file = Opened.of((await exported(world, short if of_short else small))[0])
        at = next(n for n, one in enumerate(file.acts) if one["kind"].startswith("decision."))
        line = loads(canonical(file.acts[at]))
        said = line["body"]["act"]
        if change == "resolved":
            line["kind"] = said["kind"] = "decision.resolved"
            said["arguments"]["status"] = "REJECTED"
        elif change == "of_another_record":
            said["arguments"]["record_hash"] = "sha256:" + "0" * 64
        elif change == "before":
            file.runs[0].pop()
        line["at_us"] += 1
        if change == "reopened":
            line["kind"] = said["kind"] = "run.reopened"
            said["arguments"] |= {"limit": None, "to": None}
            del said["arguments"]["status"]
        file.acts.insert(at + 1, line)
        file.resealed.update((at, at + 1))
        raw = ATTACKERS[-1].made(file)
        with pytest.raises(ChainBroken):
            read_export(raw, RUNTIME)
        with pytest.raises(Refused):
            verified(raw, raw_keys(RUNTIME), file.persons())

    on_world(tmp_path, act)


def test_nothing_is_exported_where_an_act_about_the_decision_was_altered(tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        run_id = await made(world)
        await close_decision(world.deployment, TENANT, run_id, by=world.actor(), reason="paid")
        store: Any = world.stores.tenant(TENANT)
        before = store.lines

        async def altered(stream: str, *keys: str) -> Any:
            lines = await before(stream, *keys)
            return [
                one._replace(body=one.body.replace(b"paid", b"lost")) if one.kind == "decision.closed" else one
                for one in lines
            ]

        world.stores.tenant = lambda _: store  # type: ignore[method-assign]
        store.lines = altered
        with pytest.raises(ChainBroken):
            await signed_exports(world.deployment, TENANT, [run_id])

    on_world(tmp_path, act)


def test_an_act_says_nothing_of_a_run_that_has_not_ended_or_of_another(tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        small, other = await made(world), await made(world, 901)
        await close_decision(world.deployment, TENANT, small, by=world.actor(), reason="paid")
        store = world.stores.tenant(TENANT)
        lines = [(one, None) for one in await store.lines(CONTROL, small) if one.kind == "decision.closed"]
        assert len(lines) == 1
        export = (await exported(world, small))[1]
        acts: Any = [(lines[0][0], one) for one in export.acts if one.kind == "decision.closed"]
        entries, of_other = await store.read(small), await store.read(other)
        assert acts_on_end(entries, acts) == [lines[0][0]]
        assert acts_on_end(entries[:-1], acts) == acts_on_end(of_other, acts) == []

    on_world(tmp_path, act)


@pytest.mark.parametrize("status", ["IN_FLIGHT", "CLOSED"])
def test_a_record_of_others_has_any_status_and_the_runtime_writes_none_of_these(status: str) -> None:
    record = DecisionRecord.model_validate(completed("decision_record") | {"status": status})
    with pytest.raises(ValidationError, match="no record is written with this status"):
        record.sealed()
