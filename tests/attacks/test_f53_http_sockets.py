"""F53: bytes that no client library would send reach a real server. Each is answered as HTTP says or ends the
connection; nothing is stored, no other resource is reached, and the log has no stack.

What is late, too much or not read is attacked in `tests/unit/server/test_connections.py`.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.http_face import begin_refunds
from tests.served import Served, serving
from tests.world import run

HOST = b"Host: 127.0.0.1\r\n"
END = b"Connection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
JSON = b"Content-Type: application/json\r\n"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Target:
    """The server, and the header of its requester."""

    server: Served
    token: bytes

    def send(self, *parts: bytes) -> list[Answer]:
        """Send bytes, and read the answers until the server ends the connection."""
        with socket.create_connection(("127.0.0.1", self.server.port), 60) as peer:
            try:
                for part in parts:
                    peer.sendall(part)
            except ConnectionError:
                pass  # It was refused before it was read.
            read = b""
            try:
                while got := peer.recv(1 << 16):
                    read += got
            except ConnectionError:
                pass
        return answers_in(read)

    def runs(self) -> list[str]:
        [answer] = self.send(b"GET /v1/runs HTTP/1.1\r\n", HOST, self.token, END)
        return [one["run_id"] for one in json.loads(answer.body)["items"]]


def answers_in(read: bytes) -> list[Answer]:
    """The answers in what a connection sent, each of which states its length."""
    found = []
    while read:
        head, _, read = read.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        found.append(Answer(int(first.split()[1]), headers, read[:size]))
        read = read[size:]
    return found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("sockets")
    run(begin_refunds(folder / "w"))
    with serving(folder / "w") as server:
        made = Target(server, b"Authorization: Bearer " + server.login().encode() + b"\r\n")
        yield made
        assert made.runs() == []
        log = server.stop()
    # Whatever came, nobody reads a stack or a fault of ours.
    assert not re.search("Traceback|Exception|defect", log), log


def is_problem(answer: Answer, *statuses: int) -> bool:
    assert answer.headers["content-type"] == "application/problem+json", answer
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert json.loads(answer.body)["status"] == answer.status
    return answer.status in statuses


GET = b"GET /v1/health HTTP/1.1\r\n"
POST = b"POST /v1/runs HTTP/1.1\r\n"

NO_HTTP = {
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500) + b"\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no version": b"GET /v1/health\r\n\r\n",
    "another version": b"GET /v1/health HTTP/9.9\r\n\r\n",
    "no host": GET + END,
    "two hosts": GET + HOST + b"Host: evil\r\n" + END,
    "a space before the colon": GET + HOST + b"X-One : a\r\n" + END,
    "a NUL in a header": GET + HOST + b"X-One: a\0b\r\n" + END,
    "a NUL in the address": b"GET /v1/health\0 HTTP/1.1\r\n" + HOST + END,
    "bytes in the address": b"GET /v1/\xff\xfe HTTP/1.1\r\n" + HOST + END,
    "a space in the address": b"GET /v1/health x HTTP/1.1\r\n" + HOST + END,
    "a header without a name": GET + HOST + b": a\r\n" + END,
    "a carriage return alone": GET + HOST + b"X-One: a\rX-Two: b\r\n" + END,
    "a length with a sign": POST + HOST + b"Content-Length: +5\r\n" + END,
    "a negative length": POST + HOST + b"Content-Length: -1\r\n" + END,
    "a length in hexadecimal": POST + HOST + b"Content-Length: 0x5\r\n" + END,
    "an endless length": POST + HOST + b"Content-Length: " + b"9" * 40 + b"\r\n" + END,
    "two lengths that differ": POST + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n" + END,
    "chunks twice": POST + HOST + b"Transfer-Encoding: chunked, chunked\r\n" + END,
    "an encoding that nobody has": POST + HOST + b"Transfer-Encoding: gzip, chunked\r\n" + END,
    "a method without an end": b"A" * 100_000 + b" / HTTP/1.1\r\n" + HOST + END,
    "a line without an end": b"GET /" + b"a" * 100_000,
    "headers without an end": GET + HOST + b"X-One: a\r\n" * 20_000,
}


@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP.keys())
def test_what_is_no_http_ends_the_connection(target: Target, sent: bytes) -> None:
    answers = target.send(sent)
    # A large one is cut off while it is sent, so that its sender may read no answer.
    assert answers or len(sent) > 50_000
    assert all(is_problem(one, 400, 414, 431, 501, 505) and one.headers["connection"] == "close" for one in answers)
    assert len(answers) <= 1


BROKEN_BODIES = {
    "a size that is not a number": b"zz\r\n{}\r\n0\r\n\r\n",
    "a negative size": b"-2\r\n{}\r\n0\r\n\r\n",
    "an endless size": b"f" * 60_000 + b"\r\n",
    "an endless extension": b"2;" + b"a" * 60_000,
    "more than the size": b"2\r\n{}{}{}\r\n0\r\n\r\n",
    "trailers without an end": b"2\r\n{}\r\n0\r\n" + b"X-One: a\r\n" * 20_000,
}


@pytest.mark.parametrize("body", BROKEN_BODIES.values(), ids=BROKEN_BODIES.keys())
@pytest.mark.parametrize("known", [True, False], ids=["known", "anonymous"])
def test_a_body_of_broken_chunks_ends_the_connection(target: Target, body: bytes, known: bool) -> None:
    # Without a token the answer is there before the body is read.
    head = POST + HOST + JSON + CHUNKED + (target.token if known else b"") + b"\r\n"
    answers = target.send(head, body)
    assert all(is_problem(one, 400, 401) for one in answers)
    assert len(answers) <= 1


def test_two_lengths_of_one_body_are_refused_before_a_second_request_hides_in_it(target: Target) -> None:
    hidden = b"GET /v1/health HTTP/1.1\r\n" + HOST + END
    body = b"0\r\n\r\n" + hidden
    head = POST + HOST + JSON + CHUNKED + b"Content-Length: %d\r\n" % len(body) + target.token + b"\r\n"
    answers = target.send(head + body)
    assert [one.status for one in answers] == [400]
    assert json.loads(answers[0].body)["code"] == "two_lengths"


def test_a_broken_body_of_head_is_answered_without_one(target: Target) -> None:
    head = b"HEAD /v1/runs HTTP/1.1\r\n" + HOST + CHUNKED + target.token + b"\r\n"
    read = b""
    with socket.create_connection(("127.0.0.1", target.server.port), 60) as peer:
        peer.sendall(head + b"zz\r\n{}\r\n0\r\n\r\n")
        while got := peer.recv(1 << 16):
            read += got
    assert read.startswith(b"HTTP/1.1 400 ")
    assert read.endswith(b"\r\n\r\n"), "no body"
    assert b"content-length: 0" not in read.lower()


def test_what_is_no_http_after_a_head_is_answered_with_a_body(target: Target) -> None:
    kept = b"HEAD /v1/health HTTP/1.1\r\n" + HOST + b"\r\n"
    with socket.create_connection(("127.0.0.1", target.server.port), 60) as peer:
        peer.sendall(kept)
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        peer.sendall(b"no HTTP\r\n\r\n")
        read = b""
        while got := peer.recv(1 << 16):
            read += got
    [answer] = answers_in(read)
    assert is_problem(answer, 400)


ADDRESSES = {
    "two slashes": (b"//v1/health", 404),
    "dots": (b"/v1/x/../health", 404),
    "encoded dots": (b"/v1/%2e%2e/v1/health", 404),
    "an encoded NUL": (b"/v1/health%00", 404),
    "a line in it": (b"/v1/health%0d%0aX-One:%20a", 404),
    "a parameter of a segment": (b"/v1/health;a=b", 404),
    "a backslash": (b"/v1\\health", 404),
    "another host": (b"http://evil.example/v1/nothing", 404),
    "another scheme": (b"file:///etc/passwd", 404),
    "the asterisk": (b"*", 404),
    "no UTF-8": (b"/v1/runs/%ff%fe", 404),
    "half of an escape": (b"/v1/runs/%2", 404),
    "a surrogate": (b"/v1/runs/%ed%a0%80", 404),
    "an encoded slash": (b"/v1/runs/..%2f..%2fhealth", 404),
    "a slash at the end": (b"/v1/health/", 404),
    "empty parameters": (b"/v1/health?&&=&", 200),
}


@pytest.mark.parametrize(("address", "status"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_an_address_that_plays_tricks_leads_nowhere(target: Target, address: bytes, status: int) -> None:
    [answer] = target.send(b"GET " + address + b" HTTP/1.1\r\n" + HOST + target.token + END)
    assert answer.status == status
    assert status == 200 or is_problem(answer, 404)
    assert "x-one" not in answer.headers


@pytest.mark.parametrize("method", [b"CONNECT", b"OPTIONS", b"TRACE", b"head", b"get"])
def test_a_method_that_plays_tricks_opens_no_tunnel(target: Target, method: bytes) -> None:
    answers = target.send(method + b" /v1/runs HTTP/1.1\r\n" + HOST + target.token + END)
    assert [one.status for one in answers] == [405]


def test_head_is_answered_without_a_body_that_would_be_the_next_answer(target: Target) -> None:
    sent = b" /v1/health HTTP/1.1\r\n" + HOST
    [head] = target.send(b"HEAD" + sent + END)
    [got] = target.send(b"GET" + sent + END)
    assert (head.status, head.body, got.status) == (200, b"", 200)
    assert {**head.headers, "date": ""} == {**got.headers, "date": ""}
    with socket.create_connection(("127.0.0.1", target.server.port), 60) as peer:
        peer.sendall(b"HEAD" + sent + b"\r\n" + b"GET" + sent + END)
        read = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    assert read.count(got.body) == 1
    assert read.endswith(got.body)


def test_an_upgrade_to_another_protocol_is_ignored(target: Target) -> None:
    for upgrade in (b"websocket", b"h2c"):
        asked = b"Upgrade: " + upgrade + b"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        [answer] = target.send(GET + HOST + asked + b"Connection: Upgrade, close\r\n\r\n")
        assert answer.status == 200


def test_a_client_of_http_1_0_is_answered_and_its_connection_ends(target: Target) -> None:
    [answer] = target.send(b"GET /v1/health HTTP/1.0\r\n\r\n")
    assert json.loads(answer.body) == {"status": "live"}


def test_requests_that_do_not_wait_for_answers_are_answered_in_order(target: Target) -> None:
    paths = [b"/v1/health", b"/v1/nothing", b"/v1/ready", b"/v1/runs"] * 20
    sent = b"".join(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n" for path in paths)
    answers = target.send(sent, GET + HOST + END)
    assert [one.status for one in answers] == [200, 404, 200, 401] * 20 + [200]


def test_a_body_is_asked_for_only_from_a_caller_who_is_known(target: Target) -> None:
    head = POST + HOST + JSON + b"Content-Length: 2\r\nExpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", target.server.port), 60) as peer:
        peer.sendall(head + target.token + END)
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        peer.sendall(b"{}")
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
    [answer] = target.send(head + END)
    assert is_problem(answer, 401)


def test_a_body_that_ends_too_early_stores_nothing(target: Target) -> None:
    body = (target.server.log.parent / "w" / "requests" / "small.json").read_bytes()
    head = POST + HOST + JSON + b"Content-Length: %d\r\n" % (len(body) + 1) + target.token + b"\r\n"
    with socket.create_connection(("127.0.0.1", target.server.port), 60) as peer:
        peer.sendall(head + body)
    assert target.runs() == []


def test_files_are_not_reached_by_any_address(target: Target) -> None:
    for path in (Path("/contextos.toml"), Path("/keys/runtime.json"), Path("/schemas/../contextos.toml")):
        [answer] = target.send(b"GET %b HTTP/1.1\r\n" % str(path).encode(), HOST, target.token, END)
        assert is_problem(answer, 404)
