"""The dispatcher: sends a call that passed every guard, and makes its outcome certain before the run goes on.

A dispatch is durable before it is sent (`tool.dispatching`), its outcome before it is used (`tool.returned`). A reply
that was lost is never guessed: a keyed effect is sent again with the same key, one that can be looked up is looked
up, and any other waits for a person. Source: docs/design/contracts.md, "effect_uncertain"; standards.md, B7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from contextos.action.breaker_adapter import BreakerAdapter
from contextos.action.budget import exceeded_limit
from contextos.action.gateway import idempotency
from contextos.action.gateway.delivery import ClearedCall, Delivery, DispatchPorts
from contextos.action.gateway.result_validation import result_of_settlement, validate_reply
from contextos.action.registry import Registry
from contextos.contracts.encoding.codec import own_copy
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import AdapterReply, CallContext, Settled, ToolCallEnvelope, ToolResultEnvelope
from contextos.contracts.journal import Parked, Write
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.ports.seams import Journal, RecordRequest
from contextos.contracts.refs import tool_ref
from contextos.contracts.scope import Capability, Redeemed, RunScope
from contextos.errors import CircuitOpen, Integrity, LostReply, Unavailable

MAX_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Sends calls and brings their results back."""

    journal: Journal
    scope: RunScope
    registry: Registry
    outside: DispatchPorts

    async def deliver(self, call: ClearedCall) -> ToolResultEnvelope:
        """Send, at most `MAX_ATTEMPTS` times and only where that is safe, and return the result envelope."""
        return await self._deliver_on(self._begin(call))

    async def deliver_all(self, calls: Sequence[ClearedCall]) -> list[ToolResultEnvelope]:
        """Deliver several reads: their first attempts at the same time, further ones one after the other.

        All dispatches are on record, and durable where one leaves the machine, before the first call is sent.
        """
        deliveries = [self._begin(call) for call in calls]
        for delivery in deliveries:
            assert not delivery.writes, "an effect is sent alone"
            delivery.grouped = True
            self._dispatch(delivery)
        if any(call.capability.adapter.external for call in calls):
            await self.journal.commit()
        answers = await self.journal.record_all([self._request(delivery) for delivery in deliveries])
        results = []
        for delivery, answer in zip(deliveries, answers, strict=True):
            result = await self._finish(delivery, answer)
            results.append(await self._deliver_on(delivery) if result is None else result)
        return results

    def _begin(self, call: ClearedCall) -> Delivery:
        began_us = self.journal.log()[0].at_us
        if call.capability.definition.kind == "write" and idempotency.began_before(call.act, began_us):
            # It may have been sent after the backup, at any time since the run began, and nothing here knows of it.
            return Delivery(call, "reconcile", began_us)
        return Delivery(call, "send", self.journal.now_us)

    async def _deliver_on(self, delivery: Delivery) -> ToolResultEnvelope:
        """Make attempt after attempt, until one is the last."""
        call = delivery.call
        while True:
            if delivery.attempt and delivery.mode == "send" and delivery.writes and not self.journal.on_tape:
                await idempotency.still_in_epoch(self.journal.run_id, self.outside.store, call.act)
            self._dispatch(delivery)
            if delivery.writes or call.capability.adapter.external:
                await self.journal.commit()
            await self._recover(delivery)
            wanted = self._request(delivery)
            answer = await self.journal.record(wanted.kind, wanted.key, wanted.request, wanted.call)
            result = await self._finish(delivery, answer)
            if result is not None:
                return result

    def _dispatch(self, delivery: Delivery) -> None:
        """Derive the dispatch of the next attempt, and stage what must hold in its commit."""
        call = delivery.call
        delivery.attempt += 1
        delivery.on_tape = self.journal.on_tape
        timeout_us = call.capability.definition.timeout_s * 1_000_000
        delivery.not_after_us = self.scope.within_session(self.journal.now_us + timeout_us)
        self._derive_dispatch(delivery)
        if delivery.writes and delivery.claimed is None:
            delivery.claimed = self._claim(call)
        elif delivery.writes and delivery.mode == "send":
            self.journal.stage(*idempotency.same_epoch_check(call.act))

    async def _recover(self, delivery: Delivery) -> None:
        """Take over a dispatch that another driver recorded, and that it may have sent."""
        delivery.recovered = delivery.on_tape and not self.journal.on_tape
        if delivery.recovered and delivery.writes:
            self._park_while_shut(delivery.call.capability, delivery.first_us)
            await self.journal.take_over()
            delivery.mode = "reconcile"

    def _request(self, delivery: Delivery) -> RecordRequest:
        """The answer that the current attempt needs."""
        call = delivery.call
        send = partial(
            self._send,
            call.capability,
            call.envelope,
            delivery.mode,
            call.approval,
            delivery.not_after_us,
            delivery.first_us,
            delivery.recovered,
        )
        request = {"tool_call_id": call.envelope.tool_call_id, "attempt": delivery.attempt}
        return RecordRequest("tool.returned", delivery.key, request, send)

    async def _finish(self, delivery: Delivery, answer: Mapping[str, Any]) -> ToolResultEnvelope | None:
        """The result of the call, or None where another attempt follows."""
        call = delivery.call
        result, outcome = ToolResultEnvelope.model_validate(answer["envelope"]), answer["outcome"]
        # A circuit that probes lets one call of a group through; the others come again when it has its answer.
        shut = not delivery.grouped and result.error is not None and result.error.code == CircuitOpen.code
        again = (
            delivery.attempt < MAX_ATTEMPTS
            and not shut
            and _may_ask_again(call.capability, outcome)
            and not self._spent_out(call.capability)
        )
        delivery.grouped = False
        if delivery.claimed is not None and not again and outcome != "unknown":
            self.journal.stage(idempotency.complete_key(delivery.claimed, result, happened=answer["happened"]))
        if delivery.writes:
            await self.journal.commit()
        if again:
            delivery.mode = "reconcile" if outcome == "unknown" else "send"
            return None
        if outcome == "unknown" and delivery.claimed is not None:
            return await self._settle(call.envelope, delivery.claimed, call.key)
        return result

    def _claim(self, call: ClearedCall) -> Write:
        """Stage the claim of the operation's key, with the checks that must hold in the same commit."""
        run_id, envelope, key = self.journal.run_id, call.envelope, call.envelope.idempotency_key
        assert key is not None, "the guard `idempotency_check` gives every write its key"
        claimed = idempotency.claim_key(
            run_id, call.capability.capability_id, key, envelope.args, call.act["version"], envelope.tool_call_id
        )
        unchanged = idempotency.unchanged_since_lookup(run_id, call.capability, key, call.act)
        self.journal.stage(claimed, *_consumed(call.approval), *unchanged, *call.still)
        return claimed

    def _derive_dispatch(self, delivery: Delivery) -> None:
        call = delivery.call
        dispatching = {
            "envelope": call.envelope.to_json(),
            "args_digest": content_address(call.envelope.args),
            "mode": delivery.mode,
            "provenance": dict(call.provenance),
            "definition_digest": call.capability.definition_digest,
            "reservation": {"tool_calls": 1, "cost_cents": call.capability.definition.cost_cents},
            "not_after_us": delivery.not_after_us,
            "approval_id": call.approval.approval_id if call.approval else None,
        }
        self.journal.derive("tool.dispatching", delivery.key, dispatching)

    def _spent_out(self, capability: Capability) -> bool:
        """Whether the budget is used up; a retry is a dispatch like any other."""
        if self.scope.session_over(self.journal.now_us):
            return True
        return exceeded_limit(self.scope.run.run_budget, self.outside.spent(), capability.definition) is not None

    def _fresh(self, capability: Capability, first_us: int, now_us: int) -> bool:
        """Whether the key of a call that was first sent at `first_us` still says that it is the same call."""
        # Past its session a call that may never have arrived is not sent again: that would be the first payment.
        ttl_us = capability.definition.idempotency.key_ttl_s * 1_000_000
        return now_us - first_us <= ttl_us and not self.scope.session_over(now_us)

    def _park_while_shut(self, capability: Capability, first_us: int) -> None:
        """Go no further while a circuit keeps an uncertain effect from being asked after, and append nothing.

        Each wake of a long outage would add an entry otherwise. Raises `Parked`.
        """
        adapter = self.outside.adapters.get(capability.adapter.adapter_id)
        if not isinstance(adapter, BreakerAdapter):
            return
        strategy = capability.definition.idempotency.strategy
        fresh = self._fresh(capability, first_us, self.outside.clock.now_us())
        if strategy == "lookup" or (strategy == "keyed" and fresh):
            retry_at_us = adapter.shut_until_us(capability.definition.name)
            if retry_at_us:
                raise Parked(retry_at_us)

    def _context(
        self, envelope: ToolCallEnvelope, capability: Capability, not_after_us: int, is_late: Callable[[], bool]
    ) -> CallContext:
        return CallContext(
            tenant_id=self.scope.run.tenant_id,
            run_id=envelope.run_id,
            tool_call_id=envelope.tool_call_id,
            idempotency_key=envelope.idempotency_key,
            not_after_us=not_after_us,
            timeout_ms=capability.definition.timeout_s * 1_000,
            headers=partial(self.outside.headers, envelope.tool_call_id, capability.adapter.external),
            claim=self.outside.claim_token,
            is_late=is_late,
        )

    async def _send(
        self,
        capability: Capability,
        envelope: ToolCallEnvelope,
        mode: str,
        approval: Redeemed | None,
        not_after_us: int,
        first_us: int,
        recovered: bool,
    ) -> dict[str, Any]:
        """Do it or find out, and say what is certain: `returned`, `not_sent` or `unknown`.

        What another worker dispatched (`recovered`) that one may still send until `not_after_us`: till then that
        nothing is known of it means nothing.
        """
        adapter = self.outside.adapters.get(capability.adapter.adapter_id)
        if adapter is None:
            raise Unavailable(capability.adapter.adapter_id, "this deployment has no such adapter any more")
        began = self.outside.clock.now_us()
        name, rule = capability.definition.name, capability.definition.idempotency
        outcome = partial(
            self._outcome, capability=capability, envelope=envelope, approval=approval, began_us=began, adapter=adapter
        )

        def is_late() -> bool:
            sends = mode == "send" and capability.definition.kind == "write"
            return sends and self.outside.clock.now_us() > not_after_us

        context = self._context(envelope, capability, not_after_us, is_late)
        if is_late():
            # A worker that was stopped here must not wake up and act after somebody settled that it did not.
            return outcome("not_sent", None, "its time was over before it was sent")
        try:
            if mode == "send" or (rule.strategy == "keyed" and self._fresh(capability, first_us, began)):
                # Nested arguments are shared with the request, the pack and other steps, and sent again as they are.
                reply: AdapterReply | None = await adapter.call(name, own_copy(envelope.args), context)
            elif rule.strategy == "lookup":
                assert context.idempotency_key is not None, "every write has its key"
                reply = await adapter.lookup(name, context.idempotency_key, context)
                if reply is None and rule.honours_not_after and began > not_after_us:
                    return outcome("not_sent", None, "the outside knows of no such call")
            else:
                reply = None
        except CircuitOpen as error:
            if mode != "send":
                # An effect of which nobody knows stays so; it is asked after again when something may be sent.
                raise Parked(error.retry_at_us) from error
            return outcome("not_sent", None, str(error), code=error.code)
        except Unavailable as error:
            # That this call was not sent says nothing of the one that it asks about.
            return outcome("not_sent" if mode == "send" else "unknown", None, str(error))
        except LostReply as error:
            return outcome("not_sent" if capability.definition.kind == "read" else "unknown", None, str(error))
        if reply is None and began <= not_after_us and (recovered or rule.honours_not_after):
            raise Parked(not_after_us + 1)
        if reply is None:
            return outcome("unknown", None, "it is not known whether it happened")
        return outcome("returned", reply, "")

    def _outcome(
        self,
        outcome: str,
        reply: AdapterReply | None,
        why: str,
        *,
        capability: Capability,
        envelope: ToolCallEnvelope,
        approval: Redeemed | None,
        began_us: int,
        adapter: Adapter,
        code: str = "tool_failed",
    ) -> dict[str, Any]:
        status, output, error, redacted = validate_reply(
            self.registry, self.outside.cleanse, capability, reply, outcome, why, code
        )
        effect = capability.definition.kind == "write"
        # The answer was there, and others had the turns: that is no time of the call, nor of the run's.
        waited_us = adapter.aside.waited_us if isinstance(adapter, BreakerAdapter) else 0
        cited = [tool_ref(envelope.capability_id, envelope.tool_call_id)] if status in ("ok", "completed") else []
        wire = {
            "envelope_version": "contextos.tool_result.v1",
            "tool_call_id": envelope.tool_call_id,
            "run_id": envelope.run_id,
            "trace_id": envelope.trace_id,
            "session_id": envelope.session_id,
            "capability_id": envelope.capability_id,
            "status": status,
            "output": output,
            "error": error.to_json() if error else None,
            "artifacts": [],
            "citations": [{"evidence_ref": ref} for ref in cited],
            "mutations": reply.mutations if reply else [],
            "risk_tags": [envelope.approval_mode_effective] if effect else [],
            "policy_decision_id": envelope.policy_decision_id,
            "latency_ms": max(0, self.outside.clock.now_us() - began_us - waited_us) / 1_000,
            "metadata": {
                "redaction_applied": bool(redacted),
                "cost_cents": reply.cost_cents if reply else 0,
                **(
                    {"approver": approval.approver, "approval_evidence_snapshot_hash": approval.evidence_snapshot_hash}
                    if approval
                    else {}
                ),
            },
        }
        # It is read again once it is recorded; what makes no envelope is not recorded at all.
        ToolResultEnvelope.model_validate(wire)
        cost = reply.cost_cents if reply else (capability.definition.cost_cents if outcome == "unknown" else 0)
        return {
            "outcome": outcome,
            "envelope": wire,
            "output_digest": content_address(output),
            "cost_cents": cost,
            # An output that we may not use was still an effect; only an error that the adapter states says otherwise.
            "happened": effect and reply is not None and (reply.error is None or bool(reply.mutations)),
            **({"waited_us": waited_us} if waited_us else {}),
        }

    async def _settle(self, envelope: ToolCallEnvelope, claimed: Write, key: str) -> ToolResultEnvelope:
        """Nobody can know but a person: wait for `contextos settle`, however long it takes.

        The entry is believed only after `settled_by` asked who gave it, and only then is the act concluded, in a commit
        of the run. So nobody who can merely append to the journal moves money or makes a payment count. It does not
        protect the `keys` document from who can write the store itself: what they release may be paid again. That
        nobody settled it shows in the journals, and the conclusion here then loses its compare-and-set.

        Raises:
            Integrity: the settlement does not count. Nothing is concluded and the run stays where it is.
        """
        self.journal.derive("record.revised", f"uncertain/{key}", self.outside.deferred("effect_uncertain"))
        await self.journal.commit(wake_at_us=0)
        _, answer = await self.journal.wait(("effect.settled",), key, wake_at_us=0, on_timeout=None)
        where = f"`{self.journal.run_id}` entry {self.journal.log()[-1].seq} (`effect.settled`)"
        refused = await self.outside.settled_by(key, envelope.tool_call_id, answer)
        if refused:
            raise Integrity(f"{where} does not count: {refused}; the run stands still until an operator looked at it")
        result = result_of_settlement(envelope, Settled.model_validate(answer))
        self.journal.stage(idempotency.complete_key(claimed, result, happened=result.status == "completed"))
        await self.journal.commit()
        return result


def _may_ask_again(capability: Capability, outcome: str) -> bool:
    """Whether another attempt is safe: a read always, a keyed effect with its key, a lookup while it is not known.

    An effect that was certainly not sent is only sent again where it is keyed.
    """
    strategy = capability.definition.idempotency.strategy
    if outcome == "returned":
        return False
    if capability.definition.kind == "read" or strategy == "keyed":
        return True
    return strategy == "lookup" and outcome == "unknown"


def _consumed(approval: Redeemed | None) -> tuple[Write, ...]:
    """The redemption: the approval is spent in the commit that dispatches its call, or that commit fails."""
    if approval is None:
        return ()
    return (approval.consume,)
