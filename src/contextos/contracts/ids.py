"""Identifiers: a string type for each kind of id.

A kind has two strengths. In the wire form an id is checked by its prefix, printable ASCII and length; in the sealed
form by its exact pattern. Names of governed things (rules, gates, bundles, pins, capabilities) and idempotency keys
have one strength, so that a gate id is never accepted as a rule id.
Ids within a run are derived from the run id, so a replay makes the same ids.
Source: docs/design/contracts.md, "Identifiers"; docs/design/standards.md, "SPIFFE".
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Final

import orjson
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from contextos.contracts.encoding.display_escape import an
from contextos.contracts.encoding.instants import utc_time
from contextos.contracts.encoding.jcs import canonical

MAX_ID_CHARS: Final = 200
MAX_SPIFFE_CHARS: Final = 2048

_SEALED: Final = "sealed_pattern"


class Form:
    """The form of one kind of id, used as an annotation of `str` for pydantic.

    `loose` (for input) and `sealed` (for what the runtime writes) are regular expressions that the whole string must
    match, in linear time: without look-around or nested repetition. Without `sealed`, `loose` is used for both.
    """

    def __init__(
        self, title: str, example: str, loose: str, sealed: str | None = None, *, max_chars: int = MAX_ID_CHARS
    ) -> None:
        self.title, self.example, self.max_chars = title, example, max_chars
        self.loose, self.sealed = loose, sealed or loose
        self._fits_loose, self._fits_sealed = re.compile(self.loose).fullmatch, re.compile(self.sealed).fullmatch

    def fits(self, value: str, *, sealed: bool = False) -> bool:
        """Return whether `value` is a valid id of this form; with `sealed`, in the full form that the
        runtime writes.
        """
        return len(value) <= self.max_chars and (self._fits_sealed if sealed else self._fits_loose)(value) is not None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the loose form; `sealed_schema` replaces its pattern with the sealed pattern."""
        loose_schema = core_schema.str_schema(
            pattern=f"^(?:{self.loose})$",
            max_length=self.max_chars,
            strict=True,
            metadata={_SEALED: f"^(?:{self.sealed})$"},
        )
        return core_schema.custom_error_schema(
            self._check_beyond_pattern(loose_schema),
            custom_error_type="id_form",
            custom_error_message="this is not {title}",
            custom_error_context={"title": an(self.title), "remedy": f"write it like `{self.example}`"},
        )

    def _check_beyond_pattern(self, schema: CoreSchema) -> CoreSchema:
        """Add the checks that a pattern cannot express; most forms have none."""
        return schema

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {
            "type": "string",
            "pattern": f"^(?:{self.loose})$",
            "maxLength": self.max_chars,
            "description": f"{'An' if an(self.title).startswith('an ') else 'A'} {self.title}, like {self.example}.",
        }


def sealed_schema(schema: Any) -> Any:
    """Return a copy of a pydantic core schema in which every id must have its full form, as in values that the
    runtime writes.
    """
    if isinstance(schema, list):
        return [sealed_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: sealed_schema(item) for name, item in schema.items()}
    metadata = schema.get("metadata")
    if isinstance(metadata, dict) and _SEALED in metadata:
        copy["pattern"] = metadata[_SEALED]
    return copy


class _Strict(Form):
    """A form with a check that a pattern cannot express."""

    def fits(self, value: str, *, sealed: bool = False) -> bool:
        return super().fits(value, sealed=sealed) and self._passes_check(value)

    def _passes_check(self, value: str) -> bool:
        """Return whether a value that matches the pattern also passes the check."""
        raise NotImplementedError

    def _check_beyond_pattern(self, schema: CoreSchema) -> CoreSchema:
        def check(value: str) -> str:
            if not self._passes_check(value):
                raise ValueError(self.title)
            return value

        return core_schema.no_info_after_validator_function(check, schema)


class _Timestamp(_Strict):
    """A form whose digits must be a date that exists."""

    def _passes_check(self, value: str) -> bool:
        return utc_time(value) == value


class _NotZero(_Strict):
    """Hex digits that are not all 0 (W3C Trace Context)."""

    def _passes_check(self, value: str) -> bool:
        return value.strip("0") != ""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return super().__get_pydantic_json_schema__(schema, handler) | {"not": {"pattern": "^0+$"}}


_HEX: Final = "[0-9a-f]"
_VERSION: Final = r"(?:0|[1-9][0-9]{0,8})\.(?:0|[1-9][0-9]{0,8})\.(?:0|[1-9][0-9]{0,8})"
_NAME: Final = "[A-Za-z0-9_.:-]{1,128}"
_SEGMENT: Final = r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*|\.[A-Za-z0-9_-][A-Za-z0-9._-]*|\.\.[A-Za-z0-9._-]+)"


def _prefixed_form(title: str, prefix: str, example: str) -> Form:
    return Form(title, prefix + example, prefix + "[!-~]+", prefix + _HEX + "{16}")


