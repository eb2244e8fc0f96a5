"""B12, C16: an end that no signed head covers answers nobody, and only an operator's sealed act reopens a run.

The attackers are a writer of the database without a key, and one who stole the key that signs heads.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Batch, Draft, Entry, link
from contextos.contracts.ports.storage import Store
from contextos.deployment.queries.checked_run import read_checked
from contextos.errors import ChainBroken
from contextos.trust.journal.chain import append
from contextos.trust.journal.signed_heads import head_payload
from tests.attacks.test_b12_an_escalated_run_has_a_way_on import bounded, on_world
from tests.world import TENANT, TestWorld, request

ANSWER = {"by": "user_operator_5", "reason": "the plan needed one more call", "limit": "max_tool_calls", "to": 9}


def reopening(entries: list[Entry]) -> Entry:
    """The entry that an operator's act would append."""
    at_us = entries[-1].at_us
    return append(entries, "run.reopened", "", by="user_operator_5", answer=ANSWER, at_us=at_us, salt=b"s" * 16)


async def add_copies(store: Store, run_id: str, entries: list[Entry], copied: list[tuple[Entry, bytes]]) -> None:
    """Append copies of these entries with these bodies, chained and without a signed head."""
    before = len(entries)
    for one, body in copied:
        draft = Draft(one.kind, one.key, entries[-1].at_us, one.by, body, b"s" * 16)
        entries.append(link(TENANT, run_id, len(entries) + 1, entries[-1].hash, draft))
    await store.commit(Batch(run=run_id, entries=tuple(entries[before:])))


@pytest.mark.parametrize("reopens", [False, True])
def test_a_waiting_or_ended_run_that_somebody_ended_otherwise_answers_nothing(
    reopens: bool, stores: str, tmp_path: Path
) -> None:
    async def attack(world: TestWorld) -> None:
        done = await world.invoke(request(900, "req_small"))
        body = bounded(900, "req_short", max_tool_calls=2) if reopens else request(4200, "req_large")
        view = await world.invoke(body)
        store = world.stores.tenant(TENANT)
        tail = [(one, one.body or b"") for one in (await store.read(done.run_id))[-6:]]
        entries = list(await store.read(view.run_id))
        if reopens:
            forged = reopening(entries)
            tail = [(forged, forged.body or b""), *tail]
        await add_copies(store, view.run_id, entries, tail)
        with pytest.raises(ChainBroken):
            await world.invoke(body)
        with pytest.raises(ChainBroken):
            await world.deployment.advance(TENANT, view.run_id)
        assert (await read_checked(store, TENANT, world.keys, view.run_id)).fault
        assert len(world.refunds()) == 1

    on_world(tmp_path, stores, attack)


def test_who_holds_the_key_of_heads_reopens_no_run(stores: str, tmp_path: Path) -> None:
    async def attack(world: TestWorld) -> None:
        view = await world.invoke(bounded(900, "req_short", max_tool_calls=2))
        store = world.stores.tenant(TENANT)
        entries = list(await store.read(view.run_id))
        forged = reopening(entries)
        kid, signature = world.keys.sign("head", head_payload(TENANT, view.run_id, forged.seq, forged.hash))
        reached = {"run": view.run_id, "entries": forged.seq, "head": forged.hash}
        line = Draft("run.reopened", view.run_id, forged.at_us, "runtime", canonical(reached), b"s" * 16)
        signed = (kid, signature.hex())
        batch = Batch(run=view.run_id, entries=(forged,), shared=(("index", line),), wake_at_us=1, signature=signed)
        await store.commit(batch)
        for check in (
            verify_tenant(store, TENANT, world.keys),
            world.deployment.advance(TENANT, view.run_id),
            replay(world.deployment, TENANT, view.run_id),
        ):
            with pytest.raises(ChainBroken, match="no act reopened the run"):
                await check
        assert world.refunds() == []

    on_world(tmp_path, stores, attack)
