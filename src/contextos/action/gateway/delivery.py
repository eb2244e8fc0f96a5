"""Data classes for sending one call: the checked call, the progress of its delivery, and the ports that may be used;
and the credential that an attempt is sent with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from contextos.action.barrier import Barrier
from contextos.action.breaker_adapter import circuit_open_until_us, expect_call
from contextos.action.budget import BudgetUsed, CallTime, call_time
from contextos.action.content.kept_content import WrittenContent
from contextos.action.gateway.result_validation import Cleanse
from contextos.action.quarantine import OpenIncidents, incident
from contextos.action.secret_arguments import SECRET_LOST, SecretArguments
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import DRIFT_INCIDENTS, BucketEnd, CountedEffect, OperationDocument
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import CallContext, ToolCallEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Parked, Write
from contextos.contracts.model import final_fields
from contextos.contracts.ports.outside import Adapter, Clock
from contextos.contracts.ports.seams import Journal, ProvedCancels, RecordRequest
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import Capability, Redeemed, RunScope
from contextos.errors import CircuitOpen, Unavailable

TOKEN_LOST: Final = Failure(code="tool_failed", detail="the credential of this attempt ended with the process")
"""An attempt that another process began cannot be sent: its token is on no record."""
CIRCUIT_OPEN: Final = Failure(code="tool_failed", detail="the circuit of the tool is open; no credential was asked for")

OperationFault = Callable[[str, StoredDocument[OperationDocument]], Awaitable[str | None]]
"""(document key, row of the idempotency table) -> why the row is not believed, or None."""


UnprovedDenials = Callable[[str], Awaitable[int | None]]
"""(denial key) -> None if a person denied the operation, else how many stored denials of it do not count."""


class EffectCounter(Protocol):
    """The effects that a tenant's history buckets count, each proved by what this runtime signed."""

    async def read(self, bucket: str, since_us: int, *, limit: int) -> tuple[BucketEnd, Sequence[CountedEffect] | None]:
        """Return where a bucket ends, and its effects since then (Unix microseconds); None for more than `limit`.

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
    """What an exchange of identity for a credential came to: the answer that is recorded, and the secret token.

    `outage` says why the issuer did not answer, if it did not.
    """

    answer: Mapping[str, Any]
    token: str = field(default="", repr=False)
    outage: str = ""


Exchange = Callable[[Capability, str, int], Awaitable[Exchanged]]
"""(tool, tool call id, timeout in ms) -> the credential of one attempt, or why there is none. Raises nothing that a
port does.
"""

CheckSettlement = Callable[[str, ToolCallEnvelope, Mapping[str, Any]], Awaitable[str | None]]
"""(key, tool call id, recorded settlement) -> why the settlement is refused, or None."""


@final_fields
class PreconditionResult:
    """The result of checking a run's identities and pinned artifacts again, right before a write.

    `failure` says what changed since the run was admitted, or is None. `policies_version` is the version of the list of
    active policies that was checked.
    """

    failure: Failure | None
    policies_version: int


@final_fields
class DispatchPorts:
    """The ports and functions that are needed to send calls. A replay has no adapters and needs none.

    `headers` takes a tool call id and whether the adapter is external. `hop_token` takes the tool, the id of its call,
    the audience and its tenant. `deferred` builds the decision record of a waiting run, for the reason named. `spent`
    returns what the run has used so far. `recheck` takes the key and the tool of an attempt, and checks identities and
    pinned artifacts again. `exchange` obtains the credential of one attempt. `quarantine_key` is of the version of a
    capability that the run is pinned to.
    """

    store: Store
    clock: Clock
    adapters: Mapping[str, Adapter]
    headers: Callable[[str, bool], dict[str, str]]
    claim_token: Callable[[Capability, str], str]
    hop_token: Callable[[Capability, str, str, str], str]
    cleanse: Cleanse
    cleanse_text: Callable[[Any], Any]
    deferred: Callable[[str, str], dict[str, Any]]
    spent: Callable[[], BudgetUsed]
    check_settlement: CheckSettlement
    operation_fault: OperationFault
    unproved_denials: UnprovedDenials
    effects: EffectCounter
    written: WrittenContent
    proved_cancels: ProvedCancels
    recheck: Callable[[str, Capability], Awaitable[PreconditionResult]]
    exchange: Exchange
    quarantine_key: Callable[[Capability], str]
    open_incidents: OpenIncidents
    secrets: SecretArguments
    barrier: Barrier

    async def incidents(self, quarantine_key: str) -> Sequence[str]:
        """Return the open incidents, as of the last look if that found none."""
        sought = ((*DRIFT_INCIDENTS.place(quarantine_key), 1),)
        found = (await self.barrier.found(prefixes=sought)).keys(DRIFT_INCIDENTS, quarantine_key)
        return await self.open_incidents(quarantine_key) if found else ()


@final_fields
class ClearedCall:
    """A call that passed every check of the gateway. `operation` is the recorded answer of `look_up_operation`.

    `preconditions` are checks that must still hold in the commit that claims the operation for this run. `counts` signs
    the writes that count the call in the history and keep what it wrote, which a replay does not make. `why_not_now`
    judges a call again that was not sent, before the attempt of this number.
    """

    envelope: ToolCallEnvelope
    capability: Capability
    key: str
    provenance: Mapping[str, str]
    approval: Redeemed | None
    operation: Mapping[str, Any]
    preconditions: Sequence[Write]
    counts: Callable[[], Sequence[Write]] = tuple
    why_not_now: Callable[[int], Awaitable[Failure | None]] | None = None

    @property
    def redemption(self) -> tuple[Write, ...]:
        """Return the write that consumes the approval. The commit that sends the call fails if it was consumed."""
        return (self.approval.consume,) if self.approval else ()


@dataclass(slots=True)
class Delivery:
    """The progress of sending one call. `mode` is `send`, or `reconcile`: find out what an earlier send did.

    `first_us` is when the call was first sent, and `first_clock_us` that time by the clock; `claimed` is the write that
    reserves its idempotency key. `recovered`: another process recorded the current attempt. `grouped`: the attempt is
    sent together with other calls. `time`: how long the current attempt can take. `token`: the secret credential of the
    current attempt; `lacking`: why it has none; `retry_at_us`: when an open circuit admits the next call, if that is
    why. `sent_until_us` is `not_after_us` of the last attempt that can have been sent: a look-up sends nothing.
    """

    call: ClearedCall
    mode: str
    first_us: int
    first_clock_us: int
    attempt: int = 0
    not_after_us: int = 0
    sent_until_us: int = 0
    time: CallTime = field(default_factory=lambda: CallTime(0, 0))
    on_tape: bool = False
    recovered: bool = False
    claimed: Write | None = None
    grouped: bool = False
    checks: tuple[Write, ...] = ()
    token: str = field(default="", repr=False)
    lacking: Failure | None = None
    retry_at_us: int = 0
    operation: str | None = None
    """The name under which the call was accepted and runs on: it is looked up by it, and not sent again."""

    @property
    def key(self) -> str:
        """Return the key under which the current attempt is in the journal."""
        return f"{self.call.key}/{self.attempt}"

    @property
    def can_send(self) -> bool:
        """Return whether the current attempt can send the call, and does not only look it up."""
        if self.operation is not None:
            return False
        return self.mode == "send" or self.call.capability.definition.idempotency.strategy == "keyed"

    @property
    def denied(self) -> Failure | None:
        """Return why the issuer gives no credential for an attempt before which nothing can have been sent, or None."""
        refused = self.lacking is not None and self.lacking.code == "identity_refused"
        return self.lacking if refused and self.mode == "send" else None

    def dispatching(self) -> dict[str, Any]:
        """Return what the journal says of the current attempt before it is sent."""
        call = self.call
        return {
            "envelope": call.envelope.to_json(),
            "args_digest": content_address(call.envelope.args),
            "mode": self.mode,
            "provenance": dict(call.provenance),
            "definition_digest": call.capability.definition_digest,
            "reservation": {"tool_calls": 1, "cost_cents": call.capability.definition.cost_cents},
            "not_after_us": self.not_after_us,
            "approval_id": call.approval.approval_id if call.approval else None,
            **({"credentials": list(named)} if (named := call.capability.definition.auth.credentials) else {}),
        }

    def unsent(self, outcome: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """Return the outcome of an attempt that is not sent, because it is `lacking` something."""
        lacking = self.lacking
        assert lacking is not None, "something is lacking"
        if self.mode != "send":
            return outcome("unknown", None, lacking.detail, code=lacking.code)
        if lacking == CIRCUIT_OPEN:
            refused = outcome("not_sent", None, lacking.detail, code=CircuitOpen.code)
            return {**refused, "retry_at_us": self.retry_at_us}
        return outcome("not_sent", None, lacking.detail, code=lacking.code)

    def take_secrets(self, secrets: SecretArguments) -> dict[str, str] | None:
        """Return the secret arguments of the call, by name. None if this process does not have them; it is then noted
        as `lacking`, unless the current attempt sends no arguments.
        """
        values = secrets.values(self.call.envelope.run_id, self.call.envelope.args)
        if values is None and self.can_send:
            self.lacking = SECRET_LOST
        return values

    def waits_for_other(self, secrets: Mapping[str, str] | None) -> bool:
        """Return whether nothing is known of this attempt while the process that began it can still send it. A keyed
        call whose secrets are here is sent again at once.
        """
        again = self.call.capability.definition.idempotency.strategy == "keyed" and secrets is not None
        return self.recovered and self.writes and not again

    def incident(self, ports: DispatchPorts, at_us: int) -> Write:
        """Return the write that puts the capability of the call into quarantine."""
        return incident(ports.quarantine_key(self.call.capability), self.call.envelope, at_us)

    def expect(self, ports: DispatchPorts) -> None:
        """Let the adapter begin what it checks before the call, while the dispatch of this attempt becomes durable."""
        capability = self.call.capability
        if not self.on_tape and self.mode == "send" and (self.writes or capability.leaves):
            adapter = ports.adapters.get(capability.adapter.adapter_id)
            expect_call(adapter, capability.definition.name, self.call.envelope.tool_call_id)

    @property
    def writes(self) -> bool:
        return self.call.capability.definition.kind == "write"


async def obtain_credentials(
    journal: Journal, scope: RunScope, ports: DispatchPorts, deliveries: Sequence[Delivery]
) -> None:
    """Obtain a credential for each attempt whose tool needs one, at the same time, before any of them is dispatched.

    The journal records of each who issued it for whom, or why nobody did, and never the token. A process that takes an
    attempt over from the journal has no token, and so sends nothing: the next attempt obtains another.

    Raises:
        Parked: an uncertain effect cannot be asked about while the circuit is open. Nothing is recorded.
        Unavailable: the issuer did not answer, and the call would consume an approval for nothing. Nothing is recorded.
    """
    asking = [one for one in deliveries if one.call.capability.definition.auth.mode == "exchange"]
    if not asking:
        return
    requests = []
    for one in asking:
        one.token, one.lacking, one.retry_at_us = "", TOKEN_LOST, 0
        question = exchange_question(one.call.capability)
        requests.append(
            RecordRequest("credential.exchanged", one.key, question, partial(_obtain, journal, scope, ports, one))
        )
    # The clock and the evidence by which the calls were cleared are read anew by the drive that has the credentials.
    for one, answer in zip(asking, await journal.record_all(requests, keeps=False), strict=True):
        failure, one.retry_at_us = answer.get("failure"), answer.get("retry_at_us", 0)
        one.lacking = Failure.model_validate(failure) if failure else None if one.token else TOKEN_LOST


async def _obtain(journal: Journal, scope: RunScope, ports: DispatchPorts, delivery: Delivery) -> dict[str, Any]:
    capability = delivery.call.capability
    definition = capability.definition
    if retry_at_us := circuit_open_until_us(ports.adapters, capability):
        if delivery.mode != "send":
            park_while_open(journal, scope, ports, delivery)
        return {"failure": CIRCUIT_OPEN.to_json(), "retry_at_us": retry_at_us}
    time = call_time(scope.run.run_budget if delivery.mode == "send" else None, ports.spent(), definition)
    left_us = scope.within_session(journal.now_us + time.limit_us) - journal.now_us
    timeout_ms = max(1, min(time.timeout_ms, left_us // 1_000))
    made = await ports.exchange(capability, delivery.call.envelope.tool_call_id, timeout_ms)
    approved = made.outage and delivery.call.approval is not None and delivery.claimed is None
    if approved and definition.idempotency.strategy != "keyed":
        # A dispatch would consume the approval, and nothing would be sent again. The next drive asks anew.
        raise Unavailable(str(definition.auth.audience), made.outage)
    delivery.token = made.token
    return dict(made.answer)


def exchange_question(capability: Capability) -> dict[str, Any]:
    """Return what is asked for in an exchange; a replay compares it."""
    return {"audience": capability.definition.auth.audience, "scopes": list(capability.definition.required_scopes)}


def key_is_remembered(journal: Journal, scope: RunScope, ports: DispatchPorts, delivery: Delivery) -> bool:
    """Return whether the adapter still remembers the idempotency key of a call: by the record, and by the clock."""
    # After its session a call is not sent again either: if it never arrived, this would be the first payment.
    ttl_us = delivery.call.capability.definition.idempotency.key_ttl_s * 1_000_000
    now_us, clock_us = journal.time_us, ports.clock.now_us()
    age_us = max(now_us - delivery.first_us, clock_us - delivery.first_clock_us)
    return age_us <= ttl_us and not scope.session_over(now_us)


def park_while_open(journal: Journal, scope: RunScope, ports: DispatchPorts, delivery: Delivery) -> None:
    """Suspend the run while an open circuit prevents finding out about an uncertain effect.

    Appends no entry, because otherwise a long outage would add one at each wake-up.

    Raises:
        Parked: until the circuit lets a call through.
    """
    capability = delivery.call.capability
    strategy = capability.definition.idempotency.strategy
    can_ask = strategy == "lookup" or (strategy == "keyed" and key_is_remembered(journal, scope, ports, delivery))
    if can_ask and (retry_at_us := circuit_open_until_us(ports.adapters, capability)):
        raise Parked(retry_at_us)


def call_context(tenant_id: str, ports: DispatchPorts, delivery: Delivery, is_late: Callable[[], bool]) -> CallContext:
    """Build what an adapter receives with the arguments of one attempt."""
    envelope, capability = delivery.call.envelope, delivery.call.capability
    return CallContext(
        tenant_id=tenant_id,
        run_id=envelope.run_id,
        tool_call_id=envelope.tool_call_id,
        idempotency_key=envelope.idempotency_key,
        not_after_us=delivery.not_after_us,
        timeout_ms=delivery.time.timeout_ms,
        headers=partial(ports.headers, envelope.tool_call_id, capability.adapter.external),
        claim=partial(ports.claim_token, capability, envelope.tool_call_id),
        hop=partial(ports.hop_token, capability, envelope.tool_call_id),
        is_late=is_late,
        egress=capability.adapter.egress,
        access_token=delivery.token,
        operation=delivery.operation,
    )
