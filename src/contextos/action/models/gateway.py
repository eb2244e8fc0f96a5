"""The AI Gateway of one run: a question goes out to a model, and an answer that fits it comes back, or a failure.

Each attempt in order: look who can be called, choose a route, reserve its cost at the worst in the budget of the run,
record what is asked, make that durable, send, settle what was used, and record the answer. An answer that does not fit
is asked again with what is wrong. A call whose process ended before its answer was on record is `lost`: it stays
reserved, and is asked again as another attempt, so no budget is passed.
Source: Runtime Architecture, "AI Gateway / LLM Router"; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from contextos.action.models.prices import settled_units, worst_case_units
from contextos.action.models.router import BY_THE_RULE, RouteQuestion, RouteState, route
from contextos.action.models.sending import ModelSender
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.account import Usage
from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.models import ModelCapability, ModelOperation, ModelProfile, RoutingDecision
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import MAX_TEXT_CHARS, UNITS_PER_CENT, changed, final_fields
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelTool, ModelUsage, ProposedCall
from contextos.contracts.ports.outside import Estimator
from contextos.contracts.ports.seams import Journal
from contextos.contracts.scope import SESSION_LIMIT, ModelRoutes, RunScope
from contextos.errors import ReplayMismatch

MAX_DETAIL: Final = 2_000
MAX_SENT_BACK: Final = 8_192
"""How many characters of an answer that was not taken a model is shown again."""
TOKENS_PER_MESSAGE: Final = 64
"""The most tokens that a protocol adds to a message or a tool, beside its text."""
TOKENS_PER_CALL: Final = 1_024
"""The most tokens that a provider adds to a call of its own accord, such as its instructions for tools."""


@final_fields
class ModelPorts:
    """What the gateway of one run needs. `sender` is None in a replay, where nothing is sent.

    `refused` returns the profiles that policy refuses, each with the rules that do, for an operation, what it shows,
    all profiles by reference, what each costs at the worst, and the key of the question; `cleanse` a value without what
    the run redacts; `cancelled` looks for a cancel request before a call; `withdrawn` returns those of these references
    that are withdrawn; `used` what the run has used; `headers` the trace headers of a call, by its key. `forget` is
    called after an answer: what the store said before counts no more.
    """

    journal: Journal
    sender: ModelSender | None
    estimator: Estimator
    refused: Callable[
        [ModelOperation, Classification, Mapping[str, ModelProfile], Mapping[str, int], str],
        Mapping[str, Sequence[str]],
    ]
    cleanse: Callable[[Any], Any]
    cancelled: Callable[[str], Awaitable[Failure | None]]
    withdrawn: Callable[[Collection[str]], Awaitable[Sequence[str]]]
    used: Callable[[], Usage]
    headers: Callable[[str], Mapping[str, str]]
    forget: Callable[[], None]


@final_fields
class ModelQuestion:
    """What a model is asked. `key` is that of its entries, unique in the run. `shown` is the highest classification of
    what the messages show. `timeout_ms` is the time for each attempt. `fits` returns what is wrong with an answer;
    nothing where it fits.
    """

    operation: ModelOperation
    key: str
    messages: tuple[ModelMessage, ...]
    shown: Classification
    timeout_ms: int
    fits: Callable[[ModelAnswer], Sequence[str]]
    tools: tuple[ModelTool, ...] = ()
    output_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer that is whole: text, calls of tools, or both; and the profile that gave it."""

    text: str
    calls: tuple[ProposedCall, ...]
    profile: str


