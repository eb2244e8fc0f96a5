"""A pack changed leaf by leaf, and what a deployment does with each change.

A change is refused (by the contract, by lint, or at pinning), or it alters what runs do, or it is descriptive. What
runs do is everything in their journals but times and digests, and what moved in the shop's own books.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from contextos.errors import ContextOSError
from tests.world import APPROVER, TENANT, TestWorld, open_world

Leaf = tuple[str | int, ...]

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_ANY_ID: Final = re.compile(
    r"(?:run|pol|appr|rp|plan|tool|tool_tx|mwp)_[0-9a-f]{16}|dr_[0-9_]{11}[0-9a-f]{16}|ik_[a-z0-9]{16}"
)
_LEFT_OUT: Final = frozenset(
    {"pins", "at_us", "timestamp", "pack_ref", "latency_ms", "assertion", "nonce", "publishers"}
)


def leaves(value: Any, at: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """Every scalar and every empty list or object, with its place."""
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from leaves(below, (*at, name))
    elif isinstance(value, list) and value:
        for index, below in enumerate(value):
            yield from leaves(below, (*at, index))
    else:
        yield at, value


def changes_of(value: Any) -> list[Any]:
    """Other values of the same type, close to this one: a change counts if one of them does."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1, 1]
    if isinstance(value, str):
        return [f"{value}x" if not value or value[-1].isalpha() else f"{value}9"]
    return [["x"] if isinstance(value, list) else {"x": 1}]


def mutated(body: Any, at: Leaf, value: Any) -> Any:
    body = copy.deepcopy(body)
    node = body
    for part in at[:-1]:
        node = node[part]
    node[at[-1]] = value
    return body


def _plain(value: Any) -> Any:
    """What a run did, without times, digests and ids: what a change of one leaf can alter."""
    if isinstance(value, Mapping):
        return {_ANY_ID.sub("<id>", name): _plain(below) for name, below in value.items() if name not in _LEFT_OUT}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    return _ANY_ID.sub("<id>", _DIGEST.sub("<digest>", value)) if isinstance(value, str) else value


async def _played(world: TestWorld, body: Mapping[str, Any]) -> Any:
    """One request to its end; a person approves what is asked. Returns the journal of the run, its compiled contexts,
    and the books.
    """
    try:
        view = await world.invoke(body)
        if view.state == "waiting":
            view = await world.approve(view.run_id, approver=APPROVER)
    except ContextOSError as error:
        return type(error).__name__
    entries = await world.stores.tenant(TENANT).read(view.run_id)
    told = [(one.kind, one.key, _plain(orjson.loads(one.body or b"null"))) for one in entries]
    contexts = [_plain(one) for one in await world.contexts(view.run_id)]
    return [told, contexts, [(refund["order_id"], refund["amount_inr"]) for refund in world.refunds()]]


async def behaviour(
    path: Path,
    body: Any,
    requests: Sequence[Mapping[str, Any]],
    expected: Sequence[Any],
    adapters: Mapping[str, Any],
    egress: Mapping[str, tuple[str, ...]],
) -> list[Any]:
    """What a deployment with this pack does with the requests, up to the first that differs from `expected`."""

    def replace(pack: dict[str, Any]) -> None:
        pack.clear()
        pack.update(body)

    try:
        world = await open_world(path, pack=replace, egress=egress)
        world.adapters.update(adapters)
    except ContextOSError as error:
        return [f"refused: {error}"]
    seen: list[Any] = []
    for number, one in enumerate(requests):
        seen.append(await _played(world, one))
        if number < len(expected) and seen[-1] != expected[number]:
            break
    world.close()
    return seen
