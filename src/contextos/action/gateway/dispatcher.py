"""Send a call that passed every guard, and find out for certain what came of it.

The dispatch is durable before the call is sent (`tool.dispatching`). The result is durable before anything else outside
is asked, and that of an effect without a key at once (`tool.returned`). If a reply is lost, its outcome is never
guessed: an effect with an idempotency key is sent again with the same key, one that the adapter can look up is looked
up, and any other waits for an operator's settlement.
Source: docs/design/contracts.md, "Uncertain effects"; docs/design/standards.md, "Effects around crashes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from contextos.action.budget import call_time, exceeded_limit
from contextos.action.cancellation import find_cancel
from contextos.action.gateway import idempotency, retries
from contextos.action.gateway.delivery import (
    ClearedCall,
    Delivery,
    DispatchPorts,
    call_context,
    key_is_remembered,
    obtain_credentials,
    park_while_open,
)
from contextos.action.gateway.result_validation import AttemptOutcome, result_of_settlement, why_inconclusive
from contextos.action.quarantine import has_drifted, has_incidents, quarantine_detail
from contextos.action.registry import Registry
from contextos.action.secret_arguments import call_with
from contextos.contracts.envelopes.tool import (
    AdapterReply,
    CallContext,
    Settled,
    ToolCallEnvelope,
    ToolError,
    ToolResultEnvelope,
)
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import CLOCK_MARGIN_US, VOID_ANSWER, Parked, Write
from contextos.contracts.model import final_fields
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.ports.seams import Journal, RecordRequest
from contextos.contracts.scope import Capability, RunScope
from contextos.errors import CircuitOpen, LostReply, Unavailable


@final_fields
class Dispatcher:
    """Sends the calls of one run and returns their results."""

    journal: Journal
    scope: RunScope
    registry: Registry
    ports: DispatchPorts

    async def deliver(self, call: ClearedCall) -> ToolResultEnvelope | Failure:
        """Send a call, at most `MAX_ATTEMPTS` times and again only where that is safe. Returns its result, or why the
        issuer of its credential refuses it: then it is not dispatched (again), was not sent before, and holds no key.
        """
        return await self._deliver_on(self._begin(call))

    async def deliver_all(self, calls: Sequence[ClearedCall]) -> list[ToolResultEnvelope | Failure]:
        """Send several reads: their first attempts at the same time, further attempts one after the other.

        All calls are recorded before the first is sent. The record is durable by then if one of them leaves the
        machine. The results are as in `deliver`; the first call that an issuer refuses is the last.
        """
        deliveries = [self._begin(call) for call in calls]
        for delivery in deliveries:
            delivery.attempt += 1
        await obtain_credentials(self.journal, self.scope, self.ports, deliveries)
        denied = next((one.denied for one in deliveries if one.denied), None)
        deliveries = list(takewhile(lambda one: one.denied is None, deliveries))
        for delivery in deliveries:
            assert not delivery.writes, "an effect is sent alone"
            self._dispatch(delivery)
        if any(one.call.capability.leaves or one.call.approval for one in deliveries):
            await self.journal.commit()
        answers = await self.journal.record_all([self._request(delivery) for delivery in deliveries])
        # Whatever follows commits the answers, so every incident is staged first.
        self._stage_incidents(deliveries, answers)
        admitted = retries.admitted(deliveries, answers)
        results = list[ToolResultEnvelope | Failure]()
        for delivery, answer in zip(deliveries, answers, strict=True):
            # A half-open circuit lets one call of the group through; the others are sent when that one was answered.
            delivery.grouped = delivery.call.capability.capability_id in admitted
            result = await self._finish(delivery, answer)
            results.append(await self._deliver_on(delivery) if result is None else result)
        return [*results, denied] if denied else results

    def _begin(self, call: ClearedCall) -> Delivery:
        began_us = self.journal.log()[0].at_us
        behind_us = self.journal.now_us - self.journal.clock_us
        if call.capability.definition.kind == "write" and idempotency.predates_epoch(call.operation, began_us):
            # It can have been sent after the backup, at any time since the run began, without a trace in this store.
            return Delivery(call, "reconcile", began_us, began_us - behind_us)
        return Delivery(call, "send", self.journal.now_us, self.journal.clock_us)

    async def _deliver_on(self, delivery: Delivery) -> ToolResultEnvelope | Failure:
        """Make further attempts until one of them is final; return its result, as in `deliver`."""
        call = delivery.call
        while True:
            if delivery.attempt and delivery.mode == "send" and delivery.writes and not self.journal.on_tape:
                await idempotency.require_same_epoch(self.journal.run_id, self.ports.store, call.operation)
            retries.leave_to_holder(self.journal, self.scope, self.ports, call)
            delivery.attempt += 1
            await obtain_credentials(self.journal, self.scope, self.ports, [delivery])
            if delivery.denied is not None:
                if delivery.claimed is not None:
                    # No earlier attempt was sent. The caller records the refusal in the same commit.
                    self.journal.stage(idempotency.release_key(delivery.claimed))
                return delivery.denied
            self._dispatch(delivery)
            if delivery.writes or call.capability.leaves or call.approval:
                await self.journal.commit()
            await self._recover(delivery)
            request = self._request(delivery)
            answer = await self.journal.record(request.kind, request.key, request.request, request.call)
            self._stage_incidents([delivery], [answer])
            if (result := await self._finish(delivery, answer)) is not None:
                return result

    def _dispatch(self, delivery: Delivery) -> None:
        """Record the dispatch of the next attempt, and stage the checks that must hold in its commit."""
        call = delivery.call
        delivery.on_tape = self.journal.on_tape
        # Finding out what an earlier attempt did is not limited by the run: its outcome has to be known.
        budget = self.scope.run.run_budget if delivery.mode == "send" else None
        delivery.time = call_time(budget, self.ports.spent(), call.capability.definition)
        over_us = self.scope.within_session(self.journal.now_us + delivery.time.limit_us)
        delivery.not_after_us = over_us - (self.journal.now_us - self.journal.clock_us)
        if delivery.can_send or not delivery.sent_until_us:
            delivery.sent_until_us = delivery.not_after_us
        self.journal.derive("tool.dispatching", delivery.key, delivery.dispatching())
        if delivery.writes and delivery.claimed is None:
            delivery.claimed = self._claim(call, delivery.on_tape)
        elif delivery.writes:
            self.journal.stage(*delivery.checks)
        elif delivery.attempt == 1:
            # A read that a person approved, because it carries something to a destination, or that a limit counts.
            self.journal.stage(*call.redemption, *(() if delivery.on_tape else call.counts()))
        delivery.expect(self.ports)

    async def _recover(self, delivery: Delivery) -> None:
        """Take over a dispatch that another driver recorded, and possibly sent."""
        delivery.recovered = delivery.on_tape and not self.journal.on_tape
        if delivery.recovered and delivery.writes:
            park_while_open(self.journal, self.scope, self.ports, delivery)
            await self.journal.take_over()
            delivery.mode = "reconcile"
            delivery.time = call_time(None, self.ports.spent(), delivery.call.capability.definition)

    def _request(self, delivery: Delivery) -> RecordRequest:
        """Build the request whose recorded answer is the result of the current attempt."""
        call = delivery.call
        request = {"tool_call_id": call.envelope.tool_call_id, "attempt": delivery.attempt}
        return RecordRequest("tool.returned", delivery.key, request, partial(self._send, delivery))

    def _stage_incidents(self, deliveries: Sequence[Delivery], answers: Sequence[Mapping[str, Any]]) -> None:
        """Stage the incident of each answer that found a changed definition, in the commit of the answers."""
        drifted = [one for one, answer in zip(deliveries, answers, strict=True) if answer.get("drifted")]
        self.journal.stage(*(one.incident(self.ports, self.journal.now_us) for one in drifted))

    async def _finish(self, delivery: Delivery, answer: Mapping[str, Any]) -> ToolResultEnvelope | None:
        """Return the result of the call, or None if another attempt follows."""
        result = ToolResultEnvelope.model_validate(answer["envelope"])
        if not delivery.writes:
            if answer.get("drifted"):
                await self.journal.commit()
            again = retries.reads_again(delivery, answer) and not self._is_budget_spent(delivery.call.capability)
            delivery.grouped = False
            self.ports.barrier.forget()
            if again and await find_cancel(self.journal, self.ports.barrier, self.ports.proved_cancels, delivery.key):
                error = ToolError(code="cancelled", message="the run was cancelled; it was not sent again")
                return result.model_copy(update={"error": error})
            return None if again else result
        delivery.operation = answer.get("operation") or delivery.operation
        retry = retries.next_attempt(self.journal, self.scope, delivery, answer)
        if retry is not None:
            await retries.wait_for(self.journal, delivery, retry)
            delivery.mode = "send" if retry.how == "send" else "reconcile"
            failure = await retries.why_not_again(self.journal, self.scope, self.ports, delivery, retry)
            if failure is None:
                return None
            result = retries.refused(self.journal, delivery, result, failure)
        assert delivery.claimed is not None, "a write was dispatched"
        if answer["outcome"] == "unknown":
            await self.journal.commit()
            return await self._settle(delivery.call.envelope, delivery.claimed, delivery.call.key)
        over_us = retries.over_at_us(delivery, answer)
        ended = idempotency.complete_key(delivery.claimed, result, happened=answer["happened"], not_before_us=over_us)
        self.journal.stage(ended)
        strategy = delivery.call.capability.definition.idempotency.strategy
        if strategy == "none" or not answer["happened"]:
            await self.journal.commit()
        else:
            # After a crash the external system is asked again under the key, and gives the same answer.
            self.journal.defer_commit()
        return result

    def _claim(self, call: ClearedCall, on_tape: bool) -> Write:
        """Stage the claim of the operation's key, with the checks that must hold in the same commit."""
        run_id, envelope, key = self.journal.run_id, call.envelope, call.envelope.idempotency_key
        assert key is not None, "the guard `idempotency_check` gives every write its key"
        claimed = idempotency.claim_key(
            run_id,
            call.capability.capability_id,
            key,
            envelope.args,
            call.operation["version"],
            envelope.tool_call_id,
            now_us=self.journal.now_us if on_tape else self.ports.clock.now_us(),
        )
        lookup_checks = idempotency.lookup_preconditions(run_id, call.capability, key, call.operation)
        counts = () if on_tape else call.counts()
        self.journal.stage(claimed, *call.redemption, *lookup_checks, *call.preconditions, *counts)
        return claimed

    def _is_budget_spent(self, capability: Capability) -> bool:
        """Return whether another attempt would exceed the budget or the session; a retry counts like any dispatch."""
        if self.scope.session_over(self.journal.now_us):
            return True
        return exceeded_limit(self.scope.run.run_budget, self.ports.spent(), capability.definition) is not None

    async def _send(self, delivery: Delivery) -> dict[str, Any]:
        """Send the call, or find out about an earlier send; the outcome is `returned`, `not_sent` or `unknown`.

        If another worker dispatched the call (`delivery.recovered`), it can still send it until `not_after_us`. Until
        then, a look-up that finds nothing proves nothing.
        """
        capability, envelope, mode = delivery.call.capability, delivery.call.envelope, delivery.mode
        not_after_us, time = delivery.not_after_us, delivery.time
        adapter = self.ports.adapters.get(capability.adapter.adapter_id)
        if adapter is None:
            raise Unavailable(capability.adapter.adapter_id, "this deployment has no such adapter any more")
        began = self.ports.clock.now_us()
        name, rule = capability.definition.name, capability.definition.idempotency
        over_us = delivery.sent_until_us + CLOCK_MARGIN_US
        secrets = delivery.take_secrets(self.ports.secrets)
        outcome = self._outcome_of(delivery, adapter, began)

        def is_late() -> bool:
            sends = mode == "send" and capability.definition.kind == "write"
            return sends and self.ports.clock.now_us() > not_after_us

        def lost(found: str, error: Exception) -> dict[str, Any]:
            if time.cut_by and self.ports.clock.now_us() >= not_after_us:
                detail = f"{time.cut_by}; the call was cancelled: {error}"
                return outcome(found, None, detail, code="budget_exhausted")
            return outcome(found, None, str(error))

        context = call_context(self.scope.run.tenant_id, self.ports, delivery, is_late)
        if is_late():
            # A worker that was stopped here must not send the call after somebody settled that it was not sent.
            return outcome("not_sent", None, "its time was over before it was sent")
        if delivery.lacking is not None:
            if delivery.waits_for_other(secrets) and began <= over_us:
                # The process that had the credential or the secret can still send the call until then.
                raise Parked(over_us + 1)
            return delivery.unsent(outcome)
        if await self._is_quarantined_since(delivery):
            if not delivery.writes:
                return outcome("not_sent", None, quarantine_detail(capability), code="quarantined")
            # As after a wait: what became of the call is not asked of a server that changed; a person settles it.
            return {**outcome("unknown", None, "its capability is in quarantine since"), "no_record": True}
        remembered = partial(key_is_remembered, self.journal, self.scope, self.ports, delivery)
        try:
            if mode == "send" and idempotency.can_be_done_before(delivery.call.operation, rule):
                earlier = await self._done_before(adapter, capability, context)
                if earlier is not None and has_drifted(capability, earlier):
                    return {**outcome("unknown", None, "its server changed"), "no_record": True, "drifted": True}
                if earlier is not None and earlier.operation is not None:
                    return self._runs_on(earlier, outcome)
                if earlier is not None:
                    return {**outcome("returned", earlier, ""), "done_before": True}
                if is_late():
                    return outcome("not_sent", None, "its time was over before it was sent")
            if mode == "send" or (rule.strategy == "keyed" and delivery.operation is None and remembered()):
                reply: AdapterReply | None = await call_with(adapter, name, envelope.args, secrets or {}, context)
            elif rule.strategy == "lookup" or delivery.operation is not None:
                assert context.idempotency_key is not None, "every write has its key"
                reply = await adapter.lookup(name, context.idempotency_key, context)
                if reply is None and rule.honours_not_after and began > over_us and delivery.operation is None:
                    return outcome("not_sent", None, "the external system has no record of this call")
            else:
                reply = None
        except CircuitOpen as error:
            if mode != "send":
                # The effect stays uncertain; the run looks again when the circuit lets a call through.
                raise Parked(error.retry_at_us) from error
            refused = outcome("not_sent", None, str(error), code=error.code)
            return {**refused, "retry_at_us": error.retry_at_us}
        except Unavailable as error:
            # If this call was a look-up, that it was not sent says nothing about the effect.
            return lost("not_sent" if mode == "send" else "unknown", error)
        except LostReply as error:
            found = lost("not_sent" if capability.definition.kind == "read" else "unknown", error)
            return {**found, "no_record": True} if error.accepted and delivery.writes else found
        if reply is None and began <= over_us and (delivery.recovered or rule.honours_not_after):
            raise Parked(over_us + 1)
        return self._judged(delivery, reply, outcome)

    def _judged(
        self, delivery: Delivery, reply: AdapterReply | None, outcome: Callable[..., dict[str, Any]]
    ) -> dict[str, Any]:
        """What a reply, or that there is none, says about the call."""
        capability, accepted = delivery.call.capability, delivery.operation is not None
        strategy = capability.definition.idempotency.strategy
        if reply is None:
            unknown = outcome("unknown", None, "it is not known whether it happened")
            return {**unknown, "no_record": True} if strategy == "lookup" or accepted else unknown
        drift = {"drifted": True} if has_drifted(capability, reply) else {}
        if drift and delivery.mode != "send":
            # It says nothing of the earlier attempt whose reply was lost.
            return {**outcome("unknown", None, "its server changed"), "no_record": True, **drift}
        if reply.operation is not None and delivery.writes:
            return self._runs_on(reply, outcome)
        if delivery.mode != "send" and strategy == "keyed" and not accepted and (why := why_inconclusive(reply)):
            return {**outcome("unknown", None, why), "no_record": True}
        return {**outcome("returned", reply, ""), **drift}

    def _runs_on(self, reply: AdapterReply, outcome: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """The outcome of a write that was accepted and runs on. A name that cannot be kept as it is tells nothing."""
        kept, _, unsafe = self.ports.cleanse(reply.operation)
        if unsafe or kept != reply.operation:
            return {**outcome("unknown", None, "it was started under a name that cannot be kept"), "no_record": True}
        at_us = self.ports.clock.now_us() + reply.retry_after_s * 1_000_000
        # A name can be a permission: it is on record, and in no text.
        running = outcome("unknown", None, "it was started and runs on")
        return {**running, "operation": kept, "retry_at_us": at_us}

    @staticmethod
    async def _done_before(adapter: Adapter, capability: Capability, context: CallContext) -> AdapterReply | None:
        """Look up the effect that a lost run had before the restore, or None. Raises `Unavailable`: nothing is known,
        and nothing is sent.
        """
        assert context.idempotency_key is not None, "every write has its key"
        try:
            earlier = await adapter.lookup(capability.definition.name, context.idempotency_key, context)
        except LostReply as lost:
            raise Unavailable(capability.capability_id, str(lost)) from lost
        return None if earlier is None or earlier.had_no_effect else earlier

    def _outcome_of(self, delivery: Delivery, adapter: Adapter, began_us: int) -> Callable[..., dict[str, Any]]:
        """Return what builds the answer of the current attempt, which began at `began_us` (Unix microseconds)."""
        return AttemptOutcome(
            self.registry,
            self.ports.cleanse,
            self.ports.cleanse_text,
            delivery.call.capability,
            delivery.call.envelope,
            delivery.call.approval,
            adapter,
            self.ports.clock,
            began_us=began_us,
            retries=delivery.attempt - 1,
        ).body

    async def _is_quarantined_since(self, delivery: Delivery) -> bool:
        """Look for incidents before an attempt that can be long after the guards passed its call. Before a further
        attempt of a write that this process makes, `why_not_again` has looked.
        """
        if not delivery.recovered and (delivery.writes or delivery.attempt == 1):
            return False
        capability = delivery.call.capability
        return await has_incidents(capability, self.ports.quarantine_key(capability), self.ports.open_incidents)

    async def _settle(self, envelope: ToolCallEnvelope, claimed: Write, key: str) -> ToolResultEnvelope:
        """Suspend the run until an operator settles the effect (`contextos runs settle`), however long that takes.

        The run uses the settlement after `check_settlement` accepted it, and then ends the claim in its own commit.
        So a process that can only append to the journal cannot move money. A `keys` document that somebody else
        releases is not believed, because this run does not show it.

        An entry that is no valid settlement changes nothing: the run goes on waiting for one.
        """
        while True:
            self.journal.derive("record.revised", f"uncertain/{key}", self.ports.deferred("effect_uncertain", key))
            await self.journal.commit(wake_at_us=0)
            kind, answer = await self.journal.wait(("effect.settled",), key, wake_at_us=0, on_timeout=None)
            if kind != VOID_ANSWER and await self.ports.check_settlement(key, envelope, answer) is None:
                break
        result = result_of_settlement(envelope, Settled.model_validate(answer))
        self.journal.stage(idempotency.complete_key(claimed, result, happened=result.status == "completed"))
        await self.journal.commit()
        return result
