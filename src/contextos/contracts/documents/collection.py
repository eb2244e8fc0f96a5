"""Collections of stored documents: names, keys, encoding and decoding.

The docstring of a collection names its key. Keys of several parts are made by a function in the same module.
A body that does not fit its model is an `Integrity` error that names collection and key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from contextos.contracts.journal import Document, Write
from contextos.contracts.ports.storage import Store
from contextos.errors import Integrity, InvalidInput

BodyT = TypeVar("BodyT")


@dataclass(frozen=True, slots=True)
class StoredDocument(Generic[BodyT]):
    """A document as it was read, its body decoded. `version` counts from 1 with every write."""

    key: str
    version: int
    body: BodyT


@dataclass(frozen=True, slots=True)
class Collection(Generic[BodyT]):
    """The documents under one name. `decode` raises `ValueError` or `InvalidInput` for bytes that do not fit."""

    name: str
    encode: Callable[[BodyT], bytes]
    decode: Callable[[bytes], BodyT]

    def place(self, key: str) -> tuple[str, str]:
        """The (collection, key) that names a document."""
        return self.name, key

    def write(
        self, key: str, expect: int, body: BodyT, *, not_after_us: int | None = None, not_before_us: int | None = None
    ) -> Write:
        """Replace the document at version `expect`; 0 creates it. Times are Unix microseconds of the store's clock."""
        return Write(self.name, key, expect, self.encode(body), not_after_us, not_before_us)

    def check(self, key: str, expect: int) -> Write:
        """Check that the document is at version `expect` (0: absent), and change nothing."""
        return Write(self.name, key, expect, None)

    async def one(self, store: Store, key: str) -> StoredDocument[BodyT] | None:
        """The document with this key, or None. Raises `Integrity`."""
        found = await store.scan(self.name, key=key)
        return self.read(found[0]) if found else None

    async def page(
        self, store: Store, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[StoredDocument[BodyT]]:
        """At most `limit` documents whose key begins with `prefix`, by key, after `after`. Raises `Integrity`."""
        found = await store.scan(self.name, prefix=prefix, after=after, limit=limit)
        return [self.read(document) for document in found]

    async def keys(self, store: Store) -> AsyncIterator[str]:
        """The key of every document, in order; no body is decoded."""
        after = ""
        while found := await store.scan(self.name, after=after):
            for document in found:
                yield document.key
            after = found[-1].key

    def read(self, document: Document) -> StoredDocument[BodyT]:
        """A stored document with its body decoded. Raises `Integrity`."""
        return StoredDocument(document.key, document.version, self.decoded(document.key, document.body))

    def written(self, writes: Iterable[Write]) -> Iterator[tuple[str, BodyT]]:
        """(key, body) of each of these writes that changes a document of this collection. Raises `Integrity`."""
        for write in writes:
            if write.collection == self.name and write.body is not None:
                yield write.key, self.decoded(write.key, write.body)

    def decoded(self, key: str, raw: bytes) -> BodyT:
        """The body in these bytes. Raises `Integrity`, which names collection and key."""
        try:
            return self.decode(raw)
        except (ValueError, InvalidInput) as fault:
            first = str(fault).replace("\n", " ")[:200]
            detail = f"the document `{self.name}/{key}` is malformed; restore it from a backup: {first}"
            raise Integrity(detail) from None


class FoundDocuments:
    """The documents that one `find_documents` found. Each is as it was when it was read."""

    def __init__(self, found: Mapping[tuple[str, str], Document]) -> None:
        self._found = found

    def one(self, collection: Collection[BodyT], key: str) -> StoredDocument[BodyT] | None:
        """The document of `collection` with this key, or None. Raises `Integrity`."""
        document = self._found.get(collection.place(key))
        return None if document is None else collection.read(document)

    def has(self, collection: Collection[Any], key: str) -> bool:
        """Whether the document is there; its body is not decoded."""
        return collection.place(key) in self._found


async def find_documents(store: Store, *places: tuple[str, str]) -> FoundDocuments:
    """The documents at these places that are there, in one call of the store."""
    return FoundDocuments(await store.find(places))


def strict_decoder(model: type[BodyT]) -> Callable[[bytes], BodyT]:
    """A function from JSON to a frozen dataclass: nothing is coerced, and an unknown field is refused."""

    def decode(raw: bytes) -> BodyT:
        return adapter().validate_json(raw, strict=True, extra="forbid")

    @cache
    def adapter() -> TypeAdapter[BodyT]:
        return TypeAdapter(model)

    return decode
