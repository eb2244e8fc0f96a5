"""Handle secret arguments: a value that a tool declares as `secrets` is sent to it; a mark replaces it anywhere else.

A value is in the memory of the process to which the agent sent it, from the record of the call until its answer. The
mark is a digest of the value under a key that this process made and never stores, so nobody can guess values with the
help of a journal. In one session equal values have equal marks, so approvals, idempotency keys and replays use the mark
like any argument. A process without the value sends nothing, and never the mark.
Source: docs/adr/0048-a-declared-secret-is-sent-and-not-kept.md.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.action.content.seen_content import SeenContent
from contextos.action.registry import Registry
from contextos.action.secret_redactor import SecretRedactor
from contextos.contracts.encoding.codec import own_copy
from contextos.contracts.encoding.defaults import with_defaults
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.redacted import is_secret_argument, secret_argument_mark, without_secret_arguments
from contextos.contracts.encoding.secret_shapes import SECRET_MARK
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.recorded import AskedSecrets
from contextos.contracts.envelopes.artifacts import ToolArtifact
from contextos.contracts.envelopes.tool import DEFINITION_DRIFT, AdapterReply, CallContext, ToolError
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Parked
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.scope import Capability, RunScope
from contextos.errors import LostReply, Unavailable

MIN_SECRET_ARGUMENT_CHARS: Final = 4
"""A shorter text cannot be kept out of answers, so it is refused."""
MAX_HELD: Final = 10_000
"""The most values that a process has in memory; the oldest is dropped first."""
MARK_KEY_BYTES: Final = 32
MIN_CUT_CHARS: Final = 512
"""The length from which a text of an error can have been cut by the adapter before secrets are taken out of it."""
HELD_ELSEWHERE_US: Final = 3_000_000
"""The time, in microseconds, that a run waits for the process that has its value before another process looks again."""
SECRET_LOST: Final = Failure(code="secret_lost", detail="its secret argument ended with the process that had it")
"""The failure of a call whose secret argument no process has in memory any more: it cannot be sent."""


@dataclass(slots=True)
class SecretValues:
    """The values that one process has in memory, by run and mark. No representation of this object shows them.

    `random` returns random bytes, and `owner` is the id of this process.
    """

    random: Callable[[int], bytes]
    owner: str
    alive: Callable[[str], bool]
    _key: bytes = field(default=b"", repr=False)
    _values_by_mark: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict, repr=False)

    def mark(self, run_id: str, tool: str, name: str, value: Any) -> str:
        """Return the mark of this value of the argument `name` of a tool, in one run."""
        self._key = self._key or self.random(MARK_KEY_BYTES)
        text = canonical([run_id, tool, name, value])
        return secret_argument_mark(hmac.digest(self._key, text, hashlib.sha256))

    def marked(self, run_id: str, tool: str, args: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Return the arguments of a call as they are recorded: with a mark for each argument in `names`."""
        return {**args, **{name: self.mark(run_id, tool, name, args[name]) for name in names if name in args}}

    def hold(self, run_id: str, mark: str, value: str) -> None:
        """Keep a value until it is forgotten."""
        self._values_by_mark[run_id, mark] = value
        self._values_by_mark.move_to_end((run_id, mark))
        while len(self._values_by_mark) > MAX_HELD:
            self._values_by_mark.popitem(last=False)

    def forget(self, run_id: str, args: Mapping[str, Any]) -> None:
        """Drop the values of the arguments of a call that was answered."""
        for value in args.values():
            if isinstance(value, str):
                self._values_by_mark.pop((run_id, value), None)

    def values(self, run_id: str, args: Mapping[str, Any]) -> dict[str, str] | None:
        """Return the values of the secret arguments of a call, by name; None if this process does not have them all."""
        marks = {name: mark for name, mark in args.items() if is_secret_argument(mark)}
        if not marks:
            return {}
        by_name = {name: self._values_by_mark.get((run_id, mark)) for name, mark in marks.items()}
        values = {name: value for name, value in by_name.items() if value is not None}
        return values if len(values) == len(marks) else None

    def recorded(self, run_id: str, asked: Mapping[str, Any], before: AskedSecrets, marks: Mapping[str, Any]) -> Any:
        """Return a repeated call in its recorded form, with the recorded arguments `marks`, if it is the same call.

        If another process made a mark, its key is not known, so that value cannot be compared.
        """
        args = asked["args"]
        if before.held_by == self.owner:
            return {**asked, "args": self.marked(run_id, asked["tool"], args, before.traced)}
        return {**asked, "args": {**args, **{name: marks.get(name) for name in before.traced if name in args}}}


