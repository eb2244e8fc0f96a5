"""Passkeys: a person who logged in with a browser registers one, and the keeper of the directory reads and adds it.

A registration changes no directory and approves nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from fastapi import APIRouter, Request

from contextos.contracts.envelopes.identity import ApproverPasskey
from contextos.contracts.model import Model, OpenObject
from contextos.server.access import RolesHere, reads_every_run
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere, SessionHere
from contextos.server.problems import HttpProblem
from contextos.server.shared.pages import Limit, LongCursor
from contextos.service.operations.operation import opened_cursor, sealed_cursor
from contextos.service.passkeys import PasskeyRegistration
from contextos.service.views import PasskeyName
from contextos.trust.identity.callers import Caller

passkey_routes: Final = APIRouter(tags=["identity"])


class NewPasskey(Model):
    """The credential that the browser made, as `credential.toJSON()`."""

    credential: OpenObject


class PasskeyCreationOptions(Model):
    """The options with which a page asks a browser for a passkey (`PublicKeyCredentialCreationOptionsJSON`)."""

    rp: OpenObject
    user: OpenObject
    challenge: str
    pubKeyCredParams: list[OpenObject]  # as WebAuthn names it
    timeout: int
    excludeCredentials: list[PasskeyName]
    authenticatorSelection: OpenObject
    attestation: Literal["none"]


class RegistrationDocument(Model):
    """A passkey that a person registered. The keeper of the directory adds `passkey` to the `passkeys` of the approver.
    The person reads `digest` to the keeper, so that both mean the same passkey. `login_digest` is the digest of the
    token with which the person had logged in.
    """

    approver_id: str
    passkey: ApproverPasskey
    digest: str
    login_digest: str
    registered_at_us: int
    published: bool

    @classmethod
    def of_registration(cls, registration: PasskeyRegistration) -> Self:
        names = ("approver_id", "passkey", "digest", "login_digest", "registered_at_us")
        return cls(**{name: getattr(registration, name) for name in names}, published=registration.is_published)


class RegistrationPage(Model):
    """A page of registrations of passkeys, person by person. `cursor` asks for the next page; null after the last."""

    items: list[RegistrationDocument]
    cursor: str | None


NewPasskeyBody = Annotated[NewPasskey, json_of(NewPasskey)]


@passkey_routes.get("/passkeys", response_model_exclude_unset=True)
async def get_passkeys(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: LongCursor = ""
) -> RegistrationPage:
    """List the passkeys that the caller registered; for an operator or an auditor, those of the whole tenant. A page
    can be empty and not the last.
    """
    person = None if reads_every_run(roles) else caller.subject
    list_name = (caller.tenant_id, "passkeys", person)
    page = await app.passkeys.list(caller.tenant_id, person, limit=limit, cursor=opened_cursor(list_name, cursor))
    items = [RegistrationDocument.of_registration(registration) for registration in page.items]
    return RegistrationPage(items=items, cursor=sealed_cursor(list_name, page.cursor))


@passkey_routes.post("/passkeys/options", response_model_exclude_unset=True)
async def post_passkey_options(
    app: AppHere, caller: CallerHere, session: SessionHere, request: Request
) -> PasskeyCreationOptions:
    """Begin the registration of a passkey. The challenge counts once, for five minutes."""
    origin = _origin(request, caller, session)
    options: dict[str, Any] = await app.passkeys.begin(caller.tenant_id, caller.subject, origin=origin)
    return PasskeyCreationOptions.model_validate(options)


@passkey_routes.post("/passkeys", status_code=201, response_model_exclude_unset=True, openapi_extra=body_of(NewPasskey))
async def post_passkey(
    app: AppHere, caller: CallerHere, session: SessionHere, request: Request, made: NewPasskeyBody
) -> RegistrationDocument:
    """Register the passkey that the browser made. It counts once the directory has it."""
    origin = _origin(request, caller, session)
    registration = await app.passkeys.finish(
        caller.tenant_id, caller.subject, made.credential, origin=origin, login_digest=caller.token_digest
    )
    return RegistrationDocument.of_registration(registration)


def _origin(request: Request, caller: Caller, session: str | None) -> str:
    """Return the origin of the page on which a person registers. Raises `HttpProblem` (403) without a session."""
    if session is None or caller.agent_ids is not None:
        raise HttpProblem(403, "no_session", "a person registers a passkey; log in with a browser")
    origin: str = request.app.state.browser_logins.origin(request.headers.get("host", ""))
    return origin
