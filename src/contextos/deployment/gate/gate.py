"""Sessions: the gate through which an agent that chooses its own calls acts, one call after the other.

A session is one run, and its name is the request id of the run. `opening.open_session` opens or finds it.
Each call is recorded before anything outside is called, and its answer before the agent reads it. So the same call
again, after a crash or from another process, returns the recorded answer and has no second effect.
Source: docs/design/sessions.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from contextos.contracts.encoding.secret_shapes import SECRET_MARK
from contextos.contracts.entries.reading import read_body
from contextos.contracts.entries.recorded import AskedSecrets
from contextos.contracts.envelopes.artifacts import RecordedArtifact, Withheld
from contextos.contracts.envelopes.tool import CapabilityDefinition, ToolError
from contextos.contracts.envelopes.verdicts import Failure, FailureCode, SessionOutcome
from contextos.contracts.facts import tool_remedy
from contextos.contracts.ids import derive
from contextos.contracts.journal import AgentMessage, Entry
from contextos.contracts.ports.gates import (
    CallAnswer,
    Done,
    Reason,
    Refused,
    Waiting,
    checked_call,
    checked_text,
    refused_call,
)
from contextos.deployment.acts.checks import MAX_REASON_CHARS
from contextos.deployment.deployment import Deployment
from contextos.deployment.driver import DrivenState
from contextos.deployment.queries.rationales import DECIDED, denying_rules, pinned_artifacts, rule_rationales
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ConflictingRequest, InvalidInput, Problem, Unavailable
from contextos.runtime.attempts.agent_session import ASKED, FINISHED
from contextos.runtime.inputs.request_conflicts import conflict, differences
from contextos.runtime.models import TURN
from contextos.runtime.redaction import cleanse_text

ANSWERED: Final = "call.answered"
RESULTS: Final = ("tool.returned", "tool.refused", "effect.settled")

NO_TOOLS: Final = "this user can use none of its tools through this agent; finish the session"
REMEDIES: Final[Mapping[FailureCode | Literal["session_ended", "erased"], str]] = {
    "tool_not_in_manifest": "use a tool of the session",
    "unknown_intent": "open a session of an intent that the tenant has",
    "consent_missing": "ask the person concerned for their consent, and record it where the pack reads it",
    "parameter_missing": "open a new session whose request has the value",
    "other_environment": "open the session at the deployment of that environment",
    "unpinned_ref": "an operator pins it; then open a new session",
    "unknown_ref": "finish the session and open a new one; what it was admitted with changed or was withdrawn",
    "no_model_route": "an operator corrects the pack; then open a new session",
    "model_failed": "the session is over; an operator looks at the models of the pack",
    "judge_objects": "do not ask for the same call again; take another way, or finish the session",
    "approval_mode_mismatch": "the author of the pack corrects the step; take another way, or finish the session",
    "violates_decision_spec": "do not try it again; take another way, or finish the session",
    "loop_guard": "do not repeat the same call; take another way, or finish the session",
    "idempotency_conflict": "the same operation was asked for with other arguments; use those, or finish the session",
    "schema_mismatch": "correct the arguments and call again under a new call id",
    "argument_out_of_bounds": "stay within the bounds, or finish the session",
    "quarantined": "use another tool; an operator looks at what changed",
    "secret_lost": "call again with the secret, under a new call id",
    "untrusted_destination": "use a destination that the request or trusted evidence names, or finish the session",
    "policy_denied": "do not try it again; take another way, or finish the session",
    "policy_eval_error": "read the missing facts first, then call again under a new call id",
    "missing_evidence": "make the reads that provide the evidence, for the same arguments, then call again",
    "approval_denied": "a person said no; do not ask again",
    "approval_timeout": "the session is over; an operator can reopen it to ask again",
    "approval_void": "something changed since the question was asked; read again, then ask under a new call id",
    "platform_scope_missing": "an operator adds it to the agent in the directory; then open a new session",
    "identity_refused": "the user has to sign in or delegate again",
    "budget_exhausted": "the session is over; an operator can reopen it with more",
    "must_escalate": "the session is over; a person decides",
    "unsafe_output": "a person looks at what the tool answered",
    "output_disagrees": "a person looks at what the tool answered",
    "effect_uncertain": "make the same call again once a person has settled what happened",
    "tool_failed": "the tool failed; take another way, or finish the session",
    "cancelled": "the session is over; a person stopped it",
    "session_ended": "open a new session",
    "erased": "read the record of the session",
}
"""What an agent can do about a refusal, by its code."""
WITHHELD_READ: Final = "read something else, or go on without it"


@dataclass(frozen=True, slots=True)
class CallGate:
    """The calls of one session, and its end. A call continues from the session that this process holds in memory. It
    reads nothing first, so each call costs the same.

    Calls of one session are made one after the other. Safe to use from several tasks.
    """

    deployment: Deployment
    tenant_id: str
    run_id: str
    session: str

    async def call(self, name: str, args: Mapping[str, Any] | str, *, call_id: str) -> CallAnswer:
        """Ask for a call of the tool `name`. `call_id` is the agent's id of the call: the same id is the same call.
        `args` is an object, or its JSON text.

        Raises:
            InvalidInput: the arguments are not a JSON object, the call id is malformed, or the call id was used for
                another call (`ConflictingRequest`); the journal then records a refused call without its arguments and
                its id. Or the run is not a session, or a model chooses its calls (`no_session`); then nothing is
                recorded.
            Unavailable: the store or the tool does not answer, or no process can drive the session; make the same call
                again.
        """
        try:
            tool, checked = checked_call(name, args, call_id)
            asked_call = {"tool": tool, "args": checked}
            state = await self.deployment.say(self.tenant_id, self.run_id, AgentMessage(ASKED, call_id, asked_call))
            recorded = _find_entry(state.entries, ASKED, call_id)
            if recorded is not None:
                if "/" in call_id:
                    # Can be the key of a call that a model chose: its turn, a slash and the id.
                    require_agent(state.entries)
                await self._refuse_other_call(recorded, asked_call, state.entries)
        except InvalidInput as fault:
            key = derive("refused_", self.run_id, ASKED, self.deployment.ports.clock.now_us())
            message = AgentMessage(ASKED, key, refused_call(name, fault))
            state = await self.deployment.say(self.tenant_id, self.run_id, message)
            is_recorded = state.view.ended or _find_entry(state.entries, ASKED, key) is not None
            if not is_recorded and not isinstance(fault, ConflictingRequest):
                # The id belongs to another call: that one waits, so the agent must not read that this call does.
                return _unasked_answer(call_id, state)
            raise
        if recorded is None:
            return _unasked_answer(call_id, state)
        return await self._call_answer(call_id, tool, state)

    async def finish(self, outcome: SessionOutcome, reason: str = "") -> RunView:
        """End the session with the agent's outcome, and return the run with its DecisionRecord.

        The run is escalated if the journal contradicts the outcome. `approved` needs that the last call of each write
        tool was done; without a write, also all required evidence, and done reads if the decision governs writes.
        `denied` needs that nothing was done. Finishing an ended session again returns its record.

        Raises:
            InvalidInput: the outcome is not `approved`, `denied` or `escalated`, the session waits for an answer about
                a call, it was finished with another outcome (`ConflictingRequest`), or a model chooses its calls
                (`no_session`).
            Unavailable: the store does not answer, or no process can drive the session; finish it again.
        """
        if outcome not in get_args(SessionOutcome):
            detail = f"`{str(outcome)[:40]}` is not an outcome"
            raise InvalidInput(Problem("/outcome", "unknown_outcome", detail, "use approved, denied or escalated"))
        fields = {"outcome": outcome, "reason": checked_text(reason, "/reason", MAX_REASON_CHARS, empty=True)}
        # An operator can reopen a session; then it is finished once more.
        entries = await self.deployment.ports.stores.tenant(self.tenant_id).read(self.run_id)
        require_agent(entries)
        times = sum(entry.kind == "run.reopened" for entry in entries)
        state = await self.deployment.say(
            self.tenant_id, self.run_id, AgentMessage("session.finished", str(times), fields)
        )
        recorded = _find_entry(state.entries, FINISHED, str(times))
        previous = read_body(recorded) if recorded else None
        if previous is not None and previous["outcome"] != outcome:
            detail = f"the session was finished as `{previous['outcome']}`"
            raise ConflictingRequest(Problem("/outcome", "conflicting_outcome", detail, "read its record"))
        if not state.view.ended:
            waits = _waits_for(state.view)
            detail = f"the session waits for an answer ({waits}) about an earlier call"
            raise InvalidInput(Problem("", "session_waits", detail, "make that call again until it is answered"))
        return state.view

    async def view(self) -> RunView:
        """Return the state of the session's run without driving it."""
        return await self.deployment.view(self.tenant_id, self.run_id)

    async def _refuse_other_call(self, recorded: Entry, call: Mapping[str, Any], entries: Sequence[Entry]) -> None:
        """Refuse a call id that was recorded for another call."""
        body = read_body(recorded)
        if body is None:
            return
        recorded_secrets, previous = body.get("secrets"), call_of(body)
        if previous == call:
            return
        if recorded_secrets is not None:
            secrets, values = AskedSecrets.model_validate(recorded_secrets), self.deployment.secret_values
            call = values.recorded(self.run_id, call, secrets, previous["args"])
        # An argument that could be a secret at a wrong place is not recorded; its call is refused, whatever it was.
        masked = {name: arg for name, arg in previous["args"].items() if arg == SECRET_MARK and name in call["args"]}
        call = {**call, "args": {**call["args"], **masked}}
        loaded = await pinned_artifacts(self.deployment.catalog(self.tenant_id), entries)
        # The pack redacts a call before it is recorded, so the new call is redacted before the comparison.
        redacted = cleanse_text(loaded.pack, dict(call)) if loaded is not None else None
        if redacted != previous:
            changes = differences(previous, redacted) if redacted is not None else []
            detail = f"the call id `{recorded.key}` was used for another call"
            raise conflict("/call_id", detail, changes, "use a new call id", code="conflicting_call")

    async def _call_answer(self, call_id: str, tool: str, state: DrivenState) -> CallAnswer:
        answered = _find_entry(state.entries, ANSWERED, call_id)
        body = read_body(answered) if answered else None
        if body is None and not answered and not state.view.ended:
            return _waiting_answer(call_id, state)
        if body is None:
            return _erased_answer(call_id, state)
        failures = [Failure.model_validate(failure) for failure in body["failures"]]
        if body["status"] == "refused":
            rules = [_denying_rule_ids(failure, body["step"], state.entries) for failure in failures]
            rationales = await self._read_rationales(rules, state.entries)
            reasons = [
                _reason(failure, tool, state.entries, [rationales[name] for name in rule_ids if name in rationales])
                for failure, rule_ids in zip(failures, rules, strict=True)
            ]
            reasons = self._add_reads(reasons, opened_tools(state.entries) or ())
            return Refused(call_id, tuple(reasons), state.view.ended)
        result = _last_result(state.entries, body["step"])
        if result is None:
            return _erased_answer(call_id, state)
        envelope, is_replayed = result
        error = ToolError.model_validate(envelope["error"]) if envelope.get("error") else None
        withheld = Withheld.model_validate(envelope["withheld"]) if envelope.get("withheld") else None
        if withheld is not None:
            error = error and error.model_copy(update={"remedy": WITHHELD_READ})
            return Done(call_id, None, error, is_replayed, withheld)
        if body["status"] == "failed" and error is None:
            # A person settled that the effect did not happen; the result does not say so.
            error = ToolError(code=failures[0].code, message=failures[0].detail)
        artifacts = tuple(map(RecordedArtifact.model_validate, envelope.get("artifacts", ())))
        # A caller that prints only the output then reads why the call has none.
        output = envelope.get("output")
        if error and output is None:
            output = {"error": {"code": error.code, "message": error.message}}
        return Done(call_id, output, error, is_replayed, artifacts=artifacts)

    def _add_reads(self, reasons: Sequence[Reason], tools: Sequence[str]) -> list[Reason]:
        """Name the reads that provide missing evidence. For a call that policy denies, no remedy says to call again."""
        is_denied = any(reason.code == "policy_denied" for reason in reasons)
        definitions = known_tools(self.deployment, self.tenant_id)
        remedied = []
        for reason in reasons:
            reads = [
                name
                for name in tools
                if name in definitions
                and any(f"`{evidence}`" in reason.detail for evidence in definitions[name].produces)
            ]
            remedy = reason.remedy
            if reason.code == "missing_evidence" and (is_denied or reads):
                names = " and ".join(f"`{name}`" for name in reads)
                remedy = f"call {names} first, for the same arguments, then call again under a new call id"
                remedy = REMEDIES["policy_denied"] if is_denied else remedy
            remedied.append(replace(reason, remedy=remedy))
        return remedied

    async def _read_rationales(self, rules: Sequence[Sequence[str]], entries: Sequence[Entry]) -> Mapping[str, str]:
        """Return, by rule, why it exists, from the pack and the policies that the session is pinned to."""
        if not any(rules):
            return {}
        loaded = await pinned_artifacts(self.deployment.catalog(self.tenant_id), entries)
        return rule_rationales(loaded) if loaded else {}


