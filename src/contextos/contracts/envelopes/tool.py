"""Tools: what an adapter declares, and the two envelopes of a governed call.

Source: API Contracts, "ToolCallEnvelope", "ToolResultEnvelope"; docs/design/contracts.md, "Run".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from contextos.contracts.envelopes.artifacts import RecordedArtifact, ToolArtifact, Withheld
from contextos.contracts.envelopes.evidence import Classification, IntegrityLevel
from contextos.contracts.envelopes.identity import Chain
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ApprovalMode
from contextos.contracts.ids import (
    DIGEST,
    CapabilityId,
    EgressEndpoint,
    Form,
    IdempotencyKey,
    PolicyDecisionId,
    RunId,
    SessionId,
    ToolCallId,
    TraceId,
)
from contextos.contracts.model import (
    MAX_NAME_CHARS,
    Amount,
    Cents,
    Count,
    Map,
    Model,
    Name,
    NonEmpty,
    OpenObject,
    Positive,
    Seq,
    Text,
)
from contextos.contracts.pydantic_internals import serialize_set_fields
from contextos.contracts.refs import EvidenceRef

AUTH_REF: Final = Form(
    "auth ref", "claim_hash:sha256:" + "b2a1" * 16, "[!-~]+", f"[a-z_]+:{DIGEST.sealed}", max_chars=MAX_NAME_CHARS
)
"""A claim or credential by its hash. The credential itself is never written."""

AuthRef = Annotated[str, AUTH_REF]

_WRITE_MODES: Final = ("local_write", "destructive")
"""The modes that only a write can declare; a read can be `network` or `delegated`."""

_SCOPE_TOKEN: Final = re.compile(r"[!#-\[\]-~]+")
"""One scope, in the characters that a blank-separated list of scopes allows (RFC 6749, section 3.3)."""

ToolStatus = Literal["ok", "completed", "paused", "blocked", "rejected", "failed", "error"]
CapabilityKind = Literal["read", "write"]
CapabilityClass = Literal["observe", "verify", "act"]
RiskLevel = Literal["read", "write_reversible", "write_irreversible"]


class Idempotency(Model):
    """What the runtime can do after the reply to a call was lost.

    `keyed`: send the call again with the same key within `key_ttl_s` seconds; the external system executes it once.
    `lookup`: ask the external system what the call with this key did. If it answers "nothing", the call is sent again
    only with `honours_not_after`: the system then refuses a call after the dispatch's `not_after`.
    `none`: only a person can find out.

    `scope` and `identity_args` define which calls are the same operation. `denial_args` are the arguments that make a
    call the same as a call that a person denied in this run. By default they are the stated `destinations`, or without
    them the required arguments except numbers and booleans. So a denied call does not return with another amount.
    """

    strategy: Literal["keyed", "lookup", "none"]
    key_ttl_s: Positive = 86_400
    honours_not_after: bool = False
    scope: Literal["run", "session", "subject", "tenant"] = "run"
    identity_args: Seq[Name] | None = None
    denial_args: Seq[Name] | None = None


class Authentication(Model):
    """How a call of a tool proves to the tool's server who calls.

    `none`: it does not, or the adapter's own code does it. `static`: with a secret of the tenant, the same for all its
    users; `credentials` names the places that hold the secret (`env:CRM_TOKEN`, `file:secrets/crm`), never the secret.
    `exchange`: with a token that is issued for this one call to `audience`, for the user, through the agent.
    """

    mode: Literal["none", "static", "exchange"]
    audience: Name | None = None
    credentials: Seq[Name] = ()

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if self.credentials and self.mode != "static":
            raise ValueError("only `static` has `credentials`")
        if (self.mode == "exchange") != (self.audience is not None):
            raise ValueError("an `exchange` names the `audience` of its tokens, and nothing else has one")
        return self


class CapabilityDefinition(Model):
    """One tool of an adapter (a capability): its schemas, risk and the names of the evidence that it `produces`.
    `approval_mode` is the highest mode that a call can reach. `output_repeats` maps a required argument to a JSON
    Pointer into the output: an answer whose value there differs from the argument is refused.

    `output_integrity` says whether the tool's answer is trusted content; without it the answer is not trusted, whatever
    its adapter. `output_classification` is how confidential the answer is; by default as the pack says. `destinations`
    are the arguments that say where something goes (a recipient, an account, a URL, a path). By default they are all
    arguments of a write and of a read that leaves the machine, and none of another read. A person is asked if no
    trusted source has the value of a destination: always for stated `destinations`, otherwise once the run has seen
    untrusted content. `secrets` are the arguments of a write that are secret texts, such as a password: the tool gets
    them, and a mark replaces them everywhere else. A foreign server cannot name any: no statement of it fills the list.

    `volatile` maps JSON Pointers into the output of a read that `produces` evidence to tolerances. The number there
    changes by itself. An approval that rests on it still counts while the difference is within the tolerance.

    `auth` is how a call authenticates. With `exchange`, the token has exactly the `required_scopes`.

    Refuses a kind, risk and mode that contradict each other: a write declared as a read would pass every gate.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_]{1,64}$")
    kind: CapabilityKind
    risk_level: RiskLevel
    approval_mode: ApprovalMode
    input_schema: OpenObject
    output_schema: OpenObject
    idempotency: Idempotency
    timeout_s: int = Field(default=10, ge=2, le=120)
    cost_cents: Cents = 0
    required_scopes: Seq[Name] = ()
    produces: Seq[Name] = ()
    output_repeats: Map[Name] = {}
    output_integrity: IntegrityLevel | None = None
    output_classification: Classification | None = None
    destinations: Seq[Name] | None = None
    secrets: Seq[Name] = ()
    volatile: Map[Amount] = {}
    auth: Authentication = Authentication(mode="none")
    description: str = Field(default="", max_length=2000)

    @property
    def capability_class(self) -> CapabilityClass:
        """Return the purpose of a call: `act` of a write, `verify` of a read that `produces` evidence, or `observe`."""
        if self.kind == "write":
            return "act"
        return "verify" if self.produces else "observe"

    @property
    def acts_for_user(self) -> bool:
        """Return whether a call acts on behalf of a user: a write whose declared mode is `delegated` or above, or any
        call with a token issued for the user.
        """
        is_delegated = APPROVAL_MODES.index(self.approval_mode) >= APPROVAL_MODES.index("delegated")
        return (self.kind == "write" and is_delegated) or self.auth.mode == "exchange"

    @model_validator(mode="after")
    def _refuse_malformed_schemas(self) -> Self:
        for schema in (self.input_schema, self.output_schema):
            properties, required = schema.get("properties", {}), schema.get("required", [])
            if not isinstance(properties, dict) or not isinstance(required, list):
                raise ValueError("`properties` of a schema are an object, and `required` is a list; correct them")
        return self

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if self.kind == "write" and (self.approval_mode == "read_only" or self.risk_level == "read"):
            raise ValueError("a write is neither `read_only` nor of risk `read`; declare what it can do")
        if self.kind == "read" and (self.approval_mode in _WRITE_MODES or self.risk_level != "read"):
            raise ValueError("a read is of risk `read` and reaches no mode of a write; declare it as a write")
        return self

    @model_validator(mode="after")
    def _refuse_tokens_without_scopes(self) -> Self:
        if self.auth.mode == "exchange":
            if not self.required_scopes:
                raise ValueError("a token is issued for the `required_scopes` of a tool; state them")
            if not all(map(_SCOPE_TOKEN.fullmatch, self.required_scopes)):
                raise ValueError("a scope of a token is one word of printable ASCII; correct `required_scopes`")
        return self

    @model_validator(mode="after")
    def _refuse_destinations_of_nothing(self) -> Self:
        for argument in self.destinations or ():
            if argument not in self.input_schema.get("properties", {}):
                raise ValueError(f"`destinations` names `{argument}`, which is not an argument; correct it")
        return self

    @model_validator(mode="after")
    def _refuse_denials_by_nothing(self) -> Self:
        for argument in self.idempotency.denial_args or ():
            if argument not in self.input_schema.get("properties", {}) or argument in self.secrets:
                raise ValueError(f"`denial_args` names `{argument}`, which is not an argument to compare; correct it")
        return self

    @model_validator(mode="after")
    def _refuse_secrets_that_cannot_be_kept(self) -> Self:
        if not self.secrets:
            return self
        if self.kind == "read":
            raise ValueError("`secrets` are of a write, because a read is made again from its record; remove them")
        if self.idempotency.strategy == "lookup":
            raise ValueError("nobody could redact `secrets` from what a look-up finds; use `keyed` or `none`")
        if self.idempotency.scope != "run":
            raise ValueError("`secrets` of two runs cannot be compared; use the idempotency scope `run`")
        for argument in self.secrets:
            schema = self.input_schema.get("properties", {}).get(argument)
            if not isinstance(schema, dict) or schema.get("type") != "string":
                raise ValueError(f"`secrets` names `{argument}`, which is not an argument of type `string`; correct it")
            if "default" in schema:
                raise ValueError(f"`{argument}` is one of `secrets` and has a default, which anybody reads; remove it")
            if argument in (self.destinations or ()) or argument in self.output_repeats:
                raise ValueError(f"`{argument}` is one of `secrets`, and something else reads it; remove it there")
        return self

    @model_validator(mode="after")
    def _refuse_repeats_of_nothing(self) -> Self:
        required, properties = self.input_schema.get("required", ()), self.output_schema.get("properties", {})
        for argument, pointer in self.output_repeats.items():
            if argument not in required:
                raise ValueError(f"`output_repeats` names `{argument}`, which is not a required argument; require it")
            if not pointer.startswith("/") or pointer.split("/")[1] not in properties:
                detail = f"`output_repeats` names `{pointer}`, which is not a property of the output"
                raise ValueError(f"{detail}; correct it")
        return self


