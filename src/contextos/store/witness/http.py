"""`HttpWitness`: the `Witness` port on any HTTP server that stores objects once and returns them.

The protocol is minimal, so that an object store with write-once retention, or a small server, can implement it:

- the n-th head of a stream is the object `URL/<tenant>/<stream>/<n>`, counted from 1 without gaps. Its body is one
  JSON object, as in a line of `FileWitness`. The tenant is a quoted path segment with the prefix `t.`;
- `PUT` with `If-None-Match: *` creates it: 200, 201 or 204, or 412 if it exists;
- `GET` returns exactly its bytes: 200, or 404 if it does not exist.

Nothing is listed, changed or deleted. The sequences of a stream's heads only grow, so the last object is the latest
head. It is found by doubling: about forty requests for a million heads. A server that lets an object be overwritten is
refused at the first write. Every other answer is an error and never counts as proof.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Final
from urllib.parse import quote, urlsplit

import httpx

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, INDEX, WitnessedHead
from contextos.errors import Integrity, InvalidSettings, Problem, Unavailable
from contextos.store.witness.file import read_head

ANSWER_TIMEOUT_S: Final = 5.0
WHOLE_TIMEOUT_S: Final = 30.0
MAX_OBJECT_BYTES: Final = 4096
MAX_OBJECTS: Final = 1 << 40
MAX_RACES: Final = 64
MAX_ENDS: Final = 65_536
"""Cache size in streams. It is bounded because any caller can name another tenant."""
MAX_AT_ONCE: Final = 8

_CREATED: Final = (200, 201, 204)
_EXISTS: Final = 412
_ABSENT: Final = 404


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS settings, cached: reading the trusted certificates takes longer than one request."""
    return httpx.create_ssl_context(trust_env=False)