@dataclass(frozen=True, slots=True)
class Gate(CallGate):
    """One open session, through which the calls of an agent go out. `tools` are the ids of the tools that the agent can
    call.
    """

    tools: tuple[str, ...]

    def described_tools(self) -> dict[str, CapabilityDefinition]:
        """Return the definitions of the tools of the session that this process has, by tool id."""
        definitions = known_tools(self.deployment, self.tenant_id)
        return {name: definitions[name] for name in self.tools if name in definitions}


def opened_tools(entries: Sequence[Entry]) -> tuple[str, ...] | None:
    """Return the tools of a session as it was opened last; None if it is not a session or the entry was erased."""
    opening = next((entry for entry in reversed(entries) if entry.kind == "session.opened" and entry.body), None)
    return tuple(read_body(opening)["tools"]) if opening else None


def not_opened() -> InvalidInput:
    """Return the error for a run that is not a session, or has no tools yet."""
    detail = "it is not a session, or it has ended, or waits, before it had tools"
    return InvalidInput(Problem("/session", "not_opened", detail, "read its run, or open a session of another name"))


def require_agent(entries: Sequence[Entry]) -> None:
    """Raise `InvalidInput` for a run that is not a session, or whose calls a model chooses and not an agent."""
    if all(entry.kind != "session.opened" for entry in entries):
        raise not_opened()
    if any(entry.kind == "model.routed" and entry.key.startswith(TURN) for entry in entries):
        detail = "its calls are chosen by a model that the runtime asks"
        raise InvalidInput(Problem("/session", "no_session", detail, "read its run, or open a session of another name"))


