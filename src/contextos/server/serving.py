"""Serves an MCP server over HTTP on this machine with a bearer token.

Every request except for metadata (`/.well-known/`) needs a token: every local program and web page can reach the
loopback address. The headers `Host` and `Origin` are checked too. Only a loopback address is served, because there is
no TLS here; to serve other machines, put a TLS proxy in front.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import json
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from contextos.contracts.encoding.codec import MAX_DEPTH, MAX_NODES, MAX_PROBLEMS, loads
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidSettings, MalformedJson, Problem, Unavailable
from contextos.files import why

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken
    from mcp.server.lowlevel import Server

    from contextos.server.edge import Asgi, Message

PATH: Final = "/mcp"
MAX_REQUEST_BYTES: Final = 4 << 20
MIN_TOKEN_CHARS: Final = 20
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
_VALUE_FAULTS: Final = frozenset({"integer_too_large", "lone_surrogate", "number_not_finite", "number_out_of_range"})


class Resource(Protocol):
    """An OAuth resource server: its URL, the URL of the issuer of its tokens, and the method that verifies a token."""

    url: str
    issuer: str

    async def verify_token(self, token: str) -> AccessToken | None: ...


_LOG: Final = logging.getLogger(__name__)


async def serve_http(server: Server[Any], bound: socket.socket, token: str) -> None:
    """Serve HTTP on a bound socket until SIGINT or SIGTERM, to bearers of `token`. Raises as `check_token`."""
    hosts = _hosts(bound)
    await _serve(require_token(_http_app(server, hosts), token), bound, hosts)


async def serve_oauth(server: Server[Any], bound: socket.socket, resource: Resource) -> None:
    """Serve HTTP on a bound socket until SIGINT or SIGTERM. Every request needs an access token for `resource`.

    Only the metadata of the resource (RFC 9728) needs no token; every 401 has its address. A request whose token cannot
    be checked now gets a 503, because a client throws its token away after a 401.
    """
    from mcp.server.auth.settings import AuthSettings

    auth = AuthSettings.model_validate(
        {"issuer_url": resource.issuer, "resource_server_url": resource.url, "validate_token_resource": True}
    )
    # A proxy with TLS in front passes on the host that the client named.
    host = urlsplit(resource.url).netloc
    hosts = [*_hosts(bound), host.lower()]
    app = _http_app(server, hosts, f"https://{host}", auth=auth, token_verifier=resource)
    app.add_middleware(_UnavailableAs503)
    await _serve(app, bound, hosts)


def _hosts(bound: socket.socket) -> list[str]:
    return [address_of(bound), f"localhost:{bound.getsockname()[1]}"]


def _http_app(server: Server[Any], hosts: Sequence[str], *origins: str, **auth: Any) -> Any:
    from mcp.server.transport_security import TransportSecuritySettings

    # Explicit: the SDK makes these checks only for the common loopback addresses. `HttpEdge` checks the host.
    allowed = [*(f"http://{host}" for host in hosts), *origins]
    security = TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=allowed)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        transport_security=security,
        **auth,
    )
    # Behind a proxy with TLS a redirect would lead to an address without TLS. Any path but `PATH` is 404.
    app.router.redirect_slashes = False
    app.add_middleware(_UnambiguousJson)
    return app


def refused_json(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC error that answers a message; None if the message is accepted.

    A message is refused if it is not JSON, has a member twice (so that two readers can understand it differently), or
    has an id that no answer can carry (null). A number or a text that cannot be carried is left to the gate, which
    names its place in the arguments of the call.
    """
    try:
        message = loads(raw, max_bytes=MAX_REQUEST_BYTES, max_depth=2 * MAX_DEPTH, max_nodes=2 * MAX_NODES)
    except MalformedJson as error:
        problem = next((problem for problem in error.problems if problem.code not in _VALUE_FAULTS), None)
        if problem is None and len(error.problems) < MAX_PROBLEMS:
            return None
        problem = problem or error.problems[0]
        code = PARSE_ERROR if problem.code == "syntax" else INVALID_REQUEST
        return {"jsonrpc": "2.0", "id": id_of(raw), "error": {"code": code, "message": str(problem)}}
    if isinstance(message, dict) and "method" in message and "id" in message and id_of(raw) is None:
        detail = "`id` is a text or a whole number; a notification has none"
        return {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": detail}}
    return None


def id_of(raw: bytes) -> str | int | None:
    """Return the id of a refused message; None if it has no id that an answer can carry."""
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    message_id = message.get("id") if isinstance(message, dict) and "method" in message else None
    if isinstance(message_id, str):
        # `json` reads half of a surrogate pair, which no answer can be written with.
        return message_id if message_id == message_id.encode("utf-8", "ignore").decode() else None
    return message_id if isinstance(message_id, int) and not isinstance(message_id, bool) else None


class _UnambiguousJson:
    """Answers a request with 400 where `refused_json` refuses its body: the SDK takes the last of two members. A POST
    whose media type is not JSON gets 415.

    The body is checked when the SDK reads it, which is after the check of the token.
    """

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        from contextos.server.edge import HttpRefusal, is_json

        refused: list[dict[str, Any]] = []
        body, is_whole = bytearray(), False
        content_type = next((value for name, value in scope.get("headers", ()) if name == b"content-type"), b"")
        if scope["type"] == "http" and scope["method"] == "POST" and not is_json(content_type.decode("latin-1")):
            detail = "the body has to be `application/json` in UTF-8; state it in `Content-Type`"
            await HttpRefusal(415, "unsupported_media_type", detail, (("Accept", "application/json"),)).send(send)
            return

        async def read() -> Message:
            nonlocal is_whole
            message: Message = await receive()
            if message["type"] != "http.request":
                # The SDK would log a stack for a body that breaks off, so it gets a message that is not JSON.
                return message if is_whole else {"type": "http.request", "body": b"\0", "more_body": False}
            is_whole = not message.get("more_body", False)
            body.extend(message.get("body", b"")[: MAX_REQUEST_BYTES + 1 - len(body)])
            if is_whole and body.strip() and (error := refused_json(bytes(body))):
                refused.append(error)
            # An accepted body is passed on unchanged; a refused one is replaced by a text that is not a message.
            return {**message, "body": b"\0"} if refused else message

        async def answer(message: Message) -> None:
            if not refused:
                await send(message)
            elif message["type"] == "http.response.start":
                text = canonical(refused[0])
                headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
                await send({"type": "http.response.start", "status": 400, "headers": headers})
                await send({"type": "http.response.body", "body": text})

        await self._app(scope, *((read, answer) if scope["type"] == "http" else (receive, send)))


class _UnavailableAs503:
    """Answers a request with 503 and `Retry-After` where the check of its token raises `Unavailable`."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, send)
        except Unavailable as error:
            _LOG.warning("an access token could not be checked: %s", error)
            retry_after_s = str(max(1, error.retry_after_ms // 1000)).encode()
            headers = [(b"retry-after", retry_after_s), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": b""})


async def _serve(app: Asgi, bound: socket.socket, hosts: Sequence[str]) -> None:
    import uvicorn

    from contextos.server.edge import EdgeConnection, HttpEdge

    config = uvicorn.Config(
        HttpEdge(app, hosts),
        http=EdgeConnection,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    await uvicorn.Server(config).serve(sockets=[bound])


def address_of(bound: socket.socket) -> str:
    """Return the `HOST:PORT` of a bound socket as a URL writes it: an IPv6 host is in brackets."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_token(token: str) -> None:
    """Raise `InvalidSettings` for a token that is too short to be a secret."""
    if len(token) < MIN_TOKEN_CHARS:
        detail = f"the token has fewer than {MIN_TOKEN_CHARS} characters"
        raise InvalidSettings(Problem("", "weak_token", detail, "use a random token, such as 32 hex digits"))


def require_token(app: Asgi, token: str) -> Asgi:
    """Return `app` behind a check of the bearer token. A request without it gets an empty 401. Only the addresses of
    the metadata of a protected resource (`/.well-known/`) need no token; `app` has none and answers 404.

    Raises:
        InvalidSettings: the token is too short to be a secret.
    """
    check_token(token)
    expected = b"Bearer " + token.encode()

    async def checked(scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or scope["path"].startswith("/.well-known/"):
            await app(scope, receive, send)
            return
        tokens = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if scope["type"] == "http" and len(tokens) == 1 and hmac.compare_digest(tokens[0], expected):
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return checked


def listen(address: str, *, reachable: bool = False) -> socket.socket:
    """Return a listening socket on `HOST:PORT` of this machine. Port 0 means any free port. With `reachable` other
    machines may reach the address, because the caller provides TLS.

    Raises:
        InvalidSettings: `address` is not `HOST:PORT` with an IP address, is not a loopback address (without
            `reachable`), or cannot be bound.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        ip = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        number = int(port)
    except ValueError:
        raise _refused(address, "not_an_address", "it is not `HOST:PORT` with an IP address") from None
    if not ip.is_loopback and not reachable:
        raise _refused(address, "not_loopback", "other machines can reach it, and there is no TLS here")
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
    # asyncio sends without delay only on sockets that name the protocol; else the end of an answer waits for 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((str(ip), number))
        # Listens already here, so that a client that connects before the server runs waits and is not refused.
        bound.listen()
    except (OSError, OverflowError) as error:
        bound.close()
        in_use = "another process has the port; end it, or name another port"
        remedy = {errno.EADDRINUSE: in_use, errno.EACCES: "name a port above 1023"}.get(getattr(error, "errno", 0) or 0)
        raise _refused(address, "not_bound", why(error), *[remedy] if remedy else []) from None
    return bound


def _refused(address: str, code: str, reason: str, remedy: str = "use 127.0.0.1 and a port") -> InvalidSettings:
    return InvalidSettings(Problem("/http", code, f"cannot serve on `{address}`: {reason}", remedy))
