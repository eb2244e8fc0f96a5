"""Collections of stored documents: names, keys, encoding and decoding.

The docstring of a collection names its key. Keys of several parts are made by a function in the same module.
A body that does not fit its model is an `Integrity` error that names collection and key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import orjson
from pydantic import TypeAdapter

from contextos.contracts.journal import Document, Look, Write
from contextos.contracts.model import final_fields
from contextos.contracts.ports.storage import Store
from contextos.errors import Integrity, InvalidInput

BodyT = TypeVar("BodyT")


@final_fields
class StoredDocument(Generic[BodyT]):
    """A stored document as it was read, with its body decoded.
    `version` is 1 after the first write and rises by 1 with each further write.
    """

    key: str
    version: int
    body: BodyT


@dataclass(frozen=True, slots=True)
class Collection(Generic[BodyT]):
    """One named collection of stored documents, with the functions that encode and decode a body.
    `decode` raises `ValueError` or `InvalidInput` for bytes that are not a valid body.
    """

    name: str
    encode: Callable[[BodyT], bytes]
    decode: Callable[[bytes], BodyT]

    def place(self, key: str) -> tuple[str, str]:
        """Return (collection name, `key`): the address of one document in a store."""
        return self.name, key

    def write(
        self, key: str, expect: int, body: BodyT, *, not_after_us: int | None = None, not_before_us: int | None = None
    ) -> Write:
        """Build the write that replaces the document `key` if its current version is `expect`; 0 creates the
        document.

        The store refuses the write before `not_before_us` or after `not_after_us` (Unix microseconds, the store's
        clock).
        """
        return Write(self.name, key, expect, self.encode(body), not_after_us, not_before_us)

    def check(self, key: str, expect: int) -> Write:
        """Build a write that changes nothing and fails the commit unless the document `key` has version `expect` (0:
        is absent).
        """
        return Write(self.name, key, expect, None)

    async def one(self, store: Store, key: str) -> StoredDocument[BodyT] | None:
        """Read the document with this key; None if there is none. Raises `Integrity` if its body is not valid."""
        documents = await store.scan(self.name, key=key)
        return self.read(documents[0]) if documents else None

    async def page(
        self, store: Store, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[StoredDocument[BodyT]]:
        """Read at most `limit` documents, ordered by key: those whose key begins with `prefix` and sorts after
        `after`.

        Raises `Integrity` if a body is not valid.
        """
        documents = await store.scan(self.name, prefix=prefix, after=after, limit=limit)
        return [self.read(document) for document in documents]

    async def keys(self, store: Store) -> AsyncIterator[str]:
        """Yield the key of every document of this collection, in order. No body is decoded."""
        async for page in self.key_pages(store):
            for key in page:
                yield key

    async def key_pages(self, store: Store, *, prefix: str = "") -> AsyncIterator[list[str]]:
        """Yield the keys that begin with `prefix`, in order, in lists of at most 1,000. No body is decoded."""
        after = ""
        while documents := await store.scan(self.name, prefix=prefix, after=after):
            yield [document.key for document in documents]
            after = documents[-1].key

    def read(self, document: Document) -> StoredDocument[BodyT]:
        """Decode the body of a stored document. Raises `Integrity` if the body is not valid."""
        return StoredDocument(document.key, document.version, self.decoded(document.key, document.body))

    def written(self, writes: Iterable[Write]) -> Iterator[tuple[str, BodyT]]:
        """Yield (key, decoded body) for each write that changes a document of this collection.
        Raises `Integrity` if a body is not valid.
        """
        for write in writes:
            if write.collection == self.name and write.body is not None:
                yield write.key, self.decoded(write.key, write.body)

    def decoded(self, key: str, raw: bytes) -> BodyT:
        """Decode the bytes of a body. Raises `Integrity`, which names the collection and `key`, if they are not
        valid.
        """
        try:
            return self.decode(raw)
        except (ValueError, InvalidInput) as error:
            cause = str(error).replace("\n", " ")[:200]
            detail = f"the document `{self.name}/{key}` is malformed; restore it from a backup: {cause}"
            raise Integrity(detail) from None


class FoundDocuments:
    """The documents that one call of `find_documents` found, each as it was at the moment it was read."""

    def __init__(self, found: Look) -> None:
        self._found, self.lines = found.documents, found.lines

    def same_as(self, other: FoundDocuments) -> bool:
        """Return whether the same documents were found, in the same versions and with the same bodies."""
        return self._found == other._found

    def one(self, collection: Collection[BodyT], key: str) -> StoredDocument[BodyT] | None:
        """Return the document of `collection` with this key, or None. Raises `Integrity` if its body is not valid."""
        document = self.stored(collection, key)
        return None if document is None else collection.read(document)

    def stored(self, collection: Collection[Any], key: str) -> Document | None:
        """Return the document of `collection` with this key as it is stored, or None. Its body is not decoded."""
        return self._found.get(collection.place(key))

    def has(self, collection: Collection[Any], key: str) -> bool:
        """Return whether the document with this key was found. Its body is not decoded."""
        return collection.place(key) in self._found

    def keys(self, collection: Collection[Any], prefix: str) -> list[str]:
        """Return the keys of the documents of `collection` that begin with `prefix`, in order."""
        return sorted(key for name, key in self._found if name == collection.name and key.startswith(prefix))

    def below(self, collection: Collection[BodyT], prefix: str) -> list[StoredDocument[BodyT]]:
        """Return the documents of `collection` whose key begins with `prefix`, by key. Raises `Integrity`."""
        return [collection.read(self._found[collection.place(key)]) for key in self.keys(collection, prefix)]

    def version(self, collection: Collection[Any], key: str) -> int:
        """Return the version of the document with this key, or 0. Its body is not decoded."""
        document = self._found.get(collection.place(key))
        return document.version if document else 0


async def find_documents(
    store: Store,
    *places: tuple[str, str],
    prefixes: Sequence[tuple[str, str, int]] = (),
    lines: Sequence[tuple[str, int]] = (),
) -> FoundDocuments:
    """Read the documents at `places`, pairs of (collection name, key), and the others of `Store.look`, in one call of
    the store. Absent documents are left out.
    """
    # Each key is asked once, from its lowest number on, or each of its lines would be found twice.
    first_numbers = dict(sorted(lines, reverse=True)) if len(lines) > 1 else dict(lines)
    return FoundDocuments(await store.look(places, prefixes=prefixes, lines=[*first_numbers.items()]))


def stored(name: str, model: type[BodyT], encode: Callable[[BodyT], bytes] = orjson.dumps) -> Collection[BodyT]:
    """Return the collection `name`, whose bodies are the frozen dataclass `model` as JSON.

    Its decoder converts no value to another type and refuses unknown fields. `encode` is for bodies that leave out the
    members with default values.
    """

    def decode(raw: bytes) -> BodyT:
        return adapter().validate_json(raw, strict=True, extra="forbid")

    @cache
    def adapter() -> TypeAdapter[BodyT]:
        return TypeAdapter(model)

    return Collection(name, encode, decode)
