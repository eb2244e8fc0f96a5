"""Records where each field of an expansion comes from: a tree of JSON whose leaves carry their origin.

A field is written by the author, is a default, or is derived from the declaration and the tools. A leaf can also carry
its place in the declaration, so that a fault of the leaf is reported there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.model import Model
from contextos.packs.expressions import Place, conjuncts

Origin = Literal["written", "default", "derived"]


@dataclass(frozen=True, slots=True)
class OriginOf:
    """A JSON value with the origin of everything in it, and its place in the declaration."""

    value: Any
    origin: Origin
    at: Place | None = None


def written(value: Any) -> OriginOf:
    """Mark a value as the author's."""
    return OriginOf(value, "written")


def default(value: Any) -> OriginOf:
    """Mark a value as a default."""
    return OriginOf(value, "default")


def derived(value: Any) -> OriginOf:
    """Mark a value as derived from the declaration or from the tools."""
    return OriginOf(value, "derived")


def stated(declaration: Model, name: str) -> OriginOf:
    """Return one field of a declaration, as written or, where the author left it out, as a default."""
    value = declaration.to_json()[name] if name in declaration.model_fields_set else getattr(declaration, name)
    plain = list(value) if isinstance(value, tuple) else value
    return OriginOf(plain, "written", (name,)) if name in declaration.model_fields_set else default(plain)


def places_of(tree: Any, at: Place = ()) -> dict[str, str]:
    """Return the places in the declaration that a tree states. Keys are JSON Pointers into the expansion, values are
    JSON Pointers into the declaration.
    """
    if isinstance(tree, OriginOf):
        places = {} if tree.at is None else {pointer(at): pointer(tree.at)}
        return places | places_of(tree.value, at)
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {place: source for step, child in items for place, source in places_of(child, (*at, step)).items()}


def split_origins(tree: Any) -> tuple[Any, dict[str, Origin]]:
    """Return the JSON value of a tree, and the origin of each leaf by its JSON Pointer. An empty list or object is a
    leaf.
    """
    return _plain_value(tree), dict(_leaf_origins(tree, (), None))


def _plain_value(tree: Any) -> Any:
    if isinstance(tree, OriginOf):
        return _plain_value(tree.value)
    if isinstance(tree, dict):
        return {name: _plain_value(item) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain_value(item) for item in tree]
    return tree


def _leaf_origins(tree: Any, path: Place, origin: Origin | None) -> Iterator[tuple[str, Origin]]:
    if isinstance(tree, OriginOf):
        yield from _leaf_origins(tree.value, path, tree.origin)
        return
    items: list[tuple[str | int, Any]] = []
    if isinstance(tree, dict):
        items = list(tree.items())
    elif isinstance(tree, list | tuple):
        items = list(enumerate(tree))
    for step, child in items:
        yield from _leaf_origins(child, (*path, step), origin)
    if not items:
        assert origin is not None, f"the field `{pointer(path)}` has no origin"
        yield pointer(path), origin


def written_conjuncts(condition: Any, at: Place) -> list[OriginOf]:
    """Return the conditions whose conjunction `condition` is, marked as written by the author at the place `at`."""
    return [OriginOf(part, "written", at) for part in conjuncts(condition)]
