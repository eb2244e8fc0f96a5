"""What auditors do: verify a tenant's journal and replay a run. `exports` hands both to those who need not trust us.

Replay drives the same loop from the tape: no adapter, no directory, no graph and no clock is within its reach, and what
it derives is compared byte for byte. Source: shared/design/journal.md; contextos-facts.md, section 17.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NoReturn

import orjson

from contextos.contracts.codec import parse
from contextos.contracts.journal import CONTROL, INDEX, Entry, Parked, WitnessedHead
from contextos.contracts.ports import Keys, Store
from contextos.contracts.run import InvokeRequest
from contextos.decision import machine
from contextos.deployment import Deployment, transition
from contextos.errors import ChainBroken, Integrity, NotFound, ReplayMismatch
from contextos.runtime import invoke_agent
from contextos.seams import World
from contextos.trust.chain import refuse_unknown_semantics, verify_chain
from contextos.trust.heads import read_signed, verify_heads
from contextos.trust.ledger import RunJournal
from contextos.witnessing import verify_witnessed


@dataclass(frozen=True, slots=True)
class Verified:
    """A stream that verifies: how long it is, its head, and which bodies were erased."""

    stream: str
    entries: int
    head: str
    erased: tuple[int, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay that came to the recorded end. `missing` are erased bodies that could be derived again."""

    run_id: str
    status: str
    record_hash: str
    compared: int
    missing: tuple[int, ...]


class Unreachable:
    """Stands where the outside was. Whatever a replay reaches for, it gets this error instead."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Integrity(f"a replay reached for `{name}` of the outside; that is a defect of the runtime")


NOWHERE: Final[Any] = Unreachable()


async def verify_tenant(
    store: Store, tenant_id: str, keys: Keys, witnessed: Sequence[WitnessedHead] = ()
) -> list[Verified]:
    """Verify the index, every run it names, every signed head and, where there is a witness, all that it was told.

    Without `witnessed` it is not provable that the index and `control` were not cut.

    Raises:
        ChainBroken: naming the entry.
    """
    # What must be covered is read before what covers it: runs go on while an auditor looks.
    leased = [run_id async for run_id in _leased(store)]
    index = await store.read(INDEX)
    seen = [_verified(tenant_id, INDEX, index)]
    runs = {orjson.loads(line.body or b"{}").get("run", line.key) for line in index}
    closed = {line.key: orjson.loads(line.body) for line in index if line.kind == "run.closed" and line.body}
    for run_id in leased:
        if run_id not in runs:
            missing = f"is missing: `{run_id}` was driven and the index does not name it"
            raise ChainBroken(INDEX, len(index) + 1, missing)
    for run_id in sorted(runs):
        entries, heads = await read_signed(store, run_id)
        seen.append(_verified(tenant_id, run_id, entries, closed.get(run_id)))
        verify_heads(tenant_id, run_id, entries, heads, keys)
    control = await store.read(CONTROL)
    seen.append(_verified(tenant_id, CONTROL, control))
    verify_witnessed(tenant_id, {INDEX: index, CONTROL: control}, witnessed, keys)
    return seen


async def _leased(store: Store) -> AsyncIterator[str]:
    """Every run that was ever driven: its first commit leaves a lease, and an index line."""
    after = ""
    while page := await store.scan("leases", after=after):
        for document in page:
            yield document.key
        after = page[-1].key


def _verified(
    tenant_id: str, stream: str, entries: Sequence[Entry], closed: Mapping[str, Any] | None = None
) -> Verified:
    head = verify_chain(tenant_id, stream, entries)
    if closed and (closed["entries"], closed["head"]) != (len(entries), head):
        raise ChainBroken(
            stream, len(entries) + 1, f"is missing: the index closed the run at {closed['entries']} entries"
        )
    if stream.startswith("run_") and not entries:
        raise ChainBroken(stream, 1, "is missing: the index names the run")
    ended = bool(entries) and entries[-1].kind == "run.ended"
    return Verified(stream, len(entries), head, tuple(e.seq for e in entries if e.body is None), ended)


async def replay(app: Deployment, tenant_id: str, run_id: str, entries: Sequence[Entry] | None = None) -> Replayed:
    """Drive the loop from the tape and compare everything it derives, the DecisionRecord included.

    Raises:
        ReplayMismatch: the first entry that differs, or whose erased body cannot be derived.
        UnknownSemantics: the run was made under rules that this runtime does not know.
    """
    tape = tuple(entries if entries is not None else await app.ports.stores.tenant(tenant_id).read(run_id))
    if not tape:
        raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
    return await replay_tape(tape, partial(app.world, tenant_id))


async def replay_tape(tape: Sequence[Entry], world_of: Callable[[RunJournal], World]) -> Replayed:
    """`replay` of the entries of one run, with artifacts and estimator from the world that is given. Raises as it."""
    tenant_id, run_id = tape[0].tenant, tape[0].run
    verify_chain(tenant_id, run_id, tape)
    refuse_unknown_semantics(tape)
    if tape[0].body is None:
        raise ReplayMismatch(1, tape[0].kind, "its body was erased, and what was asked cannot be derived")
    received = orjson.loads(tape[0].body)["answer"]
    journal = RunJournal(tenant_id, run_id, tape, transition, machine.START, None)
    world = replace(
        world_of(journal), clock=NOWHERE, keys=NOWHERE, directory=NOWHERE, knowledge=NOWHERE, memory=NOWHERE,
        slots=NOWHERE, adapters={}, store=NOWHERE,
    )  # fmt: skip
    try:
        record = await invoke_agent(parse(InvokeRequest, received["request"]), received["fingerprint"], world)
    except Parked:
        raise ReplayMismatch(len(tape) + 1, tape[-1].kind, "the run has not ended; replay it when it has") from None
    if journal.on_tape:
        raise ReplayMismatch(len(journal.log()) + 1, tape[-1].kind, "the tape goes on after the run ended")
    return Replayed(run_id, record.status, record.record_hash or "", len(tape), tuple(journal.missing))
