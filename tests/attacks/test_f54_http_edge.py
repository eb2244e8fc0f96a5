"""F54: a request that two readers of one connection would read in two ways, or that asks for what is not done here, is
refused by the service and by MCP over HTTP alike, before anything behind it runs; what HTTP allows is read as it says.

Bytes are sent to real server processes. What is no HTTP at all: `test_f53_http_sockets.py`.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.test_f53_http_sockets import Answer, answers_in
from tests.http_face import begin_refunds
from tests.issuer import ISSUER, issuer
from tests.mcp_face import ENVIRONMENT, TOKEN, free_port, oauth_workspace, refund_workspace, serve_tokens_words
from tests.mcp_face import serve_words as mcp_words
from tests.processes import ended
from tests.served import serving
from tests.world import run

END = b"Connection: close\r\n\r\n"
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@dataclass(frozen=True)
class Door:
    """A server, and a request that it answers with 200. `host` is the only host that it is for."""

    port: int
    method: bytes
    path: bytes
    headers: bytes
    body: bytes
    log: Path
    takes_queries: bool

    @property
    def host(self) -> bytes:
        return b"127.0.0.1:%d" % self.port

    def request(self, **changes: bytes) -> bytes:
        """The request with changes: `target`, `version`, `host` (whole lines), `more` (lines), `body`, `length`."""
        body = changes.get("body", self.body)
        length = changes.get("length", b"Content-Length: %d\r\n" % len(body) if body else b"")
        host = changes.get("host", b"Host: " + self.host + b"\r\n")
        first = b" ".join((changes.get("method", self.method), changes.get("target", self.path), b"HTTP/"))
        end = changes.get("end", END)
        headers = changes.get("headers", self.headers)
        return (
            first
            + changes.get("version", b"1.1")
            + b"\r\n"
            + host
            + headers
            + length
            + changes.get("more", b"")
            + end
            + body
        )

    def send(self, *parts: bytes) -> list[Answer]:
        with socket.create_connection(("127.0.0.1", self.port), 60) as peer:
            read = b""
            try:
                for part in parts:
                    peer.sendall(part)
                peer.settimeout(60)
                while got := peer.recv(1 << 16):
                    read += got
            except ConnectionError:
                pass
        return answers_in(read)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder, port = tmp_path_factory.mktemp("service"), free_port()
    run(begin_refunds(folder / "w"))
    with serving(folder / "w", port, "--only-host", f"127.0.0.1:{port}") as server:
        token = b"Authorization: Bearer " + server.login().encode() + b"\r\n"
        made = Door(port, b"GET", b"/v1/runs", token, b"", server.log, takes_queries=True)
        yield made
        assert json.loads(made.send(made.request())[0].body)["items"] == []
        log = server.stop()
    assert not re.search("Traceback|Exception|defect", log), log


def mcp_server(folder: Path, words: list[str], port: int) -> Iterator[Path]:
    log = folder / "log"
    command = [sys.executable, "-W", "error", "-m", "contextos.cli", *words]
    with log.open("wb") as out, ended(subprocess.Popen(command, stdout=out, stderr=out, env=ENVIRONMENT)) as process:
        while b"127.0.0.1:" not in log.read_bytes():
            assert process.poll() is None, log.read_text("utf-8")
        yield log
        assert not re.search("Traceback|Exception in", log.read_text("utf-8")), log.read_text("utf-8")


MCP_HEADERS = (
    b"Authorization: Bearer %b\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    b"MCP-Protocol-Version: 2025-06-18\r\n" % TOKEN.encode()
)


@pytest.fixture(scope="module")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder, port = tmp_path_factory.mktemp("mcp"), free_port()
    workspace = refund_workspace(folder / "shop")
    (workspace / "token").touch(0o600)
    (workspace / "token").write_text(TOKEN)
    words = mcp_words(workspace, "s1", "--http", f"127.0.0.1:{port}", "--token-file", str(workspace / "token"))
    for log in mcp_server(folder, words, port):
        yield Door(port, b"POST", b"/mcp", MCP_HEADERS, PING, log, takes_queries=False)


@pytest.fixture(scope="module")
def oauth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder, port = tmp_path_factory.mktemp("oauth"), free_port()
    with issuer() as keys:
        workspace = oauth_workspace(folder / "shop", keys.url, port)
        for log in mcp_server(folder, serve_tokens_words(workspace, port), port):
            yield Door(port, b"POST", b"/mcp", MCP_HEADERS, PING, log, takes_queries=False)


@pytest.fixture(params=["service", "mcp"])
def door(request: pytest.FixtureRequest) -> Door:
    found: Door = request.getfixturevalue(request.param)
    return found


def said(answer: Answer) -> tuple[int, str]:
    """The status and the code of a problem document."""
    assert answer.headers["content-type"] == "application/problem+json", answer
    assert answer.headers["connection"] == "close"
    document: dict[str, Any] = json.loads(answer.body)
    assert document["status"] == answer.status
    assert document["detail"]
    return answer.status, document["code"]


CHUNKED = b"Transfer-Encoding: chunked\r\n"

REFUSED: dict[str, tuple[dict[str, bytes], int, str]] = {
    # RFC 9112, 3.2: the host.
    "no host": ({"host": b""}, 400, "no_http"),
    "two hosts": ({"more": b"Host: other\r\n"}, 400, "no_http"),
    "an empty host": ({"host": b"Host: \r\n"}, 400, "bad_host"),
    "a host with a user": ({"host": b"Host: a@b\r\n"}, 400, "bad_host"),
    "a host with a path": ({"host": b"Host: a/b\r\n"}, 400, "bad_host"),
    "a foreign host": ({"host": b"Host: evil.example\r\n"}, 421, "misdirected"),
    "the host on another port": ({"host": b"Host: 127.0.0.1:1\r\n"}, 421, "misdirected"),
    "a foreign host in the address": ({"target": b"http://evil.example/v1/runs"}, 421, "misdirected"),
    "no host in the address": ({"target": b"http:///v1/runs"}, 400, "bad_host"),
    "a user in the address": ({"target": b"http://u:p@127.0.0.1/v1/runs"}, 400, "bad_host"),
    # The address.
    "an encoded slash": ({"target": b"/v1%2Fruns"}, 404, "not_found"),
    "an encoded slash, small": ({"target": b"/%2fmcp"}, 404, "not_found"),
    "an encoded backslash": ({"target": b"/v1%5Cruns"}, 404, "not_found"),
    "a parameter twice": ({"target": b"/v1/runs?limit=1&limit=2"}, 400, "parameter_twice"),
    "a parameter twice, encoded": ({"target": b"/mcp?session=a&s%65ssion=b"}, 400, "parameter_twice"),
    "an address that is too long": ({"target": b"/v1/runs?q=" + b"a" * 9_000}, 414, "target_too_long"),
    "headers that are too large": ({"more": b"X-One: %b\r\n" % (b"a" * 33_000)}, 431, "head_too_large"),
    # The headers.
    "a media type twice": ({"more": b"Content-Type: text/plain\r\nContent-Type: text/plain\r\n"}, 400, "header_twice"),
    "a key twice": ({"more": b'Idempotency-Key: "a"\r\nIdempotency-Key: "a"\r\n'}, 400, "header_twice"),
    "a coding": ({"more": b"Content-Encoding: gzip\r\n"}, 415, "unsupported_content_encoding"),
    "two codings": (
        {"more": b"Content-Encoding: identity\r\nContent-Encoding: br\r\n"},
        415,
        "unsupported_content_encoding",
    ),
    "If-Match": ({"more": b'If-Match: "a"\r\n'}, 412, "unsupported_condition"),
    "If-Unmodified-Since": (
        {"more": b"If-Unmodified-Since: Sun, 29 Nov 2026 15:17:16 GMT\r\n"},
        412,
        "unsupported_condition",
    ),
    # RFC 9112, 5.2, 6 and 7.1: where a request ends.
    "a header in two lines": ({"more": b"X-One: a\r\n b\r\n"}, 400, "no_http"),
    "a header in two lines, by a tab": ({"more": b"X-One: a\r\n\tb\r\n"}, 400, "no_http"),
    "a line without CR": ({"more": b"X-One: a\nX-Two: b\r\n"}, 400, "no_http"),
    "an end without CR": ({"end": b"X-One: a\n\n", "body": b""}, 400, "no_http"),
    "an end with one CR": ({"end": b"X-One: a\n\r\n", "body": b""}, 400, "no_http"),
    "one length twice": ({"length": b"Content-Length: 2\r\nContent-Length: 2\r\n", "body": b"{}"}, 400, "no_http"),
    "one length twice in a line": ({"length": b"Content-Length: 2, 2\r\n", "body": b"{}"}, 400, "no_http"),
    "a length and chunks": ({"length": b"Content-Length: 2\r\n" + CHUNKED, "body": b"0\r\n\r\n"}, 400, "two_lengths"),
    "chunks in HTTP/1.0": ({"version": b"1.0", "length": CHUNKED, "body": b"0\r\n\r\n"}, 400, "two_lengths"),
    "another coding of the transfer": (
        {"length": b"Transfer-Encoding: gzip\r\n"},
        501,
        "unsupported_transfer_encoding",
    ),
    "chunks, misspelt": ({"length": b"Transfer-Encoding: xchunked\r\n"}, 501, "unsupported_transfer_encoding"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_request_with_two_readings_or_none_is_refused(door: Door, case: tuple[dict[str, bytes], int, str]) -> None:
    changes, status, code = case
    # A second request behind it must not be answered.
    answers = door.send(door.request(**changes) + door.request())
    assert [said(one) for one in answers] == [(status, code)]


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"])
def test_no_address_is_led_to_another(door: Door, method: bytes) -> None:
    for more in (b"", b"X-Forwarded-Proto: https\r\nForwarded: proto=https\r\n"):
        [answer] = door.send(door.request(method=method, target=door.path + b"/?session=s1", more=more))
        assert answer.status == 404
        assert "location" not in answer.headers


BROKEN_CHUNKS = {
    "a long extension": b"2;" + b"a" * 300 + b"\r\n{}\r\n0\r\n\r\n",
    "a LF in an extension": b"2;a\nb\r\n{}\r\n0\r\n\r\n",
    "a CR in an extension": b"2;a\rb\r\n{}\r\n0\r\n\r\n",
    "a CR behind an extension": b"2;a\r\r\n{}\r\n0\r\n\r\n",
    "a NUL in an extension": b"2;a\0b\r\n{}\r\n0\r\n\r\n",
    "a CR in the extension of the last chunk": b"2\r\n{}\r\n0;a\rb\r\n\r\n",
    "a CR in a trailer": b"2\r\n{}\r\n0\r\nX-One: a\rb\r\n\r\n",
    "a line without CR": b"2\n{}\r\n0\r\n\r\n",
    "data without its end": b"2\r\n{}0\r\n\r\n",
    "an end without CR": b"2\r\n{}\n0\r\n\r\n",
    "a trailer without CR": b"2\r\n{}\r\n0\r\nX-One: a\n\r\n",
    "trailers that end without CR": b"2\r\n{}\r\n0\r\nX-One: a\n\n",
    "the last line without CR": b"2\r\n{}\r\n0\r\n\n",
    "a size with a sign": b"+2\r\n{}\r\n0\r\n\r\n",
    "a size with a prefix": b"0x2\r\n{}\r\n0\r\n\r\n",
    "a size of 21 digits": b"000000000000000000002\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("body", BROKEN_CHUNKS.values(), ids=BROKEN_CHUNKS.keys())
def test_chunks_with_two_readings_end_the_connection(door: Door, body: bytes) -> None:
    typed = door.headers if b"Content-Type" in door.headers else door.headers + b"Content-Type: application/json\r\n"
    # `POST /v1/runs` reads the body, and so does `POST /mcp`.
    sent = door.request(method=b"POST", length=CHUNKED, headers=typed, body=body, end=b"\r\n")
    answers = door.send(sent + door.request())
    assert len(answers) <= 1
    assert all(one.status == 400 for one in answers)


ALLOWED: dict[str, dict[str, bytes]] = {
    "as it is": {},
    "the host in capitals": {"more": b"X-One: a\r\nX-One: b\r\n"},
    "no coding": {"more": b"Content-Encoding: identity\r\n"},
    "no parameters": {"query": b"?&&=&"},
}


@pytest.mark.parametrize("case", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_http_allows_is_answered(door: Door, case: dict[str, bytes]) -> None:
    changes = {name: value for name, value in case.items() if name != "query"}
    target = door.path + case.get("query", b"")
    for prefix in (b"", b"http://" + door.host, b"HTTP://" + door.host):
        # With the absolute form the host of the address counts, whatever `Host` says.
        host = b"Host: evil.example\r\n" if prefix else b"Host: " + door.host + b"\r\n"
        for empty in (b"", b"\r\n", b"\r\n\r\n"):
            [answer] = door.send(empty + door.request(target=prefix + target, host=host, **changes))
            assert answer.status == 200, answer


def test_an_empty_line_in_pieces_and_between_requests_is_no_request(door: Door) -> None:
    first = door.request(end=b"\r\n")
    parts = [b"\r", b"\n", first, b"\r\n", b"\r", b"\n" + first, b"\r\n" + door.request()]
    assert [one.status for one in door.send(*parts)] == [200, 200, 200]
    assert [one.status for one in door.send(b"\n" + door.request())] == [400]
    assert [one.status for one in door.send(b"\r\r\n" + door.request())] == [400]


def test_chunks_with_a_short_extension_are_one_body(mcp: Door) -> None:
    body = b"%x;a=b\r\n%b\r\n0;c\r\nX-One: a\r\n\r\n" % (len(PING), PING)
    [answer] = mcp.send(mcp.request(length=CHUNKED, body=body))
    assert (answer.status, json.loads(answer.body)["result"]) == (200, {})


@pytest.mark.parametrize("sent", [b"text/plain", b"application/jsonx", b"application/json; charset=utf-16", b""])
def test_another_media_type_is_named_as_such(door: Door, sent: bytes) -> None:
    kept = b"".join(one + b"\r\n" for one in door.headers.split(b"\r\n") if one and not one.startswith(b"Content-Type"))
    stated = kept + (b"Content-Type: " + sent + b"\r\n" if sent else b"")
    [answer] = door.send(door.request(method=b"POST", headers=stated, body=b"{}"))
    assert answer.status == 415
    assert answer.headers["accept"] == "application/json"


@pytest.mark.parametrize("asked", ["null", "true", "1.5", "[]", "{}"])
@pytest.mark.parametrize("method", ["ping", "tools/list"])
def test_a_message_with_an_id_that_nobody_can_answer_is_an_error(mcp: Door, asked: str, method: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":{asked},"method":"{method}"}}'.encode()
    [answer] = mcp.send(mcp.request(body=body))
    answered = json.loads(answer.body)
    assert (answer.status, answered["id"], answered["error"]["code"]) == (400, None, -32600)


def test_a_server_without_an_issuer_has_no_metadata(mcp: Door, service: Door) -> None:
    for path in (b"/.well-known/oauth-protected-resource", b"/.well-known/oauth-protected-resource/mcp"):
        for door in (mcp, service):
            [answer] = door.send(door.request(method=b"GET", target=path, headers=b"", body=b""))
            assert answer.status == 404


def test_a_server_of_an_issuer_says_where_tokens_come_from(oauth: Door) -> None:
    [refused] = oauth.send(oauth.request())
    assert refused.status == 401
    [url] = re.findall(r'resource_metadata="http://127\.0\.0\.1:\d+([^"]+)"', refused.headers["www-authenticate"])
    [answer] = oauth.send(oauth.request(method=b"GET", target=url.encode(), headers=b"", body=b""))
    document = json.loads(answer.body)
    assert document["resource"] == f"http://127.0.0.1:{oauth.port}/mcp"
    assert [one.rstrip("/") for one in document["authorization_servers"]] == [ISSUER.rstrip("/")]


def test_other_methods_name_those_that_there_are(door: Door) -> None:
    for method in (b"PUT", b"OPTIONS", b"TRACE", b"BREW"):
        [answer] = door.send(door.request(method=method))
        assert answer.status == 405
        assert door.method.decode() in answer.headers["allow"]