@dataclass(slots=True)
class SecretArguments:
    """The secret arguments of one run. `process` is None in a replay, which sends nothing."""

    account: RunAccount
    process: SecretValues | None = None

    def asked(self, args: Mapping[str, Any]) -> AskedSecrets | None:
        """Return the record of the secrets of the call that the agent asked for last, if `args` are of that call."""
        last = self.account.last("call.asked")
        if last is None or "secrets" not in last.body:
            return None
        asked = AskedSecrets.model_validate(last.body["secrets"])
        return asked if all(args.get(name) == last.body["args"].get(name) for name in asked.traced) else None

    def done_elsewhere(self, capability: Capability, args: Mapping[str, Any]) -> str | None:
        """Return the agent's id of an earlier call that had its effect and differs only in its secrets, or None. Only
        secrets that another process had count, because they cannot be compared.
        """
        # An answer that the gateway refused, or an error beside mutations, is an effect too.
        returned = self.account.of("tool.returned")
        happened = {entry.key.rpartition("/")[0] for entry in returned if entry.body["happened"]}
        answers = self.account.of("call.answered")
        done_keys = {entry.key for entry in answers if entry.body["status"] == "done" or entry.body["step"] in happened}
        calls = [entry for entry in self.account.of("call.asked") if "secrets" in entry.body]
        for entry in calls:
            by_other = entry.body["secrets"]["held_by"] != calls[-1].body["secrets"]["held_by"]
            equal = entry.body["tool"] == capability.capability_id and without_secret_arguments(
                with_defaults(capability.definition.input_schema, entry.body["args"])
            ) == without_secret_arguments(args)
            if by_other and equal and entry.key in done_keys:
                return entry.key
        return None

    def values(self, run_id: str, args: Mapping[str, Any]) -> dict[str, str] | None:
        """Return the values of the secret arguments of a call, as `SecretValues.values` does."""
        assert self.process is not None, "a replay sends nothing"
        return self.process.values(run_id, args)

    def wait_for_holder(self, run_id: str, args: Mapping[str, Any], now_us: int) -> None:
        """Leave a call whose secrets another living process has to that process. Raises `Parked`."""
        asked = self.asked(args)
        if asked is None or self.process is None or self.process.values(run_id, args) is not None:
            return
        if asked.held_by != self.process.owner and self.process.alive(asked.held_by):
            raise Parked(now_us + HELD_ELSEWHERE_US, keeps=False)


async def call_with(
    adapter: Adapter, name: str, args: Mapping[str, Any], secrets: Mapping[str, str], context: CallContext
) -> AdapterReply:
    """Call an adapter with the secrets in place of their marks. The secrets are redacted from its reply and exceptions.
    `args` are a copy, which the adapter can change.
    """
    if not secrets:
        return await adapter.call(name, args, context)
    redactor = SecretRedactor(secrets.values(), MIN_SECRET_ARGUMENT_CHARS)
    try:
        reply = await adapter.call(name, {**args, **secrets}, context)
    except (Unavailable, LostReply) as error:
        error.args = tuple(redactor.redact(text) for text in error.args)
        raise
    if reply.operation is not None:
        # The secrets could not be redacted from the result of a later look-up of the operation.
        accepted = LostReply("it was accepted and runs on, and a call with secrets is not looked up")
        accepted.accepted = True
        raise accepted
    return _redact_reply(reply, redactor)