class ModelGateway:
    """Asks models for one run, by the routes that its pack names."""

    def __init__(self, ports: ModelPorts, scope: RunScope, risk_class: ApprovalMode) -> None:
        self._ports, self._scope, self._risk_class = ports, scope, risk_class
        self._journal = ports.journal

    async def ask(self, question: ModelQuestion) -> ModelAnswer | Failure:
        """Ask until an answer fits, at most as often as the rule allows. A failure says why none did."""
        routes = self._scope.pinned.models.get(question.operation)
        if routes is None:
            detail = f"the pack names no routing rules for `{question.operation}`; add it to `decision_layer.models`"
            return Failure(code="no_model_route", detail=detail)
        question = changed(question, messages=self._cleansed(question.messages))
        tried, again_us, failure = list[tuple[str, str]](), dict[str, int](), None
        while True:
            key = f"{question.key}/{len(tried)}"
            if cancelled := await self._ports.cancelled(f"model/{key}"):
                return cancelled
            found: Any = await self._journal.record_found("model.unavailable", key, partial(self._look, routes))
            estimate, most = self._tokens(question)
            decision = self._route(question, routes, (estimate, most), tried, found or {})
            self._journal.derive("model.routed", key, decision.to_json())
            if decision.profile is None:
                unrouted = self._no_route(question, decision)
                return failure if failure and unrouted.code == "no_model_route" else unrouted
            profile = routes.profiles[decision.profile]
            asked = {
                "request_digest": content_address(_prompt(question)),
                "wire": profile.wire,
                "model": profile.model,
                "input_tokens": estimate,
                "most_input_tokens": most,
                "reserved_units": decision.reserved_units,
            }
            on_tape = self._journal.on_tape
            self._journal.derive("model.asked", key, asked)
            await self._journal.commit()
            is_lost = on_tape and not self._journal.on_tape
            call = self._call(question, profile, decision)
            send = partial(self._send, call, decision, key, is_lost, again_us.get(decision.profile, 0))
            body: Any = await self._journal.record("model.answered", key, {}, send)
            self._ports.forget()
            self._require_settled(body, call.profile, decision)
            if overrun := self._overrun(decision.profile):
                return overrun
            if body["outcome"] == "answered":
                answer = ModelAnswer(body["text"], _proposed(body["calls"]), decision.profile)
                findings = _unasked(question, answer) or tuple(question.fits(answer))
                if not findings:
                    return answer
                self._journal.derive("model.judged", key, {"findings": list(findings)})
                detail = f"the answer of `{decision.profile}` does not fit: {'; '.join(findings)}"
                failure = Failure(code="schema_mismatch", detail=detail[:MAX_DETAIL])
                question = changed(question, messages=(*question.messages, *_sent_back(question, answer, findings)))
                tried.append((decision.profile, "malformed"))
            else:
                said = f": {body['detail']}" if body.get("detail") else ""
                detail = f"`{decision.profile}` gave no answer ({body['outcome']}){said}"
                failure = Failure(code="model_failed", detail=detail[:MAX_DETAIL])
                tried.append((decision.profile, body["outcome"]))
                again_us[decision.profile] = max(again_us.get(decision.profile, 0), body.get("retry_at_us", 0))

    async def _look(self, routes: ModelRoutes) -> dict[str, Any] | None:
        assert self._ports.sender is not None, "a live run has what sends its calls"
        found: dict[str, Any] = (
            self._ports.sender.unavailable(self._scope.run.tenant_id, routes.profiles.values()) or {}
        )
        if gone := await self._ports.withdrawn((routes.rules.pin, *routes.profiles)):
            found["withdrawn"] = sorted(routes.profiles if routes.rules.pin in gone else gone)
        return found or None

    def _cleansed(self, messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
        """The messages without what the run redacts: nothing else is counted, recorded and sent."""
        stated = self._ports.cleanse([_message_json(one) for one in messages])
        return tuple(
            ModelMessage(one["role"], one["text"], _proposed(one.get("calls", ())), one.get("call_id", ""))
            for one in stated
        )

    def _route(
        self,
        question: ModelQuestion,
        routes: ModelRoutes,
        tokens: tuple[int, int],
        tried: Sequence[tuple[str, str]],
        unavailable: Mapping[str, Any],
    ) -> RoutingDecision:
        budget, used, profiles = self._scope.run.run_budget, self._ports.used(), routes.profiles
        needs = frozenset[ModelCapability](("tool_calls",) if question.tools else ())
        asked = RouteQuestion(
            run_id=self._scope.run.run_id,
            operation=question.operation,
            intent=self._scope.received.request.input.intent,
            risk_class=self._risk_class,
            data_class=question.shown,
            input_tokens=tokens[0],
            most_input_tokens=tokens[1],
            output_tokens=max((one.max_output_tokens for one in profiles.values()), default=1),
            units_left=round(budget.max_cost_cents * UNITS_PER_CENT) - used.cost_units,
            time_left_ms=min(question.timeout_ms, budget.wall_clock_ms - used.wall_clock_us // 1_000),
            capabilities=needs,
            tried=tuple(tried),
        )
        costs = {ref: worst_case_units(one, tokens[1], one.max_output_tokens) for ref, one in profiles.items()}
        refused = self._ports.refused(question.operation, question.shown, profiles, costs, question.key)
        failed, busy = unavailable.get("failed", {}), unavailable.get("busy", {})
        state = RouteState(
            failed,
            dict.fromkeys(busy, "its limit of calls is used up"),
            refused,
            frozenset(unavailable.get("withdrawn", ())),
        )
        return route(asked, routes.rules, profiles, state)

    def _tokens(self, question: ModelQuestion) -> tuple[int, int]:
        """The estimated tokens of a prompt, and the most that it can have: a token is at least one byte."""
        text = canonical(_prompt(question)).decode()
        parts = len(question.messages) + len(question.tools)
        most = len(text.encode()) + parts * TOKENS_PER_MESSAGE + TOKENS_PER_CALL
        return min(self._ports.estimator.count(text), most), most

    def _call(self, question: ModelQuestion, profile: ModelProfile, decision: RoutingDecision) -> ModelCall:
        return ModelCall(
            profile=profile,
            messages=question.messages,
            max_output_tokens=decision.output_tokens,
            timeout_ms=decision.timeout_ms,
            first_token_ms=min(profile.first_token_ms or decision.timeout_ms, decision.timeout_ms),
            egress=tuple(sorted(self._scope.pinned.egress)),
            tools=question.tools,
            tool_choice="required" if question.tools else "auto",
            output_schema=question.output_schema,
        )

    async def _send(
        self, call: ModelCall, decision: RoutingDecision, key: str, is_lost: bool, not_before_us: int
    ) -> dict[str, Any]:
        """Send a call, and return what is recorded of its answer: nothing of a partial one."""
        if is_lost:
            detail = "the process that asked ended before the answer was on record"
            return {"outcome": "lost", "cost_units": decision.reserved_units, "unpriced": True, "detail": detail}
        assert self._ports.sender is not None, "a live run has what sends its calls"
        call = replace(call, headers=self._ports.headers(key))
        reply = await self._ports.sender.send(self._scope.run.tenant_id, call, not_before_us)
        is_billed = reply.billed or reply.outcome == "answered"
        cost, is_unpriced = _settled(reply.usage, is_billed, call.profile, decision)
        body: dict[str, Any] = {"outcome": reply.outcome, "cost_units": cost}
        if is_unpriced:
            body["unpriced"] = True
        if reply.usage is not None:
            usage = {"counts": dict(reply.usage.counts), "tier": reply.usage.tier}
            body["usage"] = {**usage, "reported": dict(reply.usage.reported)}
        # What is measured is what is recorded: a text grows where something of it is redacted.
        answer = self._ports.cleanse({"text": reply.text, "calls": _calls_json(reply.calls)})
        if reply.outcome == "answered" and len(canonical(answer)) > MAX_TEXT_CHARS:
            body |= {"outcome": "malformed", "detail": f"the answer is larger than {MAX_TEXT_CHARS} bytes"}
            answer = {}
        if reply.retry_after_ms:
            body["retry_at_us"] = self._journal.time_us + reply.retry_after_ms * 1_000
        stated = {"model": reply.model, "reply_id": reply.reply_id, "detail": reply.detail}
        body = {name: text[:MAX_DETAIL] for name, text in stated.items() if text} | body
        cleansed: dict[str, Any] = self._ports.cleanse(body)
        return cleansed | (answer if reply.outcome == "answered" else {})

    def _require_settled(self, body: Mapping[str, Any], profile: ModelProfile, decision: RoutingDecision) -> None:
        """Raise `ReplayMismatch` unless an answer is settled at what its usage costs, or at the reserve if unknown."""
        told, is_unpriced = body.get("usage"), bool(body.get("unpriced"))
        usage = ModelUsage(told["counts"], told["tier"]) if told is not None else None
        is_billed = is_unpriced or body["outcome"] == "answered"
        if _settled(usage, is_billed, profile, decision) != (body["cost_units"], is_unpriced):
            last = self._journal.log()[-1]
            raise ReplayMismatch(last.seq, last.kind, f"its usage does not cost {body['cost_units']} units")

    def _overrun(self, profile: str) -> Failure | None:
        """The failure of a run whose provider billed more than was reserved, and more than the run has left."""
        budget = self._scope.run.run_budget
        if self._ports.used().cost_units <= round(budget.max_cost_cents * UNITS_PER_CENT):
            return None
        detail = f"{budget.stated('max_cost_cents')}, and the run is above it after a call of `{profile}`"
        return Failure(code="budget_exhausted", detail=detail, facts=("max_cost_cents",))

    def _no_route(self, question: ModelQuestion, decision: RoutingDecision) -> Failure:
        said = [
            f"`{one.profile}`: {one.reason}" + (f" ({one.detail})" if one.detail else "") for one in decision.candidates
        ]
        why = "; ".join(said) or "no rule applies"
        detail = f"no model can answer `{decision.operation}` by `{decision.rules}`: {why}"[:MAX_DETAIL]
        budget, session = self._scope.run.run_budget, self._scope.session
        # A candidate outside of its share is not a candidate, and what a rule allows is no limit of the run.
        counted = [one for one in decision.candidates if one.reason != "share"]
        reasons = {one.reason for one in counted if BY_THE_RULE not in one.detail}
        left_ms = budget.wall_clock_ms - self._ports.used().wall_clock_us // 1_000
        limit, stated = "", ""
        if reasons == {"cost"}:
            limit, stated = "max_cost_cents", budget.stated("max_cost_cents")
        elif reasons == {"latency"} and session is not None and question.timeout_ms < left_ms:
            limit, stated = SESSION_LIMIT, session.limit
        elif reasons == {"latency"}:
            limit, stated = "wall_clock_ms", budget.stated("wall_clock_ms")
        if limit and len(reasons) == len({one.reason for one in counted}):
            return Failure(code="budget_exhausted", detail=f"{stated}, and {detail}"[:MAX_DETAIL], facts=(limit,))
        return Failure(code="no_model_route", detail=detail)


def _settled(
    usage: ModelUsage | None, is_billed: bool, profile: ModelProfile, decision: RoutingDecision
) -> tuple[int, bool]:
    """What a reply costs, and whether that is what was reserved because nothing else is known."""
    if usage is None and not is_billed:
        return 0, False
    cost = settled_units(usage, profile.prices) if usage is not None else None
    return (decision.reserved_units, True) if cost is None else (cost, False)


def _prompt(question: ModelQuestion) -> dict[str, Any]:
    """What is sent, apart from how the protocol of the provider writes it."""
    tools = [
        {"name": one.name, "description": one.description, "input_schema": one.input_schema} for one in question.tools
    ]
    messages = [_message_json(one) for one in question.messages]
    return {"messages": messages, "tools": tools, "output_schema": question.output_schema}


def _message_json(message: ModelMessage) -> dict[str, Any]:
    stated: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.calls:
        stated["calls"] = _calls_json(message.calls)
    return stated | ({"call_id": message.call_id} if message.call_id else {})


def _calls_json(calls: Sequence[ProposedCall]) -> list[dict[str, Any]]:
    return [{"call_id": one.call_id, "tool": one.tool, "args": dict(one.args)} for one in calls]


def _proposed(stated: Sequence[Mapping[str, Any]]) -> tuple[ProposedCall, ...]:
    return tuple(ProposedCall(**one) for one in stated)


def _unasked(question: ModelQuestion, answer: ModelAnswer) -> tuple[str, ...]:
    """Why the calls of an answer are not those of a question."""
    if not answer.calls:
        return ()
    if not question.tools:
        return ("it calls tools, and no tool is offered",)
    return () if _are_named(answer.calls) else ("one of its calls has no id, or two have the same",)


def _are_named(calls: Sequence[ProposedCall]) -> bool:
    return all(one.call_id for one in calls) and len({one.call_id for one in calls}) == len(calls)


def _sent_back(question: ModelQuestion, answer: ModelAnswer, findings: Sequence[str]) -> tuple[ModelMessage, ...]:
    """What a model receives about an answer that was not taken. Of its calls and its empty text is sent back what a
    provider would take.
    """
    why = "\n".join(["Your answer was not taken:", *(f"- {one}" for one in findings), "Answer again, whole."])
    text = answer.text[:MAX_SENT_BACK]
    if answer.calls and question.tools and _are_named(answer.calls):
        said = ModelMessage("assistant", text, answer.calls)
        return said, *(ModelMessage("tool", why, call_id=one.call_id) for one in answer.calls)
    return *((ModelMessage("assistant", text),) if text.strip() else ()), ModelMessage("user", why)
