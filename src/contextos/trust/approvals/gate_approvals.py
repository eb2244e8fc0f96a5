"""Gate approvals: a person approves one call, with its final arguments and frozen evidence, once.

`RunApprovals.obtain` records the question, suspends the run until it is answered, and then checks again everything
that the approval is bound to: people, arguments, evidence and pinned artifacts. Refuses the answer if any of it
changed. The approval is consumed by a compare-and-set in the commit that dispatches the call.
Source: docs/design/contracts.md, "Approval modes"; docs/design/standards.md, "Approvals".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from contextos.contracts.documents.operations import APPROVALS, ApprovalDocument, denial_key
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.identity import Approver, Principals
from contextos.contracts.envelopes.tool import Answered
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import derive
from contextos.contracts.journal import Timeout, Write
from contextos.contracts.ports.outside import Directory
from contextos.contracts.ports.seams import Journal, ProvedCancels
from contextos.contracts.scope import SESSION_LIMIT, Action, Redeemed, RunScope
from contextos.errors import Integrity
from contextos.trust.approvals.assertion import approval_fault
from contextos.trust.approvals.cancel_requests import UNPROVED_CANCEL, is_unproved
from contextos.trust.approvals.question import shown_text
from contextos.trust.identity.principals import look_up

Recheck = Callable[[], Awaitable[Mapping[str, str | None]]]
"""Returns the current content address of each thing that an approval is bound to; None for a withdrawn one."""


@dataclass(frozen=True, slots=True)
class RunApprovals:
    """Obtains a person's approvals for the calls of one run. Implements the port `Approvals`.

    `deferred` builds the record of the waiting decision, for the reason and the call named. `recheck` returns the
    function that reads the current content digests of a call. `unsafe` lists the unsafe settings of the deployment.
    """

    journal: Journal
    scope: RunScope
    directory: Directory
    deferred: Callable[[str, str], dict[str, Any]]
    recheck: Callable[[Action], Awaitable[tuple[Recheck, Sequence[Write]]]]
    unsafe: tuple[str, ...]
    proved_cancels: ProvedCancels

    async def obtain(self, action: Action) -> Redeemed | Failure:
        """Ask a person to approve this call and wait for the answer. Returns a valid approval, or the failure."""
        question = self._question(action)
        # The full question is only in the journal, where it can be erased.
        document = ApprovalDocument(
            approval_id=question["approval_id"],
            gate_id=question["gate_id"],
            required_role=question["required_role"],
            deadline_us=question["deadline_us"],
            binding_digest=question["binding_digest"],
            run_id=self.scope.run.run_id,
            state="open",
        )
        approval_id = document.approval_id
        self.journal.derive("approval.asked", action.key, question)
        self.journal.stage(APPROVALS.write(approval_id, 0, document))
        self.journal.derive("record.revised", f"approval/{action.key}", self.deferred("approval", action.key))
        await self.journal.commit(wake_at_us=question["deadline_us"])
        expired = APPROVALS.write(
            approval_id, 1, replace(document, state="expired"), not_before_us=document.deadline_us
        )
        kind, answer = await self.journal.wait(
            ("approval.answered", "approval.expired", "run.cancel_requested"),
            action.key,
            wake_at_us=question["deadline_us"],
            on_timeout=Timeout("approval.expired", (expired,)),
        )
        if kind == "approval.expired" and self.scope.session_over(question["deadline_us"]):
            detail = "nobody answered before the session ended"
            return self._failure("budget_exhausted", action, detail, facts=(SESSION_LIMIT,))
        if kind == "approval.expired":
            code = "approval_denied" if action.gate.on_timeout == "deny" else "approval_timeout"
            return self._failure(code, action, f"nobody answered `{action.gate.gate_id}` in {action.gate.timeout_s} s")
        if kind == "run.cancel_requested":
            if await is_unproved(self.journal, action.key, answer, self.proved_cancels):
                return self._void(action, approval_id, f"{UNPROVED_CANCEL} ended the wait for an answer")
            return self._failure("cancelled", action, "the run was cancelled while it waited")
        try:
            answer = Answered.model_validate(answer).to_json()
        except ValidationError:
            raise Integrity(
                f"`{self.journal.run_id}` holds a malformed approval answer; an operator must inspect it"
            ) from None
        if answer["verdict"] != "approved":
            return self._failure("approval_denied", action, f"`{answer['approver']}` denied: {answer['reason']}")
        void = await self._void_reason(action, question, answer)
        if void:
            return self._void(action, approval_id, void)
        consumed = replace(document, state="consumed", approver=answer["approver"])
        return Redeemed(
            approval_id,
            action.gate.gate_id,
            answer["approver"],
            question["evidence_snapshot_hash"],
            APPROVALS.write(approval_id, 2, consumed, not_after_us=document.deadline_us),
        )

    def _question(self, action: Action) -> dict[str, Any]:
        """Build the question: the binding, its digest, and the display text, which no model takes part in writing."""
        scope = self.scope
        deadline_us = scope.within_session(self.journal.now_us + action.gate.timeout_s * 1_000_000)
        evidence = [{"name": f.name, "evidence_ref": f.evidence_ref, "digest": f.digest} for f in action.evidence]
        requesters = [principal.to_json() for principal in scope.identity.chain]
        shown = shown_text(
            capability=action.capability.capability_id,
            mode=action.mode,
            gate=action.gate.gate_id,
            args=action.args,
            evidence=[
                {"name": f.name, "subject": f.subject, "value": f.value, "ref": f.evidence_ref} for f in action.evidence
            ],
            requester=requesters,
            untrusted=action.untrusted,
            secrets=action.secrets,
        )
        binding = {
            "tenant_id": scope.run.tenant_id,
            "run_id": scope.run.run_id,
            "tool_call_id": action.tool_call_id,
            "capability_id": action.capability.capability_id,
            "definition_digest": action.capability.definition_digest,
            "args_digest": content_address(dict(action.args)),
            "evidence_snapshot_hash": content_address(evidence),
            "policy_decision_id": action.decision.policy_decision_id,
            "pins_digest": content_address(dict(scope.pinned.pins)),
            "requester_chain": requesters,
            "shown_digest": content_address(shown),
            "gate_id": action.gate.gate_id,
            "required_role": action.gate.required_approver_role,
            "idempotency_key": action.idempotency_key,
            "nonce": self.journal.head,
            "deadline_us": deadline_us,
        }
        return {
            "approval_id": derive("appr_", scope.run.run_id, "approval", action.key),
            "gate_id": action.gate.gate_id,
            "required_role": action.gate.required_approver_role,
            "deadline_us": binding["deadline_us"],
            "evidence_snapshot_hash": binding["evidence_snapshot_hash"],
            "binding": binding,
            "binding_digest": content_address(binding),
            "args": dict(action.args),
            "shown": shown,
            "shown_digest": binding["shown_digest"],
            "barred": self._barred(),
            "approval_mode_effective": action.mode,
            "denial_key": denial_key(
                action.capability.capability_id, action.capability.definition_digest, action.idempotency_key
            ),
        }

    def _barred(self) -> list[str]:
        """Return the ids that cannot approve: requester, agent, agent's owner, issuer and publishers of the pins."""
        agent = self.scope.identity.principals.agent
        chain = {principal.id for principal in self.scope.identity.chain}
        issuer = self.scope.pinned.pack.contract_meta.issuer
        return sorted(chain.union(self.scope.pinned.publishers, {agent.agent_id, agent.owner, issuer}))

    async def _void_reason(self, action: Action, question: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
        """Return the first thing that changed since the approver answered, or None."""
        request, scope = self.scope.received.request, self.scope
        approver_id = answer["approver"]

        async def look_up_people() -> dict[str, Any]:
            # Past the deadline nothing is looked up, so a port that is down cannot delay the refusal.
            now_us = self.journal.time_us
            if now_us > question["deadline_us"] or self.scope.session_over(now_us):
                return {"principals": None, "approver": None, "unsafe_local": False, "late": True}
            principals = await look_up(self.directory, request, now_us)
            approver = await self.directory.approver(request.tenant_id, approver_id)
            return {
                "principals": principals.to_json() if principals else None,
                "approver": approver.to_json() if approver else None,
                "unsafe_local": "unsafe_local_approvals" in self.unsafe,
            }

        people = await self.journal.record(
            "identity.resolved", f"redeem/{action.key}", {"approver": approver_id}, look_up_people
        )
        if people.get("late"):
            return "its deadline has passed"
        look, incidents = await self.recheck(action)
        now = await self.journal.record(
            "evidence.rechecked", action.key, {"binding_digest": question["binding_digest"]}, look
        )
        self.journal.stage(*incidents)
        if answer["binding_digest"] != question["binding_digest"]:
            return "the answer is bound to another call"
        if content_address(dict(action.args)) != question["binding"]["args_digest"]:
            return "the arguments differ from those that the approver saw"
        if self.journal.now_us > question["deadline_us"]:
            return "its deadline has passed"
        known = Principals.model_validate(people["principals"]) if people["principals"] is not None else None
        if known is None or not known.same_as(scope.identity.principals):
            return "the requester or the agent changed"
        if people["approver"] is None:
            return "the approver is no longer known"
        # Any process with store access can append an answer without passing the operator's checks.
        if answer["assertion"]["kind"] == "unsafe_local" and not people["unsafe_local"]:
            return "this deployment does not accept answers without the approver's key"
        refused = approval_fault(Approver.model_validate(people["approver"]), question, answer)
        if refused:
            return str(refused)
        expected = {**scope.pinned.pins, **{f.evidence_ref + "#" + f.name: f.digest for f in action.evidence}}
        changed = sorted(name for name, digest in expected.items() if now.get(name) != digest)
        return f"`{changed[0]}` changed or was withdrawn" if changed else None

    def _void(self, action: Action, approval_id: str, reason: str) -> Failure:
        self.journal.derive("approval.voided", action.key, {"approval_id": approval_id, "reason": reason})
        detail = f"the approval no longer holds: {reason}"
        if self.scope.session_over(self.journal.now_us):
            return self._failure("budget_exhausted", action, detail, facts=(SESSION_LIMIT,))
        return self._failure("approval_void", action, detail)

    @staticmethod
    def _failure(code: Any, action: Action, detail: str, **about: Any) -> Failure:
        step_id, capability_id = action.key.split("/")[1], action.capability.capability_id
        return Failure(code=code, detail=detail, step_id=step_id, capability_id=capability_id, **about)
