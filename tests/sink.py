"""A real sink on the loopback: it keeps an object once and gives it back, unless a test makes it do otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.loopback import Answer, Asked, serving

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

    def answer(self, asked: Asked) -> Answer:
        method, path, once = asked.method, asked.path, asked.headers.get("If-None-Match") == "*"
        with self.lock:
            self.requests.append((method, path))
            instead = self.fault(method, path)
            if instead is not None:
                return instead
            if method == "GET":
                return (200, self.objects[path], {}) if path in self.objects else (404, b"nothing here", {})
            if path in self.objects and once and not self.overwrites:
                return 412, b"", {}
            self.objects[path] = asked.body
            return 201, b"", {}


@contextmanager
def sink() -> Iterator[Sink]:
    made = Sink()
    with serving(made.answer) as url:
        made.url = f"{url}/heads"
        yield made