class AdapterDefinition(Model):
    """An adapter (the connection to one external system) as it describes itself. Every run records the definition's
    digest.
    """

    adapter_id: str = Field(pattern=r"^[A-Za-z0-9_]{1,64}$")
    type: Literal["function", "openapi", "mcp", "a2a", "custom"]
    version: Name
    external: bool = False
    egress: Seq[EgressEndpoint] = ()
    capabilities: NonEmpty[CapabilityDefinition]

    def leaves(self, capability: CapabilityDefinition) -> bool:
        """Return whether a call of this capability of the adapter leaves the machine, as declared."""
        uses_network = capability.approval_mode == "network" or capability.auth.mode == "exchange"
        return self.external or bool(self.egress) or uses_network

    def destinations(self, capability: CapabilityDefinition) -> Seq[Name]:
        """Return the arguments of this capability that say where something goes: as stated, or by default (sorted)."""
        if capability.destinations is not None:
            return capability.destinations
        carries_out = capability.kind == "write" or self.leaves(capability)
        return tuple(sorted(capability.input_schema.get("properties", {}))) if carries_out else ()


DEFINITION_DRIFT: Final = "definition_drift"
"""An adapter's error code: its server does not list the tool, or not as it was published. Nothing was sent."""
MAX_SAID_CHARS: Final = 2_000
"""The longest text of a server that a reply repeats, and the longest reason why an answer is withheld."""


