"""Hold the guards about where the arguments of a call come from (`action.content.seen_content`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from contextos.action.content.kept_content import digests_of, repeated
from contextos.action.gateway.guarded_call import GuardContext, Refusal
from contextos.contracts.documents.operations import kept_digest, unvouched_key
from contextos.contracts.encoding.defaults import without_defaults
from contextos.contracts.entries.derived import TracedArguments
from contextos.contracts.envelopes.evidence import TracedArgument
from contextos.contracts.ports.calls import ToolCall


async def traced(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Find out where the arguments come from, and record it. Refuses nothing."""
    await _compare_answers(context)
    definition = call.capability.definition
    secret_call = context.ports.secrets.asked(call.args) if definition.secrets else None
    # A client can read elsewhere what the gateway never sees, so a stated destination is always looked for.
    always = context.policy.reads_origins or secret_call is not None or bool(definition.destinations)
    if not context.seen.take_in(context.scope) and not always:
        return None
    args: Mapping[str, Any] = call.open_args
    if call.capability.adapter.type == "function":
        # The author of the code chose its defaults; those of a foreign server are content like any other.
        args = without_defaults(definition.input_schema, args)
    traced_args = context.seen.trace(call.key, args, context.scope, always=always) or {}
    if secret_call is not None:
        # Secret values were looked for when the agent sent them, before marks replaced them.
        traced_args = dict(sorted({**traced_args, **secret_call.traced}.items()))
    if not traced_args:
        return None
    traced_args = {name: _lower_if_extracted(call, context, name, argument) for name, argument in traced_args.items()}
    body = TracedArguments(arguments=traced_args)
    if untrusted_args := _untrusted_args(context, call, traced_args):
        digests = digests_of(untrusted_args)
        body = body.model_copy(update={"kept": kept_digest(digests)})
        key = unvouched_key(call.capability.adapter.adapter_id, context.scope.run.run_id, call.key)
        call.kept = partial(context.ports.written.keep, key, digests, context.journal.now_us)
    context.journal.derive("arguments.traced", call.key, body.to_json())
    call.traced, call.saw_untrusted = traced_args, context.seen.has_untrusted
    return None


def _lower_if_extracted(call: ToolCall, context: GuardContext, name: str, argument: TracedArgument) -> TracedArgument:
    """Return where an argument was found. It is at most `unknown` if a pattern cut its value out of the message."""
    source, _, place = call.provenance.get(name, "").partition(":/")
    parameter = context.scope.parameters.get(place) if source == "parameter" else None
    if parameter is None or parameter.origin != "message" or argument.integrity != "trusted":
        return argument
    return argument.model_copy(update={"integrity": "unknown"})


async def _compare_answers(context: GuardContext) -> None:
    """Find out, and record, which values of the new trusted answers an earlier run wrote from untrusted content."""
    run_id, written_content = context.scope.run.run_id, context.ports.written
    for key, adapter_id, values in context.seen.to_compare(context.scope):

        async def look(adapter_id: str, values: list[str]) -> dict[str, Any]:
            return {"repeats": await repeated(written_content, adapter_id, run_id, values)}

        request = {"adapter_id": adapter_id}
        await context.journal.record("answer.compared", key, request, partial(look, adapter_id, values))


def _untrusted_args(context: GuardContext, call: ToolCall, traced_args: Mapping[str, TracedArgument]) -> list[Any]:
    """Return the arguments of an effect that are not trusted, if its adapter gives trusted answers; else none."""
    adapter, definition = call.capability.adapter, call.capability.definition
    trusted = any(tool.output_integrity == "trusted" for tool in adapter.capabilities)
    if definition.kind == "read" or not trusted or not context.seen.has_untrusted:
        return []
    args = call.open_args
    return [args[name] for name, argument in traced_args.items() if argument.integrity != "trusted" and name in args]


async def destinations_trusted(_context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call to a destination that no trusted content names, unless a gate asks a person."""
    untrusted = call.untrusted_destinations
    assert call.decision is not None, "the policy guard has run"
    if not untrusted or call.decision.gates:
        return None
    name, argument = min(untrusted.items(), key=lambda item: item[1].integrity == "unknown")
    source = "nowhere" if argument.integrity == "unknown" else f"only in untrusted content (`{argument.origins[0]}`)"
    detail = f"`{name}` was found {source}, and no gate of the pack asks a person"
    return Refusal("blocked", "untrusted_destination", detail, f"/{name}", decision=call.decision)
