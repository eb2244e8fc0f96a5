"""The login of the console: at the issuer, or in a development workspace by a token of `contextos serve`."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from contextos.errors import InvalidInput, NotFound, SignatureInvalid
from contextos.server.console.reading import (
    CONSOLE,
    LOGIN,
    ConsoleReaderHere,
    PageRoute,
    logins_of,
    read_form,
    require_csrf,
)
from contextos.server.console.rendering import render
from contextos.server.cookies import SESSION_COOKIE, cookie_of, set_cookie
from contextos.server.problems import HttpProblem
from contextos.trust.identity.development import MAX_DEVELOPMENT_TTL_S
from contextos.workspace.logins.browser_logins import LOCAL_PATH, MAX_TENANT_CHARS, BrowserLogins
from contextos.workspace.logins.sessions import MAX_COOKIE_CHARS

login_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_LOGIN_FORM_BYTES: Final = 2 * MAX_COOKIE_CHARS

To = Annotated[str, Query(max_length=1_024)]
Tenant = Annotated[str, Query(max_length=MAX_TENANT_CHARS)]


@login_routes.get("/login")
async def get_login_page(request: Request, to: To = CONSOLE, tenant: Tenant = "", choose: bool = False) -> Response:
    """Send a browser to the issuer, or ask for a token of development. `choose` asks for the tenant first: the person
    belongs to several.
    """
    to = to if LOCAL_PATH.fullmatch(to) else CONSOLE
    if not isinstance(logins_of(request), BrowserLogins):
        return render("login.html", to=to, refused=False, asks="token")
    if choose and not tenant:
        return render("login.html", to=to, refused=False, asks="tenant")
    named = f"&tenant={quote(tenant, safe='')}" if tenant else ""
    return RedirectResponse(f"/login?to={quote(to, safe='')}{named}", 303)


@login_routes.post("/login")
async def post_login_form(request: Request) -> Response:
    """Begin a session of development. The form is that of `get_login_page`, sent from a page of this service."""
    logins = logins_of(request)
    origin = logins.origin(request.headers.get("host", ""))
    if isinstance(logins, BrowserLogins) or not origin or request.headers.get("origin", "") != origin:
        raise HttpProblem(403, "cross_site", "a login counts only from the page of this service")
    form = await read_form(request, MAX_LOGIN_FORM_BYTES)
    token, to = form.get("token", "").strip(), form.get("to", "")
    to = to if LOCAL_PATH.fullmatch(to) else CONSOLE
    try:
        if len(token) > MAX_COOKIE_CHARS:
            raise SignatureInvalid("it is not a token of development")
        session = await logins.begin(token, replaces=cookie_of(request, logins, SESSION_COOKIE) or "")
    except (SignatureInvalid, NotFound, InvalidInput):
        return render("login.html", status=403, to=to, refused=True, asks="token")
    answer = RedirectResponse(to, 303)
    set_cookie(answer, logins, SESSION_COOKIE, session, MAX_DEVELOPMENT_TTL_S)
    return answer


@login_routes.post("/logout")
async def post_logout_form(request: Request, reader: ConsoleReaderHere) -> Response:
    """End the session."""
    logins = logins_of(request)
    require_csrf(reader, await read_form(request, MAX_LOGIN_FORM_BYTES))
    await logins.end(cookie_of(request, logins, SESSION_COOKIE) or "")
    answer = RedirectResponse(LOGIN, 303)
    set_cookie(answer, logins, SESSION_COOKIE, "", 0)
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer
