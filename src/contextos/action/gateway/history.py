"""Judge a call by earlier effects and denials. Three guards: `history_known` reads the earlier effects of a capability
and the clock, `reserved` reads them again and counts the next effect, and `not_denied_before` refuses a call that a
person denied in this run and that comes back with another amount, note or spelling.

Each dispatched effect is counted in one bucket for each declared fact. A bucket holds the effects of one user, agent,
tenant or argument value. The count is written in the commit that dispatches the call, with a compare-and-set on the
bucket, so two runs cannot pass a limit together. An effect counts until its operation is released, because a released
operation did not happen.
Source: docs/adr/0023-history-is-read-from-buckets.md, docs/adr/0061-a-sum-is-read-from-a-signed-chain.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from functools import partial
from typing import Any, Final
from unicodedata import category

from contextos.action.content.text_forms import normal
from contextos.action.gateway import guards, idempotency
from contextos.action.gateway.deciding import decides_otherwise
from contextos.action.gateway.delivery import DispatchPorts, EffectCounter
from contextos.action.gateway.guarded_call import GuardContext, Refusal
from contextos.action.gateway.observing import is_from_above
from contextos.contracts.documents.collection import find_documents
from contextos.contracts.documents.operations import (
    OPERATIONS,
    BucketEnd,
    CountedEffect,
    counted_numbers,
    operation_key,
    tool_of_operation,
)
from contextos.contracts.encoding.jcs import content_address, same_json
from contextos.contracts.envelopes.policy import BusinessHours, HistoryFact
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.facts import property_type
from contextos.contracts.journal import Write
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.seams import Journal, Policy
from contextos.contracts.scope import Capability, RunScope

MAX_COUNTED: Final = 5_000
"""The most effects within the window of a fact that are added up. With more the fact is not known, so policy denies."""

_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | frozenset(map(chr, range(0xFE00, 0xFE10)))
"""Invisible characters that are not in the Unicode categories of format and control characters."""


def buckets_of(
    facts: Mapping[str, HistoryFact], scope: RunScope, capability_id: str, args: Mapping[str, Any]
) -> dict[str, str]:
    """Return the bucket of each fact that counts `capability_id`, by the name of the fact.

    All tools of a fact share its bucket. A fact over an argument that this call does not have is left out.
    """
    principals = scope.identity.principals
    owners: dict[str, Any] = {
        "user": principals.user.user_id,
        "agent": principals.agent.agent_id,
        "tenant": scope.run.tenant_id,
    }
    buckets = {}
    for name, fact in facts.items():
        tool = fact.counted().get(capability_id)
        if tool is None:
            continue
        value = normal_subject(args.get(tool.subject)) if tool.subject is not None else owners[fact.over]
        if value is not None:
            digest = content_address([fact.subject, value]).removeprefix("sha256:")
            buckets[name] = f"{fact.capability}/{fact.over}/{digest}"
    return buckets


def normal_subject(subject: Any) -> Any:
    """Return a subject in the form in which it is compared: a text in one case, without invisible characters, and with
    one space between words. So two spellings of one order share one sum.
    """
    if not isinstance(subject, str):
        return subject
    hidden = ("Cf", "Cc")
    visible = (char for char in normal(subject) if char.isspace() or not (category(char) in hidden or char in _UNSEEN))
    return " ".join("".join(visible).split())


async def read_history(
    journal: Journal,
    ports: DispatchPorts,
    facts: Mapping[str, HistoryFact],
    buckets: Mapping[str, str],
    hours: Mapping[str, BusinessHours],
    operation: str,
    key: str,
) -> dict[str, Any]:
    """Read the facts whose `buckets` are given, and the clock through `hours`; record them as one answer under `key`.

    `operation` is the call's own operation, which is not part of its history.
    """

    async def look() -> dict[str, Any]:
        now_us = journal.time_us
        ends: dict[str, BucketEnd] = {}
        values = {}
        # An effect that is counted meanwhile fails the commit, which checks where the bucket ended. If two facts read
        # one bucket at different moments, the earlier end is checked.
        for name, bucket in buckets.items():
            value, end = await _aggregate(ports, facts[name], bucket, operation, now_us)
            if value is not None:
                values[name] = value
            ends.setdefault(bucket, end)
        record = {"facts": values, "at_us": now_us, "buckets": {name: asdict(ends[name]) for name in sorted(ends)}}
        return {**record, "clock": {name: week.at(now_us) for name, week in hours.items()}} if hours else record

    by_clock = {"hours": {name: week.to_json() for name, week in hours.items()}} if hours else {}
    request = {"buckets": dict(buckets)} | by_clock
    answer: dict[str, Any] = await journal.record("history.read", key, request, look)
    return answer


async def _aggregate(
    ports: DispatchPorts, fact: HistoryFact, bucket: str, operation: str, now_us: int
) -> tuple[int | float | None, BucketEnd]:
    """Return the value of one fact, and where its bucket ended. The value is None if there are more than `MAX_COUNTED`
    effects, or if the number of an effect is missing or below 0.
    """
    since_us = max(0, now_us - fact.window_s * 1_000_000)
    end, counted = await ports.effects.read(bucket, since_us, limit=MAX_COUNTED)
    if counted is None:
        return None, end
    # A later effect of an operation replaces an earlier one, which was released in between.
    effects = {effect.operation: effect for effect in counted if effect.operation != operation}
    return await _sum_effects(ports, fact, effects), end


async def _sum_effects(
    ports: DispatchPorts, fact: HistoryFact, effects: Mapping[str, CountedEffect]
) -> int | float | None:
    tools = fact.counted()
    # Another fact can count more tools in the same bucket.
    effects = {name: effect for name, effect in effects.items() if tool_of_operation(name) in tools}
    operations = await find_documents(ports.store, *(OPERATIONS.place(name) for name in effects))
    counted = []
    for name, effect in effects.items():
        row = operations.one(OPERATIONS, name)
        # A row that is not proved any more has changed since it was read: the effect counts.
        if row is None or row.body.state != "released" or not await idempotency.is_proved(ports, name, row):
            counted.append(effect)
    if fact.of is None:
        return len(counted)
    numbers = [effect.numbers.get(tools[tool_of_operation(effect.operation)].of or "") for effect in counted]
    # A negative number would make room for what the limit forbids.
    usable_numbers = [number for number in numbers if number is not None and number >= 0]
    return sum(usable_numbers) if len(usable_numbers) == len(numbers) else None


def reservation(
    counter: EffectCounter, operation: str, args: Mapping[str, Any], answer: Mapping[str, Any]
) -> tuple[Write, ...]:
    """Build the writes that count this call in every bucket of the recorded `answer`.

    They fail the commit if another effect was counted since the answer was read.
    """
    numbers = counted_numbers(args)
    ends = {bucket: BucketEnd(**end) for bucket, end in answer["buckets"].items()}
    counts = [counter.count(bucket, end, operation, answer["at_us"], numbers) for bucket, end in ends.items()]
    return tuple(write for writes in counts for write in writes)


def needs_history(tool: Capability, policy: Policy) -> bool:
    """Return whether a fact counts the calls of a tool, or a rule about it reads the clock."""
    name = tool.capability_id
    return bool(policy.hours_of(name)) or any(name in fact.counted() for fact in policy.history.values())


async def history_known(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Read the facts that a bundle declares about earlier effects of this capability, and the clock if a rule about the
    capability reads it.
    """
    counted, by_clock = _buckets(context, call), context.policy.hours_of(call.capability.capability_id)
    if not counted:
        if by_clock:
            await _add_history(context, call, f"before/{call.key}")
        return None
    if call.capability.definition.kind == "read" and not call.capability.leaves:
        name = call.capability.capability_id
        detail = f"a history fact counts calls of `{name}`, which has no effects and stays on this machine"
        return Refusal("blocked", "policy_eval_error", detail)
    for name, fact in context.policy.history.items():
        tool = fact.counted().get(call.capability.capability_id)
        if tool is not None and tool.of is not None:
            number = counted_numbers(call.args).get(tool.of)
            # Once such a call is counted, the sum is unknown, and every later call that shares the bucket is denied.
            if number is None or number < 0:
                problem = "is not a number" if number is None else "is below 0"
                detail = f"`history.{name}` adds up the argument `{tool.of}`, which {problem}"
                return Refusal("rejected", "argument_out_of_bounds", detail, f"/{tool.of}")
    await _add_history(context, call, f"before/{call.key}")
    return None


