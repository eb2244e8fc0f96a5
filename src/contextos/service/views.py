"""The documents that the API answers with: frozen models, made from what `application` and `operations` return.

A record is the envelope `DecisionRecord` itself. Times are Unix time in microseconds, as everywhere in ContextOS.
`contextos.client` reads them with the same models, so this module imports nothing of the server at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import BaseModel, Field, RootModel

from contextos.contracts.encoding.jcs import canonical, same_json
from contextos.contracts.entries.derived import ApprovalBinding, AskedEvidence
from contextos.contracts.entries.row import Topic
from contextos.contracts.envelopes.artifacts import RecordedArtifact, Withheld
from contextos.contracts.envelopes.record import DecisionRecord
from contextos.contracts.envelopes.run import BudgetInForce
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.model import Model, OpenObject
from contextos.contracts.statements.questions import CONTENT, principal_name, question_disagreement
from contextos.errors import UnfitAnswer

if TYPE_CHECKING:
    from contextos.contracts.ports.gates import DescribedTool
    from contextos.deployment.queries.run_view import RunView
    from contextos.deployment.why.explaining import RunReason
    from contextos.service.approvals import ApprovalStatement
    from contextos.service.runs import LedgerEntry, Run, Timeline


JSON: Final = "application/json"
PROBLEM_JSON: Final = "application/problem+json"
EVENT_STREAM: Final = "text/event-stream"

MAX_HELD_S: Final = 30
"""The longest time for which the server holds a waiting call open, in seconds."""


class ProblemPart(BaseModel):
    """One fault of a request: its place as a JSON Pointer, a stable code, a sentence, and what to do."""

    pointer: str
    code: str
    detail: str
    remedy: str = ""


class ProblemDocument(BaseModel):
    """A problem document (RFC 9457). `type` is a stable URN that ends with `code`."""

    type: str
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    code: str
    errors: list[ProblemPart] = []


class RequestOutcome(Model):
    """The outcome of a request so far: the state of its run, what the run waits for, and its record."""

    tenant_id: str
    run_id: str
    state: str
    ended: bool
    waits_for: str | None
    record: DecisionRecord | None

    @classmethod
    def of_view(cls, view: RunView) -> Self:
        return cls.model_validate(_outcome_fields(view))

    @staticmethod
    def json_of_view(view: RunView) -> bytes:
        """Return the JSON of `of_view(view)`. The sealed record is copied, not validated and written again: that would
        take longer than the rest of an answer.
        """
        return canonical(_outcome_fields(view))


class RunSummary(Model):
    """One run in a list. `fault` says what about the run does not verify, or is null."""

    run_id: str
    request_id: str | None
    user_id: str | None
    agent_id: str | None
    intent: str | None
    state: str
    ended: bool
    began_at_us: int
    waits_for: str | None
    blocked_by: str | None
    status: str | None
    decided_by: str | None
    reason: str | None
    fault: str | None

    @classmethod
    def of_run(cls, run: Run) -> Self:
        return cls(**_summary_fields(run))


class RunDocument(RunSummary):
    """One run with its current record, its limits with what it has used so far (`atomic_usage`), and the `paused`
    result of the call that waits, or null.
    """

    record: DecisionRecord | None
    run_budget: BudgetInForce | None
    paused: ToolResultEnvelope | None

    @classmethod
    def of_run(cls, run: Run, budget: BudgetInForce | None = None) -> Self:
        return cls(**_summary_fields(run), record=run.record, run_budget=budget, paused=run.paused)


class RunListDocument(Model):
    """A page of runs, newest first. `cursor` asks for the next page; null after the last."""

    items: list[RunSummary]
    cursor: str | None


class TimelineMoment(Model):
    """One line of a run's story; `after_us` is the time since the run began, or null."""

    text: str
    after_us: int | None


class TimelinePart(Model):
    """A part of the story of a run."""

    title: str
    moments: list[TimelineMoment]


class TimelineDocument(Model):
    """The story of a run. `fault` says what about the run does not verify, or is null."""

    parts: list[TimelinePart]
    fault: str | None

    @classmethod
    def of_timeline(cls, timeline: Timeline) -> Self:
        parts = [
            TimelinePart(
                title=part.title,
                moments=[TimelineMoment(text=moment.text, after_us=moment.after_us) for moment in part.moments],
            )
            for part in timeline.parts
        ]
        return cls(parts=parts, fault=timeline.fault)


class ReasonDocument(Model):
    """One sentence about a run, with text from outside escaped. `entry` and `kind` are of the journal entry behind it.

    `tool` is the tool that the sentence is about, or null if it is about the whole run.
    """

    topic: Topic
    tool: str | None
    text: str
    entry: int
    kind: str

    @classmethod
    def of_reason(cls, one: RunReason) -> Self:
        return cls(topic=one.topic, tool=one.tool, text=one.text, entry=one.entry, kind=one.kind)


class LedgerLine(Model):
    """An entry of a run's journal; `body` is null if it was erased; `body_digest` is the digest of the original."""

    seq: int
    kind: str
    key: str
    ledger: str
    at_us: int
    by: str
    body: Any
    body_digest: str
    hash: str

    @classmethod
    def of_entry(cls, entry: LedgerEntry) -> Self:
        return cls(**{name: getattr(entry, name) for name in cls.model_fields})


class LedgerDocument(Model):
    """The entries of a run that belong to one ledger, in order."""

    run_id: str
    ledger: str
    items: list[LedgerLine]


class SpanDocument(Model):
    """A span of a run. `parent_id` is null without a recorded parent; `is_remote_parent`: the parent is a span of the
    caller. `link` is the trace and the span that led to this one. Times are in Unix microseconds.
    """

    span_id: str
    parent_id: str | None
    is_remote_parent: bool
    name: str
    start_us: int
    end_us: int
    failed: bool
    link: tuple[str, str] | None
    attributes: dict[str, Any]


class SpanEventDocument(Model):
    """An event of a run: what was decided, removed, asked or refused, at a time in Unix microseconds."""

    name: str
    at_us: int
    severity: str
    span_id: str
    attributes: dict[str, Any]


class TraceDocument(Model):
    """The spans and events of a run, as they are sent to a collector. Both are empty until the run has ended."""

    run_id: str
    trace_id: str
    ended: bool
    spans: list[SpanDocument]
    events: list[SpanEventDocument]


class NamedValue(Model):
    """A name and a value of a question, in clear: nothing is escaped for display."""

    name: str
    value: Any


class QuestionDocument(Model):
    """A question that waits for a person with the role `required_role`, in clear.

    `binding`, `args` and `evidence` are signed. `binding_digest` is the digest of `binding`, and `binding` has the
    digests of `args` and `evidence`; the other members repeat parts of `binding`. Compute all digests before you sign.
    Nothing is escaped for display. `void` says what changed, so that no approval counts; it is empty while the question
    holds.
    """

    run_id: str
    approval_id: str
    gate_id: str
    required_role: str
    deadline_us: int
    binding_digest: str
    capability_id: str
    mode: str
    args: list[NamedValue]
    evidence: list[AskedEvidence]
    requester: list[str]
    untrusted: list[NamedValue]
    secrets: list[NamedValue]
    void: str
    binding: ApprovalBinding

    @classmethod
    def of_content(cls, content: Mapping[str, Any], void: str = "") -> Self:
        """Return the question with this content: `approval_id`, `binding` and its digest, `args` and `evidence`."""
        binding = content["binding"]
        repeated = ("run_id", "gate_id", "required_role", "deadline_us", "capability_id", "mode")
        return cls.model_validate(
            {
                **{name: binding[name] for name in repeated},
                "approval_id": content["approval_id"],
                "binding_digest": content["binding_digest"],
                "args": _named_values(content["args"]),
                "evidence": list(content["evidence"]),
                "requester": [principal_name(principal) for principal in binding["requester_chain"]],
                "untrusted": _named_values(binding["untrusted"]),
                "secrets": _named_values(binding["secrets"]),
                "void": void,
                "binding": binding,
            }
        )

    def content(self) -> dict[str, Any]:
        """Derive every member again from the signed content of this question, and return that content.

        Raises:
            UnfitAnswer: a digest or a repeated member does not follow from the content.
        """
        document = self.to_json()
        content = {**{name: document[name] for name in CONTENT}, "args": {arg.name: arg.value for arg in self.args}}
        fault = question_disagreement(content)
        if fault is None and not same_json(QuestionDocument.of_content(content, self.void).to_json(), document):
            fault = "a member differs from what it is bound to"
        if fault is not None:
            raise UnfitAnswer(f"the question of the server is altered: {fault}; nothing was signed")
        return content


class UnverifiedDocument(Model):
    """A run that a list leaves out because it does not verify. Nobody should answer its question."""

    run_id: str
    fault: str


