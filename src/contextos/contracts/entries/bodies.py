"""Which type the body of each kind has, and the check of a body against it.

A recorded entry's body is `{"request_digest", "answer"}`; its type here is the answer's. The journal does not check
what it writes, for speed; tests and the simulator call `body_fault` on every entry instead.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from contextos.contracts.entries import derived, recorded, shared
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.memory import MemoryReview
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.record import DecisionRecord, ReplayPacket, Scorecard, SessionCheckpoint
from contextos.contracts.envelopes.run import RunContext
from contextos.contracts.envelopes.slots import SlotQuestion
from contextos.contracts.envelopes.tool import Answered, Settled
from contextos.contracts.journal import CONTROL, INDEX, KINDS

BODIES: Final[dict[str, Any]] = {
    "run.received": recorded.ReceivedRun,
    "run.resumed": recorded.ResumedRun,
    "run.cancel_requested": recorded.RequestedCancel,
    "identity.resolved": recorded.ResolvedIdentity
    | recorded.RedeemedIdentity
    | recorded.DispatchIdentity
    | recorded.SettlingOperator,
    "run.pinned": recorded.PinnedRun,
    "run.context": RunContext,
    "intent.resolved": derived.ResolvedIntentBody,
    "slot.asked": SlotQuestion,
    "slot.answered": recorded.AnsweredSlot,
    "slot.selected": recorded.SelectedForSlot,
    "evidence.retrieved": list[EvidenceItem],
    "memory.recalled": list[EvidenceItem],
    "policy.decided": PolicyDecision | derived.DecidedPolicies,
    "context.compiled": CompiledContext,
    "planner.answered": recorded.AnsweredPlanner,
    "plan.proposed": Plan,
    "plan.verified": derived.VerifiedPlan,
    "session.checkpointed": SessionCheckpoint,
    "act.looked_up": recorded.OperationLookup,
    "tool.refused": derived.RefusedCall,
    "tool.dispatching": derived.DispatchedCall,
    "tool.returned": recorded.ReturnedCall,
    "effect.settled": Settled,
    "checkpoint.checked": derived.CheckedCheckpoint,
    "evidence.frozen": derived.FrozenEvidence,
    "evidence.rechecked": derived.RecheckedEvidence,
    "approval.asked": derived.AskedApproval,
    "approval.answered": Answered,
    "approval.expired": recorded.ExpiredApproval,
    "approval.voided": derived.VoidedApproval,
    "run.scored": Scorecard,
    "memory.proposed": derived.ProposedMemories,
    "record.revised": DecisionRecord,
    "replay.packed": ReplayPacket,
    "run.ended": derived.EndedRun,
}
"""The type of the body, or of a recorded entry's answer, for each kind of `KINDS`."""

INDEX_BODIES: Final[dict[str, Any]] = {"run.indexed": shared.IndexedRun, "run.closed": shared.ClosedRun}
"""The type of the body for each kind of the `index` stream."""

CONTROL_BODIES: Final[dict[str, Any]] = {
    "store.restored": shared.RestoredStore,
    "effect.settled": shared.SettledEffect,
    "run.cancelled": shared.CancelledRun,
    "entry.erased": shared.ErasedEntry,
    "runs.exported": shared.ExportedRuns,
    "memory.reviewed": MemoryReview,
    "artifact.published": shared.PublishedArtifact,
    "artifact.withdrawn": shared.WithdrawnArtifact,
    "policies.activated": shared.ActivatedPolicies,
}
"""The type of the body for each kind of the `control` stream."""


def body_fault(stream: str, kind: str, raw: bytes) -> str | None:
    """What is wrong with the body of an entry of this stream and kind, or None if it fits its type."""
    types = {INDEX: INDEX_BODIES, CONTROL: CONTROL_BODIES}.get(stream, BODIES)
    if kind not in types:
        return f"`{kind}` is no kind of the stream `{stream}`"
    try:
        body = orjson.loads(raw)
        if types is BODIES and KINDS[kind].recorded:
            if not isinstance(body, dict) or body.keys() != {"request_digest", "answer"}:
                return "it is no `request_digest` with an `answer`"
            body = body["answer"]
        _adapter(stream if types is not BODIES else "", kind).validate_python(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}"
    except orjson.JSONDecodeError as error:
        return f"it is no JSON: {error}"
    return None


@cache
def _adapter(stream: str, kind: str) -> TypeAdapter[Any]:
    return TypeAdapter({INDEX: INDEX_BODIES, CONTROL: CONTROL_BODIES}.get(stream, BODIES)[kind])
