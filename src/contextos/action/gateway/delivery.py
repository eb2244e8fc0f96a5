"""Hold what sending one call needs: ports, the record of an attempt, and the credential that the call is sent with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, Protocol

from contextos.action.barrier import Barrier
from contextos.action.breaker_adapter import circuit_open_until_us, expect_call
from contextos.action.budget import call_time
from contextos.action.content.kept_content import WrittenContent
from contextos.action.quarantine import OpenIncidents, incident, incidents_sought
from contextos.action.secret_arguments import SECRET_LOST, SecretArguments
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import DRIFT_INCIDENTS, BucketEnd, CountedEffect, OperationDocument
from contextos.contracts.entries.account import Usage
from contextos.contracts.envelopes.tool import CallContext, ToolCallEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Parked, Write
from contextos.contracts.model import final_fields
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.outside import Adapter, Clock
from contextos.contracts.ports.seams import Journal, ProvedCancels, RecordRequest
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import Capability, RunScope
from contextos.errors import CircuitOpen, Problem, Unavailable

TOKEN_LOST: Final = Failure(code="tool_failed", detail="the credential of this attempt ended with the process")
"""The failure of an attempt that another process began: its token was never recorded, so it cannot be sent."""
CIRCUIT_OPEN: Final = Failure(code="tool_failed", detail="the circuit of the tool is open; no credential was asked for")

Cleanse = Callable[[Any], tuple[Any, tuple[str, ...], tuple[Problem, ...]]]
"""output -> (redacted output, redaction rules applied, problems with unsafe text)."""

OperationFault = Callable[[str, StoredDocument[OperationDocument]], Awaitable[str | None]]
"""(document key, row of the idempotency table) -> why the row is not believed, or None."""


UnprovedDenials = Callable[[str], Awaitable[int | None]]
"""(denial key) -> None if a person denied the operation, else how many stored denials of it do not count."""


class EffectCounter(Protocol):
    """The effects that a tenant's history buckets count, each proved by a signed entry of this runtime."""

    async def read(self, bucket: str, since_us: int, *, limit: int) -> tuple[BucketEnd, Sequence[CountedEffect] | None]:
        """Return where a bucket ends, and its effects since `since_us` (Unix microseconds); None for more than `limit`.

        Raises `Integrity` if an effect is missing, moved, made up or altered.
        """
        ...

    def count(
        self, bucket: str, end: BucketEnd, operation: str, at_us: int, numbers: Mapping[str, int | float]
    ) -> tuple[Write, ...]:
        """Build the writes that count one more effect. They fail the commit if the bucket does not end at `end`."""
        ...


@final_fields
class Exchanged:
    """The result of exchanging an identity for a credential: the answer that is recorded, and the secret token.

    `outage` says why the issuer did not answer; it is None if the issuer answered.
    """

    answer: Mapping[str, Any]
    token: str = field(default="", repr=False)
    outage: str = ""


Exchange = Callable[[Capability, str, int], Awaitable[Exchanged]]
"""(tool, tool call id, timeout in ms) -> the credential of one attempt, or why there is none. A failed issuer is part
of the result and not an exception.
"""

CheckSettlement = Callable[[str, ToolCallEnvelope, Mapping[str, Any]], Awaitable[str | None]]
"""(key, tool call id, recorded settlement) -> why the settlement is refused, or None."""


@final_fields
class DispatchPorts:
    """The ports and functions that are needed to send calls. A replay has no adapters and needs none.

    `headers` takes a tool call id and whether the adapter is external. `hop_token` takes the tool, the id of its call,
    the audience and its tenant. `spent` returns what the run has used so far. `recheck` takes the key and the tool of
    an attempt. It returns a failure or None (identities and pinned artifacts are as when the run was admitted), and a
    check that fails the commit if the active policies change. `exchange` obtains the credential of one attempt.
    `quarantine_key` returns the key for the version of a capability that the run is pinned to.
    """

    store: Store
    clock: Clock
    adapters: Mapping[str, Adapter]
    headers: Callable[[str, bool], dict[str, str]]
    claim_token: Callable[[Capability, str], str]
    hop_token: Callable[[Capability, str, str, str], str]
    cleanse: Cleanse
    cleanse_text: Callable[[Any], Any]
    spent: Callable[[], Usage]
    check_settlement: CheckSettlement
    operation_fault: OperationFault
    unproved_denials: UnprovedDenials
    effects: EffectCounter
    written: WrittenContent
    proved_cancels: ProvedCancels
    recheck: Callable[[str, Capability], Awaitable[tuple[Failure | None, Write]]]
    exchange: Exchange
    quarantine_key: Callable[[Capability], str]
    open_incidents: OpenIncidents
    secrets: SecretArguments
    barrier: Barrier

    async def incidents(self, quarantine_key: str) -> Sequence[str]:
        """Return the open incidents. If the last look at the store found none, the store is not read again."""
        answer = await self.barrier.found(prefixes=incidents_sought(quarantine_key))
        incident_keys = answer.keys(DRIFT_INCIDENTS, quarantine_key)
        return await self.open_incidents(quarantine_key) if incident_keys else ()


