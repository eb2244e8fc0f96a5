"""Ask models for one run (the AI Gateway). A question returns an answer that fits it, or a failure.

An attempt has these steps: look which profiles can be called, choose a route, reserve its worst cost in the budget of
the run, record the question durably, send it, settle the cost of what was used, and record the answer. If an answer
does not fit, the model is asked again with the reasons. A call whose process ended before its answer was recorded is
`lost`: its cost stays reserved, and the question is asked again as another attempt, so the budget holds.
Source: Runtime Architecture, "AI Gateway / LLM Router"; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from struct import pack
from typing import Any, Final

from contextos.action.breaker_adapter import SharedCall, SharedYield
from contextos.action.models.prices import settled_units
from contextos.action.models.questions import (
    ModelAnswer,
    ModelQuestion,
    answer_sent_back,
    asked_body,
    calls_json,
    message_json,
    prompt_json,
    proposed_calls,
    unasked_calls,
)
from contextos.action.models.router import BY_THE_RULE, RouteQuestion, RouteState, reserved_units, route, rule_of
from contextos.action.models.sending import ModelSender
from contextos.contracts.encoding.jcs import canonical, canonical_of_texts, digest
from contextos.contracts.entries.account import Usage, cost_units
from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.models import ModelCapability, ModelOperation, ModelProfile, RoutingDecision
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import MAX_TEXT_CHARS, changed, final_fields
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelUsage, Vector
from contextos.contracts.ports.outside import Estimator
from contextos.contracts.ports.seams import Journal
from contextos.contracts.scope import SESSION_LIMIT, ModelRoutes, RunScope
from contextos.errors import ReplayMismatch

MAX_DETAIL: Final = 2_000
MAX_TEXTS: Final = 64
"""The most texts that one call embeds."""
TOKENS_PER_MESSAGE: Final = 64
"""The most tokens that a protocol adds to a message, a tool or a text to embed, beside its text."""
MAX_NORMAL_GROWTH: Final = 11
"""How many times as many UTF-8 bytes a text can have in the normal form NFKC (U+FDFA has 33 for 3)."""
TOKENS_PER_CALL: Final = 1_024
"""The most tokens that a provider adds to a call of its own accord, such as its instructions for tools."""


@final_fields
class ModelPorts:
    """What the gateway of one run needs. `sender` is None in a replay, where nothing is sent.

    `refused` takes an operation, its data class, all profiles and their worst costs by reference, and the key of the
    question; it returns the profiles that policy refuses, with the rules. `cleanse` returns a value redacted.
    `cancelled` looks for a cancel request before a call. `withdrawn` returns the given references that are withdrawn.
    `used` returns what the run has used, and `headers` the trace headers of a call, by its key. `forget` is called
    after an answer, so that the store is read anew. The run gives its `turn` up while a call is made.
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
    turn: SharedYield


