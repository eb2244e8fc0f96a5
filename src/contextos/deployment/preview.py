"""Preview: compile a request as a run would now, without making a run; and see whether an open question still holds.

The loop writes to a journal that never commits and is stopped at the step after it compiled the context. So nothing is
stored and no tool is called. A slot's automatic selection is looked up and not recorded; a slot that a user fills
cannot be previewed. A question is checked in the same way: the loop goes on from the journal of its run up to where the
run waits, and then looks up the values again that the answer will be bound to. To do so it can ask a tool to read
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contextos.action.gateway import idempotency
from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS
from contextos.contracts.encoding.codec import parse
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Batch, Entry, Parked
from contextos.contracts.ports.seams import Ask
from contextos.contracts.ports.storage import Store, Stores
from contextos.deployment.deployment import Deployment
from contextos.errors import Integrity, Unavailable, UnknownSemantics
from contextos.runtime import state_machine
from contextos.runtime.admission import request_fingerprint
from contextos.runtime.loop import invoke_agent
from contextos.runtime.state_machine import transition
from contextos.trust.approvals.gate_approvals import CheckQuestion, VoidQuestion
from contextos.trust.journal.chain import refuse_unknown_semantics
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.live_driver import LiveDriver


@dataclass(frozen=True, slots=True)
class Preview:
    """The compiled context that a request would get, or the failures that prevent it.

    `tools` are those that an agent could call if the request opened a session; None if an agent does not choose the
    calls.
    """

    compiled: CompiledContext | None
    failures: tuple[Failure, ...] = ()
    tools: tuple[str, ...] | None = None


class _Stop(Exception):
    """A signal to `preview`, not an error."""

    def __init__(self, result: Preview) -> None:
        self.result = result


class _Draft(RunJournal):
    """A journal that stops its driver at the first step after the context is compiled, or at the first commit."""

    compiled: CompiledContext | None = None

    def keep(self, _: str, compiled: dict[str, Any]) -> None:
        """Keep the compiled context for the preview."""
        self.compiled = CompiledContext.model_validate(compiled)

    def _stop_compiled(self, tools: tuple[str, ...] | None = None) -> None:
        if self.compiled is not None:
            raise _Stop(Preview(self.compiled, tools=tools))

    def derive(self, kind: str, key: str, body: Any) -> None:
        self._stop_compiled(tuple(body["tools"]) if kind == "session.opened" else None)
        super().derive(kind, key, body)

    async def record(self, kind: str, key: str, request: Any, call: Ask, *, by: str = "runtime") -> Any:
        self._stop_compiled()
        return await super().record(kind, key, request, call, by=by)

    async def record_found(self, kind: str, key: str, look: Ask) -> Any:
        self._stop_compiled()
        return await super().record_found(kind, key, look)

    async def commit(self, **_: Any) -> None:
        self._stop_compiled()
        if self.state == "choosing":
            question = [entry.body for entry in self.log() if entry.kind == "slot.asked"][-1]
            raise _Stop(Preview(None, (_unfilled_slot(question["slot"]["slotId"], question["actor"]["principal_id"]),)))
        records = [entry.body for entry in self.log() if entry.kind == "record.revised"]
        if records:
            raise _Stop(Preview(None, _failures(records[-1]["rationale"]["failures"])))

    def hand_over(self) -> None:
        """Do nothing: another driver never continues a draft."""


class _UnrecordedStore:
    """One tenant's store that accepts every commit and stores none."""

    def __init__(self, stored: Store) -> None:
        self._stored = stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stored, name)

    async def commit(self, batch: Batch) -> None:
        """Store nothing."""


class _UnrecordedStores:
    """The stores of a deployment, whose tenants store nothing."""

    def __init__(self, stored: Stores) -> None:
        self._stored = stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stored, name)

    def tenant(self, tenant_id: str) -> _UnrecordedStore:
        return _UnrecordedStore(self._stored.tenant(tenant_id))