def _reason(failure: Failure, tool: str, entries: Sequence[Entry], rationales: Sequence[str]) -> Reason:
    detail, remedy = failure.detail, REMEDIES[failure.code]
    if failure.code == "tool_not_in_manifest":
        tools = opened_tools(entries) or ()
        detail = f"`{tool}` is not a tool of this session"
        remedy = tool_remedy(tool, tools) if tools else NO_TOOLS
    if failure.code == "policy_eval_error" and failure.facts and all(key.startswith("args.") for key in failure.facts):
        remedy = REMEDIES["schema_mismatch"]
    return Reason(failure.code, detail, remedy, tuple(failure.facts), tuple(dict.fromkeys(rationales)))


def known_tools(deployment: Deployment, tenant_id: str) -> dict[str, CapabilityDefinition]:
    """Return the definitions of all tools of a tenant's adapters, by tool id."""
    return {
        f"{adapter_id}.{capability.name}": capability
        for adapter_id, adapter in deployment.ports.adapters(tenant_id).items()
        for capability in adapter.describe().capabilities
    }


def call_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call that an agent asked for, from the body of its entry: its tool, and its arguments as recorded."""
    return {"tool": body["tool"], "args": body["args"]}


def _unasked_answer(call_id: str, state: DrivenState) -> CallAnswer:
    require_agent(state.entries)
    if state.view.ended:
        ended = Reason("session_ended", f"the session has ended as `{state.view.state}`", REMEDIES["session_ended"])
        return Refused(call_id, (ended,), ended=True)
    return _waiting_answer(call_id, state)


def _erased_answer(call_id: str, state: DrivenState) -> Done | Refused:
    """Return the answer to a call whose recorded answer is gone. A sent call is never reported as not made."""
    detail = "the answer was erased, or the session ended before it"
    if _was_sent(state.entries, call_id):
        withheld = Withheld(code="erased", detail="the call was sent, and its answer was erased")
        error = ToolError(code=withheld.code, message=withheld.detail, remedy=REMEDIES["erased"])
        return Done(call_id, None, error, withheld=withheld)
    return Refused(call_id, (Reason("erased", detail, REMEDIES["erased"]),), state.view.ended)


def _was_sent(entries: Sequence[Entry], call_id: str) -> bool:
    """Return whether a call was sent. Its entries reach up to the next call; their kinds are never erased."""
    is_same_call = False
    for entry in entries:
        is_same_call = entry.key == call_id if entry.kind == ASKED else is_same_call
        if is_same_call and entry.kind == "tool.dispatching":
            return True
    return False


def _waiting_answer(call_id: str, state: DrivenState) -> Waiting:
    waits_for = _waits_for(state.view)
    asked_id = next((entry.key for entry in reversed(state.entries) if entry.kind == ASKED), call_id)
    question = {name: value for name, value in (state.view.waiting or {}).items() if name != "for"}
    return Waiting(call_id, waits_for, asked_id, question)


def _waits_for(view: RunView) -> str:
    """Return what the session waits for after a drive. Raises `Unavailable` if no process drove it."""
    waits_for = (view.waiting or {}).get("for", "engine")
    if waits_for == "agent":
        # A session that a process drives takes the message and no longer waits for the agent.
        detail = "is not driven, because its last drivers died; an operator reads `contextos runs dead-letters`"
        raise Unavailable("session", f"`{view.run_id}` {detail}", retry_after_ms=60_000)
    return str(waits_for)


def _denying_rule_ids(failure: Failure, step: str | None, entries: Sequence[Entry]) -> list[str]:
    """Return the rules that deny: those that the failure names, or else those of the gateway's decisions on the
    step.
    """
    if failure.code != "policy_denied" or failure.rule_ids or step is None:
        return list(failure.rule_ids)
    decisions = (read_body(entry) for entry in entries if entry.kind == DECIDED and entry.key.partition("/")[2] == step)
    return [name for body in decisions if body for name in denying_rules(body)]


def _last_result(entries: Sequence[Entry], key: str) -> tuple[Mapping[str, Any], bool] | None:
    """Return the last unerased result under `key`, or None, and whether an earlier call made it."""
    for entry in reversed(entries):
        if "/".join(entry.key.split("/")[:2]) == key and entry.kind in RESULTS:
            body = read_body(entry)
            if body is not None:
                envelope = body.get("envelope", body)
                return envelope, bool(envelope.get("metadata", {}).get("made_by"))
    return None


def _find_entry(entries: Sequence[Entry], kind: str, key: str) -> Entry | None:
    for entry in reversed(entries):
        if entry.key == key and entry.kind == kind:
            return entry
    return None
