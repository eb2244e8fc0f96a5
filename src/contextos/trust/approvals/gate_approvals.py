"""Gate approvals: a person approves one call, with its final arguments and frozen evidence, once.

`RunApprovals.obtain` records the question, suspends the run until it is answered, and then checks again everything
that the approval is bound to: people, arguments, evidence and pinned artifacts. Refuses the answer if any of it
changed. The approval is consumed by a compare-and-set in the commit that dispatches the call.
Source: docs/design/contracts.md, "Approval modes"; docs/design/standards.md, "Approvals".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from contextos.contracts.documents.operations import APPROVALS, ApprovalDocument
from contextos.contracts.encoding.display_escape import displayed, displayed_json
from contextos.contracts.encoding.jcs import content_address, same_json
from contextos.contracts.entries.of_run import UNPROVED_CANCEL
from contextos.contracts.envelopes.identity import Answered, Approver
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import derive
from contextos.contracts.journal import VOID_ANSWER, Timeout, Write
from contextos.contracts.model import changed, final_fields
from contextos.contracts.ports.outside import Directory, Signer
from contextos.contracts.ports.seams import Journal, ProvedCancels
from contextos.contracts.scope import SESSION_LIMIT, Action, Fact, Redeemed, RunScope
from contextos.errors import ApprovalRefused, Overloaded
from contextos.trust.approvals.assertion import approval_fault
from contextos.trust.approvals.cancel_requests import is_unproved
from contextos.trust.identity.principals import look_up


@dataclass(frozen=True, slots=True)
class Recheck:
    """A second look at the pins and evidence that an approval is bound to.

    `look_up` returns the current content address of each pin and evidence by name: None for a withdrawn one, and digest
    and value for volatile evidence. It also adds to `incidents` the incidents of changed definitions, and to `values`
    the current value of each evidence, by the same name.
    """

    look_up: Callable[[], Awaitable[Mapping[str, Any]]]
    incidents: list[Write]
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class VoidQuestion:
    """Why an answer to an open question would not count. `name` is the first pin or evidence that changed, or "".
    `before` and `now` are its values (evidence) or digests (pin), None if it is gone. `changed` names all changed pins
    and evidence (`<reference>#<name>`). `volatile` says how far each number of the evidence can move.
    """

    reason: str
    name: str = ""
    before: Any = None
    now: Any = None
    changed: tuple[str, ...] = ()
    volatile: Mapping[str, float] = field(default_factory=dict)

    @property
    def detail(self) -> str:
        """Return the reason in one line, with each old and new value, escaped for display."""
        most = {self.name + place.replace("/", "."): one for place, one in self.volatile.items()}
        differing = [
            f"{displayed(name)} was {displayed_json(before, 200)} and is {displayed_json(now, 200)}"
            + (f", and can move by at most {displayed_json(most[name])}" if name in most else "")
            for name, before, now in _differences(self.name, self.before, self.now)
        ]
        return f"{self.reason}: {'; '.join(differing[:8])}" if differing else self.reason

    def refusal(self, run_id: str) -> ApprovalRefused:
        """Return the refusal of an approval of this question."""
        remedy = f"nothing was recorded; have the question asked again: `contextos approvals reask {run_id}`"
        return ApprovalRefused("approval_void", f"the question is void: {self.detail}; {remedy}")


CheckQuestion = Callable[[bool], Awaitable[VoidQuestion | None]]
"""Returns why an open question is void, or None. Records nothing. False: it asks no tool that leaves the machine."""


def _differences(name: str, before: Any, now: Any) -> list[tuple[str, Any, Any]]:
    """Return the leaves in which two JSON values differ as (place, old, new), with None for a missing leaf."""
    if same_json(before, now):
        return []
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = [one for one in {**before, **now} if one not in before or one not in now or before[one] != now[one]]
        return [leaf for one in names for leaf in _differences(f"{name}.{one}", before.get(one), now.get(one))]
    return [(name, before, now)]


def _others(bound: Mapping[str, str], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of `Recheck.look_up` whose digest is not the bound digest, by name; None for a missing one."""
    digests = {name: one["digest"] if isinstance(one, Mapping) else one for name, one in now.items()}
    return {name: now.get(name) for name in bound.keys() | now.keys() if digests.get(name) != bound.get(name)}


