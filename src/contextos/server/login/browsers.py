"""The pages of a login with a browser: `/login` sends it to the issuer, `/callback` takes it back, `/logout` ends it.

They are not part of `/v1`: a program sends a bearer token and has no session. Where the settings have no
`browser_logins` they do not exist.
"""

from __future__ import annotations

import logging
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from contextos.errors import InvalidInput, NotFound, SignatureInvalid
from contextos.server.callers import CallerHere, SessionHere
from contextos.server.console.reading import CONSOLE, LOGIN
from contextos.server.cookies import LOGIN_COOKIE, LOGIN_S, SESSION_COOKIE, Logins, cookie_of, set_cookie
from contextos.server.problems import HttpProblem, not_found
from contextos.workspace.logins.browser_logins import MAX_CODE_CHARS, BrowserLogins

browser_routes: Final = APIRouter(include_in_schema=False)

_LOG: Final = logging.getLogger(__name__)

Parameter = Annotated[str, Query(max_length=MAX_CODE_CHARS)]


@browser_routes.get("/login")
async def get_login(request: Request, to: Parameter = "/", tenant: Parameter = "") -> Response:
    """Send a browser to the issuer. It comes back to `to`, a path of this service."""
    logins = _logins(request)
    attempt = logins.begin(to, tenant)
    answer = RedirectResponse(attempt.url, 303)
    set_cookie(answer, logins, LOGIN_COOKIE, attempt.attempt, LOGIN_S)
    return answer


@browser_routes.get("/callback")
async def get_callback(
    request: Request,
    state: Parameter = "",
    code: Parameter = "",
    iss: Parameter | None = None,
    error: Parameter | None = None,
) -> Response:
    """Take a browser back from the issuer, and begin a session. A session that the browser had before ends."""
    logins = _logins(request)
    attempt = cookie_of(request, logins, LOGIN_COOKIE) or ""
    try:
        if error is not None:
            raise SignatureInvalid("the issuer says that there is no login")
        previous = cookie_of(request, logins, SESSION_COOKIE) or ""
        session = await logins.finish(attempt, state=state, code=code, issuer=iss, replaces=previous)
    except (SignatureInvalid, NotFound, InvalidInput) as refusal:
        if isinstance(refusal, InvalidInput) and (to := logins.path_asked(attempt)).startswith(CONSOLE):
            # Who is of several tenants names one there, and comes back from the issuer at once.
            return RedirectResponse(f"{logins.setting.origin}{LOGIN}?choose=1&to={quote(to, safe='')}", 303)
        _LOG.warning("a login was refused: %s", refusal)
        detail = f"nobody was logged in; begin again at {logins.setting.origin}/login"
        raise HttpProblem(403, "login_refused", detail) from None
    answer = RedirectResponse(f"{logins.setting.origin}{session.to}", 303)
    set_cookie(answer, logins, LOGIN_COOKIE, "", 0)
    set_cookie(answer, logins, SESSION_COOKIE, session.cookie, logins.setting.max_session_s)
    return answer


@browser_routes.post("/logout", status_code=204)
async def post_logout(request: Request, _caller: CallerHere, session: SessionHere) -> Response:
    """End the session of the cookie. At the issuer the person stays logged in."""
    logins = _logins(request)
    if session is None:
        raise HttpProblem(400, "no_session", "a bearer token has no session; forget the token")
    await logins.end(session)
    answer = Response(status_code=204)
    set_cookie(answer, logins, SESSION_COOKIE, "", 0)
    return answer


def _logins(request: Request) -> BrowserLogins:
    logins: Logins | None = request.app.state.browser_logins
    if not isinstance(logins, BrowserLogins):
        raise not_found()
    return logins