class QuestionPage(Model):
    """A page of open questions, newest first. `cursor` asks for the next page; null after the last."""

    items: list[QuestionDocument]
    cursor: str | None
    unverified: list[UnverifiedDocument]


class PasskeyName(Model):
    """A passkey by which a person can answer (`PublicKeyCredentialDescriptorJSON`)."""

    type: Literal["public-key"]
    id: str


class PasskeyOptions(Model):
    """The options with which a page asks a browser (`PublicKeyCredentialRequestOptionsJSON`). `challenge` is the digest
    of the statement, so the assertion fits this answer to this question and no other.
    """

    challenge: str
    rpId: str  # as WebAuthn names it
    allowCredentials: list[PasskeyName]
    userVerification: Literal["required"]


class StatedAct(Model):
    """One statement of an act, as things are now.

    `signing_inputs` has, by key id, the bytes to sign with that Ed25519 key. The token is these bytes, a dot, and the
    signature in Base64url without padding. Their header has a time of signing (`iat`), which the signer states: the
    token counts for 15 minutes from then.
    """

    statement: OpenObject
    signing_inputs: dict[str, str]


class ActDocument(Model):
    """What the caller signs to do an act as things are now, most often one statement. Without a statement there is
    nothing to sign: the act is done.
    """

    statements: list[StatedAct]


class StatementDocument(ActDocument):
    """What a person signs to answer a question: one statement, whose `signing_inputs` have no time of signing.

    `text` is for the person. `nonce` is for a person who answers with a login instead of a key. `passkeys` has, by the
    origin of a page, the options with which the page asks for one of the person's passkeys.
    """

    text: str
    nonce: str
    passkeys: dict[str, PasskeyOptions]

    @classmethod
    def of_statement(
        cls, said: ApprovalStatement, statement: OpenObject, kids: list[str], passkeys: Mapping[str, Any]
    ) -> Self:
        inputs = {kid: said.signing_input(kid).decode() for kid in kids}
        return cls(
            statements=[StatedAct(statement=statement, signing_inputs=inputs)],
            text=said.text,
            nonce=said.nonce,
            passkeys={origin: PasskeyOptions.model_validate(options) for origin, options in passkeys.items()},
        )


class AnswerReceipt(Model):
    """The answer that was recorded. The run is due, and an engine drives it on."""

    run_id: str
    approval_id: str
    binding_digest: str


class AnyDocument(RootModel[dict[str, Any]]):
    """The answer to an act, as a JSON object."""


class ToolDocument(Model):
    """What a model reads about a tool: a text, and the JSON Schema of its arguments."""

    description: str
    input_schema: OpenObject

    @classmethod
    def of_tool(cls, tool: DescribedTool) -> Self:
        return cls(description=tool.description, input_schema=dict(tool.input_schema))


class SessionDocument(Model):
    """A session: the run that it is, and the tools that its agent can call. `described` has the tools by id, for a
    model, without those that the server no longer has.
    """

    session: str
    run_id: str
    tools: list[str]
    described: dict[str, ToolDocument]


class RefusedReason(Model):
    """Why a call was refused, and what the agent can do about it."""

    code: str
    detail: str
    remedy: str
    facts: list[str]
    because: list[str]


class CallDocument(Model):
    """The answer to a call. With the status `waiting`, make the same call again; nothing is lost meanwhile.

    A call that was made has `output` or `error`. `withheld` says why the tool's answer is shown to nobody. `artifacts`
    lists what the tool made beside its output. A refused call has `reasons`. A waiting call has `waits_for`, `about`
    and `question`.
    """

    status: Literal["done", "failed", "refused", "waiting"]
    call_id: str
    output: OpenObject | None = None
    error: OpenObject | None = None
    withheld: Withheld | None = None
    artifacts: list[RecordedArtifact] = []
    replayed: bool = False
    reasons: list[RefusedReason] = []
    ended: bool = False
    waits_for: str | None = None
    about: str | None = None
    question: OpenObject | None = None


def _outcome_fields(view: RunView) -> dict[str, Any]:
    return {
        "tenant_id": view.tenant_id,
        "run_id": view.run_id,
        "state": view.state,
        "ended": view.ended,
        "waits_for": view.waiting["for"] if view.waiting else None,
        "record": view.record,
    }


def _named_values(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _summary_fields(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in RunSummary.model_fields}
