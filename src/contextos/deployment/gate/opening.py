"""Open a session: find the pack, the intent and the agent that are meant, and send the request of its run.

Nothing is guessed: an intent or a pack that is left out is filled in only if the tenant has exactly one.
Source: docs/design/sessions.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.identity import AgentIdentity, UserClaims, UserDelegation
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.run import InvokeRequest, RuntimeHints
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.facts import name_remedy, tool_remedy
from contextos.contracts.ids import SESSION
from contextos.contracts.ports.gates import MAX_CALL_ID_CHARS, checked_text
from contextos.contracts.trace import TraceContext
from contextos.deployment.acts.unmatched_rules import pinned_packs, session_intents
from contextos.deployment.deployment import Deployment
from contextos.deployment.gate.gate import NO_TOOLS, REMEDIES, CallGate, Gate, not_opened, opened_tools, require_agent
from contextos.deployment.preview import preview
from contextos.deployment.queries.run_names import claimed_run, was_refused
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ConflictingRequest, InvalidInput, NotFound, Problem
from contextos.runtime.inputs.request_conflicts import conflict

_ARGUMENTS: Final = {
    "/user/user_id": "/user",
    "/agent/agent_id": "/agent",
    "/context_pack_refs/0": "/pack",
    "/input": "",
    "/runtime/tools": "/tools",
    "/runtime": "/hints",
}
"""The members of a session's request that the caller passes as an argument with another name."""


async def open_session(
    deployment: Deployment,
    tenant_id: str,
    session: str,
    *,
    user: str | UserClaims,
    agent: str | AgentIdentity,
    token: str | None = None,
    intent: str | None = None,
    pack: str | None = None,
    message: str = "",
    context: Mapping[str, Any] | None = None,
    tools: Sequence[str] | None = None,
    hints: RuntimeHints | None = None,
    trace: TraceContext | None = None,
) -> Gate:
    """Open the session of this name, or find it if it is open already, even if another process opened it.

    `token` is the reference of the token with which the user delegates to the agent: without one the agent does not act
    for the user. `intent` and `pack` can be left out where the tenant has pinned only one. `context` holds the facts
    that the caller states, as in a request. `tools` limits the agent to these tools; None: all tools that policy shows
    it. `hints` lower limits. `trace` is the place of a new session in a trace; None begins one.

    Raises:
        ConflictingRequest: the name belongs to a session of another user, agent, token, intent or context.
        InvalidInput: an argument is malformed, the pack is not pinned, the directory does not know the user and the
            agent, the intent is not one whose calls an agent chooses, a tool is not one of the session's, or a person
            has to choose a context slot before the session is open.
        Unavailable: the store does not answer; open it again.
    """
    request = await _session_request(
        deployment,
        tenant_id,
        session,
        user=user,
        agent=agent,
        token=token,
        intent=intent,
        pack=pack,
        message=message,
        context=context,
        runtime=(hints or RuntimeHints()).model_copy(update={"tools": tuple(tools)} if tools is not None else {}),
        trace=trace,
    )
    try:
        view = await deployment.invoke(request)
    except ConflictingRequest:
        detail, remedy = f"the session `{session}` was opened", "open it with that, or open one of another name"
        raise conflict("/session", detail, await deployment.differing(request), remedy, named=_argument_path) from None
    entries = await deployment.ports.stores.tenant(tenant_id).read(view.run_id)
    opened_ids = opened_tools(entries)
    if opened_ids is None:
        raise _no_session_error(view, request["input"]["intent"])
    if problems := _unknown_tools(tools or (), opened_ids):
        raise InvalidInput(*problems)
    return Gate(deployment, tenant_id, view.run_id, session, opened_ids)


async def find_session(deployment: Deployment, tenant_id: str, session: str) -> tuple[CallGate, InvokeRequest]:
    """Return the calls of a session that was opened before, in any process, and the request that opened it. Only that
    request is read, however long the session is.

    Raises:
        NotFound: there is no session of this name.
        Unavailable: the store does not answer.
    """
    recorded = await _recorded_run(deployment, tenant_id, session)
    if recorded is None:
        raise NotFound(f"there is no session `{session[:80]}` in this tenant")
    run_id, request = recorded
    return CallGate(deployment, tenant_id, run_id, session), request


