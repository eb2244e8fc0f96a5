"""Pins: which packs the requests of a tenant may use, for which intents, and where. Each change is a signed act."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter

from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.codec import parse
from contextos.contracts.model import Count, Model, Name, NonEmpty
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.governance import withdraw_pin
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.control.packs import PACK_READERS, ActiveVersion, active_version
from contextos.server.shared.pages import Cursor, Limit, page_of
from contextos.server.shared.signing import Signed, act_document, signing_actor
from contextos.service.views import ActDocument
from contextos.trust.approvals.acts import POLICY_ADMIN_ROLE
from contextos.workspace import App

pin_routes: Final = APIRouter(tags=["packs"])


class PinPage(Model):
    """A page of the pins of a tenant. `version` is that of the active set, and `withdrawn` what nothing new uses."""

    version: int
    items: list[PackPin]
    withdrawn: list[str]
    cursor: str | None


class PinDraft(Model):
    """A pin: requests with exactly these refs, for these intents, in this environment (left out, that of the
    deployment, which serves no other). `expected` is the `version` of the active set that the actor saw.
    """

    refs: NonEmpty[Name]
    intents: NonEmpty[Name]
    environment: Name | None = None
    expected: Count


class SignedPin(PinDraft, Signed):
    """A pin, with the actor's proof."""


PinBody = Annotated[PinDraft, json_of(PinDraft)]
SignedPinBody = Annotated[SignedPin, json_of(SignedPin)]


@pin_routes.get("/pins")
async def get_pins(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: Cursor = ""
) -> PinPage:
    """List the pins. Without one no request is accepted."""
    require_role(roles, *PACK_READERS)
    active = await app.artifacts.active(caller.tenant_id)
    items, following = page_of(active.packs, (caller.tenant_id, "pins", active.version), limit, cursor)
    return PinPage(version=active.version, items=list(items), withdrawn=sorted(active.withdrawn), cursor=following)


@pin_routes.post("/pins/statement", openapi_extra=body_of(PinDraft))
async def post_pin_statement(app: AppHere, caller: CallerHere, roles: RolesHere, sent: PinBody) -> ActDocument:
    """Return what the caller signs to pin packs. Nothing is changed."""
    require_role(roles, POLICY_ADMIN_ROLE)
    return await act_document(app, caller, lambda by: _pin(app, caller.tenant_id, sent, by))


@pin_routes.post("/pins", status_code=201, openapi_extra=body_of(SignedPin))
async def post_pin(app: AppHere, caller: CallerHere, roles: RolesHere, sent: SignedPinBody) -> ActiveVersion:
    """Allow requests that name exactly these refs, for these intents."""
    require_role(roles, POLICY_ADMIN_ROLE)
    await _pin(app, caller.tenant_id, sent, signing_actor(app, caller, sent))
    return await active_version(app, caller.tenant_id, sent.expected + 1)


@pin_routes.post("/pins/withdraw/statement", openapi_extra=body_of(PinDraft))
async def post_unpin_statement(app: AppHere, caller: CallerHere, roles: RolesHere, sent: PinBody) -> ActDocument:
    """Return what the caller signs to end a pin. Nothing is changed."""
    require_role(roles, POLICY_ADMIN_ROLE)
    return await act_document(app, caller, lambda by: _unpin(app, caller.tenant_id, sent, by))


@pin_routes.post("/pins/withdraw", openapi_extra=body_of(SignedPin))
async def post_unpin(app: AppHere, caller: CallerHere, roles: RolesHere, sent: SignedPinBody) -> ActiveVersion:
    """End a pin. Approvals that wait under a pack without any pin become void."""
    require_role(roles, POLICY_ADMIN_ROLE)
    await _unpin(app, caller.tenant_id, sent, signing_actor(app, caller, sent))
    return await active_version(app, caller.tenant_id, sent.expected + 1)


async def _pin(app: App, tenant_id: str, sent: PinDraft, by: Actor) -> None:
    await app.configuration.pin(tenant_id, _pin_of(app, sent), expected=sent.expected, by=by)


async def _unpin(app: App, tenant_id: str, sent: PinDraft, by: Actor) -> None:
    await withdraw_pin(app.deployment, tenant_id, _pin_of(app, sent), expected=sent.expected, by=by)


def _pin_of(app: App, sent: PinDraft) -> PackPin:
    environment = sent.environment or app.deployment.config.environment
    told = {"refs": sorted(set(sent.refs)), "intents": sorted(set(sent.intents)), "environment": environment}
    return parse(PackPin, told)
