"""`OutboundClient`: the one HTTP client with which adapters send requests to systems that others run.

A request goes to an endpoint of the egress list it is given, and to no other; an empty list allows none. The host is
resolved once. Every address of the answer has to be one of the public internet, and the connection goes to a checked
address with the certificate and `Host` of the name, so a second answer of the resolver changes nothing (DNS rebinding).
Redirects, proxies, `.netrc`, cookies and connections that are used again do not exist here. Nothing is sent that the
request does not name, except what HTTP needs.

`internal` lists the endpoints that can be at a loopback or private address, because a person said so. Such an
endpoint can use `http://`, but only on the loopback. Link-local, multicast and reserved addresses are never allowed,
nor are the other addresses of the metadata services of clouds, which give credentials to every caller.

`Unavailable` means that nothing was sent. `LostReply` means that something was sent, and no whole answer came. One time
limit covers everything, from resolving the name to the last byte.
Source: OWASP, "Server-Side Request Forgery Prevention"; RFC 9110; RFC 6890 (special addresses); RFC 6052 (NAT64).
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final, Self

import httpx

from contextos.contracts.ids import EGRESS
from contextos.errors import InvalidInput, LostReply, Problem, Unavailable

MAX_URL_CHARS: Final = 8_192
MAX_RESPONSE_BYTES: Final = 1_048_576
MAX_RESPONSE_HEADERS: Final = 128
MAX_ADDRESSES: Final = 8
"""The most addresses of one name. A longer answer is refused."""

_QUIET: Final = ContextVar("outbound_quiet", default=False)
# httpcore logs the headers of answers on the level DEBUG, and a server can send a credential back in one.
logging.getLogger("httpcore.http11").addFilter(lambda _record: not _QUIET.get())

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> every address of the host, as text. Raises `OSError`."""

