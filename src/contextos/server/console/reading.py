"""Finds who reads a page of the console, by the cookie of their session, and answers an error with a page.

A link from elsewhere, such as that of a notice, opens a page: a browser says so (`Sec-Fetch-Mode: navigate`), and no
other page can read the answer or show it in a frame. Every other request of another site is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from contextos.contracts.encoding.codec import loads
from contextos.errors import NotFound, SignatureInvalid
from contextos.server.access import held_roles
from contextos.server.callers import opened_app
from contextos.server.console.rendering import render
from contextos.server.cookies import SESSION_COOKIE, Logins, cookie_of
from contextos.server.problems import HttpProblem, answer_to, not_found
from contextos.server.rates import RequestRates
from contextos.trust.identity.callers import Caller
from contextos.workspace import App
from contextos.workspace.logins.sessions import csrf_token_of

CONSOLE: Final = "/console"
LOGIN: Final = f"{CONSOLE}/login"


class LogInFirst(Exception):
    """Nobody is logged in. The route answers with the way to the login, which leads back."""


@dataclass(frozen=True, slots=True)
class ConsoleReader:
    """Who reads a page: the caller of the session, with the roles that the directory gives to them now."""

    app: App
    caller: Caller
    roles: frozenset[str]
    csrf_token: str

    @property
    def tenant_id(self) -> str:
        return self.caller.tenant_id


async def reader_of(request: Request) -> ConsoleReader:
    """Return who reads a page, and count the request.

    Raises:
        LogInFirst: nobody is logged in.
        HttpProblem: another site sent the request, or the host is a name that leads here by chance (403).
        Overloaded: the caller or their tenant sent too many requests (429).
        Unavailable: the store or the issuer does not answer.
    """
    logins = logins_of(request)
    if not logins.origin(request.headers.get("host", "")):
        raise HttpProblem(403, "cross_site", "open the console at `localhost`, `127.0.0.1` or `[::1]`")
    cookie = cookie_of(request, logins, SESSION_COOKIE)
    if cookie is None:
        raise LogInFirst
    site, mode = (request.headers.get(f"sec-fetch-{name}", "") for name in ("site", "mode"))
    if site not in ("", "same-origin", "none") and mode != "navigate":
        raise HttpProblem(403, "cross_site", "with a cookie a request counts only from a page of this service")
    try:
        caller = await logins.caller(cookie)
    except (SignatureInvalid, NotFound):
        raise LogInFirst from None
    rates: RequestRates = request.app.state.rates
    rates.count(caller)
    app = await opened_app(request)
    return ConsoleReader(app, caller, await held_roles(app, caller), csrf_token_of(cookie))


ConsoleReaderHere = Annotated[ConsoleReader, Depends(reader_of)]


def logins_of(request: Request) -> Logins:
    """Return the logins of this server. Raises `HttpProblem` (404) where nobody can log in with a browser."""
    logins: Logins | None = request.app.state.browser_logins
    if logins is None:
        raise not_found()
    return logins


def render_for(reader: ConsoleReader, template: str, **values: Any) -> Response:
    """Return a page for somebody who is logged in."""
    return render(template, reader=reader, **values)


async def read_form(request: Request, max_bytes: int) -> dict[str, str]:
    """Return the fields of a form. Raises `HttpProblem` (413, 415) if it is not a form, or is too large."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HttpProblem(415, "unsupported_media_type", "send the form of the page")
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > max_bytes:
            raise HttpProblem(413, "too_large", "the form is too large")
    return dict(parse_qsl(raw.decode("utf-8", "replace")))


def require_csrf(reader: ConsoleReader, form: Mapping[str, str]) -> None:
    """Raise `HttpProblem` (403) for a form that was not sent from a page of this session."""
    if not hmac.compare_digest(form.get("csrf", "").encode(), reader.csrf_token.encode()):
        raise HttpProblem(403, "csrf_token", "open the page again, and send it there")


class PageRoute(APIRoute):
    """A route whose errors are pages. A redirect stays what it is."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, with its errors shown as pages."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            # A form without scripts sends its empty fields too, and a search is a link without them.
            fields = request.query_params.multi_items()
            filled = [(name, value) for name, value in fields if value]
            if request.method == "GET" and len(filled) != len(fields):
                return RedirectResponse(f"{request.url.path}?{urlencode(filled)}" if filled else request.url.path, 303)
            try:
                return await handler(request)
            except LogInFirst:
                if "hx-request" in request.headers:
                    # The page itself is read again. A redirect would begin a login for each look at a list.
                    return Response(status_code=401, headers={"HX-Refresh": "true"})
                query = f"?{request.url.query}" if request.url.query else ""
                to = request.url.path + query if request.method == "GET" else CONSOLE
                return RedirectResponse(f"{LOGIN}?to={quote(to, safe='')}", 303)
            except Exception as error:
                if (answer := await answer_to(request, error)) is None:
                    raise
                kept = {name: answer.headers[name] for name in ("Retry-After", "Allow") if name in answer.headers}
                return render(
                    "problem.html", status=answer.status_code, headers=kept, problem=loads(bytes(answer.body))
                )

        return handle