RUN: Final = _prefixed_form("run id", "run_", "a1b2c3d4e5f60718")
TOOL_CALL: Final = _prefixed_form("tool call id", "tool_", "0f1e2d3c4b5a6978")
POLICY_DECISION: Final = _prefixed_form("policy decision id", "pol_", "0f1e2d3c4b5a6978")
REPLAY_PACKET: Final = _prefixed_form("replay packet id", "rp_", "0f1e2d3c4b5a6978")
PLAN: Final = _prefixed_form("plan id", "plan_", "0f1e2d3c4b5a6978")
ROUTING: Final = _prefixed_form("routing decision id", "route_", "0f1e2d3c4b5a6978")
PROPOSAL: Final = _prefixed_form("memory proposal id", "mwp_", "0f1e2d3c4b5a6978")
RECORD: Final = Form(
    "decision record id",
    "dr_2026_05_04_0f1e2d3c4b5a6978",
    "dr_[!-~]+",
    "dr_[0-9]{4}_(?:0[1-9]|1[0-2])_(?:0[1-9]|[12][0-9]|3[01])_" + _HEX + "{16}",
)
RULE: Final = Form("rule id", "R_HIGH_VALUE_REQUIRES_APPROVAL", "R_[A-Z0-9_]+")
GATE: Final = Form("gate id", "GATE_FINANCE_APPROVAL", "GATE_[A-Z0-9_]+")
BUNDLE: Final = Form("policy bundle id", "POLICY_RETURNS_V4", "POLICY_[A-Z0-9_]+")
PIN: Final = Form("pin", "ctxpack.support@5.2.0", "[A-Za-z0-9_.:-]+@" + _VERSION)
CEID: Final = Form("entity id", "order:ord_881", "[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+(?::[A-Za-z0-9_.-]+)?")
IDEMPOTENCY_KEY: Final = Form("idempotency key", "ik_2x9k4j7m1q8w0p3z", "ik_[a-z0-9]{16}")
AGENT_URN: Final = Form(
    "agent urn",
    "agent:contextos/support-refund@1.2.0",
    "agent:[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*@" + _VERSION,
)
SPIFFE: Final = Form(
    "SPIFFE id",
    "spiffe://contextos/agents/support",
    f"spiffe://[a-z0-9._-]{{1,255}}(?:/{_SEGMENT})*",
    max_chars=MAX_SPIFFE_CHARS,
)
DIGEST: Final = Form(
    "digest", "sha256:" + "b2a1" * 16, rf"sha256:(?:{_HEX}{{64}}|{_HEX}{{0,63}}\.\.\.)", f"sha256:{_HEX}{{64}}"
)
SHA256: Final = Form("SHA-256 in hex", "b2a1" * 16, rf"(?:{_HEX}{{64}}|{_HEX}{{0,63}}\.\.\.)", f"{_HEX}{{64}}")
TRACE: Final = _NotZero("trace id", "4bf92f3577b34da6a3ce929d0e0e4736", _HEX + "{32}")
SPAN: Final = _NotZero("span id", "00f067aa0ba902b7", _HEX + "{16}")
TENANT: Final = Form("tenant id", "tenant_acme_prod", _NAME)
REQUEST: Final = Form("request id", "req_9f3a12", _NAME)
SESSION: Final = Form("session id", "sess_42f1", _NAME)
CAPABILITY: Final = Form("capability id", "adp_payments.issue_refund", r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)+")
EGRESS: Final = Form(
    "endpoint",
    "api.payments.example:443",
    r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[1-9][0-9]{0,4})?",
    max_chars=260,
)
"""A host in lower case, with or without a port. Endpoints are compared as they are written."""

TIMESTAMP: Final = _Timestamp(
    "UTC time", "2026-05-04T09:31:30Z", r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z"
)

RunId = Annotated[str, RUN]
ToolCallId = Annotated[str, TOOL_CALL]
PolicyDecisionId = Annotated[str, POLICY_DECISION]
ReplayPacketId = Annotated[str, REPLAY_PACKET]
PlanId = Annotated[str, PLAN]
RoutingId = Annotated[str, ROUTING]
ProposalId = Annotated[str, PROPOSAL]
RecordId = Annotated[str, RECORD]
RuleId = Annotated[str, RULE]
GateId = Annotated[str, GATE]
BundleId = Annotated[str, BUNDLE]
Pin = Annotated[str, PIN]
Ceid = Annotated[str, CEID]
IdempotencyKey = Annotated[str, IDEMPOTENCY_KEY]
AgentUrn = Annotated[str, AGENT_URN]
SpiffeId = Annotated[str, SPIFFE]
Digest = Annotated[str, DIGEST]
Sha256Hex = Annotated[str, SHA256]
TraceId = Annotated[str, TRACE]
SpanId = Annotated[str, SPAN]
TenantId = Annotated[str, TENANT]
RequestId = Annotated[str, REQUEST]
SessionId = Annotated[str, SESSION]
CapabilityId = Annotated[str, CAPABILITY]
Timestamp = Annotated[str, TIMESTAMP]
EgressEndpoint = Annotated[str, EGRESS]


def derive(prefix: str, run_id: str, kind: str, ordinal: int | str) -> str:
    """Derive an id within a run from its kind and ordinal: `prefix` and 16 hex digits; the same in every replay.

    >>> derive("tool_", "run_a1b2c3d4e5f60718", "tool_call", 1)
    'tool_b5be5dd2089d81a5'
    """
    # A list of texts and one number has one spelling, which is the canonical one.
    return prefix + hashlib.sha256(orjson.dumps([run_id, kind, ordinal])).hexdigest()[:16]


def idempotency_key(*, tenant_id: str, scope: str, capability_id: str, args: dict[str, Any], occurrence: int) -> str:
    """Derive the key of one operation: `ik_` and 16 characters of [a-z0-9]. A retry or replan gets the same key.

    `scope` is the value of the capability's scope (the run id, unless the scope is wider). An `idempotency_key` in
    `args` is ignored. `occurrence` distinguishes equal operations that are meant to happen more than once.

    Raises:
        MalformedJson: `args` is not I-JSON.
    """
    identity = {name: value for name, value in args.items() if name != "idempotency_key"}
    number = int.from_bytes(hashlib.sha256(canonical([tenant_id, scope, capability_id, identity, occurrence])).digest())
    text = ""
    for _ in range(16):
        number, digit = divmod(number, 36)
        text += "0123456789abcdefghijklmnopqrstuvwxyz"[digit]
    return "ik_" + text