def _redact_reply(reply: AdapterReply, redactor: SecretRedactor) -> AdapterReply:
    """Return a reply without the secrets. The code of a definition drift is kept."""
    output, mutations = redactor.redact(reply.output), redactor.redact(list(reply.mutations))
    changed: dict[str, Any] = {"output": output, "mutations": tuple(mutations)}
    if reply.artifacts:
        artifacts = [ToolArtifact.model_validate(redactor.redact(dict(artifact))) for artifact in reply.artifacts]
        changed["artifacts"] = tuple(artifacts)
    if reply.withheld is not None:
        # The pointer into an answer contains names that the server chose.
        changed["withheld"] = ToolError.model_validate(redactor.redact(reply.withheld.to_json()))
    if reply.error is not None:
        error_fields = {name: redactor.redact(field) for name, field in reply.error.to_json().items()}
        for name, text in (("code", reply.error.code), ("message", reply.error.message)):
            if len(text) >= MIN_CUT_CHARS:
                error_fields[name] = redactor.without_part_at_end(error_fields[name])
        if "facts" in error_fields:
            error_fields["facts"] = tuple(error_fields["facts"])
        if reply.error.code == DEFINITION_DRIFT:
            del error_fields["code"]
        changed["error"] = reply.error.model_copy(update=error_fields)
    return reply.model_copy(update=changed)


def _mark_misplaced(args: Mapping[str, Any], names: Sequence[str], capability: Capability) -> dict[str, Any]:
    """Return the arguments of a call with a mark for each argument that the tool does not have, and for each other
    argument that contains a secret of the call: it can be a secret at a wrong place. Such a mark refuses the call.
    """
    properties = capability.definition.input_schema.get("properties", {})
    secrets = [args[name] for name in names if isinstance(args[name], str) and args[name]]
    redact = SecretRedactor(secrets, MIN_SECRET_ARGUMENT_CHARS).redact
    return {
        name: value if name in names or (name in properties and redact(own_copy(value)) == value) else SECRET_MARK
        for name, value in args.items()
    }


def without_secrets_of(
    asked: Mapping[str, Any],
    capability: Capability | None,
    run: tuple[RunScope, SeenContent, Registry],
    process: SecretValues,
) -> dict[str, Any]:
    """Return an agent's call in the form that is recorded: with a mark for each argument that its tool declares as
    secret. The values stay in the memory of `process`.
    """
    scope, seen, registry = run
    args: Mapping[str, Any] = asked["args"]
    if capability is None:
        secret_names = {name for tool in scope.tools.capabilities.values() for name in tool.definition.secrets}
        return {**asked, "args": {name: SECRET_MARK if name in secret_names else value for name, value in args.items()}}
    names = [name for name in capability.definition.secrets if name in args]
    if not capability.definition.secrets:
        return dict(asked)
    args = _mark_misplaced(args, names, capability)
    if not names:
        return {**asked, "args": args}
    values = {name: args[name] for name in names}
    fault: dict[str, str] = {}
    if problem := registry.check(capability, "asked", dict(args)):
        fault = {"fault": problem.detail, "pointer": problem.pointer}
    elif short := next((name for name in names if len(values[name]) < MIN_SECRET_ARGUMENT_CHARS), None):
        detail = f"it has less than {MIN_SECRET_ARGUMENT_CHARS} characters, so it cannot be kept out of answers"
        fault = {"fault": detail, "pointer": f"/{short}"}
    run_id = scope.run.run_id
    recorded = process.marked(run_id, asked["tool"], args, names)
    traced = {name: argument.to_json() for name, argument in seen.look_ahead(values, scope).items()}
    if not fault:
        for name, value in values.items():
            process.hold(run_id, recorded[name], value)
    record = {"held_by": process.owner, "traced": traced, **fault}
    return {**asked, "args": recorded, "secrets": record}