async def reserved(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Read history and clock again right before the call is sent, decide again if they changed, and count the call.

    The count is part of the commit that dispatches the call. That commit fails if another effect was counted meanwhile.
    """
    if not call.history:
        return None
    refusal = await _judge_again(context, call, f"dispatch/{call.key}", ("dispatch", "dispatch_commit"))
    operation = operation_key(call.capability.capability_id, _operation_name(context, call))
    call.counts = partial(reservation, context.ports.effects, operation, call.args, call.history)
    return refusal


async def why_not_now(context: GuardContext, call: ToolCall, attempt: int) -> Failure | None:
    """Read history and clock again before another attempt of a call that was not sent; return why it is forbidden, or
    None.
    """
    if not call.history:
        return None
    recorded = (f"again/{attempt}", f"again_commit/{attempt}")
    # A copy is judged: the call itself keeps the history that was read before its first attempt.
    refusal = await _judge_again(context, copy(call), f"again/{attempt}/{call.key}", recorded)
    return Failure(code=refusal.code, detail=refusal.detail) if refusal else None  # type: ignore[arg-type]


async def _judge_again(context: GuardContext, call: ToolCall, key: str, recorded: tuple[str, str]) -> Refusal | None:
    """Read history and clock again. Return a refusal if they changed and policy now decides otherwise, else None."""
    before, decision = call.history, call.decision
    await _add_history(context, call, key)
    if all(call.history.get(part) == before.get(part) for part in ("facts", "clock")):
        return None
    assert decision is not None, "the policy guard has run"
    refusal = await guards.policy_allows(context, call, recorded)
    new_decision, call.decision = call.decision, decision
    if refusal is not None:
        return refusal if not context.scope.observes or is_from_above(context, call, refusal) else None
    if new_decision is None or decides_otherwise(context, decision, new_decision):
        return Refusal("blocked", "approval_void", "what happened meanwhile needs another approval")
    return None


def _buckets(context: GuardContext, call: ToolCall) -> dict[str, str]:
    return buckets_of(context.policy.history, context.scope, call.capability.capability_id, call.args)


def _operation_name(context: GuardContext, call: ToolCall) -> str:
    if call.capability.definition.kind == "read":
        # A read claims no operation: each call counts, and is never released.
        return call.tool_call_id
    return idempotency.key_of(context.scope, call)


async def _add_history(context: GuardContext, call: ToolCall, key: str) -> None:
    call.history = await read_history(
        context.journal,
        context.ports,
        context.policy.history,
        _buckets(context, call),
        context.policy.hours_of(call.capability.capability_id),
        operation_key(call.capability.capability_id, _operation_name(context, call)),
        key,
    )


def denial_args(definition: CapabilityDefinition) -> tuple[str, ...]:
    """Return the arguments by which a call of this tool is the same as a denied one."""
    if definition.idempotency.denial_args is not None:
        return definition.idempotency.denial_args
    schema = definition.input_schema
    compared = definition.destinations or [
        name for name in schema.get("required", ()) if property_type(schema, [name]) not in ("number", "boolean")
    ]
    return tuple(name for name in compared if name not in definition.secrets)


async def not_denied_before(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call that a person denied in this run, even if it differs in arguments other than its `denial_args`. A
    read is checked only if it has an untrusted destination, because people are asked about no other read.
    """
    definition = call.capability.definition
    if definition.kind == "read" and not call.untrusted_destinations:
        return None
    account = context.journal.account
    if not account.of("approval.answered"):
        return None
    names = denial_args(definition)
    # If the tool does not declare the arguments to compare, only texts are: another amount is the same operation.
    declared = bool(definition.destinations) or definition.idempotency.denial_args is not None
    questions: dict[str, Mapping[str, Any]] = {}
    void = account.void_answers()
    for entry in account.of("approval.asked", "approval.answered"):
        if entry.kind == "approval.asked" and entry.body["binding"]["capability_id"] == call.capability.capability_id:
            questions[entry.key] = {name: _comparable(entry.body["args"].get(name), declared) for name in names}
        elif entry.kind == "approval.answered" and entry.key in questions and entry.body["verdict"] == "denied":
            denied, now = questions[entry.key], {name: _comparable(call.args.get(name), declared) for name in names}
            if entry.seq not in void and entry.key != call.key and same_json(denied, now):
                compared = ", ".join(f"`{name}`" for name in names if declared or now[name] is not None) or "the tool"
                detail = f"a person denied this operation before, which is known again by {compared}; a denial is final"
                return Refusal("blocked", "approval_denied", detail, decision=call.decision)
    return None


def _comparable(value: Any, all_values: bool) -> Any:
    """Return a value in the form in which denials are compared: each text by `normal_subject`, and numbers and other
    values only if `all_values` is set.
    """
    if isinstance(value, Mapping):
        return {name: _comparable(part, all_values) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(part, all_values) for part in value]
    return normal_subject(value) if all_values or isinstance(value, str) else None