def dispatching(call: ToolCall) -> dict[str, Any]:
    """Return the body of `tool.dispatching`: what is recorded of the current attempt before it is sent."""
    return {
        "envelope": call.envelope.stated(),
        "mode": call.mode,
        "reserved_cents": call.capability.definition.cost_cents,
        "not_after_us": call.not_after_us,
        **({"approval_id": call.approval.approval_id} if call.approval else {}),
        **({"credentials": list(credentials)} if (credentials := call.capability.definition.auth.credentials) else {}),
    }


def unsent(call: ToolCall, outcome: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Return the outcome of an attempt that is not sent, because it is `lacking` something."""
    lacking = call.lacking
    assert lacking is not None, "something is lacking"
    if call.mode != "send":
        return outcome("unknown", None, lacking.detail, code=lacking.code)
    if lacking == CIRCUIT_OPEN:
        refused = outcome("not_sent", None, lacking.detail, code=CircuitOpen.code)
        return {**refused, "retry_at_us": call.retry_at_us}
    return outcome("not_sent", None, lacking.detail, code=lacking.code)


def take_secrets(call: ToolCall, secrets: SecretArguments) -> dict[str, str] | None:
    """Return the secret arguments of the call, by name. None if this process does not have them; it is then noted
    as `lacking`, unless the current attempt sends no arguments.
    """
    values = secrets.values(call.envelope.run_id, call.envelope.args) if call.has_marks else {}
    if values is None and call.can_send:
        call.lacking = SECRET_LOST
    return values


def waits_for_other(call: ToolCall, secrets: Mapping[str, str] | None) -> bool:
    """Return whether this attempt has to wait, because the process that began it can still send it. A keyed call whose
    secrets this process has does not wait: it is sent again at once.
    """
    sends_again = call.capability.definition.idempotency.strategy == "keyed" and secrets is not None
    return call.recovered and call.writes and not sends_again


def incident_of(call: ToolCall, ports: DispatchPorts, at_us: int) -> Write:
    """Return the write that puts the capability of the call into quarantine."""
    return incident(ports.quarantine_key(call.capability), call.envelope, at_us)


def expect_attempt(call: ToolCall, ports: DispatchPorts) -> None:
    """Announce a probable call, so that its adapter makes its own checks while the dispatch becomes durable."""
    capability = call.capability
    if not call.on_tape and call.mode == "send" and (call.writes or capability.leaves):
        adapter = ports.adapters.get(capability.adapter.adapter_id)
        expect_call(adapter, capability.definition.name, call.tool_call_id)


async def obtain_credentials(
    journal: Journal, scope: RunScope, ports: DispatchPorts, calls: Sequence[ToolCall]
) -> None:
    """Obtain a credential for each attempt whose tool needs one. All are obtained at the same time, before any
    dispatch.

    For each attempt the journal records who issued the credential for whom, or why it was not issued, and never the
    token. A process that takes over an attempt has no token, so it sends nothing; the next attempt obtains another.

    Raises:
        Parked: the circuit is open, so the outcome of an earlier send cannot be found out. Nothing is recorded.
        Unavailable: the issuer did not answer, and the call would consume an approval for nothing. Nothing is recorded.
    """
    exchange_calls = [call for call in calls if call.capability.definition.auth.mode == "exchange"]
    if not exchange_calls:
        return
    requests = []
    for call in exchange_calls:
        call.token, call.lacking, call.retry_at_us = "", TOKEN_LOST, 0
        question = exchange_question(call.capability)
        obtain = partial(_obtain_credential, journal, scope, ports, call)
        requests.append(RecordRequest("credential.exchanged", call.attempt_key, question, obtain))
    # The calls were cleared by a clock and evidence that are read anew in the drive that has the credentials.
    for call, answer in zip(exchange_calls, await journal.record_all(requests, keeps=False), strict=True):
        failure, call.retry_at_us = answer.get("failure"), answer.get("retry_at_us", 0)
        call.lacking = Failure.model_validate(failure) if failure else None if call.token else TOKEN_LOST


async def _obtain_credential(journal: Journal, scope: RunScope, ports: DispatchPorts, call: ToolCall) -> dict[str, Any]:
    capability = call.capability
    definition = capability.definition
    if retry_at_us := circuit_open_until_us(ports.adapters, capability):
        if call.mode != "send":
            park_while_open(journal, scope, ports, call)
        return {"failure": CIRCUIT_OPEN.to_json(), "retry_at_us": retry_at_us}
    time = call_time(scope.run.run_budget if call.mode == "send" else None, ports.spent(), definition)
    left_us = scope.within_session(journal.now_us + time.limit_us) - journal.now_us
    timeout_ms = max(1, min(time.timeout_ms, left_us // 1_000))
    exchanged = await ports.exchange(capability, call.envelope.tool_call_id, timeout_ms)
    spends_approval = exchanged.outage and call.approval is not None and call.claimed is None
    if spends_approval and definition.idempotency.strategy != "keyed":
        # A dispatch would consume the approval, and nothing would be sent again. The next drive asks anew.
        raise Unavailable(str(definition.auth.audience), exchanged.outage)
    call.token = exchanged.token
    return dict(exchanged.answer)


def exchange_question(capability: Capability) -> dict[str, Any]:
    """Return the request for a credential exchange, as it is recorded. A replay compares it."""
    return {"audience": capability.definition.auth.audience, "scopes": list(capability.definition.required_scopes)}


def key_is_remembered(journal: Journal, scope: RunScope, ports: DispatchPorts, call: ToolCall) -> bool:
    """Return whether the adapter still remembers a call's idempotency key, by the journal's time and by the clock."""
    # A call is not sent again after the session either: if it never arrived, the repetition would be the first payment.
    ttl_us = call.capability.definition.idempotency.key_ttl_s * 1_000_000
    now_us, clock_us = journal.time_us, ports.clock.now_us()
    age_us = max(now_us - call.first_us, clock_us - call.first_clock_us)
    return age_us <= ttl_us and not scope.session_over(now_us)


def park_while_open(journal: Journal, scope: RunScope, ports: DispatchPorts, call: ToolCall) -> None:
    """Suspend the run while an open circuit prevents finding out about an uncertain effect.

    Appends no entry, because otherwise a long outage would add one at each wake-up.

    Raises:
        Parked: until the circuit lets a call through.
    """
    capability = call.capability
    strategy = capability.definition.idempotency.strategy
    can_ask = strategy == "lookup" or (strategy == "keyed" and key_is_remembered(journal, scope, ports, call))
    if can_ask and (retry_at_us := circuit_open_until_us(ports.adapters, capability)):
        raise Parked(retry_at_us)


def call_context(tenant_id: str, ports: DispatchPorts, call: ToolCall, is_late: Callable[[], bool]) -> CallContext:
    """Build what an adapter receives with the arguments of one attempt."""
    envelope, capability = call.envelope, call.capability
    return CallContext(
        tenant_id=tenant_id,
        run_id=envelope.run_id,
        tool_call_id=envelope.tool_call_id,
        idempotency_key=envelope.idempotency_key,
        not_after_us=call.not_after_us,
        timeout_ms=call.time.timeout_ms,
        headers=partial(ports.headers, envelope.tool_call_id, capability.adapter.external),
        claim=partial(ports.claim_token, capability, envelope.tool_call_id),
        hop=partial(ports.hop_token, capability, envelope.tool_call_id),
        is_late=is_late,
        egress=capability.adapter.egress,
        access_token=call.token,
        operation=call.running,
    )