@final_fields
class RunApprovals:
    """Obtains a person's approvals for the calls of one run. Implements the port `Approvals`.

    `deferred` builds the record of the waiting decision from a reason and the key of the call. `recheck` returns the
    `Recheck` of a call. `unsafe` lists the unsafe settings of the deployment. `look_anew` drops earlier results of
    reading the store, because time has passed. `at_question` receives the check of each open question. `take_place`
    takes one of the limited places for questions to a role and returns the write; None: questions are not counted.
    """

    journal: Journal
    scope: RunScope
    directory: Directory
    signer: Signer
    deferred: Callable[[str, str], dict[str, Any]]
    recheck: Callable[[Action, bool | None], Awaitable[Recheck]]
    unsafe: tuple[str, ...]
    proved_cancels: ProvedCancels
    look_anew: Callable[[], None]
    at_question: Callable[[CheckQuestion], None] | None = None
    take_place: Callable[[str, str], Awaitable[Write]] | None = None

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
        place = await self._place(document)
        self.journal.derive("approval.asked", action.key, question)
        self.journal.stage(APPROVALS.write(approval_id, 0, document), *place)
        self.journal.derive("record.revised", f"approval/{action.key}", self.deferred("approval", action.key))
        await self.journal.commit(wake_at_us=question["deadline_us"])
        if self.at_question is not None and not self.journal.on_tape:
            self.at_question(partial(self._void_question, action, question))
        expired = APPROVALS.write(
            approval_id, 1, changed(document, state="expired"), not_before_us=document.deadline_us
        )
        kind, answer = await self.journal.wait(
            ("approval.answered", "approval.expired", "approval.reasked", "run.cancel_requested"),
            action.key,
            wake_at_us=question["deadline_us"],
            on_timeout=Timeout("approval.expired", (expired,)),
        )
        if kind == VOID_ANSWER:
            return self._void(action, approval_id, answer)
        if kind == "approval.expired" and self.scope.session_over(question["deadline_us"]):
            detail = "nobody answered before the session ended"
            return self._failure("budget_exhausted", action, detail, facts=(SESSION_LIMIT,))
        if kind == "approval.expired":
            code = "approval_denied" if action.gate.on_timeout == "deny" else "approval_timeout"
            return self._failure(code, action, f"nobody answered `{action.gate.gate_id}` in {action.gate.timeout_s} s")
        if kind == "approval.reasked":
            # A driver goes on only if a sealed act proves the entry.
            return self._void(action, approval_id, "it is asked again")
        if kind == "run.cancel_requested":
            if await is_unproved(self.journal, action.key, answer, self.proved_cancels):
                return self._void(action, approval_id, f"{UNPROVED_CANCEL} ended the wait for an answer")
            return self._failure("cancelled", action, "the run was cancelled while it waited")
        answer = Answered.model_validate(answer).to_json()
        void, now = await self._void_reason(action, question, answer)
        if void:
            return self._void(action, approval_id, void)
        if answer["verdict"] != "approved":
            return self._failure("approval_denied", action, f"`{answer['approver']}` denied: {answer['reason']}")
        consumed = changed(document, state="consumed", approver=answer["approver"])
        return Redeemed(
            approval_id,
            action.gate.gate_id,
            answer["approver"],
            question["binding"]["evidence_snapshot_hash"],
            APPROVALS.write(approval_id, 2, consumed, not_after_us=document.deadline_us),
            self._moved(action, now),
        )

    @staticmethod
    def _moved(action: Action, now: Mapping[str, Any]) -> tuple[Fact, ...]:
        """Return the volatile evidence that changed within its tolerance, with its current value and digest."""
        found = ((fact, now.get(fact.evidence_ref + "#" + fact.name)) for fact in action.evidence if fact.volatile)
        return tuple(
            changed(fact, value=one["value"], digest=one["digest"]) for fact, one in found if isinstance(one, Mapping)
        )

    async def _place(self, document: ApprovalDocument) -> tuple[Write, ...]:
        """Return the write that counts the question, or (). Raises `Overloaded` if the role has as many open questions
        as it may have; the run is then due again later and asks then.
        """
        if self.take_place is None or self.journal.on_tape:
            return ()
        try:
            return (await self.take_place(document.required_role, document.approval_id),)
        except Overloaded as full:
            await self.journal.commit(wake_at_us=self.journal.time_us + full.retry_after_ms * 1_000)
            raise

    def _question(self, action: Action) -> dict[str, Any]:
        """Build the question: the call in clear, its digests, and the text that is derived from them."""
        scope = self.scope
        deadline_us = scope.within_session(self.journal.now_us + action.gate.timeout_s * 1_000_000)
        evidence = [
            {"name": f.name, "subject": f.subject, "value": f.value, "ref": f.evidence_ref, "digest": f.digest}
            | ({"volatile": dict(f.volatile)} if f.volatile else {})
            for f in action.evidence
        ]
        binding = {
            "tenant_id": scope.run.tenant_id,
            "run_id": scope.run.run_id,
            "tool_call_id": action.tool_call_id,
            "capability_id": action.capability.capability_id,
            "mode": action.mode,
            "definition_digest": action.capability.definition_digest,
            "args_digest": content_address(dict(action.args)),
            "evidence_snapshot_hash": content_address(evidence),
            "policy_decision_id": action.decision.policy_decision_id,
            "pins_digest": content_address({"pins": scope.pins_of(action), "semantics": scope.pinned.semantics}),
            "requester_chain": [principal.to_json() for principal in scope.identity.chain],
            "untrusted": {name: list(found) for name, found in action.untrusted.items()},
            "secrets": {name: list(found) for name, found in action.secrets.items()},
            "instructions": list(action.instructions),
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
            "binding": binding,
            "binding_digest": content_address(binding),
            "args": dict(action.args),
            "evidence": evidence,
            "barred": self._barred(),
        }

    def _barred(self) -> list[str]:
        """Return the ids that cannot approve: requester, agent, agent's owner, issuer and publishers of the pins."""
        principals = self.scope.identity.principals
        agent = principals.agent
        chain = {principal.id for principal in self.scope.identity.chain}
        issuer = self.scope.pinned.pack.contract_meta.issuer
        return sorted(
            chain.union(self.scope.pinned.publishers, {agent.agent_id, agent.owner, issuer}, principals.approver_ids)
        )

    async def _void_question(self, action: Action, question: Mapping[str, Any], outside: bool) -> VoidQuestion | None:
        """Return why the question is void for every answer, or None. An expired question is not called void."""
        people = await self._people(question, "", self.journal.time_us)
        if people.get("late"):
            return None
        again = await self.recheck(action, outside)
        now, values = _others(self._bound(action), await again.look_up()), again.values
        if self.journal.time_us > question["deadline_us"]:
            return None
        reason, changed = self._changed(action, question, people, now)
        if not changed:
            return VoidQuestion(reason) if reason else None
        name = changed[0]
        facts = {fact.evidence_ref + "#" + fact.name: fact for fact in action.evidence}
        if name in facts:
            fact = facts[name]
            return VoidQuestion(reason, fact.name, fact.value, values.get(name), changed, fact.volatile)
        return VoidQuestion(reason, name, self.scope.pinned.pins.get(name), now.get(name), changed)

    async def _look_again(
        self, action: Action, question: Mapping[str, Any], approver_id: str, *, denied: bool = False
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Look up again the people and everything else that the question is bound to, and record it.

        A denial rests on no fact and on no requester, so it counts if its approver gave it in time.
        """
        answered_us = self.journal.now_us

        async def look_up_people() -> dict[str, Any]:
            now_us = answered_us if denied else self.journal.time_us
            return await self._people(question, approver_id, now_us, denied=denied)

        people = await self.journal.record(
            "identity.resolved", f"redeem/{action.key}", {"approver": approver_id}, look_up_people
        )
        if denied or people.get("late"):
            return people, {}
        again, bound = await self.recheck(action, None), self._bound(action)

        async def look() -> dict[str, Any]:
            return {"bound": len(bound), "other": _others(bound, await again.look_up())}

        now = await self.journal.record(
            "evidence.rechecked", action.key, {"binding_digest": question["binding_digest"]}, look
        )
        self.journal.stage(*again.incidents)
        return people, now

    async def _people(
        self, question: Mapping[str, Any], approver_id: str, now_us: int, *, denied: bool = False
    ) -> dict[str, Any]:
        """Return the requester's principals and the approver as the directory knows them now. Past the deadline nothing
        is looked up (`late`), so a port that is down cannot delay the refusal.
        """
        if now_us > question["deadline_us"] or self.scope.session_over(now_us):
            return {"principals": None, "approver": None, "unsafe_local": False, "late": True}
        principals = None if denied else await look_up(self.directory, self.scope.received.request, now_us)
        self.look_anew()
        approver = await self.signer(approver_id) if approver_id else None
        return {
            "principals": self.scope.identity.principals.looked_up_again(principals),
            "approver": approver.to_json() if approver else None,
            "unsafe_local": "unsafe_local_approvals" in self.unsafe,
        }

    def _bound(self, action: Action) -> dict[str, str]:
        """Return the digest of each pin and evidence that an approval of this call is bound to, by name."""
        facts = {fact.evidence_ref + "#" + fact.name: fact.digest for fact in action.evidence}
        return {**self.scope.pins_of(action), **facts}

    def _changed(
        self, action: Action, question: Mapping[str, Any], people: Mapping[str, Any], now: Mapping[str, Any]
    ) -> tuple[str, tuple[str, ...]]:
        """Return why the question is void for every answer ("": it is not), and which pins and evidence changed.

        `now` has the pins and evidence that differ from the bound ones (`_others`).
        """
        if people.get("late") or self.journal.now_us > question["deadline_us"]:
            return "its deadline has passed", ()
        known = self.scope.identity.principals.of_later(people["principals"])
        if known is None or not known.same_as(self.scope.identity.principals):
            return "the requester or the agent changed", ()
        facts = {fact.evidence_ref + "#" + fact.name: fact for fact in action.evidence}
        changed = sorted(
            name
            for name, found in now.items()
            if name not in facts or not isinstance(found, Mapping) or facts[name].moved_to(found["value"]) is None
        )
        return (f"`{changed[0]}` changed or was withdrawn" if changed else ""), tuple(changed)

    async def _void_reason(
        self, action: Action, question: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> tuple[str | None, Mapping[str, Any]]:
        """Return why the answer does not count or why the question is void, or None; and the pins and evidence that
        differ from the bound ones.
        """
        denied = answer["verdict"] != "approved"
        people, looked = await self._look_again(action, question, answer["approver"], denied=denied)
        now = looked.get("other", {})
        if people.get("late"):
            return "its deadline has passed", now
        if denied:
            return self._unproved(question, answer, people), now
        if looked["bound"] != len(self._bound(action)):
            return "not everything that it is bound to was looked up", now
        changed, _ = self._changed(action, question, people, now)
        if content_address(dict(action.args)) != question["binding"]["args_digest"]:
            return "the arguments differ from those that the approver saw", now
        return self._unproved(question, answer, people) or changed or None, now

    @staticmethod
    def _unproved(question: Mapping[str, Any], answer: Mapping[str, Any], people: Mapping[str, Any]) -> str | None:
        """Return why nothing proves that the approver gave this answer to this question, or None.

        Any process with store access can append an answer without passing the operator's checks.
        """
        if answer["binding_digest"] != question["binding_digest"]:
            return "the answer is bound to another call"
        if people["approver"] is None:
            return "the approver is no longer known"
        if answer["assertion"]["kind"] == "unsafe_local" and not people["unsafe_local"]:
            return "this deployment does not accept answers without the approver's key"
        refused = approval_fault(Approver.model_validate(people["approver"]), question, answer)
        return str(refused) if refused else None

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
