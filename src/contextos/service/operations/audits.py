"""Audits: export runs as a file that others verify with public keys alone, and derive a run again to compare it.

An export is an act of an auditor, which is on record before the file is sent. The file has nothing of another tenant.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, Strict

from contextos.audit.export import export_runs
from contextos.audit.replay import ReplayResult, derived_context, replay
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.model import Model, NonEmpty
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.queries.run_names import run_named
from contextos.errors import ChainBroken, Integrity, InvalidEnvelope, Problem, ReplayMismatch, UnknownSemantics
from contextos.service.operations.operation import OF_RUN, Asked, Nothing, Operation
from contextos.trust.approvals.acts import AUDITOR_ROLE

MAX_EXPORTED_RUNS: Final = 100
"""Most runs of one export over HTTP; the command line takes more."""
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