async def preview(app: Deployment, raw: bytes | str) -> Preview:
    """Compile the context of a request as a run would now, but without the texts of its attachments, which are not
    fetched. No run is made and nothing is stored.

    Raises:
        InvalidInput: the request is malformed.
        Unavailable: a dependency did not answer.
    """
    unrecorded: Any = _UnrecordedStores(app.ports.stores)
    # A separate deployment, because it believes that its commits are stored, and they are not.
    app = Deployment(replace(app.ports, stores=unrecorded), app.config)
    request = parse(InvokeRequest, raw)
    request, fields = await app.redacted(request, request.to_json())
    ports = app.ports
    store = ports.stores.tenant(request.tenant_id)
    live = LiveDriver(
        store=store,
        clock=ports.clock,
        entropy=ports.entropy,
        keys=ports.keys,
        owner=ports.owner,
        lease_ttl_us=app.config.lease_ttl_us,
        lease_version=0,
    )
    journal = _Draft(request.tenant_id, f"run_{ports.entropy.take(8).hex()}", (), transition, state_machine.START, live)
    try:
        environment = app.environment(request.tenant_id, journal)
        slots = environment.sources.slots
        sources = replace(environment.sources, slots=slots.rehearsed() if slots else None)
        facts = replace(environment.deployment, attachments=False)
        environment = replace(environment, sources=sources, deployment=facts, at_compiled=journal.keep)
        await invoke_agent(request, fields, request_fingerprint(fields), environment)
    except _Stop as stopped:
        return stopped.result
    raise AssertionError("the loop ends with a commit")


class _AtQuestion(Exception):
    """A signal to `void_question`, not an error."""

    def __init__(self, check: CheckQuestion) -> None:
        self.check = check


async def void_question(
    app: Deployment, tenant_id: str, entries: Sequence[Entry], *, outside: bool = True
) -> VoidQuestion | None:
    """Return why an answer to the open question at the end of a verified journal would not count, or None.

    The run makes the same check before it uses an answer, and checks the person too. A run that does not wait in this
    process is replayed up to its question. Nothing is recorded, so no credential is obtained: evidence of a tool that
    needs a credential is not read again. Without `outside`, evidence of a tool that leaves the machine is not read
    again either. A value that cannot be looked up now does not void the question: the run looks again. Nor does a
    version of the run that this runtime does not know: a worker of that version judges the answer.

    Raises:
        Integrity: the journal differs from what the loop derives, or the run does not wait for an answer.
    """
    try:
        refuse_unknown_semantics(entries)
    except UnknownSemantics:
        return None
    body = read_body(entries[0])
    if body is None:
        return VoidQuestion("the request was erased, so the run cannot go on")
    try:
        check = app.at_question(tenant_id, entries) or await _replay_to_question(app, tenant_id, entries, body)
        return await _void_by_restore(app.ports.stores.tenant(tenant_id), entries) or await check(outside)
    except (Unavailable, Parked):
        return None


async def _replay_to_question(
    app: Deployment, tenant_id: str, entries: Sequence[Entry], body: Mapping[str, Any]
) -> CheckQuestion:
    """Return the check of whether the question at the end of a run still holds. Raises `Integrity`, as
    `void_question`.
    """
    store: Any = _UnrecordedStore(app.ports.stores.tenant(tenant_id))
    ports, run_id = app.ports, entries[0].run
    live = LiveDriver(
        store=store,
        clock=ports.clock,
        entropy=ports.entropy,
        keys=ports.keys,
        owner=ports.owner,
        lease_ttl_us=app.config.lease_ttl_us,
    )
    journal = RunJournal(tenant_id, run_id, entries, transition, state_machine.START, live)

    def stop(check: CheckQuestion) -> None:
        raise _AtQuestion(check)

    environment = app.environment(tenant_id, journal)
    environment = replace(environment, ports=replace(environment.ports, store=store), at_question=stop)
    try:
        fields = body["request"]
        await invoke_agent(parse(InvokeRequest, fields), fields, body["fingerprint"], environment)
    except _AtQuestion as signal:
        return signal.check
    raise Integrity(f"`{run_id}` does not wait for an answer; verify it")


async def _void_by_restore(store: Store, entries: Sequence[Entry]) -> VoidQuestion | None:
    """Return a void question if the store was restored after the last question of a journal was asked, or None."""
    question_key = [entry.key for entry in entries if entry.kind == "approval.asked"][-1]
    look_up = [entry for entry in entries if (entry.kind, entry.key) == ("act.looked_up", f"before/{question_key}")][-1]
    epoch_body = read_body(look_up)
    if epoch_body is None or idempotency.is_in_epoch(epoch_body, await EPOCHS.one(store, EPOCH_KEY)):
        return None
    return VoidQuestion("the store was restored from a backup since the question was asked")


def _unfilled_slot(slot_id: str, principal_id: str) -> Failure:
    detail = f"`{principal_id}` fills slot `{slot_id}`, and the compiled context depends on it"
    remedy = "invoke the request and answer it with `contextos slots answer`"
    return Failure(code="missing_evidence", detail=f"{detail}; {remedy}")


def _failures(documents: Sequence[dict[str, Any]]) -> tuple[Failure, ...]:
    return tuple(Failure.model_validate(document) for document in documents)