_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?)(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<target>/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*"
    r"(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]-]|%[0-9A-Fa-f]{2})*)?)?"
)
"""Lower case, no user information, no fragment, no backslash, nothing beyond ASCII, no IPv6 literal."""
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9][a-z0-9-]*")
"""The last label of a host that is a number: no top-level domain begins with a digit."""
_LEADS_ELSEWHERE: Final = re.compile(r"/(?:\.|%2e){1,2}(?:;[^/]*)?(?=/|$)|%(?:2f|5c|00)", re.IGNORECASE)
"""Segments `.` and `..` of a path, also with parameters (`..;x`), and escaped separators that some servers decode."""
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[\t -~]{0,8190}[!-~])?|")
_OWN_HEADERS: Final = frozenset({
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization",
    "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
"""Headers that say how a message travels. The client sets them itself."""
UNSENT_HEADERS: Final = frozenset({"accept-encoding", "connection", "content-length", "host", "user-agent"})
"""The headers that an HTTP library adds to the requests of an SDK. A transport over `OutboundClient` drops them."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_WITHOUT_BODY: Final = frozenset({204, 304})

_GLOBAL_V6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = 0x0000_5EFE
"""RFC 5214: the interface identifier of an address with an IPv4 address in it, without the bit `u`."""
_SPECIAL_V4: Final = tuple(map(IPv4Network, (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
)))  # fmt: skip
"""Networks that are not public. They are listed here, because the answer of `ipaddress` differs between Pythons."""
_PRIVATE_V4: Final = tuple(map(IPv4Network, ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")))
_PRIVATE_V6: Final = IPv6Network("fc00::/7")
_SPECIAL_V6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_METADATA_V4: Final = frozenset(map(IPv4Address, ("100.88.222.5", "100.100.100.200", "168.63.129.16")))
_METADATA_V6: Final = tuple(map(IPv6Network, (
        "fd00:42::42", "fd00:100::100:200", "fd00:a9fe:a9fe::1", "fd00:c1::a9fe:a9fe", "fd00:ec2::/32", "fd20:ce::254",
)))  # fmt: skip
_METADATA_NAMES: Final = frozenset({"instance-data.ec2.internal", "metadata.goog", "metadata.google.internal"})
"""Metadata services of clouds that are neither at a link-local nor at a reserved address, and names of those services.
One of the addresses is public, the others look like those of a private network.
"""


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """One request. `url` is absolute, and is sent as it is written. The `repr` shows the method alone: the other fields
    can hold secrets.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """A whole answer: its status, its headers with names in lower case, and its body."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an allowed URL leads. `endpoint` is `host:port`, and `target` the path and query as they are sent."""

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    def is_in(self, endpoints: Collection[str]) -> bool:
        """Return whether a list names this endpoint. An entry without a port means the default port of the scheme."""
        return self.endpoint in endpoints or (self.host in endpoints and self.port == _default_port(self.scheme))


def destination(url: str) -> Destination:
    """Return where a URL leads.

    Raises:
        InvalidInput: the URL is not written in the one way that every reader takes the same.
    """
    match = _URL.fullmatch(url) if len(url) <= MAX_URL_CHARS else None
    if match is None:
        raise _refusal("bad_url", "the address is not a plain URL", "write `https://host[:port]/path` in ASCII")
    scheme, host, target = match["scheme"], match["host"], match["target"] or "/"
    port = int(match["port"] or _default_port(scheme))
    labels = host.split(".")
    if not all(map(_LABEL.fullmatch, labels)) or port > 65_535 or not EGRESS.fits(f"{host}:{port}"):
        raise _refusal("bad_url", f"`{host}` is not a host name", "write the name of the host in lower case")
    if _NUMBER.fullmatch(labels[-1]) and _ipv4(host) is None:
        detail = f"`{host}` is a number that some readers take for an address"
        raise _refusal("bad_url", detail, "write an IPv4 address as four decimal numbers")
    if _LEADS_ELSEWHERE.search(target.partition("?")[0]):
        raise _refusal("bad_url", "the path could lead elsewhere", "write it without `.`, `..`, `%2f` and `%5c`")
    return Destination(scheme, host, port, target)


@lru_cache(maxsize=1_024)
def is_public(address: str) -> bool:
    """Return whether an address is one of the public internet. An embedded IPv4 address decides about the whole.

    >>> is_public("192.0.2.1"), is_public("::ffff:10.0.0.1"), is_public("9.9.9.9")
    (False, False, True)
    """
    parsed = _parse_address(address)
    if parsed is None:
        return False
    if isinstance(parsed, IPv4Address):
        return parsed not in _METADATA_V4 and not any(parsed in special for special in _SPECIAL_V4)
    if parsed in _NAT64:
        return is_public(str(IPv4Address(int(parsed) & 0xFFFF_FFFF)))
    if parsed.sixtofour is not None:
        return is_public(str(parsed.sixtofour))
    if (int(parsed) >> 32) & 0xFDFF_FFFF == _ISATAP:
        return is_public(str(IPv4Address(int(parsed) & 0xFFFF_FFFF)))
    return parsed in _GLOBAL_V6 and not any(parsed in special for special in _SPECIAL_V6)


def is_internal(address: str) -> bool:
    """Return whether an address is a loopback or private one that an endpoint of `internal` can have. The metadata
    service of a cloud is not such an address.
    """
    parsed = _parse_address(address)
    if isinstance(parsed, IPv4Address):
        private = parsed not in _METADATA_V4 and any(parsed in net for net in _PRIVATE_V4)
        return parsed.is_loopback or private
    if parsed is None or any(parsed in net for net in _METADATA_V6):
        return False
    return parsed.is_loopback or parsed in _PRIVATE_V6


def internal_address_fault(host: str, *, internal: bool) -> tuple[str, str] | None:
    """Return why nothing is ever sent to `host`, an IPv4 address, and the remedy. None for a name and a usable address.

    `internal`: a person said that the host is at a loopback or private address.
    """
    if not host.replace(".", "").isdigit() or is_public(host) or (internal and is_internal(host)):
        return None
    remedy = "state that it is `internal`, or name another" if is_internal(host) else "name another"
    return f"`{host}` is not a public address", remedy


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host as the operating system knows them (`Resolve`)."""
    rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in rows))


class AnswerTooLarge(LostReply):
    """The answer has more bytes than the limit, and would have them again. `status` is the status of the answer."""

    def __init__(self, detail: str, status: int) -> None:
        super().__init__(detail)
        self.status = status


class OutboundClient:
    """Sends requests to the endpoints of an egress list, as this module says.

    `internal` lists the endpoints that can be at a loopback or private address. `tls` holds the certificates that are
    trusted instead of the usual ones.
    """

    def __init__(
        self,
        *,
        internal: Collection[str] = (),
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._internal, self._max_bytes = frozenset(internal), max_response_bytes
        self._resolve, self._tls = resolve, tls

    async def send(self, request: OutboundRequest, *, egress: Collection[str], timeout_s: float) -> OutboundResponse:
        """Send one request once, and return its whole answer, whatever its status is.

        Raises:
            InvalidInput: the request or its destination is not allowed; nothing was sent.
            Unavailable: nothing was sent.
            LostReply: something was sent, and no whole answer came that is within the limits; `AnswerTooLarge` says
                that it had too many bytes.
        """
        async with self.stream(request, egress=egress, timeout_s=timeout_s) as answer:
            body = bytearray()
            async for part in answer:
                body += part
            return OutboundResponse(answer.status, answer.headers, bytes(body))

    def stream(
        self, request: OutboundRequest, *, egress: Collection[str], timeout_s: float, max_bytes: int | None = None
    ) -> OutboundStream:
        """Return one request that is sent once, when it is entered as a context; its answer is read as it arrives.

        `timeout_s` holds from there to the last byte. `max_bytes` replaces the limit of the client on the body.

        Raises:
            InvalidInput: the request or its destination is not allowed. Entering the context raises it too, where the
                host is at an address that is not allowed.
        """
        place = destination(request.url)
        _check_request(request)
        if not place.is_in(egress):
            detail = f"`{place.endpoint}` is not in the egress list of this call"
            raise _refusal("egress_refused", detail, "list the endpoint in the adapter, the pack and the settings")
        return OutboundStream(self, place, request, timeout_s, max_bytes or self._max_bytes)

    async def addresses(self, to: Destination) -> Sequence[str]:
        """Resolve the host once, and return its addresses as text.

        Raises:
            InvalidInput: an address is not allowed, there are too many, or the scheme is `http` outside the loopback.
            Unavailable: the name cannot be resolved, or has no address.
        """
        try:
            addresses = [to.host] if _ipv4(to.host) else list(await self._resolve(to.host, to.port))
        except (OSError, UnicodeError):
            raise Unavailable(to.endpoint, "its name cannot be resolved") from None
        if not addresses:
            raise Unavailable(to.endpoint, "its name has no address")
        internal = to.is_in(self._internal)
        allowed = to.host not in _METADATA_NAMES and all(
            is_public(address) or (internal and is_internal(address)) for address in addresses
        )
        if not allowed or len(addresses) > MAX_ADDRESSES:
            detail = f"`{to.endpoint}` is at an address that is not public"
            raise _refusal("address_refused", detail, "state that the endpoint is internal, or correct its name")
        if to.scheme == "http" and not (internal and all(_is_loopback(address) for address in addresses)):
            raise _refusal("not_https", f"`{to.endpoint}` is asked without TLS", "use `https://`")
        return addresses

    def transport(self) -> httpx.AsyncHTTPTransport:
        """Return a new HTTP/1.1 transport for one request. It ignores the environment and tries nothing twice."""
        return httpx.AsyncHTTPTransport(verify=self._tls or _tls(), trust_env=False, http1=True, http2=False, retries=0)


class OutboundStream:
    """One request and its answer: a context, and in it an iterator of the parts of the body as they arrive.

    `status` and `headers` (names in lower case) are those of the answer. `sent` says, also after an error, whether the
    first byte of the request was sent. Entering and reading raise the errors of `OutboundClient.send`. The connection
    ends with the context.
    """

    def __init__(
        self, client: OutboundClient, to: Destination, request: OutboundRequest, timeout_s: float, max_bytes: int
    ) -> None:
        self.status, self.headers, self.sent = 0, dict[str, str](), False
        self._client, self._destination, self._request = client, to, request
        self._timeout_s, self._max_bytes, self._read_bytes = timeout_s, max_bytes, 0

    async def __aenter__(self) -> Self:
        self._deadline = asyncio.get_running_loop().time() + self._timeout_s
        async with AsyncExitStack() as stack, self._limit_time():
            addresses = await self._client.addresses(self._destination)
            transport = await stack.enter_async_context(self._client.transport())
            response = await self._send_to_first(addresses, transport)
            stack.push_async_callback(response.aclose)
            self._check_head(response)
            self._parts = aiter(response.stream)  # type: ignore[arg-type]
            self._open_stack = stack.pop_all()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self._open_stack.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        async with self._limit_time():
            part = await anext(self._parts, None)
        if part is None:
            raise StopAsyncIteration
        self._read_bytes += len(part)
        if self._read_bytes > self._max_bytes:
            detail = f"`{self._destination.endpoint}` answered with more than {self._max_bytes} bytes"
            raise AnswerTooLarge(detail, self.status)
        return part

    @asynccontextmanager
    async def _limit_time(self) -> AsyncGenerator[None]:
        """Hold the time limit, and raise the errors of this module."""
        quiet = _QUIET.set(True)
        try:
            async with asyncio.timeout_at(self._deadline):
                yield
        except TimeoutError:
            raise self._failure(f"it took more than {self._timeout_s:g} s") from None
        except (httpx.TransportError, httpx.InvalidURL, ssl.SSLError, OSError) as error:
            raise self._failure(f"the connection failed ({type(error).__name__})") from None
        finally:
            _QUIET.reset(quiet)

    async def _send_to_first(self, addresses: Sequence[str], transport: httpx.AsyncHTTPTransport) -> httpx.Response:
        """Send the request to the first address, in order, that takes a connection. Raises `_failure` if none does."""
        for address in addresses:
            try:
                return await transport.handle_async_request(self._request_to(address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        raise self._failure("it takes no connection, or its certificate is not valid")

    def _request_to(self, address: str) -> httpx.Request:
        place, request = self._destination, self._request
        literal = f"[{address}]" if ":" in address else address
        host = place.host if place.port == _default_port(place.scheme) else place.endpoint
        headers = {**request.headers, "Host": host, "Accept-Encoding": "identity", "Connection": "close"}
        # The target is sent as it is written: httpx would spell it in its own way.
        extensions = {"sni_hostname": place.host, "target": place.target.encode(), "trace": self._note_sent}
        url = f"{place.scheme}://{literal}:{place.port}/"
        return httpx.Request(request.method, url, headers=headers, content=request.body, extensions=extensions)

    def _check_head(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        if len(response.headers.raw) > MAX_RESPONSE_HEADERS:
            raise self._failure(f"its answer has more than {MAX_RESPONSE_HEADERS} headers")
        if self.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise self._failure("its answer is compressed, which was not asked for")
        has_no_body = self._request.method == "HEAD" or self.status in _WITHOUT_BODY
        if not has_no_body and "content-length" not in self.headers and "transfer-encoding" not in self.headers:
            raise self._failure("its answer states no length, so nobody knows whether it is whole")
        if "content-length" in self.headers and "transfer-encoding" in self.headers:
            raise self._failure("its answer states two lengths")

    async def _note_sent(self, event: str, _details: Mapping[str, Any]) -> None:
        self.sent = self.sent or event == "http11.send_request_headers.started"

    def _failure(self, reason: str) -> Unavailable | LostReply:
        """Return a `LostReply` if something was sent, else an `Unavailable`. `reason` says why."""
        if self.sent:
            return LostReply(f"`{self._destination.endpoint}` was asked, and {reason}; look before it is sent again")
        return Unavailable(self._destination.endpoint, reason)


def _check_request(request: OutboundRequest) -> None:
    if request.method not in _METHODS:
        raise _refusal("bad_method", "the method is not known", f"use one of {sorted(_METHODS)}")
    if len({name.lower() for name in request.headers}) < len(request.headers):
        raise _refusal("bad_header", "a header is there twice", "send each header once")
    for name, value in request.headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise _refusal("bad_header", f"the header `{name[:40]!a}` cannot be set", "leave it out")
        if not _HEADER_VALUE.fullmatch(value):
            detail = f"the value of the header `{name}` is not printable ASCII on one line"
            raise _refusal("bad_header", detail, "send it in another place, or encode it")


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


@lru_cache(maxsize=1_024)
def _parse_address(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    # An address with a zone means something else on each machine.
    if isinstance(parsed, IPv6Address):
        return None if parsed.scope_id else parsed.ipv4_mapped or parsed
    return parsed


@lru_cache(maxsize=1_024)
def _ipv4(host: str) -> IPv4Address | None:
    try:
        return IPv4Address(host)
    except ValueError:
        return None


def _is_loopback(address: str) -> bool:
    parsed = _parse_address(address)
    return parsed is not None and parsed.is_loopback


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS settings, cached: reading the trusted certificates takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)


def _refusal(code: str, detail: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem("", code, detail, remedy))
