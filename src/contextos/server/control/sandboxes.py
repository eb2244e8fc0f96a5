"""Tries a pack in a sandbox: what a request compiles to and what becomes of it, without an effect and without a record.

The world of the run is what the caller states. From the deployment come the published artifacts that the request names,
the policies in force, the tools and the limits; and the user and the agent, to who may see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import Field, Strict

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import Principals
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.ids import PIN, Ceid
from contextos.contracts.model import ListOnly, Model, OpenObject, Seq
from contextos.control.artifacts import GovernedArtifact
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidEnvelope, InvalidInput, Problem
from contextos.server.access import RolesHere, reads_every_run, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.control.children import Children, ChildrenHere
from contextos.server.control.drafts import PackText, deployment_facts, tool_definitions
from contextos.service.operations.facts import FACT_READERS
from contextos.service.operations.packs import PACK_READERS
from contextos.service.views import ProblemPart
from contextos.trust.identity.callers import Caller
from contextos.trust.identity.principals import look_up
from contextos.workspace import App
from contextos.workspace.sandbox import PolicyAbove, Sandbox, SandboxRun, StatedFacts, StatedWorld

sandbox_routes: Final = APIRouter(tags=["packs"])

DAY_US: Final = 86_400_000_000
MAX_REFS: Final = 16
MAX_SUBJECTS: Final = 16
MAX_FACT_HOPS: Final = 3
"""How far facts are followed from an entity: an order, its customer, and what is known of them."""
MAX_FACTS_OF_HOP: Final = 500
"""The most facts that are read at each hop."""
ANY_REF: Final = "ctxpack.any@1.0.0"
FACT_FIELDS: Final = ("src", "predicate", "dst", "value", "evidence_ref", "observed_at", "integrity", "classification")
_TRACE: Final = {"trace_id": "0" * 31 + "1", "span_id": "0" * 15 + "1", "trace_flags": "00"}
LEFT_OUT: Final[dict[str, Any]] = {"request_id": "req_sandbox", "mode": "batch", "runtime": {}, "trace": _TRACE}
"""The members of a request that can be left out in a sandbox."""


class SandboxRequest(StatedWorld):
    """A request, the pack to try it with, and the world of its run.

    `document` is the pack, short or whole, as text; empty: the published pack that the request names. `request` is an
    invokeAgent request, of which `request_id`, `mode`, `runtime`, `trace` and `tenant_id` can be left out. Without
    `principals` the directory is asked. The facts of the entities `facts_of`, and of those to which they lead, are read
    from the graph of the tenant beside `facts`. `adapters` are definitions in place of the tools of the deployment.
    """

    document: PackText = ""
    request: OpenObject
    facts_of: Annotated[tuple[Ceid, ...], Strict(False), Field(max_length=MAX_SUBJECTS), ListOnly()] = ()
    adapters: Seq[AdapterDefinition] | None = None


class SandboxReport(Model):
    """The problems that lint finds in the pack, and what became of the request; `run` is null if there is no pack to
    run it with. `request` is the request as it ran, and `more` counts the problems that are left out.
    """

    problems: list[ProblemPart]
    more: int
    request: OpenObject | None = None
    run: SandboxRun | None = None


@sandbox_routes.post("/packs/sandbox", response_model_exclude_unset=True, openapi_extra=body_of(SandboxRequest))
async def post_sandbox(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    children: ChildrenHere,
    sent: Annotated[SandboxRequest, json_of(SandboxRequest)],
) -> SandboxReport:
    """Try a request with a pack in memory. Nothing is stored, no tool and no model is called."""
    return await tried(app, caller, roles, children, sent)


async def tried(
    app: App, caller: Caller, roles: frozenset[str], children: Children, sent: SandboxRequest
) -> SandboxReport:
    """Return what a pack does with a request.

    Raises:
        HttpProblem: the caller does not hold a role of `PACK_READERS` (403), or as `Children.do`.
        InvalidInput: the request, its refs or the world are malformed.
    """
    require_role(roles, *PACK_READERS)
    if sent.facts_of:
        require_role(roles, *FACT_READERS)
    request = {**LEFT_OUT, "tenant_id": caller.tenant_id, **sent.request}
    if request["tenant_id"] != caller.tenant_id:
        detail = "the request is of another tenant than your token"
        raise InvalidEnvelope(Problem("/request/tenant_id", "other_tenant", detail, "leave it out"))
    packs, beside = await _named(app, caller.tenant_id, request, is_draft=bool(sent.document))
    if not sent.document and len(packs) != 1:
        detail = f"the request names {len(packs)} published packs; it is tried with exactly one"
        raise InvalidEnvelope(Problem("/request/context_pack_refs", "unknown_ref", detail, "name one, or send a draft"))
    deployment = app.deployment
    known, config = await deployment_facts(deployment, caller.tenant_id), deployment.config
    active = await deployment.catalog(caller.tenant_id).active()
    policies = {f"{one['bundle']['bundle_id']}@{one['version']}": one for one in known["policies"]}
    known_facts = await _known_facts(deployment, caller.tenant_id, sent.facts_of)
    world = Sandbox(
        **{name: getattr(sent, name) for name in StatedWorld.model_fields if name not in ("principals", "facts")},
        facts=StatedFacts(nodes=sent.facts.nodes, edges=(*sent.facts.edges, *known_facts)),
        principals=sent.principals or await _principals(app, caller, roles, request),
        beside=(*(one.to_json() for one in beside), *known["models"]),
        policies=tuple(PolicyAbove(level=level, document=policies[ref]) for level, ref in active.policies),
        # The end of this day: hashes of one day are equal, and no fact is of later.
        at_us=(deployment.ports.clock.now_us() // DAY_US + 1) * DAY_US,
        limits=asdict(config.limits),
        environment=config.environment,
        redaction=config.redaction.get(caller.tenant_id, ()),
    )
    definitions = tool_definitions(app, caller) if sent.adapters is None else [one.to_json() for one in sent.adapters]
    answer = await children.do(
        "sandbox",
        caller.tenant_id,
        document=sent.document or canonical(packs[0].to_json()).decode(),
        lint=bool(sent.document),
        here=known if sent.adapters is None else None,
        request=request,
        world=world.to_json(),
        definitions=definitions,
    )
    return parse(SandboxReport, canonical(answer))


async def _named(
    app: App, tenant_id: str, request: dict[str, Any], *, is_draft: bool
) -> tuple[list[ContextPack], list[GovernedArtifact]]:
    """Return the published packs and the other artifacts that a request names. A draft takes the place of a pack, so
    its ref does not have to be published.
    """
    refs, catalog = request.get("context_pack_refs", ()), app.deployment.catalog(tenant_id)
    if not isinstance(refs, list | tuple) or len(refs) > MAX_REFS or not all(isinstance(ref, str) for ref in refs):
        detail = f"`context_pack_refs` is a list of at most {MAX_REFS} refs"
        raise InvalidEnvelope(Problem("/request/context_pack_refs", "unknown_ref", detail, "write `<id>@<x.y.z>`"))
    stored = {ref: await catalog.repository.published(ref) if PIN.fits(ref) else None for ref in dict.fromkeys(refs)}
    artifacts = [one.artifact for one in stored.values() if one is not None]
    packs = [one for one in artifacts if isinstance(one, ContextPack)]
    missing = [ref for ref, one in stored.items() if one is None]
    if missing and not (is_draft and not packs and len(missing) == 1):
        detail = f"`{missing[0][:200]}` is not published in this tenant"
        raise InvalidEnvelope(Problem("/request/context_pack_refs", "unknown_ref", detail, "list what is"))
    return packs, [one for one in artifacts if not isinstance(one, ContextPack | ModelProfile | RoutingRules)]


async def _known_facts(deployment: Deployment, tenant_id: str, subjects: Sequence[str]) -> list[dict[str, Any]]:
    """Return the facts of entities and of those to which they lead, as `facts load` takes them."""
    graph, seen, reached = deployment.graph(tenant_id), set[str](), [*dict.fromkeys(subjects)]
    at, found = await graph.head(), list[dict[str, Any]]()
    for _ in range(MAX_FACT_HOPS):
        if not reached:
            break
        seen.update(reached)
        edges = await graph.step(reached, None, at=at, limit=MAX_FACTS_OF_HOP)
        found += [{name: edge[name] for name in FACT_FIELDS if name in edge} for edge in edges]
        reached = [*dict.fromkeys(str(edge["dst"]) for edge in edges if edge["dst"] not in seen)]
    return found


async def _principals(app: App, caller: Caller, roles: frozenset[str], request: dict[str, Any]) -> Principals | None:
    """Return the user and the agent of a request as the directory knows them; None for who may not see them."""
    try:
        parsed = parse(InvokeRequest, canonical({**request, "context_pack_refs": [ANY_REF]}))
    except InvalidInput:
        # The run says what is wrong.
        return None
    if not (reads_every_run(roles) or caller.is_behind(parsed.user.user_id, parsed.agent.agent_id)):
        return None
    ports = app.deployment.ports
    return await look_up(ports.directory, parsed, ports.clock.now_us())
