"""Attack: one address opens every connection, stream or held call that a server has, and nobody else is answered.

Source: issue K1b, class I; docs/service.md, "Limits".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from contextos.errors import Overloaded
from contextos.server import connections
from contextos.server.rates import MAX_HELD_CALLS, MAX_STREAMS, Places, client_address
from tests.http_face import TENANT, HttpFace, http_face
from tests.unit.server.test_connections import HEALTH, rest, served
from tests.world import run


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("places")) as made:
        yield made


def test_one_address_opens_its_share_of_the_connections_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 6)
    monkeypatch.setattr(connections, "SPARE_CONNECTIONS", 1)

    async def act() -> list[bytes]:
        async with served(percent_per_address=50) as (port, _):

            async def opened(address: str) -> Any:
                return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
                writer.write(HEALTH.replace(b"Host", b"Connection: close\r\nHost"))
                try:
                    return await rest(reader)
                finally:
                    writer.close()

            held = []
            for _ in range(3):
                reader, writer = await opened("127.0.0.1")
                writer.write(HEALTH)
                await reader.readuntil(b"live")
                held.append(writer)
            refused = await opened("127.0.0.1")
            closed = await opened("127.0.0.1")
            found = [await rest(closed[0]), await answer(*refused), await answer(*await opened("127.0.0.2"))]
            held[0].close()
            await held[0].wait_closed()
            again = b""
            while not again.startswith(b"HTTP/1.1 200 "):
                again = await answer(*await opened("127.0.0.1"))
            for writer in (*held, closed[1]):
                writer.close()
            return [*found, again]

    closed, refused, other, again = run(act())
    head, _, body = refused.partition(b"\r\n\r\n")
    assert closed == b""
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in head.lower()
    assert (json.loads(body)["code"], "your address" in json.loads(body)["detail"]) == ("too_many_connections", True)
    assert other.endswith(b"live")
    assert again.endswith(b"live")


def test_one_address_reads_its_share_of_the_streams_whatever_its_tenants_are(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = Places("streams of events", 4, 4, percent_per_address=50)
    monkeypatch.setitem(face.api.state._state, "streams", streams)
    run_id = face.waiting_run()
    with ExitStack() as taken:
        for tenant in ("one", "two"):
            taken.enter_context(streams.place(tenant, "127.0.0.1"))
        refused = face.send("GET", f"/v1/runs/{run_id}/events")
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert "your address" in refused.json()["detail"]
        streams.check(TENANT, "127.0.0.2")
    streams.check(TENANT, "127.0.0.1")


def test_the_share_is_that_of_the_settings(face: HttpFace) -> None:
    percent = face.app.settings.pressure.max_http_percent_per_address
    assert percent == 50
    for places, most in ((face.api.state.streams, MAX_STREAMS), (face.api.state.held, MAX_HELD_CALLS)):
        with ExitStack() as taken:
            for number in range(most * percent // 100):
                taken.enter_context(places.place(f"tenant_{number}", "192.0.2.1"))
            with pytest.raises(Overloaded):
                places.check(TENANT, "192.0.2.1")
            places.check(TENANT, "192.0.2.2")


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("192.0.2.1", 7), "192.0.2.1"),
        (("2001:db8::1", 7), "2001:db8::/64"),
        (("2001:db8::ffff:1:2", 7), "2001:db8::/64"),
        (("::ffff:192.0.2.1", 7), "192.0.2.1"),
        (("fe80::1%eth0", 7), "fe80::/64"),
        (None, ""),
    ],
)
def test_every_address_of_one_machine_counts_as_one(client: Any, address: str) -> None:
    assert client_address(client) == address