class ToolError(Model):
    """The reason why a call has no output. `code` is a `FailureCode` or a code of the adapter's own.

    `facts` names the facts that policy lacked, or the limit of the run that was exhausted.
    """

    code: Name
    """A stable code for programs."""
    message: Text
    """What went wrong, for people and models."""
    retryable: bool = False
    """Whether the same call can succeed later."""
    pointer: Text | None = None
    """A JSON Pointer to the argument at fault, if there is one."""
    remedy: Text | None = None
    """What to do next, if it is known."""
    facts: Seq[Name] = ()
    """The facts that policy lacked, or the limit that was exhausted."""


class AdapterReply(Model):
    """The answer of an adapter: an output, a business error, or the reason why its output is `withheld`: the call was
    done, and its answer cannot be used (`withheld.pointer` is the place at fault). An error says that a write had no
    effect, unless an output, `withheld` or `mutations` are beside it. `paused`: the error is that the other system
    waits for something, such as input, before it goes on with this read.

    `mutations` names the side effects. `cost_cents` is the cost in US cents; the declared cost counts if this is lower.
    `definition_age_ms` is the age of a foreign server's list of tools in which the tool was compared with its published
    definition: 0 if the server was asked for this call. `operation` is the other system's name of a write that it
    accepted and still executes: the write is looked up in `retry_after_s` seconds or later, and never sent again.
    `artifacts` are what the tool made beside its output.
    """

    output: OpenObject | None = None
    error: ToolError | None = None
    withheld: ToolError | None = None
    mutations: Seq[Name] = ()
    cost_cents: Cents = 0
    definition_age_ms: Count | None = None
    paused: bool = False
    operation: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    retry_after_s: int = Field(default=5, ge=0, le=3600)
    artifacts: Seq[ToolArtifact] = ()

    @model_validator(mode="after")
    def _refuse_artifacts_of_nothing(self) -> Self:
        if self.artifacts and self.output is None:
            raise ValueError("`artifacts` are beside an output; answer with one, or without them")
        return self

    @property
    def had_no_effect(self) -> bool:
        """Return whether the reply says that no write was made: an `error`, no `output`, `withheld` or `mutations`."""
        has_content = self.output is not None or self.withheld is not None or bool(self.mutations)
        return self.error is not None and not has_content


