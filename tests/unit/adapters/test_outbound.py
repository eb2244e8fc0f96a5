"""Destinations and addresses; `tests/attacks/test_d35_outbound_requests.py` attacks the client itself."""

from __future__ import annotations

import asyncio

import pytest

from contextos.adapters.outbound import (
    OutboundClient,
    OutboundRequest,
    destination,
    is_internal,
    is_public,
    system_resolve,
)
from contextos.errors import InvalidInput, Unavailable
from tests.raw_http import raw_server


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
