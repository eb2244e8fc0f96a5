"""The open sessions of one MCP server: the user of each, and its run.

Over stdio, and over HTTP with a development token, the person who starts the server names the user, the agent and the
session. Over HTTP with OAuth the user is the one of the verified token, and the client names the session in the URL
(`?session=NAME`). A name gives no access: with OAuth it belongs to its user, and the same name of another user is
another session.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from contextos.contracts.encoding.jcs import digest
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.ids import SESSION
from contextos.contracts.trace import receive_trace
from contextos.deployment.gate.gate import known_tools
from contextos.deployment.gate.opening import open_session, recorded_request, session_tools
from contextos.errors import InvalidInput, Problem
from contextos.frameworks.offers import OfferedTool, offers_of
from contextos.server.mcp.calls import RUN_PLACE, SessionCalls

if TYPE_CHECKING:
    from contextos.workspace import App

MAX_OPEN_SESSIONS: Final = 1_024
SESSION_PARAMETER: Final = "session"

_DIGEST_PREFIX: Final = "oidc:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Client:
    """The client of a request: the user, the reference of their delegation to the agent, and the session's name."""

    user: str
    delegation: str | None
    session: str


class Callers(Protocol):
    """Identifies the client of a request from the SDK's context of the request."""

    async def client(self, context: Any) -> Client:
        """Return the client of a call, with the delegation of its session."""

    async def visitor(self, context: Any) -> Client:
        """Return the client of a request that opens no session. Nothing is kept for the session name in it."""


@dataclass(frozen=True, slots=True)
class OneClient:
    """The port `Callers` where the person who starts the server names the client."""

    named: Client

    async def client(self, _context: Any) -> Client:
        return self.named

    async def visitor(self, _context: Any) -> Client:
        return self.named


@dataclass(slots=True)
class ServedSessions:
    """Opens each session once and keeps it. Beyond `MAX_OPEN_SESSIONS` the least recently used session is dropped; it
    is opened again when needed.

    `link` is the page where a person finds the question of a run, with `{run}` in the place of the run's id, or empty.
    The page shows the question and answers nothing.
    """

    app: App
    tenant_id: str
    agent: str
    intent: str | None = None
    pack: str | None = None
    message: str = ""
    context: Mapping[str, Any] = field(default_factory=dict)
    link: str = ""
    _open: OrderedDict[Client, SessionCalls] = field(default_factory=OrderedDict)

    async def calls(self, client: Client, meta: Mapping[str, Any] | None = None) -> SessionCalls:
        """Return the calls of a client's session; open it if it is not open yet.

        `meta` is the `_meta` of the request; if the request opens the session, the trace in `meta` becomes its trace.

        Raises:
            ConflictingRequest: the name belongs to a session of another user, agent, intent or context.
            InvalidInput: as `open_session` and `SessionCalls.of`.
            Unavailable: the store does not answer.
        """
        if client not in self._open:
            received = receive_trace((name, text) for name, text in (meta or {}).items() if isinstance(text, str))
            trace = self.app.trace_of(received, is_workload=False)
            gate = await open_session(
                self.app.deployment, self.tenant_id, client.session, trace=trace, **self._opening_args(client)
            )
            self._open[client] = await SessionCalls.of(gate, self.link)
            if len(self._open) > MAX_OPEN_SESSIONS:
                self._open.popitem(last=False)
        self._open.move_to_end(client)
        return self._open[client]

    async def offered(self, visitor: Client) -> list[tuple[OfferedTool, CapabilityDefinition]]:
        """Return the tools of a session; if it is not open, the tools with which it would open now. Opens no session.

        Raises:
            InvalidInput: as `session_tools` and `offers_of`.
            Unavailable: the store does not answer.
        """
        tools = await session_tools(self.app.deployment, self.tenant_id, visitor.session, **self._opening_args(visitor))
        definitions = known_tools(self.app.deployment, self.tenant_id)
        return [(tool, definitions[tool.tool_id]) for tool in offers_of(tools, definitions).values()]

    async def is_open(self, visitor: Client) -> bool:
        """Return whether the journal has a session of this name. Raises `Unavailable` if the store does not answer."""
        return await recorded_request(self.app.deployment, self.tenant_id, visitor.session) is not None

    def _opening_args(self, client: Client) -> dict[str, Any]:
        """Return the arguments with which a session of this client opens, without its name."""
        return {
            "user": client.user,
            "agent": self.agent,
            "token": client.delegation,
            "intent": self.intent,
            "pack": self.pack,
            "message": self.message,
            "context": self.context,
        }


def check_link(link: str) -> None:
    """Raise `InvalidInput` unless the link is a URL with one `{run}`, over `https`, or over `http` on this machine."""
    try:
        parts = urlsplit(link)
    except ValueError:
        parts = urlsplit("")
    is_local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    is_printable = link.isascii() and link.isprintable() and " " not in link
    if not (is_printable and parts.hostname and (is_local or parts.scheme == "https") and "@" not in parts.netloc):
        detail = "the link is not an `https` URL of a page"
    elif link.count(RUN_PLACE) != 1 or RUN_PLACE in parts.netloc:
        detail = f"the link does not say `{RUN_PLACE}` once behind its host, so it would show no run"
    else:
        return
    raise InvalidInput(Problem("/link", "bad_link", detail, "write it as `https://approve.acme.example/runs/{run}`"))


def session_of(user: str, name: str | None) -> str:
    """Return the full name of a session, `USER:NAME`, from the name in a URL. A user id that cannot be in it
    (`auth0|7f`), or that begins like a digest, is replaced by its digest. Raises `InvalidInput` if the name is not
    valid.
    """
    if name is None or not _NAME.fullmatch(name):
        detail = f"the URL names no session in `?{SESSION_PARAMETER}=`: 1 to 64 letters, digits, `.`, `_` and `-`"
        remedy = f"add `?{SESSION_PARAMETER}=NAME` to the URL, one name for one task"
        raise InvalidInput(Problem("/session", "no_session_name", detail, remedy))
    if user.startswith(_DIGEST_PREFIX) or not SESSION.fits(f"{user}:{name}"):
        user = f"{_DIGEST_PREFIX}{digest(user.encode()).removeprefix('sha256:')[:32]}"
    return f"{user}:{name}"