class HttpWitness:
    """Stores signed journal heads under `url`. Any event loop can use it. The next search in a stream starts at its
    cached end.

    Credentials are part of the URL (`https://name:password@…`) and are never shown.

    Raises:
        InvalidSettings: `url` is not a valid URL.
    """

    def __init__(
        self, url: str, *, timeout_s: float = ANSWER_TIMEOUT_S, whole_timeout_s: float = WHOLE_TIMEOUT_S
    ) -> None:
        self._url, self._timeout_s, self._whole_timeout_s = url.rstrip("/"), timeout_s, whole_timeout_s
        address = urlsplit(self._url)
        self._place = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"
        self._last_numbers: dict[tuple[str, str], int] = {}
        self._write_once = False
        try:
            httpx.Request("GET", self._object_url("any", INDEX, 1))
        except (httpx.InvalidURL, UnicodeError) as error:
            # The error is not quoted: it can contain the URL with its password.
            detail, remedy = "the URL in `/witness` is not valid", "correct its host and path, or name a file"
            raise InvalidSettings(Problem("/witness", "bad_setting", detail, remedy)) from error

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        by_tenant: dict[str, list[WitnessedHead]] = {}
        for head in heads:
            by_tenant.setdefault(head.tenant, []).append(head)
        slots = asyncio.Semaphore(MAX_AT_ONCE)
        async with self._client() as client:
            outcomes = await asyncio.gather(
                *(self._append_all(client, slots, heads) for heads in by_tenant.values()), return_exceptions=True
            )
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome

    async def heads(self, tenant_id: str, *, since_us: int = 0) -> Sequence[WitnessedHead]:  # noqa: ARG002 - of the port
        """Return the first and the last signed head of each of a tenant's streams, for each period between two
        restores. Such heads are few, so all are returned, whatever `since_us` is.
        """
        heads: list[WitnessedHead] = []
        async with self._client() as client, asyncio.timeout(self._whole_timeout_s):
            number, names = 0, (INDEX, CONTROL)
            while True:
                index_heads = await self._first_and_last(client, tenant_id, names[0])
                heads += index_heads + await self._first_and_last(client, tenant_id, names[1])
                # A restore is written for the index first: if the index has no such stream, there was no such restore.
                if number and not index_heads:
                    return heads
                number += 1
                names = (f"{INDEX}@{number}", f"{CONTROL}@{number}")

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        try:
            async with httpx.AsyncClient(
                verify=_tls(),
                trust_env=False,
                follow_redirects=False,
                timeout=self._timeout_s,
                headers={"Accept-Encoding": "identity", "Cache-Control": "no-cache"},
            ) as client:
                yield client
        except TimeoutError:
            raise self._unavailable(f"it took more than {self._whole_timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise self._unavailable(str(error).rstrip(".").lower() or type(error).__name__) from error

    async def _first_and_last(self, client: httpx.AsyncClient, tenant_id: str, stream: str) -> list[WitnessedHead]:
        number, last = await self._latest(client, tenant_id, stream)
        first = await self._fetch(client, tenant_id, stream, 1) if number > 1 else None
        return [head for head in (first, last) if head is not None]

    async def _latest(self, client: httpx.AsyncClient, tenant_id: str, stream: str) -> tuple[int, WitnessedHead | None]:
        """Find the last object of a stream by doubling and bisection; return its number and head, or (0, None)."""
        if len(self._last_numbers) >= MAX_ENDS:
            self._last_numbers.clear()
        cached = self._last_numbers.get((tenant_id, stream), 0)
        number, last = cached or 1, await self._fetch(client, tenant_id, stream, cached or 1)
        if last is None:
            if cached:
                raise Integrity(f"object {cached} of `{stream}` in `{self._place}` existed and is gone")
            return 0, None
        step, doubling = 1, True
        while step:
            if number + step > MAX_OBJECTS:
                raise Integrity(f"`{self._place}` returns more objects than can exist")
            head = await self._fetch(client, tenant_id, stream, number + step)
            if head is not None:
                if head.seq <= last.seq:
                    raise Integrity(
                        f"object {number + step} of `{stream}` in `{self._place}` is older than one before it"
                    )
                number, last = number + step, head
            else:
                doubling = False
            step = step * 2 if doubling else step // 2
        self._last_numbers[tenant_id, stream] = number
        return number, last

    async def _append_all(
        self, client: httpx.AsyncClient, slots: asyncio.Semaphore, heads: Sequence[WitnessedHead]
    ) -> None:
        """Append one tenant's heads in their order: a restore is written for the index first."""
        async with slots:
            for head in heads:
                async with asyncio.timeout(self._whole_timeout_s):
                    await self._append_head(client, head)

    async def _append_head(self, client: httpx.AsyncClient, head: WitnessedHead) -> None:
        number, last = await self._latest(client, head.tenant, head.stream)
        for _ in range(MAX_RACES):
            if last is not None and last.seq >= head.seq:
                if last.seq == head.seq and last.hash != head.hash:
                    raise Integrity(f"`{self._place}` holds another head of `{head.stream}` at entry {head.seq}")
                return
            number += 1
            if await self._create_object(client, head, number):
                self._last_numbers[head.tenant, head.stream] = number
                return
            last = await self._fetch(client, head.tenant, head.stream, number)
            if last is None:
                raise self._unavailable(f"it reports that object {number} exists, but does not return it")
        raise self._unavailable("too many other processes put heads at the same time")

    async def _create_object(self, client: httpx.AsyncClient, head: WitnessedHead, number: int) -> bool:
        """Create an object and read it back; return False if another one exists."""
        status = await self._put_object(client, head, number)
        if status == _EXISTS:
            return False
        if status not in _CREATED:
            raise self._unavailable(f"it answers {status} to a head")
        if await self._fetch(client, head.tenant, head.stream, number) != head:
            raise Integrity(f"`{self._place}` does not return what was put; it cannot be a witness")
        if not self._write_once and await self._put_object(client, head, number) != _EXISTS:
            raise Integrity(f"`{self._place}` lets an object be overwritten; it cannot be a witness")
        self._write_once = True
        return True

    async def _put_object(self, client: httpx.AsyncClient, head: WitnessedHead, number: int) -> int:
        url, body = self._object_url(head.tenant, head.stream, number), canonical(head._asdict())
        headers = {"If-None-Match": "*", "Content-Type": "application/json"}
        async with client.stream("PUT", url, content=body, headers=headers) as response:
            return response.status_code

    async def _fetch(self, client: httpx.AsyncClient, tenant_id: str, stream: str, number: int) -> WitnessedHead | None:
        async with client.stream("GET", self._object_url(tenant_id, stream, number)) as response:
            if response.status_code == _ABSENT:
                return None
            if response.status_code != 200:
                raise self._unavailable(f"it answers {response.status_code}")
            raw = b""
            async for chunk in response.aiter_raw():
                raw += chunk
                if len(raw) > MAX_OBJECT_BYTES:
                    raise Integrity(f"`{self._place}` returns an object of more than {MAX_OBJECT_BYTES} bytes")
        place = f"object {number} of `{stream}` in `{self._place}`"
        head = read_head(raw, place)
        # Sequences only grow, so the n-th head has a sequence of at least n - 1.
        if (head.tenant, head.stream) != (tenant_id, stream) or head.seq < number - 1:
            raise Integrity(f"{place} is a head of another stream or position; keep it and find out who wrote it")
        return head

    def _object_url(self, tenant_id: str, stream: str, number: int) -> str:
        return f"{self._url}/t.{quote(tenant_id, safe='')}/{quote(stream, safe='@')}/{number}"

    def _unavailable(self, detail: str) -> Unavailable:
        return Unavailable("witness", f"`{self._place}`: {detail}")
