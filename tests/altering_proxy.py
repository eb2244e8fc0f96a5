"""A proxy on the loopback that alters one place of a JSON answer, and every place that it can alter."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from tests.loopback import Answer, Asked, serving

Path = tuple[str | int, ...]


class Alteration(NamedTuple):
    """A change of one place of a document."""

    name: str
    change: Callable[[Any], Any]

    def of(self, document: Any) -> Any:
        return self.change(copy.deepcopy(document))


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value within a document, with its place."""
    yield path, value
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield from places(child, (*path, name))


def alterations(document: Any) -> Iterator[Alteration]:
    """Each leaf changed to another one of its type and to one of another type, each member taken out, and a member
    added to each object and to each list.
    """
    for path, value in places(document):
        at = "/" + "/".join(map(str, path))
        if isinstance(value, dict):
            yield Alteration(f"add {at}/added", lambda found, path=path: _within(found, path, _added))
        elif isinstance(value, list):
            yield Alteration(f"append {at}", lambda found, path=path: _within(found, path, _appended))
        else:
            for number, other in enumerate(_others(value)):
                yield Alteration(
                    f"set {at} {number}",
                    lambda found, path=path, other=other: _within(found, path, lambda _value: other),
                )
        if path:
            yield Alteration(f"remove {at}", lambda found, path=path: _removed(found, path))


def _others(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value, int(value))
    if isinstance(value, int | float):
        return (value + 1, str(value), True)
    if isinstance(value, str):
        return (value + "x", value[:-1] if value else "y", None)
    return ("x", 0)


def _added(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "added": "eve"}


def _appended(value: list[Any]) -> list[Any]:
    return [*value, value[-1] if value else "eve"]


def _within(document: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(document)
    document[path[0]] = _within(document[path[0]], path[1:], change)
    return document


def _removed(document: Any, path: Path) -> Any:
    at = document
    for name in path[:-1]:
        at = at[name]
    del at[path[-1]]
    return document


@contextmanager
def altering(upstream: str, alter: Callable[[str, str, Any], Any]) -> Iterator[str]:
    """Alter answers on the way from `upstream` to a client: `alter` gets method, path and document of each."""
    with httpx.Client(base_url=upstream, trust_env=False, timeout=60) as server:

        def forward(asked: Asked) -> Answer:
            kept = {name: asked.headers[name] for name in ("Authorization", "Content-Type") if name in asked.headers}
            answer = server.request(asked.method, asked.path, content=asked.body, headers=kept)
            body = answer.content
            if answer.is_success:
                body = json.dumps(alter(asked.method, asked.path, answer.json())).encode()
            return answer.status_code, body, {"Content-Type": answer.headers["content-type"]}

        with serving(forward) as url:
            yield url
