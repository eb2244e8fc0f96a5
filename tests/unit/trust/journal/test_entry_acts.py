"""A missing body and a reopening are accounted for by the sealed act of just this entry, and by nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextos.contracts.journal import CONTROL, ENTRY_ERASED, Batch, Draft, Entry, erasure_key, genesis, link
from contextos.errors import ChainBroken
from contextos.store.memory.stores import MemoryStores
from contextos.trust.approvals.acts import sealed_act
from contextos.trust.journal.chain import append
from contextos.trust.journal.entry_acts import erasure_of, require_acts
from contextos.trust.seal import KeyRing

KEYS = KeyRing.from_seed(b"k" * 32)
OTHER_KEYS = KeyRing.from_seed(b"o" * 32)


def stream(run: str = "run_a") -> list[Entry]:
    entries: list[Entry] = []
    for seq in (1, 2):
        head = entries[-1].hash if entries else genesis("acme", run)
        entries.append(link("acme", run, seq, head, Draft("run.context", "", seq, "runtime", b"{}", bytes(16))))
    return entries


def record(entry: Entry, *, keys: KeyRing = KEYS, kind: str = ENTRY_ERASED) -> Draft:
    """The act that erases `entry`, put where the second entry of `run_a` is erased."""
    arguments = {**erasure_of(entry), "reason": "the law"}
    act = {"tenant_id": "acme", "kind": kind, "actor": "dpo", "arguments": arguments, "expected": 2}
    body = {"act": act, "role": "operator", "assertion": {"kind": "unsafe_local"}, "key": None}
    return sealed_act("acme", Draft(ENTRY_ERASED, erasure_key("run_a", 2), 1, "dpo", b"", bytes(16)), body, keys)


async def gaps(said: Draft | None) -> tuple[int, ...]:
    """The accounted gaps of a stream whose second body was erased by the act `said`."""
    stores, entries = MemoryStores(), stream()
    store = stores.tenant("acme")
    await store.commit(Batch("run_a", tuple(entries)))
    if said is not None:
        await stores.erase("acme", "run_a", 2, said)
    emptied = [entries[0], entries[1]._replace(body=None, salt=None)]
    return await require_acts(store, emptied, KEYS)


def test_a_sealed_act_accounts_for_its_entry() -> None:
    assert asyncio.run(gaps(record(stream()[1]))) == (2,)


@pytest.mark.parametrize(
    "said",
    [
        None,
        record(stream()[0]),
        record(stream("run_b")[1]),
        record(stream()[1], keys=OTHER_KEYS),
        record(stream()[1], kind="run.retried"),
        record(stream()[1])._replace(body=b"{}"),
    ],
)
def test_nothing_else_accounts_for_it(said: Draft | None) -> None:
    with pytest.raises(ChainBroken, match=r"entry 2: rests on .* erased its body"):
        asyncio.run(gaps(said))


GRANTED = {"reason": "one more call", "limit": "max_tool_calls", "to": 9}


async def reopened(*, answer: dict[str, Any] | None = None, keys: KeyRing = KEYS, **said: Any) -> tuple[int, ...]:
    """Check a run that `op` reopened after two entries, where `said` of the act differs; `answer` is in the run."""
    stores, entries = MemoryStores(), stream()
    entries.append(
        append(entries, "run.reopened", "", by="op", answer=answer or {"by": "op", **GRANTED}, at_us=3, salt=bytes(16))
    )
    arguments = {"run": "run_a", "record_hash": "sha256:00", **GRANTED, **said.pop("arguments", {})}
    act = {"tenant_id": "acme", "kind": "run.reopened", "actor": "op", "arguments": arguments, "expected": 2, **said}
    body = {"act": act, "role": "operator", "assertion": {"kind": "unsafe_local"}, "key": None}
    draft = sealed_act("acme", Draft("run.reopened", "run_a", 3, act["actor"], b"", bytes(16)), body, keys)
    await stores.tenant("acme").commit(Batch("run_a", tuple(entries), shared=((CONTROL, draft),)))
    return await require_acts(stores.tenant("acme"), entries, KEYS)


def test_a_sealed_act_accounts_for_a_reopening() -> None:
    assert asyncio.run(reopened()) == ()


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"arguments": {"to": 8}}, id="another limit"),
        pytest.param({"arguments": {"limit": "total_tokens"}}, id="a limit of another kind"),
        pytest.param({"arguments": {"run": "run_b"}}, id="another run"),
        pytest.param({"expected": 1}, id="another expected entry"),
        pytest.param({"actor": "somebody"}, id="another actor"),
        pytest.param({"keys": OTHER_KEYS}, id="another key"),
        pytest.param({"answer": {"by": "op", **GRANTED, "to": 99}}, id="an answer with another limit"),
        pytest.param({"answer": {"by": "somebody", **GRANTED}}, id="an answer by another"),
    ],
)
def test_nothing_else_reopens_a_run(how: dict[str, Any]) -> None:
    with pytest.raises(ChainBroken, match="entry 3: rests on an act that is missing: no act reopened the run"):
        asyncio.run(reopened(**how))


def test_a_question_is_asked_again_by_a_sealed_act_alone() -> None:
    async def asked_again() -> None:
        store, entries = MemoryStores().tenant("acme"), stream()
        answer = {"by": "op", "reason": "it was late"}
        entries.append(append(entries, "approval.reasked", "", by="op", answer=answer, at_us=3, salt=bytes(16)))
        await store.commit(Batch("run_a", tuple(entries)))
        await require_acts(store, entries, KEYS)

    with pytest.raises(
        ChainBroken, match="entry 3: rests on an act that is missing: no act had a question asked again"
    ):
        asyncio.run(asked_again())