async def with_tools(calls: CallGate) -> Gate:
    """Return the gate of a session that was found, with the tools with which it was opened.

    Raises:
        InvalidInput: the run of this name is not a session of an agent, or ended before it had tools.
        Unavailable: the store does not answer.
    """
    entries = await calls.deployment.ports.stores.tenant(calls.tenant_id).read(calls.run_id)
    require_agent(entries)
    tools = opened_tools(entries)
    if tools is None:
        raise not_opened()
    return Gate(calls.deployment, calls.tenant_id, calls.run_id, calls.session, tools)


async def session_tools(
    deployment: Deployment,
    tenant_id: str,
    session: str,
    *,
    user: str,
    agent: str,
    token: str | None = None,
    intent: str | None = None,
    pack: str | None = None,
    message: str = "",
    context: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Return the tools of the session of this name, or, if it is not open, the tools that it would open with now.

    Opens no session and stores nothing. The arguments are those of `open_session`.

    Raises:
        ConflictingRequest: the name belongs to a session of another user, agent or token.
        InvalidInput: as `open_session`; or the session ended before it had tools.
        Overloaded: too many callers.
        Unavailable: the store does not answer.
    """
    recorded = await _recorded_run(deployment, tenant_id, session)
    if recorded is not None:
        run_id, opening = recorded
        _refuse_others(session, opening, (user, agent))
        gate = await with_tools(CallGate(deployment, tenant_id, run_id, session))
        _refuse_other_token(session, opening, token)
        return gate.tools
    with deployment.ports.admission.caller(tenant_id):
        request = await _session_request(
            deployment,
            tenant_id,
            session,
            user=user,
            agent=agent,
            token=token,
            intent=intent,
            pack=pack,
            message=message,
            context=context,
            runtime=RuntimeHints(),
        )
        rehearsal = await preview(deployment, canonical(request))
    if rehearsal.failures:
        raise InvalidInput(*_failure_problems(rehearsal.failures))
    if rehearsal.tools is None:
        raise _chosen_by_template_error(request["input"]["intent"])
    return rehearsal.tools


async def _refuse_model(deployment: Deployment, tenant_id: str, intent: str, pack: str) -> None:
    """Refuse an intent whose calls a model chooses, before its run begins: an agent could only wait in it."""
    stored = await deployment.catalog(tenant_id).repository.published(pack)
    artifact = stored.artifact if stored is not None else None
    templates = artifact.decision_layer.task_templates if isinstance(artifact, ContextPack) else ()
    if any(template.intent == intent and template.chosen_by == "model" for template in templates):
        detail = f"the calls of `{intent[:64]}` are chosen by a model that the runtime asks"
        raise InvalidInput(Problem("/intent", "no_session", detail, "send a request for it (`contextos invoke`)"))


def _refuse_others(session: str, request: InvokeRequest, caller: tuple[str, str]) -> None:
    """Refuse a session of another user or agent."""
    if (request.user.user_id, request.agent.agent_id) != caller:
        differs = "user" if request.user.user_id != caller[0] else "agent"
        detail = f"the session `{session}` is one of another user or agent: the {differs} was another one"
        raise ConflictingRequest(Problem(f"/{differs}", "conflicting_request", detail, "open one of another name"))


def _refuse_other_token(session: str, request: InvokeRequest, token: str | None) -> None:
    """Refuse a session that was opened under another token of its user, or under none."""
    if token != (request.user.delegation.token_ref if request.user.delegation else None):
        detail = f"the session `{session}` was opened with another `token`"
        remedy = "open it with that, or open one of another name"
        raise ConflictingRequest(Problem("/token", "conflicting_request", detail, remedy))


async def _session_request(
    deployment: Deployment,
    tenant_id: str,
    session: str,
    *,
    user: str | UserClaims,
    agent: str | AgentIdentity,
    token: str | None,
    intent: str | None,
    pack: str | None,
    message: str,
    context: Mapping[str, Any] | None,
    runtime: RuntimeHints,
    trace: TraceContext | None = None,
) -> dict[str, Any]:
    """Return the request of the run that a session is. Raises `InvalidInput`."""
    opening = await recorded_request(deployment, tenant_id, session)
    if opening is not None:
        intent, pack = intent or opening.input.intent, pack or opening.context_pack_refs[0]
    else:
        if not SESSION.fits(session):
            detail = f"`{session[:80]}` is not a name of a session"
            remedy = f"write up to {MAX_CALL_ID_CHARS} letters, digits, `.`, `_`, `:` and `-`"
            raise InvalidInput(Problem("/session", "bad_session_name", detail, remedy))
        intent, pack = await _pick_pinned(deployment, tenant_id, intent, pack)
    await _refuse_model(deployment, tenant_id, intent, pack)
    identity = await _agent_identity(deployment, tenant_id, user, agent)
    claims = await _user_claims(deployment, tenant_id, user, token)
    if opening is not None and claims.user_id == opening.user.user_id:
        _refuse_other_token(session, opening, claims.delegation.token_ref if claims.delegation else None)
    entropy = deployment.ports.entropy
    trace = trace or TraceContext(trace_id=entropy.take(16).hex(), span_id=entropy.take(8).hex())
    return {
        "request_id": session,
        "session_id": session,
        "tenant_id": tenant_id,
        "user": claims.to_json(),
        "agent": identity.to_json(),
        "context_pack_refs": [pack],
        "input": {"intent": intent, "message": message, "context": dict(context or {})},
        "mode": "stream",
        "runtime": runtime.to_json(),
        "trace": trace.to_json(),
    }


async def recorded_request(deployment: Deployment, tenant_id: str, session: str) -> InvokeRequest | None:
    """Return the request with which this session was opened before, or None."""
    recorded = await _recorded_run(deployment, tenant_id, session)
    return recorded[1] if recorded else None


async def _recorded_run(deployment: Deployment, tenant_id: str, session: str) -> tuple[str, InvokeRequest] | None:
    """Return the run of this session and the request with which it was opened before, or None."""
    store = deployment.ports.stores.tenant(tenant_id)
    claim, _ = await claimed_run(store, checked_text(session, "/session", MAX_CALL_ID_CHARS))
    if claim and await was_refused(store, claim.run_id):
        return None
    entries = await store.read(claim.run_id, limit=1) if claim else ()
    body = read_body(entries[0]) if entries else None
    return (claim.run_id, parse(InvokeRequest, body["request"])) if claim and body else None


async def _pick_pinned(deployment: Deployment, tenant_id: str, intent: str | None, pack: str | None) -> tuple[str, str]:
    """Return the intent and the pack of a session: the named ones, or else the only ones that the tenant has pinned."""
    active = await deployment.catalog(tenant_id).active()
    pins = [
        pin
        for pin in active.packs
        if pin.environment == deployment.config.environment and not active.withdrawn.intersection(pin.refs)
    ]
    intents = sorted({name for pin in pins for name in pin.intents})
    if not intent and len(intents) > 1:
        # A request for an intent with a fixed plan is never a session.
        agent_intents = session_intents(await pinned_packs(deployment, tenant_id, deployment.config.environment))
        intents = sorted(agent_intents.intersection(intents)) or intents
    intent = intent or only("intent", "the tenant has pinned", intents)
    if pack is None and intent not in intents and intents:
        detail = f"the tenant has no pin for the intent `{intent[:80]}`"
        raise InvalidInput(Problem("/intent", "unknown_intent", detail, name_remedy(intent, intents)))
    # A session names one pack and nothing else, so a pin that has other refs beside the pack is not for sessions.
    refs = sorted({pin.refs[0] for pin in pins if intent in pin.intents and len(pin.refs) == 1})
    if pack is not None and refs and pack not in refs:
        detail = f"the tenant has no pin for the pack `{pack[:80]}` and the intent `{intent[:80]}`"
        raise InvalidInput(Problem("/pack", "unpinned_ref", detail, name_remedy(pack, refs)))
    return intent, pack or only("pack", "the tenant has pinned", refs)


def only(what: str, where: str, names: Sequence[str]) -> str:
    """Return the only one of `names`. Raises `InvalidInput`, which lists the names, if there is no name or more than
    one.
    """
    if len(names) == 1:
        return names[0]
    choices = ", ".join(f"`{name}`" for name in names[:8]) or "none"
    raise InvalidInput(Problem(f"/{what}", "not_the_only_one", f"{where} {choices}", f"name one as `{what}`"))


async def _user_claims(deployment: Deployment, tenant_id: str, user: str | UserClaims, token: str | None) -> UserClaims:
    """Return the user as the request states them, with everything that they delegate by the token."""
    claims = user if isinstance(user, UserClaims) else UserClaims(user_id=user)
    if token is None:
        return claims
    if claims.delegation is not None:
        detail = "the user's claims have a delegation already"
        raise InvalidInput(Problem("/token", "two_delegations", detail, "leave out `token`"))
    grant = await deployment.ports.directory.delegation(tenant_id, checked_text(token, "/token", MAX_CALL_ID_CHARS))
    if grant is None:
        detail = "the directory knows no delegation by this token"
        raise InvalidInput(Problem("/token", "unknown_token", detail, "ask the user for a new one"))
    delegation = UserDelegation(auth_type="oauth2", scopes=grant.scopes, subject=claims.user_id, token_ref=token)
    return claims.model_copy(update={"delegation": delegation})


async def _agent_identity(
    deployment: Deployment, tenant_id: str, user: str | UserClaims, agent: str | AgentIdentity
) -> AgentIdentity:
    """Return the agent as the request states it; an agent that is named only by its id is taken from the directory."""
    if isinstance(agent, AgentIdentity):
        return agent
    user_id = user.user_id if isinstance(user, UserClaims) else user
    principals = await deployment.ports.directory.resolve(tenant_id, user_id, agent)
    if principals is None:
        detail = (
            f"the directory of `{tenant_id[:64]}` does not know the user `{user_id[:64]}` and the agent `{agent[:64]}`"
        )
        raise InvalidInput(Problem("/agent", "unknown_identity", detail, "add both to the directory, or correct them"))
    return AgentIdentity(agent_id=agent, workload_identity=principals.agent.workload_identity)


def _argument_path(place: str) -> str:
    """Return the JSON Pointer of the argument of `open_session` that sets the member of the request at `place`."""
    for member, argument in _ARGUMENTS.items():
        if place == member or place.startswith(f"{member}/"):
            return argument + place.removeprefix(member)
    return place


def _no_session_error(view: RunView, intent: str) -> InvalidInput:
    """Return why a run has no session: it ended early, a person must choose first, or a template chooses its calls."""
    failures = ((view.record or {}).get("rationale") or {}).get("failures") or []
    if view.ended and failures:
        return InvalidInput(*_failure_problems([Failure.model_validate(failure) for failure in failures]))
    if (view.waiting or {}).get("for") == "slot":
        assert view.waiting is not None, "it has what the run waits for"
        detail = f"`{view.waiting['principal_id']}` has to choose the slot `{view.waiting['slot_id']}` first"
        remedy = f"answer it for the run `{view.run_id}`, then open the session again"
        return InvalidInput(Problem("/session", "slot_waits", detail, remedy))
    return _chosen_by_template_error(intent)


def _chosen_by_template_error(intent: str) -> InvalidInput:
    remedy = "use an intent whose template has `chosen_by: agent`, or send a request for this one"
    return InvalidInput(
        Problem("/intent", "no_session", f"the calls of `{intent[:64]}` are chosen by a template", remedy)
    )


def _failure_problems(failures: Sequence[Failure]) -> list[Problem]:
    return [
        Problem(_argument_path(failure.pointer or ""), failure.code, failure.detail, REMEDIES[failure.code])
        for failure in failures
    ]


def _unknown_tools(names: Sequence[str], tools: Sequence[str]) -> list[Problem]:
    """Return a problem for each of `names` that is not a tool of the session."""
    unknown = [name for name in names if name not in tools]
    remedies = [tool_remedy(name, tools) if tools else NO_TOOLS for name in unknown]
    return [
        Problem("/tools", "unknown_tool", f"`{name[:128]}` is not a tool of this session", remedy)
        for name, remedy in zip(unknown, remedies, strict=True)
    ]