@dataclass(frozen=True, slots=True)
class CallContext:
    """The context that an adapter receives with the arguments of a call.

    `not_after_us` is Unix time in microseconds. `headers()` returns the W3C trace headers of this call, and `claim()`
    a signed identity claim (`ctxid/1`) for this adapter, with the scopes of this call and its id as `jti`.
    `hop(url, tenant)` returns a claim for a partner's agent at this URL, for the partner's tenant, or "" (ADR 0070).
    All three are made when the adapter calls them and are never recorded.
    `is_late()` is true if a write waited in the adapter until after `not_after_us` by the runtime's clock: it must not
    be sent any more. It is never true for a lookup, or for a call that is sent again under its key. `egress` lists the
    endpoints that the call may reach. `access_token` is the secret bearer token that was issued for this call, if the
    capability's `auth` is `exchange`; it must reach no other call and no answer. `operation` is the name that the other
    system gave to the write that a lookup asks about, if it accepted one that runs on.
    """

    tenant_id: str
    run_id: str
    tool_call_id: str
    idempotency_key: str | None
    not_after_us: int
    timeout_ms: int
    headers: Callable[[], dict[str, str]] = field(default=dict, repr=False)
    claim: Callable[[], str] = field(default=str, repr=False)
    hop: Callable[[str, str], str] = field(default=lambda _audience, _tenant: "", repr=False)
    is_late: Callable[[], bool] = field(default=bool, repr=False)
    egress: tuple[str, ...] = ()
    access_token: str = field(default="", repr=False)
    operation: str | None = None


class StatedCall(Model):
    """A call as the journal states it: a `ToolCallEnvelope` without its version, trace, session and `auth_ref`."""

    tool_call_id: ToolCallId
    """The id of the call."""
    run_id: RunId
    """The run that makes the call."""
    capability_id: CapabilityId
    """The id of the tool, `<adapter>.<name>`."""
    args: OpenObject
    """The arguments with every binding resolved, checked against the schema of the tool."""
    principal_chain: Chain
    """The principals from the one who made the request to the agent that executes it."""
    approval_mode_requested: ApprovalMode
    """The approval mode that the plan states."""
    approval_mode_effective: ApprovalMode
    """The approval mode that policy decided; it is not above the highest."""
    approval_mode_highest: ApprovalMode
    """The highest approval mode that the tool declares."""
    policy_decision_id: PolicyDecisionId | None = None
    """The policy decision that allows the call."""
    evidence_refs: Seq[EvidenceRef]
    """References to the evidence on which the call rests."""
    idempotency_key: IdempotencyKey | None = None
    """The key under which a repetition is the same operation; a write has one, and the runtime derives it."""
    metadata: OpenObject = {}
    """An open object: `definition_digest` pins the tool's definition and `arg_schema_ref` names its input schema,
    `protocol` and `version` are the type and version of its adapter, `gates` ask about the call, and
    `requires_approval_gate` is the gate that does.
    """


class ToolCallEnvelope(StatedCall):
    """One call of a tool, made by the executor (which runs a plan's steps) and checked by the tool gateway."""

    envelope_version: Literal["contextos.tool_call.v1"]
    """The constant name of this format."""
    trace_id: TraceId
    """The id of the caller's trace."""
    session_id: SessionId | None = None
    """The session to which the run belongs, if any."""
    auth_ref: AuthRef | None = None
    """The hash of the identity claim for the call; no credential is written."""

    required_when_sealed: ClassVar[tuple[str, ...]] = ("policy_decision_id", "auth_ref")

    def result(self, stated: Mapping[str, Any]) -> ToolResultEnvelope:
        """Return the result of this call, built from `stated`, its form in the journal."""
        return ToolResultEnvelope.of_run(self.run_id, self.trace_id, self.session_id, stated)

    def stated(self) -> dict[str, Any]:
        """Return what the journal states of this call, as JSON (`StatedCall`)."""
        absent = set() if self.idempotency_key else {"idempotency_key"}
        return serialize_set_fields(self, _CALL_FIELDS - absent)

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """Yield a fault for a missing identity, a mode above the declared one, a write without an idempotency key, or
        two different keys.
        """
        kinds = {principal.kind for principal in self.principal_chain}
        if "agent" not in kinds or len(kinds) == 1:
            yield "principal_chain", "a governed call names the agent and the principal it acts for; name both"
        rank = APPROVAL_MODES.index
        if rank(self.approval_mode_effective) > rank(self.approval_mode_highest):
            yield "approval_mode_effective", "the effective mode is above the highest that the capability declares"
        if self.idempotency_key is None and self.approval_mode_highest in _WRITE_MODES:
            yield "idempotency_key", "a write without an idempotency key could happen twice; derive its key first"
        if self.idempotency_key and self.args.get("idempotency_key", self.idempotency_key) != self.idempotency_key:
            yield (
                "idempotency_key",
                "args and envelope carry different idempotency keys; send one operation under one key",
            )


