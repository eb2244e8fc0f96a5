"""Ask models for a plan, the next calls of a session, or a judgement, and build the AI Gateway of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from contextos.action.models.gateway import ModelGateway, ModelPorts
from contextos.action.models.questions import ModelAnswer, ModelQuestion
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.models import ModelOperation
from contextos.contracts.envelopes.plan import Plan, TaskTemplate
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import derive
from contextos.contracts.journal import Logged
from contextos.contracts.ports.models import ModelMessage, ProposedCall
from contextos.contracts.scope import Capability
from contextos.contracts.trace import child_headers
from contextos.decision.judging import (
    JUDGEMENT_SCHEMA,
    SCORE,
    VERIFY,
    Judgement,
    judge_messages,
    judgement_of,
    objections,
)
from contextos.decision.parallel_reads import MAX_PARALLEL_READS
from contextos.decision.planners.foreign import plan_of_answer
from contextos.decision.planners.model import (
    END_NAME,
    MODEL_PLANNER,
    PLAN_OPERATION,
    highest_shown,
    model_tools,
    plan_messages,
    plan_schema,
    proposal_of,
    result_message,
    session_messages,
)
from contextos.errors import ReplayMismatch
from contextos.runtime.admission import AdmittedRun
from contextos.runtime.environment import RunEnvironment, look_for_cancel
from contextos.runtime.model_policy import refused_models
from contextos.runtime.redaction import cleanse_text

TURN: Final = "turn/"
"""The beginning of the key of a question in which a model chooses the next calls of its session."""
JUDGE_TIMEOUT_MS: Final = 60_000
"""How long a judgement can take, in milliseconds. The limits of its profile and of the run apply too."""


def model_gateway(admitted: AdmittedRun, environment: RunEnvironment) -> ModelGateway:
    """Build the AI Gateway of a run."""
    scope, pack = admitted.scope, admitted.loaded.pack

    def headers(key: str) -> dict[str, str]:
        return child_headers(scope.received.request.trace, derive("", scope.run.run_id, "model", key), external=True)

    async def withdrawn(refs: Collection[str]) -> Sequence[str]:
        looked = await environment.barrier.found(active=True)
        _, now = await environment.artifacts.catalog.pins_now(refs, {}, looked)
        return [ref for ref in refs if now[ref] is None]

    ports = ModelPorts(
        environment.journal,
        environment.ports.models,
        environment.artifacts.estimator,
        partial(refused_models, scope, admitted.policy),
        partial(cleanse_text, pack),
        partial(look_for_cancel, environment),
        withdrawn,
        environment.used,
        headers,
        environment.barrier.forget,
        environment.ports.turn,
    )
    return ModelGateway(ports, scope, admitted.intent.risk_class)


async def propose_by_model(
    admitted: AdmittedRun,
    template: TaskTemplate,
    compiled: Mapping[str, Any],
    evidence: Sequence[str],
    revision: int,
    timeout_ms: int,
    before: Sequence[Failure],
    environment: RunEnvironment,
) -> Plan | Failure:
    """Return the plan that a model proposes, or why there is none. `before` has the failures of the previous plan."""
    templates = (template, *(one for one in admitted.templates if one is not template))
    tools = _tools(admitted, compiled["context_ledger"]["tools"])
    known, run_id = {one.capability_id: one for one in tools}, environment.journal.run_id

    def plan_of(answer: ModelAnswer) -> Plan | Failure:
        proposal, why = proposal_of(answer.text, known)
        stated = {"refused": why} if why else {"proposal": proposal}
        return plan_of_answer(stated, MODEL_PLANNER, run_id, admitted.templates, revision)

    def fits(answer: ModelAnswer) -> Sequence[str]:
        plan = plan_of(answer)
        return [plan.detail] if isinstance(plan, Failure) else []

    question = ModelQuestion(
        PLAN_OPERATION,
        f"plan/{revision}",
        plan_messages(compiled, templates, tools, evidence, before),
        _shown(admitted, compiled, ()),
        timeout_ms,
        fits,
        output_schema=plan_schema(templates, tools),
    )
    answer = await model_gateway(admitted, environment).ask(question)
    return answer if isinstance(answer, Failure) else plan_of(answer)


async def judge_plan(
    admitted: AdmittedRun, plan: Plan, compiled: Mapping[str, Any], environment: RunEnvironment
) -> tuple[Failure, ...]:
    """Return the objections of a model to a verified plan. If no model can be asked, the failure says so."""
    key = f"verify/{plan.revision or 0}"
    judged = await _judge(admitted, VERIFY, key, plan, {}, compiled, environment)
    return (judged,) if isinstance(judged, Failure) else objections(judged)


async def judge_score(
    admitted: AdmittedRun,
    card: Mapping[str, Any],
    results: Mapping[str, ToolResultEnvelope],
    compiled: Mapping[str, Any],
    environment: RunEnvironment,
) -> tuple[dict[str, Any], tuple[Failure, ...]]:
    """Return the scorecard of an accepted run with the objections of a model; if there are any, a person decides. Also
    return the failures that end the run for another reason: it was cancelled meanwhile, or is above its budget.
    """
    judged = await _judge(admitted, SCORE, "score", None, results, compiled, environment)
    if isinstance(judged, Judgement) and judged.verdict == "ok":
        return dict(card), ()
    if isinstance(judged, Failure) and judged.code in ("cancelled", "budget_exhausted"):
        return {**card, "verdict": "escalate"}, (judged,)
    said = (judged.detail,) if isinstance(judged, Failure) else judged.findings
    findings = [f"`{SCORE}` objects: {one}" for one in said]
    utility = {**card["utility"], "findings": [*card["utility"].get("findings", ()), *findings]}
    return {**card, "utility": utility, "verdict": "escalate"}, ()


async def _judge(
    admitted: AdmittedRun,
    operation: ModelOperation,
    key: str,
    plan: Plan | None,
    results: Mapping[str, ToolResultEnvelope],
    compiled: Mapping[str, Any],
    environment: RunEnvironment,
) -> Judgement | Failure:
    def fits(answer: ModelAnswer) -> Sequence[str]:
        judged = judgement_of(answer.text)
        return [judged] if isinstance(judged, str) else []

    rubric = admitted.scope.pinned.models[operation].prompt_fragment
    number = len(environment.journal.account.of("model.routed"))
    question = ModelQuestion(
        operation,
        f"{key}/{number}",
        judge_messages(operation, compiled, rubric, plan, results),
        _shown(admitted, compiled, admitted.scope.tools.capabilities.values()),
        JUDGE_TIMEOUT_MS,
        fits,
        output_schema=JUDGEMENT_SCHEMA,
    )
    answer = await model_gateway(admitted, environment).ask(question)
    if isinstance(answer, Failure):
        # An answer that does not fit its schema is not a reason to reject the plan.
        return answer.model_copy(update={"code": "model_failed"}) if answer.code == "schema_mismatch" else answer
    judged = judgement_of(answer.text)
    assert isinstance(judged, Judgement), "the gateway returns answers that fit"
    return judged


def _shown(admitted: AdmittedRun, compiled: Mapping[str, Any], read: Iterable[Capability]) -> Classification:
    """Return the highest classification of a compiled context and of the answers of these tools."""
    pack = admitted.loaded.pack.pack_meta.data_classification
    return highest_shown(compiled, [pack, *(one.definition.output_classification or pack for one in read)])


class ModelSpeaker:
    """The model of a session: asks for its next call, and reports the result of the call before.

    It says what an agent would say (`call.asked`, `session.finished`), as its recorded answers state it.
    """

    def __init__(
        self,
        admitted: AdmittedRun,
        compiled: Mapping[str, Any],
        tools: Sequence[str],
        done: Mapping[str, ToolResultEnvelope],
        environment: RunEnvironment,
    ) -> None:
        self._environment, self._admitted = environment, admitted
        self._gateway = model_gateway(admitted, environment)
        self._capabilities = _tools(admitted, tools)
        self._tools = model_tools(self._capabilities)
        before = _done_before(environment.journal.account) if done else []
        self._messages = session_messages(compiled, before)
        self._shown = _shown(admitted, compiled, self._capabilities)
        self._waiting: list[ProposedCall] = []
        self._asked = set[str]()
        self._turns = 0

    async def reads_beside(self, said: Logged) -> Sequence[Logged]:
        """Return the call `said` and the reads right behind it in the same answer, `MAX_PARALLEL_READS` at most;
        nothing if `said` is alone or is not a read.
        """
        reads = [said]
        if self._reads(said.body["tool"]):
            while self._waiting and len(reads) < MAX_PARALLEL_READS and self._reads(self._waiting[0].tool):
                call = self._waiting.pop(0)
                reads.append(await self._say("call.asked", call.call_id, {"tool": call.tool, "args": dict(call.args)}))
        return reads if len(reads) > 1 else ()

    def _reads(self, tool: str) -> bool:
        return any(one.capability_id == tool and one.definition.kind == "read" for one in self._capabilities)

    async def next_message(self) -> Logged | Failure:
        """Return what the model says next: a call, or how the session ends. A failure says why there is nothing."""
        if not self._waiting:
            answer = await self._ask()
            if isinstance(answer, Failure):
                return answer
            self._waiting = list(answer.calls)
            self._asked = {one.call_id for one in answer.calls}
        call = self._waiting.pop(0)
        if call.tool == END_NAME:
            log = self._environment.journal.log()
            # As for an agent at the gate, a cancel wins over the outcome that is stated.
            if cancelled := await look_for_cancel(self._environment, f"message/{len(log)}"):
                return cancelled
            return await self._say("session.finished", call.call_id, dict(call.args))
        return await self._say("call.asked", call.call_id, {"tool": call.tool, "args": dict(call.args)})

    def heard(self, made: Sequence[tuple[Logged, Any]]) -> None:
        """Note the results of calls as the session recorded them: each call asked for, with its tool's answer."""
        account = self._environment.journal.account
        answers = {one.key: one.body for one in account.of("call.answered")[-len(made) :]}
        for asked, output in made:
            answered = answers[asked.key]
            result = {"status": answered["status"], "failures": answered["failures"], "output": output}
            call_id = asked.key.partition("/")[2]
            # A call whose question is asked again belongs to a conversation that is over.
            known = call_id if call_id in self._asked else ""
            self._messages = (*self._messages, result_message(known, asked.body["tool"], result))

    async def _ask(self) -> ModelAnswer | Failure:
        journal, scope = self._environment.journal, self._admitted.scope
        number = len(journal.account.of("model.routed"))
        most = scope.run.run_budget.max_tool_calls + scope.run.run_budget.max_replan_attempts + 1
        if self._turns >= most:
            detail = f"{scope.run.run_budget.stated('max_tool_calls')}, and the model was asked {self._turns} times"
            return Failure(code="budget_exhausted", detail=detail, facts=("max_tool_calls",))
        self._turns += 1
        assert scope.session is not None, "a session has a deadline"
        left_ms = (scope.session.deadline_us - journal.now_us) // 1_000
        question = ModelQuestion(
            PLAN_OPERATION, f"{TURN}{number}", self._messages, self._shown, left_ms, self._misfits, tools=self._tools
        )
        answer = await self._gateway.ask(question)
        if not isinstance(answer, Failure):
            self._messages = (*self._messages, ModelMessage("assistant", answer.text, answer.calls))
        return answer

    def _misfits(self, answer: ModelAnswer) -> Sequence[str]:
        """Return what is wrong with an answer before any of its calls is judged."""
        if not answer.calls:
            return [f"it calls no tool; call `{END_NAME}` where nothing is left to do"]
        ends = [one for one in answer.calls if one.tool == END_NAME]
        if ends and len(answer.calls) > 1:
            return [f"`{END_NAME}` is called beside other tools; call it alone"]
        if ends and not _is_end(ends[0].args):
            return [f"`{END_NAME}` needs an `outcome` (approved, denied or escalated) and a `reason`"]
        return []

    async def _say(self, kind: str, call_id: str, said: dict[str, Any]) -> Logged:
        journal = self._environment.journal

        async def as_answered() -> dict[str, Any]:
            return said

        key = f"{journal.account.model_calls}/{call_id}"
        recorded = await journal.record(kind, key, {}, as_answered, by="agent")
        if recorded != said:
            last = journal.log()[-1]
            raise ReplayMismatch(last.seq, last.kind, "it is not what the model answered")
        return journal.log()[-1]


def _done_before(account: RunAccount) -> list[dict[str, Any]]:
    """Return the calls of a session before it was reopened, each with its result."""
    outputs = {one.key: one.body["envelope"].get("output") for one in account.of("tool.refused")}
    outputs |= {one.key.rpartition("/")[0]: one.body["envelope"].get("output") for one in account.of("tool.returned")}
    answers = {one.key: one.body for one in account.of("call.answered")}
    return [
        {
            "tool": one.body["tool"],
            "args": one.body["args"],
            "status": answers[one.key]["status"],
            "output": outputs.get(answers[one.key]["step"] or ""),
        }
        for one in account.of("call.asked")
        if one.key in answers
    ]


def _is_end(args: Mapping[str, Any]) -> bool:
    reason = args.get("reason")
    return (
        args.keys() <= {"outcome", "reason"}
        and args.get("outcome") in ("approved", "denied", "escalated")
        and isinstance(reason, str)
        and len(reason) <= 2_000
    )


def _tools(admitted: AdmittedRun, names: Sequence[str]) -> list[Capability]:
    known = admitted.scope.tools.capabilities
    return [known[name] for name in sorted(names) if name in known]
