"""Attacks on what adapters send: addresses that lead inside, and servers that answer with what nobody can hold.

Every refusal is proved against a real server on the loopback, which counts connections.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from itertools import repeat
from pathlib import Path

import pytest

from contextos.adapters.outbound import OutboundClient, OutboundRequest
from contextos.errors import ContextOSError, InvalidInput, LostReply, Unavailable
from tests.raw_http import RawServer, certificate, raw_server

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

HOSTS = (
    "127.0.0.1", "localhost", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7f.1", "0177.0.0.1", "017700000001", "127.1",
    "127.0.1", "0", "0.0.0.0", "00000177.0.0.1", "127.0.0.1.", "localhost.", "[::1]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[::]",
    "[fe80::1%25eth0]", "[fe80::1%eth0]", "[0:0:0:0:0:0:0:1]",
    "１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1", "ⓛocalhost",
    "loc\u200balhost", "LOCALHOST", "127.0.0.1%00", "127.0.0.1%2eexample.com", "%31%32%37.0.0.1", "127.0.0.1\t",
    "api.example@127.0.0.1", "api.example:pw@127.0.0.1", "127.0.0.1#@api.example", "127.0.0.1\\@api.example",
    "api.example\\@127.0.0.1", "127.0.0.1\n", " 127.0.0.1", "127.0.0.1?.api.example", "169.254.169.254",
    "127.127.127.127", "127..0.1", ".127.0.0.1", "-", "", "0x", "127.0.0.0x1", "127.0.0.1e0", "1.1.1.1.1", "256.0.0.1",
)  # fmt: skip
"""Host parts by which somebody hopes to reach this machine or the metadata service of a cloud."""

INSIDE = (
    "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "192.0.0.1", "198.18.0.1", "::1", "::", "::127.0.0.1", "::ffff:127.0.0.1",
    "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::1", "2001:0:7f00:1::", "fe80::1",
    "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "3fff::1", "fec0::1", "100::1", "5f00::1",
    "192.0.0.8", "192.0.0.192", "192.0.0.200", "192.88.99.1", "2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:7f00:1",
    "not an address", "2606:4700:4700::1111%lo",
)  # fmt: skip
"""Answers of a resolver that lead inside, or to no host."""


def answers(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


async def asked(client: OutboundClient, url: str, egress: Sequence[str], timeout_s: float = 20) -> object:
    try:
        return await client.send(OutboundRequest("POST", url, {}, b"{}"), egress=egress, timeout_s=timeout_s)
    except ContextOSError as error:
        return error


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_spelling_of_this_machine_is_reached(scheme: str) -> None:
    async def attack() -> None:
        async with raw_server(OK) as server:
            for host in HOSTS:
                for port in (f":{server.port}", ""):
                    url = f"{scheme}://{host}{port}/latest/meta-data"
                    # The attacker wrote the allow-list as well.
                    error = await asked(OutboundClient(), url, [host, f"{host}{port}", f"127.0.0.1:{server.port}"])
                    assert isinstance(error, InvalidInput), (url, error)
            assert server.connections == 0

    asyncio.run(attack())


@pytest.mark.parametrize(
    "url",
    [
        "//127.0.0.1/", "ftp://api.example/", "file:///etc/passwd", "gopher://127.0.0.1/", "HTTPS://api.example/",
        "https:/api.example/", "https://api.example/a/../../admin", "https://api.example/%2e%2e/admin", "",
        "https://api.example/.%2E", "https://api.example/a b", "https://api.example/\r\nX: 1", "https://api.example/#x",
        "https://api.example:0/", "https://api.example:65536/", "https://api.example:443:80/",
        "https://api.example/%zz", "https://api.example/\\evil", "https://api.example/a%2f..%2fadmin",
        "https://api.example/a/..;/admin", "https://api.example/%2e%2e;x/b", "https://api.example/a%5C..", "https://api.example/ü",
    ],
)  # fmt: skip
def test_an_address_that_readers_take_differently_is_refused(url: str) -> None:
    error = asyncio.run(asked(OutboundClient(resolve=answers("9.9.9.9")), url, ["api.example"]))
    assert isinstance(error, InvalidInput)


@pytest.mark.parametrize("address", INSIDE)
def test_a_name_that_leads_inside_is_refused_also_beside_a_public_address(address: str) -> None:
    async def attack() -> None:
        async with raw_server(OK) as server:
            endpoint = f"api.example:{server.port}"
            for found in ((address,), ("9.9.9.9", address), (address, "9.9.9.9")):
                error = await asked(OutboundClient(resolve=answers(*found)), f"https://{endpoint}/", [endpoint])
                assert isinstance(error, InvalidInput), found
                assert error.problems[0].code == "address_refused"
            assert server.connections == 0

    asyncio.run(attack())


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "0.0.0.0", "224.0.0.1", "240.0.0.1", "fe80::1", "::", "64:ff9b::a9fe:a9fe"]
)
def test_an_internal_endpoint_is_never_at_a_link_local_multicast_or_reserved_address(address: str) -> None:
    client = OutboundClient(internal=["shop.internal:8443"], resolve=answers(address))
    error = asyncio.run(asked(client, "https://shop.internal:8443/", ["shop.internal:8443"]))
    assert isinstance(error, InvalidInput)
    assert error.problems[0].code == "address_refused"


METADATA = (
    "169.254.169.254", "169.254.170.2", "169.254.0.23", "100.100.100.200", "100.88.222.5", "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1",
    "fd00:100::100:200", "fe80::a9fe:a9fe", "::ffff:100.100.100.200", "::ffff:168.63.129.16", "64:ff9b::a83f:8110",
    "64:ff9b::6464:64c8", "2002:a83f:8110::1", "2606:4700::5efe:168.63.129.16",
)  # fmt: skip
"""Metadata services of AWS, Google, Azure, Alibaba, Tencent, Oracle, Scaleway and Akamai, also in disguise."""


@pytest.mark.parametrize("address", METADATA)
def test_no_metadata_service_of_a_cloud_is_reached_also_by_an_internal_endpoint(address: str) -> None:
    endpoint = "shop.internal:8443"
    for internal in ([endpoint], []):
        for found in ((address,), ("10.0.0.7", address), (address, "9.9.9.9")):
            client = OutboundClient(internal=internal, resolve=answers(*found))
            error = asyncio.run(asked(client, f"https://{endpoint}/latest/meta-data/", [endpoint]))
            assert isinstance(error, InvalidInput), found
            assert error.problems[0].code == "address_refused"


@pytest.mark.parametrize("name", ["metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"])
def test_no_name_of_a_metadata_service_is_reached_whatever_its_address_is(name: str) -> None:
    for address in ("10.0.0.7", "127.0.0.1", "9.9.9.9"):
        client = OutboundClient(internal=[f"{name}:443"], resolve=answers(address))
        error = asyncio.run(asked(client, f"https://{name}/computeMetadata/v1/", [f"{name}:443"]))
        assert isinstance(error, InvalidInput)
        assert error.problems[0].code == "address_refused"


@pytest.mark.parametrize("address", ["168.63.129.16", "100.100.100.200"])
def test_the_literal_address_of_a_metadata_service_is_refused(address: str) -> None:
    client = OutboundClient(internal=[f"{address}:443"])
    error = asyncio.run(asked(client, f"https://{address}/", [f"{address}:443"]))
    assert isinstance(error, InvalidInput)
    assert error.problems[0].code == "address_refused"


def test_only_the_endpoint_that_is_stated_as_internal_can_be_on_the_loopback() -> None:
    async def attack() -> None:
        async with raw_server(OK) as stated, raw_server(OK) as other:
            endpoints = [f"127.0.0.1:{one.port}" for one in (stated, other)]
            client = OutboundClient(internal=endpoints[:1])
            assert getattr(await asked(client, f"http://{endpoints[0]}/", endpoints), "body", None) == b"ok"
            refused = await asked(client, f"http://{endpoints[1]}/", endpoints)
            assert isinstance(refused, InvalidInput)
            # Internal is no permission: the call's egress list still counts, and an empty one allows nothing.
            for egress in ([], endpoints[1:], ["127.0.0.1"]):
                assert isinstance(await asked(client, f"http://{endpoints[0]}/", egress), InvalidInput)
            assert (stated.connections, other.connections) == (1, 0)

    asyncio.run(attack())


def test_plain_http_reaches_no_other_machine() -> None:
    client = OutboundClient(internal=["shop.internal:80"], resolve=answers("10.0.0.7"))
    error = asyncio.run(asked(client, "http://shop.internal/", ["shop.internal"]))
    assert isinstance(error, InvalidInput)
    assert error.problems[0].code == "not_https"


def test_a_resolver_that_changes_its_answer_is_asked_once(tmp_path: Path) -> None:
    """DNS rebinding: the first answer is allowed, every later one leads elsewhere."""
    server_tls, client_tls = certificate(tmp_path, "api.example")

    async def attack() -> None:
        async with raw_server(OK, tls=server_tls) as server:
            endpoint, asks = f"api.example:{server.port}", []

            async def rebinding(host: str, _port: int) -> Sequence[str]:
                asks.append(host)
                return ["127.0.0.1"] if len(asks) == 1 else ["169.254.169.254"]

            client = OutboundClient(internal=[endpoint], resolve=rebinding, tls=client_tls)
            assert getattr(await asked(client, f"https://{endpoint}/a?b=%2F", [endpoint]), "body", None) == b"ok"
            assert asks == ["api.example"]
            assert server.names == ["api.example"]
            assert f"host: {endpoint}\r\n".encode() in server.requests[0].lower()
            assert server.requests[0].startswith(b"POST /a?b=%2F HTTP/1.1\r\n")
            assert isinstance(await asked(client, f"https://{endpoint}/", [endpoint]), InvalidInput)
            assert server.connections == 1

    asyncio.run(attack())


def test_a_server_without_the_certificate_of_the_name_gets_no_request(tmp_path: Path) -> None:
    server_tls, client_tls = certificate(tmp_path, "other.example")

    async def attack() -> None:
        async with raw_server(OK, tls=server_tls) as server:
            endpoint = f"api.example:{server.port}"
            for tls in (client_tls, None):
                client = OutboundClient(internal=[endpoint], resolve=answers("127.0.0.1"), tls=tls)
                assert isinstance(await asked(client, f"https://{endpoint}/", [endpoint]), Unavailable)
            assert server.requests == []

    asyncio.run(attack())


async def served(server: RawServer, timeout_s: float = 20) -> object:
    endpoint = f"127.0.0.1:{server.port}"
    return await asked(OutboundClient(internal=[endpoint]), f"http://{endpoint}/x", [endpoint], timeout_s)


def test_a_redirect_is_an_answer_and_is_never_followed() -> None:
    async def attack() -> None:
        async with raw_server(OK) as inside:
            moved = f"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:{inside.port}/\r\nContent-Length: 0\r\n\r\n"
            async with raw_server(moved.encode()) as server:
                assert getattr(await served(server), "status", None) == 307
            assert inside.connections == 0

    asyncio.run(attack())


def test_the_environment_sends_nothing_elsewhere_and_adds_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login root password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))

    async def attack() -> None:
        async with raw_server(OK) as server, raw_server(OK) as proxy:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            assert getattr(await served(server), "body", None) == b"ok"
            assert proxy.connections == 0
            head = server.requests[0].decode().lower()
            names = {line.partition(":")[0] for line in head.splitlines()[1:] if line}
            assert names == {"host", "accept-encoding", "connection", "content-length"}
            assert "accept-encoding: identity" in head

    asyncio.run(attack())


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "1", "x-a": "2"},
        {"X-A": "1\r\nX-B: 2"}, {"X-A": "1\nX-B: 2"}, {"X-A\r\nX-B": "2"}, {"X-A": "\x00"},
        {"X-A": "ü"}, {"X-A": " a"}, {"": "a"}, {"X A": "a"}, {"Host": "inside"}, {"transfer-encoding": "chunked"},
        {"Content-Length": "0"},
        {"Proxy-Authorization": "Basic x"}, {"Accept-Encoding": "gzip"}, {"X-A": "a" * 9000},
    ],
)  # fmt: skip
def test_no_header_can_be_smuggled(headers: dict[str, str]) -> None:
    async def attack() -> None:
        async with raw_server(OK) as server:
            endpoint = f"127.0.0.1:{server.port}"
            request = OutboundRequest("GET", f"http://{endpoint}/", headers)
            with pytest.raises(InvalidInput) as refused:
                await OutboundClient(internal=[endpoint]).send(request, egress=[endpoint], timeout_s=20)
            assert refused.value.problems[0].code == "bad_header"
            assert server.connections == 0

    asyncio.run(attack())


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
BROKEN = {
    "closes before it answers": [b""],
    "closes in the status line": [b"HTTP/1.1 20"],
    "closes in the headers": [HEAD],
    "closes in the body": [HEAD + b"Content-Length: 100\r\n\r\n{"],
    "closes in a chunk": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n40\r\nabc"],
    "closes before the last chunk": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"],
    "states no length": [HEAD + b"\r\n{}"],
    "is no HTTP": [b"220 mail.example ESMTP\r\n"],
    "has two lengths": [HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} "],
    "has too many headers": [HEAD + b"".join(b"X-%d: a\r\n" % n for n in range(200)) + b"Content-Length: 0\r\n\r\n"],
    "has endless headers": [HEAD, *repeat(b"X-A: " + b"a" * 1000 + b"\r\n", 2000)],
    "has two kinds of length": [HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNKS],
    "is compressed": [HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok"],
    "switches the protocol": [b"HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"],
}


@pytest.mark.parametrize("fault", BROKEN)
def test_an_answer_that_is_not_whole_is_a_lost_reply(fault: str) -> None:
    async def attack() -> None:
        async with raw_server(*BROKEN[fault]) as server:
            assert isinstance(await served(server), LostReply)
            assert server.connections == 1, "it is sent once"

    asyncio.run(attack())


def test_a_server_that_hangs_is_given_up_in_every_phase() -> None:
    async def attack() -> None:
        for answer in ([], [b"HTTP/1.1 200"], [HEAD], [HEAD + b"Content-Length: 9\r\n\r\n{"]):
            async with raw_server(parts=answer, hangs=True) as server:
                assert isinstance(await served(server, 0.2), LostReply)

        async def never(_host: str, _port: int) -> Sequence[str]:
            return await asyncio.Future()

        client = OutboundClient(resolve=never)
        assert isinstance(await asked(client, "https://api.example/", ["api.example"], 0.1), Unavailable)

    asyncio.run(attack())


def test_gigabytes_are_cut_off_and_memory_stays_small() -> None:
    endless = [HEAD + b"Content-Length: 8589934592\r\n\r\n", *repeat(b"a" * 65536, 8192)]
    chunked = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *repeat(b"10000\r\n" + b"a" * 65536 + b"\r\n", 8192)]

    async def attack() -> None:
        for answer in (endless, chunked):
            async with raw_server(parts=answer) as server:
                error = await served(server)
                assert isinstance(error, LostReply)
                assert "more than" in str(error)

    tracemalloc.start()
    try:
        asyncio.run(attack())
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


def test_nobody_listens_so_nothing_was_sent() -> None:
    async def attack() -> None:
        async with raw_server(OK) as server:
            pass
        assert isinstance(await served(server), Unavailable)

    asyncio.run(attack())
