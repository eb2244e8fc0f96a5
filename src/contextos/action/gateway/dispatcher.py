"""Send a call that passed every guard, and find out its outcome for certain.

The dispatch (`tool.dispatching`) is durable before the call is sent. The result (`tool.returned`) is durable before
anything else outside is asked; the result of an effect without a key is durable at once. If a reply is lost, its
outcome is never guessed. An effect with an idempotency key is sent again with the same key. An effect that the adapter
can look up is looked up. Any other effect waits for an operator's settlement.
Source: docs/design/contracts.md, "Uncertain effects"; docs/design/standards.md, "Effects around crashes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import orjson

from contextos.action.budget import call_time, exceeded_limit
from contextos.action.cancellation import find_cancel
from contextos.action.gateway import delivery, history, idempotency, retries
from contextos.action.gateway.guarded_call import GuardContext
from contextos.action.gateway.result_validation import AttemptOutcome, result_of_settlement, why_inconclusive
from contextos.action.quarantine import has_drifted, has_incidents, quarantine_detail
from contextos.action.secret_arguments import call_with
from contextos.contracts.envelopes.identity import Settled
from contextos.contracts.envelopes.tool import (
    AdapterReply,
    CallContext,
    ToolCallEnvelope,
    ToolError,
    ToolResultEnvelope,
)
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import CLOCK_MARGIN_US, VOID_ANSWER, Parked, Write
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.ports.seams import RecordRequest
from contextos.contracts.scope import Capability
from contextos.errors import CircuitOpen, LostReply, Unavailable


class Dispatcher:
    """Sends the calls of one run and returns their results."""

    def __init__(self, context: GuardContext) -> None:
        self.context, self.journal, self.scope = context, context.journal, context.scope
        self.registry, self.ports = context.registry, context.ports

    async def deliver(self, call: ToolCall) -> ToolResultEnvelope | Failure:
        """Send a call, at most `MAX_ATTEMPTS` times and again only where that is safe, and return its result. Return a
        `Failure` if the issuer refuses a credential: then nothing was sent, and the call holds no key.
        """
        self._set_start(call)
        return await self._attempt_until_final(call)

    async def deliver_all(self, begun: Sequence[ToolCall]) -> list[ToolResultEnvelope | Failure]:
        """Send several reads: their first attempts at the same time, further attempts one after the other.

        All calls are recorded before the first is sent. The record is durable before that if a call leaves the machine
        or was approved. The results are as in `deliver`. A call whose credential is refused ends the list.
        """
        for call in begun:
            self._set_start(call)
            call.attempt += 1
        calls = list(begun)
        await delivery.obtain_credentials(self.journal, self.scope, self.ports, calls)
        denied = next((call.denied for call in calls if call.denied), None)
        calls = list(takewhile(lambda call: call.denied is None, calls))
        for call in calls:
            assert not call.writes, "an effect is sent alone"
            self._dispatch(call)
        if any(call.capability.leaves or call.approval for call in calls):
            await self.journal.commit()
        answers = await self.journal.record_all([self._attempt_request(call) for call in calls])
        # Whatever follows commits the answers, so every incident is staged first.
        drifted = [call for call, answer in zip(calls, answers, strict=True) if answer.get("drifted")]
        self.journal.stage(*(delivery.incident_of(call, self.ports, self.journal.now_us) for call in drifted))
        admitted = retries.admitted(calls, answers)
        results = list[ToolResultEnvelope | Failure]()
        for call, answer in zip(calls, answers, strict=True):
            # A half-open circuit lets one call of the group through; the others are sent when that one was answered.
            call.grouped = call.capability.capability_id in admitted
            result = await self._finish(call, answer)
            results.append(await self._attempt_until_final(call) if result is None else result)
        return [*results, denied] if denied else results

    def _set_start(self, call: ToolCall) -> None:
        call.first_us, call.first_clock_us = self.journal.now_us, self.journal.clock_us
        if call.writes and idempotency.predates_epoch(call.operation, began_us := self.journal.log()[0].at_us):
            # The write can have been sent at any time since the run began; a restored store has no trace of it.
            clock_lag_us = call.first_us - call.first_clock_us
            call.mode, call.first_us, call.first_clock_us = "reconcile", began_us, began_us - clock_lag_us

    async def _attempt_until_final(self, call: ToolCall) -> ToolResultEnvelope | Failure:
        """Make further attempts until one of them is final; return its result, as in `deliver`."""
        while True:
            if call.attempt and call.mode == "send" and call.writes and not self.journal.on_tape:
                await idempotency.require_same_epoch(self.journal.run_id, self.ports.store, call.operation)
            if call.capability.definition.secrets:
                retries.leave_to_holder(self.journal, self.scope, self.ports, call)
            call.attempt += 1
            if call.capability.definition.auth.mode == "exchange":
                await delivery.obtain_credentials(self.journal, self.scope, self.ports, [call])
            if call.denied is not None:
                if call.claimed is not None:
                    # No earlier attempt was sent. The caller records the refusal in the same commit.
                    self.journal.stage(idempotency.release_key(call.claimed))
                return call.denied
            self._dispatch(call)
            if call.writes or call.capability.leaves or call.approval:
                await self.journal.commit()
            await self._take_over(call)
            request = self._attempt_request(call)
            answer = await self.journal.record(request.kind, request.key, request.request, request.call)
            if answer.get("drifted"):
                self.journal.stage(delivery.incident_of(call, self.ports, self.journal.now_us))
            if (result := await self._finish(call, answer)) is not None:
                return result

    def _dispatch(self, call: ToolCall) -> None:
        """Record the dispatch of the next attempt, and stage the checks that must hold in its commit."""
        call.on_tape = self.journal.on_tape
        # Finding out what an earlier attempt did is not limited by the run: its outcome has to be known.
        budget = self.scope.run.run_budget if call.mode == "send" else None
        call.time = call_time(budget, self.ports.spent(), call.capability.definition)
        ends_at_us = self.scope.within_session(self.journal.now_us + call.time.limit_us)
        call.not_after_us = ends_at_us - (self.journal.now_us - self.journal.clock_us)
        if call.can_send or not call.sent_until_us:
            call.sent_until_us = call.not_after_us
        self.journal.derive("tool.dispatching", call.attempt_key, delivery.dispatching(call))
        if call.writes and call.claimed is None:
            call.claimed = self._claim(call)
        elif call.writes:
            self.journal.stage(*call.checks)
        elif call.attempt == 1:
            # A read that a person approved, because it carries something to a destination, or that a limit counts.
            self.journal.stage(*call.redemption, *(() if call.on_tape else call.counted))
        delivery.expect_attempt(call, self.ports)

    async def _take_over(self, call: ToolCall) -> None:
        """Take over a dispatch that another driver recorded, and possibly sent."""
        call.recovered = call.on_tape and not self.journal.on_tape
        if call.recovered and call.writes:
            delivery.park_while_open(self.journal, self.scope, self.ports, call)
            await self.journal.take_over()
            call.mode = "reconcile"
            call.time = call_time(None, self.ports.spent(), call.capability.definition)

    def _attempt_request(self, call: ToolCall) -> RecordRequest:
        """Build the request whose recorded answer is the result of the current attempt."""
        # The entry `tool.dispatching` with the same key holds the question, so the request is empty.
        return RecordRequest("tool.returned", call.attempt_key, {}, partial(self._send, call))

    async def _finish(self, call: ToolCall, answer: Mapping[str, Any]) -> ToolResultEnvelope | None:
        """Return the result of the call, or None if another attempt follows."""
        result = call.envelope.result(answer["envelope"])
        if not call.writes:
            if answer.get("drifted"):
                await self.journal.commit()
            repeats = retries.reads_again(call, answer) and not self.scope.session_over(self.journal.now_us)
            # A retry counts like any dispatch.
            budget, definition = self.scope.run.run_budget, call.capability.definition
            repeats = repeats and exceeded_limit(budget, self.ports.spent(), definition) is None
            call.grouped = False
            self.ports.barrier.forget()
            if repeats and await find_cancel(
                self.journal, self.ports.barrier, self.ports.proved_cancels, call.attempt_key
            ):
                error = ToolError(code="cancelled", message="the run was cancelled; it was not sent again")
                return result.model_copy(update={"error": error})
            return None if repeats else result
        call.running = answer.get("operation") or call.running
        retry = retries.next_attempt(self.journal, self.scope, call, answer)
        if retry is not None:
            await retries.wait_for(self.journal, call, retry)
            call.mode = "send" if retry.how == "send" else "reconcile"
            failure = await retries.why_not_again(self.journal, self.scope, self.ports, call, retry)
            if failure is None and retry.how == "send":
                failure = await history.why_not_now(self.context, call, call.attempt + 1)
            if failure is None:
                return None
            result = retries.refused(self.journal, call, result, failure)
        assert call.claimed is not None, "a write was dispatched"
        if answer["outcome"] == "unknown":
            await self.journal.commit()
            return await self._settle(call.envelope, call.claimed, call.key)
        ends_at_us = retries.over_at_us(call, answer)
        happened = answer["happened"]
        self.journal.stage(idempotency.complete_key(call.claimed, result, happened=happened, not_before_us=ends_at_us))
        strategy = call.capability.definition.idempotency.strategy
        if strategy == "none" or not happened:
            await self.journal.commit()
        else:
            # After a crash the external system is asked again under the key, and gives the same answer.
            self.journal.defer_commit()
        return result

    def _claim(self, call: ToolCall) -> Write:
        """Stage the claim of the operation's key, with the checks that must hold in the same commit."""
        run_id = self.journal.run_id
        assert call.idempotency_key is not None, "the guard `idempotency_check` gives every write its key"
        now_us = self.journal.now_us if call.on_tape else self.ports.clock.now_us()
        claimed = idempotency.claim_key(run_id, call, now_us)
        lookup_checks = idempotency.lookup_preconditions(run_id, call, call.operation)
        counts = () if call.on_tape else call.counted
        self.journal.stage(claimed, *call.redemption, *lookup_checks, *call.preconditions, *counts)
        return claimed

    async def _send(self, call: ToolCall) -> dict[str, Any]:
        """Send the call, or find out about an earlier send; the outcome is `returned`, `not_sent` or `unknown`.

        If another worker dispatched the call (`call.recovered`), it can still send it until `not_after_us`. Until
        then, a look-up that finds nothing proves nothing.
        """
        capability, mode = call.capability, call.mode
        not_after_us, time = call.not_after_us, call.time
        adapter = self.ports.adapters.get(capability.adapter.adapter_id)
        if adapter is None:
            raise Unavailable(capability.adapter.adapter_id, "this deployment has no such adapter any more")
        began_us = self.ports.clock.now_us()
        name, rule = capability.definition.name, capability.definition.idempotency
        ends_at_us = call.sent_until_us + CLOCK_MARGIN_US
        secrets = delivery.take_secrets(call, self.ports.secrets)
        outcome = AttemptOutcome(self.registry, self.ports, call, adapter, began_us).body

        def is_late() -> bool:
            sends = mode == "send" and capability.definition.kind == "write"
            return sends and self.ports.clock.now_us() > not_after_us

        def lost_outcome(status: str, error: Exception) -> dict[str, Any]:
            if time.cut_by and self.ports.clock.now_us() >= not_after_us:
                detail = f"{time.cut_by}; the call was cancelled: {error}"
                return outcome(status, None, detail, code="budget_exhausted")
            return outcome(status, None, str(error))

        context = delivery.call_context(self.scope.run.tenant_id, self.ports, call, is_late)
        if is_late():
            # A worker that was paused here must not send the call after an operator settled that it was not sent.
            return outcome("not_sent", None, "its time was over before it was sent")
        if call.lacking is not None:
            if delivery.waits_for_other(call, secrets) and began_us <= ends_at_us:
                # The process that had the credential or the secret can still send the call until then.
                raise Parked(ends_at_us + 1)
            return delivery.unsent(call, outcome)
        if await self._is_quarantined_since(call):
            if not call.writes:
                return outcome("not_sent", None, quarantine_detail(capability), code="quarantined")
            # As after a wait: a server that changed is not asked about the outcome; a person settles it.
            return {**outcome("unknown", None, "its capability is in quarantine since"), "no_record": True}
        try:
            if mode == "send" and idempotency.can_be_done_before(call.operation, rule):
                earlier = await self._find_effect(adapter, capability, context)
                if earlier is not None and earlier.operation is not None:
                    return self._running_outcome(earlier, outcome)
                if earlier is not None:
                    return {**outcome("returned", earlier, ""), "done_before": True}
                if is_late():
                    return outcome("not_sent", None, "its time was over before it was sent")
            if mode == "send" or (
                rule.strategy == "keyed"
                and call.running is None
                and delivery.key_is_remembered(self.journal, self.scope, self.ports, call)
            ):
                args = orjson.loads(call.raw)
                reply: AdapterReply | None = await call_with(adapter, name, args, secrets or {}, context)
            elif rule.strategy == "lookup" or call.running is not None:
                assert context.idempotency_key is not None, "every write has its key"
                reply = await adapter.lookup(name, context.idempotency_key, context)
                if reply is None and rule.honours_not_after and began_us > ends_at_us and call.running is None:
                    return outcome("not_sent", None, "the external system has no record of this call")
            else:
                reply = None
        except CircuitOpen as error:
            if mode != "send":
                # The effect stays uncertain; the run looks again when the circuit lets a call through.
                raise Parked(error.retry_at_us) from error
            not_sent = outcome("not_sent", None, str(error), code=error.code)
            return {**not_sent, "retry_at_us": error.retry_at_us}
        except Unavailable as error:
            # If this attempt was a look-up that was not sent, that says nothing about the effect.
            return lost_outcome("not_sent" if mode == "send" else "unknown", error)
        except LostReply as error:
            lost_reply = lost_outcome("not_sent" if capability.definition.kind == "read" else "unknown", error)
            return {**lost_reply, "no_record": True} if error.accepted and call.writes else lost_reply
        if reply is None and began_us <= ends_at_us and (call.recovered or rule.honours_not_after):
            raise Parked(ends_at_us + 1)
        return self._judge_reply(call, reply, outcome)

    def _judge_reply(
        self, call: ToolCall, reply: AdapterReply | None, outcome: Callable[..., dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the outcome of an attempt by its reply, or by the lack of a reply."""
        capability, accepted = call.capability, call.running is not None
        strategy = capability.definition.idempotency.strategy
        if reply is None:
            unknown = outcome("unknown", None, "it is not known whether it happened")
            return {**unknown, "no_record": True} if strategy == "lookup" or accepted else unknown
        drift = {"drifted": True} if has_drifted(capability, reply) else {}
        if drift and call.mode != "send":
            # This reply says nothing about the earlier attempt whose reply was lost.
            return {**outcome("unknown", None, "its server changed"), "no_record": True, **drift}
        if reply.operation is not None and call.writes:
            return self._running_outcome(reply, outcome)
        if call.mode != "send" and strategy == "keyed" and not accepted and (reason := why_inconclusive(reply)):
            return {**outcome("unknown", None, reason), "no_record": True}
        return {**outcome("returned", reply, ""), **drift}

    def _running_outcome(self, reply: AdapterReply, outcome: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """Return the outcome of a write that was accepted and runs on; a name that redaction changes cannot be used."""
        name, _, unsafe = self.ports.cleanse(reply.operation)
        if unsafe or name != reply.operation:
            return {**outcome("unknown", None, "it was started under a name that cannot be kept"), "no_record": True}
        at_us = self.ports.clock.now_us() + reply.retry_after_s * 1_000_000
        # The name of an operation can grant access to it: it is recorded, and never put into a text.
        running = outcome("unknown", None, "it was started and runs on")
        return {**running, "operation": name, "retry_at_us": at_us}

    @staticmethod
    async def _find_effect(adapter: Adapter, capability: Capability, context: CallContext) -> AdapterReply | None:
        """Look up the effect of a run that the store lost in a restore; None if there is none.

        Raises `Unavailable` if the look-up does not settle it: then nothing is sent.
        """
        assert context.idempotency_key is not None, "every write has its key"
        try:
            earlier = await adapter.lookup(capability.definition.name, context.idempotency_key, context)
        except LostReply as lost:
            raise Unavailable(capability.capability_id, str(lost)) from lost
        return None if earlier is None or earlier.had_no_effect else earlier

    async def _is_quarantined_since(self, call: ToolCall) -> bool:
        """Return whether the capability was quarantined since the guards passed the call, which can be long ago. False
        for a write or a first attempt of this process: the guards, or `why_not_again`, have just looked.
        """
        if not call.recovered and (call.writes or call.attempt == 1):
            return False
        capability = call.capability
        return await has_incidents(capability, self.ports.quarantine_key(capability), self.ports.open_incidents)

    async def _settle(self, envelope: ToolCallEnvelope, claimed: Write, key: str) -> ToolResultEnvelope:
        """Suspend the run until an operator settles the effect (`contextos runs settle`), however long that takes.

        The run uses the settlement after `check_settlement` accepted it, and then ends the claim in its own commit.
        So a process that can only append to the journal cannot move money. A `keys` document that somebody else
        releases is not believed, because the journal of this run does not show the release.

        An entry that is not a valid settlement changes nothing: the run goes on waiting for a valid one.
        """
        while True:
            self.journal.derive("record.revised", f"uncertain/{key}", self.context.deferred("effect_uncertain", key))
            await self.journal.commit(wake_at_us=0)
            kind, answer = await self.journal.wait(("effect.settled",), key, wake_at_us=0, on_timeout=None)
            self.ports.barrier.forget()
            if kind != VOID_ANSWER and await self.ports.check_settlement(key, envelope, answer) is None:
                break
        result = envelope.result(result_of_settlement(envelope, Settled.model_validate(answer)))
        self.journal.stage(idempotency.complete_key(claimed, result, happened=result.status == "completed"))
        await self.journal.commit()
        return result
