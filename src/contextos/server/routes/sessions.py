"""Sessions: the gate of an agent that chooses its own calls, over HTTP. Open one, call its tools, wait, finish.

A session belongs to its user: the same name of another user is another session. A call is named by its `call_id`, so
the same call again has no second effect and returns the recorded answer.
Source: docs/design/sessions.md; RFC 7240 (`Prefer: wait`).
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import Field

from contextos.contracts.encoding.jcs import digest
from contextos.contracts.envelopes.verdicts import SessionOutcome
from contextos.contracts.model import Model, OpenObject, Seq
from contextos.contracts.ports.gates import CallAnswer, Done, Refused, Waiting
from contextos.deployment.acts.checks import MAX_REASON_CHARS
from contextos.deployment.gate.gate import CallGate, Gate
from contextos.deployment.gate.opening import find_session, with_tools
from contextos.errors import NotFound, Overloaded
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere, TokensHere
from contextos.server.problems import not_found
from contextos.server.rates import Places, client_address
from contextos.server.shared.forms import CallId, KnownId, ToolId
from contextos.server.tracing import trace_of
from contextos.service.views import (
    MAX_HELD_S,
    CallDocument,
    RefusedReason,
    RequestOutcome,
    SessionDocument,
    ToolDocument,
)
from contextos.trust.identity.callers import Caller
from contextos.workspace import App

session_routes: Final = APIRouter(tags=["sessions"])

POLL_US: Final = 250_000
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait=([0-9]{1,4})\s*(?:$|[,;])")

_NAME_FORM: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
SessionName = Annotated[str, Path(alias="session", max_length=128, description="The name of a session of the caller.")]


class SessionOpening(Model):
    """A session to open. What is left out is taken where the tenant has exactly one."""

    session: str = Field(pattern=_NAME_FORM)
    user: KnownId | None = None
    agent: KnownId | None = None
    delegation: KnownId | None = None
    intent: str | None = None
    pack: str | None = None
    message: str = ""
    context: OpenObject = {}
    tools: Seq[str] | None = None


class CallDraft(Model):
    """A call that an agent asks for. One `call_id` is one call."""

    call_id: CallId
    tool: ToolId
    args: OpenObject = {}


class SessionEnd(Model):
    """The outcome that an agent gives its session, and why."""

    outcome: SessionOutcome
    reason: str = Field(default="", max_length=MAX_REASON_CHARS)


OpeningBody = Annotated[SessionOpening, json_of(SessionOpening)]
CallBody = Annotated[CallDraft, json_of(CallDraft)]
EndBody = Annotated[SessionEnd, json_of(SessionEnd)]


@session_routes.post(
    "/sessions", status_code=201, response_model_exclude_unset=True, openapi_extra=body_of(SessionOpening)
)
async def post_session(
    app: AppHere, tokens: TokensHere, caller: CallerHere, opening: OpeningBody, request: Request, response: Response
) -> SessionDocument:
    """Open a session, or find it if it is open already."""
    name = _name_of(caller, opening.session)
    acting = await tokens.acting(
        caller, user=opening.user, agent=opening.agent, delegation=opening.delegation, session=name
    )
    gate = await app.gate(
        session=name,
        user=acting.user,
        agent=acting.agent,
        token=acting.token,
        tenant=caller.tenant_id,
        intent=opening.intent,
        pack=opening.pack,
        message=opening.message,
        context=opening.context,
        tools=opening.tools,
        trace=trace_of(app, caller, request.headers.items()),
    )
    response.headers["Location"] = f"/v1/sessions/{opening.session}"
    return _document(opening.session, gate)


@session_routes.get("/sessions/{session}", response_model_exclude_unset=True)
async def get_session(app: AppHere, caller: CallerHere, name: SessionName) -> SessionDocument:
    """Read a session: its run, and its tools."""
    return _document(name, await with_tools(await _own_calls(app, caller, name)))


@session_routes.post(
    "/sessions/{session}/calls",
    response_model=CallDocument,
    response_model_exclude_defaults=True,
    responses={202: {"model": CallDocument, "description": "The call waits. Make the same call again."}},
    openapi_extra=body_of(CallDraft),
)
async def post_call(
    app: AppHere,
    caller: CallerHere,
    name: SessionName,
    asked: CallBody,
    request: Request,
    response: Response,
    prefer: Annotated[str, Header(max_length=200)] = "",
) -> CallDocument:
    """Ask for a call. With `Prefer: wait=SECONDS` a call that waits is answered as soon as it waits no longer. A server
    that stops, or that holds many already, holds no call.
    """
    gate = await _own_calls(app, caller, name)
    answer = await gate.call(asked.tool, asked.args, call_id=asked.call_id)
    remaining_us, place = _wait_s(prefer) * 1_000_000, ExitStack()
    if isinstance(answer, Waiting) and remaining_us > 0:
        places: Places = request.app.state.held
        try:
            place.enter_context(places.place(caller.tenant_id, client_address(request.client)))
        except Overloaded:
            # The call is not held here. Its caller asks again after `Retry-After`.
            remaining_us = 0
    with place:
        while isinstance(answer, Waiting) and remaining_us > 0 and not request.app.state.draining.is_set():
            await app.deployment.ports.pause(POLL_US)
            remaining_us -= POLL_US
            answer = await gate.call(asked.tool, asked.args, call_id=asked.call_id)
    if isinstance(answer, Waiting):
        response.status_code = 202
        response.headers["Retry-After"] = "1"
    return _call_document(answer)


@session_routes.post("/sessions/{session}/finish", response_model_exclude_unset=True, openapi_extra=body_of(SessionEnd))
async def post_finish(app: AppHere, caller: CallerHere, name: SessionName, end: EndBody) -> RequestOutcome:
    """End a session with the agent's outcome. The journal decides whether that is what it came to."""
    gate = await _own_calls(app, caller, name)
    return RequestOutcome.of_view(await gate.finish(end.outcome, end.reason))