class Citation(Model):
    """A citable source of a result."""

    evidence_ref: EvidenceRef
    """The reference to the source."""


class StatedResult(Model):
    """A result as the journal states it: a `ToolResultEnvelope` without its version, run, trace and session."""

    tool_call_id: ToolCallId
    """The id of the call."""
    capability_id: CapabilityId
    """The id of the tool, `<adapter>.<name>`."""
    status: ToolStatus
    """What became of the call: `ok` for a read that succeeded, `completed` for an effect, else why there is neither."""
    output: Any = None
    """What the tool returned, checked against its output schema; null without a result."""
    error: ToolError | None = None
    """Why the call has no output; absent for `ok` and `completed`."""
    withheld: Withheld | None = None
    """Why the tool's answer is withheld from every reader; with `completed`, the call has taken effect all the same."""
    artifacts: Seq[RecordedArtifact] = ()
    """What the tool made beside its output, such as files."""
    citations: Seq[Citation] = ()
    """The sources of the output, and the artifacts whose content is kept."""
    mutations: Seq[Name] = ()
    """The names of the side effects; empty for `ok`."""
    risk_tags: Seq[Name] = ()
    """Marks for readers, such as the approval mode of an effect."""
    policy_decision_id: PolicyDecisionId | None = None
    """The policy decision about the call; absent if none was made."""
    latency_ms: Amount
    """The duration of the call in milliseconds, without waiting for the run's next turn."""
    metadata: OpenObject = {}
    """An open object, with the cost, the retries and the approver of the call where it has them. `tool_transcript_id`
    names the answer in the journal from which a replay reads this result.
    """


class ToolResultEnvelope(StatedResult):
    """The result of one call of a tool. `mutations` names the side effects; `latency_ms` is in milliseconds.

    A replay reads the result from the journal and calls nothing. An operation that an earlier run did is answered with
    its output alone: its artifacts are in the result of that call, which `metadata` names as `made_by`.
    """

    envelope_version: Literal["contextos.tool_result.v1"]
    """The constant name of this format."""
    run_id: RunId
    """The run that made the call."""
    trace_id: TraceId
    """The id of the caller's trace."""
    session_id: SessionId | None = None
    """The session to which the run belongs, if any."""

    def stated(self) -> dict[str, Any]:
        """Return what the journal states of this result, as JSON (`StatedResult`)."""
        return serialize_set_fields(self, _RESULT_FIELDS)

    @classmethod
    def of_run(cls, run_id: str, trace_id: str, session_id: str | None, stated: Mapping[str, Any]) -> Self:
        """Return the result of a call of this run, built from `stated`, its form in the journal."""
        ids = {"run_id": run_id, "trace_id": trace_id, "session_id": session_id}
        # The ids of the run come last: a result never names another run than its entry does.
        return cls.model_validate({**_EMPTY_RESULT, **stated, "envelope_version": "contextos.tool_result.v1", **ids})

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """Yield a fault for a status that contradicts `mutations` or `error` (API Contracts, "ToolResultEnvelope
        statuses").
        """
        if self.status == "ok" and self.mutations:
            yield "mutations", "status `ok` says that there was no side effect; use `completed`"
        if self.status == "ok" and self.withheld is not None:
            yield "withheld", "status `ok` has an answer; use `failed`"
        if self.status in ("ok", "completed") and self.error is not None:
            yield "error", f"status `{self.status}` has no error; use `error` or `failed`"
        if self.status in ("blocked", "rejected", "failed", "error") and self.error is None:
            yield "error", f"status `{self.status}` does not say why; give the error"


_CALL_FIELDS: Final = set(StatedCall.model_fields)
_RESULT_FIELDS: Final = set(StatedResult.model_fields)
_EMPTY_RESULT: Final = {"output": None, "error": None, "artifacts": (), "mutations": (), "risk_tags": ()}
"""The values of the fields of a result that the journal does not state."""


def capability_id(adapter: AdapterDefinition, capability: CapabilityDefinition) -> str:
    """Return `<adapter>.<capability>`, the id of a tool in plans, manifests and policy."""
    return f"{adapter.adapter_id}.{capability.name}"
