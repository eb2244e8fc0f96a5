"""Works on packs before they are signed: draft, expand and lint one, and compile a request.

Nothing is stored and no tool is called. The text of a pack is data: it names no file, no module and no address.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from pydantic import Field, Strict

from contextos.action.foreign_code import describe_adapter
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.pack import Semver
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import ListOnly, Model, Name, NonEmpty, OpenObject
from contextos.deployment.acts.unmatched_rules import policies_in_force
from contextos.deployment.deployment import Deployment
from contextos.deployment.preview import preview
from contextos.packs.declaration import PackName
from contextos.packs.deployed import Deployed
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import MAX_BODY_BYTES, body_of, json_of, read_object
from contextos.server.callers import AppHere, CallerHere, TokensHere
from contextos.server.control.children import ChildrenHere
from contextos.server.routes.runs import named_request
from contextos.server.shared.forms import RequestKey
from contextos.server.tracing import trace_of
from contextos.service.operations.packs import PACK_READERS
from contextos.service.views import ProblemPart
from contextos.trust.identity.callers import Caller
from contextos.workspace import App

draft_routes: Final = APIRouter(tags=["packs"])

MAX_BESIDE: Final = 16
PackText = Annotated[str, Field(max_length=MAX_BODY_BYTES)]


class PackDraft(Model):
    """A pack to begin: its name, the roles that may use it, and the role that is asked about each write."""

    name: PackName
    version: str = Field(default="0.1.0", pattern=Semver)
    who: NonEmpty[Name]
    approver: Name = "approver"
    mode: Literal["observe", "enforce"] = "enforce"


class PackDeclarationText(Model):
    """The short form of a pack in YAML or JSON, or a whole pack in JSON."""

    declaration: PackText


class PackExpansion(Model):
    """The whole pack, and by JSON Pointer the origin of each field of a short form: `written`, `default` or `derived`.

    Its author signs the bytes that `signing_input` has in Base64 (the pre-authentication encoding of DSSE), and makes
    the envelope of `payload_type`, `payload` and `signatures` (`keyid` and `sig`).
    """

    pack: OpenObject
    origins: dict[str, str]
    payload_type: str
    payload: str
    signing_input: str


class LintRequest(Model):
    """A pack, short or whole, a catalog or a policy, as text, and the artifacts that it is used with. With `here` it is
    also checked against the tools, the roles and the egress of this deployment.
    """

    document: PackText
    beside: Annotated[tuple[PackText, ...], Strict(False), Field(max_length=MAX_BESIDE), ListOnly()] = ()
    here: bool = True


class LintReport(Model):
    """The problems of a document; none if `problems` is empty. `more` counts the problems that are left out."""

    problems: list[ProblemPart]
    more: int


class CompiledDocument(Model):
    """The context that a request would get now, or null with the failures that prevent it."""

    compiled: CompiledContext | None
    failures: list[Failure]


PackDraftBody = Annotated[PackDraft, json_of(PackDraft)]
DeclarationBody = Annotated[PackDeclarationText, json_of(PackDeclarationText)]
LintBody = Annotated[LintRequest, json_of(LintRequest)]


@draft_routes.post("/packs/draft", openapi_extra=body_of(PackDraft))
async def post_draft(
    app: AppHere, caller: CallerHere, roles: RolesHere, children: ChildrenHere, sent: PackDraftBody
) -> PackDeclarationText:
    """Draft the short form of a pack over all tools of the deployment. Every write is asked of the approver."""
    require_role(roles, *PACK_READERS)
    fields = {"name": sent.name, "version": sent.version, "who": sent.who, "approver": sent.approver}
    fields |= {"mode": "observe"} if sent.mode == "observe" else {}
    answer = await children.do("draft", caller.tenant_id, fields=fields, definitions=tool_definitions(app, caller))
    return PackDeclarationText(**answer)


@draft_routes.post("/packs/expand", openapi_extra=body_of(PackDeclarationText))
async def post_expansion(
    app: AppHere, caller: CallerHere, roles: RolesHere, children: ChildrenHere, sent: DeclarationBody
) -> PackExpansion:
    """Expand the short form of a pack for the tools of the deployment. A whole pack stays as it is."""
    require_role(roles, *PACK_READERS)
    answer = await children.do(
        "expand", caller.tenant_id, declaration=sent.declaration, definitions=tool_definitions(app, caller)
    )
    return PackExpansion(**answer)


@draft_routes.post("/packs/lint", openapi_extra=body_of(LintRequest))
async def post_lint(
    app: AppHere, caller: CallerHere, roles: RolesHere, children: ChildrenHere, sent: LintBody
) -> LintReport:
    """Check a pack, a catalog or a policy before it is signed."""
    require_role(roles, *PACK_READERS)
    facts = await deployment_facts(app.deployment, caller.tenant_id) if sent.here else None
    answer = await children.do(
        "lint",
        caller.tenant_id,
        document=sent.document,
        beside=sent.beside,
        definitions=tool_definitions(app, caller),
        here=facts,
    )
    return LintReport(problems=[ProblemPart(**problem) for problem in answer["problems"]], more=answer["more"])


async def deployment_facts(deployment: Deployment, tenant_id: str) -> dict[str, Any]:
    """Return the facts of a deployment that lint needs beside its tools, in the form that the child reads."""
    catalog = deployment.catalog(tenant_id)
    policies, models = await policies_in_force(catalog), await catalog.models()
    return {
        "roles": (await deployment.ports.directory.held_roles(tenant_id)).to_json(),
        "egress": deployment.config.egress.get(tenant_id, ()),
        "deployed": Deployed.by(deployment).to_json(),
        "policies": [policy.to_json() for policy in policies.values()],
        "models": [model.to_json() for model in models],
    }


@draft_routes.post("/packs/compile", response_model_exclude_unset=True, openapi_extra=body_of(InvokeRequest))
async def post_compilation(
    app: AppHere,
    tokens: TokensHere,
    caller: CallerHere,
    children: ChildrenHere,
    request: Request,
    idempotency_key: RequestKey = None,
) -> CompiledDocument:
    """Compile the context that a request would get now. No run is made, nothing is stored and nothing is called."""
    fields = await tokens.request(caller, named_request(await read_object(request), idempotency_key))
    fields = {"trace": trace_of(app, caller, request.headers.items()).to_json(), **fields}
    async with children.place(caller.tenant_id):
        result = await preview(app.deployment, canonical(fields))
    return CompiledDocument(compiled=result.compiled, failures=list(result.failures))


def tool_definitions(app: App, caller: Caller) -> list[dict[str, Any]]:
    """Return the definitions of the adapters of the caller's tenant, as JSON."""
    adapters = app.deployment.ports.adapters(caller.tenant_id)
    return [describe_adapter(name, adapter).to_json() for name, adapter in adapters.items()]