class ModelGateway:
    """Asks models for one run, by the routes that its pack names."""

    def __init__(self, ports: ModelPorts, scope: RunScope, risk_class: ApprovalMode) -> None:
        self._ports, self._scope, self._risk_class = ports, scope, risk_class
        self._journal = ports.journal
        self._cleansed_pairs: list[tuple[ModelMessage, ModelMessage]] = []

    async def embed(
        self, texts: Sequence[str], key: str, shown: Classification, timeout_ms: int, *, as_query: bool = False
    ) -> ModelAnswer | Failure:
        """Return the vectors of 1 to `MAX_TEXTS` texts, none of them empty, or why there are none.

        `as_query`: the texts are queries, and not texts that are searched.

        The caller records what it found by the vectors as its next entry. In a replay the caller reads that entry, and
        `vectors` is None. If the process ended before that entry, the texts are embedded again.
        """
        assert 1 <= len(texts) <= MAX_TEXTS and all(texts), "the caller splits what it embeds"
        question = ModelQuestion(
            "embed", key, (), shown, timeout_ms, lambda _: (), texts=tuple(texts), as_query=as_query
        )
        return await self.ask(question)

    async def ask(self, question: ModelQuestion) -> ModelAnswer | Failure:
        """Ask until an answer fits, at most as often as the rule allows. A failure says why no answer was accepted."""
        routes = self._scope.pinned.models.get(question.operation)
        if routes is None:
            detail = f"the pack names no routing rules for `{question.operation}`; add it to `decision_layer.models`"
            return Failure(code="no_model_route", detail=detail)
        if f"{question.key}/0" in self._journal.account.routes:
            raise ValueError(f"the run has asked `{question.key}` before, and a key reserves once")
        texts = tuple(self._ports.cleanse(list(question.texts)))
        question = changed(question, messages=self._cleanse_messages(question.messages), texts=texts)
        tried, retry_at_us, failure, loss = list[tuple[str, str]](), dict[str, int](), None, None
        while True:
            key = f"{question.key}/{len(tried)}"
            if cancelled := await self._ports.cancelled(f"model/{key}"):
                return cancelled
            prompt = canonical_of_texts(prompt_json(question))
            # Each text to embed has the whole context window, so the longest text decides.
            counted_texts = question.texts or (prompt.decode(),)
            unavailable: Any = loss or await self._journal.record_found(
                "model.unavailable", key, partial(self._find_unavailable, routes, counted_texts)
            )
            loss, unavailable = None, unavailable or {}
            most_tokens = self._most_tokens(question, prompt)
            counts = [min(self._ports.estimator.count(text), most_tokens) for text in counted_texts]
            decision = self._route(question, routes, (max(counts), most_tokens), tried, unavailable)
            self._journal.derive("model.routed", key, decision.to_json())
            if decision.profile is None:
                unrouted = self._no_route(question, decision)
                return failure if failure and unrouted.code == "no_model_route" else unrouted
            profile = routes.profiles[decision.profile]
            counts = unavailable.get("tokens", {}).get(profile.pin, counts)
            asked_entry = asked_body(question, prompt, profile, counts, most_tokens, decision.reserved_units)
            on_tape = self._journal.on_tape
            self._journal.derive("model.asked", key, asked_entry)
            await self._journal.commit()
            is_lost = on_tape and not self._journal.on_tape
            call = self._call(question, profile, decision)
            vectors = list[Vector]()
            send = partial(self._send, call, decision, key, is_lost, retry_at_us.get(decision.profile, 0), vectors)
            body: Any = await self._journal.record("model.answered", key, {}, send)
            self._ports.forget()
            self._require_settled(body, call.profile, decision)
            if overrun := self._overrun(decision.profile):
                return overrun
            if body["outcome"] == "answered":
                own_vectors = tuple(vectors) or None
                answer = ModelAnswer(body["text"], proposed_calls(body["calls"]), decision.profile, own_vectors)
                findings = unasked_calls(question, answer) or tuple(question.fits(answer))
                if not findings:
                    if texts and not vectors:
                        loss = await self._record_loss(f"{question.key}/{len(tried) + 1}", routes, texts)
                    if loss is None:
                        return answer
                    detail = "the process that got the vectors ended before it used them"
                    failure = Failure(code="model_failed", detail=detail)
                    tried.append((decision.profile, "lost"))
                    continue
                self._journal.derive("model.judged", key, {"findings": list(findings)})
                detail = f"the answer of `{decision.profile}` does not fit: {'; '.join(findings)}"
                failure = Failure(code="schema_mismatch", detail=detail[:MAX_DETAIL])
                question = changed(
                    question, messages=(*question.messages, *answer_sent_back(question, answer, findings))
                )
                tried.append((decision.profile, "malformed"))
            else:
                reason = f": {body['detail']}" if body.get("detail") else ""
                detail = f"`{decision.profile}` gave no answer ({body['outcome']}){reason}"
                failure = Failure(code="model_failed", detail=detail[:MAX_DETAIL])
                tried.append((decision.profile, body["outcome"]))
                retry_at_us[decision.profile] = max(retry_at_us.get(decision.profile, 0), body.get("retry_at_us", 0))

    async def _record_loss(self, key: str, routes: ModelRoutes, texts: Sequence[str]) -> Any:
        """Return the record that the vectors of the last answer are lost, made before another attempt; None if the run
        went on with the vectors.
        """

        async def look() -> dict[str, Any]:
            return (await self._find_unavailable(routes, texts) or {}) | {"vectors_lost": True}

        return await self._journal.record_found("model.unavailable", key, look)

    async def _find_unavailable(self, routes: ModelRoutes, texts: Sequence[str]) -> dict[str, Any] | None:
        assert self._ports.sender is not None, "a live run has what sends its calls"
        unavailable: dict[str, Any] = (
            self._ports.sender.unavailable(self._scope.run.tenant_id, routes.profiles.values()) or {}
        )
        if withdrawn := await self._ports.withdrawn((routes.rules.pin, *routes.profiles)):
            unavailable["withdrawn"] = sorted(routes.profiles if routes.rules.pin in withdrawn else withdrawn)
        tokens, uncounted = await self._ports.sender.counted(routes.profiles.values(), texts)
        unavailable |= {name: value for name, value in (("tokens", tokens), ("uncounted", uncounted)) if value}
        return unavailable or None

    def _cleanse_messages(self, messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
        """Return the messages redacted. Only the redacted messages are counted, recorded and sent.

        A conversation begins like that of the question before, so only its new messages are redacted.
        """
        pairs = self._cleansed_pairs
        shared = 0
        while shared < min(len(pairs), len(messages)) and pairs[shared][0] is messages[shared]:
            shared += 1
        new = messages[shared:]
        redacted = self._ports.cleanse([message_json(message) for message in new]) if new else ()
        cleansed = [
            ModelMessage(entry["role"], entry["text"], proposed_calls(entry.get("calls", ())), entry.get("call_id", ""))
            for entry in redacted
        ]
        self._cleansed_pairs = [*pairs[:shared], *zip(new, cleansed, strict=True)]
        return tuple(message for _, message in self._cleansed_pairs)

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
        route_question = RouteQuestion(
            run_id=self._scope.run.run_id,
            operation=question.operation,
            intent=self._scope.received.request.input.intent,
            risk_class=self._risk_class,
            data_class=question.shown,
            input_tokens=tokens[0],
            most_input_tokens=tokens[1],
            units_left=cost_units(budget.max_cost_cents) - used.cost_units,
            time_left_ms=min(question.timeout_ms, budget.wall_clock_ms - used.wall_clock_us // 1_000),
            capabilities=needs,
            tried=tuple(tried),
        )
        rule = rule_of(route_question, routes.rules)
        costs = {ref: reserved_units(route_question, rule, profile) for ref, profile in profiles.items()}
        refused = self._ports.refused(question.operation, question.shown, profiles, costs, question.key)
        names = ("withdrawn", "busy", "uncounted")
        withdrawn, busy, uncounted = (frozenset(unavailable.get(name, ())) for name in names)
        token_counts = {pin: max(counts) for pin, counts in unavailable.get("tokens", {}).items()}
        state = RouteState(unavailable.get("failed", {}), refused, withdrawn, busy, token_counts, uncounted)
        return route(route_question, routes.rules, profiles, state)

    def _most_tokens(self, question: ModelQuestion, prompt: bytes) -> int:
        """Return the most tokens that a prompt, or all texts to embed, can have: a token is at least one byte. A model
        that embeds reads a normal form, which can be longer.
        """
        parts = len(question.messages) + len(question.tools) + len(question.texts)
        most_bytes = len(prompt) * (MAX_NORMAL_GROWTH if question.texts else 1)
        return most_bytes + parts * TOKENS_PER_MESSAGE + TOKENS_PER_CALL

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
            texts=question.texts,
            as_query=question.as_query,
        )

    async def _send(
        self,
        call: ModelCall,
        decision: RoutingDecision,
        key: str,
        is_lost: bool,
        not_before_us: int,
        vectors: list[Vector],
    ) -> dict[str, Any]:
        """Send a call, and return the body that is recorded. It has the text and calls of a complete answer only; its
        vectors are added to `vectors`.
        """
        if is_lost:
            detail = "the process that asked ended before the answer was on record"
            return {"outcome": "lost", "cost_units": decision.reserved_units, "unpriced": True, "detail": detail}
        assert self._ports.sender is not None, "a live run has what sends its calls"
        call = changed(call, headers=self._ports.headers(key))
        shared_call = SharedCall(self._ports.turn)
        async with shared_call:
            reply = await self._ports.sender.send(self._scope.run.tenant_id, call, not_before_us)
        vectors.extend(reply.vectors)
        is_billed = reply.billed or reply.outcome == "answered"
        cost, is_unpriced = _settled_cost(reply.usage, is_billed, call.profile, decision)
        body: dict[str, Any] = {"outcome": reply.outcome, "cost_units": cost}
        if is_unpriced:
            body["unpriced"] = True
        if shared_call.waited_us:
            body["waited_us"] = shared_call.waited_us
        # What the provider states is redacted whole and cut then. Numbers of the runtime and digests are not: their
        # digits can look like a card number.
        texts = {"model": reply.model, "reply_id": reply.reply_id, "detail": reply.detail}
        usage = {} if reply.usage is None else {"tier": reply.usage.tier, "reported": dict(reply.usage.reported)}
        redacted: dict[str, Any] = self._ports.cleanse({**texts, **usage})
        if reply.usage is not None:
            body["usage"] = {name: redacted[name] for name in usage} | {"counts": dict(reply.usage.counts)}
        # The redacted answer is measured, because redaction can make a text longer.
        answer = self._ports.cleanse({"text": reply.text, "calls": calls_json(reply.calls)})
        if reply.outcome == "answered" and len(canonical(answer)) > MAX_TEXT_CHARS:
            body |= {"outcome": "malformed", "detail": f"the answer is larger than {MAX_TEXT_CHARS} bytes"}
            answer = {}
        if reply.vectors:
            body["vectors"] = [digest(pack(f"<{len(vector)}f", *vector)) for vector in reply.vectors]
        if reply.retry_after_ms:
            body["retry_at_us"] = self._journal.time_us - shared_call.waited_us + reply.retry_after_ms * 1_000
        body = {name: redacted[name][:MAX_DETAIL] for name in texts if redacted[name]} | body
        return body | (answer if reply.outcome == "answered" else {})

    def _require_settled(self, body: Mapping[str, Any], profile: ModelProfile, decision: RoutingDecision) -> None:
        """Raise `ReplayMismatch` unless the recorded cost follows from the usage, or from the reserve without usage."""
        usage_body, is_unpriced = body.get("usage"), bool(body.get("unpriced"))
        usage = ModelUsage(usage_body["counts"], usage_body["tier"]) if usage_body is not None else None
        is_billed = is_unpriced or body["outcome"] == "answered"
        if _settled_cost(usage, is_billed, profile, decision) != (body["cost_units"], is_unpriced):
            last = self._journal.log()[-1]
            raise ReplayMismatch(last.seq, last.kind, f"its usage does not cost {body['cost_units']} units")

    def _overrun(self, profile: str) -> Failure | None:
        """Return a failure if the run is above its limit on cost, because a provider billed more than was reserved."""
        budget = self._scope.run.run_budget
        if self._ports.used().cost_units <= cost_units(budget.max_cost_cents):
            return None
        detail = f"{budget.stated('max_cost_cents')}, and the run is above it after a call of `{profile}`"
        return Failure(code="budget_exhausted", detail=detail, facts=("max_cost_cents",))

    def _no_route(self, question: ModelQuestion, decision: RoutingDecision) -> Failure:
        refusals = [
            f"`{candidate.profile}`: {candidate.reason}" + (f" ({candidate.detail})" if candidate.detail else "")
            for candidate in decision.candidates
        ]
        reason_text = "; ".join(refusals) or "no rule applies"
        detail = f"no model can answer `{decision.operation}` by `{decision.rules}`: {reason_text}"[:MAX_DETAIL]
        budget, session = self._scope.run.run_budget, self._scope.session
        # A candidate outside of its share does not count, and a limit of the rule is not a limit of the run.
        in_share = [candidate for candidate in decision.candidates if candidate.reason != "share"]
        reasons = {candidate.reason for candidate in in_share if BY_THE_RULE not in candidate.detail}
        left_ms = budget.wall_clock_ms - self._ports.used().wall_clock_us // 1_000
        limit, limit_detail = "", ""
        if reasons == {"cost"}:
            limit, limit_detail = "max_cost_cents", budget.stated("max_cost_cents")
        elif reasons == {"latency"} and session is not None and question.timeout_ms < left_ms:
            limit, limit_detail = SESSION_LIMIT, session.limit
        elif reasons == {"latency"}:
            limit, limit_detail = "wall_clock_ms", budget.stated("wall_clock_ms")
        if limit and len(reasons) == len({candidate.reason for candidate in in_share}):
            return Failure(code="budget_exhausted", detail=f"{limit_detail}, and {detail}"[:MAX_DETAIL], facts=(limit,))
        return Failure(code="no_model_route", detail=detail)


def _settled_cost(
    usage: ModelUsage | None, is_billed: bool, profile: ModelProfile, decision: RoutingDecision
) -> tuple[int, bool]:
    """Return (cost of a reply in 1/10,000 US cent, whether it is the reserve because the real cost is not known)."""
    if usage is None and not is_billed:
        return 0, False
    cost = settled_units(usage, profile.prices) if usage is not None else None
    return (decision.reserved_units, True) if cost is None else (cost, False)
