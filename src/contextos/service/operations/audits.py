"""Audits: export runs as a file that others verify with public keys alone, and derive a run again to compare it.

An export is an act of an auditor, which is on record before the file is sent. The file has nothing of another tenant.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import Field, Strict

from contextos.audit.export import export_runs
from contextos.audit.replay import ReplayResult, derived_context, replay
from contextos.audit.verify import chain_fault
from contextos.contracts.entries.bodies import ACT_ARGUMENTS
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.journal import CONTROL, Entry
from contextos.contracts.model import Model, NonEmpty, OpenObject
from contextos.contracts.ports.outside import Keys
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.queries.run_names import run_named
from contextos.errors import ChainBroken, Integrity, InvalidEnvelope, Problem, ReplayMismatch, UnknownSemantics
from contextos.service.operations.operation import (
    OF_RUN,
    READER_ROLES,
    Asked,
    Nothing,
    Operation,
    Paged,
    opened_number,
    page_of,
    sealed_cursor,
)
from contextos.trust.approvals.acts import AUDITOR_ROLE, read_act

MAX_EXPORTED_RUNS: Final = 100
"""Most runs of one export over HTTP; the command line takes more."""
MAX_ACT_READS: Final = 20
"""How often a page of acts reads on, so that lines which are no acts do not fill the time of a request."""
EXPORT_MEDIA_TYPE: Final = "application/jsonl"

_RunText = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]


class ExportDraft(Model):
    """The runs to export, 100 at most: ids of runs, or of the requests that made them."""

    runs: NonEmpty[_RunText]


class ContextQuery(Model):
    """Which context of a run."""

    plan: Annotated[
        Annotated[int, Strict(False), Field(ge=0)] | None,
        Field(description="The number of the plan, from 0; absent, the last one."),
    ] = None


class ReplayDocument(Model):
    """The result of a replay. `equal`: every entry that was derived again is as recorded. If not, `difference` says
    what differs, `entry` is the number of the first entry that does, and the other fields are null.

    `compared` is the number of entries, and `erased` the numbers of those whose bodies were erased and derived again.
    """

    run_id: str
    equal: bool
    difference: str | None
    entry: int | None
    status: str | None
    record_hash: str | None
    compared: int | None
    erased: list[int]

    @classmethod
    def of_result(cls, found: ReplayResult) -> Self:
        return cls(
            run_id=found.run_id,
            equal=True,
            difference=None,
            entry=None,
            status=found.status,
            record_hash=found.record_hash,
            compared=found.compared,
            erased=list(found.missing),
        )

    @classmethod
    def of_fault(cls, run_id: str, fault: Integrity) -> Self:
        return cls(
            run_id=run_id,
            equal=False,
            difference=str(fault),
            entry=fault.seq if isinstance(fault, ReplayMismatch | ChainBroken) else None,
            status=None,
            record_hash=None,
            compared=None,
            erased=[],
        )


async def export(asked: Asked, draft: ExportDraft) -> ActProposal[bytes]:
    """Record the export of these runs as they are now, and return it as JSON lines."""
    if len(draft.runs) > MAX_EXPORTED_RUNS:
        detail = f"an export has at most {MAX_EXPORTED_RUNS} runs"
        raise InvalidEnvelope(Problem("/runs", "too_many", detail, "export fewer at a time"))
    store = asked.app.deployment.ports.stores.tenant(asked.tenant_id)
    run_ids = list(dict.fromkeys([await run_named(store, name) for name in draft.runs]))
    return await export_runs.propose(asked.app.deployment, asked.tenant_id, run_ids, by=asked.by)


class ActLine(Model):
    """An act that a person signed, as `control` records it: its number there, when (Unix microseconds), who, by which
    role (null: none was needed), what (`kind`, `about`, `arguments`), and `kid` of the key that signed it (null: nobody
    signed, which counts in development alone). `fault` says why the line does not verify; then it may be untrue.
    """

    number: int
    at_us: int
    kind: str
    about: str
    actor: str
    role: str | None
    kid: str | None
    arguments: OpenObject
    fault: str | None


class ActLines(Model):
    """A page of acts, newest first. It can be short and not the last."""

    items: list[ActLine]
    cursor: str | None


class ChainSegment(Model):
    """The entries `first` to `last` of a run, which one signature covers: the hash of the last, the key that signed it
    (null: no signature covers them yet), and when they were written (Unix microseconds). `kinds` are theirs in order.
    """

    first: int
    last: int
    at_us: int
    hash: str
    kid: str | None
    kinds: list[str]


class ChainDocument(Model):
    """A page of the chain of a run from its first entry on. `fault` says what does not verify, null if all does, and
    `broken_at` is the number of the entry that it names. `entries` and `head` are those of the whole run.
    """

    run_id: str
    entries: int
    head: str | None
    fault: str | None
    broken_at: int | None
    items: list[ChainSegment]
    cursor: str | None


async def list_acts(asked: Asked, query: Paged) -> ActLines:
    """List what people signed in this tenant, newest first: who, when, what."""
    ports, of = asked.app.deployment.ports, (asked.tenant_id, "acts")
    store = ports.stores.tenant(asked.tenant_id)
    end = opened_number(of, query.cursor) or await store.length(CONTROL)
    found = list[ActLine]()
    for _ in range(MAX_ACT_READS):
        begin = max(0, end - query.limit)
        for line in reversed(await store.read(CONTROL, after=begin, limit=end - begin)):
            if len(found) == query.limit:
                break
            end = line.seq - 1
            if line.kind in ACT_ARGUMENTS:
                found.append(_act_line(line, ports.keys))
        if not end or len(found) == query.limit:
            break
    return ActLines(items=found, cursor=sealed_cursor(of, str(end)) if end else None)


def _act_line(line: Entry, keys: Keys) -> ActLine:
    fields: dict[str, Any] = {"number": line.seq, "at_us": line.at_us, "kind": line.kind, "about": line.key}
    try:
        recorded = read_act(line, keys)
    except ChainBroken as broken:
        unknown: dict[str, Any] = {"actor": line.by, "role": None, "kid": None, "arguments": {}}
        return ActLine(**fields, **unknown, fault=str(broken))
    kid = recorded.key.kid if recorded.key is not None and recorded.assertion.token is not None else None
    act = recorded.act
    return ActLine(**fields, actor=act.actor, role=recorded.role, kid=kid, arguments=act.arguments, fault=None)


async def read_chain(asked: Asked, query: Paged) -> ChainDocument:
    """Read the chain of a run: its entries by the signatures that cover them, and the first that does not verify."""
    ports, of = asked.app.deployment.ports, (asked.tenant_id, "chain", asked.name)
    store = ports.stores.tenant(asked.tenant_id)
    broken = await chain_fault(store, asked.tenant_id, asked.name, ports.keys)
    try:
        stored = await store.read_run(asked.name)
        entries, heads = stored.entries, stored.heads
    except Integrity:
        entries, heads = (), ()
    segments, first = list[ChainSegment](), 0
    for last, kid in [*((head[0], head[2]) for head in heads), (len(entries), None)]:
        if part := entries[first:last]:
            kinds = [entry.kind for entry in part]
            end = part[-1]
            span = {"first": part[0].seq, "last": end.seq, "at_us": end.at_us}
            segments.append(ChainSegment(**span, hash=end.hash, kid=kid, kinds=kinds))
            first = last
    page, cursor = page_of(segments, of, query.limit, query.cursor)
    return ChainDocument(
        run_id=asked.name,
        entries=len(entries),
        head=entries[-1].hash if entries else None,
        fault=None if broken is None else str(broken),
        broken_at=broken.seq if isinstance(broken, ChainBroken) and broken.stream == asked.name else None,
        items=list(page),
        cursor=cursor,
    )


async def replay_run(asked: Asked, _nothing: Nothing) -> ReplayDocument:
    """Derive a run that has ended again from its journal, and compare. Nothing is recorded, and no tool is called."""
    try:
        return ReplayDocument.of_result(await replay(asked.app.deployment, asked.tenant_id, asked.name))
    except (ChainBroken, ReplayMismatch, UnknownSemantics) as fault:
        return ReplayDocument.of_fault(asked.name, fault)


async def read_context(asked: Asked, query: ContextQuery) -> CompiledContext:
    """Read the context that a run compiled, with its text. It is derived again and equals the recorded digests."""
    key = None if query.plan is None else str(query.plan)
    return await derived_context(asked.app.deployment, asked.tenant_id, asked.name, key)


AUDIT_OPERATIONS: Final = (
    Operation(
        "exports.make",
        ("POST", "/exports"),
        (AUDITOR_ROLE,),
        ExportDraft,
        bytes,
        export,
        signs="export these runs as they are now",
        is_long=True,
        media_type=EXPORT_MEDIA_TYPE,
    ),
    Operation("acts.list", ("GET", "/acts"), READER_ROLES, Paged, ActLines, list_acts),
    Operation("runs.chain", ("GET", "/runs/{run}/chain"), (), Paged, ChainDocument, read_chain, about=OF_RUN),
    Operation(
        "runs.replay",
        ("POST", "/runs/{run}/replay"),
        (),
        Nothing,
        ReplayDocument,
        replay_run,
        about=OF_RUN,
        is_long=True,
        exit_code=lambda replayed: 0 if replayed.equal else Integrity.exit_code,
    ),
    Operation(
        "runs.context",
        ("GET", "/runs/{run}/context"),
        (),
        ContextQuery,
        CompiledContext,
        read_context,
        about=OF_RUN,
        is_long=True,
    ),
)