def _name_of(caller: Caller, name: str) -> str:
    """Return the name of the caller's session in the tenant. An id that does not fit (a SPIFFE id) is hashed."""
    subject = caller.subject
    if caller.kind == "workload" or not re.fullmatch(_NAME_FORM, subject):
        subject = f"{caller.kind}-{digest(subject.encode())[7:39]}"
    return f"{subject}:{name}"


async def _own_calls(app: App, caller: Caller, name: str) -> CallGate:
    """Return the gate of a session of the caller. Raises `HttpProblem` (404) for every other name."""
    if not re.fullmatch(_NAME_FORM, name):
        raise not_found()
    try:
        gate, request = await find_session(app.deployment, caller.tenant_id, _name_of(caller, name))
    except NotFound:
        raise not_found() from None
    if not caller.is_behind(request.user.user_id, request.agent.agent_id):
        raise not_found()
    return gate


def _wait_s(prefer: str) -> int:
    match = _WAIT.search(prefer)
    return min(int(match[1]), MAX_HELD_S) if match else 0


def _document(name: str, gate: Gate) -> SessionDocument:
    described = {tool_id: ToolDocument.of_tool(tool) for tool_id, tool in gate.described_tools().items()}
    return SessionDocument(session=name, run_id=gate.run_id, tools=list(gate.tools), described=described)


def _call_document(answer: CallAnswer) -> CallDocument:
    fields: dict[str, Any] = {"call_id": answer.call_id}
    if isinstance(answer, Waiting):
        fields |= {
            "status": "waiting",
            "waits_for": answer.waits_for,
            "about": answer.about,
            "question": dict(answer.question),
        }
    elif isinstance(answer, Refused):
        fields |= {
            "status": "refused",
            "ended": answer.ended,
            "reasons": [_reason(asdict(reason)) for reason in answer.reasons],
        }
    else:
        assert isinstance(answer, Done), "it is one of three"
        error = answer.error
        fields |= {
            "status": "done" if error is None else "failed",
            "output": None if answer.output is None else dict(answer.output),
            "error": None if error is None else error.to_json(),
            "withheld": answer.withheld,
            "artifacts": list(answer.artifacts),
            "replayed": answer.replayed,
        }
    return CallDocument(**fields)


def _reason(reason: dict[str, Any]) -> RefusedReason:
    return RefusedReason(**{**reason, "facts": list(reason["facts"]), "because": list(reason["because"])})
