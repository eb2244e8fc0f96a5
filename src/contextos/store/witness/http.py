"""`HttpWitness`: the `Witness` port over any server that stores an object once and gives it back.

The protocol is the smallest that an object store with write-once retention, or a small server, can serve:

- the n-th head of a stream is the object `URL/<tenant>/<stream>/<n>`, counted from 1 without gaps, its body one JSON
  object as in the file of `FileWitness`. The tenant is quoted as a path segment behind `t.`;
- `PUT` with `If-None-Match: *` makes it: 200, 201 or 204, or 412 where it is there already;
- `GET` gives exactly its bytes back: 200, or 404 where it is not there.

Nothing is listed, changed or deleted. Heads of a stream only grow, so the last object is the furthest, and it is found
by doubling: some forty requests for a million heads. A sink that lets an object be overwritten is refused at the first
write; whatever else it answers than this is an error, and never a proof.
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
"""Of so many streams it is kept where they end; any caller may name another tenant."""
MAX_AT_ONCE: Final = 8

_MADE: Final = (200, 201, 204)
_THERE: Final = 412
_ABSENT: Final = 404


@cache
def _tls() -> ssl.SSLContext:
    """Reading the trusted certificates takes longer than asking a sink."""
    return httpx.create_ssl_context(trust_env=False)


class HttpWitness:
    """Puts heads under `url`. May be used from any event loop; a stream's end that was found is where the next look
    begins. Credentials stand in the URL (`https://name:password@…`) and are never shown.

    Raises:
        InvalidSettings: nothing can be asked under `url`.
    """

    def __init__(
        self, url: str, *, timeout_s: float = ANSWER_TIMEOUT_S, whole_timeout_s: float = WHOLE_TIMEOUT_S
    ) -> None:
        self._url, self._timeout_s, self._whole_timeout_s = url.rstrip("/"), timeout_s, whole_timeout_s
        parts = urlsplit(self._url)
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._ends: dict[tuple[str, str], int] = {}
        self._proven = False
        try:
            httpx.Request("GET", self._place("any", INDEX, 1))
        except (httpx.InvalidURL, UnicodeError) as error:
            # Not quoted: it may be the URL, with its password.
            detail, mend = "the URL in `/witness` cannot be asked", "mend its host and path, or name a file"
            raise InvalidSettings(Problem("/witness", "bad_setting", detail, mend)) from error

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        by_tenant: dict[str, list[WitnessedHead]] = {}
        for head in heads:
            by_tenant.setdefault(head.tenant, []).append(head)
        gate = asyncio.Semaphore(MAX_AT_ONCE)
        async with self._client() as client:
            outcomes = await asyncio.gather(
                *(self._append_all(client, gate, some) for some in by_tenant.values()), return_exceptions=True
            )
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome

    async def heads(self, tenant_id: str) -> Sequence[WitnessedHead]:
        """The first and the furthest head of each stream, since each restore."""
        found: list[WitnessedHead] = []
        async with self._client() as client, asyncio.timeout(self._whole_timeout_s):
            number, names = 0, (INDEX, CONTROL)
            while True:
                of_index = await self._ends_of(client, tenant_id, names[0])
                found += of_index + await self._ends_of(client, tenant_id, names[1])
                # A restore is put for the index first, so where the index has none there was none.
                if number and not of_index:
                    return found
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

    async def _ends_of(self, client: httpx.AsyncClient, tenant_id: str, stream: str) -> list[WitnessedHead]:
        number, last = await self._last(client, tenant_id, stream)
        first = await self._get(client, tenant_id, stream, 1) if number > 1 else None
        return [one for one in (first, last) if one is not None]

    async def _last(self, client: httpx.AsyncClient, tenant_id: str, stream: str) -> tuple[int, WitnessedHead | None]:
        """The last object of a stream: doubling until one is not there, then halving between. 0 while there is none."""
        if len(self._ends) >= MAX_ENDS:
            self._ends.clear()
        known = self._ends.get((tenant_id, stream), 0)
        at, last = known or 1, await self._get(client, tenant_id, stream, known or 1)
        if last is None:
            if known:
                raise Integrity(f"object {known} of `{stream}` in `{self._shown}` was there and is gone")
            return 0, None
        step, growing = 1, True
        while step:
            if at + step > MAX_OBJECTS:
                raise Integrity(f"`{self._shown}` answers for more objects than anybody put")
            found = await self._get(client, tenant_id, stream, at + step)
            if found is not None:
                if found.seq <= last.seq:
                    raise Integrity(f"object {at + step} of `{stream}` in `{self._shown}` is older than one before it")
                at, last = at + step, found
            else:
                growing = False
            step = step * 2 if growing else step // 2
        self._ends[tenant_id, stream] = at
        return at, last

    async def _append_all(
        self, client: httpx.AsyncClient, gate: asyncio.Semaphore, heads: Sequence[WitnessedHead]
    ) -> None:
        """One tenant's heads, in their order: a restore is put for the index first."""
        async with gate:
            for head in heads:
                async with asyncio.timeout(self._whole_timeout_s):
                    await self._append(client, head)

    async def _append(self, client: httpx.AsyncClient, head: WitnessedHead) -> None:
        number, last = await self._last(client, head.tenant, head.stream)
        for _ in range(MAX_RACES):
            if last is not None and last.seq >= head.seq:
                if last.seq == head.seq and last.hash != head.hash:
                    raise Integrity(f"`{self._shown}` holds another head of `{head.stream}` at entry {head.seq}")
                return
            number += 1
            if await self._made(client, head, number):
                self._ends[head.tenant, head.stream] = number
                return
            last = await self._get(client, head.tenant, head.stream, number)
            if last is None:
                raise self._unavailable(f"it says that object {number} is there, and does not give it")
        raise self._unavailable("too many others put heads at the same time")

    async def _made(self, client: httpx.AsyncClient, head: WitnessedHead, number: int) -> bool:
        """Make an object and read it back; False where another is there already."""
        status = await self._put(client, head, number)
        if status == _THERE:
            return False
        if status not in _MADE:
            raise self._unavailable(f"it answers {status} to a head")
        if await self._get(client, head.tenant, head.stream, number) != head:
            raise Integrity(f"`{self._shown}` gives something else back than was put; it is no witness")
        if not self._proven and await self._put(client, head, number) != _THERE:
            raise Integrity(f"`{self._shown}` lets an object be overwritten; it is no witness")
        self._proven = True
        return True

    async def _put(self, client: httpx.AsyncClient, head: WitnessedHead, number: int) -> int:
        url, body = self._place(head.tenant, head.stream, number), canonical(head._asdict())
        headers = {"If-None-Match": "*", "Content-Type": "application/json"}
        async with client.stream("PUT", url, content=body, headers=headers) as response:
            return response.status_code

    async def _get(self, client: httpx.AsyncClient, tenant_id: str, stream: str, number: int) -> WitnessedHead | None:
        async with client.stream("GET", self._place(tenant_id, stream, number)) as response:
            if response.status_code == _ABSENT:
                return None
            if response.status_code != 200:
                raise self._unavailable(f"it answers {response.status_code}")
            raw = b""
            async for part in response.aiter_raw():
                raw += part
                if len(raw) > MAX_OBJECT_BYTES:
                    raise Integrity(f"`{self._shown}` gives an object of more than {MAX_OBJECT_BYTES} bytes")
        where = f"object {number} of `{stream}` in `{self._shown}`"
        head = read_head(raw, where)
        # Heads only grow, so the n-th of a stream cannot be of an entry before the n-th.
        if (head.tenant, head.stream) != (tenant_id, stream) or head.seq < number - 1:
            raise Integrity(f"{where} is a head of something else; keep it, and look who wrote it")
        return head

    def _place(self, tenant_id: str, stream: str, number: int) -> str:
        return f"{self._url}/t.{quote(tenant_id, safe='')}/{quote(stream, safe='@')}/{number}"

    def _unavailable(self, detail: str) -> Unavailable:
        return Unavailable("witness", f"`{self._shown}`: {detail}")
