"""Preview: compile a request as a run would now, without making a run.

The loop writes to a journal that never commits and is stopped at the step after it compiled the context. So nothing is
stored and no tool is called. A slot's automatic selection is looked up and not recorded; a slot that a user fills
cannot be previewed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Batch, Write
from contextos.contracts.ports.seams import Ask
from contextos.contracts.ports.storage import Store, Stores
from contextos.operations.deployment import Deployment
from contextos.runtime import state_machine
from contextos.runtime.admission import request_fingerprint
from contextos.runtime.loop import invoke_agent
from contextos.runtime.redaction import redacted_request
from contextos.runtime.state_machine import transition
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.live_driver import LiveDriver


@dataclass(frozen=True, slots=True)
class Preview:
    """The compiled context that a request would get, or the failures that prevent it.

    `tools` are those that an agent could call if the request opened a session; None if its calls are not an agent's.
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

    def _stop_compiled(self, tools: tuple[str, ...] | None = None) -> None:
        if self.compiled is not None:
            raise _Stop(Preview(self.compiled, tools=tools))

    def derive(self, kind: str, key: str, body: Any) -> None:
        self._stop_compiled(tuple(body["tools"]) if kind == "session.opened" else None)
        super().derive(kind, key, body)
        if kind == "context.compiled":
            self.compiled = CompiledContext.model_validate(body)

    async def record(self, kind: str, key: str, request: Any, call: Ask, *, by: str = "runtime") -> Any:
        self._stop_compiled()
        return await super().record(kind, key, request, call, by=by)

    async def record_found(self, kind: str, key: str, look: Ask) -> Any:
        self._stop_compiled()
        return await super().record_found(kind, key, look)

    async def commit(self, *, wake_at_us: int | None = None, blocked: Sequence[Write] | None = None) -> None:  # noqa: ARG002 - overrides the journal's method
        self._stop_compiled()
        if self.state == "choosing":
            question = [entry.body for entry in self.log() if entry.kind == "slot.asked"][-1]
            raise _Stop(Preview(None, (_unfilled(question["slot"]["slotId"], question["actor"]["principal_id"]),)))
        records = [entry.body for entry in self.log() if entry.kind == "record.revised"]
        if records:
            raise _Stop(Preview(None, _failures(records[-1]["rationale"]["failures"])))

    def hand_over(self) -> None:
        """A draft is never continued by another driver."""


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
    # A deployment of its own: what it believes to be stored is not.
    app = Deployment(replace(app.ports, stores=unrecorded), app.config)
    request = parse(InvokeRequest, raw)
    request, fields = await redacted_request(request, request.to_json(), app.catalog(request.tenant_id))
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
        rehearsed = replace(environment.sources, slots=slots.rehearsed() if slots else None)
        facts = replace(environment.deployment, attachments=False)
        environment = replace(environment, sources=rehearsed, deployment=facts)
        await invoke_agent(request, request_fingerprint(fields), environment)
    except _Stop as stopped:
        return stopped.result
    raise AssertionError("the loop ends with a commit")


def _unfilled(slot_id: str, principal_id: str) -> Failure:
    detail = f"`{principal_id}` fills slot `{slot_id}`, and the compiled context depends on it"
    remedy = "invoke the request and answer it with `contextos slots answer`"
    return Failure(code="missing_evidence", detail=f"{detail}; {remedy}")


def _failures(documents: Sequence[dict[str, Any]]) -> tuple[Failure, ...]:
    return tuple(Failure.model_validate(one) for one in documents)
