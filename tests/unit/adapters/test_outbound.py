"""Destinations and addresses; `tests/attacks/test_d35_outbound_requests.py` attacks the client itself."""

from __future__ import annotations

import asyncio

import pytest

from contextos.adapters.outbound import (
    OutboundClient,
    OutboundRequest,
    OutboundStream,
    destination,
    is_internal,
    is_public,
    system_resolve,
)
from contextos.errors import InvalidInput, LostReply, Unavailable
from tests.raw_http import RawServer, raw_server


@pytest.mark.parametrize(
    ("url", "endpoint", "target"),
    [
        ("https://api.example", "api.example:443", "/"),
        ("https://api.example/a/b.json?x=%2F&y[]=1", "api.example:443", "/a/b.json?x=%2F&y[]=1"),
        ("https://xn--bcher-kva.example:8443/", "xn--bcher-kva.example:8443", "/"),
        ("http://127.0.0.1:80/", "127.0.0.1:80", "/"),
        ("https://api.example/a..b/.c/...", "api.example:443", "/a..b/.c/..."),
    ],
)
def test_a_plain_url_leads_where_it_says(url: str, endpoint: str, target: str) -> None:
    found = destination(url)
    assert (found.endpoint, found.target) == (endpoint, target)
    assert found.is_in([endpoint])


def test_a_name_without_a_port_allows_the_port_of_the_scheme_only() -> None:
    assert destination("https://api.example/").is_in(["api.example"])
    assert not destination("https://api.example:8443/").is_in(["api.example"])
    assert not destination("https://api.example/").is_in(["example", "api.example:8443", "x.api.example"])


def test_addresses_are_public_internal_or_neither() -> None:
    assert all(map(is_public, ["9.9.9.9", "2606:4700:4700::1111", "64:ff9b::909:909", "2002:909:909::1"]))
    assert all(map(is_internal, ["127.0.0.1", "10.1.2.3", "192.168.0.1", "::1", "fd00::1", "::ffff:10.0.0.1"]))
    assert not any(map(is_internal, ["169.254.169.254", "0.0.0.0", "fe80::1", "9.9.9.9", "x", "::"]))


def test_the_next_address_of_a_name_is_tried_if_one_takes_no_connection() -> None:
    async def ask() -> None:
        async with raw_server(b"HTTP/1.1 204 x\r\n\r\n") as server:
            endpoint = f"shop.internal:{server.port}"

            async def resolve(_host: str, _port: int) -> list[str]:
                return ["127.0.0.2", "127.0.0.1"]

            client = OutboundClient(internal=[endpoint], resolve=resolve)
            answer = await client.send(OutboundRequest("GET", f"http://{endpoint}/"), egress=[endpoint], timeout_s=20)
            assert (answer.status, answer.body) == (204, b"")

    asyncio.run(ask())


def test_the_system_resolves_this_machine() -> None:
    assert set(asyncio.run(system_resolve("localhost", 80))) <= {"127.0.0.1", "::1"}


def test_a_name_that_does_not_resolve_is_unavailable_and_a_method_is_checked() -> None:
    async def ask(method: str) -> None:
        async def resolve(_host: str, _port: int) -> list[str]:
            raise OSError("no such host")

        request = OutboundRequest(method, "https://api.example/")
        await OutboundClient(resolve=resolve).send(request, egress=["api.example"], timeout_s=20)

    with pytest.raises(Unavailable):
        asyncio.run(ask("GET"))
    with pytest.raises(InvalidInput):
        asyncio.run(ask("CONNECT"))


HEAD = b"HTTP/1.1 200 OK\r\nX-Kind: events\r\nTransfer-Encoding: chunked\r\n\r\n"


def stream(server: RawServer, timeout_s: float = 20, max_bytes: int | None = None) -> OutboundStream:
    endpoint = f"127.0.0.1:{server.port}"
    request = OutboundRequest("POST", f"http://{endpoint}/", body=b"{}")
    client = OutboundClient(internal=[endpoint])
    return client.stream(request, egress=[endpoint], timeout_s=timeout_s, max_bytes=max_bytes)


def test_an_answer_is_read_while_its_end_is_not_there_yet_and_the_connection_ends_with_the_context() -> None:
    async def ask() -> None:
        async with raw_server(HEAD, b"2\r\nab\r\n", hangs=True) as server:
            async with stream(server) as answer:
                assert (answer.status, answer.headers["x-kind"], await anext(answer)) == (200, "events", b"ab")
            await asyncio.wait_for(server.open[0][0], 20)  # The server reads the end of the connection.

    asyncio.run(ask())


def test_each_part_does_not_begin_the_time_limit_again() -> None:
    async def ask() -> None:
        async def trickle() -> None:
            while True:
                server.open[0][1].write(b"1\r\na\r\n")
                await asyncio.sleep(0.02)

        async with raw_server(HEAD, hangs=True) as server, stream(server, timeout_s=0.3) as answer:
            sender = asyncio.create_task(trickle())
            with pytest.raises(LostReply, match=r"more than 0\.3 s"):
                b"".join([part async for part in answer])
            sender.cancel()

    asyncio.run(ask())


def test_a_stream_can_have_a_limit_of_its_own() -> None:
    async def read(max_bytes: int) -> bytes:
        body = (b"2\r\nab\r\n", b"2\r\ncd\r\n0\r\n\r\n")
        async with raw_server(HEAD, *body) as server, stream(server, max_bytes=max_bytes) as answer:
            return b"".join([part async for part in answer])

    assert asyncio.run(read(4)) == b"abcd"
    with pytest.raises(LostReply, match="more than 3 bytes"):
        asyncio.run(read(3))


def test_a_request_that_was_given_up_tells_whether_it_was_sent() -> None:
    async def given_up(opened: OutboundStream) -> bool:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), opened:
                raise AssertionError("there is no answer")
        return opened.sent

    async def ask() -> None:
        async with raw_server(hangs=True) as server:
            assert await given_up(stream(server))

        async def never(_host: str, _port: int) -> list[str]:
            return await asyncio.Future()

        client = OutboundClient(resolve=never)
        request = OutboundRequest("GET", "https://api.example/")
        assert not await given_up(client.stream(request, egress=["api.example"], timeout_s=20))

    asyncio.run(ask())
