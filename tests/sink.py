"""A real sink on the loopback: it keeps an object once and gives it back, unless a test makes it do otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, bytes, dict[str, str]]
Fault = Callable[[str, str], Answer | None]
"""(method, path) -> what to answer instead, or None."""


@dataclass
class Sink:
    """`objects` by path; `requests` as (method, path) in order."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    overwrites: bool = False
    fault: Fault = lambda _method, _path: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, body: bytes, once: bool) -> Answer:
        with self.lock:
            self.requests.append((method, path))
            instead = self.fault(method, path)
            if instead is not None:
                return instead
            if method == "GET":
                return (200, self.objects[path], {}) if path in self.objects else (404, b"nothing here", {})
            if path in self.objects and once and not self.overwrites:
                return 412, b"", {}
            self.objects[path] = body
            return 201, b"", {}


@contextmanager
def sink() -> Iterator[Sink]:
    made = Sink()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_PUT()

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            once = self.headers.get("If-None-Match") == "*"
            status, said, headers = made.answer(self.command, self.path, body, once)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(said)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            """The test's output stays quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_port}/heads"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
