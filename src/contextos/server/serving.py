"""How an MCP server is served: over stdin and stdout, or over HTTP on this machine behind a bearer token.

Over HTTP every request needs the token, also on the loopback address, which every local program and every web page can
reach; host and origin are checked too. Anything but a loopback address is refused: there is no TLS here, so put
a proxy in front.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from contextos.errors import InvalidSettings, Problem

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

PATH: Final = "/mcp"
MAX_REQUEST_BYTES: Final = 4 << 20
MIN_TOKEN_CHARS: Final = 20

Message = MutableMapping[str, Any]
Asgi = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on stdin and stdout until it hangs up."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(server: Server[Any], bound: socket.socket, token: str) -> None:
    """Serve HTTP on a bound socket until the process is told to stop."""
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    # Said here, because the SDK leaves these checks out for every loopback address but the usual ones.
    hosts = [address_of(bound), f"localhost:{bound.getsockname()[1]}"]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        transport_security=security,
    )
    config = uvicorn.Config(require_token(app, token), log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[bound])


def address_of(bound: socket.socket) -> str:
    """`HOST:PORT` of a bound socket, as it stands in an address."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def require_token(app: Asgi, token: str) -> Asgi:
    """`app` for those who carry the token; everybody else gets a 401 and learns nothing.

    Raises:
        InvalidSettings: the token is too short to be a secret.
    """
    if len(token) < MIN_TOKEN_CHARS:
        detail = f"the token has fewer than {MIN_TOKEN_CHARS} characters"
        raise InvalidSettings(Problem("", "weak_token", detail, "make a random one"))
    wanted = b"Bearer " + token.encode()

    async def checked(scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if scope["type"] == "http" and len(given) == 1 and hmac.compare_digest(given[0], wanted):
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return checked


def listen(address: str) -> socket.socket:
    """A listening socket on `HOST:PORT` of this machine; port 0 takes a free one.

    Raises:
        InvalidSettings: it is no loopback address, or cannot be had.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        local = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        number = int(port)
    except ValueError:
        raise _refused(address, "not_an_address", "it is not an IP address and a port") from None
    if not local.is_loopback:
        raise _refused(address, "not_loopback", "it can be reached from other machines, and there is no TLS here")
    bound = socket.socket(socket.AF_INET6 if local.version == 6 else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((str(local), number))
        # Clients that come before the server runs wait, and are not turned away.
        bound.listen()
    except (OSError, OverflowError) as error:
        bound.close()
        raise _refused(address, "not_bound", str(error).lower()) from None
    return bound


def _refused(address: str, code: str, why: str) -> InvalidSettings:
    return InvalidSettings(Problem("/http", code, f"cannot serve on `{address}`: {why}", "take 127.0.0.1 and a port"))
